"""The explicit interface between an adapter and the stateful parts it is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class SmallBatches:
    """How the parts of a method are converted for small batches.

    Args:
        samples_per_step: Take an optimizer step once that many samples have been accumulated.
        image_weight: Weight of a new image in exponential moving averages over the stream.
    """

    samples_per_step: int
    image_weight: float


class Part:
    """A stateful part of an adapter: an updater, a selector, a random view, another adapter.

    ``state_attributes`` names what changes; copying, saving, rollback and :meth:`ttc.Adapter.reset` follow from it.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ()
    dropped_batches: int = 0
    """Batches that were not learned from because their gradient was not finite."""

    @property
    def requires_batch_statistics(self) -> bool:
        """Whether this part works with the statistics of the batch alone, and cannot be converted for small batches."""
        return False

    def parts(self) -> Iterator["Part"]:
        """Yield the parts this one is made of, from its state attributes."""
        for name in self.state_attributes:
            value = getattr(self, name)
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Part):
                    yield item

    def optimizers(self) -> Iterator[Optimizer]:
        """Yield every optimizer of this part and of its own parts."""
        for name in self.state_attributes:
            value = getattr(self, name)
            if isinstance(value, Optimizer):
                yield value
        for part in self.parts():
            yield from part.optimizers()

    def networks(self) -> Iterator[nn.Module]:
        """Yield every torch module of this part and of its own parts: the model, a teacher, a projector."""
        for name in self.state_attributes:
            value = getattr(self, name)
            if isinstance(value, nn.Module):
                yield value
        for part in self.parts():
            yield from part.networks()

    def use_small_batches_(self, settings: SmallBatches) -> None:
        """Convert this part in place so that nothing depends on the size of a batch; the default converts its parts."""
        for part in self.parts():
            part.use_small_batches_(settings)
