"""One independent random stream per image, addressed by its index."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class RandomStreams:
    """Random numbers for a batch that depend only on (seed, purpose, index), never on the rest of the batch.

    The generator is Philox, whose numbers are a function of a key and a counter: the key is (seed, purpose), the
    counter starts at (0, 0, number of the draw, index). The numbers are always drawn by NumPy on the CPU and then moved
    to ``device``, so every device uses the same ones.

    >>> streams = RandomStreams(0, "fog/5", [3, 4], torch.device("cpu"))
    >>> alone = RandomStreams(0, "fog/5", [4], torch.device("cpu"))
    >>> bool((streams.uniform(2)[1] == alone.uniform(2)[0]).all())
    True
    """

    def __init__(self, seed: int, purpose: str, indices: Sequence[int], device: torch.device) -> None:
        word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
        self._bits = np.random.Philox(key=np.array([seed, word], dtype=np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state
        self._draws = 0
        self._indices = indices
        self._device = device

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw uniform numbers in [0, 1): (N, *shape)."""
        numbers = np.empty((len(self._indices), *shape), dtype=np.float32 if dtype == torch.float32 else np.float64)
        for row in self._rows(numbers):
            self._generator.random(out=row, dtype=numbers.dtype.type)
        return torch.from_numpy(numbers).to(self._device)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers in single precision: (N, *shape)."""
        numbers = np.empty((len(self._indices), *shape), dtype=np.float32)
        for row in self._rows(numbers):
            self._generator.standard_normal(out=row, dtype=np.float32)
        return torch.from_numpy(numbers).to(self._device)

    def _rows(self, numbers: NDArray[Any]) -> Iterator[NDArray[Any]]:
        """Yield the rows of ``numbers`` with the generator set to the start of each image's stream."""
        for index, row in zip(self._indices, numbers, strict=True):
            self._state["state"]["counter"][:] = (0, 0, self._draws, index)
            self._bits.state = self._state
            yield row
        self._draws += 1
