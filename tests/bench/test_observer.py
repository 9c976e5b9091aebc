import math

import pytest
import torch
from torch import nn

import ttc
from tests.bench.conftest import domain, protocol
from ttc.bench import evaluate
from ttc.bench.observer import Observer


@pytest.mark.parametrize(
    ("method", "options"), [("tent", {}), ("tent+flip", {}), ("tent", {"small_batches": "window"})]
)
def test_the_clustering_adapter_is_found_inside_wrappers(
    method: str, options: dict[str, str], model: nn.Module, stream: list[torch.Tensor]
) -> None:
    adapter = ttc.adapt(model, method, **options)  # type: ignore[arg-type]
    observer = Observer(adapter)
    adapter(torch.cat(stream))
    selected, kappa, loss = observer.pop()
    assert selected == 1
    assert math.isnan(kappa)
    assert math.isfinite(loss)
    assert all(map(math.isnan, observer.pop()))


def test_other_methods_leave_nothing_to_observe(model: nn.Module, stream: list[torch.Tensor]) -> None:
    adapter = ttc.adapt(model, "norm")
    observer = Observer(adapter)
    adapter(stream[0])
    assert all(map(math.isnan, observer.pop()))


def test_the_similarity_is_measured_with_the_bandwidth_of_the_method(model: nn.Module) -> None:
    narrow, wide, unit = (
        evaluate(protocol(f"ttc(spc_weight=0.0, {option})"), [domain()], model).trace[:, 4].mean()
        for option in ("bandwidth=0.5", "bandwidth=2", "normalize_features=True")
    )
    assert narrow < wide
    assert unit not in {narrow, wide}
