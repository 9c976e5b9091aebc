"""The mean teacher: average, random restoration and its losses."""

import torch
import torch.nn.functional as F
from torch import nn

from ttc.clustering import restore_randomly_, soft_cross_entropy, symmetric_cross_entropy, update_average_


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Linear(40, 5))


def test_the_average_moves_trained_parameters_only() -> None:
    teacher, student = network(0), network(1)
    student[2].requires_grad_(False)
    before = [parameter.detach().clone() for parameter in teacher.parameters()]
    with torch.no_grad():
        student[1](torch.randn(8, 40))  # other running statistics
    update_average_(teacher, student, 0.9)
    for old, now, target in zip(before, teacher.parameters(), student.parameters(), strict=True):
        torch.testing.assert_close(now, 0.9 * old + 0.1 * target if target.requires_grad else old)
    assert torch.equal(teacher.get_buffer("1.running_mean"), torch.zeros(40))


def test_the_average_with_weight_zero_is_the_student() -> None:
    teacher, student = network(0), network(1)
    update_average_(teacher, student, 0.0)
    for one, other in zip(teacher.parameters(), student.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_restoring_is_per_scalar() -> None:
    model, source = network(0), network(1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    restore_randomly_(model, source, 0.3, torch.Generator().manual_seed(0))
    fraction = []
    for old, now, origin in zip(before, model.parameters(), source.parameters(), strict=True):
        restored = now == origin
        assert torch.equal(now, torch.where(restored, origin, old))
        if not torch.equal(old, origin):
            fraction.append(restored.float().flatten())
    assert 0.25 < torch.cat(fraction).mean() < 0.35


def test_restoring_all_or_nothing() -> None:
    model, source = network(0), network(1)
    restore_randomly_(model, source, 0.0, torch.Generator())
    assert torch.equal(model.get_parameter("0.weight"), network(0).get_parameter("0.weight"))
    restore_randomly_(model, source, 1.0, torch.Generator())
    for one, other in zip(model.parameters(), source.parameters(), strict=True):
        assert torch.equal(one, other)


def test_soft_cross_entropy_is_that_of_torch() -> None:
    target, logits = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        soft_cross_entropy(target, logits), F.cross_entropy(logits, target.softmax(1), reduction="none")
    )


def test_the_symmetric_one_is_symmetric_with_gradients_to_both() -> None:
    target, logits = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), requires_grad=True).unbind()
    torch.testing.assert_close(symmetric_cross_entropy(target, logits), symmetric_cross_entropy(logits, target))
    gradients = torch.autograd.grad(symmetric_cross_entropy(target, logits).sum(), [target, logits])
    assert all(bool(gradient.any()) for gradient in gradients)
