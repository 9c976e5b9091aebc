"""A sliding window of recent images: small batches answered and learned from as parts of a large one."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.adapter import Adapter
from ttc.core.normalization import BatchNorm, BlendNorm, NamedNorm
from ttc.errors import TTCError


class FilledNorm(NamedNorm):
    """BN-BATCH for windows that are still filling: the source stands in for the images that have not come yet.

    .. math:: s = (1-a)\\,s_{source} + a\\,\\text{batch}, \\quad a = N / \\text{places}

    with the variance of the mixture. From ``places`` images on it is the batch alone. While the window fills there is
    no gradient through the statistics.
    """

    def __init__(self, layer: _BatchNorm | NamedNorm, *, places: int) -> None:
        super().__init__(layer)
        if self.mean is None or self.variance is None:
            raise TTCError("a window begins with the source's statistics, but a BatchNorm of the model stores none")
        self.places = places

    def forward(self, x: Tensor) -> Tensor:
        if len(x) >= self.places and self.has_variance(x):
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        mean, variance = self._mixture(x.detach())
        return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)

    def _mixture(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.mean is not None
        assert self.variance is not None
        amount = len(x) / self.places
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(values, dim=[0, *range(2, x.ndim)], correction=0)  # (C,) each
        apart = mean - self.mean
        mixed = torch.lerp(self.variance.to(variance), variance, amount) + amount * (1 - amount) * apart.square()
        return (self.mean + amount * apart).to(x.dtype), mixed.to(x.dtype)


class Windowed(Adapter):
    """Answers each batch among the last ``size`` images of the stream, and learns from every image once.

    The base method answers the recent images with the new ones, and the rows of the new ones are the answer. When
    ``size`` images came that it has not learned from, it adapts to those, as to one batch. So it learns as it would
    from batches of ``size`` images, and batches that are as large pass through untouched.

    The window is part of the state: its images are held in memory, and in saved files and kept states too. Images of
    another shape begin a new window.
    """

    holds = ("base", "images", "fresh")

    def __init__(self, base: Adapter, size: int) -> None:
        super().__init__(base.model)
        self.base, self.size = base, size
        self.images: Tensor | None = None  # the last ones, at most ``size``
        self.fresh = 0  # of these, how many have not been learned from

    def adapt(self, x: Tensor) -> Tensor:
        """The rows of ``x`` in the base method's answer for the window."""
        fresh = self._fresh(x)
        learn = fresh >= self.size
        if learn:
            answer = self.base.adapt(self.context(x))
        else:
            with torch.no_grad():
                answer = self.base.answer_only(self.context(x) if self._mixes() else x)
        self.images = self._joined(x)[-self.size :].clone()  # a copy: a view would keep all of a large batch
        self.fresh = 0 if learn else fresh
        return answer[-len(x) :]

    def answer_only(self, x: Tensor) -> Tensor:
        """The rows of ``x`` in the base method's answer for the window, which stays as it is."""
        return self.base.answer_only(self.context(x) if self._mixes() else x)[-len(x) :]

    def context(self, x: Tensor) -> Tensor:
        """The window with ``x`` at its end: at least ``size`` images once they came, and all that were not learned."""
        return self._joined(x)[-max(self.size, self._fresh(x)) :]

    def reset(self) -> None:
        """Empty the window and put the base method back to its start."""
        self.base.reset()
        self.images, self.fresh = None, 0

    def _joined(self, x: Tensor) -> Tensor:
        return torch.cat([x] if self.images is None or self.images.shape[1:] != x.shape[1:] else [self.images, x])

    def _fresh(self, x: Tensor) -> int:
        same = self.images is not None and self.images.shape[1:] == x.shape[1:]
        return len(x) + (self.fresh if same else 0)

    def _mixes(self) -> bool:
        """Whether an answer depends on the images beside it; where it does not, they need no forward pass."""
        return any(isinstance(module, BatchNorm | BlendNorm | FilledNorm) for module in self.model.modules())
