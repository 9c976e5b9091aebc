"""STEADY against a plain transcription of its steps, and what its options leave out."""

import copy
import math
import statistics
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.state import check_state
from ttc.corruptions import corrupt
from ttc.data import as_tensor
from ttc.methods.steady import Steady
from ttc.nn import Sharpness, domain_tensors, flatten_domain, pooled_layers

MEMORIES, STRENGTHS = (2, 8, 32, 128), (0.1, 0.5, 2.0, 8.0)


class LiteralPool(nn.Module):
    """The statistics of (N, C, H, W): the pool, the recent average, their distance; flips take those of their batch."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        mean, var = layer.running_mean, layer.running_var
        assert mean is not None
        assert var is not None
        self.source = self.pool = self.recent = torch.stack([mean, var + mean.square()])  # first and second moment
        self.spread, self.images, self.seen = torch.zeros_like(mean), 16.0, 0.0
        self.distance, self.tolerance = 0.0, 6.0
        self.flips, self.used = False, (mean, var)
        self.amount = torch.zeros(())

    def equalize(self, x: Tensor) -> Tensor:
        source, weight = self.source[0].view(1, -1, 1, 1), self.amount / 2
        variance = (self.source[1] - self.source[0].square() + self.eps).view(1, -1, 1, 1)
        mean = x.detach().mean((2, 3), keepdim=True)
        own = x.detach().var((2, 3), correction=0, keepdim=True) + self.eps
        mixed = (1 - weight) * variance + weight * own + weight * (1 - weight) * (mean - source).square()
        return (x - source - weight * (mean - source)) * (variance / mixed).sqrt() + source

    def forward(self, x: Tensor) -> Tensor:
        x = self.equalize(x)
        if self.flips:
            return nn.functional.batch_norm(x, *self.used, self.weight, self.bias, eps=self.eps)
        n = len(x)
        batch = torch.stack([x.mean((0, 2, 3)), x.square().mean((0, 2, 3))])
        with torch.no_grad():
            weight, forget = n / (self.images + n), (31 / 32) ** n
            self.pool = (1 - weight) * self.pool + weight * batch
            self.recent = forget * self.recent + (1 - forget) * batch
            spread = (x.mean((2, 3)) - self.recent[0]).square().mean(0)
            self.spread = (self.seen * self.spread + n * spread) / (self.seen + n)
            effective = 1 / ((1 - forget) ** 2 / n + forget**2 / 64)
            self.distance = float(((self.recent[0] - self.pool[0]).square() / (self.spread / effective)).mean())
            self.images, self.seen = min(300.0, self.images + n), min(284.0, self.seen + n)
            share = max(0.0, 1 - self.tolerance / self.distance)
            (m, v), (mr, vr) = ((s[0], s[1] - s[0].square()) for s in (self.pool, self.recent))
            mean, variance = self.used = m + share * (mr - m), v + share * (vr - v)
            std = (variance + self.eps).sqrt()
        batch_mean, batch_std = batch[0], (batch[1] - batch[0].square() + self.eps).sqrt()
        scale, shift = (batch_std / std).detach(), ((batch_mean - mean) / std).detach()
        one, two, r, d, w, b = (
            t.view(1, -1, 1, 1) for t in (batch_mean, batch_std, scale, shift, self.weight, self.bias)
        )
        return ((x - one) / two * r + d) * w + b


class LiteralPrior:
    """The hypotheses on the class prior, one after another, image by image."""

    def __init__(self, classes: int) -> None:
        self.hypotheses = [(1 - 1 / m, k) for m in MEMORIES for k in STRENGTHS]
        self.hypotheses += [(1 - 1 / 1000, k) for k in (*STRENGTHS, classes, 5 * classes)]
        self.start = [math.log(w) for w in [0.25] + [0.5 / 16] * 16 + [0.25 / 6] * 6]
        self.weights, self.classes = list(self.start), classes
        self.past: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in self.hypotheses]

    def prior(self, labels: list[Tensor], past: list[Tensor], i: int, decay: float, strength: float) -> Tensor:
        every = past + labels
        total, weights = torch.full((self.classes,), strength / self.classes), strength
        for j, label in enumerate(every):
            if j != len(past) + i:
                total = total + decay ** abs(len(past) + i - j) * label
                weights += decay ** abs(len(past) + i - j)
        return total / weights

    def __call__(self, logits: Tensor) -> Tensor:
        p, found = list((logits / 1.5).softmax(1)), [torch.full_like(logits, 1 / self.classes)]
        log_weights = [a + (w - a) * (299 / 300) ** len(p) for a, w in zip(self.start, self.weights, strict=True)]
        for h, (decay, strength) in enumerate(self.hypotheses):
            corrected, plain = self.past[h]
            priors = [self.prior(p, plain, i, decay, strength) for i in range(len(p))]
            log_weights[h + 1] += sum(
                float((self.classes * (a * b).sum()).log()) for a, b in zip(p, priors, strict=True)
            )
            labels = p
            for _ in range(3):
                labels = [a * b / (a * b).sum() for a, b in zip(p, priors, strict=True)]
                priors = [self.prior(labels, corrected, i, decay, strength) for i in range(len(p))]
            self.past[h] = (corrected + labels, plain + p)
            found.append(torch.stack(priors))
        weights = torch.tensor(log_weights).softmax(0)
        self.weights = weights.log().tolist()
        found[17:] = found[-1:] * 6  # the long run corrects with its most careful estimate
        return torch.einsum("h,hnk->nk", weights, torch.stack(found))

    @property
    def correlation(self) -> float:
        return sum(math.exp(w) for w in self.weights[1:17])


def adam_with_amounts(parameters: list[Tensor], amounts: list[Tensor]) -> torch.optim.Adam:
    return torch.optim.Adam([{"params": parameters, "lr": 1e-2}, {"params": amounts, "lr": 0.1}])


def filtered(x: Tensor, amount: Tensor) -> Tensor:
    weights = torch.tensor([1.0, 2.0, 1.0]).outer(torch.tensor([1.0, 2.0, 1.0])) / 16
    channels = x.shape[1]
    padded = nn.functional.pad(x, (1, 1, 1, 1), mode="replicate")
    smooth = nn.functional.conv2d(padded, weights.expand(channels, 1, 3, 3), groups=channels)
    return x + amount * (x - smooth)


def label(model: nn.Module, pools: list[LiteralPool], x: Tensor, sharpness: Tensor) -> Tensor:
    """Predict a batch, and average with the flip, as a constant, where the two best classes are closer than 0.8."""
    logits = model(filtered(x, sharpness))
    for layer in pools:
        layer.flips = True
    with torch.no_grad():
        flipped = model(filtered(x.flip(3), sharpness))
    for layer in pools:
        layer.flips = False
    rows = []
    for one, other in zip(logits, flipped, strict=True):
        first, second = one.detach().softmax(0).sort(descending=True).values[:2]
        rows.append(one + (other - one.detach()) / 2 if first - second < 0.8 else one)
    return torch.stack(rows)


def transcription(source: nn.Module, stream: list[Tensor]) -> list[Tensor]:
    model = copy.deepcopy(source).eval().requires_grad_(False)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            model.set_submodule(name, LiteralPool(layer))
    pools = [layer for layer in model.modules() if isinstance(layer, LiteralPool)]
    parameters = [p.requires_grad_(True) for layer in pools for p in (layer.weight, layer.bias)]
    origin = [p.detach().clone() for p in parameters]
    sharpness = torch.zeros((), requires_grad=True)
    equalizations = [torch.tensor(0.2, requires_grad=True) for _ in range(math.ceil(len(pools) / 3))]
    for layer, amount in zip(pools, equalizations, strict=False):
        layer.amount = amount
    optimizer = adam_with_amounts(parameters, [sharpness, *equalizations])
    estimate, classes, outputs, waiting = LiteralPrior(4), 4, [], 0
    mean_entropy, predicted = None, torch.full((4,), 0.25)
    for x in stream:
        n = len(x)
        logits = label(model, pools, x, sharpness)
        if statistics.geometric_mean(1 + float(layer.distance / layer.tolerance) for layer in pools) > 1.5:
            with torch.no_grad():
                for parameter, start in zip(parameters, origin, strict=True):
                    parameter.copy_(start)
                sharpness.zero_()
                for amount in equalizations:
                    amount.fill_(0.2)
            optimizer, waiting = adam_with_amounts(parameters, [sharpness, *equalizations]), 0
            optimizer.zero_grad()
            for layer in pools:
                layer.pool = layer.recent = (layer.source + layer.recent) / 2
                layer.images, layer.seen = 16.0, 0.0
            logits = label(model, pools, x, sharpness)
        prior = estimate(logits.detach())
        outputs.append((logits + (classes * prior).log()).detach())
        log_p = logits.log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        follow = 1 - 0.99**n
        batch_mean = entropy.detach().mean()
        mean_entropy = batch_mean if mean_entropy is None else mean_entropy + follow * (batch_mean - mean_entropy)
        p = logits.softmax(1)
        predicted = predicted + follow * (p.detach().mean(0) - predicted)
        loss = (torch.exp(mean_entropy - entropy.detach()) * entropy).sum()
        loss = loss + (p * (4 * predicted).log()).sum()
        (loss / 100).backward()
        waiting += n
        if waiting >= 100:
            caution, before = 1 - 0.8 * estimate.correlation, sharpness.item()
            optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = 1e-2 * caution, 0.1 * caution
            optimizer.step()
            optimizer.zero_grad()
            waiting = 0
            with torch.no_grad():
                for parameter, start in zip(parameters, origin, strict=True):
                    parameter.copy_(0.997 * parameter + 0.003 * start)
                sharpness.copy_((0.997 * sharpness).clamp(-1, 1))
                for amount in equalizations:
                    amount.copy_((0.997 * amount + 0.003 * 0.2).clamp(0, 1))
                for layer in pools:
                    layer.images *= 1 - min(0.9, 3 * abs(sharpness.item() - before))
                    layer.seen = max(0.0, layer.images - 16)
        for layer in pools:
            layer.tolerance = 6 + 22 * estimate.correlation
    return outputs


def test_steady_follows_its_steps(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady", accelerate=False)
    batches = [
        *stream,
        *(batch[:7] for batch in stream),
        *(1 - batch for batch in stream),
    ]  # smaller, then a new domain
    for x, expected in zip(batches, transcription(model, batches), strict=True):
        torch.testing.assert_close(adapter(x), expected, rtol=2e-3, atol=2e-3)


def test_a_new_domain_restarts_the_pools(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady")
    for batch in stream * 4:
        adapter(batch)
    before = float(adapter.model.network.body[1].images)  # type: ignore[union-attr, index]
    for batch in stream[:2]:
        adapter(1 - batch)
    assert float(adapter.model.network.body[1].images) < before  # type: ignore[union-attr, index]


@pytest.mark.parametrize(("size", "returns"), [(24, True), (8, False)])
def test_it_returns_to_the_domain_before(size: int, returns: bool, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady")
    assert isinstance(adapter, Steady)
    for batch in stream * 4:
        adapter(batch)
    known, images = flatten_domain(domain_tensors(adapter.model)), adapter.domain_images
    for batch in stream[:2]:
        adapter(1 - batch)
    assert adapter.domain_images < images
    assert adapter.parked.values is not None
    torch.testing.assert_close(adapter.parked.values, known, rtol=0, atol=0)
    for batch in torch.cat(stream).split(size):  # few images cannot show that a domain has come back
        adapter(batch)
    assert (adapter.domain_images > images) == returns


@pytest.mark.parametrize("values", [torch.zeros(3, dtype=torch.float64), torch.zeros(()), 1.0])
def test_a_parked_domain_of_another_model_is_rejected(values: Any, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady")
    for batch in (*stream, 1 - stream[0]):
        adapter(batch)
    state = adapter.state_dict()
    assert state["parked"]["values"] is not None
    check_state(ttc.adapt(model, "steady"), state)
    state["parked"]["values"] = values
    with pytest.raises(ValueError, match="another model"):
        check_state(ttc.adapt(model, "steady"), state)


def test_outliers_and_blank_images_leave_no_trace(model: nn.Module, stream: list[Tensor]) -> None:
    undisturbed, disturbed = ttc.adapt(model, "steady"), ttc.adapt(model, "steady")
    for batch in stream:
        torch.testing.assert_close(disturbed(batch), undisturbed(batch), rtol=0, atol=0)
        disturbed(torch.zeros_like(batch))
        disturbed(torch.full_like(batch, 0.5))
        disturbed(batch * 8)
    for batch in stream:
        torch.testing.assert_close(disturbed(batch), undisturbed(batch), rtol=0, atol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"flip": False},
        {"sharpness": False},
        {"equalize": False},
        {"pool": False},
        {"class_prior": False},
        {"weighting": False},
        {"balance": False},
        {"pull": 0.5},
        {"learn_every": 0},
    ],
)
def test_every_part_matters(options: dict[str, Any], model: nn.Module, stream: list[Tensor]) -> None:
    whole, reduced = ttc.adapt(model, "steady"), ttc.adapt(model, "steady", **options)
    batches = [batch[batch.mean((1, 2, 3)).argsort()] for batch in stream] * 3  # ordered, so that the prior has work
    outputs = [(whole(batch), reduced(batch)) for batch in batches]
    assert not torch.allclose(*outputs[-1])
    assert all(one.isfinite().all() for pair in outputs for one in pair)


def test_a_budget_applies_once_enough_of_a_domain_is_learned(
    model: nn.Module, stream: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttc.methods.steady.WARM_UP", 2 * len(stream[0]))
    adapter = ttc.adapt(model, "steady", learn_every=3)
    assert isinstance(adapter, Steady)
    waiting = []
    for batch in stream * 2:
        adapter(batch)
        waiting.append(adapter.updater.accumulated_samples)
    learned = [later != earlier for earlier, later in zip([0, *waiting], waiting, strict=False)]
    assert learned[:6] == [True, True, True, False, False, True]


def steady_of(norms: list[nn.BatchNorm2d], classes: int = 4) -> Steady:
    """Adapt a network with these normalization layers of three channels."""
    blocks = [layer for norm in norms for layer in (nn.Conv2d(3, 3, 1), norm)]
    adapter = ttc.adapt(nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes)), "steady")
    assert isinstance(adapter, Steady)
    return adapter


@pytest.mark.parametrize(("layers", "count"), [(2, 16), (20, 16), (40, 32)])
def test_deeper_networks_trust_the_source_longer(layers: int, count: int) -> None:
    adapter = steady_of([nn.BatchNorm2d(3) for _ in range(layers)])
    assert {float(layer.images) for layer in pooled_layers(adapter.model)} == {count}


@pytest.mark.parametrize(("scales", "rate"), [((0.3, -0.5), 4e-3), ((2.0, 1.0), 1e-2)])
@pytest.mark.parametrize("classes", [4, 1000])
def test_a_step_is_one_percent_of_the_scales_at_most(scales: tuple[float, ...], rate: float, classes: int) -> None:
    norms = [nn.BatchNorm2d(3) for _ in scales]
    for norm, scale in zip(norms, scales, strict=True):
        nn.init.constant_(norm.weight, scale)
    assert steady_of(norms, classes).updater.learning_rates == [pytest.approx(rate), 0.1]


def test_only_doubtful_images_are_flipped(model: nn.Module, stream: list[Tensor]) -> None:
    """Record the batches that the network gets: all images, then those whose two best classes are close."""
    adapter = ttc.adapt(model, "steady", learn_every=0, class_prior=False)
    assert isinstance(adapter, Steady)
    x, seen = torch.cat(stream), list[Tensor]()
    adapter.model.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    adapter.doubt = 0.0
    best = adapter.predict(x).softmax(1).sort(descending=True).values
    margins = best[:, 0] - best[:, 1]
    adapter.doubt = float(margins.median())
    seen.clear()
    adapter.predict(x)
    every, flipped = seen[-2:]  # before them, the first call looks for the head
    assert len(every) == len(x)
    torch.testing.assert_close(flipped, every[margins < margins.median()].flip(3))


def test_gradients_pass_through_the_image_alone(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady")
    passes: list[bool] = []
    adapter.model.network.register_forward_hook(lambda _, __, output: passes.append(output.requires_grad))
    adapter(stream[0])
    assert passes[-2:] == [True, False]  # before them, the first call looks for the head


@pytest.mark.parametrize(("corruption", "sign"), [("gaussian_noise", -1), ("defocus_blur", 1)])
def test_noise_is_smoothed_and_blur_is_sharpened(corruption: str, sign: int) -> None:
    images = ttc.data.embedded()
    batches = as_tensor(corrupt(images.pixels(range(600)), corruption, severity=5, seed=0)).split(100)
    labels = torch.from_numpy(images.labels[:600]).split(100)
    learned, fixed = (ttc.adapt(ttc.models.embedded(), "steady", sharpness=option) for option in (True, False))
    right = {learned: 0, fixed: 0}
    for x, y in zip(batches, labels, strict=True):
        for adapter in right:
            right[adapter] += int((adapter(x).argmax(1) == y).sum())
    layer = learned.model.input_filter
    assert isinstance(layer, Sharpness)
    assert 0.1 < sign * layer.amount.item() <= 1
    assert right[learned] > right[fixed]


def test_a_step_brings_the_sharpness_into_its_limits(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady")
    layer = adapter.model.input_filter
    assert isinstance(layer, Sharpness)
    layer.amount.data.fill_(3.0)  # steps of 0.1 and the pull would take long
    for batch in stream * 2:
        adapter(batch)
    assert abs(layer.amount.item()) <= 1


def test_without_learning_parameters_stay(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "steady", learn_every=0)
    assert isinstance(adapter, Steady)
    for batch in stream * 3:
        adapter(batch)
    source = dict(model.named_parameters())
    for name, parameter in adapter.model.network.named_parameters():
        if not name.endswith("equalization.amount"):
            assert torch.equal(parameter, source[name])


def test_the_first_single_image_is_predicted_much_as_by_the_source(model: nn.Module, stream: list[Tensor]) -> None:
    image = stream[0][:1]
    both = torch.cat([image, image.flip(3)])
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(both).mean(0, keepdim=True)
    found = ttc.adapt(model, "steady")(image)
    assert (found.softmax(1) - expected.softmax(1)).abs().max() < 0.2


@pytest.mark.parametrize(("option", "value"), [("learn_every", -1), ("pull", 1.5)])
def test_invalid_options_are_rejected(option: str, value: Any, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=option):
        ttc.adapt(model, "steady", **{option: value})
