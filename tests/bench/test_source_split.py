"""Source images come from a declared split, which shares no image with the stream."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from torch import nn

from tests.bench.conftest import domain, protocol, workload
from ttc.bench import Protocol, Spec, evaluate
from ttc.bench.grid import Grid, cells
from ttc.bench.runner import evaluate_cell
from ttc.bench.scenarios import Domain
from ttc.bench.source_split import SplitName, other_images, remaining_images
from ttc.errors import TTCError

METHODS = tuple(Spec.read(text) for text in ("tent", "eata(fisher_batch_size=4)"))


def planned(images: int = 12, **changes: str) -> tuple[Protocol, Protocol]:
    grid = Grid(methods=METHODS, corruptions=("fog",), images=images, batch_sizes=(4,))
    tent, eata = cells(grid, workload(**changes))
    return tent, eata


def test_the_default_is_what_is_left_of_the_dataset(place: Path) -> None:
    tent, eata = planned()
    assert eata.source_split == "clean:24"  # 36 images, 12 of them in the stream
    assert eata.source_checksum
    assert (tent.source_split, tent.source_checksum) == ("", "")
    assert "source" not in tent.json()
    found = workload()
    split, stream = found.source_split(12, 2000), found.domain(Domain("clean", 0), 12)
    shown = {pixels.tobytes() for pixels in stream.pixels(range(12))}
    assert not shown & {pixels.tobytes() for pixels in split.pixels(range(len(split)))}
    assert set(split.labels.tolist()) == {0, 1, 2}
    result = evaluate_cell(found, eata)
    assert len(result.correct) == 12


def test_the_split_is_part_of_the_protocol_of_methods_that_get_it(place: Path) -> None:
    few, many = planned(source_split="clean:5"), planned(source_split="clean:10")
    assert few[0].hash == many[0].hash
    assert few[1].hash != many[1].hash
    assert few[1].source_split == "clean:5"
    assert Protocol.read(few[1].json()) == few[1]


@pytest.mark.parametrize(
    ("split", "images", "sentence"),
    [
        ("clean", 36, "'eata' needs source images: no clean image of photos is left .*: all 36 are in the stream; "),
        ("clean:30", 12, "needs 30 images and 24 of photos are not in the stream; evaluate fewer with --images"),
        (
            "imagefolder:photos",
            12,
            "12 images of the source split imagefolder:photos:36 are in the evaluated stream too",
        ),
        ("imagefolder:photos:99", 12, "photos has 36 images, 99 requested as source split"),
        ("embedded:5", 12, r"the source split has images of \(32, 32\) pixels, the stream of \(16, 16\)"),
        ("cifar11", 12, "unknown dataset 'cifar11'"),
        ("clean:0", 12, "a source split has at least 1 image"),
    ],
)
def test_a_missing_split_is_rejected_before_anything_runs(split: str, images: int, sentence: str, place: Path) -> None:
    with pytest.raises(TTCError, match=sentence):
        planned(images, source_split=split)


def test_another_dataset_may_be_the_split(place: Path) -> None:
    for path in sorted((place / "photos").rglob("*.png")):
        inverted = place / "inverted" / path.relative_to(place / "photos")
        inverted.parent.mkdir(parents=True, exist_ok=True)
        ImageOps.invert(Image.open(path)).save(inverted)
    _, eata = planned(36, source_split="imagefolder:inverted:7")
    assert eata.source_split == "imagefolder:inverted:7"


def test_a_method_gets_no_other_images(model: nn.Module) -> None:
    with pytest.raises(TTCError, match="'eata' needs source images before it adapts"):
        evaluate(protocol("eata"), [domain()], model)
    with pytest.raises(TTCError, match="the protocol states the source split ''; pass these images and no others"):
        evaluate(protocol("eata"), [domain()], model, None, domain(seed=3))


def test_names_and_subsets() -> None:
    assert SplitName.read("imagefolder:a/b@32").size is None
    assert SplitName.read("imagefolder:a/b:4").label == "imagefolder:b"
    whole = domain(60)
    split = remaining_images(whole, 20, True, SplitName("clean", 10), 2000)
    assert len(split) == 10
    assert not set(split.indices) & set(np.arange(20) * 3)
    other = other_images(domain(30, seed=9), whole, SplitName("stripes", None), 8)
    assert other.label == "stripes:8"
    assert other.checksum != split.checksum
    with pytest.raises(IndexError):
        split.pixels([10])
