"""SHOT-IM against a literal transcription of its steps, and against TENT."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import ttc


def test_shot_im_is_the_literal_algorithm(model: nn.Module, stream: list[Tensor]) -> None:
    literal = copy.deepcopy(model).eval()
    for module in literal.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    optimizer = torch.optim.Adam(literal.get_submodule("body").parameters(), lr=1e-4)
    adapter = ttc.adapt(model, "shot-im", accelerate=False)
    for batch in stream:
        logits = literal(batch)
        p = logits.softmax(1)
        entropy = -(p * logits.log_softmax(1)).sum(1).mean()
        p_bar = p.mean(0)
        loss = entropy + (p_bar * torch.log(p_bar + 1e-5)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(adapter(batch), logits, rtol=1e-5, atol=1e-5)
    start = model.get_submodule("body.0").weight
    moved = adapter.model.network.get_submodule("body.0").weight
    assert isinstance(start, Tensor)
    assert isinstance(moved, Tensor)
    assert not torch.equal(start, moved)


def test_shot_im_on_norms_without_diversity_is_tent(model: nn.Module, stream: list[Tensor]) -> None:
    make = partial(torch.optim.Adam, lr=1e-3)
    adapter = ttc.adapt(model, "shot-im", diversity=0.0, trains="norm affine", optimizer=make)
    tent = ttc.adapt(model, "tent")
    for batch in stream:
        assert torch.equal(adapter(batch), tent(batch))


def test_a_single_image_is_predicted_and_not_learned_from(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "shot-im")
    before = {name: tensor.clone() for name, tensor in adapter.model.named_parameters()}
    with pytest.warns(UserWarning, match="batch of one"):
        adapter(stream[0][:1])
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter.model.named_parameters())


def test_a_model_that_is_only_a_head_is_rejected() -> None:
    with pytest.raises(ttc.TTCError, match="no parameters beside its head"):
        ttc.adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "shot-im")
