"""Draw the figures of docs/clustering.md: python tools/draw_figures.py"""

from pathlib import Path

import torch

import ttc
from ttc.clustering import softmax_entropy
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded
from ttc.report import Panels, Rule, line_chart
from ttc.report.drawing import Drawing, Outline, Shape, Text
from ttc.report.palette import Style
from ttc.studies.probabilities import RATES, descent, start

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
WIDTH = 480.0  # narrow, so that a phone shows the letters large enough
ORANGE, BLUE, GREY = "#d55e00", "#0072b2", "#8a8f98"


def lemma() -> str:
    """The probabilities of three and of ten classes while gradient descent lowers their entropy."""
    panels = []
    for classes in (3, 10):
        path = descent(start(classes), rate=RATES[classes])
        lines = {"largest": path[:, 0], "second": path[:, 1], "all others": 1 - path[:, 0]}
        points = {name: [(float(step), float(p)) for step, p in enumerate(line)] for name, line in lines.items()}
        styles = {"largest": Style(ORANGE, strong=True), "second": Style(BLUE), "all others": Style(GREY)}
        chart = line_chart(
            points, f"{classes} classes", x_label="step", y_label="", low=0, high=1, height=150, marked=False,
            styles=styles, dashed=("all others",),
        )  # fmt: skip
        panels.append(chart)
    return Panels("Class probabilities while the entropy descends", tuple(panels)).svg(WIDTH)


def selection() -> tuple[str, str]:
    """The entropies of right and wrong labels under noise, with the mean that selects; and its numbers in words."""
    images, adapter = embedded(), ttc.adapt(ttc.models.embedded_model(), "norm")
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
    points = {name: list(zip(middles, values, strict=True)) for name, values in counts.items()}
    mean = float(entropy.mean())
    chart = line_chart(
        points, "Which labels the selection keeps", x_label="entropy of the label (nats)", y_label="images",
        low=0, filled=True, rules=[Rule("x", mean, "mean entropy: kept to the left")], height=190,
        styles={"right label": Style(BLUE), "wrong label": Style(ORANGE)},
    )  # fmt: skip
    kept = entropy <= mean
    share = [100 * float(part.float().mean()) for part in (kept, right[kept], right[~kept], right)]
    words = "kept {:.0f} %, of them right {:.1f} %, of the others {:.1f} %, of all {:.1f} %".format(*share)
    return chart.svg(WIDTH), words


def cycle() -> str:
    """One batch in TTC: the A-step labels it, the U-step learns from the labels."""
    shapes: list[Shape] = []

    def box(x: float, y: float, width: float, *lines: str, colour: str = "muted") -> None:
        corners = ((x, y), (x + width, y), (x + width, y + 40), (x, y + 40))
        shapes.append(Outline(corners, colour, "surface", width=1.5, closed=True))
        for row, line in enumerate(lines):
            middle = y + 20 + (row - (len(lines) - 1) / 2) * 15
            shapes.append(
                Text(x + width / 2, middle, line, 12 if row == 0 else 11, "middle", "muted" if row else "ink")
            )

    def arrow(*points: tuple[float, float], colour: str = "muted") -> None:
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        wings = [(x1 - 8 * dx + side * 4 * dy, y1 - 8 * dy - side * 4 * dx) for side in (1, -1)]
        shapes.append(Outline(points, colour, width=1.5))
        shapes.append(Outline((wings[0], (x1, y1), wings[1]), colour, colour, width=1.0, closed=True))

    def band(y: float, height: float, name: str, about: str, colour: str) -> None:
        corners = ((8, y), (418, y), (418, y + height), (8, y + height))
        shapes.append(Outline(corners, fill=colour, opacity=0.12, closed=True))
        shapes.append(Text(30, y + height - 28, name, 12, bold=True))
        shapes.append(Text(30, y + height - 13, about, 11, colour="muted"))

    band(58, 222, "A-step", "label every sample", BLUE)
    band(294, 238, "U-step", "learn from the labels", ORANGE)
    box(150, 4, 140, "a batch x")
    arrow((180, 44), (110, 80))
    arrow((260, 44), (325, 80))
    box(30, 80, 160, "view 1", "x itself")
    box(245, 80, 160, "view 2", "x′, mirrored")
    arrow((110, 120), (160, 146))
    arrow((325, 120), (275, 146))
    box(120, 146, 195, "model f = h ∘ g", "logits f, features g", colour=ORANGE)
    arrow((218, 186), (218, 212))
    box(120, 212, 195, "mean of the logits", "the label, with its entropy H")
    arrow((315, 232), (452, 232), (452, 200))
    shapes.append(Text(452, 190, "answer", 12, "middle", bold=True))
    arrow((218, 252), (218, 316))
    box(120, 316, 195, "select", "H at most the batch's mean")
    arrow((218, 356), (218, 382))
    box(80, 382, 275, "loss of the selected samples", "H + κ(x, x′) ‖f(x) − f(x′)‖²")
    arrow((218, 422), (218, 448))
    box(80, 448, 275, "gather Q batches, then step", "scale and shift of normalization layers")
    arrow((80, 468), (20, 468), (20, 166), (120, 166), colour=ORANGE)
    return Drawing(WIDTH, 536, tuple(shapes), "One batch: the A-step labels it, the U-step learns from it").svg()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    picture, words = selection()
    for name, svg in {"lemma": lemma(), "selection": picture, "cycle": cycle()}.items():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"the numbers in the text on selection: {words}")
