"""The contract of every method: an object that answers a stream of batches, adapting as it goes."""

import threading
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from ttc.core import saving
from ttc.core.classifier import Classifier
from ttc.core.normalization import BatchNorm, following, still
from ttc.core.snapshot import Snapshot
from ttc.core.state import State, restored, state_of
from ttc.errors import TTCError


class Adapter(ABC):
    """Answers each batch of images with logits, and may learn from it.

    ``logits = adapter(images)``: images (N, C, H, W) in, detached finite logits (N, K) out, the same inside
    ``torch.no_grad()`` and ``torch.inference_mode()``. A batch that is refused (:class:`ttc.TTCError`) changes nothing.
    Calls from several threads take turns, so each sees whole steps.

    An author writes :meth:`adapt`, and where there is more state than the model's, names the attributes in ``holds``
    (which brings copies, saving and moving to a device) and extends :meth:`reset`.
    """

    holds: ClassVar[tuple[str, ...]] = ("model",)
    recipe: saving.Recipe | None = None  # what ttc.adapt was asked for

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.start = Snapshot(model)
        self.lock = threading.RLock()
        self._accepted: set[torch.Size] = set()  # image shapes the model is known to take: a cache, not a state

    @final
    def __call__(self, x: Tensor) -> Tensor:
        """The logits (N, K) for a batch, adapting to it."""
        with self.lock, torch.inference_mode(False):
            x = self.checked(x)
            before = Snapshot(self.model) if following(self.model) else None
            try:
                with torch.enable_grad():
                    answer = self.adapt(x)
            except BaseException:
                if before is not None:
                    before.restore(self.model)
                raise
        return answer.detach()

    @final
    def predict(self, x: Tensor) -> Tensor:
        """The logits (N, K) for a batch, learning nothing from it."""
        with self.lock, torch.inference_mode(False), torch.no_grad(), still(self.model):
            return self.answer_only(self.checked(x)).detach()

    @abstractmethod
    def adapt(self, x: Tensor) -> Tensor:
        """The answer for a checked batch, with gradients enabled: the one method an author writes."""

    def answer_only(self, x: Tensor) -> Tensor:
        """The answer for a checked batch that leaves no trace; written by methods that know a cheaper way than this."""
        before = self.state()
        try:
            with torch.enable_grad():
                return self.adapt(x)
        finally:
            self.load_state(before)

    def context(self, x: Tensor) -> Tensor:
        """The images among which ``x`` is answered, with ``x`` last: ``x`` alone, unless recent ones are kept."""
        return x

    def reset(self) -> None:
        """Put everything back to the start; extended by methods that hold more than the model."""
        self.start.restore(self.model)

    @final
    def state(self) -> State:
        """A copy of everything that changes: parameters, statistics, moments, gathered gradients, counters."""
        with self.lock, torch.inference_mode(False):
            return state_of(self)

    @final
    def load_state(self, state: State) -> None:
        """Put back what :meth:`state` copied."""
        with self.lock, torch.inference_mode(False):
            restored(self, state, self.device)

    @final
    def save(self, path: str | Path) -> None:
        """Write what changed to a small file, from which :func:`ttc.load_adaptation` goes on as if never stopped."""
        with self.lock:
            saving.save(self, Path(path))

    @final
    def load(self, path: str | Path) -> None:
        """Go on from a file that an adapter of the same model, method and options saved; refused for any other."""
        with self.lock:
            saving.restore(self, saving.read(Path(path)))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @final
    def to(self, device: torch.device | str) -> "Adapter":
        """Move the model and everything held to ``device``; returns itself."""
        with self.lock, torch.inference_mode(False):
            state = self.state()
            self.model.to(device)
            self.load_state(state)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "lock": None, "_accepted": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()

    def checked(self, x: Tensor) -> Tensor:
        """``x`` as a method may take it, or a refusal that says what is wrong with it."""
        if not isinstance(x, Tensor):
            raise TTCError(f"expected a tensor of images (N, C, H, W), got {type(x).__name__}")
        if not x.is_floating_point():
            raise TTCError(f"expected float images, got {x.dtype}; for pixels in 0..255 give images.float() / 255")
        if x.layout is not torch.strided:
            raise TTCError(f"expected an ordinary tensor of images, got layout {x.layout}; give images.to_dense()")
        if x.ndim < 2 or x.numel() == 0:
            raise TTCError(f"expected a batch of at least one image (N, C, H, W), got shape {tuple(x.shape)}")
        weight = next(self.model.parameters())
        if x.device != weight.device:
            raise TTCError(
                f"the images are on {x.device} and the model on {weight.device}; move one of them with .to()"
            )
        if x.dtype != weight.dtype:
            raise TTCError(f"the images are {x.dtype} and the model {weight.dtype}; convert one of them with .to()")
        if not bool(x.isfinite().all()):
            raise TTCError("the images hold NaN or infinite values; leave those images out")
        x = x.clone() if x.is_inference() else x.detach()
        if x.shape[1:] not in self._accepted:
            self._try(x)
            self._accepted.add(x.shape[1:])
        if len(x) == 1 and any(isinstance(module, BatchNorm) for module in self.model.modules()):
            warnings.warn(
                "a batch of one image is normalized by its own statistics alone, which ruins most networks; "
                "use larger batches, or make the method fit with small_batches=True",
                stacklevel=3,
            )
        return x

    @torch.no_grad()
    def _try(self, x: Tensor) -> None:
        """Show the model a pair of images of a new shape, changing nothing, so that what it cannot take is refused."""
        before = Snapshot(self.model)
        try:
            if self.model.quick:
                self.model.quicken(x.shape if self.model.compiles else torch.Size([2, *x.shape[1:]]))
            else:
                self.model(x[:1].expand(2, *x.shape[1:]))
        except TTCError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise TTCError(f"expected {_wanted(self.model)}, got shape {tuple(x.shape)}: {reason}") from error
        finally:
            before.restore(self.model)


def finite(logits: Tensor) -> Tensor:
    """``logits``, refused when the model made NaN or infinity of the batch: learning from those would ruin it."""
    if not bool(logits.isfinite().all()):
        raise TTCError("the model's outputs for this batch are not finite; check the range of the images")
    return logits


def _wanted(model: nn.Module) -> str:
    """What the first convolution expects, in words, as far as it can be told."""
    ranks = {nn.Conv1d: "(N, {0}, L)", nn.Conv2d: "(N, {0}, H, W)", nn.Conv3d: "(N, {0}, D, H, W)"}
    for module in model.modules():
        for kind, shape in ranks.items():
            if isinstance(module, kind):
                return f"images of shape {shape.format(module.in_channels)}"
    return "images the model can take"
