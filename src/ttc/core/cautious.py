"""What methods share that one outlier would change for long: a batch unlike those before must be confirmed."""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from ttc.core.adapter import Adapter
from ttc.core.outlier_check import VERY_FAR, OutlierCheck, is_blank


class CautiousAdapter(Adapter):
    """Forgets at once what it learned from a batch far from those before, until another like it confirms the change.

    What it learned from blank images, such as the black frames of a camera, it always forgets. A subclass writes
    :meth:`learn`, sets ``check`` and names it in ``state_attributes``. Processes that see shards of a batch do not
    check.
    """

    check: OutlierCheck
    limit: ClassVar[float] = VERY_FAR
    """The distance of pixels from which a batch is far."""

    def adapt(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, and learn from it unless it is far from those before."""
        if self.processes.active:
            return self.learn(x)
        blank = is_blank(x)
        before = self.state_dict() if blank or self.check.is_unconfirmed(x, self.limit) else None
        logits = self.learn(x)
        if before is not None:
            self.load_state_dict(before)
        if not blank:
            self.check.include(x)
        return logits

    @abstractmethod
    def learn(self, x: Tensor) -> Tensor:
        """Predict a validated batch and learn from it, with gradients enabled."""
