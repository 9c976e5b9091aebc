"""Cached activations: the rows of a batch again, without new convolutions."""

import torch
from torch import Tensor, nn

import ttc
from ttc.core import Classifier
from ttc.fast.graph import capture
from ttc.fast.rewrites import bind
from ttc.fast.selective_backward import (
    CachingConv,
    CachingNorm,
    cache_activations,
    make_selective_,
    reuse_activations,
)
from ttc.models.cifar_resnet import CifarResNet
from ttc.nn import copy_with_trainable_norms

from .conftest import Body


def selective(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    network = copy_with_trainable_norms(Classifier(model)).network
    make_selective_(network)
    return network


def test_rows_are_predicted_as_in_their_batch() -> None:
    network, x, rows = selective(CifarResNet(20).double()), torch.rand(6, 3, 32, 32).double(), torch.tensor([1, 4])
    program = capture(network)
    assert program is not None
    for run in (network, bind(program, network)):
        with cache_activations(network), torch.no_grad():
            expected = run(x)
        with reuse_activations(network, rows):
            found = run(x[rows])
        torch.testing.assert_close(found, expected[rows])
        assert found.requires_grad


def overwrite(net: Body, x: Tensor) -> Tensor:
    y = net.conv(x)
    y += 1
    logits: Tensor = net.fc(net.norm(y).flatten(1))
    return logits


def test_a_network_that_writes_over_a_cached_output_is_predicted_alike() -> None:
    network, x, rows = selective(Body(overwrite)), torch.rand(6, 3, 8, 8), torch.tensor([0, 5])
    with cache_activations(network), torch.no_grad():
        expected = network(x)
    with reuse_activations(network, rows):
        torch.testing.assert_close(network(x[rows]), expected[rows])


def test_caches_are_empty_between_batches() -> None:
    adapter = ttc.adapt(CifarResNet(20), "ttc", propagate="selected")
    adapter(torch.rand(6, 3, 32, 32))
    layers = [layer for layer in adapter.model.modules() if isinstance(layer, CachingConv | CachingNorm)]
    assert len(layers) == 38
    assert not any(layer.cache or layer.caching for layer in layers)
