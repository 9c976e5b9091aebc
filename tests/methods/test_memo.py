"""MEMO against a literal transcription of its steps, one image at a time."""

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import augmix

VIEWS = 6


class LiteralBlend(nn.Module):
    """BatchNorm with (1 - α) · source + α · batch statistics, the variance of the batch unbiased."""

    def __init__(self, layer: nn.BatchNorm2d, alpha: float) -> None:
        super().__init__()
        self.layer, self.alpha = layer, alpha

    def forward(self, x: Tensor) -> Tensor:
        layer, alpha = self.layer, self.alpha
        assert layer.running_mean is not None
        assert layer.running_var is not None
        mean = (1 - alpha) * layer.running_mean + alpha * x.mean((0, 2, 3))
        variance = (1 - alpha) * layer.running_var + alpha * x.var((0, 2, 3))
        y = (x - mean.view(1, -1, 1, 1)) / (variance.view(1, -1, 1, 1) + layer.eps).sqrt()
        return y * layer.weight.view(1, -1, 1, 1) + layer.bias.view(1, -1, 1, 1)


def literal(source: nn.Module, image: Tensor, number: int, alpha: float) -> Tensor:
    network = copy.deepcopy(source).eval()
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            network.set_submodule(name, LiteralBlend(module, alpha))
    optimizer = torch.optim.SGD(network.parameters(), lr=5e-3)
    views = augmix(image, VIEWS, torch.Generator().manual_seed(number))
    p_bar = network(views).softmax(1).mean(0)
    (-(p_bar * p_bar.log()).sum()).backward()
    optimizer.step()
    with torch.no_grad():
        logits: Tensor = network(image[None])
    return logits


@pytest.mark.parametrize("alpha", [1 / 17, 0.5])
def test_memo_is_the_literal_algorithm(alpha: float, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "memo", views=VIEWS, alpha=alpha, accelerate=False)
    plain = ttc.adapt(model, "norm-blend", alpha=alpha)
    images = torch.cat([stream[0][:4], stream[1][:4]])
    found = torch.cat([adapter(images[:4]), adapter(images[4:])])
    expected = torch.cat([literal(model, image, number, alpha) for number, image in enumerate(images)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, torch.cat([plain(image[None]) for image in images]), atol=1e-5)


def test_memo_without_a_step_is_blended_normalization_per_image(model: nn.Module, stream: list[Tensor]) -> None:
    still = partial(torch.optim.SGD, lr=0.0)
    found = ttc.adapt(model, "memo", views=2, optimizer=still)(stream[0][:5])
    blend = ttc.adapt(model, "norm-blend", source_pseudo_count=16)
    torch.testing.assert_close(found, torch.cat([blend(image[None]) for image in stream[0][:5]]))


def test_images_do_not_influence_each_other(model: nn.Module, stream: list[Tensor]) -> None:
    together, singly = (ttc.adapt(model, "memo", views=2) for _ in range(2))
    found = torch.cat([singly(image[None]) for image in stream[0][:5]])
    assert torch.equal(together(stream[0][:5]), found)
    before = dict(ttc.adapt(model, "memo").model.named_parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in together.model.named_parameters())


def test_another_seed_draws_other_views(model: nn.Module, stream: list[Tensor]) -> None:
    first, second = (ttc.adapt(model, "memo", views=2, seed=seed)(stream[0][:3]) for seed in (0, 1))
    assert not torch.equal(first, second)


def test_defaults_follow_the_number_of_classes() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 500))
    adapter: Any = ttc.adapt(model, "memo")
    assert adapter.views == 64
    assert math.isclose(adapter.optimizer.keywords["lr"], 2.5e-4)


def test_memo_rejects_no_views_and_what_is_no_image(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="views is a positive number"):
        ttc.adapt(model, "memo", views=0)
    with pytest.raises(ttc.TTCError, match="AugMix takes images"):
        ttc.adapt(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), "memo")(torch.rand(2, 4))
