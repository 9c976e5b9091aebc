"""DeYO against a literal transcription of its steps, and its entropy part alone."""

import math

import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import with_batch_statistics
from ttc.core import seeded_generator


def shuffled(x: Tensor, order: Tensor) -> Tensor:
    """Patches of 2 × 2 pixels of images of 8 × 8, image by image in the given order."""
    result = torch.empty_like(x)
    for image, target, cells in zip(x, result, order.tolist(), strict=True):
        for place, cell in enumerate(cells):
            row, column, from_row, from_column = place // 4 * 2, place % 4 * 2, cell // 4 * 2, cell % 4 * 2
            target[:, row : row + 2, column : column + 2] = image[
                :, from_row : from_row + 2, from_column : from_column + 2
            ]
    return result


def test_deyo_by_its_steps(model: nn.Module, stream: list[Tensor]) -> None:
    network, theta = with_batch_statistics(model)
    optimizer = torch.optim.Adam(theta, lr=1e-3)
    adapter = ttc.adapt(model, "deyo", accelerate=False, seed=7)
    sizes = []
    for step, x in enumerate(stream * 2):
        logits = network(x)
        torch.testing.assert_close(adapter(x), logits.detach(), rtol=1e-5, atol=1e-5)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
        first = (entropy < 0.5 * math.log(4)).nonzero().flatten()
        order = torch.rand(len(first), 16, generator=seeded_generator(7, step)).argsort(1)
        with torch.no_grad():
            p = logits[first].softmax(1)
            destroyed = network(shuffled(x[first], order)).softmax(1)
        label = p.argmax(1)
        plpd = p[range(len(first)), label] - destroyed[range(len(first)), label]
        second = plpd > 0.2
        sizes.append((len(first), int(second.sum())))
        h = entropy[first][second]
        loss = ((torch.exp(0.4 * math.log(4) - h.detach()) + torch.exp(plpd[second])) * h).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(0 < both < one < 24 for one, both in sizes), sizes  # both tests leave samples out


def test_without_plpd_its_entropy_part_is_eta_without_redundancy(model: nn.Module, stream: list[Tensor]) -> None:
    deyo = ttc.adapt(model, "deyo", plpd_threshold=None, entropy_threshold=0.6, entropy_margin=0.6)
    eta = ttc.adapt(model, "eta", entropy_margin=0.6, redundancy_margin=2.0)  # no cosine exceeds one
    for x in stream * 2:
        torch.testing.assert_close(deyo(x), eta(x), rtol=1e-5, atol=1e-5)


def test_without_selected_samples_nothing_moves(model: nn.Module, stream: list[Tensor]) -> None:
    nothing_confident = ttc.adapt(model, "deyo", entropy_threshold=0.0)
    nothing_shaped = ttc.adapt(model, "deyo", plpd_threshold=1.0)
    for adapter in (nothing_confident, nothing_shaped):
        assert torch.equal(adapter(stream[0]), adapter(stream[0]))
