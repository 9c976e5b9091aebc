"""A guard around an adapter: never much worse than the shipped model, and always a way back."""

import math
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ttc.core import Adapter
from ttc.nn.preparation import source_classifier
from ttc.core.state import State, restore_state, capture_state
from ttc.deploy.policy import Event, Policy
from ttc.deploy.monitors import PredictionMonitor, SourceMonitor, drift_of, dropped_by
from ttc.errors import TTCError

ADAPTING, FROZEN, SOURCE = MODES = ("adapting", "frozen", "source")
HELD = (
    *("_calls", "_images", "_unseen", "_compared_images", "_refused", "_rollbacks", "_noted", "_level", "_healthy"),
    *("_dropped", "_drift", "_owed", "_by_hand", "_answers", "_comparison"),
)  # with the kept states, what it remembers
LADDER = ("healthy", "warn", "roll back", "freeze", "source")  # what each step up brings


class Guard:
    """Answers as ``adapter`` does while that looks healthy, and steps in when it does not.

    Each unhealthy look goes one step up: warn; roll back to the last healthy state; roll back and freeze; answer with
    the source model. It goes straight to that last step when no state to go back to would help: when a comparison finds
    the source better, and when the adapter was never seen healthy. Each time after ``patience`` healthy looks it goes
    one step down. Calls from several threads take turns. ``on_event`` is called with every :class:`Event`; ``stats``
    is a flat dict of numbers for a monitoring system.
    """

    def __init__(
        self, adapter: Adapter, policy: Policy | None = None, *, on_event: Callable[[Event], None] | None = None
    ) -> None:
        self.adapter, self.policy, self.on_event = adapter, policy or Policy(), on_event
        self.source = source_classifier(adapter)
        self.events: deque[Event] = deque(maxlen=self.policy.events)
        self._by_hand = False  # frozen by the caller, who alone resumes
        self._start_over()

    def __call__(self, x: Tensor) -> Tensor:
        """The logits (N, K) for a batch: adapting, frozen, or the source's, as the guard sees fit."""
        with self.adapter.lock, torch.inference_mode(False):
            answer = self._answered(x)
            self._calls += 1
            self._images += len(x)
            self._unseen += len(x)
            self._answers.observe(answer)
            self._compare(x, answer)
            if self._unseen < self.policy.look_every:
                return answer
            if not self._stepped_in():
                return answer
            try:
                return self._in_mode(x, learn=False)
            except TTCError:  # a batch that only the adapted state could take
                return answer

    def freeze(self) -> None:
        """Predict only, until :meth:`resume`."""
        with self.adapter.lock:
            self._by_hand = True
            self._note("freeze", "asked for")

    def resume(self) -> None:
        """Adapt again, from the present state, whatever had stopped it."""
        with self.adapter.lock:
            self._by_hand, self._level, self._healthy = False, 0, 0
            self._note("resume", "asked for")

    def rollback(self, n: int = 1) -> None:
        """Go back to the ``n``-th last healthy state; before them all comes the start."""
        with self.adapter.lock:
            if not 1 <= n <= len(self._states) + 1:
                raise TTCError(f"there are {len(self._states) + 1} states to roll back to, asked for number {n}")
            self._restore(n)
            self._note("roll back", f"asked for, {n} back")

    def reset(self) -> None:
        """Put the adapter back to its start and forget what was observed; events stay."""
        with self.adapter.lock:
            self.adapter.reset()
            self._by_hand = False
            self._start_over()
            self._note("reset", "asked for")

    def state(self) -> State:
        """A copy of everything it remembers, the adapter's state included; not the events, which were reported."""
        with self.adapter.lock:
            held = {name: capture_state(getattr(self, name)) for name in HELD}
            return {"adapter": self.adapter.state(), "states": capture_state(list(self._states)), **held}

    def load_state_dict(self, state: State) -> None:
        """Put back what :meth:`state` copied: from there it goes on as if never stopped."""
        with self.adapter.lock:
            self.adapter.load_state_dict(state["adapter"])
            self._states.clear()
            self._states.extend(capture_state(state["states"]))
            for name in HELD:
                setattr(self, name, restore_state(getattr(self, name), state[name], torch.device("cpu")))

    def save(self, path: str | Path) -> None:
        """Save the adaptation (:meth:`ttc.Adapter.save`)."""
        self.adapter.save(path)

    def to(self, device: torch.device | str) -> "Guard":
        """Move adapter and source model to ``device``; returns itself."""
        with self.adapter.lock:
            self.adapter.to(device)
            self.source.to(device)
        return self

    @property
    def mode(self) -> str:
        """``"adapting"``, ``"frozen"`` (predict only) or ``"source"``."""
        if LADDER[self._level] == "source":
            return SOURCE
        return FROZEN if self._by_hand or LADDER[self._level] == "freeze" else ADAPTING

    @property
    def stats(self) -> dict[str, float]:
        """Numbers for a monitoring system."""
        with self.adapter.lock:
            return {
                "calls": self._calls,
                "images": self._images,
                "compared_images": self._compared_images,
                "refused_batches": self._refused,
                "events": self._noted,
                "rollbacks": self._rollbacks,
                "snapshots": len(self._states) + 1,
                "level": self._level,
                **{mode: float(self.mode == mode) for mode in MODES},
                "drift": self._drift,
                "dropped_gradients": dropped_by(self.adapter),
                **self._answers.measures(),
                **self._comparison.measures(),
            }

    def _start_over(self) -> None:
        policy = self.policy
        self._calls = self._images = self._unseen = self._compared_images = self._refused = self._rollbacks = 0
        self._noted = self._level = self._healthy = self._dropped = 0
        self._drift = self._owed = 0.0
        self._states: deque[State] = deque(maxlen=policy.snapshots)
        self._answers = PredictionMonitor(policy.limits, policy.memory, policy.history)
        self._comparison = SourceMonitor(policy.limits, policy.memory, policy.look_every)

    def _answered(self, x: Tensor) -> Tensor:
        """The answer in the present mode; broken parameters are rolled back at once instead of failing every batch."""
        try:
            return self._in_mode(x, learn=True)
        except TTCError:
            if math.isfinite(drift_of(self.adapter)):
                self._refused += 1
                raise
            self._restore(1)
            self._note("roll back", "the parameters are not finite")
        return self._in_mode(x, learn=True)

    def _in_mode(self, x: Tensor, *, learn: bool) -> Tensor:
        if self.mode == SOURCE:
            with torch.no_grad():
                logits = self.source(self.adapter.checked(x)).logits
            if not bool(logits.isfinite().all()):
                raise TTCError(
                    "the source model's outputs for this batch are not finite; check the range of the images"
                )
            return logits
        return self.adapter(x) if learn and self.mode == ADAPTING else self.adapter.predict(x)

    def _compare(self, x: Tensor, answer: Tensor) -> None:
        """Show the source model this batch too, when it is its turn."""
        if not self.policy.source_fraction:
            return
        if not (self._comparison.undecided() and self.mode == ADAPTING):  # in doubt, every batch's turn
            self._owed += self.policy.source_fraction * len(x)
            if self._owed < len(x):
                return
            self._owed -= len(x)
        self._compared_images += len(x)
        self._comparison.observe(self.adapter, self.source, self.adapter.checked(x), answer)

    def _stepped_in(self) -> bool:
        """Judge the present state and act on it; whether the answer has to be made again."""
        looked, self._unseen = self._unseen, 0
        self._drift = drift_of(self.adapter)
        drifted = not self._drift <= self.policy.limits.drift  # NaN is beyond every limit
        worse = self._comparison.found()
        before, self._dropped = self._dropped, dropped_by(self.adapter)
        lost = f"{self._dropped - before} gradients were not finite" if self._dropped > before else None
        reason = f"the parameters drifted by {self._drift:.2f}" if drifted else worse or lost or self._answers.found()
        if reason is None:
            self._answers.remember(looked)
            self._well()
            return False
        self._healthy = 0
        if self.mode == SOURCE:
            return False
        up = max(self._level + 1, LADDER.index("roll back") if drifted else 0)
        hopeless = worse is not None or (
            not lost and not self._answers.ever_healthy
        )  # no state to go back to would be better
        self._level = LADDER.index("source") if hopeless and not drifted else up
        if self._level > LADDER.index("warn"):
            self._restore(1)
        self._note(LADDER[self._level], reason)
        return self._level > LADDER.index("warn")

    def _well(self) -> None:
        """A healthy look: now and then keep the state, and step down when that lasts."""
        self._healthy += 1
        if self._level == 0:
            if self._healthy % self.policy.snapshot_every == 0 and self.mode == ADAPTING:
                self._states.append(self.adapter.state())
        elif self._healthy >= self.policy.patience:
            self._level, self._healthy = self._level - 1, 0
            self._note("step down", f"{self.policy.patience} healthy looks; now {self.mode}")

    def _restore(self, n: int) -> None:
        """Take the ``n``-th last state off the shelf, with those after it, so that a next time reaches further back."""
        self._rollbacks += 1
        kept: State | None = None
        for _ in range(n):
            kept = self._states.pop() if self._states else None
        if kept is None:
            self.adapter.reset()
        else:
            self.adapter.load_state_dict(kept)
        self._answers.forget_recent()

    def _note(self, action: str, reason: str) -> None:
        event = Event(self._images, action, reason)
        self.events.append(event)
        self._noted += 1
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception as error:  # a broken monitor must not stop the answers
                warnings.warn(f"the guard's on_event failed: {type(error).__name__}: {error}", stacklevel=3)
