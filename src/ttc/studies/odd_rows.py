"""Rows of the paper's main tables that need an explanation, as differences that can be compared with ours."""

from dataclasses import dataclass

from ttc.report.findings import ResultTable, Value
from ttc.studies import paper
from ttc.studies.measurements import Measurements
from ttc.studies.study import Entry


@dataclass(frozen=True)
class OddRow:
    """The difference of two rows, on average or on one corruption, and why it is odd in the paper."""

    first: str
    second: str
    corruption: str | None = None

    @property
    def name(self) -> str:
        """The difference in words."""
        place = f", {self.corruption.replace('_', ' ')}" if self.corruption else ""
        return f"{self.first} − {self.second}{place}"


ODD_ROWS = (
    OddRow("NORM", "SOURCE"),  # on CIFAR-100-C +42.2: SOURCE has 8.8
    OddRow("NORM", "TTC"),  # above TTC on CIFAR-100-C alone
    OddRow("T3A", "SOURCE"),  # below SOURCE on ImageNet-C
    OddRow("T3A (M = 1)", "SOURCE"),
    OddRow("ETA", "NORM"),  # level on CIFAR-10-C
    OddRow("ETA (ε = 0.05)", "NORM"),
    OddRow("ETA", "NORM", "defocus_blur"),  # 4.9 % and 2.8 % on ImageNet-C
    OddRow("ETA", "NORM", "contrast"),
    OddRow("ETA (ε = 0.05)", "NORM", "defocus_blur"),
    OddRow("ETA (ε = 0.05)", "NORM", "contrast"),
    OddRow("TIPI", "NORM"),
)


def odd_rows(measured: Measurements) -> ResultTable:
    """Return these differences in points, ours beside the paper's, with the standard error over images."""
    entries = {entry.name: entry for entry in measured.study.entries}
    rows: dict[str, dict[str, Value]] = {}
    for odd in ODD_ROWS:
        if odd.first not in entries or odd.second not in entries:
            continue
        if odd.corruption is not None and odd.corruption not in measured.plan.corruptions:
            continue
        gain = measured.gain(odd.first, odd.second, odd.corruption)
        theirs = [_published(measured, entries[name], odd.corruption) for name in (odd.first, odd.second)]
        difference = None if None in theirs else round((theirs[0] or 0.0) - (theirs[1] or 0.0), 6)
        error = None if gain is None else (gain.high - gain.low) / (2 * 1.96)
        rows[odd.name] = {"points": Value(gain.estimate if gain else None, error, difference)}
    return ResultTable(
        f"{measured.study.name}-odd-rows",
        "Odd rows of the paper: differences in points",
        ("points",),
        rows,
        best="",
        digits=2,
        notes=("The paper has one row each for T3A and ETA, which both readings are compared with.",),
        what="difference",
    )


def _published(measured: Measurements, entry: Entry, corruption: str | None) -> float | None:
    if not measured.study.table or not entry.paper:
        return None
    if corruption is not None:
        return paper.value(measured.study.table, entry.paper, corruption)
    return paper.average(measured.study.table, entry.paper, measured.plan.corruptions)
