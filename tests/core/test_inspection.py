"""What inspect finds and warns of."""

import re

import pytest
from torch import nn

import ttc


def test_what_is_found(model: nn.Module) -> None:
    found = ttc.inspect(model)
    assert (found.head, found.num_classes, found.feature_width) == ("fc", 4, 16)
    assert found.norm_layers == {"BatchNorm2d": 2}
    assert found.affine_parameters == 48
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.warnings == ()
    assert "head                  'fc', 16 features to 4 classes" in str(found)
    assert "2 BatchNorm2d" in str(found)


@pytest.mark.parametrize(
    ("layers", "batch_size", "warning"),
    [
        ([], None, "no normalization layers: only 'source', 't3a'"),
        ([nn.BatchNorm2d(4, affine=False)], None, "no scale and shift: only statistics can adapt"),
        ([nn.GroupNorm(2, 4)], None, "no BatchNorm: 'norm' equals 'source'"),
        ([nn.BatchNorm2d(4, track_running_stats=False)], None, "stores no source statistics"),
        ([nn.BatchNorm2d(4)], 1, "batch of one"),
        ([nn.BatchNorm2d(4)], 8, r"small batch \(8\)"),
    ],
)
def test_warnings(layers: list[nn.Module], batch_size: int | None, warning: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    found = ttc.inspect(model, batch_size=batch_size)
    assert len(found.warnings) == 1
    assert re.search(warning, found.warnings[0])
    assert "warning" in str(found)


def test_a_missing_head_is_a_warning() -> None:
    found = ttc.inspect(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    assert found.head is None
    assert "no linear layer" in found.warnings[0]
    assert "not found" in str(found)


def test_a_softmax_and_a_single_output_are_reported(model: nn.Module) -> None:
    (warning,) = ttc.inspect(nn.Sequential(model, nn.Softmax(1))).warnings
    assert warning.startswith("the layer '1' makes probabilities of the logits: remove it")
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 1))
    (warning,) = ttc.inspect(network).warnings
    assert warning.startswith("the head has one output")


def test_the_layer_that_standardizes_is_named(model: nn.Module) -> None:
    assert ttc.inspect(ttc.models.build("resnet20")).standardization == "standardize"
    assert ttc.inspect(model).standardization is None


def test_only_modules_are_inspected() -> None:
    with pytest.raises(ttc.TTCError, match=r"expected a torch.nn.Module to adapt, got str"):
        ttc.inspect("resnet20")  # type: ignore[arg-type]
