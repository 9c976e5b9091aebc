"""Read the images of a job in its order, in full batches, and skip those that cannot be read."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttc.core.processes import Processes
from ttc.data import as_tensor
from ttc.data.decoding import UnreadableImageError
from ttc.deploy.input_images import InputImages
from ttc.errors import TTCError


def order_images(total: int, *, shuffle: bool, seed: int) -> NDArray[np.int64]:
    """Return the order in which images are read: as they come, or shuffled by a seed.

    >>> order_images(4, shuffle=False, seed=0).tolist()
    [0, 1, 2, 3]
    """
    return np.random.default_rng(seed).permutation(total) if shuffle else np.arange(total)


@dataclass
class PixelBatch:
    """Images that were read.

    Args:
        index: Which images they are.
        pixels: Their pixels (H, W, 3), all of one size.
        end: The position in the order up to which was read.
    """

    index: list[int]
    pixels: list[NDArray[np.uint8]]
    end: int

    def append(self, i: int, pixels: NDArray[np.uint8], names: Sequence[str]) -> None:
        """Add an image.

        Raises:
            TTCError: If it differs in size from the others.
        """
        if self.pixels and pixels.shape != self.pixels[0].shape:
            (high, wide), (first_high, first_wide) = pixels.shape[:2], self.pixels[0].shape[:2]
            raise TTCError(
                f"the images differ in size ({names[self.index[0]]}: {first_wide} x {first_high} pixels, {names[i]}: "
                f"{wide} x {high}) and the model's input size is not known: give it with --size, such as --size 224"
            )
        self.index.append(i)
        self.pixels.append(pixels)


@dataclass(frozen=True)
class JobReader:
    """Reads images in an order.

    Args:
        images: The images.
        order: Their indices, in the order to read them.
        batch_size: Images per batch.
    """

    images: InputImages
    order: NDArray[np.int64]
    batch_size: int

    def read_batches(self, start: int, skipped: dict[str, str], processes: Processes) -> Iterator[PixelBatch]:
        """Yield full batches of readable images; the last has the rest, and never a single image of several.

        Args:
            start: The position in the order to start from.
            skipped: The reasons for skipped files, by name, to which those that cannot be read are added.
            processes: Those that read the same batches, each of which decodes a part of the images.

        Raises:
            TTCError: If no image can be read, or images differ in size.
        """
        full: PixelBatch | None = None
        batch = PixelBatch([], [], start)
        for position, i, pixels in self._read(start, processes):
            if len(batch.index) == self.batch_size:
                if full is not None:
                    yield full
                full, batch = batch, PixelBatch([], [], position)
            if isinstance(pixels, str):
                skipped[self.images.names[i]] = pixels
            else:
                batch.append(i, pixels, self.images.names)
            batch.end = position + 1
        total = len(self.order)
        if len(skipped) == total:
            raise TTCError(f"none of the {total:,} images can be read; the first: {next(iter(skipped.values()))}")
        if full is not None and len(batch.index) < min(2, self.batch_size):
            batch = PixelBatch(full.index + batch.index, full.pixels + batch.pixels, batch.end)
        elif full is not None:
            yield full
        yield batch

    def read_last(self, count: int) -> Tensor:
        """Read the last images of the order, the last one first.

        Args:
            count: How many, at most; files that cannot be read do not count.

        Returns:
            The images (N, 3, H, W) in [0, 1].

        Raises:
            TTCError: If no image can be read.
        """
        found: list[NDArray[np.uint8]] = []
        for i in reversed(self.order):
            with suppress(UnreadableImageError):
                found.extend(self.images.images.pixels([int(i)]))
            if len(found) == count:
                break
        if not found:
            raise TTCError(f"none of the {len(self.order):,} images can be read")
        return as_tensor(np.stack(found))

    def _read(self, start: int, processes: Processes) -> Iterator[tuple[int, int, NDArray[np.uint8] | str]]:
        """Yield positions, indices and pixels in the order of the job; the reason in place of an unreadable image.

        Each of several processes decodes a part of the images and gets the others from those that decoded them.
        """
        step = self.batch_size if processes.size > 1 else 1
        for first in range(start, len(self.order), step):
            positions = range(first, min(first + step, len(self.order)))
            own = [self._decode(int(self.order[position])) for position in positions[processes.rank :: processes.size]]
            decoded = processes.exchange_objects(own)
            for offset, position in enumerate(positions):
                pixels = decoded[offset % processes.size][offset // processes.size]
                yield position, int(self.order[position]), pixels

    def _decode(self, i: int) -> NDArray[np.uint8] | str:
        try:
            (pixels,) = self.images.images.pixels([i])
        except UnreadableImageError as error:
            return error.reason
        decoded: NDArray[np.uint8] = pixels
        return decoded
