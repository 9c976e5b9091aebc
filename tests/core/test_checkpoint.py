"""Saved adaptations: what a file holds, and what is rejected."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import ttc
from ttc.clustering import ClusteringAdapter, GaussianNoise, RandomRotation
from ttc.core import Adapter, Classifier, read_adaptation
from ttc.core.checkpoint import _digest
from ttc.nn import copy_with_trainable_norms

adam = partial(torch.optim.Adam, lr=1e-2)


@pytest.fixture
def saved(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> Path:
    adapter = ttc.adapt(model, "ttc", bandwidth=2.0)
    for batch in stream[:2]:
        adapter(batch)
    adapter.save(tmp_path / "adapted.safetensors")
    return tmp_path / "adapted.safetensors"


def rejection(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(ttc.TTCError) as caught:
        call(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_says_what_it_is_and_holds_only_what_changed(saved: Path, model: nn.Module) -> None:
    with safe_open(saved, "pt") as file:
        metadata, names = file.metadata(), list(file.keys())
    assert metadata["format"] == "ttc-adaptation-2"
    assert metadata["method"] == "ttc"
    assert metadata["options"] == '{"bandwidth": 2.0}'
    assert metadata["version"] == ttc.__version__
    assert len(metadata["source"]) == 64
    # two batches of 24 are accumulated and no step was taken yet: gradients, no parameters, no statistics
    assert {name.split("/")[0] for name in names} == {"updater"}
    assert saved.stat().st_size < 8192


@pytest.mark.parametrize("name", ["tent", "ttc", "tipi", "norm-ema"])
def test_a_large_model_makes_a_small_file(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(4096, 500)
    )
    adapter = ttc.adapt(wide, name)
    adapter(torch.rand(4, 3, 16, 16))
    adapter.save(tmp_path / "small.safetensors")
    assert (tmp_path / "small.safetensors").stat().st_size < 16384


def test_another_model_is_rejected(saved: Path, model: nn.Module) -> None:
    torch.manual_seed(3)
    other = type(model)()
    assert "another model" in rejection(ttc.load_adaptation, other, saved)
    wider = type(model)(classes=7)
    assert "another model" in rejection(ttc.load_adaptation, wider, saved)


def test_other_options_and_methods_are_rejected(saved: Path, model: nn.Module, stream: list[Tensor]) -> None:
    assert "bandwidth=2.0, this adapter has bandwidth=3.0" in rejection(
        ttc.load_adaptation, model, saved, bandwidth=3.0
    )
    assert "spc_weight=its default" in rejection(ttc.load_adaptation, model, saved, spc_weight=3.0)
    adapter = ttc.adapt(model, "tent")
    assert "saved by the method 'ttc', this adapter is 'tent'" in rejection(adapter.load, saved)
    assert "bandwidth" in rejection(ttc.adapt(model, "ttc").load, saved)
    ttc.load_adaptation(model, saved, bandwidth=2.0)


def test_damaged_and_foreign_files_are_rejected(saved: Path, model: nn.Module, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    broken = tmp_path / "broken.safetensors"
    assert "there is no saved adaptation" in rejection(ttc.load_adaptation, model, broken)
    for cut in (0, 1, 8, 100, len(whole) // 2, len(whole) - 1):
        broken.write_bytes(whole[:cut])
        assert str(broken) in rejection(ttc.load_adaptation, model, broken)
    for position in range(0, len(whole), 97):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        broken.write_bytes(flipped)
        assert str(broken) in rejection(ttc.load_adaptation, model, broken)
    save_file({"x": torch.zeros(1)}, broken)
    assert "has the format None, this version reads ttc-adaptation-2" in rejection(ttc.load_adaptation, model, broken)
    assert "cannot write" in rejection(ttc.adapt(model, "tent").save, Path("/proc/none/adapted.safetensors"))


def test_a_rejected_file_changes_nothing(saved: Path, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, untroubled = ttc.adapt(model, "tent"), ttc.adapt(model, "tent")
    adapter(stream[0]), untroubled(stream[0])
    rejection(adapter.load, saved)
    assert torch.equal(adapter(stream[1]), untroubled(stream[1]))


def test_an_interrupted_save_leaves_the_old_file(
    saved: Path, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def interrupted(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("ttc.core.checkpoint.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ttc.adapt(model, "ttc").save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_what_a_file_cannot_contain_is_passed_again(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    view = GaussianNoise(std=0.05, seed=3)
    adapter = ttc.adapt(model, "ttc", optimizer=adam, view=view, samples_per_step=48)
    for batch in stream:
        adapter(batch)
    adapter.save(tmp_path / "own.safetensors")
    path = tmp_path / "own.safetensors"
    message = rejection(ttc.load_adaptation, model, path)
    assert "optimizer=partial(torch.optim.adam.Adam, lr=0.01), which a file cannot contain" in message
    assert "view=GaussianNoise(" in rejection(ttc.load_adaptation, model, path, optimizer=adam)
    slow = partial(torch.optim.Adam, lr=1e-3)
    assert "lr=0.001" in rejection(ttc.load_adaptation, model, path, optimizer=slow, view=view)
    other = RandomRotation()
    assert "RandomRotation(" in rejection(ttc.load_adaptation, model, path, optimizer=adam, view=other)
    loaded = ttc.load_adaptation(model, path, optimizer=adam, view=GaussianNoise(std=0.05, seed=3))
    assert torch.equal(loaded(stream[0]), adapter(stream[0]))


def test_an_adapter_put_together_by_hand_saves_too(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    def built() -> Adapter:
        return ClusteringAdapter(copy_with_trainable_norms(Classifier(model)), adam)

    first, second = built(), built()
    first(stream[0])
    first.save(tmp_path / "own.safetensors")
    second.load(tmp_path / "own.safetensors")
    assert torch.equal(first(stream[1]), second(stream[1]))
    assert read_adaptation(tmp_path / "own.safetensors").method == "ClusteringAdapter"


def test_a_state_that_does_not_fit_is_rejected_whole(saved: Path, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, untroubled = ttc.adapt(model, "ttc", bandwidth=2.0), ttc.adapt(model, "ttc", bandwidth=2.0)
    adapter(stream[0]), untroubled(stream[0])
    from ttc.core import checkpoint

    found = read_adaptation(saved)
    found.state["model"]["network.body.1.weight"] = torch.zeros(3)
    assert "does not fit" in rejection(checkpoint.restore, adapter, found)
    assert torch.equal(adapter(stream[1]), untroubled(stream[1]))


def craft(saved: Path, change: Callable[[dict[str, str], dict[str, Tensor]], object]) -> Path:
    """A copy of a saved file with changed contents and a valid digest."""
    with safe_open(saved, "pt") as file:
        metadata, tensors = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del metadata["digest"]
    change(metadata, tensors)
    metadata["digest"] = _digest(metadata, tensors)
    path = saved.with_name("crafted.safetensors")
    save_file(tensors, path, metadata)
    return path


@pytest.fixture
def stepped(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> Path:
    adapter = ttc.adapt(model, "tent", small_batches="window")
    for batch in stream[:4]:
        adapter(batch)
    adapter.save(tmp_path / "stepped.safetensors")
    return tmp_path / "stepped.safetensors"


def replaced(state: str, old: str, new: str) -> str:
    assert old in state
    return state.replace(old, new)


CRAFTED: dict[str, Callable[[dict[str, str], dict[str, Tensor]], object]] = {
    "no state": lambda m, t: m.pop("state"),
    "no method": lambda m, t: m.pop("method"),
    "no options": lambda m, t: m.pop("options"),
    "state is no JSON": lambda m, t: m.update(state="{"),
    "state is a list": lambda m, t: m.update(state="[]"),
    "state is a number": lambda m, t: m.update(state="3"),
    "deep state": lambda m, t: m.update(state='{"list":[' * 50_000 + "]}" * 50_000),
    "two kinds": lambda m, t: m.update(state='{"list": [], "tuple": []}'),
    "unknown kind": lambda m, t: m.update(state='{"object": []}'),
    "keys that cannot be keys": lambda m, t: m.update(state='{"dict": [[[], 1]]}'),
    "options are a list": lambda m, t: m.update(options="[]"),
    "an option replaces the model": lambda m, t: m.update(options='{"model": 1}'),
    "an option of another kind": lambda m, t: m.update(options='{"small_batches": {"a": 1}}'),
    "an option that does not exist": lambda m, t: m.update(options='{"small_batches": "window", "colour": 1}'),
    "another dtype": lambda m, t: t.update({name: tensor.double() for name, tensor in t.items()}),
    "another shape": lambda m, t: t.update({name: tensor[..., None] for name, tensor in t.items()}),
    "larger": lambda m, t: t.update({name: torch.cat([tensor, tensor]) for name, tensor in t.items() if tensor.ndim}),
    "NaN": lambda m, t: t.update({name: tensor * float("nan") for name, tensor in t.items()}),
    "a tensor too many": lambda m, t: t.update({"more": torch.zeros(2)}),
    "a tensor too few": lambda m, t: t.pop(next(iter(t))),
    "a count as text": lambda m, t: m.update(state=replaced(m["state"], '["fresh", ', '["fresh", "1"], ["old", ')),
    "a negative count": lambda m, t: m.update(state=replaced(m["state"], '["fresh", ', '["fresh", -1], ["old", ')),
    "a huge count": lambda m, t: m.update(
        state=replaced(m["state"], '["batches", ', '["batches", 1' + "0" * 400 + '], ["old", ')
    ),
    "an infinite rate": lambda m, t: m.update(state=replaced(m["state"], '["lr", 0.001]', '["lr", Infinity]')),
    "a rate as text": lambda m, t: m.update(state=replaced(m["state"], '["lr", 0.001]', '["lr", "fast"]')),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_with_a_valid_digest_is_rejected_and_changes_nothing(
    name: str, stepped: Path, model: nn.Module, stream: list[Tensor]
) -> None:
    path = craft(stepped, CRAFTED[name])
    rejection(ttc.load_adaptation, model, path)
    adapter = ttc.adapt(model, "tent", small_batches="window")
    adapter(stream[0])
    before = adapter.state_dict()
    rejection(adapter.load, path)
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in children for deeper in nodes(child, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value[path[0]] = put(value[path[0]], path[1:], new)
    return value


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KEYS = st.sampled_from(["tensor", "dict", "list", "tuple", "described"])
INNER = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(KEYS, LEAVES, max_size=2)
VALUES = INNER | st.lists(INNER, max_size=3) | st.dictionaries(KEYS, INNER, max_size=2)


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_change_of_a_file_is_rejected_or_harmless(
    data: st.DataObject, stepped: Path, model: nn.Module, stream: list[Tensor]
) -> None:
    def change(metadata: dict[str, str], tensors: dict[str, Tensor]) -> None:
        part = data.draw(st.sampled_from(["state", "options", "tensor", "method", "version", "source"]))
        if part in {"state", "options"}:
            value = json.loads(metadata[part])
            path = data.draw(st.sampled_from(nodes(value)))
            metadata[part] = json.dumps(put(value, path, data.draw(VALUES)))
        elif part == "tensor":
            name = data.draw(st.sampled_from(sorted(tensors)))
            shape = data.draw(st.lists(st.integers(0, 3), max_size=3))
            kind = data.draw(st.sampled_from([torch.float32, torch.float16, torch.int64, torch.bool]))
            tensors[name] = torch.full(shape, data.draw(st.sampled_from([0.0, 1.0, float("nan")]))).to(kind)
        else:
            metadata[part] = data.draw(st.text(max_size=5))

    path = craft(stepped, change)
    try:
        adapter = ttc.load_adaptation(model, path)
    except ttc.TTCError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert bool(adapter(stream[4]).isfinite().all())
