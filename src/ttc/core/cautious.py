"""What methods share that one outlier would change for long: a batch unlike those before must be confirmed."""

from abc import abstractmethod

from torch import Tensor

from ttc.core.adapter import Adapter
from ttc.core.outlier_check import OutlierCheck, is_blank
from ttc.core.state import State


class CautiousAdapter(Adapter):
    """Forgets at once what it learned from a batch far from those before, until another like it confirms the change.

    The first batch has none before it: if the second is far from it, that one is predicted from the initial state and
    waits for the third. If the third resembles it, what the first one taught is forgotten and the second is learned
    from; its images are part of the state until then.

    What it learned from blank images, such as the black frames of a camera, it always forgets. A subclass writes
    :meth:`learn`, sets ``check`` and names it in ``state_attributes``. Processes that see shards of a batch do not
    check.
    """

    check: OutlierCheck

    def adapt(self, x: Tensor) -> Tensor:
        """Return the logits of a batch, and learn from it unless it is far from those before."""
        if self.processes.active:
            return self.learn(x)
        if is_blank(x):
            known = self.state_dict()
            logits = self.learn(x)
            self.load_state_dict(known)
            return logits
        second, waiting = self.check.is_second_and_far(x), self.check.waiting
        restarts = second or (waiting is not None and self.check.shows_first_as_outlier(x))
        forgets = second or self.check.is_unconfirmed(x)
        before: State = self.state_dict() if forgets or restarts else None
        try:
            if restarts:
                self.load_state_dict({**self._initial, "check": before["check"]})
                if waiting is not None:
                    self.learn(waiting)
            logits = self.learn(x)
        except BaseException:
            if restarts:  # a rejected batch changes nothing
                self.load_state_dict(before)
            raise
        if forgets:
            self.load_state_dict(before)
        self.check.include(x)
        self.check.waiting = x.clone() if second else None
        return logits

    @abstractmethod
    def learn(self, x: Tensor) -> Tensor:
        """Predict a validated batch and learn from it, with gradients enabled."""
