"""A guard around an adapter: predicts with the better of adapted and source model, and detects failing adaptation."""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ttc.core import Adapter, Event
from ttc.core.entropy import softmax_entropy
from ttc.core.representation import Rows, counted, html_table, text_table
from ttc.core.state import State, capture_state, restore_state
from ttc.core.statistics import needs_large_batches, updates_statistics, uses_batch_statistics
from ttc.deploy.escalation import Escalation, Level
from ttc.deploy.flip_comparison import compare_with_source
from ttc.deploy.monitors import count_dropped_batches
from ttc.deploy.policy import Policy
from ttc.errors import TTCError

ADAPTING, FROZEN, SOURCE = MODES = ("adapting", "frozen", "source")


class Guard(Escalation):
    """Predicts with an adapter while it is healthy, and intervenes when it is not.

    Two things happen, both without labels. Each batch is predicted by the adapter or by the source model, whichever has
    been more consistent under a horizontal flip, and by both while neither leads clearly; the source with as much of
    the batch in its statistics as makes it more consistent (:class:`ttc.deploy.arbiter.Arbiter`). The adapter does not
    learn from batches where the source is preferred, unless it averages or caches the stream (``small_batches``). And
    after every
    ``policy.check_every`` images the signals are checked. Each unhealthy check escalates by one level: warn; roll back
    to the last healthy snapshot; roll back and freeze; predict with the source model, at once if no check was ever
    healthy. After ``policy.patience`` consecutive healthy checks it steps down by one level. ``policy.max_rejections``
    rejected batches in a row count as an unhealthy check: a ruined state rejects all. A signal that is not finite is
    unhealthy. Calls from several threads take turns.

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
        super().__init__(adapter, policy or Policy(), on_event, callbacks)

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
        """Predict with the adapter as it is, without adapting and without comparing, until :meth:`resume`."""
        with self.adapter.lock:
            self.frozen_by_user, self.arbiter.repeats = True, False
            self._report("freeze", "requested")

    def resume(self) -> None:
        """Adapt again, from the current state, whatever had stopped it."""
        with self.adapter.lock:
            self.frozen_by_user, self.level, self.healthy_checks = False, Level.HEALTHY.value, 0
            self.arbiter.prefers_source = self.arbiter.repeats = False
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
            if self.blended is not None:
                self.blended.to(device)
        return self

    @property
    def mode(self) -> str:
        """How batches are predicted now: ``"adapting"``, ``"frozen"`` (without adapting) or ``"source"``."""
        if self.level == Level.SOURCE or (self.arbiter.rejects_adapted and not self.frozen_by_user):
            return SOURCE
        return FROZEN if self.is_frozen else ADAPTING

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
                **self.arbiter.measurements(),
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

    def _predict_and_check(self, x: Tensor) -> Tensor:
        """Predict a batch with the better model, and check the signals when it is time to."""
        undisturbed = self.arbiter.repeats, self.comparison_credit
        news = None if self.frozen_by_user else self.arbiter.judge_variety(x)
        compare = self._is_comparison_due(x)
        before = self.adapter.state_dict() if compare and self._can_undo() else None
        rollbacks = self.counters.rollbacks
        try:
            logits = self._predict_or_recover(x)
        except TTCError:
            self.arbiter.repeats, self.comparison_credit = undisturbed
            raise
        self.rejected_in_a_row = 0
        self.counters.calls += 1
        self.counters.images += len(x)
        if news:
            self._report("source" if self.arbiter.repeats else "adapt", news)
        if self.arbiter.repeats:
            self.counters.source_images += len(x)
            return logits
        self.unchecked_images += len(x)
        chosen = self._choose(x, logits, compare=compare)
        distrusted = chosen is not logits and self.arbiter.prefers_source
        if not distrusted:
            self.prediction_monitor.observe(logits)
        elif before is not None and self.counters.rollbacks == rollbacks:
            self.adapter.load_state_dict(before)  # learn nothing from a batch that the source predicts better
        if self.unchecked_images < self.policy.check_every or not self._check() or distrusted:
            return chosen
        try:
            return self._predict(x, learn=False)  # after a rollback
        except TTCError:  # only the state before the rollback could predict this batch
            return logits

    def _is_comparison_due(self, x: Tensor) -> bool:
        """Tell whether to compare a batch: each one while in doubt, else ``source_fraction`` of them."""
        if self.arbiter.repeats or not self._can_compare(x):
            return False
        if not self.arbiter.is_in_doubt():
            self.comparison_credit += self.policy.source_fraction * len(x)
            if self.comparison_credit < len(x):
                return False
            self.comparison_credit -= len(x)
        return True

    def _can_compare(self, x: Tensor) -> bool:
        """Tell whether the comparison is enabled, the adapter in use, and this a batch that can be flipped."""
        in_use = self.level != Level.SOURCE and not self.frozen_by_user
        return self.policy.source_fraction > 0 and in_use and getattr(x, "ndim", 0) == 4

    def _can_undo(self) -> bool:
        """Tell whether to undo learning; a window or an average of the stream would never fill if it were undone."""
        accumulates = uses_batch_statistics(self.adapter.model) or updates_statistics(self.adapter.model)
        return not self.is_frozen and (needs_large_batches(self.adapter.model) or not accumulates)

    def _choose(self, x: Tensor, logits: Tensor, *, compare: bool) -> Tensor:
        """Return the adapter's logits or, unless the adapted model leads clearly, those that the arbiter makes."""
        if not self._can_compare(x):
            return logits
        surprised = self.arbiter.is_surprised_by(softmax_entropy(logits.float()))
        if not (compare or surprised):
            return logits
        self.counters.compared_images += len(x)
        try:
            comparison = compare_with_source(self.adapter, self.source, self.blended, self.adapter.validate(x))
        except TTCError:  # rejected on second thoughts, such as flipped: never lose a prediction for a comparison
            comparison = None
        if comparison is None:
            self.arbiter.skipped_batches += 1
            return logits
        if news := self.arbiter.judge(comparison, logits):
            self._report("source" if self.arbiter.prefers_source else "adapt", news)
        if self.arbiter.prefers_source:
            self.counters.source_images += len(x)
        return self.arbiter.fuse(comparison, logits)

    def __getstate__(self) -> dict[str, Any]:
        with self.adapter.lock:  # a copy, or a call could change it while it is being pickled
            return copy.deepcopy(vars(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Guard":
        with self.adapter.lock:
            made = object.__new__(type(self))
            memo[id(self)] = made
            vars(made).update(copy.deepcopy(vars(self), memo))
        return made
