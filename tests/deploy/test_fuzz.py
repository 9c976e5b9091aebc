"""Thousands of random calls: each returns finite logits, or is rejected in one sentence and changes nothing."""

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ttc
from ttc.deploy import Guard, Policy

CALLS: Counter[str] = Counter()
K = 3
T = TypeVar("T")


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, K),
    )


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K)
    )


def rows() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, K))


MODELS = {
    "convolutional": (convolutional, (3, 6, 6)),
    "group norm": (grouped, (3, 7, 5)),
    "rows": (rows, (6,)),
    "half precision": (lambda: convolutional().bfloat16(), (3, 6, 6)),
}
METHODS = ["ttc", "tent", "eta", "tipi", "t3a", "norm", "norm-ema", "norm-blend", "source", "tent+flip"]
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.uint8,
    torch.int64,
    torch.bool,
    torch.complex64,
]
VALUES = [0.0, 1.0, -1.0, 255.0, 1e-40, 1e10, 1e18, 3e38, float("inf"), float("nan")]
OTHERS: list[Any] = [None, 3, "image", [1.0], b"", object(), (1, 2)]


@st.composite
def images(draw: st.DrawFn, wanted: tuple[int, ...]) -> Any:
    """Draw mostly what the model accepts, else nearly anything."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.sampled_from(OTHERS))
    right = draw(st.integers(0, 2)) > 0
    shape = (draw(st.integers(1, 5)), *wanted) if right else tuple(draw(st.lists(st.integers(0, 7), max_size=5)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.rand(shape, generator=generator)
    if draw(st.booleans()) and x.numel():
        value = draw(st.sampled_from(VALUES))
        x = torch.where(torch.rand(shape, generator=generator) < draw(st.sampled_from([0.1, 1.0])), value, x)
    x = x.to(draw(st.sampled_from(DTYPES[:2] if right else DTYPES)))
    form = draw(st.sampled_from(["plain"] * 6 + ["grad", "meta", "sparse", "strided", "inference"]))
    if form == "grad" and x.is_floating_point():
        return x.requires_grad_(True)
    if form == "meta":
        return x.to("meta")
    if form == "sparse" and x.ndim:
        return x.to_sparse()
    if form == "strided" and x.ndim > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if form == "inference":
        with torch.inference_mode():
            return x.clone()
    return x


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one.nan_to_num(nan=-7.0), other.nan_to_num(nan=-7.0))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.fixture(scope="module", autouse=True)
def count(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        print(f"\nfuzz: {CALLS.total()} calls, of them {dict(CALLS)}")


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking such long sequences takes minutes
    print_blob=True,
)
@given(data=st.data())
def test_every_call_predicts_or_rejects(data: st.DataObject) -> None:
    make, wanted = MODELS[data.draw(st.sampled_from(sorted(MODELS)))]
    torch.manual_seed(0)
    model = make()
    method = data.draw(st.sampled_from(METHODS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            small: bool | str = data.draw(st.booleans() | st.sampled_from(["blend", "window"]))
            adapter = ttc.adapt(model, method, small_batches=small)
        except ttc.TTCError:
            CALLS["model rejected"] += 1
            return
        guard = Guard(
            adapter,
            Policy(check_every=data.draw(st.integers(1, 9)), patience=1, snapshot_every=1, max_rejections=10**6),
        )
        initial = adapter.state_dict()
        for _ in range(data.draw(st.integers(5, 20))):
            act(data, guard, wanted, initial)


def attempt(call: Callable[[Any], T], argument: Any) -> tuple[str | None, T | None]:
    """Return the message of a rejection, or the result; any other error fails the test."""
    try:
        return None, call(argument)
    except ttc.TTCError as error:
        return str(error), None


def act(data: st.DataObject, guard: Guard, wanted: tuple[int, ...], initial: Any) -> None:
    adapter = guard.adapter
    action = data.draw(st.sampled_from(["guard"] * 5 + ["adapt", "predict"] * 3 + ["control"]))
    if action == "control":
        control(data, guard, initial)
        return
    x = data.draw(images(wanted))
    before, stats = adapter.state_dict(), guard.stats
    call: Callable[[Any], Tensor] = guard if action == "guard" else adapter if action == "adapt" else adapter.predict
    message, logits = attempt(call, x)
    if logits is None:
        assert message
        assert "\n" not in message
        assert equal(before, adapter.state_dict())
        assert {**guard.stats, "rejected_batches": stats["rejected_batches"]} == pytest.approx(stats, nan_ok=True)
        CALLS["rejected"] += 1
        return
    assert logits.shape == (len(x), K)
    assert logits.isfinite().all()
    assert not logits.requires_grad
    if action == "predict":
        assert equal(before, adapter.state_dict())
    CALLS["predicted"] += 1


def control(data: st.DataObject, guard: Guard, initial: Any) -> None:
    CALLS["control"] += 1
    order = data.draw(st.sampled_from(["reset", "freeze", "resume", "rollback", "load_state_dict", "save", "to"]))
    if order == "rollback":
        message, _ = attempt(guard.rollback, data.draw(st.integers(-1, 4)))
        assert message is None or "snapshots can be rolled back to" in message
    elif order == "load_state_dict":
        guard.adapter.load_state_dict(initial)
    elif order == "save":
        with tempfile.TemporaryDirectory() as folder:
            guard.save(Path(folder) / "saved.safetensors")
            before = guard.adapter.state_dict()
            guard.adapter.load(Path(folder) / "saved.safetensors")
            assert equal(before, guard.adapter.state_dict())
    elif order == "to":
        guard.to("cpu")
    else:
        getattr(guard, order)()


def test_there_were_thousands_of_calls() -> None:
    assert CALLS["rejected"] > 200
    assert CALLS["predicted"] > 200
    assert CALLS.total() > 1000
