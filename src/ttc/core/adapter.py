"""The contract of every method: an object that predicts a stream of batches and adapts as it goes."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ttc.core import checkpoint
from ttc.core.adapter_config import AdapterConfig, config_of
from ttc.core.adapter_module import AdapterModule
from ttc.core.callbacks import Event
from ttc.core.classifier import Classifier
from ttc.core.copying import CopiedUnderLock
from ttc.core.drift import parameter_drift
from ttc.core.exported import ExportedClassifier, ExportParts, export_module
from ttc.core.input_checks import input_warning, probe_shape, reject_invalid
from ttc.core.part import Part
from ttc.core.representation import Rows, html_table, text_table
from ttc.core.running import Runnable
from ttc.core.state import Snapshot, State, capture_state, restore_state
from ttc.core.statistics import freeze_statistics, needs_large_batches, updates_statistics, uses_batch_statistics
from ttc.errors import TTCError


class Adapter(CopiedUnderLock, Runnable, Part, ABC):
    """Predicts batches of images, and may learn from each of them.

    ``logits = adapter(images)``: images (N, C, H, W) in, detached finite logits (N, K) out, the same inside
    ``torch.no_grad()`` and ``torch.inference_mode()``. A rejected batch (:class:`ttc.TTCError`) changes nothing.
    Calls from several threads take turns, so each sees whole steps.

    The author of a method writes :meth:`adapt`. Where there is more state than the model's, ``state_attributes`` names
    the attributes: copying, saving, moving to a device, rollback and :meth:`reset` follow from it.

    Args:
        model: The private, prepared copy of the classifier that this adapter may change.

    Attributes:
        callbacks: Told of every adapted batch and every reset: ``adapter.callbacks.add(callback)``
            (:class:`ttc.core.Callback`). They are not part of copies, pickles and saved files.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("model",)
    config: AdapterConfig | None = None
    """What :func:`ttc.adapt` was asked for; None for an adapter that was put together by hand."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model
        self._initial: State = None  # captured before the first batch
        self._accepted: set[torch.Size] = set()  # image shapes the model is known to accept: a cache, not a state

    @final
    def __call__(self, x: Tensor) -> Tensor:
        """Predict a batch and adapt to it.

        Args:
            x: Images (N, C, H, W) on the device and of the dtype of the model.

        Returns:
            Detached, finite logits (N, K).

        Raises:
            TTCError: If the batch is invalid; nothing has changed then.
        """
        with self.lock, torch.inference_mode(False):
            x = self.processes.validate(self, x)
            self.mark_initial()
            networks = self._all_networks()
            before = Snapshot(networks) if updates_statistics(networks) else None
            try:
                with torch.enable_grad():
                    logits = self.processes.run(self.adapt, x)
            except BaseException:
                if before is not None:
                    before.restore(networks)
                raise
            logits = logits.detach()
            if self.callbacks:
                self.callbacks.report_batch(logits)
        return logits

    @final
    def predict(self, x: Tensor) -> Tensor:
        """Predict a batch without learning from it: nothing changes.

        Args:
            x: Images (N, C, H, W) on the device and of the dtype of the model.

        Returns:
            Detached, finite logits (N, K).

        Raises:
            TTCError: If the batch is invalid.
        """
        with self.lock, torch.inference_mode(False), torch.no_grad(), freeze_statistics(self._all_networks()):
            return self.processes.run(self.infer, self.processes.validate(self, x)).detach()

    @final
    def export(self, *, statistics: Tensor | None = None, second_view: bool = False) -> ExportedClassifier:
        """Return a plain module that predicts as this adapter does now, and never changes.

        It is in evaluation mode and works with ``torch.export`` and ONNX (:func:`ttc.deploy.write_onnx`).
        Statistics are those that the adapter stores (``small_batches=True``, ``norm-ema``,
        ``tipi``, models without BatchNorm). Where a method normalizes with the statistics of each batch, they become
        those of ``statistics``: for these images the module then predicts what ``adapter.predict`` does.

        Args:
            statistics: A large batch of recent images (N, C, H, W), for a method that uses the statistics of the batch;
                with ``small_batches="window"`` those in the window unless given.
            second_view: Predict with all views of the method, as TTC does with an image and its flip, with one forward
                pass per view; without it, with the image alone.

        Returns:
            The module, which shares nothing with the adapter.

        Raises:
            TTCError: If statistics are needed or not needed, there is no second view to be exported, or the method
                predicts with more than its network, as LAME does; also before the first batch, with which the module
                is compared.
        """
        with self.lock, torch.inference_mode(False):
            return export_module(self, statistics, second_view=second_view)

    @final
    def as_module(self) -> AdapterModule:
        """Return this adapter as an ``nn.Module`` that keeps adapting, for ``nn.Sequential`` and training frameworks.

        Returns:
            The module; it and the adapter are one: what one learns, the other has learned.
        """
        return AdapterModule(self)

    def export_parts(self) -> ExportParts:
        """Return what :meth:`export` needs to know of a method that predicts with more than its model's logits."""
        return ExportParts()

    @property
    def export_base(self) -> "Adapter":
        """The adapter whose predictions :meth:`export` copies: this one, unless it wraps another."""
        return self

    @property
    def accepted_shapes(self) -> frozenset[torch.Size]:
        """The image shapes (C, H, W) that were predicted so far."""
        return frozenset(self._accepted)

    @property
    def recent_images(self) -> Tensor | None:
        """The images that are in memory, where there are any."""
        return None

    def predicting_model(self) -> nn.Module:
        """Return the model, whose device and dtype images are converted to."""
        return self.model

    @abstractmethod
    def adapt(self, x: Tensor) -> Tensor:
        """Predict a validated batch and learn from it, with gradients enabled: the one method an author writes."""

    def infer(self, x: Tensor) -> Tensor:
        """Predict a validated batch without changing anything; overridden where there is a cheaper way than this."""
        before = self.state_dict()
        try:
            with torch.enable_grad():
                return self.adapt(x)
        finally:
            self.load_state_dict(before)

    def context(self, x: Tensor) -> Tensor:
        """Return the images among which ``x`` is predicted, ``x`` last: ``x`` alone, unless recent ones are cached."""
        return x

    @property
    def uses_batch(self) -> bool:
        """Whether the prediction of an image depends on the other images of its batch."""
        return uses_batch_statistics(self.model)

    @final
    def mark_initial(self) -> None:
        """Make the present state the one that :meth:`reset` restores, unless there is one; the first call does this."""
        if self._initial is None:
            for part in self.parts():
                if isinstance(part, Adapter):
                    part.mark_initial()
            self._initial = capture_state(self)

    @final
    def reset(self) -> None:
        """Restore the state from before the first batch."""
        with self.lock, torch.inference_mode(False):
            if self._initial is not None:
                restore_state(self, self._initial, self.device)
            if self.callbacks:
                self.callbacks.report_event(Event(self.callbacks.images, "reset", "requested"))

    @final
    def state_dict(self) -> State:
        """Copy everything that changes: parameters, statistics, moments, accumulated gradients, counters.

        Returns:
            Tensors, numbers, strings and None in dicts, lists and tuples; it shares nothing with the adapter.
        """
        with self.lock, torch.inference_mode(False):
            return capture_state(self)

    @final
    def load_state_dict(self, state: State) -> None:
        """Restore what :meth:`state_dict` returned.

        Args:
            state: The state of this adapter, or of one built alike.
        """
        with self.lock, torch.inference_mode(False):
            self.mark_initial()
            restore_state(self, state, self.device)

    @final
    def save(self, path: str | Path) -> None:
        """Write what changed to a small file, from which :func:`ttc.load_adaptation` resumes as if never stopped.

        Args:
            path: The safetensors file to write, whole or not at all.
        """
        with self.lock:
            self.mark_initial()
            checkpoint.save(self, Path(path))

    @final
    def load(self, path: str | Path) -> None:
        """Resume from a file saved by an adapter of the same model, method and options.

        Args:
            path: A file written by :meth:`save`.

        Raises:
            TTCError: If the file is damaged, or of another model, method or options; nothing has changed then.
        """
        with self.lock:
            self.mark_initial()
            checkpoint.restore(self, checkpoint.read(Path(path)))

    @property
    def initial_tensors(self) -> Mapping[str, Tensor]:
        """The trainable parameters and buffers of the model from before the first batch, by name."""
        self.mark_initial()
        if "model" in self.state_attributes:
            tensors: Mapping[str, Tensor] = self._initial["model"]
            return tensors
        return next(part for part in self.parts() if isinstance(part, Adapter)).initial_tensors

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @final
    def to(self, device: torch.device | str) -> "Adapter":
        """Move the model and all other state to ``device``.

        Args:
            device: Where to, as for ``nn.Module.to``.

        Returns:
            The adapter itself.

        Raises:
            TTCError: If there is no such device.
        """
        with self.lock, torch.inference_mode(False):
            state = self.state_dict()
            try:
                self._all_networks().to(device)
            except (RuntimeError, AssertionError, TypeError) as error:
                reason = str(error).strip().splitlines()[0].rstrip(".")
                raise TTCError(
                    f"the adapter cannot be moved to {device!r}: {reason}; it stays on {self.device}"
                ) from error
            self.load_state_dict(state)
        return self

    def summary_rows(self) -> Rows:
        """Return what this adapter is and does, as named values."""
        config = config_of(self)
        options = ", ".join(f"{name}={value}" for name, value in config.shown().items())
        parameters = list(self.model.parameters())
        trained = [parameter.numel() for parameter in parameters if parameter.requires_grad]
        changed = parameter_drift(self) if self._initial is not None else 0.0  # to show an adapter marks nothing
        return [
            ("method", f"{config.method} ({options})" if options else config.method),
            ("model", f"{type(self.model.network).__name__}, {self.model.num_classes} classes, {self.device}"),
            ("adapts", f"{sum(trained):,} of {sum(parameter.numel() for parameter in parameters):,} parameters"),
            ("changed so far", f"{100 * changed:.3g} % of these parameters' norm"),
        ]

    def __repr__(self) -> str:
        return text_table("adapter", self.summary_rows())

    def _repr_html_(self) -> str:
        return html_table("adapter", self.summary_rows())

    def copied_variables(self) -> dict[str, Any]:
        """Return the attributes that a copy has; it remembers no shapes."""
        return {**super().copied_variables(), "_accepted": set()}

    def validate(self, x: Tensor) -> Tensor:
        """Check a batch, without changing or optimizing anything.

        Args:
            x: What a caller passed.

        Returns:
            The batch, detached, as :meth:`adapt` may use it.

        Raises:
            TTCError: If the batch is invalid, with the reason and what to do.
        """
        reject_invalid(x, next(self.model.parameters()))
        x = x.clone() if x.is_inference() else x.detach()
        if x.shape[1:] not in self._accepted:
            probe_shape(self.model, x)
            warning = None if self._accepted else input_warning(x, self.model)
            self._accepted.add(x.shape[1:])
            if warning:
                warnings.warn(warning, stacklevel=3)
        if len(x) == 1 and needs_large_batches(self.model):
            warnings.warn(
                "a batch of one image is normalized by its own statistics alone, which ruins most networks; "
                "use larger batches, or adapt with small_batches=True",
                stacklevel=3,
            )
        return x

    def _all_networks(self) -> nn.Module:
        """Return all networks as one module; most methods have the model alone."""
        found = dict.fromkeys([self.model, *self.networks()])
        return nn.ModuleList(found) if len(found) > 1 else self.model


def require_finite(logits: Tensor) -> Tensor:
    """Return ``logits``, or reject the batch if the model's outputs are not finite: learning from those would ruin it.

    Raises:
        TTCError: If a value is NaN or infinite.
    """
    if not bool(logits.isfinite().all()):
        raise TTCError("the model's outputs for this batch are not finite; check the range of the images")
    return logits
