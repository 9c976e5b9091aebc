import time

import pytest
import torch
from torch import nn

import ttc
from tests.bench.conftest import domain, protocol
from ttc.bench import Cost, Spec, evaluate
from ttc.bench.cost import Meter, TensorMemory, clock_for


def cost(method: str, model: nn.Module, batch_size: int = 20) -> Cost:
    split = domain(40, seed=5) if ttc.METHODS[Spec.read(method).name].source_images else None
    stated = {"source_split": "stripes:40", "source_checksum": split.checksum} if split else {}
    return evaluate(protocol(method, batch_size=batch_size, **stated), [domain()], model, None, split).cost


@pytest.mark.parametrize("method", ttc.METHODS)
def test_the_counted_passes_are_those_of_the_table(method: str, model: nn.Module) -> None:
    forwards, backwards = ttc.METHODS[method].forwards, ttc.METHODS[method].backwards
    found = cost("rmt(warm_up_samples=0)" if method == "rmt" else method, model)
    if method.startswith(("eta", "eata")):
        backwards = (0, 1)  # nothing selected, nothing learned
    for counted, declared in ((found.forwards, forwards), (found.backwards, backwards)):
        lowest, highest = declared if isinstance(declared, tuple) else (declared, declared)
        assert lowest <= counted <= highest


def test_the_passes_of_tipi(model: nn.Module) -> None:
    found = cost("tipi", model)
    assert (found.forwards, found.backwards) == (3, 2)
    started = cost("tipi(random_start=True)", model)
    assert (started.forwards, started.backwards) == (4, 2)
    assert cost("tipi(entropy_weight=1.0)", model).backwards == 3


def test_trainable_parameters(model: nn.Module) -> None:
    assert cost("tent", model).trainable == 2 * (8 + 16)
    assert cost("norm", model).trainable == 0


def test_times_leave_out_the_first_batch() -> None:
    meter = Meter(images=1, milliseconds=[1000.0, *range(1, 101)])
    adapter = ttc.adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), "source")
    found = meter.cost(adapter)
    assert found.median_ms == 50.5
    assert found.p95_ms == pytest.approx(95.05)
    assert Meter(images=1, milliseconds=[7.0]).cost(adapter).median_ms == 7


def test_one_thread_is_timed_by_the_processor_and_not_by_the_wall() -> None:
    meter = Meter(clock_for("cpu", 1))
    with meter.batch(1):
        time.sleep(0.05)  # as when other work has the processor
    assert meter.milliseconds[0] < 40
    assert clock_for("cpu", 2) is clock_for("cuda", 1) is time.perf_counter


def test_the_hooks_are_gone_afterwards(model: nn.Module) -> None:
    adapter, meter = ttc.adapt(model, "tent"), Meter()
    adapter(torch.rand(4, 3, 8, 8))  # a new shape is probed with a pass of its own
    with meter.attached(adapter):
        adapter(torch.rand(4, 3, 8, 8))
    counted = meter.forward_rows
    adapter(torch.rand(4, 3, 8, 8))
    assert meter.forward_rows == counted == 4
    assert not adapter.model._forward_hooks


def test_memory_is_the_largest_sum_alive_at_once() -> None:
    with TensorMemory() as memory:
        first = torch.zeros(1000)  # 4000 bytes
        second = first + 1  # 8000
        del first  # 4000
        third = torch.cat([second, second])  # 12000
        view = third[:10]  # nothing new
        del second, third  # 8000, held by the view
        assert memory.live == 8000
    assert memory.peak == 12000
    del view
    assert memory.live == 0


def test_learning_takes_more_memory_than_predicting(model: nn.Module) -> None:
    norm, tent, ttc_ = (cost(method, model).peak_memory_mb for method in ("norm", "tent", "ttc"))
    assert 0 < norm < tent < ttc_
    assert cost("tent", model, 40).peak_memory_mb == pytest.approx(2 * tent, rel=0.1)
