"""The choice of TTC's second view."""

from ttc.report.findings import Figure
from ttc.studies.figures import gains
from ttc.studies.measurements import Measurements
from ttc.studies.study import FIVE, Entry, Greater, Study, scales


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    return gains(measured, "TTC with other second views, against the horizontal flip")


VIEWS = {
    "RRCrop": "RandomResizedCrop",
    "RandRot": "RandomRotation",
    "GausNoise": "GaussianNoise",
    "VerFlip": "vertical_flip",
}
STUDY = Study(
    name="augmentations",
    title="The second view of TTC",
    about="TTC compares each image with a changed copy of it. The paper tries five changes and finds the horizontal "
    "flip best. It names the other four without their strength, so ours are our choice: the order can be compared, the "
    "numbers cannot.",
    setting="cifar10c",
    entries=(
        *(Entry(name, f"ttc(view='{view}')", paper=name) for name, view in VIEWS.items()),
        Entry("HorFlip", "ttc", paper="HorFlip"),
    ),
    scale=scales(FIVE),
    table="augmentations",
    baseline="HorFlip",
    claims=tuple(Greater(f"The horizontal flip is better than {name}.", "HorFlip", name) for name in VIEWS),
    figures=_figures,
)
