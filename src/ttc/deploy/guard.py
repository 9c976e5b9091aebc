"""A guard around an adapter: detects failing adaptation, rolls back, and falls back to the source model."""

import copy
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ttc.core import Adapter, Event, require_finite
from ttc.core.drift import parameter_drift
from ttc.core.representation import Rows, counted, html_table, text_table
from ttc.core.running import Runnable
from ttc.core.state import State, capture_state, restore_state
from ttc.deploy.monitors import (
    PredictionMonitor,
    SourceMonitor,
    count_dropped_batches,
    statistics_drift,
)
from ttc.deploy.policy import Policy
from ttc.errors import TTCError
from ttc.nn import source_classifier

ADAPTING, FROZEN, SOURCE = MODES = ("adapting", "frozen", "source")


class Level(IntEnum):
    """How far a guard has escalated; each level is named after the action that reaching it triggers."""

    HEALTHY = 0
    WARN = 1
    ROLLBACK = 2
    FREEZE = 3
    SOURCE = 4


@dataclass
class _Counters:
    state_attributes: ClassVar[tuple[str, ...]] = (
        *("calls", "images", "compared_images", "rejected_batches", "events", "rollbacks", "failed_callbacks"),
    )
    calls: int = 0
    images: int = 0
    compared_images: int = 0
    rejected_batches: int = 0
    events: int = 0
    rollbacks: int = 0
    failed_callbacks: int = 0


class Guard(Runnable):
    """Predicts with an adapter while it is healthy, and intervenes when it is not.

    After every ``policy.check_every`` images the signals are checked, without labels. Each unhealthy check escalates by
    one level: warn; roll back to the last healthy snapshot; roll back and freeze; predict with the source model. It
    escalates to the source model at once where no snapshot would help: when the comparison finds the source model
    better, or when no check was ever healthy. After ``policy.patience`` consecutive healthy checks it steps down by one
    level. ``policy.max_rejections`` rejected batches in a row count as an unhealthy check: a ruined state rejects all.
    A signal that is not finite is unhealthy. Calls from several threads take turns.

    Args:
        adapter: The adapter to guard; call the guard in its place.
        policy: When to check and what counts as unhealthy.
        on_event: Called with every :class:`Event`; an error in it is reported as a warning and does not stop the guard.
        callbacks: Told of every batch, with ``stats``, and of every event (:class:`ttc.core.Callback`).

    Attributes:
        callbacks: The list of these, to add to or to remove from.
        events: The last ``policy.max_events`` events.

    Example:
        >>> import ttc
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        ...                             torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
        >>> guard = Guard(ttc.adapt(model, "ttc"), on_event=print)
        >>> guard(torch.rand(16, 3, 32, 32)).shape
        torch.Size([16, 10])
        >>> guard.freeze()
        Event(images=16, action='freeze', reason='requested')
        >>> guard.mode
        'frozen'
    """

    state_attributes: ClassVar[tuple[str, ...]] = (
        *("counters", "level", "healthy_checks", "frozen_by_user", "unchecked_images", "comparison_credit"),
        *("dropped_batches", "parameter_drift", "statistics_drift", "rejected_in_a_row", "skipped_values"),
        *("snapshots", "prediction_monitor", "source_monitor"),
    )

    def __init__(
        self,
        adapter: Adapter,
        policy: Policy | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        callbacks: Iterable[Any] = (),
    ) -> None:
        if not isinstance(adapter, Adapter):
            raise TTCError(f"a guard takes an adapter, got {type(adapter).__name__}; build one with ttc.adapt(model)")
        if not adapter.processes.whole_batches:
            raise TTCError("a guard of a shared stream must see whole batches: distributed(adapter, batches='whole')")
        self.adapter, self.policy, self.on_event = adapter, policy or Policy(), on_event
        super().__init__(callbacks)
        self.source = source_classifier(adapter)
        self.events: deque[Event] = deque(maxlen=self.policy.max_events)
        self._clear()

    def __call__(self, x: Tensor) -> Tensor:
        """Predict a batch in the current mode, and check the signals when it is time to.

        Args:
            x: Images (N, C, H, W) on the device and of the dtype of the model.

        Returns:
            Detached, finite logits (N, K).

        Raises:
            TTCError: If the batch is invalid; only the count of rejected batches has changed then, unless they repeat.
        """
        with self.adapter.lock, torch.inference_mode(False):
            logits = self._predict_and_check(x)
            if self.callbacks:
                self.callbacks.report_batch(logits, stats=self.stats)
            return logits

    def predicting_model(self) -> nn.Module:
        """Return the model of the adapter."""
        return self.adapter.model

    def freeze(self) -> None:
        """Predict without adapting, until :meth:`resume`."""
        with self.adapter.lock:
            self.frozen_by_user = True
            self._report("freeze", "requested")

    def resume(self) -> None:
        """Adapt again, from the current state, whatever had stopped it."""
        with self.adapter.lock:
            self.frozen_by_user, self.level, self.healthy_checks = False, Level.HEALTHY.value, 0
            self._report("resume", "requested")

    def rollback(self, n: int = 1) -> None:
        """Restore a snapshot, and discard those taken after it.

        Args:
            n: How far back: 1 is the last snapshot; the one before all others is the initial state.

        Raises:
            TTCError: If there are fewer snapshots.
        """
        with self.adapter.lock:
            available = len(self.snapshots) + 1
            if not 1 <= n <= available:
                raise TTCError(f"{available} snapshots can be rolled back to, the initial state included, got n={n}")
            self._restore_snapshot(n)
            self._report("rollback", f"requested, {n} back")

    def reset(self) -> None:
        """Restore the adapter's initial state, and clear snapshots, statistics and counters; ``events`` stay."""
        with self.adapter.lock:
            self.adapter.reset()
            self._clear()
            self._report("reset", "requested")

    def state_dict(self) -> State:
        """Copy everything that changes, the adapter's state included.

        Returns:
            Tensors, numbers, strings and None in dicts, lists and tuples. ``events`` are not part of it.
        """
        with self.adapter.lock:
            return {"adapter": self.adapter.state_dict(), **capture_state(self)}

    def load_state_dict(self, state: State) -> None:
        """Restore what :meth:`state_dict` returned, to resume as if never stopped.

        Args:
            state: The state of this guard, or of one built alike.
        """
        with self.adapter.lock:
            self.adapter.load_state_dict(state["adapter"])
            restore_state(self, state, torch.device("cpu"))  # where the monitors compute

    def save(self, path: str | Path) -> None:
        """Save the adaptation, without the guard's own state (:meth:`ttc.Adapter.save`).

        Args:
            path: The safetensors file to write, whole or not at all.
        """
        self.adapter.save(path)

    def to(self, device: torch.device | str) -> "Guard":
        """Move the adapter and the source model to ``device``.

        Args:
            device: Where to, as for ``nn.Module.to``.

        Returns:
            The guard itself.
        """
        with self.adapter.lock:
            self.adapter.to(device)
            self.source.to(device)
        return self

    @property
    def mode(self) -> str:
        """How batches are predicted now: ``"adapting"``, ``"frozen"`` (without adapting) or ``"source"``."""
        if self.level == Level.SOURCE:
            return SOURCE
        return FROZEN if self.frozen_by_user or self.level == Level.FREEZE else ADAPTING

    @property
    def stats(self) -> dict[str, float]:
        """The counters and the current value of every signal: a flat dict of numbers for a monitoring system."""
        with self.adapter.lock:
            return {
                **vars(self.counters),
                "snapshots": len(self.snapshots) + 1,
                "level": self.level,
                **{mode: float(self.mode == mode) for mode in MODES},
                "parameter_drift": self.parameter_drift,
                "statistics_drift": self.statistics_drift,
                "dropped_batches": count_dropped_batches(self.adapter),
                **self.prediction_monitor.measurements(),
                **self.source_monitor.measurements(),
            }

    def summary_rows(self) -> Rows:
        """Return the guard's state as named values."""
        stats = self.stats
        rows = [
            ("mode", f"{self.mode} (level {Level(self.level).name.lower()})"),
            ("images", f"{self.counters.images:,} in {counted(self.counters.calls, 'batch', 'batches')}"),
            ("rejected batches", f"{self.counters.rejected_batches:,}"),
            ("rollbacks", f"{self.counters.rollbacks:,}, {counted(int(stats['snapshots']), 'snapshot', 'snapshots')}"),
            ("parameter drift", f"{self.parameter_drift:.3g} (limit {self.policy.limits.parameter_drift:g})"),
        ]
        rows += [
            ("event", f"{event.action} after {event.images:,}: {event.reason}") for event in list(self.events)[-3:]
        ]
        return [*rows, *self.adapter.summary_rows()]

    def __repr__(self) -> str:
        return text_table("guard", self.summary_rows())

    def _repr_html_(self) -> str:
        return html_table("guard", self.summary_rows())

    def _clear(self) -> None:
        policy = self.policy
        self.counters = _Counters()
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
        self.source_monitor = SourceMonitor(policy.limits, policy.recent_images, policy.check_every)

    def _predict_and_check(self, x: Tensor) -> Tensor:
        """Predict a batch and check the signals when it is time to; after a rollback, predict it again."""
        logits = self._predict_or_recover(x)
        self.rejected_in_a_row = 0
        self.counters.calls += 1
        self.counters.images += len(x)
        self.unchecked_images += len(x)
        self.prediction_monitor.observe(logits)
        self._compare_with_source(x, logits)
        if self.unchecked_images < self.policy.check_every or not self._check():
            return logits
        try:
            return self._predict(x, learn=False)
        except TTCError:  # only the state before the rollback could predict this batch
            return logits

    def _predict_or_recover(self, x: Tensor) -> Tensor:
        """Predict in the current mode; a state that is not finite is rolled back, or every later batch would fail."""
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

    def _predict(self, x: Tensor, *, learn: bool) -> Tensor:
        if self.mode == SOURCE:
            with torch.no_grad():
                return require_finite(self.source(self.adapter.validate(x)).logits)
        return self.adapter(x) if learn and self.mode == ADAPTING else self.adapter.predict(x)

    def _compare_with_source(self, x: Tensor, logits: Tensor) -> None:
        """Let the source model predict this batch too: each one while in doubt, else ``source_fraction`` of them."""
        if not self.policy.source_fraction:
            return
        if not (self.mode == ADAPTING and self.source_monitor.needs_every_batch()):
            self.comparison_credit += self.policy.source_fraction * len(x)
            if self.comparison_credit < len(x):
                return
            self.comparison_credit -= len(x)
        self.counters.compared_images += len(x)
        try:
            self.source_monitor.observe(self.adapter, self.source, self.adapter.validate(x), logits)
        except TTCError:  # rejected on second thoughts, such as flipped: never lose a prediction for a comparison
            self.source_monitor.skipped_batches += 1

    def _check(self) -> bool:
        """Check all signals and act on them; return whether the batch must be predicted again."""
        images, self.unchecked_images = self.unchecked_images, 0
        unhealthy = self._find_signal()
        if unhealthy is None:
            self.prediction_monitor.extend_history(images)
            self._record_healthy_check()
            return False
        self.healthy_checks = 0
        if self.mode == SOURCE:
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
        skipped, self.skipped_values = (
            self.skipped_values,
            self.source_monitor.skipped + self.prediction_monitor.skipped,
        )
        if self.skipped_values > skipped:
            return min(next_level, Level.FREEZE), "outputs of the adapted or the source model are not finite"
        if signal := self.source_monitor.signal():
            return Level.SOURCE, signal  # no snapshot would be better
        if self.dropped_batches > before:
            return next_level, f"gradients were not finite (batches dropped: {self.dropped_batches - before})"
        if signal := self.prediction_monitor.signal():
            return next_level if self.prediction_monitor.has_history else Level.SOURCE, signal
        return None

    def _record_healthy_check(self) -> None:
        """Take a snapshot now and then while all is well; step down when a higher level has been healthy for long."""
        self.healthy_checks += 1
        if self.level == Level.HEALTHY:
            if self.healthy_checks % self.policy.snapshot_every == 0 and self.mode == ADAPTING:
                self.snapshots = [*self.snapshots, self.adapter.state_dict()][-self.policy.max_snapshots :]
        elif self.healthy_checks >= self.policy.patience:
            self.level, self.healthy_checks = self.level - 1, 0
            self._report("step down", f"{self.policy.patience} healthy checks, now {self.mode}")

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

    def __getstate__(self) -> dict[str, Any]:
        with self.adapter.lock:  # a copy, or a call could change it while it is being pickled
            return copy.deepcopy(vars(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Guard":
        with self.adapter.lock:
            made = object.__new__(type(self))
            memo[id(self)] = made
            vars(made).update(copy.deepcopy(vars(self), memo))
        return made
