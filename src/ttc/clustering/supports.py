"""Supports: features of confident samples of each class, from which class prototypes are made."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.core.classifier import Classifier
from ttc.core.entropy import softmax_entropy
from ttc.errors import TTCError

MAX_SPREAD = 100.0  # between the logits of an image; a probability ratio of exp(100) is no prediction


def plausible_rows(logits: Tensor) -> Tensor:
    """Tell for each sample (N,) whether its logits (N, K) can be a prediction, and are not absurd."""
    return logits.amax(1) - logits.amin(1) <= MAX_SPREAD


class Supports(NamedTuple):
    """A support set: features (S, D), labels (S,), entropies (S,), and where a method needs them logits (S, K)."""

    features: Tensor
    labels: Tensor
    entropy: Tensor
    logits: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor, logits: Tensor, *, with_logits: bool = False) -> "Supports":
        """Make supports of a batch: the label of a sample is its predicted class.

        Args:
            features: (N, D).
            logits: (N, K).
            with_logits: Whether to store the logits too.
        """
        return cls(features, logits.argmax(1), softmax_entropy(logits), logits if with_logits else None)

    @classmethod
    def plausible(cls, features: Tensor, logits: Tensor, *, with_logits: bool = False) -> "Supports":
        """Make supports of the samples of a batch whose logits are not absurd (:data:`MAX_SPREAD`).

        The entropy of an absurd sample is exactly zero: as a support it would stay for the rest of the stream.

        Args:
            features: (N, D).
            logits: (N, K).
            with_logits: Whether to store the logits too.
        """
        stored = plausible_rows(logits)
        return cls.of(features[stored], logits[stored], with_logits=with_logits)

    def joined(self, new: "Supports", per_class: int | None, num_classes: int) -> "Supports":
        """Append supports, then keep those of lowest entropy in each class; of equal ones, those that came first.

        Args:
            new: What to append.
            per_class: How many to keep per class; None keeps all.
            num_classes: K.
        """
        logits = None if self.logits is None or new.logits is None else torch.cat([self.logits, new.logits])
        features, labels, entropy = (torch.cat(pair) for pair in zip(self[:3], new[:3], strict=True))
        if per_class is None:
            return Supports(features, labels, entropy, logits)
        order = entropy.argsort(stable=True)
        order = order[labels[order].argsort(stable=True)]  # by class, then by entropy
        sizes = labels.bincount(minlength=num_classes)
        first = (sizes.cumsum(0) - sizes)[labels[order]]  # where the class of each one starts
        selected = order[torch.arange(len(order), device=order.device) - first < per_class].sort().values
        rows = None if logits is None else logits[selected]
        return Supports(features[selected], labels[selected], entropy[selected], rows)

    def prototypes(self, num_classes: int) -> Tensor:
        """Return the sum of the unit features of each class (K, D): zero for a class without supports."""
        sums = self.features.new_zeros(num_classes, self.features.shape[1])
        return sums.index_add_(0, self.labels, F.normalize(self.features))


def initial_supports(model: Classifier, *, with_logits: bool = False) -> Supports:
    """Return the rows of the head as the first supports, each labelled by the head itself."""
    with torch.inference_mode(False), torch.no_grad():  # in this order: the first enables gradients
        rows = model.head_weight.detach().clone()
        logits = F.linear(rows, model.head_weight, getattr(model.head, "bias", None))
        return Supports.of(rows, logits, with_logits=with_logits)


def supports_per_class(size: int | str | None, num_classes: int) -> int | None:
    """Return how many supports to keep per class: ``"auto"`` is 100 up to ten classes, else 20; None keeps all.

    Raises:
        TTCError: If the number is not positive.

    Example:
        >>> supports_per_class("auto", 10), supports_per_class("auto", 100), supports_per_class(None, 10)
        (100, 20, None)
    """
    if size is None:
        return None
    number = (100 if num_classes <= 10 else 20) if size == "auto" else int(size)
    if number < 1:
        raise TTCError(f"filter_size is a positive number of samples per class, or None for all, got {number}")
    return number


def prototype_cosines(features: Tensor, prototypes: Tensor) -> Tensor:
    """The cosine of each feature with each prototype: (..., N, D), (..., K, D) -> (..., N, K).

    A class without supports has the prototype 0 and gets -1, the lowest cosine, instead of 0.

    Example:
        >>> prototype_cosines(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0], [0.0, 0.0]])).tolist()
        [[0.800000011920929, -1.0]]
    """
    cosines = F.normalize(features, dim=-1) @ F.normalize(prototypes, dim=-1).mT
    missing = ~prototypes.any(-1).unsqueeze(-2)
    return cosines.masked_fill(missing, -1.0)
