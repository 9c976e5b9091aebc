"""How a model is called and what its output means, so that models of other libraries are adapted as they are."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ttc.errors import TTCError

InputNormalization = tuple[Sequence[float] | float, Sequence[float] | float]
"""The mean and the standard deviation per channel, for images in [0, 1]."""

SMALLEST_PROBABILITY = 1e-12


class PixelNormalization(nn.Module):
    """``(x - mean) / std`` per channel, in front of a model that expects standardized images.

    Args:
        normalize: ``(mean, std)`` in pixels of [0, 1].

    Raises:
        TTCError: If it is something else, or in pixels of 0..255.

    Example:
        >>> PixelNormalization(([0.5], [0.25]))(torch.ones(1, 1, 1, 1)).item()
        2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, normalize: InputNormalization) -> None:
        super().__init__()
        mean, std = _mean_and_std(normalize)
        self.register_buffer("mean", mean.view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", std.view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        channels = self.mean.shape[1]
        if x.ndim != 4 or channels not in {1, x.shape[1]}:
            raise TTCError(
                f"normalize has {channels} channels and takes images (N, {channels}, H, W), got shape {tuple(x.shape)}"
            )
        return (x - self.mean) / self.std

    def extra_repr(self) -> str:
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


@dataclass(frozen=True)
class ModelInterface:
    """How to call a model and how to read logits from what it returns.

    Args:
        forward: Calls the model, as ``forward(model, images)``; ``model(images)`` unless given.
        output: Maps what the model returns to logits (N, K), or ``"probabilities"`` for a model that ends in softmax.
            Unless given: a tensor, the first of a tuple or list, or ``logits`` of a dict or an object.
    """

    forward: Callable[[nn.Module, Tensor], Any] | None = None
    output: Callable[[Any], Tensor] | str | None = None

    def __post_init__(self) -> None:
        for name in ("forward", "output"):
            value = getattr(self, name)
            if value is None or (callable(value) and not isinstance(value, nn.Module)):
                continue
            if name != "output" or value != "probabilities":
                choices = "a function" if name == "forward" else "a function or 'probabilities'"
                raise TTCError(f"{name} must be {choices}, got {_shown(value)}")

    def logits(self, output: Any) -> Any:
        """Return the logits in what the model returned; it may be no tensor if ``output`` is a function."""
        if self.output is None:
            return find_logits(output)
        if callable(self.output):
            return self.output(output)
        return find_logits(output).clamp_min(SMALLEST_PROBABILITY).log()

    def __deepcopy__(self, memo: object) -> "ModelInterface":
        return self  # functions do not change

    def __reduce__(self) -> tuple[type, tuple[Any, Any]]:
        for name in ("forward", "output"):
            try:
                pickle.dumps(getattr(self, name))
            except Exception as error:
                raise TTCError(
                    f"{name}={_shown(getattr(self, name))} cannot be pickled, so neither can the adapter; "
                    "define it with def at the top of a module"
                ) from error
        return type(self), (self.forward, self.output)


def find_logits(output: Any) -> Tensor:
    """Return the logits in what a model returned.

    Args:
        output: A tensor, a dict with ``"logits"``, an object with ``.logits``, or a tuple or list with them first.

    Raises:
        TTCError: If there are none.

    Example:
        >>> find_logits({"loss": 0.5, "logits": torch.zeros(2, 3)}).shape
        torch.Size([2, 3])
    """
    found = output
    if not isinstance(found, Tensor):
        if isinstance(output, Mapping):
            found = output.get("logits")
        elif hasattr(output, "logits"):
            found = output.logits
        elif isinstance(output, tuple | list) and output:
            found = output[0]
    if not isinstance(found, Tensor):
        raise TTCError(
            f"expected the model to return logits (N, K), got {_described(output)}; "
            "say where they are with output=lambda output: ..."
        )
    return found


def are_probabilities(logits: Tensor) -> bool:
    """Tell whether outputs (N, K) are probabilities: not negative, and every row sums to one.

    Example:
        >>> are_probabilities(torch.tensor([[0.9, 0.1]])), are_probabilities(torch.tensor([[2.0, -1.0]]))
        (True, False)
    """
    if logits.ndim != 2 or logits.shape[1] < 2 or bool((logits < 0).any()):
        return False
    return bool(((logits.float().sum(1) - 1).abs() < 1e-3).all())


PROBABILITIES = (
    "the model returns probabilities, and adaptation needs logits: remove the softmax, or adapt with "
    "output='probabilities'"
)


def _mean_and_std(normalize: object) -> tuple[Tensor, Tensor]:
    expected = "normalize must be (mean, std), numbers or one number per channel, for images in [0, 1]"
    try:
        mean, std = (torch.as_tensor(part, dtype=torch.float32).flatten() for part in normalize)  # type: ignore[attr-defined]
    except (TypeError, ValueError, RuntimeError) as error:
        raise TTCError(
            f"{expected}, such as ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)); got {normalize!r}"
        ) from error
    if not len(mean) or len(std) not in {1, len(mean)}:
        raise TTCError(f"{expected}, got {len(mean)} means and {len(std)} standard deviations")
    if not bool(((mean >= -1) & (mean <= 1)).all()) or not bool(((std > 0) & (std <= 2)).all()):
        raise TTCError(
            f"{expected}, got mean {_numbers(mean)} and std {_numbers(std)}; values for 0..255 are divided by 255"
        )
    return mean, std.expand_as(mean)


def _numbers(values: Tensor) -> str:
    return ", ".join(f"{value:g}" for value in values.tolist())


def _shown(value: object) -> str:
    return getattr(value, "__qualname__", None) or (repr(value) if isinstance(value, str) else type(value).__name__)


def _described(output: object) -> str:
    if isinstance(output, Mapping):
        return f"a dict with keys {list(output)}"
    if isinstance(output, tuple | list):
        inside = f", the first of type {type(output[0]).__name__}" if output else ""
        return f"a {type(output).__name__} of {len(output)}{inside}"
    return type(output).__name__
