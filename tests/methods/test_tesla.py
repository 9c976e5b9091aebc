"""TeSLA against a transcription of its steps, and its limiting case."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import AugmentationPolicy
from ttc.core import seeded_generator
from ttc.methods.tesla import easy_view


class Literal:
    """The steps of the specification with torch's BatchNorm in training mode."""

    def __init__(self, source: nn.Module, policy: AugmentationPolicy) -> None:
        self.student = copy.deepcopy(source)
        self.student.get_submodule("dropout").p = 0.0  # type: ignore[assignment]
        self.student.get_submodule("fc").requires_grad_(False)
        self.teacher, self.policy = copy.deepcopy(self.student), copy.deepcopy(policy)
        self.optimizer = torch.optim.Adam([p for p in self.student.parameters() if p.requires_grad], lr=1e-3)
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.1)
        self.inputs: list[Tensor] = []
        for module in self.teacher.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.register_forward_pre_hook(lambda _, args: self.inputs.append(args[0].mean((2, 3))))

    def recorded(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        self.inputs = []
        logits = self.teacher(x)
        return logits, self.inputs

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        self.student.train(), self.teacher.train()
        views = [x] + [easy_view(x, generator) for _ in range(4)]
        chosen = int(torch.randint(5, (), generator=generator))
        with torch.no_grad():
            outputs = [self.recorded(view) for view in views]
        q = torch.stack([logits.softmax(1) for logits, _ in outputs]).mean(0)
        view, means = views[chosen], outputs[chosen][1]
        pairs = torch.randint(91, (len(x),), generator=generator)
        signs = torch.randint(2, (len(x), 2), generator=generator) * 2 - 1
        logits, new_means = self.recorded(self.policy(view, pairs, signs))
        p = logits.softmax(1)
        entropy = -(p * logits.log_softmax(1)).sum(1)
        distance = sum(((a - b) ** 2).mean(1) for a, b in zip(means, new_means, strict=True)) / len(means)
        r = -entropy + distance
        self.policy_optimizer.zero_grad()
        (r.mean() + (r.detach() * self.policy.logits.softmax(0).log()[pairs]).mean()).backward()
        self.policy_optimizer.step()
        with torch.no_grad():
            pairs = torch.multinomial(self.policy.logits.softmax(0), len(x), replacement=True, generator=generator)
            signs = torch.randint(2, (len(x), 2), generator=generator) * 2 - 1
            hard = self.policy(view, pairs, signs)
        p = self.student(view).softmax(1)
        loss = -(p * q.log()).sum(1).mean() + (p.mean(0) * (p.mean(0) + 1e-8).log()).sum()
        p_hard = self.student(hard).softmax(1)
        loss = loss + (q * (q.log() - p_hard.log())).sum(1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
            self.teacher.eval()
            prediction: Tensor = self.teacher(x)
        return prediction


def test_tesla_by_its_steps(model: nn.Module, stream: list[Tensor]) -> None:
    double = copy.deepcopy(model).double()  # rounding tips levels of posterized images over
    adapter: Any = ttc.adapt(double, "tesla", momentum=0.9, seed=4, accelerate=False)
    literal = Literal(double, adapter.hard.policy)
    for step, batch in enumerate(stream):
        generator = seeded_generator(4, step)
        torch.testing.assert_close(adapter(batch.double()), literal(batch.double(), generator), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(adapter.hard.policy.logits, literal.policy.logits, rtol=1e-5, atol=1e-5)


def test_a_teacher_that_never_moves_predicts_as_source(model: nn.Module, stream: list[Tensor]) -> None:
    still, source = ttc.adapt(model, "tesla", momentum=1.0, statistics_momentum=0.0), ttc.adapt(model, "source")
    for batch in stream:
        torch.testing.assert_close(still(batch), source(batch))


def test_the_policy_learns_to_make_the_teacher_uncertain(model: nn.Module, stream: list[Tensor]) -> None:
    adapter: Any = ttc.adapt(model, "tesla", momentum=1.0, statistics_momentum=0.0)  # the same teacher throughout
    images = torch.cat(stream)

    def entropy() -> float:
        hard = adapter.hard.policy(images, *adapter.hard.policy.sample(len(images), torch.Generator().manual_seed(0)))
        p = adapter.predict(hard.detach()).softmax(1)
        return float(-(p * p.clamp(min=1e-9).log()).sum(1).mean())

    before = entropy()
    for batch in stream * 6:
        adapter(batch)
    assert entropy() > before


def test_tesla_learns(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "tesla", statistics_momentum=0.0, momentum=0.5)
    first = adapter.predict(stream[0])
    for batch in stream:
        adapter(batch)
    assert not torch.allclose(adapter.predict(stream[0]), first, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 2.0}, r"momentum lies in \[0, 1\], got 2"),
        ({"easy_views": -1}, "easy_views is a number of views, got -1"),
    ],
)
def test_tesla_rejects_senseless_options(options: dict[str, Any], message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "tesla", **options)
