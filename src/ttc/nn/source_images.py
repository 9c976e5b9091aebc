"""Source images that a method asks for before it adapts."""

import torch
from torch import Tensor

from ttc.core.classifier import Classifier
from ttc.errors import TTCError


def require_source_images(model: Classifier, images: Tensor | None, *, method: str, count: int) -> Tensor:
    """Check the source images of a method and move them to the device and dtype of its model.

    Args:
        model: The classifier that was trained on such images.
        images: What the user passed as ``source_images``.
        method: The method's name, for the message.
        count: How many images the method asks for, for the message; fewer are accepted.

    Returns:
        Images (M, C, H, W), which gradients may pass.

    Raises:
        TTCError: If they are missing, no float images, or not finite.
    """
    asked = f"pass source_images= (about {count:,} clean images like those the model was trained on)"
    if images is None:
        raise TTCError(f"'{method}' needs source images before it adapts; {asked}")
    if not images.is_floating_point() or images.ndim < 2 or not len(images):
        raise TTCError(f"expected float source images (M, C, H, W), got {images.dtype} {tuple(images.shape)}; {asked}")
    if not bool(images.isfinite().all()):
        raise TTCError("the source images contain NaN or infinite values; leave those images out")
    weight = next(model.parameters())
    with torch.inference_mode(False):
        images = images.clone() if images.is_inference() else images.detach()
        return images.to(weight.device, weight.dtype)
