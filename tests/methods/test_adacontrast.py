"""AdaContrast against a transcription of its steps, and its limiting case."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttc
from ttc.clustering import random_flip, strong_view
from ttc.core import seeded_generator


class Literal:
    """The steps of the specification with torch's BatchNorm in training mode and ring buffers."""

    def __init__(self, source: nn.Module, capacity: int, refine_after: int, seed: int) -> None:
        self.query = copy.deepcopy(source)
        self.query.get_submodule("dropout").p = 0.0  # type: ignore[assignment]
        self.key = copy.deepcopy(self.query)
        self.optimizer = torch.optim.SGD(
            self.query.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
        )
        generator = seeded_generator(seed, 0)
        self.queue = F.normalize(torch.randn(capacity, 16, generator=generator)).double()
        self.labels = torch.randint(4, (capacity,), generator=generator)
        self.bank: list[tuple[Tensor, Tensor]] = []
        self.capacity, self.refine_after, self.seed = capacity, refine_after, seed
        self.pointer = self.seen = self.step = 0

    @staticmethod
    def forward(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        features = model.get_submodule("body")(x).mean((2, 3))
        return features, model.get_submodule("fc")(features)

    def refined(self, features: Tensor, logits: Tensor) -> Tensor:
        if self.seen < self.refine_after:
            return logits.argmax(1)
        stored = torch.stack([feature for feature, _ in self.bank])
        probabilities = torch.stack([probability for _, probability in self.bank])
        found = []
        for feature in features:
            cosine = F.cosine_similarity(feature[None], stored)
            found.append(probabilities[cosine.argsort(descending=True)[:10]].mean(0).argmax())
        return torch.stack(found)

    def __call__(self, x: Tensor) -> Tensor:
        generator = seeded_generator(self.seed, self.step)
        w, q, k = random_flip(x, generator), strong_view(x, generator), strong_view(x, generator)
        self.query.train(), self.key.train()
        with torch.no_grad():
            labels = self.refined(*self.forward(self.query, w))
        features, logits = self.forward(self.query, q)
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)
            keys = F.normalize(self.forward(self.key, k)[0])
        losses = []
        for unit, key, label in zip(F.normalize(features), keys, labels, strict=True):
            others = self.queue[self.labels != label]
            terms = torch.cat([(unit @ key)[None], others @ unit]) / 0.07
            losses.append(terms.logsumexp(0) - terms[0])
        for key, label in zip(keys, labels, strict=True):
            self.queue[self.pointer], self.labels[self.pointer] = key, label
            self.pointer = (self.pointer + 1) % self.capacity
        p = logits.softmax(1).mean(0)
        loss = F.cross_entropy(logits, labels) + torch.stack(losses).mean() + (p * (p + 1e-8).log()).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            features, logits = self.forward(self.key, w)
            self.bank += list(zip(features, logits.softmax(1), strict=True))
            self.bank = self.bank[-self.capacity :]
            self.query.eval()
            prediction: Tensor = self.query(x)
        self.seen += len(x)
        self.step += 1
        return prediction


@pytest.mark.parametrize(("capacity", "refine_after"), [(100, 40), (4096, 1024)])
def test_adacontrast_by_its_steps(capacity: int, refine_after: int, model: nn.Module, stream: list[Tensor]) -> None:
    double = copy.deepcopy(model).double()
    optimizer = partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    adapter = ttc.adapt(
        double,
        "adacontrast",
        optimizer=optimizer,
        momentum=0.9,
        capacity=capacity,
        refine_after=refine_after,
        seed=6,
        accelerate=False,
    )
    literal = Literal(double, capacity, refine_after, 6)
    for batch in [*stream, *stream]:
        x = batch.double()
        torch.testing.assert_close(adapter(x), literal(x), rtol=1e-5, atol=1e-5)


def test_without_a_learning_rate_it_is_source(model: nn.Module, stream: list[Tensor]) -> None:
    still = ttc.adapt(model, "adacontrast", optimizer=partial(torch.optim.SGD, lr=0.0), statistics_momentum=0.0)
    source = ttc.adapt(model, "source")
    for batch in stream:
        torch.testing.assert_close(still(batch), source(batch))


def test_adacontrast_learns(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "adacontrast", statistics_momentum=0.0, optimizer=partial(torch.optim.SGD, lr=0.01))
    first = adapter.predict(stream[0])
    for batch in stream:
        adapter(batch)
    assert not torch.allclose(adapter.predict(stream[0]), first, atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity is a positive number, got 0"),
        ({"momentum": -1.0}, r"momentum lies in \[0, 1\], got -1"),
    ],
)
def test_adacontrast_rejects_senseless_options(options: dict[str, Any], message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "adacontrast", **options)
