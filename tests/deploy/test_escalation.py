"""Levels of the guard: what collapse, drift and values that are not finite lead to, and how it steps down."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.deploy.test_guard import EVERY_BATCH, NO_COMPARISON, Images, accuracy, shifted
from ttc.clustering import Assignment, ClusteringAdapter
from ttc.core import Adapter, Classifier
from ttc.deploy import Event, Guard, Policy
from ttc.nn import BatchStatisticsNorm, copy_with_trainable_norms, frozen_copy


class Collapsing(Adapter):
    """Predicts well for a while, then collapses into one class, as entropy minimization does on long streams."""

    state_attributes = ("model", "bias")
    bias = 0.0

    def adapt(self, x: Tensor) -> Tensor:
        """Return the model's logits, with more for class 0 after every batch."""
        self.bias += 0.5
        return self.infer(x)

    def infer(self, x: Tensor) -> Tensor:
        """Return the same without raising the bias."""
        with torch.no_grad():
            logits = self.model(x).logits
        return logits + max(0.0, self.bias - 10) * torch.eye(4)[0]


def test_collapse_escalates_level_by_level(model: nn.Module, labelled: Images) -> None:
    images, labels = shifted(labelled, 4000, seed=3)
    seen: list[Event] = []
    network = frozen_copy(Classifier(model), BatchStatisticsNorm)
    guard = Guard(Collapsing(network), Policy(source_fraction=0, patience=1000), on_event=seen.append)
    source, plain = ttc.adapt(model, "source"), Collapsing(frozen_copy(Classifier(model), BatchStatisticsNorm))
    batches = list(zip(images.split(50), labels.split(50), strict=True))
    shipped, guarded, bare = (accuracy(predict, batches) for predict in (source, guard, plain))
    assert bare < shipped - 0.05  # the unguarded one collapsed
    assert guarded >= shipped - 0.01
    assert [event.action for event in seen] == ["warn", "rollback", "freeze"]
    assert all("one class" in event.reason or "effective classes" in event.reason for event in seen)
    assert seen == list(guard.events)
    assert guard.stats["rollbacks"] == 2
    assert guard.mode == "frozen"  # at a healthy state
    assert guard.adapter.predict(images[:50]).argmax(1).bincount().max() < 25


def test_drift_rolls_back_at_once(model: nn.Module, labelled: Images) -> None:
    images, _ = shifted(labelled, 500, seed=3)
    guard = Guard(ttc.adapt(model, "tent", optimizer=partial(torch.optim.Adam, lr=0.1)), Policy(source_fraction=0))
    for batch in images.split(50):
        guard(batch)
    assert guard.events[0].action in {"rollback", "source"}
    assert any("the parameters drifted by" in event.reason for event in guard.events)
    assert guard.stats["parameter_drift"] <= 0.5 or guard.mode != "adapting"


def test_parameters_that_are_not_finite_are_rolled_back(model: nn.Module, stream: list[Tensor]) -> None:
    guard = Guard(ttc.adapt(model, "tent"), NO_COMPARISON)
    first = guard(stream[0])
    with torch.no_grad():
        for parameter in guard.adapter.model.parameters():
            if parameter.requires_grad:
                parameter.fill_(float("nan"))
    assert torch.equal(guard(stream[0]), first)  # rolled back to the initial state, and predicted
    assert [tuple(event) for event in guard.events] == [
        (24, "rollback", "the parameters or the running statistics are not finite")
    ]
    for _ in range(20):
        assert guard(stream[1]).isfinite().all()


def test_a_step_that_is_not_finite_is_undone_and_reported(model: nn.Module, stream: list[Tensor]) -> None:
    guard = Guard(ttc.adapt(model, "tent"), EVERY_BATCH)
    guard(stream[0])
    assert isinstance(guard.adapter, ClusteringAdapter)
    guard.adapter.updater.accumulated[0] = torch.full_like(guard.adapter.updater.parameters[0], float("inf"))
    with pytest.warns(UserWarning, match="was not finite and was undone"):
        assert guard(stream[1]).isfinite().all()
    assert "not finite" in guard.events[-1].reason
    assert guard(stream[2]).isfinite().all()
    assert guard.adapter.updater.accumulated[0] is None


def test_a_batch_whose_gradient_is_not_finite_teaches_nothing(model: nn.Module, stream: list[Tensor]) -> None:
    def infinite(assignment: Assignment) -> Tensor:
        return assignment.entropy * (float("inf") if wild else 1.0)

    wild = False
    adapter = ClusteringAdapter(copy_with_trainable_norms(Classifier(model)), torch.optim.Adam, losses=(infinite,))
    guard = Guard(adapter, EVERY_BATCH)
    guard(stream[0])
    before = adapter.state_dict()["model"]
    wild = True
    with pytest.warns(UserWarning, match="the gradient of a batch is not finite: nothing was learned"):
        assert guard(stream[1]).isfinite().all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter.state_dict()["model"].items())
    assert tuple(guard.events[-1]) == (48, "warn", "gradients were not finite (batches dropped: 1)")
    assert guard.stats["dropped_batches"] == 1
    wild = False
    guard(stream[2])
    assert not all(torch.equal(tensor, before[name]) for name, tensor in adapter.state_dict()["model"].items())
    assert guard.stats["level"] == 1


def test_it_steps_down_when_the_stream_is_healthy_again(model: nn.Module, labelled: Images) -> None:
    images, _ = shifted(labelled, 1200, seed=8)
    guard = Guard(ttc.adapt(model, "ttc"), Policy(patience=2, source_fraction=0))
    for _ in range(6):  # nearly alike: all of one class
        guard(images[:1] + 1e-3 * torch.rand(50, *images.shape[1:]))
    assert guard.mode == "source"
    for batch in images.split(50):
        guard(batch)
    assert guard.mode == "adapting"
    assert [event.action for event in guard.events] == ["source", *["step down"] * 4]
