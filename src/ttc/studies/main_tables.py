"""What the paper's main tables share: seven methods, two controls, fifteen corruptions.

Two more rows run T3A and ETA as the paper seems to.
"""

from ttc.report.findings import ResultTable
from ttc.studies.cost_table import cost_table
from ttc.studies.figures import per_corruption
from ttc.studies.measurements import Measurements
from ttc.studies.odd_rows import odd_rows
from ttc.studies.study import Entry, Greater, Study, scales

CONTROLS = (Entry("NORM + flip", "norm+flip"), Entry("TENT + flip", "tent+flip"))
ENTRIES = (
    Entry("SOURCE", "source", paper="SOURCE"),
    Entry("NORM", "norm", paper="NORM"),
    Entry("T3A", "t3a", paper="T3A"),
    Entry("ETA", "eta", paper="ETA"),
    Entry("TIPI", "tipi", paper="TIPI"),
    Entry("TENT", "tent", paper="TENT"),
    Entry("TTC", "ttc", paper="TTC"),
    *CONTROLS,
    Entry("T3A (M = 1)", "t3a-paper", paper="T3A"),
    Entry("ETA (ε = 0.05)", "eta-paper", paper="ETA"),
)
CONTROL_NOTE = (
    "NORM + flip and TENT + flip are controls: they adapt as their namesakes and predict, as TTC does, with the mean "
    "over an image and its mirror image. What TTC gains beyond them is adaptation, not averaging."
)
CLAIMS = (
    Greater("TTC improves on TENT.", "TTC", "TENT"),
    Greater("TTC improves on the source model.", "TTC", "SOURCE"),
    Greater("Statistics of the batch alone improve on the source model.", "NORM", "SOURCE"),
    Greater("TENT improves on batch statistics alone.", "TENT", "NORM"),
    Greater("The gain is more than that of averaging over the flip.", "TTC", "TENT + flip"),
)


def _tables(measured: Measurements) -> tuple[ResultTable, ...]:
    return odd_rows(measured), cost_table(measured)


def main_table(name: str, title: str, about: str, table: str, setting: str, *notes: str) -> Study:
    """Describe one of the paper's tables of methods by corruptions."""
    return Study(
        name=name,
        title=title,
        about=about,
        setting=setting,
        entries=ENTRIES,
        scale=scales(),
        table=table,
        claims=CLAIMS,
        figures=per_corruption,
        extra=_tables,
        notes=(CONTROL_NOTE, *notes),
        labels=tuple(entry.name for entry in ENTRIES[:9]),
        controls=tuple(entry.name for entry in CONTROLS),
    )
