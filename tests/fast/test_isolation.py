"""Nothing that adapters do can be noticed by other threads or other models."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import torch
from torch import Tensor, nn

import ttc
from ttc.models.cifar_resnet import CifarResNet

METHODS_BUILT = ("ttc", "tent", "norm", "t3a", "tipi")


def foreign_predictions(model: nn.Module, x: Tensor, expected: Tensor, stop: Event) -> int:
    """Predict with a model of somebody else until told to stop; return how often."""
    count = 0
    while not stop.is_set() or count < 10:
        with torch.no_grad():
            assert torch.equal(model(x), expected)
        count += 1
    return count


def build_and_call(method: str, x: Tensor) -> None:
    for _ in range(3):
        torch.manual_seed(0)
        adapter = ttc.adapt(CifarResNet(20), method)
        for one in (adapter, copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
            assert one(x).isfinite().all()


def test_a_foreign_model_is_not_disturbed() -> None:
    torch.manual_seed(0)
    model, x, stop = CifarResNet(20).eval(), torch.rand(2, 3, 32, 32), Event()
    with torch.no_grad():
        expected = model(x)
    names = ("__call__", "__getattr__", "_call_impl", "forward")
    before = [getattr(nn.Module, name) for name in names]
    with ThreadPoolExecutor(len(METHODS_BUILT) + 2) as pool:
        watchers = [pool.submit(foreign_predictions, model, x, expected, stop) for _ in range(2)]
        try:
            for work in [pool.submit(build_and_call, method, x) for method in METHODS_BUILT]:
                work.result()
        finally:
            stop.set()
        assert all(watcher.result() >= 10 for watcher in watchers)
    assert before == [getattr(nn.Module, name) for name in names]


def test_sixteen_threads_build_an_adapter_each() -> None:
    torch.manual_seed(0)
    model, x, start = CifarResNet(20), torch.rand(4, 3, 32, 32), Barrier(16)

    def build(method: str) -> Tensor:
        start.wait()
        return ttc.adapt(model, method)(x)

    with ThreadPoolExecutor(16) as pool:
        logits = list(pool.map(build, ["ttc"] * 16))
    assert all(torch.equal(one, logits[0]) for one in logits)


def test_a_capture_patches_nothing_even_while_it_runs() -> None:
    patched: list[str] = []
    originals = {name: getattr(nn.Module, name) for name in ("__call__", "__getattr__", "__setattr__", "_call_impl")}

    def check(net: nn.Module, x: Tensor) -> Tensor:
        patched.extend(name for name, value in originals.items() if getattr(nn.Module, name) is not value)
        return x * 2

    from ttc.fast.graph import capture

    assert capture(Calls(check)) is not None
    assert patched == []


class Calls(nn.Module):
    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)
