"""NORM's variants, T3A and TIPI against transcriptions of their specified steps."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc


def batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def features_of(model: nn.Module, x: Tensor) -> Tensor:
    body = model.get_submodule("body")(x)
    assert isinstance(body, Tensor)
    return body.mean((2, 3))


def test_source_is_the_model_in_evaluation_mode(model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    adapter = ttc.adapt(model, "source")
    adapter.model.quick = False
    for batch in stream:
        assert torch.equal(adapter(batch), reference(batch))


def test_norm_is_batchnorm_alone_in_training_mode(model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    for module in batch_norms(reference):
        module.train()
    adapter = ttc.adapt(model, "norm")
    adapter.model.quick = False
    for batch in stream:
        assert torch.equal(adapter(batch), reference(batch))


def test_norm_without_batchnorm_is_source() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    x = torch.rand(4, 3, 8, 8)
    assert torch.equal(ttc.adapt(model, "norm")(x), ttc.adapt(model, "source")(x))


@pytest.mark.parametrize("momentum", [0.1, 0.5])
def test_norm_ema_follows_then_predicts(momentum: float, model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    for module in batch_norms(reference):
        module.momentum = momentum
    adapter = ttc.adapt(model, "norm-ema", momentum=momentum)
    for batch in stream:
        with torch.no_grad():
            for module in batch_norms(reference):
                module.train()
            reference(batch)
            expected = reference.eval()(batch)
        torch.testing.assert_close(adapter(batch), expected)


def test_norm_ema_refuses_a_weight_out_of_range(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=r"momentum is the weight of a new batch and lies in \[0, 1\], got 2"):
        ttc.adapt(model, "norm-ema", momentum=2)


def test_norm_blend_defaults_to_sixteen_source_images(model: nn.Module, stream: list[Tensor]) -> None:
    default, explicit = ttc.adapt(model, "norm-blend"), ttc.adapt(model, "norm-blend", alpha=24 / (24 + 16))
    torch.testing.assert_close(default(stream[0]), explicit(stream[0]))


@pytest.mark.parametrize(("options", "keep"), [({}, 100), ({"filter_size": 3}, 3), ({"filter_size": None}, 10**9)])
def test_t3a_by_its_steps(options: dict[str, Any], keep: int, model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    adapter = ttc.adapt(model, "t3a", **options)
    weight, bias = (tensor.detach() for tensor in reference.get_submodule("fc").parameters())

    def triples(features: Tensor) -> list[tuple[Tensor, int, float]]:
        logits = features @ weight.T + bias
        log_p = logits.log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        return [(f, int(row.argmax()), float(e)) for f, row, e in zip(features, logits, entropy, strict=True)]

    supports = triples(weight)
    for batch in stream:
        with torch.no_grad():
            features = features_of(reference, batch)
        supports += triples(features)
        supports = [s for k in range(4) for s in sorted([s for s in supports if s[1] == k], key=lambda s: s[2])[:keep]]
        prototypes = []
        for k in range(4):
            total = torch.stack([f / f.norm() for f, label, _ in supports if label == k]).sum(0)
            prototypes.append(total / total.norm())
        torch.testing.assert_close(adapter(batch), features @ torch.stack(prototypes).T, rtol=1e-4, atol=1e-5)
    if keep == 3:
        assert len(supports) == 12


def test_t3a_without_data_is_the_cosine_head() -> None:
    head = nn.Linear(12, 3, bias=False)
    model = nn.Sequential(nn.Flatten(), head)
    nn.init.orthogonal_(head.weight)  # every row is its own class
    adapter = ttc.adapt(model, "t3a", filter_size=1)
    x = torch.zeros(1, 3, 2, 2)
    x[0, 0, 0, 0] = 1e-6  # a feature too unsure to displace a row of the classifier
    unit = nn.functional.normalize(head.weight.detach())
    torch.testing.assert_close(adapter(x), x.flatten(1) @ unit.T)


def test_t3a_gives_a_class_without_supports_the_lowest_score() -> None:
    head = nn.Linear(12, 3)
    model = nn.Sequential(nn.Flatten(), head)
    with torch.no_grad():
        head.weight.fill_(0.1)
        head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))  # every row is labelled 0
    scores = ttc.adapt(model, "t3a")(torch.rand(4, 3, 2, 2))
    assert scores.isfinite().all()
    assert (scores.argmax(1) == 0).all()
    assert (scores[:, 1:] == torch.finfo(torch.float32).min).all()


@pytest.mark.parametrize(
    ("size", "message"), [(0, "positive number of samples a class"), ("all", "a number, None for all")]
)
def test_t3a_refuses_a_senseless_filter(size: Any, message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "t3a", filter_size=size)


class TwoBranchTIPI:
    """TIPI's steps on a model with two copies of every BatchNorm that share scale and shift."""

    def __init__(self, source: nn.Module, entropy_weight: float, large_batch: bool, lr: float) -> None:
        self.main = copy.deepcopy(source).eval().requires_grad_(False)
        self.adversarial = copy.deepcopy(self.main)
        for one, other in zip(batch_norms(self.main), batch_norms(self.adversarial), strict=True):
            other.weight, other.bias = one.weight, one.bias
        self.parameters = [p for bn in batch_norms(self.main) for p in (bn.weight, bn.bias)]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.entropy_weight, self.large_batch, self.lr = entropy_weight, large_batch, lr
        self.optimizer = torch.optim.SGD(self.parameters, lr=lr)

    @staticmethod
    def following(model: nn.Module, x: Tensor) -> Tensor:
        for module in batch_norms(model):
            module.train()
        logits: Tensor = model(x)
        model.eval()
        return logits

    def __call__(self, x: Tensor, start: Tensor) -> Tensor:
        epsilon = 2 / 255
        logits = self.following(self.main, x)
        target = logits.detach().softmax(1)
        delta = start.clone().requires_grad_(True)
        p = self.following(self.adversarial, x + delta).softmax(1)
        (p * (p.log() - target.log())).sum(1).mean().backward()
        assert delta.grad is not None
        moved = (delta + epsilon * delta.grad.sign()).clamp(-epsilon, epsilon).detach()
        p = self.following(self.adversarial, x + moved).softmax(1)
        q = logits.softmax(1)
        loss = (p * (p.log() - target.log())).sum(1) - self.entropy_weight * (q * q.log()).sum(1)
        self.optimizer.zero_grad()
        loss.mean().backward()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * len(x) / 10
        self.optimizer.step()
        with torch.no_grad():
            answer: Tensor = self.following(self.main, x) if self.large_batch else self.main(x)
        return answer


@pytest.mark.parametrize("large_batch", [True, False])
@pytest.mark.parametrize("entropy_weight", [0.0, 5.0])
def test_tipi_by_its_steps(entropy_weight: float, large_batch: bool, model: nn.Module, stream: list[Tensor]) -> None:
    double = copy.deepcopy(model).double()  # rounding noise decides signs in float32
    literal = TwoBranchTIPI(double, entropy_weight, large_batch, lr=0.01)
    adapter = ttc.adapt(
        double,
        "tipi",
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        lr_reference_batch=10,
        entropy_weight=entropy_weight,
        random_start=True,
        batch_statistics_above=4 if large_batch else None,
        seed=3,
    )
    for step, batch in enumerate(stream):
        generator = torch.Generator().manual_seed((3 << 32) + step)
        start = (torch.rand(batch.shape, generator=generator) * 2 - 1).double() * 2 / 255
        torch.testing.assert_close(adapter(batch.double()), literal(batch.double(), start))


def test_tipi_scales_its_step_with_the_batch(model: nn.Module, stream: list[Tensor]) -> None:
    def moved(size: int) -> float:
        adapter = ttc.adapt(model, "tipi", random_start=True)
        before = [parameter.clone() for parameter in adapter.model.parameters() if parameter.requires_grad]
        adapter(stream[0][:size])
        after = [parameter for parameter in adapter.model.parameters() if parameter.requires_grad]
        return max(float((new - old).detach().abs().max()) for new, old in zip(after, before, strict=True))

    assert moved(24) == pytest.approx(2 * moved(12), rel=1e-2)  # the first step of Adam moves by the rate
    assert moved(24) == pytest.approx(1e-3 * 24 / 200, rel=1e-2)


def test_tipi_perturbs_in_pixels_of_standardized_images(model: nn.Module, stream: list[Tensor]) -> None:
    """A model of standardized images with ``normalize`` moves as the same model of plain images does."""
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    shape = (1, 3, 1, 1)

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = copy.deepcopy(model).double()

        def forward(self, x: Tensor) -> Tensor:
            standard = (x - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
            logits: Tensor = self.inner(standard)
            return logits

    plain = ttc.adapt(Plain(), "tipi", random_start=True, head="inner.fc")
    standardized = ttc.adapt(copy.deepcopy(model).double(), "tipi", random_start=True, normalize=(mean, std))
    for batch in stream:
        x = batch.double()
        standard = (x - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
        torch.testing.assert_close(plain(x), standardized(standard), rtol=1e-4, atol=1e-4)


def test_tipi_refuses_words_for_numbers(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="are numbers, None or 'auto'"):
        ttc.adapt(model, "tipi", batch_statistics_above="always")
