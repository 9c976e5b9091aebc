import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.bench.conftest import CountedImages, domain, protocol
from ttc.bench import SCENARIOS, Batch, Scenario, evaluate
from ttc.bench.metrics import calibration_error
from ttc.bench.store import TRACE
from ttc.core import Adapter
from ttc.data import as_tensor
from ttc.errors import TTCError
from ttc.methods import METHODS, Method


class Flag:
    """A part whose state is restored by a reset, which it records."""

    state_attributes = ("value",)

    def __init__(self, shown: list[Tensor | str]) -> None:
        self.shown = shown

    @property
    def value(self) -> bool:
        return True

    @value.setter
    def value(self, restored: bool) -> None:
        self.shown.append("reset")


class Recorder(Adapter):
    """Predicts as the source model, and records the batches and resets."""

    state_attributes = ("model", "fresh")

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.shown: list[Tensor | str] = []
        self.fresh = Flag(self.shown)

    def adapt(self, x: Tensor) -> Tensor:
        self.shown.append(x)
        with torch.no_grad():
            return torch.as_tensor(self.model(x).logits)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    made: list[Recorder] = []

    def recorder(model: Any) -> Recorder:
        made.append(Recorder(model))
        return made[-1]

    monkeypatch.setitem(METHODS, "recorder", Method(name="recorder", build=recorder))
    return made


def test_the_figures_are_those_of_a_plain_loop(model: nn.Module) -> None:
    data = domain()
    cell = protocol("ttc", batch_size=16, seed=3)
    found = evaluate(cell, [data], model)
    adapter = ttc.adapt(model, "ttc")
    order = np.random.default_rng((3, 0)).permutation(60)
    logits = torch.empty(60, 4)
    for start in range(0, 60, 16):
        part = order[start : start + 16]
        logits[part] = adapter(as_tensor(data.pixels(part)))
    predictions = logits.argmax(1).numpy()
    np.testing.assert_array_equal(found.predictions, predictions)
    np.testing.assert_array_equal(found.correct, predictions == data.labels)
    assert found.accuracy == found.correct.mean() == found.per_domain[0] == found.per_pass[0]
    labels = torch.from_numpy(data.labels)
    assert found.nll == pytest.approx(float(nn.functional.cross_entropy(logits.double(), labels)), rel=1e-9)
    confidence = logits.double().softmax(1).amax(1).numpy()
    assert found.ece == pytest.approx(calibration_error(confidence, found.correct))
    per_class = [found.correct[data.labels == k].mean() for k in range(4)]
    assert found.per_class == pytest.approx(per_class)
    assert 0.25 < found.accuracy < 1


def test_the_method_is_shown_each_image_once_and_no_label(model: nn.Module, recorded: list[Recorder]) -> None:
    data = domain(25)
    evaluate(protocol("recorder", batch_size=10, images=25), [data], model)
    (recorder,) = recorded
    noise, after_noise, fresh, *rest = recorder.shown
    assert isinstance(noise, Tensor)
    assert (len(noise), after_noise, fresh) == (2, "reset", "reset")
    tensors = [shown for shown in rest if isinstance(shown, Tensor)]
    assert [len(shown) for shown in rest] == [10, 10, 5]
    every = as_tensor(data.pixels(range(25)))
    matches = (torch.cat(tensors)[:, None] == every[None]).flatten(2).all(2)  # (shown, image)
    assert (matches.sum(0) == 1).all()
    assert (matches.sum(1) == 1).all()


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("per-domain", "R 10 10 4 R 10 10 4"),
        ("continual", "10 10 4 10 10 4"),
        ("episodic", "R 10 R 10 R 4 R 10 R 10 R 4"),
        ("mixed", "10 10 10 10 8"),
        ("repeated(epochs=2)", "R 10 10 4 10 10 4 R 10 10 4 10 10 4"),
        ("label-shift(alpha=0.1)", "R 10 10 4 R 10 10 4"),
    ],
)
def test_resets_come_when_the_scenario_says(
    scenario: str, expected: str, model: nn.Module, recorded: list[Recorder]
) -> None:
    domains = [domain(24), domain(24, seed=5)]
    result = evaluate(protocol("recorder", batch_size=10, images=24, scenario=scenario), domains, model)
    shown = recorded[0].shown[2:]
    assert " ".join("R" if isinstance(one, str) else str(len(one)) for one in shown) == expected
    assert len(result.correct) == 48
    assert result.per_domain == [result.correct[:24].mean(), result.correct[24:].mean()]
    plain = evaluate(protocol("source", images=24), domains, model)
    np.testing.assert_array_equal(result.predictions, plain.predictions)  # by domain and index, whatever the order


def test_mixed_batches_show_the_right_pixels(model: nn.Module, recorded: list[Recorder]) -> None:
    domains = [domain(12), domain(12, seed=5, gain=0.2)]
    evaluate(protocol("recorder", batch_size=7, images=12, scenario="mixed"), domains, model)
    shown = torch.cat([one for one in recorded[0].shown[2:] if isinstance(one, Tensor)])
    every = torch.cat([as_tensor(one.pixels(range(12))) for one in domains])
    assert ((shown[:, None] == every[None]).flatten(2).all(2).sum(0) == 1).all()


def test_an_unfair_scenario_is_rejected(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(labels: Any, batch_size: int, seed: int) -> Iterator[Batch]:
        for image in ([0, 1], [1, 2]):
            yield Batch(np.zeros(2, np.int64), np.array(image), reset=False)

    monkeypatch.setitem(SCENARIOS, "twice", Scenario(twice))
    with pytest.raises(TTCError, match="every image once per pass; pass 0 of this one does not"):
        evaluate(protocol(scenario="twice", images=3), [domain(3)], model)


def test_several_passes_report_the_last(model: nn.Module) -> None:
    result = evaluate(protocol("tent", scenario="repeated(epochs=3)"), [domain()], model)
    assert len(result.per_pass) == 3
    assert result.accuracy == result.per_pass[-1] == result.correct.mean()
    assert len(result.trace) == 9
    assert len(result.predictions) == 60


def test_the_same_cell_twice_is_bit_equal_and_leaves_the_generator_alone(model: nn.Module) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = evaluate(protocol("tipi"), [domain()], model)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    other = evaluate(protocol("tipi"), [domain()], model)
    assert (one.accuracy, one.nll, one.ece) == (other.accuracy, other.nll, other.ece)
    np.testing.assert_array_equal(one.trace, other.trace)


def test_the_trace_follows_the_method(model: nn.Module) -> None:
    images, accuracy, entropy, selected, similarity, loss = evaluate(protocol("ttc"), [domain()], model).trace.T
    assert TRACE == ("images", "accuracy", "entropy", "selected", "similarity", "loss")
    assert images.tolist() == [24, 24, 12]
    assert ((selected > 0) & (selected < 1)).all()
    assert ((similarity > 0) & (similarity < 1)).all()
    assert ((entropy > 0) & (entropy < math.log(4))).all()
    assert np.isfinite(loss).all()
    tent = evaluate(protocol("tent"), [domain()], model).trace
    np.testing.assert_allclose(tent[:, 5], tent[:, 2], rtol=1e-5)  # TENT's loss is the mean entropy
    assert (tent[:, 3] == 1).all()
    assert np.isnan(tent[:, 4]).all()
    assert np.isnan(evaluate(protocol("norm"), [domain()], model).trace[:, 3:]).all()
    flipped = evaluate(protocol("tent+flip"), [domain()], model).trace
    np.testing.assert_array_equal(flipped[:, 5], tent[:, 5])
    assert (accuracy * images).sum() == pytest.approx(evaluate(protocol("ttc"), [domain()], model).accuracy * 60)


def test_warnings_are_part_of_the_result(model: nn.Module) -> None:
    result = evaluate(protocol("norm", batch_size=1, images=3), [domain(3)], model)
    assert len(result.warnings) == 1
    assert "a batch of one image" in result.warnings[0]


def test_a_model_with_too_few_classes_is_rejected(model: nn.Module) -> None:
    data = domain()
    many = type(data)("many", data.array, data.labels, 7)
    with pytest.raises(TTCError, match="the model has 4 classes and the data has 7"):
        evaluate(protocol("norm"), [many], model)


def test_other_precisions(model: nn.Module) -> None:
    double = evaluate(protocol("ttc", dtype="float64"), [domain()], copy.deepcopy(model).double())
    single = evaluate(protocol("ttc"), [domain()], model)
    assert double.nll == pytest.approx(single.nll, rel=1e-4)


def test_no_more_images_are_read_at_once_than_a_batch(model: nn.Module) -> None:
    for method, most in (("tent", 7), ("source", 100)):
        data = CountedImages(domain(250))
        evaluate(protocol(method, batch_size=7, images=250), [data], model)
        assert data.most == most


class Wide(CountedImages):
    """Large images that are made on demand: 2,000 of them would take 300 MB."""

    def __init__(self) -> None:
        super().__init__(domain(2000))

    def pixels(self, indices: Any) -> Any:
        return np.repeat(np.repeat(super().pixels(indices), 28, axis=1), 28, axis=2)


@pytest.mark.slow
def test_memory_stays_flat_for_large_images(model: nn.Module) -> None:
    resource = pytest.importorskip("resource")
    cell = protocol("norm", batch_size=10, images=2000)
    evaluate(cell, [domain(20)], model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert evaluate(cell, [Wide()], model).trace.shape == (200, 6)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kilobytes
