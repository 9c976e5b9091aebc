"""ETA against a literal transcription of its steps, bit for bit."""

import math

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import Literal


@pytest.mark.parametrize(("name", "margin"), [("eta", 0.4 * math.sqrt(10 / 4)), ("eta-paper", 0.05)])
def test_eta_is_the_literal_algorithm(name: str, margin: float, model: nn.Module, stream: list[Tensor]) -> None:
    literal = Literal(model, False, False, False, False)
    adapter = ttc.adapt(model, name, accelerate=False)
    average: Tensor | None = None
    limit, sizes = 0.4 * math.log(4), []
    for batch in stream * 2:
        logits = literal.model(batch)
        probability = logits.softmax(1)
        log_p = logits.log_softmax(1)
        ent = -(log_p.exp() * log_p).sum(1)
        chosen = ent < limit
        if average is not None:
            chosen &= torch.cosine_similarity(average[None], probability).abs() < margin
        sizes.append(int(chosen.sum()))
        if chosen.any():
            mean = probability[chosen].mean(0).detach()
            average = mean if average is None else 0.9 * average + (1 - 0.9) * mean
            weights = torch.exp(limit - ent.detach()) * chosen
            ((ent * weights).sum() / chosen.sum()).backward()
            literal.optimizer.step()
            literal.optimizer.zero_grad()
        assert torch.equal(adapter(batch), logits)
    assert all(0 < size < 24 for size in sizes[:1])
    assert (sum(sizes[1:]) == 0) == (name == "eta-paper")  # the paper's margin selects nothing after the first batch
