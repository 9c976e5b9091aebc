"""Guarded, unguarded and source accuracy on streams on which adaptation may fail.

    python tools/guard_streams.py --report --methods ttc tent --cache folder

Without ``--report``: the corruptions and severities that the guard was developed with; with it, the fifteen corruptions
at severity 5. A finished stream is cached as one JSON file, so the same command resumes. ``--csv FILE`` adds a line per
stream to a table.
"""

import argparse
import csv
import json
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import ttc
from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, corrupt
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.deploy import Guard
from ttc.models import embedded

IMAGES, WINDOW = 1000, 500
NO_LABEL = -1  # black images and noise: predicted, not counted
DEVELOPED_WITH = [
    *[(name, severity) for name in EXTRA_CORRUPTIONS for severity in (3, 5)],
    *[("contrast", 4), ("gaussian_noise", 4), ("fog", 4), ("jpeg_compression", 4), ("frost", 3), ("glass_blur", 4)],
]
REPORTED = [(name, 5) for name in CORRUPTIONS]
Batch = tuple[Tensor, Tensor]


class Scene(NamedTuple):
    """A stream by name, with what it is made of."""

    stream: str
    corruption: str
    severity: int
    size: int

    def batches(self) -> list[Batch]:
        return STREAMS[self.stream](self)

    @property
    def seed(self) -> int:
        return sum(map(ord, self.corruption)) + self.severity

    @property
    def title(self) -> str:
        return f"{self.stream}-{self.corruption}-{self.severity}-N{self.size}"


@cache
def images(corruption: str, severity: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """All embedded images under one corruption; severity 0 is clean."""
    data = embedded_images()
    pixels = data.pixels(range(len(data.labels)))
    pixels = corrupt(pixels, corruption, severity=severity, seed=seed) if severity else pixels
    return as_tensor(pixels), torch.from_numpy(data.labels)


def split(x: Tensor, labels: Tensor, size: int) -> list[Batch]:
    """Split images into batches."""
    return list(zip(x.split(size), labels.split(size), strict=True))


def shuffled(scene: Scene) -> list[Batch]:
    """Images in random order."""
    x, labels = images(scene.corruption, scene.severity)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(scene.seed))[:IMAGES]
    return split(x[order], labels[order], scene.size)


def sorted_classes(scene: Scene) -> list[Batch]:
    """The same images, one class after another."""
    x, labels = (torch.cat(parts) for parts in zip(*shuffled(scene), strict=True))
    order = labels.argsort(stable=True)
    return split(x[order], labels[order], scene.size)


def single_class(scene: Scene) -> list[Batch]:
    """One class, which differs between corruptions; images repeat with other noise."""
    rows = (images(scene.corruption, 0)[1] == scene.seed % 10).nonzero().squeeze(1)
    parts = [images(scene.corruption, scene.severity, seed) for seed in range(6)]
    x, labels = (torch.cat([part[i][rows] for part in parts])[:IMAGES] for i in range(2))
    return split(x, labels, scene.size)


def constant(scene: Scene) -> list[Batch]:
    """One image repeated per batch, another one in the next batch."""
    return [(x[:1].expand(len(x), *x.shape[1:]), labels[:1].expand(len(x))) for x, labels in shuffled(scene)]


def with_junk(scene: Scene, junk: Callable[[Tensor], Tensor]) -> list[Batch]:
    """Two batches of every five are replaced; only the others count."""
    found = [(x, labels) for x, labels in shuffled(scene)]
    return [
        (junk(x), torch.full_like(labels, NO_LABEL)) if i % 5 in {1, 2} else (x, labels)
        for i, (x, labels) in enumerate(found)
    ]


def black(scene: Scene) -> list[Batch]:
    """Black images in between."""
    return with_junk(scene, torch.zeros_like)


def noise(scene: Scene) -> list[Batch]:
    """Uniform noise in between."""
    generator = torch.Generator().manual_seed(scene.seed)
    return with_junk(scene, lambda x: torch.rand(x.shape, generator=generator))


def dirichlet(scene: Scene) -> list[Batch]:
    """Each class is split among as many slots as there are batches, by fractions drawn from Dirichlet(α)."""
    alpha, random = float(scene.stream.split()[-1]), np.random.default_rng(scene.seed)
    x, labels = (torch.cat(parts) for parts in zip(*shuffled(scene), strict=True))
    slots: list[list[int]] = [[] for _ in range(IMAGES // scene.size)]
    for label in range(10):
        rows = (labels == label).nonzero().squeeze(1).tolist()
        ends = (np.cumsum(random.dirichlet(np.full(len(slots), alpha))) * len(rows)).round().astype(int)
        for slot, start, end in zip(slots, [0, *ends], ends, strict=False):
            slot.extend(rows[start:end])
    order = torch.tensor([row for slot in slots for row in random.permutation(slot).tolist()], dtype=torch.long)
    return split(x[order], labels[order], scene.size)


def clean_corrupt_clean(scene: Scene) -> list[Batch]:
    """A third each: clean, corrupted, clean again."""
    clean, other = shuffled(scene._replace(severity=0)), shuffled(scene)
    third = len(clean) // 3
    return [*clean[:third], *other[third : 2 * third], *clean[2 * third :]]


def bursts(scene: Scene) -> list[Batch]:
    """Clean images, with two batches of corrupted ones in every six."""
    clean, other = shuffled(scene._replace(severity=0)), shuffled(scene)
    return [other[i] if i % 6 in {2, 3} else clean[i] for i in range(len(clean))]


def alternating(scene: Scene) -> list[Batch]:
    """Another corruption in every batch."""
    names = group(scene)
    return [shuffled(scene._replace(corruption=names[i % len(names)]))[i] for i in range(IMAGES // scene.size)]


def mixed(scene: Scene) -> list[Batch]:
    """Every image with another corruption."""
    parts = [images(name, scene.severity)[0] for name in group(scene)]
    labels = images("fog", 0)[1]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(scene.seed))[:IMAGES]
    x = torch.stack([parts[i % len(parts)][row] for i, row in enumerate(order.tolist())])
    return split(x, labels[order], scene.size)


def group(scene: Scene) -> list[str]:
    """The corruptions that a scene of several ones uses."""
    names = list(CORRUPTIONS) if scene.severity == 5 else [*EXTRA_CORRUPTIONS, *CORRUPTIONS]
    return names if scene.corruption == "all" else [scene.corruption]


STREAMS: dict[str, Callable[[Scene], list[Batch]]] = {
    "random order": shuffled,
    "sorted classes": sorted_classes,
    "single class": single_class,
    "constant": constant,
    "black": black,
    "noise": noise,
    "dirichlet 0.01": dirichlet,
    "dirichlet 0.1": dirichlet,
    "dirichlet 1": dirichlet,
    "clean-corrupt-clean": clean_corrupt_clean,
    "bursts": bursts,
    "alternating": alternating,
    "mixed": mixed,
}


def scenes(report: bool, size: int) -> Iterator[Scene]:
    """Yield the streams to measure."""
    corruptions = REPORTED if report else DEVELOPED_WITH
    for stream in STREAMS:
        if stream in {"alternating", "mixed"}:
            yield from (Scene(stream, "all", severity, size) for severity in ((5,) if report else (3, 4)))
        else:
            yield from (Scene(stream, name, severity, size) for name, severity in corruptions)


def correct(predict: Callable[[Tensor], Tensor], batches: list[Batch]) -> list[float]:
    """Return 1 or 0 for each image that has a label, in order."""
    found = [(predict(x).argmax(1) == labels, labels != NO_LABEL) for x, labels in batches]
    return torch.cat([right[counted] for right, counted in found]).float().tolist()


def measure(scene: Scene, method: str, small_batches: bool, cache_folder: Path) -> dict[str, list[float]]:
    """Return for SOURCE, the unguarded and the guarded method which images were predicted right."""
    name = f"{scene.title}-{method}{'-small' if small_batches else ''}".replace(" ", "_")
    batches: list[Batch] = []

    def cached(label: str, build: Callable[[], Callable[[Tensor], Tensor]]) -> list[float]:
        path = cache_folder / f"{label}.json"
        if not path.exists():
            batches.extend([] if batches else scene.batches())
            path.write_text(json.dumps(correct(build(), batches)))
        found: list[float] = json.loads(path.read_text())
        return found

    def adapter() -> ttc.Adapter:
        return ttc.adapt(embedded(), method, small_batches=small_batches)

    return {
        "source": cached(f"{scene.title}-source".replace(" ", "_"), lambda: ttc.adapt(embedded(), "source")),
        "unguarded": cached(f"{name}-unguarded", adapter),
        "guarded": cached(f"{name}-guarded", lambda: Guard(adapter())),
    }


def percent(values: list[float]) -> float:
    """Return the mean in percent."""
    return 100 * sum(values) / len(values)


def summarize(found: dict[str, list[float]], size: int) -> dict[str, float]:
    """Return accuracies of both halves, the margins of the goal, and the worst window against SOURCE."""
    half = len(found["source"]) // 2
    row: dict[str, float] = {}
    for number, part in enumerate((slice(None, half), slice(half, None)), 1):
        source, unguarded, guarded = (percent(found[name][part]) for name in ("source", "unguarded", "guarded"))
        row |= {f"source {number}": source, f"unguarded {number}": unguarded, f"guarded {number}": guarded}
        row[f"margin {number}"] = guarded - max(source, unguarded)
    gains = [a - b for a, b in zip(found["guarded"], found["source"], strict=True)]
    starts = range(0, max(1, len(gains) - WINDOW + 1), size)
    row["worst window"] = min(percent(gains[start : start + WINDOW]) for start in starts)
    return row


def main() -> None:
    """Measure the streams that were asked for, and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="the fifteen corruptions at severity 5")
    parser.add_argument("--methods", nargs="+", default=["tent"])
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument("--corruptions", nargs="+", help="only these; 'all' for alternating and mixed")
    parser.add_argument("--every", type=int, default=1, help="every n-th corruption, another one first in each stream")
    parser.add_argument("--size", type=int, default=50, help="images per batch")
    parser.add_argument("--small-batches", action="store_true")
    parser.add_argument("--csv", type=Path, help="a table to write the rows to")
    parser.add_argument("--cache", type=Path, default=Path("guard-streams"), help="folder of finished streams")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.cache.mkdir(parents=True, exist_ok=True)
    columns = ["source", "unguarded", "guarded", "margin"]
    print("| stream | corruption | method | " + " | ".join(columns) + " | worst window |\n" + "|---" * 8 + "|")
    missed, table = 0, []
    for scene in chosen(given):
        for method in given.methods:
            row = summarize(measure(scene, method, given.small_batches, given.cache), scene.size)
            cells = [f"{row[f'{name} 1']:.1f}, {row[f'{name} 2']:.1f}" for name in columns]
            worst = row["worst window"]
            good = min(row["margin 1"], row["margin 2"], worst) >= -2 - 1e-9
            missed += not good
            named = {"stream": scene.stream, "corruption": scene.corruption, "method": method, "batch size": scene.size}
            figures = {name: round(value, 2) for name, value in row.items()}
            table.append({**named, "small batches": given.small_batches, **figures, "met": good})
            corruption = f"{scene.corruption} {scene.severity}"
            note = "" if good else " **missed**"
            cells += [f"{worst:+.1f}{note}"]
            print(f"| {scene.stream} | {corruption} | {method} | {' | '.join(cells)} |", flush=True)
    print(f"\n{len(table) - missed} of {len(table)} streams: both margins and the worst window at least -2 points")
    if given.csv and table:
        with given.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)


def chosen(given: argparse.Namespace) -> Iterator[Scene]:
    """Yield the streams that the options choose."""
    found = [scene for scene in scenes(given.report, given.size) if scene.stream in given.streams]
    if given.corruptions:
        found = [scene for scene in found if scene.corruption in given.corruptions]
    for scene in found:
        names = [other.corruption for other in found if other.stream == scene.stream]
        place = names.index(scene.corruption) + list(STREAMS).index(scene.stream)
        if scene.corruption == "all" or place % given.every == 0:
            yield scene


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
