"""Lemma 1 as a figure: a gradient step on the entropy raises the largest probability."""

import numpy as np
from numpy.typing import NDArray

from ttc.report.findings import Claim, Figure, ResultTable, Value
from ttc.report.palette import BLUE, GREY, ORANGE, Style
from ttc.report.plots import Curve, Panel, line_panels
from ttc.studies.measurements import Measurements
from ttc.studies.study import Study, scales

RATES = {2: 0.11, 3: 0.15, 10: 0.37, 100: 2.4}  # the step for each K, chosen so that all panels show the whole way
CLASSES, STEPS = tuple(RATES), 60
STYLES = {
    "largest": Style(ORANGE),
    "second largest": Style(BLUE),
    "sum of all others": Style(GREY, dashed=True),
}
Floats = NDArray[np.float64]


def descent(logits: Floats, steps: int = STEPS, rate: float = 0.1) -> Floats:
    """The probabilities (steps + 1, K) while gradient descent on the logits lowers their entropy.

    H = -Σ p log p of p = softmax(z) has dH/dz_k = -p_k (log p_k + H).

    >>> path = descent(np.array([0.5, 0.4, 0.0]))
    >>> bool((np.diff(path.max(1)) > 0).all())
    True
    """
    found = []
    z = logits.astype(np.float64)
    for _ in range(steps + 1):
        log_p = z - z.max() - np.log(np.exp(z - z.max()).sum())
        p = np.exp(log_p)
        found.append(p)
        z = z + rate * p * (log_p - (p * log_p).sum())
    return np.stack(found)


def start(classes: int) -> Floats:
    """Logits that are close to one another, with one a little ahead.

    >>> int(start(5).argmax())
    0
    """
    others = np.random.default_rng(classes).uniform(-0.5, 0.0, size=classes - 1)
    return np.concatenate([[0.15], np.sort(others)[::-1]])


def _paths() -> dict[int, Floats]:
    return {classes: descent(start(classes), rate=rate) for classes, rate in RATES.items()}


def probability_panel(classes: int, path: Floats) -> Panel:
    """Return the panel of one number of classes: the largest, the second and the sum of all but the largest."""
    shown = dict(zip(STYLES, (path[:, 0], path[:, 1], 1 - path[:, 0]), strict=True))
    curves = {name: Curve([(float(step), float(p)) for step, p in enumerate(values)]) for name, values in shown.items()}
    return Panel(f"{classes} classes", curves, "step", "probability", limits=(0, 1))


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    panels = [probability_panel(classes, path) for classes, path in _paths().items()]
    title = "Class probabilities while gradient descent lowers their entropy"
    note = "In every panel the largest probability grows at each step and the sum of the others falls."
    return (Figure("probabilities", line_panels(panels, title, styles=STYLES, height=160), note),)


def _table(measured: Measurements) -> tuple[ResultTable, ...]:
    rows = {
        f"K = {classes}": {
            "largest at first": Value(float(path[0, 0])),
            "largest at last": Value(float(path[-1, 0])),
            "steps at which it fell": Value(float((np.diff(path[:, 0]) < 0).sum())),
        }
        for classes, path in _paths().items()
    }
    columns = ("largest at first", "largest at last", "steps at which it fell")
    title = f"The largest probability over {STEPS} steps of gradient descent"
    return (ResultTable("probabilities", title, columns, rows, best="", digits=3, what="classes"),)


def _claims(measured: Measurements) -> tuple[Claim, ...]:
    falls = sum(int((np.diff(path[:, 0]) < 0).sum()) for path in _paths().values())
    text = "Descending the entropy raises the largest probability and lowers the sum of the others."
    evidence = f"{falls} of {STEPS * len(CLASSES)} steps went the other way"
    return (Claim(text, "does not hold" if falls else "holds", evidence),)


STUDY = Study(
    name="probabilities",
    title="Lemma 1: entropy descent raises the largest probability",
    about="Pure mathematics, no data: starting from probabilities that are close together, gradient descent on the "
    "entropy of softmax(z) with respect to z makes the largest probability larger at every step and the rest smaller, "
    "whatever the number of classes. The same holds for a wrong label: nothing in it depends on the truth.",
    setting="cifar10c",
    contest=False,
    entries=(),
    scale=scales(),
    figures=_figures,
    extra=_table,
    judged=_claims,
    notes=("That it holds for any starting point is a property test of the package, not of this figure.",),
)
