"""What the two steps of the cycle do on a stream: assigned labels, selected samples, neighbours, gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.bench import method_specs, scenarios
from ttc.bench.grid import domains_of
from ttc.bench.precision import stored_type
from ttc.bench.protocol import Protocol
from ttc.bench.spec import Spec
from ttc.bench.workload import ResolvedWorkload
from ttc.clustering import (
    BelowMeanEntropy,
    ClusteringAdapter,
    assign,
    horizontal_flip,
    identity,
    mean_of_views,
    softmax_entropy,
)
from ttc.clustering.cycle import Step
from ttc.clustering.update import selected_mean
from ttc.core import Classifier
from ttc.data import as_tensor
from ttc.errors import TTCError
from ttc.nn import copy_with_trainable_norms

Gradient = Callable[[Classifier, Tensor], Tensor]


@dataclass(frozen=True)
class Observed:
    """What a method did with each sample of a stream, before it learned from it.

    Args:
        labels: The labels (N,).
        plain: The classes (N,) that the first view alone assigns.
        fused: The classes (N,) that the fused views assign.
        selected: Whether each sample took part in the U-step, (N,).
        features: The features of the first view, (N, D).
        images: The images (N, 3, H, W), in the order of the stream.
    """

    labels: Tensor
    plain: Tensor
    fused: Tensor
    selected: Tensor
    features: Tensor
    images: Tensor


def observe(workload: ResolvedWorkload, protocol: Protocol) -> Observed:
    """Run a method over the stream of a protocol and record its assignments and selection.

    Raises:
        TTCError: If the method has no A-step and U-step to observe.
    """
    images = workload.domain(domains_of(protocol)[0], protocol.images, cached=True)
    network = workload.network(images.num_classes, protocol.dtype, protocol.device)
    adapter = method_specs.build(network, protocol.method, protocol.options, dtype=protocol.dtype)
    if not isinstance(adapter, ClusteringAdapter):
        raise TTCError(f"'{protocol.method}' has no assignment and update to diagnose; choose ttc, tent, eta or alike")
    steps: list[Step] = []
    adapter.observer = steps.append
    labels, shown = np.asarray(images.labels, np.int64), []
    order = [batch.image for batch in scenarios.stream(
        Spec.read(protocol.scenario), [labels], protocol.batch_size, protocol.seed)]  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(protocol.seed)
        for index in order:
            shown.append(as_tensor(images.pixels(index)).to(protocol.device, stored_type(protocol.dtype)))
            adapter(shown[-1])
    steps = steps[-len(order) :]  # a trial of a new shape comes before them

    def joined(part: Callable[[Step], Tensor]) -> Tensor:
        return torch.cat([part(step).detach().cpu() for step in steps])

    return Observed(
        labels=torch.from_numpy(labels[np.concatenate(order)]),
        plain=joined(lambda step: step.assignment.views[0].logits.argmax(1)),
        fused=joined(lambda step: step.assignment.logits.argmax(1)),
        selected=joined(lambda step: step.weights > 0),
        features=joined(lambda step: step.assignment.views[0].features.float()),
        images=torch.cat(shown).cpu(),
    )


def neighbour_agreement(features: Tensor, classes: Tensor, neighbours: Sequence[int]) -> list[float]:
    """Compute the fraction of each sample's nearest neighbours, by cosine, that have the same class.

    Args:
        features: (N, D).
        classes: (N,).
        neighbours: How many neighbours of each sample to compare with.

    Returns:
        The mean fraction for each number of neighbours.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> neighbour_agreement(features, torch.tensor([0, 0, 1, 1]), [1])
        [1.0]
    """
    rows = F.normalize(features, dim=1)
    similarity = rows @ rows.T
    similarity.fill_diagonal_(-2)
    nearest = similarity.topk(max(neighbours), dim=1).indices
    same = (classes[nearest] == classes[:, None]).double()
    return [float(same[:, :count].mean()) for count in neighbours]


def entropy_gradient(model: Classifier, x: Tensor) -> Tensor:
    """Return TENT's gradient for a batch, as one vector: that of the mean entropy of all samples."""
    return _gradient(model, softmax_entropy(model(x).logits).mean())


def selected_gradient(model: Classifier, x: Tensor) -> Tensor:
    """Return the gradient of the entropy of fused predictions, over the samples at or below its mean."""
    assignment = assign(model, x, (identity, horizontal_flip), mean_of_views)
    return _gradient(model, selected_mean(assignment.entropy, BelowMeanEntropy()(assignment)))


class GradientSpread(NamedTuple):
    """How the gradients of batches of one size differ.

    Args:
        spread: Their standard deviation, over the norm of the mean gradient of the largest batches.
        cosine: The cosine of their mean with the mean gradient of the largest batches.
    """

    spread: float
    cosine: float


def gradient_spreads(
    network: Classifier, images: Tensor, sizes: Sequence[int], gradient: Gradient, *, draws: int = 12, seed: int = 0
) -> list[GradientSpread]:
    """Measure the gradients of random batches of each size, at the source parameters.

    Batches are drawn without replacement; BatchNorm uses their statistics, so that the mean gradient depends on the
    size too.

    Args:
        network: The source model.
        images: (M, 3, H, W).
        sizes: The batch sizes, the largest last.
        gradient: Maps the model and a batch to the gradient as one vector.
        draws: Batches per size.
        seed: The seed of the draws.
    """
    model = copy_with_trainable_norms(network)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for size in sizes:
        rows = [torch.randperm(len(images), generator=generator)[:size] for _ in range(draws)]
        found.append(torch.stack([gradient(model, images[one]) for one in rows]).double())
    return [spread_of(vectors, found[-1].mean(0)) for vectors in found]


def spread_of(vectors: Tensor, reference: Tensor) -> GradientSpread:
    """Compute the spread of vectors (n, D) relative to a reference (D,), and the cosine of their mean with it.

    Example:
        >>> spread_of(torch.tensor([[1.0, 1.0], [3.0, 1.0]]), torch.tensor([2.0, 1.0])).cosine
        1.0
    """
    spread = vectors.var(0).sum().sqrt() / reference.norm()
    return GradientSpread(float(spread), round(float(F.cosine_similarity(vectors.mean(0), reference, dim=0)), 6))


def _gradient(model: Classifier, loss: Tensor) -> Tensor:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)]).detach()
