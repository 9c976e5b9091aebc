"""TAST: an ensemble of random projections learns from the nearest confident samples; the network stays as it is.

Jang, Chung and Chung, "Test-Time Adaptation via Self-Training with Nearest Neighbor Information", ICLR 2023.
"""

import math
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.clustering import OptimizerFactory, Supports, Updater, initial_supports, prototype_cosines, supports_per_class
from ttc.clustering.support_memory import SupportMemory
from ttc.core import Adapter, Classifier, require_finite, seeded_generator
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import frozen_copy

TEMPERATURE = 10.0  # what cosines are multiplied by


class Projections(nn.Module):
    """E random projections of features that share one matrix: v ↦ ((v ⊙ α_e) Wᵀ) ⊙ γ_e + b_e.

    Args:
        heads: E, the number of projections.
        width: D, the length of a feature; projections have a quarter of it.
        seed: The seed of W, α and γ, which are normal with variance 2 over the length of their rows.
    """

    def __init__(self, heads: int, width: int, *, seed: int) -> None:
        super().__init__()
        narrow = max(1, width // 4)
        generator = seeded_generator(seed, 0)

        def drawn(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns, generator=generator) * math.sqrt(2 / columns))

        self.weight = drawn(narrow, width)
        self.scale_in, self.scale_out = drawn(heads, width), drawn(heads, narrow)
        self.shift = nn.Parameter(torch.zeros(heads, narrow))

    def forward(self, features: Tensor) -> Tensor:
        """Project features (N, D) to (E, N, D / 4)."""
        scaled = features * self.scale_in[:, None]  # (E, N, D)
        return (scaled @ self.weight.T) * self.scale_out[:, None] + self.shift[:, None]


class TAST(Adapter):
    """Trains projections so that a sample is labelled as its nearest supports are; predicts with the latter's labels.

    Ours: the supports of an outlier are dropped (:class:`ttc.clustering.support_memory.SupportMemory`).

    Args:
        model: A prepared, frozen copy.
        heads: The projections.
        optimizer: Makes the optimizer of the projections.
        filter_size: The supports of lowest entropy to keep per class; None keeps all.
        neighbours: The nearest supports of a sample that label it.
        steps: Steps per batch.
    """

    state_attributes = ("model", "heads", "updater", "memory")

    def __init__(
        self,
        model: Classifier,
        heads: Projections,
        optimizer: OptimizerFactory,
        *,
        filter_size: int | None,
        neighbours: int,
        steps: int,
    ) -> None:
        super().__init__(model)
        for name, value in {"neighbours": neighbours, "steps": steps}.items():
            if value < 1:
                raise TTCError(f"{name} is a positive number, got {value}")
        self.neighbours, self.steps = neighbours, steps
        self.memory = SupportMemory(_wide(initial_supports(model)), filter_size, model.num_classes)
        self.heads = heads.to(self.memory.supports.features)
        self.updater = Updater(self.heads.parameters(), optimizer)

    def adapt(self, x: Tensor) -> Tensor:
        """Add the batch to the supports, train the projections, and return log probabilities (N, K)."""
        features, supports = self._joined(x)
        for _ in range(self.steps):
            targets, outputs = self._labels(features, supports)
            log_probability = self._log_probabilities(features, supports)
            losses = F.kl_div(log_probability, targets, reduction="none").mean((1, 2))  # (E,), over samples and classes
            self.updater(losses.sum(), len(x))
        self.memory.store(x, supports)
        return outputs.log().to(x.dtype)

    def infer(self, x: Tensor) -> Tensor:
        """Return log probabilities (N, K) with the projections as they are; the batch is no support afterwards."""
        features, supports = self._joined(x)
        return self._labels(features, supports)[1].log().to(x.dtype)

    @property
    def uses_batch(self) -> bool:
        """Whether the prediction of an image depends on the others of its batch: they may be its neighbours."""
        return True

    @torch.no_grad()
    def _joined(self, x: Tensor) -> tuple[Tensor, Supports]:
        """Return the features of a batch, and the supports with it."""
        logits, features = self.model(x)
        new = _wide(Supports.plausible(features, require_finite(logits)))
        return features.to(new.features.dtype), self.memory.joined(x, new)

    @torch.no_grad()
    def _labels(self, features: Tensor, supports: Supports) -> tuple[Tensor, Tensor]:
        """Return the targets of each projection (E, N, K), and the mean probabilities of the neighbours (N, K)."""
        cosines = F.normalize(features) @ F.normalize(supports.features).T
        nearest = cosines.topk(min(self.neighbours, len(supports.features)), dim=1).indices  # (N, k)
        log_probability = self._log_probabilities(supports.features, supports)  # (E, S, K)
        one_hot = F.one_hot(log_probability.argmax(2), self.model.num_classes).to(features)
        targets = one_hot[:, nearest].mean(2)
        return targets, log_probability.exp()[:, nearest].mean(2).mean(0)

    def _log_probabilities(self, features: Tensor, supports: Supports) -> Tensor:
        """Return log probabilities (E, N, K) of features, by their cosine with the projected class means."""
        one_hot = F.one_hot(supports.labels, self.model.num_classes).to(features)
        weights = one_hot / one_hot.sum(0).clamp(min=1)
        prototypes = weights.T @ self.heads(supports.features)  # (E, K, D / 4)
        prototypes = prototypes * one_hot.any(0)[:, None]
        return (TEMPERATURE * prototype_cosines(self.heads(features), prototypes)).log_softmax(2)


def tast(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    filter_size: int | Literal["auto"] | None = "auto",
    heads: int = 20,
    neighbours: int = 4,
    steps: int = 1,
    seed: int = 0,
) -> TAST:
    """TAST: random projections of frozen features learn the labels of nearest neighbours, which predict.

    Jang, Chung and Chung, "Test-Time Adaptation via Self-Training with Nearest Neighbor Information", ICLR 2023. Per
    batch: add it to supports as T3A does; label each sample by its nearest supports, whose labels come from class means
    under each projection; train the projections towards these labels; predict with the neighbours' mean probability
    over projections, from before the last step. Outputs are log probabilities.

    The authors choose the numbers by validation; the defaults here are ours within their grid.

    Differs from the public code: ``filter_size=None`` really keeps all supports; a class without supports gets the
    lowest cosine instead of 0; projections are drawn from a seed, so a reset restores them instead of drawing others.
    The variant that adapts normalization layers on stored images (TAST-BN) is left out.

    Args:
        optimizer: Makes the optimizer of the projections; Adam with lr 1e-3 unless given.
        filter_size: M: keep the M samples of lowest entropy per class; ``"auto"`` is 100 up to ten classes, else 20;
            ``None`` keeps all.
        heads: E, the number of projections.
        neighbours: k, the nearest supports, by cosine of features, that label a sample.
        steps: Training steps per batch.
        seed: The seed of the projections.
    """
    if heads < 1:
        raise TTCError(f"heads is a positive number of projections, got {heads}")
    prepared = frozen_copy(model)
    return TAST(
        prepared,
        Projections(heads, prepared.head_weight.shape[1], seed=seed),
        optimizer or partial(torch.optim.Adam, lr=1e-3),
        filter_size=supports_per_class(filter_size, model.num_classes),
        neighbours=neighbours,
        steps=steps,
    )


def _wide(supports: Supports) -> Supports:
    dtype = torch.promote_types(supports.features.dtype, torch.float32)
    return supports._replace(features=supports.features.to(dtype))


METHOD = Method(
    name="tast",
    build=tast,
    changes=("projections",),
    needs=("linear head",),
    paper="Jang 2023",
    memory="100 features per class up to ten classes, else 20; 20 projections",
)
