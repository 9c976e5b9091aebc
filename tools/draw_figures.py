"""Draw the plots of docs/clustering.md: python tools/draw_figures.py (docs/figures/cycle.svg is edited by hand)"""

from pathlib import Path

import torch

import ttc
from ttc.clustering import softmax_entropy
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded
from ttc.report.findings import Spec
from ttc.report.palette import BLUE, ORANGE, Style
from ttc.report.plots import Curve, Panel, Rule, line_panels
from ttc.report.rendering import render
from ttc.studies.probabilities import RATES, STYLES, descent, probability_panel, start

FOLDER = Path(__file__).parents[1] / "docs" / "figures"


def lemma() -> Spec:
    """The probabilities of three and of ten classes while gradient descent lowers their entropy."""
    panels = [probability_panel(classes, descent(start(classes), rate=RATES[classes])) for classes in (3, 10)]
    return line_panels(panels, "Class probabilities while the entropy descends", styles=STYLES)


def selection() -> tuple[Spec, str]:
    """The entropies of right and wrong labels under noise, with the mean that selects; and its numbers in words."""
    images, adapter = embedded(), ttc.adapt(ttc.models.embedded(), "norm")
    pixels = as_tensor(corrupt(images.pixels(range(2000)), "gaussian_noise", severity=5))
    logits = torch.cat([adapter(batch) for batch in pixels.split(100)])
    right = logits.argmax(1) == torch.from_numpy(images.labels)
    entropy = softmax_entropy(logits)
    edges = torch.linspace(0, 2.0, 21)
    middles = (0.5 * (edges[1:] + edges[:-1])).tolist()
    counts = {
        "right label": torch.histogram(entropy[right], edges).hist.tolist(),
        "wrong label": torch.histogram(entropy[~right], edges).hist.tolist(),
    }
    curves = {name: Curve(list(zip(middles, values, strict=True))) for name, values in counts.items()}
    mean = float(entropy.mean())
    rule = Rule("x", mean, "mean entropy: kept to the left")
    panel = Panel("", curves, "entropy of the label (nats)", "images", (0, None), [rule])
    styles = {"right label": Style(BLUE), "wrong label": Style(ORANGE)}
    spec = line_panels([panel], "Which labels the selection keeps", styles=styles, columns=1, height=240, filled=True)
    kept = entropy <= mean
    percent = [100 * float(part.float().mean()) for part in (kept, right[kept], right[~kept], right)]
    words = "kept {:.0f} %, of them right {:.1f} %, of the others {:.1f} %, of all {:.1f} %".format(*percent)
    return spec, words


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    plot, words = selection()
    for name, spec in {"lemma": lemma(), "selection": plot}.items():
        (FOLDER / f"{name}.svg").write_bytes(render(spec, "svg"))
    print(f"the numbers in the text on selection: {words}")
