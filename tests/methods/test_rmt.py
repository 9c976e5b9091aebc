"""RMT against a transcription of its steps, and its limiting cases."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttc
from ttc.clustering import BatchAugmentation
from ttc.core import seeded_generator

SOURCE = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LABELS = torch.arange(40) % 4


class Literal:
    """The steps of the specification on a network with batch statistics."""

    def __init__(self, source: nn.Module, projector: nn.Module) -> None:
        self.student = copy.deepcopy(source).eval()
        for module in self.student.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.track_running_stats, module.running_mean, module.running_var = False, None, None
        self.teacher, self.projector = copy.deepcopy(self.student), copy.deepcopy(projector)
        self.optimizer = torch.optim.Adam([*self.student.parameters(), *self.projector.parameters()], lr=1e-3)
        with torch.no_grad():
            features = torch.cat([self.forward(self.student, part)[1] for part in SOURCE.split(16)])
        self.prototypes = torch.stack([features[k == LABELS].mean(0) for k in range(4)])

    @staticmethod
    def forward(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        features = model.get_submodule("body")(x).mean((2, 3))
        return model.get_submodule("fc")(features), features

    @staticmethod
    def sce(student: Tensor, teacher: Tensor) -> Tensor:
        p, q = student.softmax(1), teacher.softmax(1)
        return -0.5 * (q * p.log()).sum(1) - 0.5 * (p * q.log()).sum(1)

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)

    def warm_up(self, order: Tensor, steps: int) -> None:
        for i in range(steps):
            self.optimizer.param_groups[0]["lr"] = 1e-3 * (i + 1) / steps
            x = SOURCE[order[16 * i : 16 * (i + 1)]]
            with torch.no_grad():
                labels = self.teacher(x)
            self.step(self.sce(self.student(x), labels).mean())

    def contrast(self, features: Tensor, augmented: Tensor) -> Tensor:
        cosine = F.cosine_similarity(features[:, None], self.prototypes[None], dim=2)
        nearest = self.prototypes[cosine.argmax(1)]
        z = [F.normalize(self.projector(part), dim=1) for part in (nearest, features, augmented)]
        vectors = torch.cat(z)  # view after view
        n, terms = len(features), []
        for a in range(3 * n):
            similar = vectors @ vectors[a] / 0.1
            rest = torch.cat([similar[:a], similar[a + 1 :]]).logsumexp(0)
            terms.append(torch.stack([rest - similar[p] for p in range(3 * n) if p % n == a % n and p != a]).mean())
        return torch.stack(terms).mean()

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        outputs, features = self.forward(self.student, x)
        augmented, augmented_features = self.forward(self.student, BatchAugmentation()(x, generator))
        with torch.no_grad():
            labels: Tensor = self.teacher(x)
        rows = torch.randint(40, (len(x),), generator=generator)
        loss = (0.5 * self.sce(outputs, labels) + 0.5 * self.sce(augmented, labels)).mean()
        loss = loss + self.contrast(features, augmented_features)
        loss = loss + F.cross_entropy(self.student(SOURCE[rows]), LABELS[rows])
        self.step(loss)
        return outputs.detach() + labels


def test_rmt_by_its_steps(model: nn.Module, stream: list[Tensor]) -> None:
    double = copy.deepcopy(model).double()
    adapter: Any = ttc.adapt(
        double,
        "rmt",
        source_images=SOURCE,
        source_labels=LABELS,
        warm_up_samples=100,
        warm_up_batch=16,
        momentum=0.9,
        seed=2,
        accelerate=False,
    )
    generator = seeded_generator(2, 0)
    first, second = torch.empty(128, 16), torch.empty(128, 128)
    for weight in (first, second):
        bound = 1 / math.sqrt(weight.shape[1])
        weight.uniform_(-bound, bound, generator=generator)
        torch.empty(128).uniform_(-bound, bound, generator=generator)
    assert torch.equal(adapter.projector[0].weight, first.double())
    assert torch.equal(adapter.projector[2].weight, second.double())
    literal = Literal(double, adapter.projector)
    literal.warm_up(torch.cat([torch.randperm(40, generator=generator) for _ in range(3)]), 6)
    for step, batch in enumerate(stream):
        draws = seeded_generator(2, step)
        x = batch.double()
        torch.testing.assert_close(adapter(x), literal(x, draws), rtol=1e-5, atol=1e-5)


def test_without_losses_it_is_twice_norm(model: nn.Module, stream: list[Tensor]) -> None:
    weights: dict[str, Any] = {"source_weight": 0.0, "target_weight": 0.0, "contrast_weight": 0.0}
    still = ttc.adapt(model, "rmt", source_images=SOURCE, warm_up_samples=0, **weights)
    norm = ttc.adapt(model, "norm")
    for batch in stream:
        torch.testing.assert_close(still(batch), 2 * norm(batch))


def test_labels_left_out_are_the_source_models_predictions(model: nn.Module, stream: list[Tensor]) -> None:
    labels = ttc.adapt(model, "source")(SOURCE.float()).argmax(1)
    given = ttc.adapt(model, "rmt", source_images=SOURCE, source_labels=labels, warm_up_samples=0)
    derived = ttc.adapt(model, "rmt", source_images=SOURCE, warm_up_samples=0)
    for batch in stream:
        assert torch.equal(given(batch), derived(batch))


def test_reset_restores_the_state_after_the_warm_up(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "rmt", source_images=SOURCE, warm_up_samples=200, warm_up_batch=20)
    warm = adapter.predict(stream[0])
    assert not torch.equal(warm, ttc.adapt(model, "rmt", source_images=SOURCE, warm_up_samples=0).predict(stream[0]))
    for batch in stream:
        adapter(batch)
    assert not torch.allclose(adapter.predict(stream[0]), warm, atol=1e-2)
    adapter.reset()
    assert torch.equal(adapter.predict(stream[0]), warm)


def test_a_saved_adapter_is_loaded_with_its_source_images(
    model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    adapter = ttc.adapt(model, "rmt", source_images=SOURCE, warm_up_samples=60, warm_up_batch=20)
    adapter(stream[0])
    adapter.save(tmp_path / "rmt.safetensors")
    with pytest.raises(ttc.TTCError, match="pass it again as source_images="):
        ttc.load_adaptation(model, tmp_path / "rmt.safetensors")
    loaded = ttc.load_adaptation(model, tmp_path / "rmt.safetensors", source_images=SOURCE)
    assert torch.equal(loaded(stream[1]), adapter(stream[1]))


def test_building_draws_nothing_from_the_global_generator(model: nn.Module) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    ttc.adapt(model, "rmt", source_images=SOURCE, warm_up_samples=64, warm_up_batch=32)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'rmt' needs source images before it adapts; pass source_images="),
        ({"source_images": SOURCE, "source_labels": LABELS[:3]}, "one whole number per source image"),
        ({"source_images": SOURCE, "source_labels": LABELS + 1}, "class indices below 4"),
        ({"source_images": SOURCE, "momentum": 1.5}, r"momentum lies in \[0, 1\], got 1.5"),
    ],
    ids=str,
)
def test_rmt_rejects_what_it_cannot_use(options: dict[str, Any], message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "rmt", **options)
