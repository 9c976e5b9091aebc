"""What a cell stores and what it computes in."""

import pytest
import torch
from torch import Tensor, nn

from ttc.bench import method_specs
from ttc.bench.precision import DTYPES, stored_type, uses_autocast


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_adapts_a_model_in_the_type_that_it_stores(
    dtype: str, model: nn.Module, stream: list[Tensor]
) -> None:
    network = model.to(stored_type(dtype))
    adapter = method_specs.build(network, "tent", "{}", dtype=dtype)
    logits = adapter(stream[0].to(stored_type(dtype)))
    assert logits.isfinite().all()
    trained = [parameter for parameter in adapter.model.parameters() if parameter.requires_grad]
    assert {parameter.dtype for parameter in trained} == {stored_type(dtype)}


def test_bfloat16_learns_in_steps_below_its_own_resolution(model: nn.Module, stream: list[Tensor]) -> None:
    full = method_specs.build(model, "tent", "{}")
    half = method_specs.build(model, "tent", "{}", dtype="bfloat16")
    before = [parameter.clone() for parameter in half.model.parameters() if parameter.requires_grad]
    outputs = [adapter(stream[0]) for adapter in (full, half)]
    after = [parameter for parameter in half.model.parameters() if parameter.requires_grad]
    steps = torch.cat([(new - old).abs() for new, old in zip(after, before, strict=True)])
    assert 0 < steps.max() < 2**-8  # the next number above 1 in bfloat16 is 2^-7 away
    assert not torch.equal(*outputs)
    torch.testing.assert_close(*outputs, rtol=0.05, atol=0.05)


def test_only_bfloat16_is_computed_otherwise_than_stored() -> None:
    assert [name for name in DTYPES if uses_autocast(name)] == ["bfloat16"]
