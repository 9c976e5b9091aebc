"""Images and labels are found in the exact forms of the common libraries."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ttc.core.data_items import BatchReader, LabelledBatch
from ttc.errors import TTCError

PIXELS = torch.randint(256, (5, 8, 8, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8).numpy()
IMAGES = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255
LABELS = [0, 1, 2, 3, 0]
FILES = [Image.fromarray(pixels) for pixels in PIXELS]


class FolderLike:
    """A data set with a length and an index, whose items are an image and a class: torchvision's ImageFolder."""

    def __len__(self) -> int:
        return len(FILES)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return FILES[index], LABELS[index]


class SplitLike:
    """A split of Hugging Face datasets: rows as dicts, columns as lists in batches."""

    def __iter__(self) -> Any:
        return iter([{"image": image, "label": label} for image, label in zip(FILES, LABELS, strict=True)])

    def iter(self, batch_size: int) -> Any:
        for start in range(0, len(FILES), batch_size):
            rows = slice(start, start + batch_size)
            yield {"image": FILES[rows], "label": LABELS[rows]}


def read(data: Any, **options: Any) -> LabelledBatch:
    batches = list(BatchReader(batch_size=2, **options).read(data))
    known = [batch.labels for batch in batches if batch.labels is not None]
    return LabelledBatch(torch.cat([batch.images for batch in batches]), torch.cat(known) if known else None)


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(TensorDataset(IMAGES, torch.tensor(LABELS)), batch_size=3),
        TensorDataset(IMAGES, torch.tensor(LABELS)),
        FolderLike(),
        SplitLike(),
        SplitLike().iter(3),
        [{"pixel_values": IMAGES, "labels": torch.tensor(LABELS)}],
        [{"img": (IMAGES * 255).round().to(torch.uint8), "fine_label": LABELS}],
        [(PIXELS, np.array(LABELS))],
        zip(PIXELS, LABELS, strict=True),
        [(FILES, LABELS)],
        [{"images": IMAGES[:3], "targets": LABELS[:3]}, {"images": IMAGES[3:], "targets": LABELS[3:]}],
    ],
    ids=lambda data: type(data).__name__,
)
def test_images_and_labels_come_in_order(data: Any) -> None:
    images, labels = read(data)
    torch.testing.assert_close(images, IMAGES)
    assert labels is not None
    assert labels.tolist() == LABELS


@pytest.mark.parametrize(
    "data",
    [
        [IMAGES],
        IMAGES,
        list(IMAGES),
        [(IMAGES,)],
        [(IMAGES, ["a.png"] * 5)],
        [(IMAGES, torch.rand(5, 4))],
        [{"image": IMAGES}],
        [FILES],
        [{"image": image, "label": -1} for image in FILES],  # a test split of which the labels are secret
    ],
)
def test_images_without_labels(data: Any) -> None:
    images, labels = read(data)
    torch.testing.assert_close(images, IMAGES)
    assert labels is None or bool((labels < 0).all())


def test_single_images_make_batches_of_the_size_asked_for() -> None:
    assert [len(batch.images) for batch in BatchReader(batch_size=2).read(FolderLike())] == [2, 2, 1]
    assert [len(batch.images) for batch in BatchReader(batch_size=2).read([IMAGES])] == [5]


def test_a_transform_gets_what_the_data_yields() -> None:
    resized, _ = read(FolderLike(), transform=lambda image: image.resize((4, 4)))
    assert resized.shape == (5, 3, 4, 4)
    halved, _ = read([(IMAGES, LABELS)], transform=lambda images: images / 2)
    assert torch.equal(halved, IMAGES / 2)


def test_keys_may_be_named() -> None:
    images, labels = read([{"photo": IMAGES, "species": LABELS}], image_key="photo", label_key="species")
    assert images.shape == (5, 3, 8, 8)
    assert labels is not None


def test_grey_images_have_the_channels_of_the_model() -> None:
    grey = [image.convert("L") for image in FILES]
    assert read(grey).images.shape == (5, 3, 8, 8)
    assert read(grey, mode="L").images.shape == (5, 1, 8, 8)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([{"photo": IMAGES}], {}, r"'pixel_values', 'image', .* got keys \['photo'\]; name the images with image_key="),
        ([{"image": IMAGES}], {"label_key": "y"}, r"a dict with 'y', got keys \['image'\]; name the labels"),
        ([IMAGES[0], IMAGES[0, :, :4]], {}, r"differ in size, \(3, 8, 8\) and \(3, 4, 8\)"),
        ([[FILES[0], FILES[1].resize((4, 4))]], {}, "the images of a batch differ in size"),
        (["a.png"], {}, "tensors, arrays or PIL images, got str"),
        ([torch.tensor(3.0)], {}, r"an image \(C, H, W\), got shape \(\)"),
        (7, {}, "a DataLoader, a data set or another iterable of images, got int"),
        ([IMAGES], {"transform": lambda images: "nothing"}, "transform must return a tensor.*got str"),
    ],
)
def test_what_holds_no_images_is_rejected(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TTCError, match=message):
        read(data, **options)


def test_the_size_of_a_batch_is_positive() -> None:
    with pytest.raises(TTCError, match="batch_size is a positive number of images, got 0"):
        BatchReader(batch_size=0)


def test_a_sequence_over_time_is_a_batch_when_its_labels_say_so() -> None:
    signals: Tensor = torch.rand(4, 2, 16)
    (batch,) = BatchReader(batch_size=8).read([(signals, [0, 1, 0, 1])])
    assert torch.equal(batch.images, signals)
