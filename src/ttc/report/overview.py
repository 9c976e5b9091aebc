"""What a store holds, study or not: a table and a picture for each setting in it."""

import json
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ttc.bench.comparison import method_names
from ttc.bench.metrics import paired_interval
from ttc.bench.store import Row
from ttc.report.charts import dot_chart
from ttc.report.findings import Figure, Findings, Table, Value, cell_of
from ttc.report.labels import points

AVERAGE = "average"


def overview(rows: Sequence[Row]) -> list[Findings]:
    """The finished rows, one set of findings for each data set, model, scenario, severity, size and batch."""
    finished = [row for row in rows if row.status == "finished"]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in finished:
        groups[_setting(row)].append(row)
    return [_findings(place, setting, group) for place, (setting, group) in enumerate(groups.items(), 1)]


def _setting(row: Row) -> str:
    cell = row.protocol
    level = f"severity {cell.severity}" if cell.severity else "clean"
    return (
        f"{cell.dataset}, {cell.model}, {cell.scenario}, {level}, {cell.images:,} images, batch size {cell.batch_size}"
    )


def _findings(place: int, setting: str, rows: Sequence[Row]) -> Findings:
    names = method_names(rows)
    columns = tuple(dict.fromkeys(_column(row) for row in rows))
    methods: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        methods[names[row.protocol.hash]][_column(row)].append(row)
    values: dict[str, dict[str, Value]] = {}
    for method, found in methods.items():
        values[method] = {column: _value(group) for column, group in found.items()}
        if len(columns) > 1 and len(found) == len(columns):
            values[method][AVERAGE] = _value([row for group in found.values() for row in group])
    shown = (*columns, AVERAGE) if any(AVERAGE in row for row in values.values()) else columns
    table = Table(f"setting-{place}", f"Accuracy (%): {setting}", shown, values)
    rows_of = {
        column: {
            method: value.ours
            for method, row in values.items()
            if (value := row.get(column)) is not None and value.ours is not None
        }
        for column in shown
    }
    chart = dot_chart(rows_of, f"Accuracy: {setting}")
    whole = {method: [row for group in found.values() for row in group] for method, found in methods.items()
             if len(found) == len(columns)}  # fmt: skip
    return Findings(
        study=f"setting-{place}",
        title=setting,
        about="Every finished cell of the store in this setting.",
        profile="",
        headline=_headline(whole),
        tables=(table,),
        figures=(Figure(f"setting-{place}", chart, "Each mark is a method; further right is better."),),
        cells=tuple(cell_of(row) for row in rows),
    )


def _column(row: Row) -> str:
    names = row.protocol.corruptions
    return names[0] if len(names) == 1 else f"{len(names)} corruptions"


def _value(rows: Sequence[Row]) -> Value:
    lengths = {len(row.correct) for row in rows}
    error = None
    if len(lengths) == 1:
        shares = np.mean([row.correct for row in rows], axis=0)
        error = 100 * float(shares.std()) / len(shares) ** 0.5
    accuracy = 100 * float(np.mean([row.figures["accuracy"] for row in rows]))
    return Value(accuracy, error, None, tuple(row.protocol.hash for row in rows))


def _headline(methods: dict[str, list[Row]]) -> str:
    means = {name: float(np.mean([row.figures["accuracy"] for row in rows])) for name, rows in methods.items()}
    if len(means) < 2:
        return ""
    first, second = sorted(means, key=lambda name: -means[name])[:2]
    images = {(json.dumps(row.protocol.corruptions), row.protocol.seed) for row in methods[first]}
    if images != {(json.dumps(row.protocol.corruptions), row.protocol.seed) for row in methods[second]}:
        return f"{first} is best with {100 * means[first]:.1f} %."
    shares = [np.mean([row.correct for row in methods[name]], axis=0) for name in (second, first)]
    gain = paired_interval(shares[0], shares[1])
    sure = "significant at 95 %" if gain.low > 0 else "not significant at 95 %"
    by = points(*(100 * end for end in gain))
    return f"{first} is best with {100 * means[first]:.1f} %, ahead of {second} by {by}: {sure}."
