"""What a guard does about signals of failing adaptation: levels, snapshots, rollback, events."""

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import torch
from torch import Tensor

from ttc.core import Adapter, Event, require_finite
from ttc.core.drift import parameter_drift
from ttc.core.running import Runnable
from ttc.core.state import State
from ttc.deploy.arbiter import Arbiter
from ttc.deploy.monitors import PredictionMonitor, count_dropped_batches, statistics_drift
from ttc.deploy.policy import Policy
from ttc.errors import TTCError
from ttc.nn import blended_copy, source_classifier

BLEND = 0.75  # the weight of a batch of 50 images or more in the statistics of the first layer of the source
BLEND_IMAGES = 17  # that the source statistics count for, so that smaller batches have less weight


class Level(IntEnum):
    """How far a guard has escalated; each level is named after the action that reaching it triggers."""

    HEALTHY = 0
    WARN = 1
    ROLLBACK = 2
    FREEZE = 3
    SOURCE = 4


@dataclass
class Counters:
    """What a guard counts."""

    state_attributes: ClassVar[tuple[str, ...]] = (
        *("calls", "images", "compared_images", "source_images", "rejected_batches", "events", "rollbacks"),
        "failed_callbacks",
    )
    calls: int = 0
    images: int = 0
    compared_images: int = 0
    source_images: int = 0
    rejected_batches: int = 0
    events: int = 0
    rollbacks: int = 0
    failed_callbacks: int = 0


class Escalation(Runnable):
    """The part of a guard that checks the signals and escalates; :class:`ttc.deploy.Guard` predicts with it.

    Args:
        adapter: The adapter to guard.
        policy: When to check and what counts as unhealthy.
        on_event: Called with every event.
        callbacks: Told of every batch and event.
    """

    state_attributes: ClassVar[tuple[str, ...]] = (
        *("counters", "level", "healthy_checks", "frozen_by_user", "unchecked_images", "comparison_credit"),
        *("dropped_batches", "parameter_drift", "statistics_drift", "rejected_in_a_row", "skipped_values"),
        *("snapshots", "prediction_monitor", "arbiter"),
    )

    def __init__(
        self, adapter: Adapter, policy: Policy, on_event: Callable[[Event], None] | None, callbacks: Iterable[Any]
    ) -> None:
        super().__init__(callbacks)
        self.adapter, self.policy, self.on_event = adapter, policy, on_event
        self.source = source_classifier(adapter)
        self.blended = blended_copy(self.source, alpha=BLEND, source_pseudo_count=BLEND_IMAGES)
        self.events: deque[Event] = deque(maxlen=policy.max_events)
        self._clear()

    def _clear(self) -> None:
        policy = self.policy
        self.counters = Counters()
        self.level = Level.HEALTHY.value  # a plain number, which a state dict can contain
        self.healthy_checks = 0  # consecutive
        self.frozen_by_user = False
        self.unchecked_images = 0  # since the last check
        self.comparison_credit = 0.0  # images to compare with the source model next
        self.dropped_batches = 0  # at the last check
        self.parameter_drift = self.statistics_drift = 0.0
        self.rejected_in_a_row = 0
        self.skipped_values = 0  # signals that were not finite, at the last check
        self.snapshots: list[State] = []
        self.prediction_monitor = PredictionMonitor(policy.limits, policy.recent_images, policy.history_images)
        self.arbiter = Arbiter(policy.limits, policy.comparison_images, self.adapter.model.num_classes)

    @property
    def is_frozen(self) -> bool:
        """Whether the adapter predicts without adapting."""
        return self.frozen_by_user or self.level == Level.FREEZE

    def _predict_or_recover(self, x: Tensor) -> Tensor:
        """Predict at the current level; a state that is not finite is rolled back, or every later batch would fail."""
        try:
            return self._predict(x, learn=True)
        except TTCError as error:
            if math.isfinite(parameter_drift(self.adapter)) and math.isfinite(statistics_drift(self.adapter)):
                if not self._escalate_rejections(x, error):
                    raise
            else:
                self._restore_snapshot(1)
                self._report("rollback", "the parameters or the running statistics are not finite")
        try:
            return self._predict(x, learn=True)
        except TTCError:
            self.counters.rejected_batches += 1
            raise

    def _predict(self, x: Tensor, *, learn: bool) -> Tensor:
        if self.level == Level.SOURCE or self.arbiter.repeats:
            with torch.no_grad():
                return require_finite(self.source(self.adapter.validate(x)).logits)
        return self.adapter.predict(x) if self.is_frozen or not learn else self.adapter(x)

    def _escalate_rejections(self, x: Tensor, error: TTCError) -> bool:
        """Count a rejected batch; return whether it is worth another try, because repeated rejections were acted on."""
        self.rejected_in_a_row += 1
        if self.rejected_in_a_row % self.policy.max_rejections:
            self.counters.rejected_batches += 1
            return False
        reason = f"{self.rejected_in_a_row} batches in a row were rejected, the last one because {error}"
        try:
            self.adapter.validate(x)
        except TTCError:  # the caller's fault, whatever the state
            self._report("warn", reason)
        else:
            self._intervene(Level(min(self.level + 1, Level.SOURCE)), reason)
            if self.level >= Level.ROLLBACK:
                return True
        self.counters.rejected_batches += 1
        return False

    def _check(self) -> bool:
        """Check all signals and act on them; return whether the batch must be predicted again."""
        images, self.unchecked_images = self.unchecked_images, 0
        unhealthy = self._find_signal()
        if unhealthy is None:
            if self.prediction_monitor.has_recent:
                self.prediction_monitor.extend_history(images)
            self._record_healthy_check()
            return False
        self.healthy_checks = 0
        if self.level == Level.SOURCE:
            return False
        level, reason = unhealthy
        self._intervene(level, reason)
        return level >= Level.ROLLBACK

    def _intervene(self, level: Level, reason: str) -> None:
        self.healthy_checks, self.level = 0, level.value
        if level >= Level.ROLLBACK:
            self._restore_snapshot(1)
        self._report(level.name.lower(), reason)

    def _find_signal(self) -> tuple[Level, str] | None:
        """Return the level that the signals call for, with the reason, or None when all are healthy."""
        next_level = Level(min(self.level + 1, Level.SOURCE))
        self.parameter_drift = parameter_drift(self.adapter)
        before, self.dropped_batches = self.dropped_batches, count_dropped_batches(self.adapter)
        if not self.parameter_drift <= self.policy.limits.parameter_drift:  # NaN exceeds every limit
            return max(next_level, Level.ROLLBACK), f"the parameters drifted by {self.parameter_drift:.2f}"
        self.statistics_drift = statistics_drift(self.adapter)
        if not self.statistics_drift <= self.policy.limits.statistics_drift:
            return max(next_level, Level.ROLLBACK), f"the running statistics drifted by {self.statistics_drift:.2f}"
        skipped = self.arbiter.skipped_batches + self.prediction_monitor.skipped
        skipped, self.skipped_values = skipped - self.skipped_values, skipped
        if skipped > 0:
            return min(next_level, Level.FREEZE), "outputs of the adapted or the source model are not finite"
        if self.dropped_batches > before:
            return next_level, f"gradients were not finite (batches dropped: {self.dropped_batches - before})"
        if signal := self.prediction_monitor.signal():
            return next_level if self.prediction_monitor.has_history else Level.SOURCE, signal
        return None

    def _record_healthy_check(self) -> None:
        """Take a snapshot now and then while all is well; step down when a higher level has been healthy for long."""
        self.healthy_checks += 1
        if self.level == Level.HEALTHY:
            if self.healthy_checks % self.policy.snapshot_every == 0 and not self.is_frozen:
                self.snapshots = [*self.snapshots, self.adapter.state_dict()][-self.policy.max_snapshots :]
        elif self.healthy_checks >= self.policy.patience:
            self.level, self.healthy_checks = self.level - 1, 0
            self._report("step down", f"{self.policy.patience} healthy checks, now at level {self.level}")

    def _restore_snapshot(self, n: int) -> None:
        """Restore the ``n``-th last snapshot and remove those from it on: the next rollback reaches further back."""
        self.counters.rollbacks += 1
        if n <= len(self.snapshots):
            self.adapter.load_state_dict(self.snapshots[-n])
        else:
            self.adapter.reset()
        self.snapshots = self.snapshots[:-n]
        self.prediction_monitor.discard_recent()

    def _report(self, action: str, reason: str) -> None:
        event = Event(self.counters.images, action, reason)
        self.events.append(event)
        self.counters.events += 1
        self.callbacks.report_event(event)
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception as error:  # a broken callback must not stop predictions
                self.counters.failed_callbacks += 1
                with suppress(Warning):  # where warnings are errors, the prediction would be lost
                    warnings.warn(f"the guard's on_event failed: {type(error).__name__}: {error}", stacklevel=3)
