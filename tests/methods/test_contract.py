"""The promises of the contract, for every entry of METHODS, alone and with a window of recent images."""

import copy
import pickle
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import ClusteringAdapter, Step
from ttc.core import Adapter

CACHES = {"_accepted", "runner"}  # accepted shapes and bound forward passes: predictions do not depend on them
SOURCE_IMAGES = torch.rand(48, 3, 8, 8, generator=torch.Generator().manual_seed(3))
OPTIONS: dict[str, dict[str, Any]] = {  # what a method cannot be built without, or is faster with
    "eata": {"source_images": SOURCE_IMAGES},
    "memo": {"views": 2},
    "rmt": {"source_images": SOURCE_IMAGES, "warm_up_samples": 0},
}
OWN = (  # each kind of state once, in a window of recent images
    *("source", "norm", "norm-blend", "norm-ema", "t3a", "tent", "eta", "tipi", "ttc", "tent+flip"),
    *("lame", "cotta", "rotta", "roid"),
)
NAMES = [*sorted(ttc.METHODS), *(f"{name}/window" for name in OWN)]
STATELESS = {"source", "norm", "norm-blend", "source+flip", "norm+flip", "lame"}  # these have nothing to learn
LEARNS = [name for name in NAMES if name.partition("/")[0] not in STATELESS]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build(model: nn.Module, name: str) -> Adapter:
    method, _, policy = name.partition("/")
    return ttc.adapt(model, method, small_batches=policy or False, **OPTIONS.get(method, {}))


def predict_all(adapter: Adapter, stream: list[Tensor]) -> list[Tensor]:
    return [adapter(batch) for batch in stream]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def reachable(value: Any, path: str = "adapter", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every value reachable from an object, by path: tensors, numbers, strings, types."""
    if id(value) in seen:
        return
    seen = seen | {id(value)}
    if isinstance(value, Tensor):
        yield path, (value.detach().clone(), value.requires_grad)
        yield f"{path}.grad", None if not value.is_leaf or value.grad is None else value.grad.clone()
    elif isinstance(value, torch.optim.Optimizer):
        yield from reachable(value.state_dict(), path, seen)
    elif isinstance(value, dict):
        yield f"{path}.keys", [str(key) for key in value]
        for key, item in value.items():
            yield from reachable(item, f"{path}[{key}]", seen)
    elif isinstance(value, list | tuple | set):
        yield f"{path}.len", len(value)
        for index, item in enumerate(value):
            yield from reachable(item, f"{path}[{index}]", seen)
    elif (
        hasattr(value, "__dict__") and not isinstance(value, type) and not callable(type(value).__dict__.get("__get__"))
    ):
        yield f"{path}.type", type(value)
        for key, item in vars(value).items():
            if key not in CACHES:
                yield from reachable(item, f"{path}.{key}", seen)
    else:
        yield path, value if isinstance(value, int | float | str | bool | None) else type(value)


def differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    def equal(one: Any, other: Any) -> bool:
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            return torch.equal(one, other)
        if isinstance(one, tuple) and isinstance(other, tuple) and one and isinstance(one[0], Tensor):
            return torch.equal(one[0], other[0]) and one[1] == other[1]
        return type(one) is type(other) and bool(one == other)

    return [path for path in left.keys() | right.keys() if not equal(left.get(path, ...), right.get(path, ...))]


def test_the_fixture_is_selective(model: nn.Module, stream: list[Tensor]) -> None:
    steps: list[Step] = []
    for name in ("ttc", "eta"):
        adapter = build(model, name)
        assert isinstance(adapter, ClusteringAdapter)
        adapter.observer = steps.append
        predict_all(adapter, stream)
    fractions = [(step.weights > 0).float().mean().item() for step in steps]
    assert all(0 < fraction < 1 for fraction in fractions), fractions


def test_predictions_are_detached_finite_logits(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    for batch, prediction in zip(stream, predict_all(build(model, name), stream), strict=True):
        assert prediction.shape == (len(batch), 4)
        assert prediction.dtype == batch.dtype
        assert not prediction.requires_grad
        assert prediction.grad_fn is None
        assert prediction.isfinite().all()


@pytest.mark.parametrize("name", LEARNS)
def test_a_method_that_learns_changes_its_predictions(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    found = predict_all(adapter, [*stream, *stream, stream[0]])  # more than the 200 samples an accumulated step takes
    assert not torch.equal(found[0], found[-1])


def declared(name: str, model: nn.Module) -> set[str]:
    """The parameters that a method may train, by what its entry says it changes."""
    changes = ttc.METHODS[name.partition("/")[0]].changes
    if "all parameters" in changes:
        return set(dict(model.named_parameters()))
    if "backbone" in changes:
        return {key for key, _ in model.named_parameters() if not key.startswith("fc")}
    filters = {"input_filter.amount"} if "input sharpness" in changes else set()
    filters |= {"body.1.equalization.amount"} if "image statistics" in changes else set()
    norms = {f"body.{layer}.{kind}" for layer in (1, 4) for kind in ("weight", "bias") if "norm affine" in changes}
    return norms | filters


def test_only_what_requires_grad_and_buffers_change(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    frozen = {key: value.clone() for key, value in adapter.model.named_parameters() if not value.requires_grad}
    predict_all(adapter, stream)
    after = dict(adapter.model.named_parameters())
    assert all(torch.equal(value, after[key]) for key, value in frozen.items())
    tunable = {key.removeprefix("network.") for key, value in after.items() if value.requires_grad}
    assert tunable == declared(name, model)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_same_predictions_under_the_callers_modes(name: str, mode: Any, model: nn.Module, stream: list[Tensor]) -> None:
    expected = predict_all(build(model, name), stream)
    with mode():
        adapter = build(model, name)
        images = [batch.clone() for batch in stream]  # inference tensors, inside inference mode
        found = predict_all(adapter, images)
        adapter.reset()
        again = predict_all(adapter, images)
    assert same(found, expected)
    assert same(again, expected)


def test_a_batch_of_one_works(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prediction = adapter(stream[0][:1])
    assert prediction.shape == (1, 4)
    assert prediction.isfinite().all()
    needs_batches = "/" not in name and "large batches" in ttc.METHODS[name].needs
    assert any("batch of one" in str(warning.message) for warning in caught) == needs_batches


def test_two_adapters_share_nothing(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    expected = predict_all(build(model, name), stream)
    first, second = build(model, name), build(model, name)
    for batch in stream:
        first(batch.flip(0))
    assert same(predict_all(second, stream), expected)


def test_reset_restores_every_held_value(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    before = dict(reachable(adapter))
    first = predict_all(adapter, stream)
    if name in LEARNS:
        assert differences(before, dict(reachable(adapter)))
    adapter.reset()
    assert differences(before, dict(reachable(adapter))) == []
    assert same(predict_all(adapter, stream), first)


def test_a_rejected_batch_changes_nothing(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, untroubled = build(model, name), build(model, name)
    assert torch.equal(adapter(stream[0]), untroubled(stream[0]))
    before = dict(reachable(adapter))
    good = stream[1]
    bad: list[Any] = [
        good[0],
        good[:, :2],
        good[:0],
        (good * 255).to(torch.uint8),
        good.double(),
        good.masked_fill(good > 0.5, float("nan")),
        good.masked_fill(good > 0.5, float("inf")),
        torch.full_like(good, 3e38),  # finite, but the network makes infinities of it
        good.to("meta"),
        good.numpy(),
        None,
    ]
    for images in bad:
        with pytest.raises(ttc.TTCError) as rejection:
            adapter(images)
        assert str(rejection.value)
        assert "\n" not in str(rejection.value)
    assert differences(before, dict(reachable(adapter))) == []
    assert same(predict_all(adapter, stream[1:]), predict_all(untroubled, stream[1:]))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda adapter: pickle.loads(pickle.dumps(adapter))])
def test_copies_resume_alike(name: str, duplicate: Any, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    predict_all(adapter, stream[:3])
    twin = duplicate(adapter)
    expected = predict_all(adapter, stream[3:])
    assert same(predict_all(twin, stream[3:]), expected)
    adapter.reset()
    twin.reset()
    assert same(predict_all(twin, stream), predict_all(adapter, stream))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(name: str, dtype: torch.dtype, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(copy.deepcopy(model).to(dtype), name)
    for batch in stream:
        prediction = adapter(batch.to(dtype))
        assert prediction.dtype == dtype
        assert prediction.isfinite().all()


def test_channels_last(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    expected = predict_all(build(model, name), stream[:2])
    moved = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = predict_all(build(moved, name), [batch.to(memory_format=torch.channels_last) for batch in stream[:2]])
    tolerance = 0.3 if name.startswith("tipi") else 1e-4  # TIPI's perturbation is the sign of rounding noise
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_the_short_last_batch_is_predicted(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    assert [len(prediction) for prediction in predict_all(adapter, [stream[0], stream[1][:5]])] == [24, 5]


def test_the_callers_gradients_do_not_leak(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    images = stream[0].clone().requires_grad_(True)
    build(model, name)(images)
    assert images.grad is None
    assert all(parameter.grad is None or not parameter.grad.isnan().any() for parameter in model.parameters())


def values(adapter: Adapter) -> dict[str, Any]:
    """What an adapter holds, but for the numbers torch gives to hooks, which differ between equal adapters."""
    return {path: value for path, value in reachable(adapter) if "_forward_pre_hooks" not in path}


def test_saved_and_loaded_is_as_if_never_stopped(
    name: str, model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    adapter = build(model, name)
    predict_all(adapter, stream[:3])  # in the middle of an accumulated step
    adapter.save(tmp_path / "adapted.safetensors")
    options = OPTIONS.get(name.partition("/")[0], {})
    loaded = ttc.load_adaptation(model, tmp_path / "adapted.safetensors", **options)
    assert differences(values(adapter), values(loaded)) == []
    assert same(predict_all(adapter, stream[3:] + stream * 2), predict_all(loaded, stream[3:] + stream * 2))
    assert differences(values(adapter), values(loaded)) == []
    loaded.reset()
    assert differences(values(build(model, name)), values(loaded)) == []


def test_a_kept_state_takes_everything_back(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    predict_all(adapter, stream[:3])
    before, state = dict(reachable(adapter)), adapter.state_dict()
    expected = predict_all(adapter, stream)
    for _ in range(2):  # what was kept must not change when the adapter goes on from it
        adapter.load_state_dict(state)
        assert differences(before, dict(reachable(adapter))) == []
        assert same(predict_all(adapter, stream), expected)


def test_predicting_leaves_no_trace(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, other = build(model, name), build(model, name)
    predict_all(adapter, stream[:3]), predict_all(other, stream[:3])
    before = dict(reachable(adapter))
    found = adapter.predict(stream[3])
    assert differences(before, dict(reachable(adapter))) == []
    assert torch.equal(adapter.predict(stream[3]), found)
    assert found.isfinite().all()
    assert not found.requires_grad
    assert same(predict_all(adapter, stream[3:]), predict_all(other, stream[3:]))
    if ttc.METHODS[name.partition("/")[0]].predicts == "before":  # the others predict with what they just learned
        assert torch.equal(found, predict_all(build(model, name), stream[:4])[-1])
    for bad in (torch.full_like(stream[0], 3e38), stream[0][0], stream[0].double()):
        with pytest.raises(ttc.TTCError):
            adapter.predict(bad)


def test_everything_held_moves_to_a_device(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = build(model, name)
    predict_all(adapter, stream[:3])
    expected = predict_all(copy.deepcopy(adapter).to("cpu"), stream[3:])
    assert same(predict_all(copy.deepcopy(adapter), stream[3:]), expected)
    assert adapter.to("meta") is adapter  # a device that every machine has
    # The start is copied from on reset. Where a real device keeps the model's parameters and so the optimizer's, the
    # meta device gives the model new ones, so these two cannot be followed here.
    stays = re.compile(r"\._initial|\.updater\.(parameters|optimizer)|\.config\.options")
    tensors = [(path, value[0]) for path, value in reachable(adapter) if isinstance(value, tuple) and value]
    assert [path for path, tensor in tensors if tensor.device.type != "meta" and not stays.search(path)] == []


def test_calls_from_many_threads_take_turns(name: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, alone = build(model, name), build(model, name)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: adapter(stream[0]), range(24)))
    expected = predict_all(alone, [stream[0]] * 24)  # equal calls: whatever their order, the predictions are these
    unmatched = list(expected)
    for prediction in found:
        index = next(i for i, other in enumerate(unmatched) if torch.equal(prediction, other))
        unmatched.pop(index)
    assert differences(values(adapter), values(alone)) == []
