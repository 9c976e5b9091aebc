"""CoTTA against a transcription of its steps, and its limiting cases."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import BatchAugmentation
from ttc.core import seeded_generator


def batch_statistics(source: nn.Module) -> nn.Module:
    model = copy.deepcopy(source).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    return model


def draws(seed: int, step: int) -> torch.Generator:
    return seeded_generator(seed, step)


@pytest.mark.parametrize(("threshold", "augmented"), [(1.0, True), (0.0, False)])
def test_cotta_by_its_steps(threshold: float, augmented: bool, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "cotta", threshold=threshold, augmentations=3, momentum=0.9, seed=5, accelerate=False)
    student, teacher, anchor = (batch_statistics(model) for _ in range(3))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for step, x in enumerate(stream):
        generator = draws(5, step)
        outputs = student(x)
        with torch.no_grad():
            confidence = anchor(x).softmax(1).max(1).values.mean()
            assert (confidence < threshold) == augmented
            views = [BatchAugmentation()(x, generator) for _ in range(3)] if augmented else [x]
            labels = torch.stack([teacher(view) for view in views]).mean(0)
        loss = -(labels.softmax(1) * outputs.log_softmax(1)).sum(1).mean(0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.copy_(0.9 * slow + (1 - 0.9) * fast)
            for fast, origin in zip(student.parameters(), anchor.parameters(), strict=True):
                mask = (torch.rand(fast.shape, generator=generator) < 0.01).float()
                fast.copy_(origin * mask + fast * (1 - mask))
        torch.testing.assert_close(adapter(x), labels, rtol=1e-5, atol=1e-5)
    for name, parameter in adapter.model.network.named_parameters():
        torch.testing.assert_close(parameter, student.get_parameter(name), rtol=1e-4, atol=1e-5)


def test_a_teacher_that_never_moves_predicts_as_norm(model: nn.Module, stream: list[Tensor]) -> None:
    still, norm = ttc.adapt(model, "cotta", momentum=1.0, threshold=0.0), ttc.adapt(model, "norm")
    for batch in stream:
        assert torch.equal(still(batch), norm(batch))


def test_a_student_that_forgets_everything_is_the_source(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "cotta", restore=1.0)
    for batch in stream:
        adapter(batch)
        for name, parameter in adapter.model.network.named_parameters():
            assert torch.equal(parameter, model.get_parameter(name))


def test_cotta_learns(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "cotta", threshold=0.0, momentum=0.5)
    first = adapter(stream[0])
    for batch in stream:
        adapter(batch)
    assert not torch.allclose(adapter.predict(stream[0]), first, atol=1e-3)


@pytest.mark.parametrize(
    ("classes", "restore", "threshold", "symmetric"),
    [(10, 0.01, 0.92, False), (100, 0.01, 0.72, False), (1000, 0.001, 0.1, True)],
)
def test_defaults_follow_the_number_of_classes(classes: int, restore: float, threshold: float, symmetric: bool) -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)
    )
    adapter: Any = ttc.adapt(network, "cotta")
    assert (adapter.restore, adapter.threshold, adapter.symmetric) == (restore, threshold, symmetric)


def test_cotta_rejects_senseless_options(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=r"threshold lies in \[0, 1\], got 92"):
        ttc.adapt(model, "cotta", threshold=92)
    with pytest.raises(ttc.TTCError, match="positive number of copies, got 0"):
        ttc.adapt(model, "cotta", augmentations=0)
