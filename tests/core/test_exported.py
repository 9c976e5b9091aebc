"""The module to take away predicts as the adapter does, and is a plain module."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import GaussianNoise
from ttc.core import Adapter
from ttc.core.statistics import statistics_layers


def adapted(model: nn.Module, stream: list[Tensor], method: str, **options: Any) -> Adapter:
    adapter = ttc.adapt(model, method, **options)
    for batch in (*stream, *stream):
        adapter(batch)
    return adapter


def assert_plain(module: nn.Module) -> None:
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert not statistics_layers(module)
    assert not any(layer._forward_pre_hooks or layer._forward_hooks for layer in module.modules())


@pytest.mark.parametrize(
    ("method", "options", "views"),
    [
        ("source", {}, 1),
        ("t3a", {}, 1),
        ("t3a-paper", {}, 1),
        ("norm-ema", {}, 1),
        ("tipi", {}, 1),
        ("source+flip", {}, 2),
        ("tent", {"small_batches": True}, 1),
        ("ttc", {"small_batches": True}, 2),
        ("ttc", {"small_batches": True, "return_plain": True}, 1),
        ("ttc", {"small_batches": True, "normalize": (0.4, 0.3)}, 2),
        ("ttc", {"small_batches": True, "fuse": "probabilities"}, 2),
    ],
    ids=str,
)
def test_stored_statistics_give_the_adapters_predictions(
    method: str, options: dict[str, Any], views: int, model: nn.Module, stream: list[Tensor]
) -> None:
    adapter = adapted(model, stream, method, **options)
    module = adapter.export(second_view=views > 1)
    assert_plain(module)
    for images in (stream[0], stream[1][:1]):  # one by one as well
        torch.testing.assert_close(module(images), adapter.predict(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["norm", "norm-blend", "tent", "eta", "ttc"])
def test_batch_statistics_become_those_of_the_images_given(method: str, model: nn.Module, stream: list[Tensor]) -> None:
    options: dict[str, Any] = {"return_plain": True} if method == "ttc" else {}
    adapter, images = adapted(model, stream, method, **options), torch.cat(stream)
    module = adapter.export(statistics=images)
    assert_plain(module)
    torch.testing.assert_close(module(images), adapter.predict(images), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(module(images[:1]), module(images)[:1], rtol=1e-4, atol=1e-5)


MORE_THAN_A_NETWORK = {"lame", "memo", "tast", "cotta", "rmt", "roid", "steady"}
NEEDS = {"eata": 64, "rmt": 64}  # source images


@pytest.mark.parametrize("name", sorted(name for name in ttc.METHODS if not name.startswith("tent+")))
@pytest.mark.filterwarnings("ignore")
def test_every_method_is_exported_exactly_or_rejected(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    options: dict[str, Any] = {"source_images": torch.rand(NEEDS[name], 3, 8, 8)} if name in NEEDS else {}
    adapter = ttc.adapt(model, name, small_batches=True, **options)
    for batch in stream:
        adapter(batch)
    needs_statistics = name in {"norm-blend", "memo"}
    arguments: dict[str, Any] = {"statistics": torch.cat(stream)} if needs_statistics else {}
    if name in MORE_THAN_A_NETWORK:
        with pytest.raises(ttc.TTCError, match="predicts with more than its network"):
            adapter.export(**arguments)
        return
    second = len(adapter.export_base.export_parts().views) > 1
    module, images = adapter.export(second_view=second, **arguments), torch.cat(stream)
    torch.testing.assert_close(module(images), adapter.predict(images), rtol=1e-3, atol=1e-3)


def test_a_window_has_its_own_images(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = adapted(model, stream, "tent", small_batches="window")
    assert adapter.recent_images is not None
    module = adapter.export()
    # The window without a new image is what the module was made from.
    plain = ttc.adapt(model, "tent")
    plain.model.load_state_dict(adapter.model.state_dict())
    torch.testing.assert_close(
        module(adapter.recent_images), plain.predict(adapter.recent_images), rtol=1e-4, atol=1e-4
    )


def test_the_second_view_of_batch_statistics_is_close(model: nn.Module, stream: list[Tensor]) -> None:
    adapter, images = adapted(model, stream, "ttc"), torch.cat(stream)
    module = adapter.export(statistics=images, second_view=True)
    agreement = (module(images).argmax(1) == adapter.predict(images).argmax(1)).float().mean()
    assert agreement > 0.95


def test_a_transformer_needs_no_statistics(stream: list[Tensor]) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
    adapter = adapted(network, stream, "tent")
    torch.testing.assert_close(adapter.export()(stream[0]), adapter.predict(stream[0]))


def test_a_module_shares_nothing_with_the_adapter(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = adapted(model, stream, "ttc", small_batches=True)
    before = copy.deepcopy(adapter.state_dict())
    module = adapter.export()
    first = module(stream[0])
    for batch in stream:
        adapter(batch)
    assert torch.equal(module(stream[0]), first)
    adapter.load_state_dict(before)
    for tensor in module.state_dict().values():
        tensor.zero_()
    torch.testing.assert_close(adapter.export()(stream[0]), first)


def test_torch_export_and_pickle_take_it(model: nn.Module, stream: list[Tensor]) -> None:
    module = adapted(model, stream, "ttc", small_batches=True, normalize=(0.4, 0.3)).export(second_view=True)
    expected = module(stream[0])
    program = torch.export.export(module, (stream[0],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.testing.assert_close(program.module()(stream[0][:5]), expected[:5], rtol=1e-4, atol=1e-5)
    assert torch.equal(pickle.loads(pickle.dumps(module))(stream[0]), expected)


@pytest.mark.parametrize(
    ("method", "options", "arguments", "message"),
    [
        ("tent", {}, {}, r"export\(statistics=images\), or adapt with small_batches=True"),
        ("tent", {"small_batches": True}, {"statistics": torch.rand(8, 3, 8, 8)}, "leave out statistics="),
        ("tent", {}, {"statistics": torch.rand(1, 3, 8, 8)}, "takes a batch of images, .* got one image"),
        ("tent", {"small_batches": True}, {"second_view": True}, "one view of an image; leave out second_view"),
        ("ttc", {"view": GaussianNoise()}, {"statistics": torch.rand(8, 3, 8, 8), "second_view": True}, "random view"),
        ("t3a", {"output": lambda output: output}, {}, "export without output="),
    ],
)
@pytest.mark.filterwarnings("ignore:a batch of one image")
def test_what_cannot_be_exported_says_why(
    method: str, options: dict[str, Any], arguments: dict[str, Any], message: str, model: nn.Module
) -> None:
    adapter = ttc.adapt(model, method, **options)
    adapter.predict(torch.rand(4, 3, 8, 8))
    with pytest.raises(ttc.TTCError, match=message):
        adapter.export(**arguments)


def test_a_module_is_compared_with_predictions(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="predict or adapt to a batch first"):
        ttc.adapt(model, "source").export()


def test_a_convolutional_head_is_not_replaced() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 6, 1), nn.Flatten()
    )
    with pytest.raises(ttc.TTCError, match=r"exported for nn.Linear, got Conv2d"):
        ttc.adapt(network, "t3a", head="3").export()
