"""The findings of one study on one dataset with one model, as a column of a page about several."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ttc.errors import TTCError
from ttc.report.findings import AVERAGE, Findings, ResultTable, Value
from ttc.report.output import read_folder

DATASETS = {"cifar10c": "CIFAR-10", "cifar100c": "CIFAR-100", "imagenetc": "ImageNet"}


@dataclass(frozen=True)
class Column:
    """The findings of one dataset and model, in the folder that ``ttc reproduce --profile real`` wrote."""

    folder: str
    findings: Sequence[Findings]

    @property
    def main(self) -> Findings:
        """The main table."""
        return next(one for one in self.findings if one.study in DATASETS)

    @property
    def title(self) -> str:
        """The dataset and the model."""
        model = str(self.main.cells[0].protocol["model"]).rpartition(":")[2] if self.main.cells else self.folder
        model = model.removeprefix("imagenet-")
        return f"{DATASETS[self.main.study]}, {'ResNet-20' if model == 'embedded' else model}"

    def table(self, ending: str, study: str = "") -> ResultTable | None:
        """Return the table whose name ends so, of the main study or of one whose name begins with ``study``."""
        chosen = [one for one in self.findings if one.study.startswith(study)] if study else [self.main]
        return next((table for one in chosen for table in one.tables if table.name.endswith(ending)), None)

    def value(self, ending: str, row: str, column: str) -> Value:
        """Return a number of a table of the main study, without a number where there is none."""
        table = self.table(ending)
        return table.rows.get(row, {}).get(column, Value(None)) if table else Value(None)

    def average(self, row: str) -> Value:
        """Return the average accuracy of a row."""
        return self.value(self.main.study, row, AVERAGE)

    def average_with(self, other: "Column", row: str) -> float | None:
        """Return the average accuracy of a row over the corruptions that both columns have."""
        ours, theirs = (table.columns if (table := one.table(one.main.study)) else () for one in (self, other))
        common = [name for name in ours if name in theirs and name != AVERAGE] or [AVERAGE]
        found = [self.value(self.main.study, row, name).ours for name in common]
        numbers = [value for value in found if value is not None]
        return sum(numbers) / len(numbers) if numbers else None

    def difference(self, row: str) -> Value:
        """Return a difference between two rows, from the table of odd rows."""
        return self.value("odd-rows", row, "points")


def read_columns(folder: Path) -> list[Column]:
    """Read the findings below a folder, one column per subfolder that has a main table.

    Args:
        folder: Where ``ttc reproduce --profile real`` wrote, such as ``reproduction/real``.

    Returns:
        The columns: CIFAR-10, CIFAR-100, ImageNet.

    Raises:
        TTCError: If there is no main table below the folder.
    """
    found = [Column(path.name, read_folder(path)) for path in sorted(folder.iterdir()) if path.is_dir()]
    found = [column for column in found if any(one.study in DATASETS for one in column.findings)]
    if not found:
        raise TTCError(f"{folder} has no main table: run ttc reproduce cifar100c --profile real --data PATH first")
    return sorted(found, key=lambda column: [*DATASETS].index(column.main.study))
