"""Images of a user's own, fitted to the input of a model."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from torch import nn

    from ttc.deploy.input_images import InputImages

FAR = (0.5, 16)  # images whose side is this many times the model's are too small or too large for it


def fit_images(images: "InputImages", name: str, network: "nn.Module", size: int | None) -> "InputImages":
    """Fit the images to the model's input, and warn if they are far from it."""
    from ttc.deploy.photos import PhotoImages
    from ttc.errors import TTCError
    from ttc.models.model_input import choose_fitting

    wanted = choose_fitting(network, size)
    if not isinstance(images.images, PhotoImages):
        high, wide = images.images.pixels([0]).shape[1:3]
        sizes = [(wide, high)]
    else:
        sizes = images.images.sizes() if wanted else images.images.sizes(most=None)
        if wanted is None and len(set(sizes)) > 1:
            one, other = list(dict.fromkeys(sizes))[:2]
            raise TTCError(
                f"the images differ in size ({one[0]} x {one[1]} and {other[0]} x {other[1]} pixels) and the input "
                f"size of {name} is not known: give it with --size, such as --size 224"
            )
    if wanted and sizes:
        wide, high = sorted(sizes, key=min)[len(sizes) // 2]
        if not FAR[0] <= min(wide, high) / wanted.side <= FAR[1]:
            typer.echo(
                f"ttc: warning: the images have about {wide} x {high} pixels and are resized to {wanted.side} x "
                f"{wanted.side}; predictions may be poor: choose another model, or another size with --size",
                err=True,
            )
    return images.fitted(wanted)
