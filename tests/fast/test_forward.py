"""The one way in: outputs stay those of the network, whatever happens to it afterwards, and copies need no capture."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Adapter, Classifier
from ttc.fast import FastForward, forward
from ttc.fast.layout import set_layout_
from ttc.models.cifar_resnet import CifarResNet
from ttc.nn import SourceNorm, copy_with_trainable_norms, source_classifier

from .conftest import Body, decide_by_value, flatten_with_view, mix_samples


def pair(network: nn.Module, method: str, **options: Any) -> tuple[Adapter, Adapter]:
    """Two adapters alike, but that the second runs its network as it is."""
    fast, plain = ttc.adapt(network, method, **options), ttc.adapt(network, method, **options)
    plain.model.runner = None
    set_layout_(plain.model.network, torch.contiguous_format)
    return fast, plain


def runner_of(adapter: Adapter) -> FastForward:
    assert isinstance(adapter.model.runner, FastForward)
    return adapter.model.runner


@pytest.mark.parametrize("method", ["source", "norm", "tent", "ttc", "t3a", "eta"])  # TIPI follows rounding noise
def test_adapters_predict_as_without(method: str) -> None:
    torch.manual_seed(0)
    fast, plain = pair(CifarResNet(20).double(), method)
    for batch in torch.rand(4, 12, 3, 32, 32, dtype=torch.float64):
        torch.testing.assert_close(fast(batch), plain(batch), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("policy", ["average", "blend", "window"])
def test_small_batches_predict_as_without(policy: str) -> None:
    torch.manual_seed(0)
    fast, plain = pair(CifarResNet(20).double(), "ttc", small_batches=policy)
    for batch in torch.rand(6, 2, 3, 32, 32, dtype=torch.float64):
        torch.testing.assert_close(fast(batch), plain(batch), atol=1e-6, rtol=1e-5)


def test_awkward_networks_predict_as_they_are(awkward: nn.Module) -> None:
    torch.manual_seed(0)
    fast, plain = pair(awkward.double(), "ttc")
    for batch in torch.rand(3, 8, 3, 8, 8, dtype=torch.float64):
        torch.testing.assert_close(fast(batch), plain(batch), atol=1e-6, rtol=1e-5)


def test_it_is_decided_when_the_adapter_is_built() -> None:
    adapter = ttc.adapt(CifarResNet(20), "ttc")
    runner = runner_of(adapter)
    program = runner.program
    assert program is not None
    assert runner.channels_last
    weight = adapter.model.network.get_submodule("conv1").weight
    assert isinstance(weight, Tensor)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(ttc.TTCError, match="not finite"):
        adapter(torch.full((8, 3, 32, 32), 3e38))
    assert runner_of(adapter) is runner
    assert runner.program is program


def test_a_network_without_a_graph_runs_as_it_is() -> None:
    runner = FastForward(Body(decide_by_value).eval())
    assert runner.program is None
    assert not runner.channels_last
    assert runner(torch.rand(4, 3, 8, 8)).shape == (4, 3)


def test_small_batches_share_a_pass_and_keep_their_own_statistics() -> None:
    torch.manual_seed(0)
    model = copy_with_trainable_norms(Classifier(CifarResNet(20).double()))
    one, two = torch.rand(2, 5, 3, 32, 32, dtype=torch.float64)
    apart = [model(one), model(two * 0.3)]
    model.runner = FastForward(model.network)
    assert model.runner.joins([one, two])
    assert not model.runner.joins([one])
    assert not model.runner.joins([one.repeat(2, 1, 1, 1)] * 2)  # large ones are faster alone
    passes: list[tuple[Tensor, ...]] = []
    model.register_forward_hook(lambda module, inputs, output: passes.append(inputs))
    for found, expected in zip(model.each([one, two * 0.3]), apart, strict=True):
        torch.testing.assert_close(found.logits, expected.logits)
        torch.testing.assert_close(found.features, expected.features)
    assert [tuple(x.shape) for (x,) in passes] == [(10, 3, 32, 32)]


def test_networks_that_mix_samples_get_a_pass_for_each_batch() -> None:
    assert not FastForward(Body(mix_samples).eval()).joins([torch.rand(2, 3, 8, 8)] * 2)


def test_statistics_other_than_the_batchs_get_a_pass_for_each_batch() -> None:
    adapter = ttc.adapt(CifarResNet(20), "ttc", small_batches=True)
    assert not runner_of(adapter).joins([torch.rand(2, 3, 8, 8)] * 2)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda adapter: pickle.loads(pickle.dumps(adapter))])
def test_copies_run_their_own_network_and_capture_nothing(duplicate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    adapter, batches = ttc.adapt(CifarResNet(20), "ttc", ga=False), torch.rand(3, 12, 3, 32, 32)
    adapter(batches[0])
    monkeypatch.setattr(forward, "capture", lambda network: pytest.fail("captured again"))
    copied = duplicate(adapter)
    runner = runner_of(copied)
    assert runner.network is copied.model.network
    assert runner.program == runner_of(adapter).program
    first = adapter(batches[1])
    assert torch.equal(copied(batches[1]), first)
    assert not torch.equal(copied(batches[1]), first)  # it has learned
    assert torch.equal(adapter(batches[2]), duplicate(adapter)(batches[2])) is False  # the original has learned too


def test_replaced_layers_are_followed() -> None:
    torch.manual_seed(0)
    adapter, batch = ttc.adapt(CifarResNet(20), "tent"), torch.rand(8, 3, 32, 32)
    adapter(batch)
    source = source_classifier(adapter)
    assert isinstance(source.network.get_submodule("bn1"), SourceNorm)
    torch.testing.assert_close(source(batch).logits, source.network(batch), atol=1e-5, rtol=1e-5)
    bound = adapter.model
    before = bound(batch).logits
    bound.network.set_submodule("bn1", SourceNorm(bound.network.get_submodule("bn1")).eval())  # type: ignore[arg-type]
    torch.testing.assert_close(bound(batch).logits, bound.network(batch), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(bound(batch).logits, before)


def test_a_replaced_block_ends_the_program() -> None:
    torch.manual_seed(0)
    network = CifarResNet(20).eval()
    runner, x = FastForward(network), torch.rand(2, 3, 32, 32)
    runner(x)
    network.layer1 = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.Tanh()).eval()
    torch.testing.assert_close(runner(x), network(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["layer1", "layer1.0", "bn1", "conv1", ""])
def test_hooks_added_later_are_called(name: str) -> None:
    torch.manual_seed(0)
    network = CifarResNet(20).eval()
    runner, x, seen = FastForward(network), torch.rand(2, 3, 32, 32), list[Tensor]()
    runner(x)
    network.get_submodule(name).register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    runner(x)
    network(x)
    assert len(seen) == 2
    torch.testing.assert_close(*seen, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_on_a_network_that_needs_its_layout(everywhere: bool) -> None:
    network = nn.Sequential(Body(flatten_with_view)).eval()
    runner, x, seen = FastForward(network), torch.rand(2, 3, 8, 8), list[nn.Module]()
    assert runner.channels_last
    expected = runner(x)
    register = nn.modules.module.register_module_forward_hook if everywhere else network[0].register_forward_hook
    handle = register(lambda module, inputs, output: seen.append(module))
    try:
        found = runner(x)
    finally:
        handle.remove()
    torch.testing.assert_close(found, expected)
    assert any(module is network[0] for module in seen)


def test_group_normalization_adapts() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    adapter = ttc.adapt(network, "tent")
    assert adapter(torch.rand(8, 3, 9, 9)).isfinite().all()  # channels last would end the process
    assert not runner_of(adapter).channels_last


def test_any_rank_of_input_is_taken() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    fast, plain = pair(network, "tent")
    x = torch.rand(8, 3)
    torch.testing.assert_close(fast(x), plain(x))


def test_autocast_predicts_nearly_alike() -> None:
    torch.manual_seed(0)
    network, batch = CifarResNet(20), torch.rand(16, 3, 32, 32)
    half, full = ttc.adapt(network, "ttc", autocast=True)(batch), ttc.adapt(network, "ttc")(batch)
    assert half.dtype == torch.float32
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, atol=0.2, rtol=0.1)
    adapter = ttc.adapt(network, "ttc")
    with torch.autocast("cpu", torch.bfloat16):  # the caller's own holds too
        assert not torch.equal(adapter(batch), full)
