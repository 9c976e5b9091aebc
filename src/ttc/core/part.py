"""The explicit interface between an adapter and the stateful parts it is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn
from torch.optim import Optimizer

from ttc.core.processes import ALONE, Processes
from ttc.errors import TTCError


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
    resizable_attributes: ClassVar[tuple[str, ...]] = ()
    """Those of them whose tensors change their length, the first dimension."""
    dropped_batches: int = 0
    """Batches that were not learned from because their gradient was not finite."""
    processes: Processes = ALONE
    """The processes that share the stream (:func:`ttc.distributed`). ``adapt`` and ``infer`` of an adapter then take
    the shard of this process and return the logits of all shards, which is what the classifier returns for a shard."""

    @property
    def requires_batch_statistics(self) -> bool:
        """Whether this part works with the statistics of the batch alone, and cannot be converted for small batches."""
        return False

    def check_state(self, state: dict[str, Any]) -> None:
        """Check what :func:`ttc.core.state.check_state` cannot know of a state of this part; the default has nothing.

        Raises:
            ValueError: If the state does not fit.
        """

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

    def share_stream_(self, processes: Processes) -> None:
        """Let this part work in one of several processes that share a stream, in place; the default rejects that.

        A part whose results follow from the logits and features of the classifier, which are those of the whole batch
        then, overrides it with :func:`share_parts_`.

        Raises:
            TTCError: If this part does not support it.
        """
        raise TTCError(
            f"{type(self).__name__} cannot share a stream between processes: run it in one, or choose norm, tent, eta "
            "or ttc"
        )


def share_parts_(part: Part, processes: Processes) -> None:
    """Let a part and those that it is made of share a stream; those come first, as one of them may reject it."""
    for inner in part.parts():
        inner.share_stream_(processes)
    part.processes = processes
