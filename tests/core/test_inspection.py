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
