"""COME against a literal transcription of its steps, and its limit with much evidence."""

import copy
from functools import partial

import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import with_batch_statistics


def test_come_by_its_steps(model: nn.Module, stream: list[Tensor]) -> None:
    network, theta = with_batch_statistics(model)
    optimizer = torch.optim.SGD(theta, lr=0.1)
    adapter = ttc.adapt(model, "come", accelerate=False, optimizer=partial(torch.optim.SGD, lr=0.1))
    tent = ttc.adapt(model, "tent", accelerate=False, optimizer=partial(torch.optim.SGD, lr=0.1))
    for x in stream * 2:
        logits = network(x)
        torch.testing.assert_close(adapter(x), logits.detach(), rtol=1e-5, atol=1e-5)
        other = tent(x)
        norm = logits.square().sum(1, keepdim=True).sqrt()
        evidence = (logits / norm * norm.detach()).exp()
        strength = evidence.sum(1) + 4
        belief, uncertainty = evidence / strength[:, None], 4 / strength
        loss = -(belief * belief.log()).sum(1) - uncertainty * uncertainty.log()
        loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (other - logits.detach()).abs().max() > 1e-3


class Confident(nn.Module):
    """A model whose logits are all raised by a constant: the same predictions, much more evidence."""

    def __init__(self, model: nn.Module, constant: float) -> None:
        super().__init__()
        self.inner = copy.deepcopy(model)
        with torch.no_grad():
            self.inner.get_parameter("fc.bias").add_(constant)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x)
        return logits


def test_with_much_evidence_come_is_tent(model: nn.Module, stream: list[Tensor]) -> None:
    """No uncertainty is left, and the norm changes along the constant, to which the entropy is blind."""
    double = Confident(model, 1e5).double()
    optimizer = partial(torch.optim.SGD, lr=0.1)
    come, tent = (ttc.adapt(double, name, optimizer=optimizer, head="inner.fc") for name in ("come", "tent"))
    unlearned = ttc.adapt(double, "norm", head="inner.fc")
    for x in [batch.double() for batch in stream * 2]:
        found, expected = come(x), tent(x)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert (expected - unlearned(x)).abs().max() > 0.05
