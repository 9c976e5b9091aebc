"""Input standardization."""

import torch

from ttc.models.standardize import CIFAR10_STATISTICS, Standardize, standardization


def test_standardized_images_have_the_given_statistics() -> None:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in CIFAR10_STATISTICS)
    noise = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Standardize(CIFAR10_STATISTICS)(noise * std + mean), noise)


def test_the_state_dict_is_that_of_public_checkpoints() -> None:
    layer = standardization(CIFAR10_STATISTICS)
    assert layer.state_dict() == {}
    assert layer.to(torch.float64).get_buffer("mean").dtype == torch.float64  # yet it moves with the model


def test_without_statistics_pixels_pass_unchanged() -> None:
    x = torch.rand(1, 3, 2, 2)
    assert torch.equal(standardization(None)(x), x)
