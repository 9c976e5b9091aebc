"""The honest controls: adapt as the base method does, answer with the mean over the image and its mirror image."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from ttc.clustering import horizontal_flip, mean_of_views
from ttc.core import Adapter


class FlipAnswer(Adapter):
    """Adapts as ``base`` does and answers with the mean of its logits for x and, before the update, its flip."""

    holds = ("base",)

    def __init__(self, base: Adapter) -> None:
        super().__init__(base.model)
        self.base = base

    def adapt(self, x: Tensor) -> Tensor:
        """The mean of the two views' logits."""
        with torch.no_grad():
            mirrored = self.model(horizontal_flip(x)).logits
        return mean_of_views([self.base.adapt(x), mirrored])

    def answer_only(self, x: Tensor) -> Tensor:
        """The mean of the two views' logits, from the base method as it stands."""
        return mean_of_views([self.base.answer_only(x), self.base.answer_only(horizontal_flip(x))])

    def reset(self) -> None:
        """Put the base method back to its start."""
        self.base.reset()


def with_flip(build: Callable[..., Adapter]) -> Callable[..., FlipAnswer]:
    """The builder of a method's flip control, with the options of the method."""

    @wraps(build)
    def build_with_flip(*args: object, **options: object) -> FlipAnswer:
        return FlipAnswer(build(*args, **options))

    name = (build.__doc__ or "").partition(":")[0]
    build_with_flip.__doc__ = f"{name} + flip: adapts as {name}, answers with the mean over the image and its flip."
    return build_with_flip
