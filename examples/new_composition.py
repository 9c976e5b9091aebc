"""Compose a new method from the parts of the clustering view, and compare it with TENT and TTC."""

from functools import partial

import torch
from torch import Tensor

import ttc
from ttc.clustering import (
    Assignment,
    ClusteringAdapter,
    Selector,
    Updater,
    default_optimizer,
    entropy,
    horizontal_flip,
    identity,
    mean_of_views,
)
from ttc.core import Classifier
from ttc.corruptions import corrupt
from ttc.data import as_tensor, embedded
from ttc.nn import copy_with_trainable_norms


class ViewsAgree(Selector):
    """Selects the samples whose views are all predicted to be the same class."""

    def __call__(self, assignment: Assignment) -> Tensor:
        classes = torch.stack([view.logits.argmax(1) for view in assignment.views])  # (views, N)
        return (classes == classes[0]).all(0).to(assignment.entropy)


def tent_with_agreement(model: torch.nn.Module) -> ClusteringAdapter:
    """Build TENT that learns only from samples whose two views agree, with one step per two batches."""
    classifier = Classifier(model)
    return ClusteringAdapter(
        copy_with_trainable_norms(
            classifier
        ),  # a private copy: only scale and shift of normalization layers are trainable
        default_optimizer(classifier.num_classes),
        views=(identity, horizontal_flip),  # A-step: which views to predict ...
        fuse=mean_of_views,  # ... and how their logits become one label
        losses=(entropy,),  # U-step: what to minimize ...
        select=ViewsAgree(),  # ... over which samples ...
        update=partial(Updater, accumulate=2),  # ... and how often to step
    )


model, images = ttc.models.embedded(), embedded()
labels = torch.from_numpy(images.labels[:300])
print(f"{'corruption':<18}{'tent':>8}{'ttc':>8}{'ours':>8}")
for corruption in ("gaussian_noise", "jpeg_compression"):
    pixels = corrupt(images.pixels(range(300)), corruption, severity=5)
    row = f"{corruption:<18}"
    for adapter in (*(ttc.adapt(model, name) for name in ("tent", "ttc")), tent_with_agreement(model)):
        logits = torch.cat([adapter(batch) for batch in as_tensor(pixels).split(50)])
        row += f"{100 * (logits.argmax(1) == labels).float().mean():8.1f}"
    print(row)
