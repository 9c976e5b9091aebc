"""Open the clean images of a dataset by the name that commands take."""

from pathlib import Path
from typing import cast

from ttc.data.cifar import LAYOUTS, Cifar, cifar
from ttc.data.decoding import Fitting
from ttc.data.embedded_images import embedded
from ttc.data.folders import image_folder, imagenet
from ttc.data.images import Images
from ttc.errors import unknown

NAMES = ("embedded", *LAYOUTS, *(f"{name}:PATH" for name in LAYOUTS), "imagenet", "imagefolder:PATH[@SIZE]")


def open_dataset(name: str, root: Path, fitting: Fitting | None = None, num_classes: int | None = None) -> Images:
    """Open the clean images of a dataset.

    Args:
        name: ``embedded``; ``cifar10`` or ``cifar100``, in the data directory or at ``cifar100:PATH``; ``imagenet``; or
            ``imagefolder:PATH`` with one folder per class, ``imagefolder:PATH@SIZE`` to fit images to a side in pixels.
        root: The data directory.
        fitting: How the images of a folder are resized and cropped for the model.
        num_classes: The number of classes of the model, which the folders must fit.

    Returns:
        The dataset.

    Raises:
        TTCError: The name is unknown, or the data is missing, damaged or does not fit the model.

    Example:
        >>> len(open_dataset("embedded", Path()))
        2000
    """
    kind, _, place = name.partition(":")
    if kind == "imagefolder" and place:
        path, _, side = place.rpartition("@")
        if path and side.isdecimal():
            return image_folder(Path(path), Fitting.to(int(side)), num_classes=num_classes)
        return image_folder(Path(place), fitting, num_classes=num_classes)
    if kind in LAYOUTS:
        return cifar(Path(place) if place else root, cast(Cifar, kind))
    if name == "embedded":
        return embedded()
    if name == "imagenet":
        return imagenet(root)
    raise unknown("dataset", name, NAMES)


def is_sorted_by_class(name: str) -> bool:
    """Whether a subset of the dataset should be spread over it, as its first images are of few classes.

    >>> is_sorted_by_class("imagefolder:photos"), is_sorted_by_class("cifar10")
    (True, False)
    """
    return name.partition(":")[0] in {"imagefolder", "imagenet"}
