"""RoTTA against a transcription of its steps, and its limiting cases."""

import copy
import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import BatchAugmentation
from ttc.core import seeded_generator
from ttc.methods.rotta import RoTTA


class Robust(nn.Module):
    """Robust batch normalization, literally."""

    def __init__(self, source: nn.BatchNorm2d, alpha: float) -> None:
        super().__init__()
        assert source.running_mean is not None
        assert source.running_var is not None
        self.weight, self.bias = (
            nn.Parameter(source.weight.detach().clone()),
            nn.Parameter(source.bias.detach().clone()),
        )
        self.mean, self.var, self.alpha = source.running_mean.clone(), source.running_var.clone(), alpha

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.mean, self.var
        if self.training:
            mean = (1 - self.alpha) * mean + self.alpha * x.mean((0, 2, 3))
            var = (1 - self.alpha) * var + self.alpha * x.var((0, 2, 3), correction=0)
            self.mean, self.var = mean.detach(), var.detach()
        x = (x - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def robust(source: nn.Module, alpha: float) -> nn.Module:
    model = copy.deepcopy(source).requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            model.set_submodule(name, Robust(module, alpha))
    model.get_submodule("dropout").p = 0.0  # type: ignore[assignment]
    return model


def affine(model: nn.Module) -> list[nn.Parameter]:
    return [p for module in model.modules() if isinstance(module, Robust) for p in (module.weight, module.bias)]


class Literal:
    """The steps of the specification, with a memory of [image, uncertainty, age] per class."""

    def __init__(self, source: nn.Module, capacity: int, period: int, nu: float, alpha: float) -> None:
        self.student, self.teacher = robust(source, alpha), robust(source, alpha)
        self.optimizer = torch.optim.Adam(affine(self.student), lr=1e-3)
        self.memory: list[list[list[object]]] = [[] for _ in range(4)]
        self.capacity, self.period, self.nu = capacity, period, nu
        self.count = self.updates = 0

    def score(self, age: float, uncertainty: float) -> float:
        return 1 / (1 + math.exp(-age / self.capacity)) + uncertainty / math.log(4)

    def evict(self, candidates: list[int], new: float) -> bool:
        worst, found = 0.0, None
        for k in candidates:
            for item in self.memory[k]:
                if (score := self.score(item[2], item[1])) >= worst:  # type: ignore[arg-type]
                    worst, found = score, (k, item)
        if found is None or worst <= new:
            return False
        items = self.memory[found[0]]
        del items[next(i for i, item in enumerate(items) if item is found[1])]
        return True

    def insert(self, image: Tensor, label: int, uncertainty: float) -> None:
        sizes, new = [len(items) for items in self.memory], self.score(0, uncertainty)
        if sizes[label] < self.capacity / 4:
            longest = [k for k in range(4) if sizes[k] == max(sizes)]
            room = sum(sizes) < self.capacity or self.evict(longest, new)
        else:
            room = self.evict([label], new)
        if room:
            self.memory[label].append([image, uncertainty, 0])
        for items in self.memory:
            for item in items:
                item[2] += 1  # type: ignore[operator]

    def update(self) -> None:
        items = [item for items in self.memory for item in items]
        images = torch.stack([item[0] for item in items])  # type: ignore[misc]
        ages = torch.tensor([item[2] / self.capacity for item in items])  # type: ignore[operator]
        self.student.train(), self.teacher.train()
        with torch.no_grad():
            labels = self.teacher(images).softmax(1)
        outputs = self.student(BatchAugmentation()(images, seeded_generator(7, self.updates)))
        weights = torch.exp(-ages) / (1 + torch.exp(-ages))
        (weights * -(labels * outputs.log_softmax(1)).sum(1)).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for slow, fast in zip(affine(self.teacher), affine(self.student), strict=True):
                slow.copy_((1 - self.nu) * slow + self.nu * fast)
        self.updates += 1

    def __call__(self, x: Tensor) -> Tensor:
        self.student.eval(), self.teacher.eval()
        with torch.no_grad():
            outputs: Tensor = self.teacher(x)
        p = outputs.softmax(1)
        uncertainty = -(p * torch.log(p + 1e-6)).sum(1)
        for image, label, u in zip(x, outputs.argmax(1), uncertainty, strict=True):
            self.insert(image, int(label), float(u))
            self.count += 1
            if self.count % self.period == 0:
                self.update()
        return outputs


@pytest.mark.parametrize(("capacity", "period"), [(64, 64), (10, 7)])
def test_rotta_by_its_steps(capacity: int, period: int, model: nn.Module, stream: list[Tensor]) -> None:
    literal = Literal(model, capacity, period, nu=0.2, alpha=0.05)
    adapter = ttc.adapt(model, "rotta", capacity=capacity, period=period, nu=0.2, seed=7, accelerate=False)
    for batch in [*stream, *stream]:
        torch.testing.assert_close(adapter(batch), literal(batch), rtol=1e-4, atol=1e-5)
    assert literal.updates == 240 // period


def test_without_updates_of_the_teacher_it_is_source(model: nn.Module, stream: list[Tensor]) -> None:
    still, source = ttc.adapt(model, "rotta", nu=0.0, alpha=0.0), ttc.adapt(model, "source")
    for batch in [*stream, *stream]:
        torch.testing.assert_close(still(batch), source(batch), rtol=1e-5, atol=1e-5)


def test_the_batch_size_makes_no_difference_between_updates(model: nn.Module, stream: list[Tensor]) -> None:
    whole, single = ttc.adapt(model, "rotta"), ttc.adapt(model, "rotta", small_batches=True)
    images = torch.cat(stream)[:63]
    expected = whole(images)
    found = torch.cat([single(image[None]) for image in images])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_rotta_learns(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "rotta")
    first = adapter.predict(stream[0])
    for batch in stream * 3:
        adapter(batch)
    assert not torch.allclose(adapter.predict(stream[0]), first, atol=1e-2)


def test_rotta_rejects_senseless_options(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=r"nu is the weight of a new value and lies in \[0, 1\], got 2"):
        ttc.adapt(model, "rotta", nu=2)
    with pytest.raises(ttc.TTCError, match="period is a positive number of images, got 0"):
        ttc.adapt(model, "rotta", period=0)


def test_absurd_images_are_not_stored(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "rotta", capacity=8, period=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the range of the images
        adapter(torch.rand(4, 3, 8, 8) * 1e6)  # an update is due, and there is nothing to learn from
    assert isinstance(adapter, RoTTA)
    assert len(adapter.memory) == 0
    adapter(torch.rand(4, 3, 8, 8))
    assert len(adapter.memory) > 0
