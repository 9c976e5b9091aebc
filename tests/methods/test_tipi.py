"""TIPI against a transcription of its steps."""

import copy

import pytest
import torch
from torch import Tensor, nn

import ttc


def batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


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
            prediction: Tensor = self.following(self.main, x) if self.large_batch else self.main(x)
        return prediction


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
        generator = torch.Generator().manual_seed((3 * 0x9E3779B9 + step) % 2**32)
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
    standardized = ttc.adapt(copy.deepcopy(model).double(), "tipi", random_start=True, standardized=(mean, std))
    for batch in stream:
        x = batch.double()
        standard = (x - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
        torch.testing.assert_close(plain(x), standardized(standard), rtol=1e-4, atol=1e-4)


def test_tipi_rejects_words_for_numbers(model: nn.Module) -> None:
    with pytest.raises(
        ttc.TTCError, match="batch_statistics_above must be a whole number, 'auto' or None, got 'always'"
    ):
        ttc.adapt(model, "tipi", batch_statistics_above="always")
