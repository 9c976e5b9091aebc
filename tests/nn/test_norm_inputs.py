"""Recorded inputs of normalization layers."""

import copy
import pickle

import torch
from torch import nn

from ttc.nn.norm_inputs import NormInputs, mean_distance

X = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def test_the_spatial_means_of_every_layer() -> None:
    network = nn.Sequential(
        nn.BatchNorm2d(3), nn.GroupNorm(3, 3), nn.Flatten(2), nn.LayerNorm(16), nn.Flatten(), nn.BatchNorm1d(48)
    ).eval()
    inputs = NormInputs(network)
    network(X)
    inputs.start()
    network(X)
    means = inputs.stop()
    network(X)
    assert inputs.means == []
    assert [tuple(mean.shape) for mean in means] == [(5, 3), (5, 3), (5, 16), (5, 48)]
    torch.testing.assert_close(means[0], X.mean((2, 3)))
    torch.testing.assert_close(means[2], network[1](network[0](X)).flatten(2).mean(1))


def test_copies_listen_to_their_own_network() -> None:
    network = nn.Sequential(nn.BatchNorm2d(3)).eval()
    pair = (network, NormInputs(network))
    for twin, inputs in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        inputs.start()
        twin(X)
        assert len(inputs.stop()) == 1
        inputs.start()
        network(X)
        assert inputs.stop() == []


def test_the_distance_is_a_mean_over_layers_and_channels() -> None:
    left, right = [torch.rand(5, 3), torch.rand(5, 8)], [torch.rand(5, 3), torch.rand(5, 8)]
    expected = sum(((a - b) ** 2).mean(1) for a, b in zip(left, right, strict=True)) / 2
    torch.testing.assert_close(mean_distance(left, right, 5), expected)
    assert mean_distance([], [], 5) == 0
