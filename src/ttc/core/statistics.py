"""What the contract knows of normalization layers: whether they use the batch, and whether running changes them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ttc.core.processes import ALONE, Processes


class StatisticsLayer(nn.Module):
    """A layer that normalizes with statistics; :mod:`ttc.nn.normalization` has one class per kind of statistics."""

    uses_batch: ClassVar[bool] = False
    """Whether the output for an image depends on the other images of its batch."""
    needs_large_batches: ClassVar[bool] = False
    """Whether it normalizes with the statistics of the batch alone, which say little when the batch is small."""
    updates: ClassVar[bool] = False
    """Whether a forward pass may change the stored statistics."""
    tracking: bool = False
    """Whether a forward pass changes the stored statistics now."""
    repeating: bool = False
    """Whether a forward pass shows another view of the images of the pass before."""
    shares_stream: ClassVar[bool] = False
    """Whether it can compute the statistics of a batch whose shards are in several processes."""
    processes: Processes = ALONE
    """The processes that have a shard of the batch each."""

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the mean and the variance (C,) that this layer normalizes with in :meth:`ttc.Adapter.predict`.

        Args:
            x: A batch of its inputs, for a layer that uses the batch.

        Returns:
            Both; None for a layer that uses the batch and got none.
        """
        raise NotImplementedError("a layer defines which statistics an exported module has in its place")


def uses_batch_statistics(model: nn.Module) -> bool:
    """Tell whether predictions of ``model`` depend on the other images of a batch."""
    return any(layer.uses_batch for layer in statistics_layers(model))


def needs_large_batches(model: nn.Module) -> bool:
    """Tell whether a layer of ``model`` normalizes with the statistics of the batch alone."""
    return any(layer.needs_large_batches for layer in statistics_layers(model))


def updates_statistics(model: nn.Module) -> bool:
    """Tell whether a forward pass may change statistics stored in ``model``."""
    return any(layer.updates for layer in statistics_layers(model))


def freeze_statistics(model: nn.Module) -> AbstractContextManager[None]:
    """Keep the stored statistics of ``model`` unchanged inside the block."""
    return _switch([layer for layer in statistics_layers(model) if layer.tracking], "tracking", on=False)


def repeat_batch(model: nn.Module) -> AbstractContextManager[None]:
    """Mark what ``model`` predicts inside the block as views of the batch before: they do not confirm it."""
    return _switch([layer for layer in statistics_layers(model) if layer.updates], "repeating", on=True)


@contextmanager
def _switch(layers: Sequence[StatisticsLayer], name: str, *, on: bool) -> Iterator[None]:
    for layer in layers:
        setattr(layer, name, on)
    try:
        yield
    finally:
        for layer in layers:
            setattr(layer, name, not on)


def statistics_layers(model: nn.Module) -> list[StatisticsLayer]:
    """Return the normalization layers of ``model`` whose statistics are named."""
    return [module for module in model.modules() if isinstance(module, StatisticsLayer)]


def norm_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield every normalization layer of ``model`` with its name, torch's own kinds included."""
    kinds = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, StatisticsLayer)
    return ((name, module) for name, module in model.named_modules() if isinstance(module, kinds))
