"""What each row of a study costs: passes, time and memory."""

import numpy as np

from ttc.report.findings import ResultTable, Value
from ttc.studies.measurements import Measurements

COLUMNS = {
    "ms per image": "",
    "forward passes": "forwards",
    "backward passes": "backwards",
    "peak memory (MB)": "peak_memory_mb",
}


def cost_table(measured: Measurements) -> ResultTable:
    """Return the cost of each row: means over its cells, the time as their median."""
    rows: dict[str, dict[str, Value]] = {}
    for entry in measured.study.entries:
        cells = measured.rows(entry.name)
        hashes = tuple(row.protocol.hash for row in cells)
        rows[entry.name] = {}
        for column, field in COLUMNS.items():
            value = _mean([row.cost.get(field, np.nan) for row in cells]) if field else measured.cost(entry.name)
            rows[entry.name][column] = Value(value, None, None, hashes if value is not None else ())
    sizes = sorted({entry.batch_size for entry in measured.study.entries})
    batches = f"batch size {sizes[0]}" if len(sizes) == 1 else "the batch size each row names"
    return ResultTable(
        f"{measured.study.name}-cost-table",
        f"Cost: {batches}",
        tuple(COLUMNS),
        rows,
        best="min",
        digits=2,
        notes=(
            "Passes are per image. The peak is of all tensors alive while a batch is predicted, without the weights. "
            "With one thread on the CPU, times are of the processor, without the time it spent on other work.",
        ),
    )


def _mean(values: list[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else None
