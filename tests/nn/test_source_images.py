"""Source images are checked and moved to their model."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Classifier
from ttc.nn import require_source_images


def classifier() -> Classifier:
    return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (None, r"'eata' needs source images before it adapts; pass source_images= \(about 2,000 clean images"),
        (
            torch.zeros(4, 3, 2, 2, dtype=torch.uint8),
            r"expected float source images .*, got torch.uint8 \(4, 3, 2, 2\)",
        ),
        (torch.zeros(0, 3, 2, 2), "expected float source images"),
        (torch.full((4, 3, 2, 2), torch.nan), "the source images contain NaN"),
    ],
)
def test_invalid_source_images_are_rejected(images: Tensor | None, message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        require_source_images(classifier(), images, method="eata", count=2000)


def test_source_images_get_the_dtype_of_the_model_and_may_be_learned_from() -> None:
    with torch.inference_mode():
        images = torch.rand(4, 3, 2, 2, dtype=torch.float64)
    found = require_source_images(classifier(), images, method="eata", count=2000)
    assert not found.is_inference()
    assert require_source_images(classifier(), torch.rand(4, 3, 2, 2), method="eata", count=1).dtype == torch.float64
