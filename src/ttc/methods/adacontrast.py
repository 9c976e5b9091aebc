"""AdaContrast: contrastive learning with pseudo-labels refined by nearest neighbours.

Chen et al., "Contrastive Test-Time Adaptation", CVPR 2022.
"""

import copy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering import Normalize, OptimizerFactory, Updater, random_flip, strong_view, update_average_
from ttc.core import Classifier, Prediction, require_finite, seeded_generator
from ttc.core.cautious import CautiousAdapter
from ttc.core.outlier_check import OutlierCheck
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import RunningNorm, copy_with_trainable_parameters, track_statistics


class AdaContrast(CautiousAdapter):
    """Learns from pseudo-labels and from the contrast between two strong views, then predicts again.

    Ours: a batch far from those before is not learned from until another like it comes
    (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        model: The query network, a prepared copy with :class:`ttc.nn.RunningNorm`.
        updater: Updates the query network.
        momentum: m of the key network, the moving average of the query network.
        temperature: τ of the contrastive loss.
        neighbours: How many neighbours refine a pseudo-label.
        refine_after: From how many images on pseudo-labels are refined.
        capacity: The number of keys in the queue, and of entries in the bank of neighbours.
        normalize: ``(mean, std)`` of standardized images.
        seed: The seed of views and of the first keys.
    """

    state_attributes = (
        *("model", "key", "updater", "queue", "queue_labels", "bank_features", "bank_probabilities"),
        *("seen", "calls", "check"),
    )
    resizable_attributes = ("queue", "queue_labels", "bank_features", "bank_probabilities")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        *,
        momentum: float,
        temperature: float,
        neighbours: int,
        refine_after: int,
        capacity: int,
        normalize: Normalize | None,
        seed: int,
    ) -> None:
        super().__init__(model)
        self.key, self.updater = copy.deepcopy(model), updater
        self.momentum, self.temperature = momentum, temperature
        self.neighbours, self.refine_after, self.capacity = neighbours, refine_after, capacity
        self.normalize, self.seed = normalize, seed
        self.seen = self.calls = 0
        self.check = OutlierCheck()
        rows = model.head_weight.detach()  # (K, D)
        generator = seeded_generator(seed, 0)
        self.queue = F.normalize(torch.randn(capacity, rows.shape[1], generator=generator)).to(rows)
        self.queue_labels = torch.randint(len(rows), (capacity,), generator=generator).to(rows.device)
        self.bank_features = rows.new_empty(0, rows.shape[1])
        self.bank_probabilities = rows.new_empty(0, len(rows))

    def learn(self, x: Tensor) -> Tensor:
        """Return the logits after the update, with the running statistics."""
        generator = seeded_generator(self.seed, self.calls)
        weak = random_flip(x, generator)
        one, other = (strong_view(x, generator, self.normalize) for _ in range(2))
        with track_statistics(self.model):
            with torch.no_grad():
                labels = self._pseudo_labels(self.model(weak))
            query = self.model(one)
        with track_statistics(self.key), torch.no_grad():
            keys = F.normalize(self.key(other).features)
        stepped = self.updater(self._loss(query, keys, labels), len(x))
        with track_statistics(self.key), torch.no_grad():
            self._store(keys, labels, self.key(weak))
        if stepped:
            update_average_(self.key, self.model, self.momentum)
        self.seen += len(x)
        self.calls += 1
        return self.infer(x)

    @torch.no_grad()
    def infer(self, x: Tensor) -> Tensor:
        """Return the logits with the running statistics."""
        return require_finite(self.model(x).logits)

    def _pseudo_labels(self, prediction: Prediction) -> Tensor:
        """Return the predicted class (N,), from the mean prediction of nearest neighbours once there are enough."""
        logits = require_finite(prediction.logits)
        if self.seen < self.refine_after:
            return logits.argmax(1)
        cosine = F.normalize(prediction.features) @ F.normalize(self.bank_features).T
        nearest = cosine.topk(min(self.neighbours, cosine.shape[1]), dim=1).indices  # (N, k)
        return self.bank_probabilities[nearest].mean(1).argmax(1)

    def _loss(self, query: Prediction, keys: Tensor, labels: Tensor) -> Tensor:
        vectors = F.normalize(query.features)
        same = labels[:, None] == self.queue_labels  # (N, Q): likely of the same class, so no negatives
        negatives = (vectors @ self.queue.T).masked_fill(same, -torch.inf)
        contrast = torch.cat([(vectors * keys).sum(1, keepdim=True), negatives], 1) / self.temperature
        mean = query.logits.softmax(1).mean(0)
        diversity = (mean * (mean + 1e-8).log()).sum()
        return F.cross_entropy(query.logits, labels) + F.cross_entropy(contrast, torch.zeros_like(labels)) + diversity

    def _store(self, keys: Tensor, labels: Tensor, prediction: Prediction) -> None:
        self.queue = torch.cat([self.queue, keys])[-self.capacity :]
        self.queue_labels = torch.cat([self.queue_labels, labels])[-self.capacity :]
        self.bank_features = torch.cat([self.bank_features, prediction.features])[-self.capacity :]
        probability = prediction.logits.softmax(1)
        self.bank_probabilities = torch.cat([self.bank_probabilities, probability])[-self.capacity :]


def adacontrast(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    momentum: float = 0.999,
    temperature: float = 0.07,
    neighbours: int = 10,
    refine_after: int = 1024,
    capacity: int = 16_384,
    statistics_momentum: float = 0.1,
    normalize: Normalize | None = None,
    seed: int = 0,
) -> AdaContrast:
    """AdaContrast: learns all parameters from refined pseudo-labels and from contrast between two strong views.

    Chen et al., "Contrastive Test-Time Adaptation", CVPR 2022, in its online form. Per batch: pseudo-labels from a weak
    view, from 1,024 images on the mean prediction of the 10 nearest entries of a bank; cross-entropy of a strong view
    with them; contrast of its feature with that of another strong view from the key network, against a queue of keys
    with other pseudo-labels; the mean prediction is kept diverse. Then keys and bank are extended, the key network
    follows the query network, and the batch is predicted again. Both networks normalize with the batch and track it;
    the output uses the running statistics. Small batches make poor statistics to learn with.

    With a learning rate of 0 and ``statistics_momentum`` = 0 it predicts as SOURCE.
    Differs from public versions: keys are compared by the pseudo-labels they were stored with, where the mask was read
    after part of them had been overwritten; the four operations of the colour jitter have one order per batch.

    Args:
        optimizer: Makes the optimizer; SGD with lr 2e-4, Nesterov momentum 0.9 and weight decay 1e-4 unless given.
        momentum: m, the weight of the old value in the key network's moving average, in [0, 1].
        temperature: τ of the contrastive loss.
        neighbours: The number of neighbours that refine a pseudo-label.
        refine_after: The number of images from which on pseudo-labels are refined.
        capacity: The number of keys in the queue, and of entries in the bank.
        statistics_momentum: The weight of a new batch in the running statistics, in [0, 1].
        normalize: ``(mean, std)`` of standardized images; images are in [0, 1] unless given.
        seed: The seed of views and of the random keys in the first queue.
    """
    for name, value in {"momentum": momentum, "statistics_momentum": statistics_momentum}.items():
        if not 0 <= value <= 1:
            raise TTCError(f"{name} lies in [0, 1], got {value}")
    for name, number in {"neighbours": neighbours, "refine_after": refine_after, "capacity": capacity}.items():
        if number < 1:
            raise TTCError(f"{name} is a positive number, got {number}")
    prepared = copy_with_trainable_parameters(model, partial(RunningNorm, momentum=statistics_momentum))
    sgd = partial(torch.optim.SGD, lr=2e-4, momentum=0.9, nesterov=True, weight_decay=1e-4)
    return AdaContrast(
        prepared,
        Updater(prepared.parameters(), optimizer or sgd),
        momentum=momentum,
        temperature=temperature,
        neighbours=neighbours,
        refine_after=refine_after,
        capacity=capacity,
        normalize=normalize,
        seed=seed,
    )


METHOD = Method(
    name="adacontrast",
    build=adacontrast,
    changes=("all parameters", "norm statistics"),
    forwards=5,
    backwards=1,
    needs=("source statistics",),
    paper="Chen 2022",
    predicts="after",
    memory="a copy of the model, and 16,384 keys and as many features with predictions",
)
