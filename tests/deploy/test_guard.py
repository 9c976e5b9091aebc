"""The guard: what it detects, what it does about it, what it stores, and how to roll back."""

import copy
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.test_contract import OPTIONS
from ttc.core import Adapter
from ttc.corruptions import corrupt
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.deploy import Event, Guard, Level, Limits, Policy
from ttc.models import embedded
from ttc.nn import source_classifier

Images = Callable[[int, float, int], tuple[Tensor, Tensor]]
# A flip changes the stripes of the small images, so most tests here do without the comparison with the source model.
NO_COMPARISON = Policy(source_fraction=0)
AGREEING = Policy(limits=Limits(consistency_gap=0.9))  # compared, but the adapted model stays preferred
EVERY_BATCH = Policy(check_every=1, snapshot_every=1, patience=2, source_fraction=0)


def shifted(labelled: Images, count: int, seed: int) -> tuple[Tensor, Tensor]:
    images, labels = labelled(count, 1.0, seed)
    return images * torch.tensor([0.3, 0.5, 0.9]).view(1, 3, 1, 1) + 0.25, labels


def accuracy(predict: Callable[[Tensor], Tensor], batches: list[tuple[Tensor, Tensor]]) -> float:
    correct = [(predict(images).argmax(1) == labels).float().mean() for images, labels in batches]
    return torch.stack(correct).mean().item()


@pytest.mark.parametrize("small", [False, True, "blend"])
@pytest.mark.parametrize("name", sorted(ttc.METHODS))
def test_the_source_model_predicts_as_it_was_trained(
    name: str, small: bool | str, model: nn.Module, stream: list[Tensor]
) -> None:
    adapter = ttc.adapt(model, name, small_batches=small, **OPTIONS.get(name, {}))
    source = ttc.adapt(model, "source")
    before = source_classifier(adapter)
    for batch in stream:
        adapter(batch)
    for classifier in (before, source_classifier(adapter)):
        assert torch.equal(classifier(stream[0]).logits, source(stream[0]))
    frozen = {p.data_ptr() for p in adapter.model.parameters() if not p.requires_grad}
    assert frozen & {p.data_ptr() for p in before.parameters()} == frozen  # shared, not copied


def test_the_source_of_other_precisions_and_of_no_stored_statistics(stream: list[Tensor], model: nn.Module) -> None:
    half = ttc.adapt(copy.deepcopy(model).bfloat16(), "ttc", small_batches=True)
    assert source_classifier(half)(stream[0].bfloat16()).logits.dtype == torch.bfloat16
    bare = nn.Sequential(
        nn.Conv2d(3, 4, 8), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten(), nn.Linear(4, 2)
    )
    torch.testing.assert_close(source_classifier(ttc.adapt(bare, "tent"))(stream[0]).logits, bare(stream[0]).detach())


@pytest.mark.parametrize("name", ["ttc", "tent", "t3a", "norm", "source"])
def test_a_healthy_adapter_predicts_as_without_a_guard(name: str, model: nn.Module, labelled: Images) -> None:
    images, _ = shifted(labelled, 800, seed=3)
    plain, guard = ttc.adapt(model, name), Guard(ttc.adapt(model, name), Policy(limits=Limits(consistency_gap=0.5)))
    for batch in images.split(50):
        assert torch.equal(plain(batch), guard(batch))
    assert list(guard.events) == []
    assert guard.mode == "adapting"
    assert guard.stats["images"] == 800
    # The first three hundred, then a tenth in whole batches, and those whose entropy is unusual.
    assert 350 <= guard.stats["compared_images"] < 500
    assert guard.stats["snapshots"] == 2


@pytest.mark.parametrize("small", [False, True])
def test_hard_streams_end_no_worse_than_the_source(small: bool, model: nn.Module, labelled: Images) -> None:
    images, labels = shifted(labelled, 600, seed=8)
    other, _ = labelled(600, 1.0, 8)
    size = 50
    shuffled = list(zip(images.split(size), labels.split(size), strict=True))
    changing = list(zip(other.split(size), labels.split(size), strict=True))
    hard: dict[str, list[tuple[Tensor, Tensor]]] = {
        "one image": [(images[3:4].expand(size, -1, -1, -1), labels[3:4].expand(size))] * 12,
        "alternating domains": [pair for both in zip(shuffled, changing, strict=True) for pair in both],
        "20 passes": shuffled[:4] * 20,
    }
    for name, batches in hard.items():
        guard = Guard(ttc.adapt(model, "tent", small_batches=small))
        source = ttc.adapt(model, "source")
        during, shipped = accuracy(guard, batches), accuracy(source, batches)
        assert during >= shipped - 0.01, (name, during, shipped, guard.events)
        guard.freeze()  # what would now be predicted on an ordinary stream
        after, shipped = accuracy(guard, shuffled), accuracy(source, shuffled)
        assert after >= shipped - 0.01, (name, after, shipped, guard.events)


def test_the_source_predicts_while_classes_arrive_in_order_and_the_adapter_learns_nothing_from_them() -> None:
    data = embedded_images()
    order = data.labels[:300].argsort(kind="stable")
    images = as_tensor(corrupt(data.pixels(range(300)), "spatter", severity=4))
    ordered, shuffled = images[order].split(50), images.split(50)
    guard, source = Guard(ttc.adapt(embedded(), "tent")), ttc.adapt(embedded(), "source")
    before, labels = guard.adapter.state_dict(), torch.from_numpy(data.labels[:300])[order].split(50)
    batches = list(zip(ordered, labels, strict=True))
    assert accuracy(guard, batches) > accuracy(source, batches) + 0.05  # corrected by the classes of neighbours
    torch.testing.assert_close(guard.adapter.state_dict(), before, rtol=0, atol=0)
    assert [event.action for event in guard.events] == ["source"]
    assert "the lead of the source in flip consistency" in guard.events[0].reason
    assert guard.mode == "source"
    assert guard.stats["source_images"] == 300
    for batch in shuffled:
        guard(batch)
    assert guard.mode == "adapting"  # the change of the stream counts at once
    assert guard.events[-1].action == "adapt"
    assert guard.stats["source_images"] <= 400


def test_a_batch_of_repeated_images_is_predicted_by_the_source_and_not_learned_from(
    model: nn.Module, stream: list[Tensor]
) -> None:
    guard, undisturbed = (Guard(ttc.adapt(model, "tent"), NO_COMPARISON) for _ in range(2))
    guard(stream[0]), undisturbed(stream[0])
    repeated = stream[1][:2].repeat(10, 1, 1, 1)
    assert torch.equal(guard(repeated), ttc.adapt(model, "source")(repeated))
    assert guard.mode == "source"
    assert torch.equal(guard(stream[2]), undisturbed(stream[2]))
    assert guard.mode == "adapting"
    assert [tuple(event) for event in guard.events] == [
        (44, "source", "a batch of 20 contains only 2 distinct images"),
        (68, "adapt", "batches vary again"),
    ]


def test_freeze_resume_rollback_reset(model: nn.Module, stream: list[Tensor]) -> None:
    guard, plain = Guard(ttc.adapt(model, "tent"), EVERY_BATCH), ttc.adapt(model, "tent")
    guard(stream[0]), plain(stream[0])
    guard.freeze()
    assert guard.mode == "frozen"
    assert torch.equal(guard(stream[1]), plain.predict(stream[1]))
    assert torch.equal(guard(stream[1]), plain.predict(stream[1]))
    guard.resume()
    assert torch.equal(guard(stream[1]), plain(stream[1]))
    guard(stream[2])
    guard.rollback()  # to the snapshot of the last healthy check
    guard.rollback(2)  # two further back: after the first batch
    assert torch.equal(guard.adapter.predict(stream[1]), _after(model, stream[:1]).predict(stream[1]))
    with pytest.raises(ttc.TTCError, match="1 snapshots can be rolled back to, the initial state included, got n=5"):
        guard.rollback(5)
    guard.rollback(1)
    assert torch.equal(guard.adapter.predict(stream[1]), ttc.adapt(model, "tent").predict(stream[1]))
    guard(stream[3])
    guard.reset()
    assert torch.equal(guard(stream[0]), ttc.adapt(model, "tent")(stream[0]))
    actions = [event.action for event in guard.events]
    assert actions == ["freeze", "resume", "rollback", "rollback", "rollback", "reset"]


def _after(model: nn.Module, batches: list[Tensor]) -> Adapter:
    adapter = ttc.adapt(model, "tent")
    for batch in batches:
        adapter(batch)
    return adapter


def test_memory_is_bounded(model: nn.Module, stream: list[Tensor]) -> None:
    guard = Guard(ttc.adapt(model, "tent"), Policy(check_every=1, snapshot_every=1, max_snapshots=3, max_events=4))
    for _ in range(40):
        guard(stream[0])
        guard.freeze()
        guard.resume()
    assert guard.stats["snapshots"] <= 4
    assert len(guard.events) == 4
    assert guard.stats["events"] >= 80


def test_stats_are_numbers(model: nn.Module, stream: list[Tensor]) -> None:
    guard = Guard(ttc.adapt(model, "ttc"), AGREEING)
    before = guard.stats
    guard(stream[0])
    assert before.keys() == guard.stats.keys()
    assert all(isinstance(value, int | float) for value in guard.stats.values())
    assert guard.stats["adapting"] == 1.0
    assert 1 <= guard.stats["effective_classes"] <= 4


def test_a_rejected_batch_changes_nothing_but_its_count(model: nn.Module, stream: list[Tensor]) -> None:
    guard, undisturbed = (Guard(ttc.adapt(model, "ttc"), AGREEING) for _ in range(2))
    guard(stream[0]), undisturbed(stream[0])
    bad: list[Any] = [None, stream[0][0], stream[0].double(), torch.full_like(stream[0], 3e38)]
    for images in bad:
        with pytest.raises(ttc.TTCError):
            guard(images)
    assert guard.stats == {**undisturbed.stats, "rejected_batches": 4, "events": 1}
    assert guard.events[-1].action == "warn"
    assert guard.events[-1].reason.startswith("3 batches in a row were rejected, the last one because ")
    assert torch.equal(guard(stream[1]), undisturbed(stream[1]))
    for level in (Level.FREEZE, Level.SOURCE):
        guard.level = level.value
        for images in bad:
            with pytest.raises(ttc.TTCError):
                guard(images)


def test_a_broken_callback_does_not_stop_predictions(model: nn.Module, stream: list[Tensor]) -> None:
    def broken(event: Event) -> None:
        raise OSError("no monitor")

    guard = Guard(ttc.adapt(model, "ttc"), on_event=broken)
    with pytest.warns(UserWarning, match="the guard's on_event failed: OSError: no monitor"):
        guard.freeze()
    assert guard(stream[0]).isfinite().all()


def test_many_threads(model: nn.Module, stream: list[Tensor]) -> None:
    guard, serial = Guard(ttc.adapt(model, "tent"), NO_COMPARISON), ttc.adapt(model, "tent")
    expected = [serial(stream[0]) for _ in range(30)]
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: (guard(stream[0]), guard.stats)[0], range(30)))
    for logits in found:  # each call saw a whole step: its output is one of the serial ones, each used once
        index = next(i for i, other in enumerate(expected) if torch.equal(logits, other))
        expected.pop(index)
    assert guard.stats["calls"] == 30


def test_save_and_to(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    guard = Guard(ttc.adapt(model, "tent"), NO_COMPARISON).to("cpu")
    guard(stream[0])
    guard.save(tmp_path / "guarded.safetensors")
    loaded = ttc.load_adaptation(model, tmp_path / "guarded.safetensors")
    assert torch.equal(loaded(stream[1]), guard(stream[1]))


def test_single_images(model: nn.Module, labelled: Images) -> None:
    images, labels = shifted(labelled, 300, seed=4)
    guard = Guard(ttc.adapt(model, "ttc", small_batches=True), NO_COMPARISON)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = accuracy(guard, list(zip(images.split(1), labels.split(1), strict=True)))
    assert found > accuracy(ttc.adapt(model, "source"), [(images, labels)])


@pytest.mark.parametrize("stop", [3, 9])
def test_a_restored_guard_resumes_as_if_never_stopped(
    stop: int, model: nn.Module, labelled: Images, tmp_path: Path
) -> None:
    images, labels = shifted(labelled, 600, seed=8)
    batches = images[labels.argsort(stable=True)].split(50)  # classes in order: it falls back to the source
    policy = Policy(check_every=50, snapshot_every=1, patience=2)
    whole, stopped, resumed = (Guard(ttc.adapt(model, "tent", small_batches=True), policy) for _ in range(3))
    expected = [whole(batch) for batch in batches]
    for batch in batches[:stop]:
        stopped(batch)
    torch.save(stopped.state_dict(), tmp_path / "guard.pt")
    resumed.load_state_dict(torch.load(tmp_path / "guard.pt", weights_only=True))
    assert resumed.stats == stopped.stats
    found = [resumed(batch) for batch in batches[stop:]]
    assert all(torch.equal(one, other) for one, other in zip(found, expected[stop:], strict=True))
    assert resumed.stats == whole.stats
    assert whole.events
    assert resumed.mode == whole.mode


def test_a_guard_of_a_model_is_rejected(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=r"takes an adapter, got SmallNet; build one with ttc.adapt\(model\)"):
        Guard(model)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_a_failing_callback_never_loses_a_prediction(model: nn.Module, stream: list[Tensor]) -> None:
    def fail(event: Event) -> None:
        raise ValueError("broken")

    guard = Guard(ttc.adapt(model, "tent"), Policy(check_every=1), on_event=fail)
    with torch.no_grad():
        for parameter in guard.adapter.model.parameters():
            if parameter.requires_grad:
                parameter.mul_(50)
    assert bool(guard(stream[0]).isfinite().all())
    assert guard.stats["events"] == guard.stats["failed_callbacks"] >= 1


def test_copies_and_pickles_of_a_guard_share_nothing(model: nn.Module, stream: list[Tensor]) -> None:
    guard = Guard(ttc.adapt(model, "ttc"))
    guard(stream[0])
    for other in (copy.deepcopy(guard), pickle.loads(pickle.dumps(guard))):
        before = guard.state_dict()
        other(stream[1])
        torch.testing.assert_close(guard.state_dict(), before, rtol=0, atol=0)
        assert other.adapter.lock is not guard.adapter.lock
