"""A study: the rows of one of the paper's tables or figures as methods to run, and what the paper says of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ttc.report.findings import Claim, Figure, Table

if TYPE_CHECKING:
    from ttc.studies.measured import Measured

ALL = (
    *(
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
        "snow",
    ),
    *("frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
FIVE = ("gaussian_noise", "motion_blur", "frost", "contrast", "jpeg_compression")
THREE = ("gaussian_noise", "frost", "contrast")


@dataclass(frozen=True)
class Entry:
    """A row: its name, the method as ``ttc run`` writes it, its batch size, and the paper's row to hold it against."""

    name: str
    method: str
    batch_size: int = 100
    paper: str = ""


@dataclass(frozen=True)
class Greater:
    """The paper's claim that one row's average exceeds another's by more than ``by`` points."""

    text: str
    better: str
    worse: str
    by: float = 0.0


@dataclass(frozen=True)
class Scale:
    """How much of the data a profile uses: images of each corruption (None: all), and which corruptions."""

    images: int | None
    corruptions: tuple[str, ...] = ALL


def scales(corruptions: tuple[str, ...] = ALL, paper: tuple[str, ...] = ALL, images: int = 2000) -> Mapping[str, Scale]:
    """The scale of each profile: so many images of these corruptions, all images of them, and what the paper shows."""
    return {"embedded": Scale(images, corruptions), "cpu": Scale(None, corruptions), "paper": Scale(None, paper)}


@dataclass(frozen=True)
class Study:
    """A typed description; the machinery is shared.

    ``setting`` is what the paper ran it on, ``table`` the paper's table, ``column`` its column where it has only
    averages, ``baseline`` the row that gains are measured from. ``extra`` adds tables and ``judged``
    claims of its own kind; ``labels`` are the rows among which the headline names a winner.
    """

    name: str
    title: str
    about: str
    setting: str
    entries: tuple[Entry, ...]
    scale: Mapping[str, Scale]
    table: str = ""
    column: str = ""
    baseline: str = "SOURCE"
    claims: tuple[Greater, ...] = ()
    figures: Callable[["Measured"], tuple[Figure, ...]] | None = None
    extra: Callable[["Measured"], tuple[Table, ...]] | None = None
    judged: Callable[["Measured"], tuple[Claim, ...]] | None = None
    notes: tuple[str, ...] = field(default=())
    contest: bool = True  # whether the headline names a winner, or tells what came of the first claim
    elsewhere: bool = False  # the paper ran it on its other data too
    labels: tuple[str, ...] = ()  # all when empty
