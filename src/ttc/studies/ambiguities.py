"""TTC under each other reading of the paper, to see which choices matter."""

from ttc.report.findings import Figure
from ttc.studies.figures import gains
from ttc.studies.measurements import Measurements
from ttc.studies.study import THREE, Entry, Study, scales

READINGS = {
    "A1 loss over the batch": "loss_norm='batch'",
    "A2 mean of gradients": "accumulate_as='mean'",
    "A3 first step at once": "counter_start=0",
    "A4 step by samples": "accumulate_count='samples'",
    "A6 plain entropy selects": "select_on='plain'",
    "A7 strictly below mean": "inclusive=False",
    "A9 mean of probabilities": "fuse='probabilities'",
    "A10 SPC on probabilities": "spc_on='probabilities'",
    "A10 SPC mean over classes": "spc_reduction='mean'",
    "A11 gradient through κ": "detach_similarity=False",
    "A12 unit features": "normalize_features=True",
    "A13 σ = 3": "bandwidth=3",
    "A13 λ = 0.1": "spc_weight=0.1",
    "A14 SPC on all samples": "constrain='all'",
    "A15 neighbour detached": "detach_neighbour=True",
    "A16 views in one pass": "views_together=True",
    "A17 predict without flip": "return_plain=True",
    "A20 lr by batch size": "lr_reference_batch=200",
}


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    return gains(measured, "What each other reading changes")


STUDY = Study(
    name="ambiguities",
    title="Readings of the paper that change TTC",
    about="The paper leaves some choices open, or says one thing in an equation and another in its algorithm. Each row "
    "is TTC with one choice made the other way; a bar whose interval crosses zero is a choice that does not "
    "matter here.",
    setting="cifar10c",
    elsewhere=True,
    entries=(Entry("TTC", "ttc"), *(Entry(name, f"ttc({option})") for name, option in READINGS.items())),
    scale=scales(THREE),
    baseline="TTC",
    figures=_figures,
    notes=(
        "A1 and A2 only rescale the gradient, to which Adam is invariant; with SGD, as on ImageNet, they would matter.",
        "Not run: A5, A8, A18 and A21 are about state between calls and have no second way to predict a batch; A19 is "
        "the optimizer, A22 the study of augmentations.",
    ),
)
