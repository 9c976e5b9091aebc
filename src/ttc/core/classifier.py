"""A classifier as two parts, f = h∘g, so that methods can read features as well as logits."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ttc.core.interface import InputNormalization, ModelInterface, PixelNormalization
from ttc.core.processes import ALONE, Processes
from ttc.core.statistics import repeat_batch
from ttc.errors import TTCError


class Prediction(NamedTuple):
    """The output of a classifier for a batch: logits f(x) (N, K) and features g(x) (N, D), the input of the head."""

    logits: Tensor
    features: Tensor


class NetworkRunner(Protocol):
    """Computes the output of a network in another way than by calling it, with the same values."""

    def __call__(self, x: Tensor, batches: int = 1) -> Any:
        """Return the output for ``x``, which contains that many batches of equal size, each treated by itself."""

    def joins(self, batches: Sequence[Tensor]) -> bool:
        """Tell whether these batches can and should be computed in one call."""


class Classifier(nn.Module):
    """A private, frozen copy of a network that returns a :class:`Prediction`.

    The copy is always in evaluation mode, so dropout and stochastic depth stay off; which statistics its normalization
    layers use is decided by :mod:`ttc.nn.preparation`, never by ``train()`` or ``eval()``.

    Args:
        model: Any classifier that maps a batch of images to logits (N, K); it is copied, never changed.
        head: The name of the final layer; found by itself where one is obvious.
        normalize: ``(mean, std)`` of the standardized images that the model expects; it is given images in [0, 1].
        forward: Calls the model, as ``forward(model, images)``, where ``model(images)`` does not work.
        output: Maps what the model returns to logits (N, K); see :class:`ttc.core.ModelInterface`.

    Raises:
        TTCError: If the model cannot be copied, no head is obvious, or an argument is invalid.

    Example:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> classifier = Classifier(network)
        >>> classifier.head_name, classifier.num_classes
        ('3', 3)
        >>> [tuple(part.shape) for part in classifier(torch.rand(5, 3, 2, 2))]
        [(5, 3), (5, 8)]
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | None = None,
        *,
        normalize: InputNormalization | None = None,
        forward: Callable[[nn.Module, Tensor], Any] | None = None,
        output: Callable[[Any], Tensor] | str | None = None,
    ) -> None:
        super().__init__()
        require_module(model)
        self.interface = ModelInterface(forward, output)
        self.network = _private_copy(model)
        self.normalization = None if normalize is None else PixelNormalization(normalize).to(_tensor_like(self.network))
        self.input_filter: nn.Module | None = None  # applied to the images first, for methods that adapt those too
        self.head_name = find_head(self.network) if head is None else _named_head(self.network, head)
        self.runner: NetworkRunner | None = None  # in place of calling the network
        self.processes: Processes = ALONE  # each of which predicts a shard of the batch, and returns all of it
        self._tapped: list[Tensor] = []
        self.head.register_forward_pre_hook(self._tap)

    @property
    def head(self) -> nn.Module:
        """The final layer h, whose input are the features."""
        return self.network.get_submodule(self.head_name)

    @property
    def head_weight(self) -> Tensor:
        """The rows of the head, one per class: (K, D)."""
        weight = self.head.weight
        assert isinstance(weight, Tensor)
        return weight.flatten(1)

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return len(self.head_weight)

    def forward(self, x: Tensor, batches: int = 1) -> Prediction:
        return self._join(self._predict(x, batches))

    def _predict(self, x: Tensor, batches: int = 1) -> Prediction:
        self._tapped.clear()
        x = x if self.input_filter is None else self.input_filter(x)
        logits = self.interface.logits(self._run(x if self.normalization is None else self.normalization(x), batches))
        tapped, self._tapped = self._tapped, []
        if not isinstance(logits, Tensor):
            raise TTCError(f"expected output= to return a tensor of logits (N, K), got {type(logits).__name__}")
        if len(tapped) != 1:
            raise TTCError(
                f"the layer '{self.head_name}' ran {len(tapped)} times for one batch, a head runs once; "
                "name the final layer with head='...'"
            )
        features = tapped[0].flatten(1)
        if logits.shape != (len(x), self.num_classes) or len(features) != len(x):
            raise TTCError(
                f"expected logits of shape {(len(x), self.num_classes)} and one feature vector per image, got logits "
                f"{tuple(logits.shape)} and features {tuple(tapped[0].shape)} at '{self.head_name}'; "
                "name the final layer with head='...'"
            )
        return Prediction(logits.to(x.dtype), features.to(x.dtype))

    def each(self, batches: Sequence[Tensor]) -> tuple[Prediction, ...]:
        """Predict several views of a batch, of one shape, each with batch statistics of its own."""
        runner = None if self.interface.forward is not None or self.processes.active else self.runner
        if runner is None or not runner.joins(batches):
            first = self(batches[0])
            if len(batches) == 1:
                return (first,)
            with repeat_batch(self):
                return (first, *(self(batch) for batch in batches[1:]))
        logits, features = self(torch.cat(tuple(batches)), batches=len(batches))
        size = len(batches[0])
        return tuple(map(Prediction, logits.split(size), features.split(size)))

    def together(self, batches: Sequence[Tensor]) -> tuple[Prediction, ...]:
        """Predict several batches of one shape as one batch, with its statistics."""
        logits, features = self._predict(torch.cat(tuple(batches)))
        size = len(batches[0])
        parts = map(Prediction, logits.split(size), features.split(size))
        return tuple(self._join(part) for part in parts)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, batches: int = 1) -> Prediction: ...

    def train(self, mode: bool = True) -> "Classifier":
        """Stay in evaluation mode, whatever ``mode`` is."""
        return super().train(False)

    def _join(self, shard: Prediction) -> Prediction:
        """Return the prediction of all shards of the batch, where other processes have some."""
        return Prediction(*map(self.processes.join, shard)) if self.processes.active else shard

    def _run(self, x: Tensor, batches: int) -> Any:
        if self.interface.forward is not None:  # may do anything, so it is always called with the network itself
            return self.interface.forward(self.network, x)
        return self.network(x) if self.runner is None else self.runner(x, batches)

    def _tap(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._tapped.append(inputs[0])


def find_head(network: nn.Module) -> str:
    """Find the name of the one obvious final linear layer of a network.

    It is the only linear layer, or else the last layer with parameters in order of registration when that is linear and
    has no twin: another linear layer beside it that reads equally many features and does not lead into it.
    """
    modules: dict[str, nn.Module] = dict(network.named_modules())
    linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
    if not linear:
        raise TTCError("the model has no linear layer that could be its head; name the final layer with head='...'")
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
        raise TTCError(f"the layer '{name}' ({type(modules[name]).__name__}) has no weight with one row per class")
    return name


def _options(names: list[str]) -> str:
    shown = names[-5:]
    return ", ".join(f"head='{name}'" for name in shown) or "none"


def require_module(model: object) -> None:
    """Check that ``model`` is a network that can be adapted.

    Raises:
        TTCError: If it is not a module, or one of TorchScript.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise TTCError(
            "a TorchScript model cannot be adapted, because its layers cannot be replaced; "
            "pass the Python model that it was scripted or traced from"
        )
    if not isinstance(model, nn.Module):
        raise TTCError(f"expected a torch.nn.Module to adapt, got {type(model).__name__}")


def _tensor_like(network: nn.Module) -> torch.Tensor:
    """Return a tensor of the device and dtype of a network, as ``Module.to`` takes it."""
    return next(network.parameters(), torch.empty(0))


def _private_copy(model: nn.Module) -> nn.Module:
    original = getattr(model, "_orig_mod", model)  # what torch.compile wraps: adapted uncompiled
    try:
        with torch.inference_mode(False), torch.no_grad():
            network: nn.Module = copy.deepcopy(original)
    except Exception as error:
        raise TTCError(f"the model cannot be copied, and adaptation never touches the original: {error}") from error
    return network.eval().requires_grad_(False)
