"""An adapter inside other modules behaves like a module."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc


def test_it_adapts_inside_a_sequence_in_either_mode(model: nn.Module, stream: list[Tensor]) -> None:
    plain = ttc.adapt(model, "tent")
    chain = nn.Sequential(ttc.adapt(model, "tent").as_module(), nn.Softmax(1)).eval()
    for number, batch in enumerate(stream):
        chain.train(number % 2 == 1)
        assert torch.equal(chain(batch), plain(batch).softmax(1))
    assert not any(layer.training for layer in chain[0].network.modules())  # type: ignore[union-attr]


def test_adapting_can_be_switched_off(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "tent")
    module = adapter.as_module()
    module(stream[0])
    module.adapting = False
    before = adapter.predict(stream[1])
    assert torch.equal(module(stream[1]), before)
    assert torch.equal(module(stream[1]), before)


def test_its_state_dict_is_all_that_changes(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    chain = nn.Sequential(ttc.adapt(model, "ttc", accumulate=2).as_module())
    for batch in stream[:3]:  # with gradients pending
        chain(batch)
    torch.save(chain.state_dict(), tmp_path / "chain.pt")
    assert {"0.network.fc.weight", "0._extra_state"} <= set(chain.state_dict())
    other = nn.Sequential(ttc.adapt(model, "ttc", accumulate=2).as_module())
    other.load_state_dict(torch.load(tmp_path / "chain.pt", weights_only=True))
    for batch in stream:
        assert torch.equal(other(batch), chain(batch))


def test_copies_are_independent(model: nn.Module, stream: list[Tensor]) -> None:
    module = ttc.adapt(model, "tent").as_module()
    module(stream[0])
    copied = copy.deepcopy(module)
    assert copied.network is copied.adapter.model.network
    expected = module(stream[1])
    assert torch.equal(copied(stream[1]), expected)


def test_moving_it_moves_the_adapter(model: nn.Module, stream: list[Tensor]) -> None:
    module = ttc.adapt(model, "tent").as_module()
    assert nn.Sequential(module).to("cpu").float()[0] is module
    assert torch.equal(module(stream[0]), ttc.adapt(model, "tent")(stream[0]))


def test_what_a_module_cannot_do_says_why(model: nn.Module, stream: list[Tensor]) -> None:
    module = ttc.adapt(model, "tent").as_module()
    for convert in (module.half, module.double):
        with pytest.raises(ttc.TTCError, match=r"computes in torch.float32; convert the model before ttc.adapt"):
            convert()
    with pytest.raises(Exception, match=r"cannot be traced; export a module: adapter.export\(\)"):
        torch.export.export(module, (stream[0],))
