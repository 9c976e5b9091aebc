"""A plain module that predicts as an adapter does now: frozen, for torch.export, ONNX and every other deployment."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.core.classifier import Classifier
from ttc.core.interface import ModelInterface, PixelNormalization
from ttc.core.part import Part
from ttc.core.statistics import StatisticsLayer, freeze_statistics, statistics_layers
from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.core.adapter import Adapter


def _same(x: Tensor) -> Tensor:
    return x


def _first(logits: Sequence[Tensor]) -> Tensor:
    return logits[0]


class ExportParts(NamedTuple):
    """What a method predicts with, where it is not the logits of ``adapter.model`` alone.

    Args:
        model: The classifier that predicts, where it is another one, such as a teacher.
        head: The layer that replaces the head, where the method has one of its own.
        views: The views of a batch, the plain one first.
        fuse: Fuses the logits of the views into the prediction.
    """

    model: Classifier | None = None
    head: nn.Module | None = None
    views: Sequence[Callable[[Tensor], Tensor]] = (_same,)
    fuse: Callable[[Sequence[Tensor]], Tensor] = _first


class FixedStatisticsNorm(nn.Module):
    """Normalizes with a mean and a variance that never change.

    Args:
        layer: The layer to stand for, with its scale and shift.
        mean: The mean (C,).
        variance: The variance (C,).
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, layer: StatisticsLayer, mean: Tensor, variance: Tensor) -> None:
        super().__init__()
        self.eps: float = layer.eps  # type: ignore[assignment]
        self.weight: nn.Parameter | None = layer.weight  # type: ignore[assignment]
        self.bias: nn.Parameter | None = layer.bias  # type: ignore[assignment]
        dtype = mean.dtype if self.weight is None else self.weight.dtype
        self.register_buffer("mean", mean.detach().to(dtype, copy=True))
        self.register_buffer("variance", variance.detach().to(dtype, copy=True))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, False, 0.0, self.eps)

    def extra_repr(self) -> str:
        return f"{len(self.mean)}, eps={self.eps}"


class ExportedClassifier(nn.Module):
    """An adapted network as a plain module from images (N, C, H, W) to logits (N, K); made by ``adapter.export``.

    It shares nothing with the adapter, has no hooks and no state that changes, and needs no gradients.

    Args:
        network: The network, prepared.
        normalization: What standardizes images in front of it.
        interface: How it is called and what its output means.
        views: The views of a batch to predict.
        fuse: Fuses their logits.
    """

    def __init__(
        self,
        network: nn.Module,
        normalization: PixelNormalization | None,
        interface: ModelInterface,
        views: Sequence[Callable[[Tensor], Tensor]],
        fuse: Callable[[Sequence[Tensor]], Tensor],
    ) -> None:
        super().__init__()
        self.normalization, self.network = normalization, network
        self.interface, self.views, self.fuse = interface, tuple(views), fuse
        self.requires_grad_(False).eval()

    def forward(self, images: Tensor) -> Tensor:
        logits = [self._logits(view(images)) for view in self.views]
        return self.fuse(logits) if len(logits) > 1 else logits[0]

    def _logits(self, x: Tensor) -> Tensor:
        x = x if self.normalization is None else self.normalization(x)
        call = self.interface.forward
        logits: Tensor = self.interface.logits(self.network(x) if call is None else call(self.network, x))
        return logits


def export_module(adapter: "Adapter", statistics: Tensor | None, *, second_view: bool) -> ExportedClassifier:
    """Copy what an adapter predicts with into a plain module; see :meth:`ttc.Adapter.export`."""
    base = adapter.export_base
    parts = base.export_parts()
    views = _views(parts, second_view=second_view)
    model: Classifier = copy.deepcopy(parts.model or base.model)
    images = _images(adapter, statistics)
    model.runner = None
    if statistics_layers(model):
        _fix_statistics_(model, None if images is None else torch.cat([view(images) for view in views]))
    head = model.head
    for key, hook in list(head._forward_pre_hooks.items()):
        if getattr(hook, "__func__", None) is Classifier._tap:
            del head._forward_pre_hooks[key]
    if parts.head is not None:
        model.network.set_submodule(model.head_name, _replacement(model, parts.head))
    network = model.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    module = ExportedClassifier(network, model.normalization, model.interface, views, parts.fuse)
    if images is None or len(parts.views) == 1:  # views with statistics of their own are not predicted exactly
        _compare(base, module, parts, images)
    return module


@torch.no_grad()
def _compare(base: "Adapter", module: ExportedClassifier, parts: ExportParts, images: Tensor | None) -> None:
    """Reject an adapter whose predictions are not those of the module."""
    if images is None:
        shape = next(iter(base.accepted_shapes), None)
        if shape is None:
            raise TTCError("the module is compared with the adapter's predictions; predict or adapt to a batch first")
        weight = next(module.parameters())
        drawn = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
        images = drawn.to(weight.device, weight.dtype)
    views, module.views = module.views, tuple(parts.views)
    found, expected = module(images), base.predict(images)
    module.views = views
    if not torch.allclose(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().amax())):
        raise TTCError(
            "the method predicts with more than its network, such as other images of the batch or a second network, "
            "and cannot be exported; choose another method, or serve the adapter itself"
        )


def _views(parts: ExportParts, *, second_view: bool) -> Sequence[Callable[[Tensor], Tensor]]:
    if not second_view:
        return parts.views[:1]
    if len(parts.views) < 2:
        raise TTCError("the method predicts with one view of an image; leave out second_view")
    if any(isinstance(view, Part) for view in parts.views):
        raise TTCError("a random view is another one for each batch and cannot be exported; leave out second_view")
    return parts.views


def uses_batch_statistics(adapter: "Adapter") -> bool:
    """Return whether an adapter predicts with statistics of the batch, which an export has to be given."""
    base = adapter.export_base
    layers = statistics_layers(base.export_parts().model or base.model)
    return any(layer.fixed_statistics(None) is None for layer in layers)


def _images(adapter: "Adapter", statistics: Tensor | None) -> Tensor | None:
    """Return the images whose statistics the module will have, None if those are stored in the layers."""
    if not uses_batch_statistics(adapter):
        if statistics is not None:
            raise TTCError("the method stores its statistics, with which the module predicts; leave out statistics=")
        return None
    if statistics is None:
        statistics = adapter.recent_images
    elif len(statistics := adapter.validate(statistics)) < 2:
        raise TTCError("statistics= takes a batch of images, the more the better, got one image")
    if statistics is None:
        raise TTCError(
            "the method normalizes with the statistics of each batch, a module needs fixed ones: pass a large batch of "
            "recent images, export(statistics=images), or adapt with small_batches=True, which stores statistics"
        )
    return statistics


@torch.no_grad()
def _fix_statistics_(model: Classifier, images: Tensor | None) -> None:
    """Replace every layer with named statistics by one that has those of ``images``, or the stored ones."""
    found: dict[StatisticsLayer, tuple[Tensor, Tensor] | None] = {}
    layers = statistics_layers(model)
    if images is None:
        found = {layer: layer.fixed_statistics(None) for layer in layers}
    else:
        hooks = [layer.register_forward_pre_hook(_recorder(found)) for layer in layers]
        with torch.inference_mode(False), freeze_statistics(model):
            model(images)
        for hook in hooks:
            hook.remove()
    for name, layer in list(model.network.named_modules()):
        if isinstance(layer, StatisticsLayer):
            pair = found.get(layer, layer.fixed_statistics(None))  # a layer that did not run keeps what it stored
            if pair is not None:
                model.network.set_submodule(name, FixedStatisticsNorm(layer, *pair).eval())


def _recorder(
    found: dict[StatisticsLayer, tuple[Tensor, Tensor] | None],
) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def record(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, StatisticsLayer)
        found[layer] = layer.fixed_statistics(inputs[0])

    return record


def _replacement(model: Classifier, head: nn.Module) -> nn.Module:
    if not isinstance(model.head, nn.Linear):
        raise TTCError(
            f"the method replaces the head, which is exported for nn.Linear, got {type(model.head).__name__}"
        )
    if model.interface.output is not None:
        raise TTCError(
            "the method replaces the head, and output= would be applied to its scores; export without output="
        )
    return head
