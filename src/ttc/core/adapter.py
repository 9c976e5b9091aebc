"""The contract of every method: an object that predicts a stream of batches and adapts as it goes."""

import copy
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ttc.core import checkpoint
from ttc.core.adapter_module import AdapterModule
from ttc.core.callbacks import CallbackList, Event
from ttc.core.classifier import Classifier
from ttc.core.data_items import Data
from ttc.core.exported import ExportedClassifier, ExportParts, export_module
from ttc.core.input_checks import input_warning
from ttc.core.interface import PROBABILITIES, are_probabilities
from ttc.core.part import Part
from ttc.core.representation import Rows, html_table, text_table
from ttc.core.running import Run, start_run
from ttc.core.state import Snapshot, State, capture_state, restore_state
from ttc.core.statistics import freeze_statistics, needs_large_batches, updates_statistics, uses_batch_statistics
from ttc.errors import TTCError


class Adapter(Part, ABC):
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
    config: checkpoint.AdapterConfig | None = None
    """What :func:`ttc.adapt` was asked for; None for an adapter that was put together by hand."""

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.lock = threading.RLock()
        self.callbacks = CallbackList()
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
    def run(
        self,
        data: Data,
        *,
        batch_size: int = 64,
        transform: Callable[[Any], Any] | None = None,
        image_key: str | None = None,
        label_key: str | None = None,
        callbacks: Iterable[Any] = (),
        progress: bool | None = None,
    ) -> Run:
        """Predict all of some data and adapt to it, batch by batch.

        Args:
            data: A ``DataLoader`` of pairs ``(images, labels)``, dicts or tensors; a data set of single images, such as
                an ``ImageFolder`` or a split of Hugging Face ``datasets``; any iterable of these. Shuffle what is
                sorted by class.
            batch_size: How many single images make a batch; batches stay as they are.
            transform: Applied to each image, or to each batch where the data yields batches.
            image_key: The key of the images, where items are dicts and it is not a usual one, as ``"pixel_values"`` is.
            label_key: The same for labels.
            callbacks: Told of every batch, with labels (:class:`ttc.core.Callback`).
            progress: Whether to show progress; only on a terminal unless given.

        Returns:
            The run: iterate over it for the logits (N, K) of each batch, or call ``finish()`` for the summary alone.

        Raises:
            TTCError: If a batch is invalid, when it is reached.

        Example:
            >>> import ttc
            >>> adapter = ttc.adapt(ttc.models.build("resnet20"), "tent")
            >>> images, labels = torch.rand(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)
            >>> run = adapter.run(torch.utils.data.TensorDataset(images, labels), batch_size=4)
            >>> [tuple(logits.shape) for logits in run]
            [(4, 10), (4, 10)]
            >>> run.summary.labelled
            8
        """
        return start_run(
            self,
            self.model,
            data,
            batch_size=batch_size,
            transform=transform,
            image_key=image_key,
            label_key=label_key,
            callbacks=callbacks,
            progress=progress,
        )

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
        config = checkpoint.config_of(self)
        options = ", ".join(f"{name}={value}" for name, value in config.shown().items())
        parameters = list(self.model.parameters())
        trained = [parameter.numel() for parameter in parameters if parameter.requires_grad]
        return [
            ("method", f"{config.method} ({options})" if options else config.method),
            ("model", f"{type(self.model.network).__name__}, {self.model.num_classes} classes, {self.device}"),
            ("adapts", f"{sum(trained):,} of {sum(parameter.numel() for parameter in parameters):,} parameters"),
            ("changed so far", f"{100 * self.relative_change():.3g} % of these parameters' norm"),
        ]

    def relative_change(self) -> float:
        """Return the relative distance of the trained parameters from their initial values, ‖θ - θ₀‖ / ‖θ₀‖."""
        squares = [0.0, 0.0]
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and self._initial is not None:
                start = self.initial_tensors[name].to(parameter)
                squares[0] += (parameter.detach() - start).square().sum().item()
                squares[1] += start.square().sum().item()
        return (squares[0] / squares[1]) ** 0.5 if squares[1] else 0.0

    def __repr__(self) -> str:
        return text_table("adapter", self.summary_rows())

    def _repr_html_(self) -> str:
        return html_table("adapter", self.summary_rows())

    def __getstate__(self) -> dict[str, Any]:
        if "_copied" not in vars(self):  # a copy, or a call could change it while it is being pickled
            made = copy.deepcopy(self)
            made._mark_copied()  # with the adapters in it, so that what they share stays shared
            return made._variables()
        return self._variables()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Adapter":
        with self.lock:
            made = object.__new__(type(self))
            memo[id(self)] = made
            made.__setstate__(copy.deepcopy(self._variables(), memo))
        return made

    def _variables(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name != "_copied"}
        return {**kept, "lock": None, "_accepted": set()}

    def _mark_copied(self) -> None:
        self._copied = True
        for part in self.parts():
            if isinstance(part, Adapter):
                part._mark_copied()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()

    def validate(self, x: Tensor) -> Tensor:
        """Check a batch, without changing or optimizing anything.

        Args:
            x: What a caller passed.

        Returns:
            The batch, detached, as :meth:`adapt` may use it.

        Raises:
            TTCError: If the batch is invalid, with the reason and what to do.
        """
        if not isinstance(x, Tensor):
            raise TTCError(f"expected a tensor of images (N, C, H, W), got {type(x).__name__}")
        if not x.is_floating_point():
            raise TTCError(f"expected float images, got {x.dtype}; for pixels in 0..255 pass images.float() / 255")
        if x.layout is not torch.strided:
            raise TTCError(f"expected a dense tensor of images, got layout {x.layout}; pass images.to_dense()")
        if x.ndim < 2 or x.numel() == 0:
            raise TTCError(f"expected a batch of at least one image (N, C, H, W), got shape {tuple(x.shape)}")
        weight = next(self.model.parameters())
        if x.device != weight.device:
            raise TTCError(
                f"the images are on {x.device} and the model on {weight.device}; move one of them with .to()"
            )
        if x.dtype != weight.dtype:
            raise TTCError(f"the images are {x.dtype} and the model {weight.dtype}; convert one of them with .to()")
        if weight.dtype in {torch.float16, torch.bfloat16} and _mixes_types(weight):
            raise TTCError(
                f"the model is {weight.dtype} inside torch.autocast to another type, which its layers cannot mix; "
                "leave autocast, or convert the model and the images with .float()"
            )
        if not bool(x.isfinite().all()):
            raise TTCError("the images contain NaN or infinite values; leave those images out")
        x = x.clone() if x.is_inference() else x.detach()
        if x.shape[1:] not in self._accepted:
            self._probe(x)
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

    def _all_networks(self) -> nn.ModuleList:
        return nn.ModuleList([self.model, *self.networks()])

    @torch.no_grad()
    def _probe(self, x: Tensor) -> None:
        """Run the model on a pair of images of a new shape, changing nothing, so that an invalid shape is rejected."""
        before = Snapshot(self.model)
        try:
            logits = self.model(x[:1].expand(2, *x.shape[1:])).logits
            if are_probabilities(logits):
                raise TTCError(PROBABILITIES)
        except TTCError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise TTCError(f"expected {_expected_input(self.model)}, got shape {tuple(x.shape)}: {reason}") from error
        finally:
            before.restore(self.model)


def require_finite(logits: Tensor) -> Tensor:
    """Return ``logits``, or reject the batch if the model's outputs are not finite: learning from those would ruin it.

    Raises:
        TTCError: If a value is NaN or infinite.
    """
    if not bool(logits.isfinite().all()):
        raise TTCError("the model's outputs for this batch are not finite; check the range of the images")
    return logits


def _mixes_types(weight: Tensor) -> bool:
    kind = weight.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != weight.dtype


def _expected_input(model: nn.Module) -> str:
    """Describe what the first convolution expects, as far as it is known."""
    ranks = {nn.Conv1d: "(N, {0}, L)", nn.Conv2d: "(N, {0}, H, W)", nn.Conv3d: "(N, {0}, D, H, W)"}
    for module in model.modules():
        for kind, shape in ranks.items():
            if isinstance(module, kind):
                return f"images of shape {shape.format(module.in_channels)}"
    return "images that the model accepts"
