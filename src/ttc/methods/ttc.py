"""TTC: test-time clustering, TENT improved in both steps of the cycle.

Lin et al., "Improving Entropy-Based Test-Time Adaptation from a Clustering View", 2023.
"""

from functools import partial
from itertools import compress, product
from typing import Literal

from ttc.clustering import (
    BelowMeanEntropy,
    ClusteringAdapter,
    Loss,
    OptimizerFactory,
    SelectAll,
    SimilarityPreserving,
    StoredNeighbour,
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
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms

FUSE = {"logits": mean_of_views, "probabilities": mean_of_probabilities}
REDUCE = {"selected": selected_mean, "batch": batch_mean}


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
    loss_norm: Literal["selected", "batch"] = "selected",
    accumulate: int | None = None,
    samples_per_step: int = 200,
    accumulate_count: Literal["batches", "samples"] = "batches",
    accumulate_as: Literal["sum", "mean"] = "sum",
    counter_start: Literal[1, 0] = 1,
    select_on: Literal["fused", "plain"] = "fused",
    inclusive: bool = True,
    fuse: Literal["logits", "probabilities"] = "logits",
    spc_on: Literal["logits", "probabilities"] = "logits",
    spc_reduction: Literal["sum", "mean"] = "sum",
    detach_similarity: bool = True,
    normalize_features: bool = False,
    constrain: Literal["selected", "all"] = "selected",
    detach_neighbour: bool = False,
    views_together: bool = False,
    return_plain: bool = False,
    lr_reference_batch: float | None = None,
    propagate: Literal["all", "selected"] = "all",
    neighbour: Literal["view", "memory"] = "view",
    memory_size: int = 1024,
) -> ClusteringAdapter:
    """TTC: TENT with robust labels, a similarity constraint, sample selection and gradient accumulation.

    Lin et al., "Improving Entropy-Based Test-Time Adaptation from a Clustering View", 2023. Algorithm 1: label x and
    its flip x'; minimize over the selected samples the entropy of the mean logits plus κ(x, x')·‖f(x) - f(x')‖²; step
    every Q = 200 / N batches; predict with the mean logits.

    Options marked A1 to A22 are readings that the paper leaves open; docs/ambiguities.md gives the evidence for each.

    Differs from the paper: the loss is the mean over selected samples as in its Algorithm 1, not over the batch as in
    its equation; κ is constant in the backward pass; equal entropies select every sample instead of none.

    Args:
        rla: Robust label assignment: labels from the mean over the image and its view.
        spc: Similarity-preserving constraint: similar features get similar outputs.
        ss: Sample selection: learn only from samples below the mean entropy.
        ga: Gradient accumulation: one step per ``samples_per_step`` samples.
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9
            (A19).
        view: The second view aug(x) of a batch (A22).
        bandwidth: σ of the similarity κ = exp(-‖g(x) - g(x')‖² / 2σ²) (A13).
        spc_weight: λ, the weight of the constraint (A13).
        loss_norm: What the summed loss is divided by: the number of selected samples, or the size of the batch (A1).
        accumulate: Q, the batches per step; ``None`` derives it from ``samples_per_step`` (A4).
        samples_per_step: Samples per step when ``accumulate`` is None (A4).
        accumulate_count: Count whole batches of the size of the first one, or the samples themselves (A4).
        accumulate_as: Sum the gradients of the accumulated batches, or average them (A2).
        counter_start: Where the batch counter starts; 0 steps on the very first batch (A3).
        select_on: Select by the entropy of the fused prediction, or by that of the plain image (A6).
        inclusive: Whether a sample exactly at the mean entropy is selected (A7).
        fuse: Average the logits of the views, or their probabilities (A9).
        spc_on: Compare logits or probabilities in the constraint (A10).
        spc_reduction: Sum the squared differences over classes, or average them (A10).
        detach_similarity: Whether κ is constant in the backward pass (A11).
        normalize_features: Whether features have unit length in κ (A12).
        constrain: Apply the constraint to the selected samples, or to all (A14).
        detach_neighbour: Whether the second view is constant in the constraint (A15).
        views_together: Whether both views share one forward pass and its batch statistics (A16).
        return_plain: Predict with the plain image instead of the mean over views (A17).
        lr_reference_batch: Scale the learning rate with the batch, lr · N / ``lr_reference_batch`` (A20).
        propagate: Backward through all samples, or only through the selected ones with the statistics of the batch held
            constant: less work, a slightly different gradient; docs/performance.md compares them.
        neighbour: What the constraint compares an image with: its second view, as in the paper, or the nearest image of
            the same predicted class in a memory of past batches, which the paper leaves open. The latter needs no pass
            for the constraint, and a larger ``bandwidth`` or ``normalize_features``, as other images are further away.
        memory_size: The images in that memory, each as one feature and one row of logits; the oldest leave first.
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
    stored = neighbour == "memory"
    constraints: tuple[Loss, ...] = (StoredNeighbour(constraint, memory_size) if stored else constraint,) if spc else ()
    constrain_all = constrain == "all"
    update = partial(
        Updater,
        accumulate=accumulate if ga else 1,
        samples_per_step=samples_per_step,
        count=accumulate_count,
        reduction=accumulate_as,
        counter_start=counter_start,
        reference_batch=lr_reference_batch,
    )
    return ClusteringAdapter(
        copy_with_trainable_norms(model),
        optimizer or default_optimizer(model.num_classes),
        views=(identity, view) if rla or (spc and not stored) else (identity,),
        fuse=FUSE[fuse] if rla else first_view,
        losses=(entropy,) if constrain_all else (entropy, *constraints),
        unselected=constraints if constrain_all else (),
        select=BelowMeanEntropy(select_on, inclusive) if ss else SelectAll(),
        reduce=REDUCE[loss_norm],
        output=first_view if return_plain else None,
        together=views_together,
        propagate=propagate,
        update=update,
    )


def _combinations() -> list[Method]:
    """Return TENT with some, not all and not none, of TTC's components, as ``tent+rla+ss``, fewest components first."""
    methods = []
    for flags in sorted(product([False, True], repeat=4), key=lambda flags: (sum(flags), [not flag for flag in flags])):
        rla, spc, ss, ga = flags
        if any(flags) and not all(flags):
            passes = 2 if rla or spc else 1
            methods.append(
                Method(
                    name="+".join(["tent", *compress(("rla", "spc", "ss", "ga"), flags)]),
                    build=partial(ttc, rla=rla, spc=spc, ss=ss, ga=ga),
                    changes=("norm affine",),
                    forwards=passes,
                    backwards=passes,
                    needs=("large batches",),
                    paper="Lin 2023",
                )
            )
    return methods


METHOD = Method(
    name="ttc",
    build=ttc,
    changes=("norm affine",),
    forwards=2,
    backwards=2,
    needs=("large batches",),
    paper="Lin 2023",
)
VARIANTS = (
    *_combinations(),
    Method(
        name="ttc-memory",
        build=partial(ttc, neighbour="memory"),
        changes=("norm affine",),
        forwards=2,
        backwards=2,
        needs=("large batches",),
        paper="Lin 2023, extended",
        memory="1,024 features and rows of logits",
    ),
)
