"""The methods that are a choice of parts: TENT, TTC with its four components, and ETA."""

import math
from functools import partial
from typing import TypeVar

from ttc.clustering import (
    BelowMeanEntropy,
    ClusteringAdapter,
    Everything,
    Loss,
    OptimizerFactory,
    ReliableAndDiverse,
    SimilarityPreserving,
    Updater,
    View,
    batch_mean,
    default_optimizer,
    entropy,
    first_view,
    horizontal_flip,
    identity,
    mean_of_probabilities,
    mean_of_views,
    selected_mean,
)
from ttc.core import Classifier, norm_tunable
from ttc.errors import TTCError

T = TypeVar("T")


def tent(model: Classifier, *, optimizer: OptimizerFactory | None = None) -> ClusteringAdapter:
    """TENT: entropy minimization on scale and shift, with batch statistics.

    Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.
    """
    return ClusteringAdapter(norm_tunable(model), optimizer or default_optimizer(model.num_classes))


def ttc(
    model: Classifier,
    *,
    rla: bool = True,
    spc: bool = True,
    ss: bool = True,
    ga: bool = True,
    optimizer: OptimizerFactory | None = None,
    view: View = horizontal_flip,
    bandwidth: float = 1.0,
    spc_weight: float = 1.0,
    loss_norm: str = "selected",
    accumulate: int | None = None,
    samples_per_step: int = 200,
    accumulate_count: str = "batches",
    accumulate_as: str = "sum",
    counter_start: int = 1,
    select_on: str = "fused",
    inclusive: bool = True,
    fuse: str = "logits",
    spc_on: str = "logits",
    spc_reduction: str = "sum",
    detach_similarity: bool = True,
    normalize_features: bool = False,
    constrain: str = "selected",
    detach_neighbour: bool = False,
    views_together: bool = False,
    return_plain: bool = False,
    lr_reference_batch: float | None = None,
    propagate: str = "all",
) -> ClusteringAdapter:
    """TTC: TENT with robust labels, a similarity constraint, sample selection and gathered gradients.

    Lin et al., "Improving Entropy-Based Test-Time Adaptation from a Clustering View", 2023. Algorithm 1: label x and
    its flip x'; minimize over the selected samples the entropy of the mean logits plus κ(x, x')·‖f(x) - f(x')‖²; step
    every Q = 200 / N batches; answer with the mean logits.

    The components: ``rla`` robust label assignment, ``spc`` similarity-preserving constraint, ``ss`` sample selection,
    ``ga`` gradient accumulation. The other options are the readings that the paper leaves open; docs/ambiguities.md
    explains each (A1 ``loss_norm``, A2 ``accumulate_as``, A3 ``counter_start``, A4 ``accumulate``, ``samples_per_step``
    and ``accumulate_count``, A6 ``select_on``, A7 ``inclusive``, A9 ``fuse``, A10 ``spc_on`` and ``spc_reduction``,
    A11 ``detach_similarity``, A12 ``normalize_features``, A13 ``bandwidth`` σ and ``spc_weight`` λ, A14 ``constrain``,
    A15 ``detach_neighbour``, A16 ``views_together``, A17 ``return_plain``, A19 ``optimizer``, A20
    ``lr_reference_batch``, A22 ``view``).

    ``propagate="selected"`` saves work: the backward pass goes through the selected samples only, with the statistics
    of the batch held constant in it. Another gradient, so another method, a little; docs/performance.md compares them.

    Differs from the paper: the loss is the mean over selected samples as in its Algorithm 1, not over the batch as in
    its equation; κ is held constant in the backward pass; equal entropies select every sample instead of none.
    """
    constraint = SimilarityPreserving(
        bandwidth=bandwidth,
        weight=spc_weight,
        on=spc_on,
        reduction=spc_reduction,
        detach_similarity=detach_similarity,
        normalize_features=normalize_features,
        detach_neighbour=detach_neighbour,
    )
    fused = _choice("fuse", fuse, {"logits": mean_of_views, "probabilities": mean_of_probabilities})
    everyone = _choice("constrain", constrain, {"selected": False, "all": True})
    constraints: tuple[Loss, ...] = (constraint,) if spc else ()
    gather = partial(
        Updater,
        accumulate=accumulate if ga else 1,
        samples_per_step=samples_per_step,
        count=accumulate_count,
        reduction=accumulate_as,
        counter_start=counter_start,
        reference_batch=lr_reference_batch,
    )
    return ClusteringAdapter(
        norm_tunable(model),
        optimizer or default_optimizer(model.num_classes),
        views=(identity, view) if rla or spc else (identity,),
        fuse=fused if rla else first_view,
        losses=(entropy,) if everyone else (entropy, *constraints),
        unselected=constraints if everyone else (),
        select=BelowMeanEntropy(select_on, inclusive) if ss else Everything(),
        reduce=_choice("loss_norm", loss_norm, {"selected": selected_mean, "batch": batch_mean}),
        answer=first_view if return_plain else None,
        together=views_together,
        propagate=propagate,
        update=gather,
    )


def eta(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    entropy_margin: float | None = None,
    redundancy_margin: float | None = None,
    momentum: float = 0.9,
) -> ClusteringAdapter:
    """ETA: TENT on confident samples that differ from what was learned before, the surer the heavier.

    Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022 (EATA without its Fisher term).
    ``entropy_margin`` E0 is 0.4 ln K unless given; ``redundancy_margin`` ε follows the number of classes.

    The preset ``eta-paper`` sets ε = 0.05 whatever K: with ten classes nothing is selected after the first batch and
    the method answers almost as NORM does, which is what the TTC paper's ETA row looks like.
    """
    classes = model.num_classes
    select = ReliableAndDiverse(
        entropy_margin=0.4 * math.log(classes) if entropy_margin is None else entropy_margin,
        redundancy_margin=_redundancy_margin(classes) if redundancy_margin is None else redundancy_margin,
        momentum=momentum,
    )
    return ClusteringAdapter(norm_tunable(model), optimizer or default_optimizer(classes), select=select)


def _redundancy_margin(num_classes: int) -> float:
    """ETA's ε: the published values, else in proportion to 1/√K, the cosine of a sure prediction with a uniform one."""
    published = {10: 0.4, 100: 0.1, 1000: 0.05}
    return published.get(num_classes, min(0.95, 0.4 * math.sqrt(10 / num_classes)))


def _choice(name: str, value: str, choices: dict[str, T]) -> T:
    if value not in choices:
        raise TTCError(f"{name} is {' or '.join(map(repr, choices))}, got {value!r}")
    return choices[value]
