"""A classifier as two parts, f = h∘g, so that methods can read features as well as logits."""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from ttc.core.normalization import BatchNorm, NamedNorm, still
from ttc.core.quicker import Run, compiled, in_place
from ttc.errors import TTCError

SMALL = 1 << 13  # pixels of a batch, up to which several batches go through the network in one pass


class Prediction(NamedTuple):
    """What a classifier says of a batch: logits f(x) (N, K) and features g(x) (N, D), the input of the head."""

    logits: Tensor
    features: Tensor


class Form(NamedTuple):
    """How a network is run: as what, in which layout, and the layers to tell of several batches in one pass."""

    run: Run | None = None  # the network itself
    layout: torch.memory_format = torch.contiguous_format
    joined: list[Any] | None = None  # no such passes


PLAIN = Form()


class Classifier(nn.Module):
    """A private, frozen copy of a network that answers with a :class:`Prediction`.

    The copy is always in evaluation mode, so dropout and stochastic depth stay off; which statistics its normalization
    layers use is decided by :mod:`ttc.core.preparation`, never by ``train()`` or ``eval()``.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> classifier = Classifier(network)
    >>> classifier.head_name, classifier.num_classes
    ('3', 3)
    >>> [tuple(part.shape) for part in classifier(torch.rand(5, 3, 2, 2))]
    [(5, 3), (5, 8)]
    """

    def __init__(self, model: nn.Module, head: str | None = None) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TTCError(f"expected a torch.nn.Module to adapt, got {type(model).__name__}")
        self.network = _private_copy(model)
        self.head_name = find_head(self.network) if head is None else _named_head(self.network, head)
        self.quick, self.compiles, self.autocast = True, False, False
        self._form: Form | None = None  # to be found
        self._tapped: list[Tensor] = []
        self.head.register_forward_pre_hook(self._tap)

    @property
    def head(self) -> nn.Module:
        """The final layer h, whose input are the features."""
        return self.network.get_submodule(self.head_name)

    @property
    def head_weight(self) -> Tensor:
        """The rows of the head, one a class: (K, D)."""
        weight = self.head.weight
        assert isinstance(weight, Tensor)
        return weight.flatten(1)

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return len(self.head_weight)

    def forward(self, x: Tensor) -> Prediction:
        self._tapped.clear()
        with torch.autocast(x.device.type, torch.bfloat16) if self.autocast else nullcontext():  # or the caller's own
            run, layout, _ = self._form or PLAIN
            logits = (self.network if run is None else run)(x.contiguous(memory_format=layout))
        tapped, self._tapped = self._tapped, []
        if not isinstance(logits, Tensor):
            raise TTCError(f"expected the model to return a tensor of logits (N, K), got {_described(logits)}; wrap it")
        if len(tapped) != 1:
            raise TTCError(
                f"the layer '{self.head_name}' ran {len(tapped)} times for one batch, a head runs once; "
                "name the final layer with head='...'"
            )
        features = tapped[0].flatten(1)
        if logits.shape != (len(x), self.num_classes) or len(features) != len(x):
            raise TTCError(
                f"expected logits of shape {(len(x), self.num_classes)} and one feature vector an image, got logits "
                f"{tuple(logits.shape)} and features {tuple(tapped[0].shape)} at '{self.head_name}'; "
                "name the final layer with head='...'"
            )
        return Prediction(logits.to(x.dtype), features.to(x.dtype))

    def each(self, batches: Sequence[Tensor]) -> tuple[Prediction, ...]:
        """A prediction for each of several batches of one shape, every one with batch statistics of its own.

        Small ones go through the network in one pass, which gives the same answers but for rounding.
        """
        return self._each(batches, self.__call__)

    def _each(self, batches: Sequence[Tensor], run: Callable[[Tensor], Prediction]) -> tuple[Prediction, ...]:
        size = batches[0].numel() // batches[0].shape[1]
        layers = (self._form or PLAIN).joined
        if layers is None or len(batches) == 1 or size > SMALL:
            return tuple(run(batch) for batch in batches)
        for layer in layers:
            layer.batches = len(batches)
        try:
            logits, features = run(torch.cat(tuple(batches)))
        finally:
            for layer in layers:
                layer.batches = 1
        count = len(batches[0])
        return tuple(map(Prediction, logits.split(count), features.split(count)))

    def quicken(self, shape: torch.Size) -> None:
        """Run in a quicker form from now on, where one answers batches of that shape as the network itself does.

        On a processor: channels last, activations in place, several small batches in one pass; or compiled. Judged on
        random images, so that the form depends on the network alone. The first shape decides; a later one for which
        the form will not do ends it.
        """
        weight = next(self.parameters())
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(weight)
        layers = [module for module in self.network.modules() if isinstance(module, NamedNorm)]
        with still(self.network), torch.set_grad_enabled(any(p.requires_grad for p in self.parameters())):
            form = self._form
            self._take(PLAIN)
            try:
                expected = self.forward(x).logits  # not a call: what is hooked to those is not concerned
            except Exception:
                self._take(form)
                raise
            if form is not None:
                self._adopt(x, expected, **form._asdict())
                return
            # Group normalization crashes on channels last, in torch 2.13, when its input needs no gradient.
            grouped = any(isinstance(module, nn.GroupNorm) for module in self.network.modules())
            if x.ndim == 4 and x.device.type == "cpu" and not grouped:
                self._adopt(x, expected, layout=torch.channels_last)
            if all(type(layer) is BatchNorm for layer in layers):
                self._adopt(x, expected, joined=layers)
            self._adopt(x, expected, run=compiled(self.network) if self.compiles else in_place(self.network))

    def _adopt(self, x: Tensor, expected: Tensor, **change: Any) -> None:
        """Change the form, unless that fails or answers otherwise."""
        before = self._form or PLAIN
        self._take(before._replace(**change))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of what its compiler uses
                alike = all(_alike(part.logits, expected) for part in self._each([x, x], self.forward))
        except Exception as error:
            if self.compiles and "run" in change:
                reason = str(error).strip().partition("\n")[0]
                raise TTCError(f"the model cannot be compiled here, leave out compile=True: {reason}") from error
            alike = False
        if not alike:
            self._take(before)

    def _take(self, form: Form | None) -> None:
        self._form = form
        for parameter in self.network.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=(form or PLAIN).layout)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Prediction: ...

    def train(self, mode: bool = True) -> "Classifier":
        """Stay in evaluation mode, whatever is asked."""
        return super().train(False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_form": None}  # a copy finds its own

    def _tap(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._tapped.append(inputs[0])


def find_head(network: nn.Module) -> str:
    """The name of the one obvious final linear layer of a network.

    It is the only linear layer, or else the last layer with parameters in order of registration when that is linear and
    has no twin: another linear layer beside it that reads equally many features and does not lead into it.
    """
    modules: dict[str, nn.Module] = dict(network.named_modules())
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
    if not linear:
        raise TTCError("the model has no linear layer to take as its head; name the final layer with head='...'")
    if len(linear) == 1:
        return linear[0]
    last = [name for name, module in modules.items() if next(module.parameters(recurse=False), None) is not None][-1]
    parent, final = network.get_submodule(last.rpartition(".")[0]), modules[last]
    if not isinstance(final, nn.Linear):
        raise TTCError(
            f"the model has {len(linear)} linear layers and none comes last; name the head: {_options(linear)}"
        )
    beside = [child for child in parent.children() if isinstance(child, nn.Linear) and child is not final]
    width = final.in_features
    if not isinstance(parent, nn.Sequential) and any(twin.in_features == width != twin.out_features for twin in beside):
        raise TTCError(f"the model seems to have several heads; name the one for the classes: {_options(linear)}")
    return last


def _named_head(network: nn.Module, name: str) -> str:
    modules: dict[str, nn.Module] = dict(network.named_modules())
    if name not in modules or not name:
        linear = [found for found, module in modules.items() if isinstance(module, nn.Linear)]
        raise TTCError(f"the model has no layer called '{name}'; its linear layers: {_options(linear)}")
    if not isinstance(getattr(modules[name], "weight", None), Tensor):
        raise TTCError(f"the layer '{name}' ({type(modules[name]).__name__}) has no weight with one row a class")
    return name


def _alike(answer: Tensor, expected: Tensor) -> bool:
    return torch.allclose(answer, expected, rtol=1e-3, atol=1e-3 * float(expected.detach().abs().max()))


def _options(names: list[str]) -> str:
    shown = names[-5:]
    return ", ".join(f"head='{name}'" for name in shown) or "none"


def _private_copy(model: nn.Module) -> nn.Module:
    original = getattr(model, "_orig_mod", model)  # what torch.compile wraps: adapted uncompiled
    try:
        with torch.inference_mode(False), torch.no_grad():
            network: nn.Module = copy.deepcopy(original)
    except Exception as error:
        raise TTCError(f"the model cannot be copied, and adaptation never touches the original: {error}") from error
    return network.eval().requires_grad_(False)


def _described(output: object) -> str:
    if isinstance(output, dict):
        return f"a dict with keys {list(output)}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {len(output)}"
    return type(output).__name__
