"""A study: the rows of one of the paper's tables or figures as methods to run, and what the paper says of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ttc.errors import TTCError, unknown
from ttc.report.findings import Claim, Figure, ResultTable

if TYPE_CHECKING:
    from ttc.studies.measurements import Measurements

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
class Scale:
    """How much of the data a profile uses: images of each corruption (None: all), and which corruptions."""

    images: int | None
    corruptions: tuple[str, ...] = ALL


@dataclass(frozen=True)
class Entry:
    """A row: name, method and scenario as ``ttc run`` writes them, batch size, and the paper's row to compare with.

    ``embedded`` is the scale of the row in the embedded profile, where it is not that of the study.
    Severity 0 is the clean images, as one cell whatever the corruptions.
    """

    name: str
    method: str
    batch_size: int = 100
    paper: str = ""
    scenario: str = "per-domain"
    embedded: Scale | None = None
    severity: int = 5


@dataclass(frozen=True)
class Greater:
    """The paper's claim that one row's average exceeds another's by more than ``by`` points."""

    text: str
    better: str
    worse: str
    by: float = 0.0


def scales(corruptions: tuple[str, ...] = ALL, paper: tuple[str, ...] = ALL, images: int = 2000) -> Mapping[str, Scale]:
    """Return the scale of each profile: some images of these corruptions, all images of them, what the paper ran."""
    every = Scale(None, corruptions)
    return {"embedded": Scale(images, corruptions), "cpu": every, "real": every, "paper": Scale(None, paper)}


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper as a typed description.

    Args:
        name: The name on the command line.
        title: What it shows.
        about: What it is for, in a few sentences.
        setting: What the paper ran it on.
        entries: Its rows.
        scale: How much of the data each profile uses.
        table: The paper's table to compare with.
        baseline: The row that gains are measured from.
        claims: The paper's claims about the averages.
        figures: Makes its figures.
        extra: Makes tables of its own kind.
        judged: Judges claims of its own kind.
        notes: Sentences below it.
        contest: Whether the headline names the best row; otherwise it states the verdict on the first claim.
        elsewhere: Whether it also runs on other data than that of its setting.
        labels: The rows among which the headline names the best; all when empty.
        controls: The rows that are controls, not methods; the headline says so.
        detailed: Whether to show the table of all rows by corruption.
        lighter: Methods and scenarios that the embedded profile replaces by cheaper ones: ``{written: replacement}``.
        embedded_sizes: The batch sizes that the embedded profile runs; all when empty.
    """

    name: str
    title: str
    about: str
    setting: str
    entries: tuple[Entry, ...]
    scale: Mapping[str, Scale]
    table: str = ""
    baseline: str = "SOURCE"
    claims: tuple[Greater, ...] = ()
    figures: Callable[["Measurements"], tuple[Figure, ...]] | None = None
    extra: Callable[["Measurements"], tuple[ResultTable, ...]] | None = None
    judged: Callable[["Measurements"], tuple[Claim, ...]] | None = None
    notes: tuple[str, ...] = field(default=())
    contest: bool = True
    elsewhere: bool = False
    labels: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    detailed: bool = True
    lighter: Mapping[str, str] = field(default_factory=dict)
    embedded_sizes: tuple[int, ...] = ()

    def as_run(self, entry: Entry, profile: str) -> Entry:
        """Return an entry as a profile runs it."""
        lighter = self.lighter if profile == "embedded" else {}
        method, scenario = lighter.get(entry.method, entry.method), lighter.get(entry.scenario, entry.scenario)
        return replace(entry, method=method, scenario=scenario)

    def scale_of(self, entry: Entry, profile: str) -> Scale:
        """Return how much of the data a profile uses for an entry."""
        return (entry.embedded if profile == "embedded" else None) or self.scale[profile]

    def restrict(
        self, methods: tuple[str, ...] = (), batch_sizes: tuple[int, ...] = (), scenarios: tuple[str, ...] = ()
    ) -> "Study":
        """Return the study with some of its rows, or with another batch size.

        Args:
            methods: Methods as ``ttc run`` writes them, or names of rows; all when empty.
            batch_sizes: Of a study that varies the batch size, those to keep; of another, the one to run it with.
            scenarios: The scenarios to keep; all when empty.

        Returns:
            The study, with the claims about the rows that are left.

        Raises:
            TTCError: If it has no such row, lacks the row that others are compared with, or has one batch size.
        """
        known = dict.fromkeys(entry.method for entry in self.entries)
        names = {_unify_quotes(name) for entry in self.entries for name in (entry.method, entry.name)}
        for method in methods:
            if _unify_quotes(method) not in names:
                raise unknown(f"row of {self.name}", method, known)
        asked = {_unify_quotes(method) for method in methods}
        entries = tuple(
            one for one in self.entries if not asked or {_unify_quotes(one.method), _unify_quotes(one.name)} & asked
        )
        entries = self._with_sizes(entries, batch_sizes)
        orders = dict.fromkeys(entry.scenario for entry in self.entries)
        for scenario in scenarios:
            if scenario not in orders:
                raise unknown(f"scenario of {self.name}", scenario, orders)
        entries = tuple(entry for entry in entries if not scenarios or entry.scenario in scenarios)
        names = {entry.name for entry in entries}
        return replace(
            self,
            entries=entries,
            baseline=self._baseline(entries),
            claims=tuple(claim for claim in self.claims if {claim.better, claim.worse} <= names),
            labels=tuple(label for label in self.labels if label in names),
            controls=tuple(control for control in self.controls if control in names),
        )

    def _with_sizes(self, entries: tuple[Entry, ...], sizes: tuple[int, ...]) -> tuple[Entry, ...]:
        known = sorted({entry.batch_size for entry in self.entries})
        if len(known) > 1:
            for size in sizes:
                if size not in known:
                    raise unknown(f"batch size of {self.name}", str(size), map(str, known))
            return tuple(entry for entry in entries if not sizes or entry.batch_size in sizes)
        if len(sizes) > 1:
            raise TTCError(f"{self.name} has one batch size, got {len(sizes)}: run it once for each")
        return tuple(replace(entry, batch_size=size) for entry in entries for size in sizes or (entry.batch_size,))

    def _baseline(self, entries: tuple[Entry, ...]) -> str:
        """Return the row that others are compared with, of the same method where some rows are left out."""
        names = {entry.name for entry in entries}
        method = next((entry.method for entry in self.entries if entry.name == self.baseline), "")
        same = (entry.name for entry in entries if entry.method == method)
        found = self.baseline if self.baseline in names or not entries else next(same, None)
        if found is None:
            raise TTCError(f"the rows of {self.name} are compared with {self.baseline}: add it to --methods")
        return found


def _unify_quotes(text: str) -> str:
    """Return a method or the name of a row as it is compared: a shell decides which quotes a user can write."""
    return text.replace("'", '"')
