"""What several processes that share one stream do together; in a process by itself, every operation changes nothing.

The network is what takes time and memory, so each process runs it on its shard of the batch, with the statistics of the
whole batch in normalization layers. Logits and features of all shards are then exchanged, and everything after them
(selection, losses, updates) is computed for the whole batch by every process, so that all of them stay equal.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from ttc.core.adapter import Adapter


class LostProcessError(RuntimeError):
    """Raised when another process of a shared stream has stopped, or did not arrive in time; the stream has ended.

    It is no :class:`ttc.TTCError`: that would mean that a batch was rejected and the next one may come.
    """


class Processes:
    """The processes that share a stream: this one alone, unless a subclass says otherwise.

    Normalization layers, the classifier, the updater and the adapter consult it; :func:`ttc.distributed` gives them
    another one.
    """

    rank: int = 0
    """The number of this process."""
    size: int = 1
    """The number of processes."""
    whole_batches: bool = True
    """Whether every process is called with the whole batch, and not with its shard."""

    @property
    def active(self) -> bool:
        """Whether a batch is being computed in shards now."""
        return False

    def validate(self, adapter: "Adapter", x: Tensor) -> Tensor:
        """Return the validated input of this process; an invalid one is rejected by all processes."""
        return adapter.validate(x)

    def run(self, compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Compute logits from the shard of this process; return the rows that belong to its validated input ``x``."""
        return compute(x)

    @contextmanager
    def split(self, whole: Tensor) -> Iterator[Tensor]:
        """Yield the shard of this process in images that every process has; inside, shards are those of ``whole``."""
        yield whole

    def join(self, shard: Tensor) -> Tensor:
        """Return the rows of all shards, in the order of the processes, with a gradient for those of this one."""
        return shard

    def apply_to_whole(self, view: Callable[[Tensor], Tensor], shard: Tensor) -> Tensor:
        """Return this shard of the view of the whole batch, for a view that is not computed image by image."""
        return view(shard)

    def stack(self, values: Tensor) -> Tensor:
        """Return the values of every process as (size, ...); their gradients are summed over processes."""
        return values[None]

    def fractions(self) -> list[float]:
        """Return the fraction of the batch that each process has."""
        return [1.0]

    def count_rows(self, shard: Tensor) -> int:
        """Return how many rows the shards have together, for a shard or an activation with its rows."""
        return len(shard)

    def sum(self, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the sums of tensors over processes."""
        return list(tensors)

    def exchange(self, text: str) -> list[str]:
        """Return the text of every process, for messages and digests."""
        return [text]

    def exchange_objects(self, value: Any) -> list[Any]:
        """Return the value of every process; it is pickled on the way."""
        return [value]

    def __deepcopy__(self, memo: object) -> "Processes":
        return self  # a copy of an adapter belongs to the same processes


ALONE = Processes()
"""One process by itself."""
