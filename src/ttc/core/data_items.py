"""Images and labels in whatever a loader or a data set yields: tensors, pairs, dicts, single images."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ttc.errors import TTCError

IMAGE_KEYS = ("pixel_values", "image", "images", "img", "x", "input", "inputs")
LABEL_KEYS = ("label", "labels", "target", "targets", "class", "fine_label", "y")


class IndexedData(Protocol):
    """A data set that has a length and an index, such as torchvision's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Data = Iterable[Any] | IndexedData
"""What a run takes: batches, single images, or a data set of them."""


class LabelledBatch(NamedTuple):
    """Images (N, C, H, W) in [0, 1], and their classes (N,), negative where unknown, or None."""

    images: Tensor
    labels: Tensor | None


class BatchReader:
    """Reads batches of images from any iterable of batches or of single images.

    Args:
        batch_size: How many single images make a batch.
        transform: Applied to each image, or to each batch where the data yields batches.
        image_key: The key of the images, where items are dicts and it is not one of the usual ones.
        label_key: The same for labels.
        mode: How files that are no tensors yet are read, ``"RGB"`` or ``"L"``.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        transform: Callable[[Any], Any] | None = None,
        image_key: str | None = None,
        label_key: str | None = None,
        mode: str = "RGB",
    ) -> None:
        if batch_size < 1:
            raise TTCError(f"batch_size is a positive number of images, got {batch_size}")
        self.batch_size, self.transform, self.mode = batch_size, transform, mode
        self.image_key, self.label_key = image_key, label_key
        self.items = 0
        """Items read so far."""

    def read(self, data: Data) -> Iterator[LabelledBatch]:
        """Yield the batches of ``data``, single images collected in order."""
        images: list[Tensor] = []
        labels: list[int] = []
        for item in items_of(data):
            self.items += 1
            found, label = self._split(item)
            batch = self._batch(found, label)
            if batch is not None:
                yield batch
                continue
            images.append(self._image(found))
            if images[-1].shape != images[0].shape:
                raise TTCError(
                    f"the images differ in size, {tuple(images[0].shape)} and {tuple(images[-1].shape)}; "
                    "give them one size with transform=..."
                )
            labels.append(_label(label))
            if len(images) == self.batch_size:
                yield _stacked(images, labels)
                images, labels = [], []
        if images:
            yield _stacked(images, labels)

    def _split(self, item: Any) -> tuple[Any, Any]:
        """Return the images and the labels of an item."""
        if isinstance(item, Mapping):
            return self._value(item, self.image_key, IMAGE_KEYS, "image"), self._value(
                item, self.label_key, LABEL_KEYS, "label"
            )
        if isinstance(item, tuple | list) and item and not all(isinstance(part, Image.Image) for part in item):
            return item[0], item[1] if len(item) > 1 else None
        return item, None

    @staticmethod
    def _value(item: Mapping[str, Any], key: str | None, usual: Sequence[str], kind: str) -> Any:
        found = next((name for name in usual if name in item), None) if key is None else key
        if found is not None and found in item:
            return item[found]
        if key is None and kind == "label":
            return None
        expected = f"'{key}'" if key else f"one of {', '.join(map(repr, usual))}"
        raise TTCError(f"expected a dict with {expected}, got keys {list(item)}; name the {kind}s with {kind}_key=...")

    def _batch(self, found: Any, label: Any) -> LabelledBatch | None:
        """Return the item as a batch, None if it is a single image."""
        if isinstance(found, tuple | list):
            images = [self._image(image) for image in found]
            if len({image.shape for image in images}) > 1:
                raise TTCError("the images of a batch differ in size; give them one size with transform=...")
            return LabelledBatch(torch.stack(images), as_labels(label, len(images)))
        if not isinstance(found, Tensor | np.ndarray):
            return None
        labels = None if label is None else as_labels(label, len(found) if found.ndim else 0)
        single = found.ndim == 3 and labels is None
        if single or found.ndim < 2:
            return None
        values = _as_tensor(found if self.transform is None else self.transform(found))
        return LabelledBatch(values, labels)

    def _image(self, image: Any) -> Tensor:
        """Return one image as a tensor (C, H, W)."""
        if self.transform is not None:
            image = self.transform(image)
        if isinstance(image, Image.Image):
            image = np.array(image.convert(self.mode))
            image = image if image.ndim == 3 else image[:, :, None]
        if not isinstance(image, Tensor | np.ndarray):
            raise TTCError(
                f"expected images as tensors, arrays or PIL images, got {type(image).__name__}; use transform=..."
            )
        found = _as_tensor(image)
        if found.ndim != 3:
            raise TTCError(
                f"expected an image (C, H, W), got shape {tuple(found.shape)}; convert it with transform=..."
            )
        return found


def items_of(data: Data) -> Iterator[Any]:
    """Yield the items of an iterable, or of a data set that has only a length and an index."""
    if isinstance(data, Iterable):
        yield from data
    elif hasattr(data, "__getitem__"):
        for index in range(len(data)):
            yield data[index]
    else:
        raise TTCError(f"expected a DataLoader, a data set or another iterable of images, got {type(data).__name__}")


def as_labels(value: Any, count: int) -> Tensor | None:
    """Return labels as whole numbers (N,), None where they are something else, such as file names.

    Example:
        >>> as_labels([1, 0], 2), as_labels(["a.png", "b.png"], 2)
        (tensor([1, 0]), None)
    """
    try:
        labels = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if labels.is_floating_point() or labels.is_complex() or labels.dtype is torch.bool or labels.shape != (count,):
        return None
    return labels.long().cpu()


def _label(value: Any) -> int:
    """Return the label of a single image, -1 if it has none."""
    labels = None if value is None else as_labels(value, 1) if isinstance(value, list) else as_labels([value], 1)
    return -1 if labels is None else int(labels)


def _as_tensor(values: Tensor | np.ndarray) -> Tensor:
    """Return images as a float tensor in [0, 1] with channels first."""
    if isinstance(values, np.ndarray):
        if values.dtype == np.uint8 and values.ndim in {3, 4} and values.shape[-1] in {1, 3}:
            values = np.moveaxis(values, -1, -3)
        values = torch.from_numpy(np.ascontiguousarray(values))
    if not isinstance(values, Tensor):
        raise TTCError(f"transform must return a tensor, an array or a PIL image, got {type(values).__name__}")
    return values.float() / 255 if values.dtype is torch.uint8 else values


def _stacked(images: list[Tensor], labels: list[int]) -> LabelledBatch:
    known = any(label >= 0 for label in labels)
    return LabelledBatch(torch.stack(images), torch.tensor(labels) if known else None)
