"""The paper's tables and figures, and studies of our own, one file each, on top of the benchmark."""

from importlib import import_module
from typing import TYPE_CHECKING

from ttc.errors import unknown

if TYPE_CHECKING:
    from ttc.studies.study import Study

PAPER = (
    *("cifar10c", "cifar100c", "imagenetc", "resnet50", "components", "augmentations", "batch-size", "collapse"),
    *("probabilities", "density", "ambiguities"),
)
NAMES = (*PAPER, "severity", "few-images", "field", "regret")
__all__ = ["NAMES", "PAPER", "study_named"]


def study_named(name: str) -> "Study":
    """The study of a name.

    >>> study_named("batch-size").title
    'Average accuracy against batch size'
    """
    if name not in NAMES:
        raise unknown("study", name, [*NAMES, "all"])
    found: Study = import_module(f"ttc.studies.{name.replace('-', '_')}").STUDY
    return found
