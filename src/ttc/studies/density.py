"""Where the features lie: TENT's and TTC's against those of a model that adapts with the labels."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from ttc.bench.metrics import paired_interval
from ttc.report.findings import Claim, Figure, ResultTable, Value
from ttc.report.formatting import number, readable
from ttc.report.plots import Curve, Panel, line_panels
from ttc.studies.measurements import Measurements
from ttc.studies.study import Entry, Study, scales

CORRUPTION = "impulse_noise"
SHOWN, GRID = 6, 96
Floats = NDArray[np.float64]


def density(values: Floats, grid: Floats) -> Floats:
    """The Gaussian kernel density of ``values`` (N,) at ``grid`` (G,), with Scott's bandwidth.

    >>> grid = np.linspace(-5, 5, 201)
    >>> found = density(np.random.default_rng(0).normal(size=500), grid)
    >>> round(float(found.sum() * (grid[1] - grid[0])), 2)
    1.0
    """
    width = max(float(values.std()), 1e-6) * len(values) ** -0.2
    return np.asarray(np.exp(-0.5 * ((grid[:, None] - values) / width) ** 2).mean(1) / (width * np.sqrt(2 * np.pi)))


def overlap(one: Floats, other: Floats) -> float:
    """The shared area of two densities of samples, from 0 to 1: ∫ min(p, q).

    >>> same = np.random.default_rng(0).normal(size=400)
    >>> round(overlap(same, same), 2), round(overlap(same, same + 100), 2)
    (1.0, 0.0)
    """
    both = np.concatenate([one, other])
    margin = 3 * max(float(one.std()), float(other.std()), 1e-6)
    grid = np.linspace(both.min() - margin, both.max() + margin, 512)
    smaller = np.minimum(density(one, grid), density(other, grid))
    return float(min(1.0, smaller.sum() * (grid[1] - grid[0])))


def features(measured: Measurements) -> dict[str, Floats]:
    """Return the features (N, D) with which each model predicted, from the cache; empty while cells are missing."""
    from ttc.files import atomic
    from ttc.studies.features import adapted, supervised

    rows = {name: measured.rows(name, _corruption(measured)) for name in ("TENT", "TTC")}
    if not all(rows.values()):
        return {}
    protocols = {name: found[0].protocol for name, found in rows.items()}
    key = hashlib.sha256("".join(protocol.hash for protocol in protocols.values()).encode()).hexdigest()
    path = measured.setup.workload.cache / f"features-{key[:32]}.npz"
    if not path.exists():
        found = {name: adapted(measured.setup.resolved, protocol) for name, protocol in protocols.items()}
        found["supervised"] = supervised(measured.setup.resolved, protocols["TENT"])
        with atomic(path) as part, part.open("wb") as file:
            np.savez(file, supervised=found["supervised"], TENT=found["TENT"], TTC=found["TTC"])
    with np.load(path, allow_pickle=False) as cached:
        return {name: cached[name].astype(np.float64) for name in ("supervised", "TENT", "TTC")}


def _corruption(measured: Measurements) -> str:
    return next(iter(measured.plan.corruptions), CORRUPTION)


def overlaps(found: dict[str, Floats]) -> dict[str, Floats]:
    """The overlap of each channel with the supervised one, for TENT and TTC: (D,) each."""
    reference = found["supervised"]
    return {
        name: np.array([overlap(reference[:, d], found[name][:, d]) for d in range(reference.shape[1])])
        for name in ("TENT", "TTC")
    }


def _shown(found: dict[str, Floats]) -> list[int]:
    """The channels shown: those in which the supervised features vary most, whatever the methods do."""
    return sorted(np.argsort(-found["supervised"].var(0))[:SHOWN].tolist())


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    found = features(measured)
    if not found:
        return ()
    scores, panels = overlaps(found), []
    for channel in _shown(found):
        ends = np.concatenate([values[:, channel] for values in found.values()])
        grid = np.linspace(float(np.quantile(ends, 0.001)), float(np.quantile(ends, 0.999)), GRID)
        lines = {
            name: Curve([(float(x), float(y)) for x, y in zip(grid, density(values[:, channel], grid), strict=True)])
            for name, values in found.items()
        }
        title = f"channel {channel}: TENT {number(scores['TENT'][channel], 2)}, TTC {number(scores['TTC'][channel], 2)}"
        panels.append(Panel(title, lines, "feature", "density", limits=(0, None)))
    return (density_figure(panels, _corruption(measured)),)


def density_figure(panels: list[Panel], corruption: str) -> Figure:
    """Return the figure of the densities, one panel per channel."""
    title = f"Densities of features under {readable(corruption)}, with their overlap with supervised"
    note = (
        f"The {SHOWN} channels in which the supervised features vary most. Supervised: the same layers adapted to the "
        "same stream with cross-entropy on the true labels, where TENT uses the entropy."
    )
    return Figure("density", line_panels(panels, title, columns=3, height=120, filled=True), note)


def _table(measured: Measurements) -> tuple[ResultTable, ...]:
    found = features(measured)
    if not found:
        return ()
    scores = overlaps(found)
    rows = {"all channels, mean": {name: Value(float(values.mean())) for name, values in scores.items()}}
    rows |= {f"channel {d}": {name: Value(float(values[d])) for name, values in scores.items()} for d in _shown(found)}
    title = f"Overlap with the supervised features, 0 to 1, {found['TTC'].shape[1]} channels"
    return (ResultTable("density-overlap", title, ("TENT", "TTC"), rows, best="", digits=3, what="channel"),)


def _claims(measured: Measurements) -> tuple[Claim, ...]:
    text = "TTC's features lie closer to the supervised ones than TENT's."
    found = features(measured)
    if not found:
        return (Claim(text, "undecided", "not all of its cells are finished"),)
    scores = overlaps(found)
    gain = paired_interval(scores["TENT"], scores["TTC"])
    verdict = "holds" if gain.low > 0 else "does not hold" if gain.high < 0 else "undecided"
    closer = float((scores["TTC"] > scores["TENT"]).mean())
    difference, low, high = (number(value, 3, sign=True) for value in gain)
    evidence = (
        f"mean overlap TENT {number(scores['TENT'].mean(), 3)}, TTC {number(scores['TTC'].mean(), 3)}; difference "
        f"{difference} ({low} to {high} over channels); TTC is closer in {closer:.0%} of the channels"
    )
    return (Claim(text, verdict, evidence),)


STUDY = Study(
    name="density",
    title="Densities of features on impulse noise",
    about="The paper draws the distribution of single feature channels under impulse noise: closer to a model that "
    "adapts with the labels is better. A figure of chosen channels can mislead, so an overlap is computed "
    "for every channel.",
    setting="cifar10c",
    contest=False,
    entries=(Entry("TENT", "tent"), Entry("TTC", "ttc")),
    scale=scales((CORRUPTION,), paper=(CORRUPTION,)),
    baseline="TENT",
    figures=_figures,
    extra=_table,
    judged=_claims,
)
