"""``build``: a model from its name."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ttc.errors import TTCError
from ttc.models import build, embedded
from ttc.models.building import build_trained

SMALL = ["resnet20", "wrn-16-1", "cifar-resnet18"]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_logits_of_images(name: str, num_classes: int) -> None:
    model = build(name, num_classes)
    assert not model.training
    with torch.no_grad():
        logits = model(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, num_classes)
    assert logits.isfinite().all()


def test_statistics_can_be_chosen() -> None:
    assert isinstance(build("resnet20", statistics="none").get_submodule("standardize"), nn.Identity)
    with pytest.raises(TTCError, match="unknown input statistics 'mnist'; choose from: none, half, cifar10"):
        build("resnet20", statistics="mnist")


def test_unknown_names_and_counts() -> None:
    with pytest.raises(
        TTCError, match=r"unknown model 'resnet21' \(did you mean 'resnet.*choose from: embedded, resnet20.*timm:NAME"
    ):
        build("resnet21")
    with pytest.raises(TTCError, match="number of classes must be at least 1, got 0"):
        build("resnet20", num_classes=0)


def test_the_embedded_model_has_a_name_as_other_models_do() -> None:
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(build("embedded")(x), embedded()(x))
    with pytest.raises(
        TTCError, match="has fixed weights, input statistics and 10 classes: to set any of them, name an architecture"
    ):
        build("embedded", num_classes=100)


def test_a_checkpoint_may_be_a_string(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"there is no checkpoint .*x.th"):
        build("resnet20", checkpoint=str(tmp_path / "x.th"))
    torch.save(build("resnet20", num_classes=7).state_dict(), tmp_path / "x.th")
    assert build("resnet20", checkpoint=str(tmp_path / "x.th"))(torch.rand(1, 3, 32, 32)).shape == (1, 7)


def test_a_model_to_adapt_has_weights_and_a_device(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="'resnet20' has no weights of its own; pass them with --checkpoint FILE"):
        build_trained("resnet20", 7)
    with pytest.raises(TTCError, match=r"the device 'cuda:77' cannot be used here .*: try --device cpu"):
        build_trained("embedded", device="cuda:77")
    torch.save(build("resnet20", 7).state_dict(), tmp_path / "x.th")
    assert not build_trained("resnet20", checkpoint=tmp_path / "x.th").training
