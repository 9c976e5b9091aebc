"""Controls: adapt as the base method does, predict with the mean over the image and its mirror image."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

import torch
from torch import Tensor

from ttc.clustering import horizontal_flip, identity, mean_of_views
from ttc.core import Adapter, ExportParts
from ttc.core.part import share_parts_
from ttc.core.processes import Processes
from ttc.methods.method import Method


class FlipAveraging(Adapter):
    """Adapts as ``base`` does and predicts with the mean of its logits for x and, before the update, its flip.

    Args:
        base: The adapter that learns.
    """

    state_attributes = ("base",)

    def __init__(self, base: Adapter) -> None:
        super().__init__(base.model)
        self.base = base

    def adapt(self, x: Tensor) -> Tensor:
        """Return the mean of the two views' logits."""
        with torch.no_grad():
            mirrored = self.model(horizontal_flip(x)).logits
        return mean_of_views([self.base.adapt(x), mirrored])

    def infer(self, x: Tensor) -> Tensor:
        """Return the mean of the two views' logits, from the base method as it is now."""
        return mean_of_views([self.base.infer(x), self.base.infer(horizontal_flip(x))])

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: both views are predicted shard by shard."""
        share_parts_(self, processes)

    def export_parts(self) -> ExportParts:
        """Return the two views."""
        return self.base.export_parts()._replace(views=(identity, horizontal_flip), fuse=mean_of_views)


def with_flip(method: Method) -> Method:
    """Make the flip control of a method, with the same options and one more forward pass.

    Args:
        method: The method to control for.

    Returns:
        The method ``NAME+flip``.
    """
    forwards = method.forwards
    assert isinstance(forwards, int)
    return replace(
        method, name=f"{method.name}+flip", build=_average_flip(method.build), forwards=forwards + 1, paper="control"
    )


def _average_flip(build: Callable[..., Adapter]) -> Callable[..., FlipAveraging]:
    @wraps(build)
    def build_with_flip(*args: object, **options: object) -> FlipAveraging:
        return FlipAveraging(build(*args, **options))

    name, _, rest = (build.__doc__ or "").partition(":")
    _, _, arguments = rest.partition("\n    Args:")
    summary = f"{name} + flip: adapts as {name} and predicts with the mean over the image and its flip."
    build_with_flip.__doc__ = f"{summary}\n\n    Args:{arguments}" if arguments else summary
    return build_with_flip
