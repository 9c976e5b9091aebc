"""The table of methods and the one-line entry."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import ClusteringAdapter


def test_the_table_has_the_papers_methods_and_the_controls() -> None:
    assert {"source", "norm", "t3a", "tent", "eta", "tipi", "ttc"} <= set(ttc.METHODS)
    assert {"source+flip", "norm+flip", "tent+flip", "eta-paper", "t3a-paper"} <= set(ttc.METHODS)
    combinations = [name for name in ttc.METHODS if name.startswith("tent") and "flip" not in name] + ["ttc"]
    assert len(combinations) == 16


@pytest.mark.parametrize("name", ttc.METHODS)
def test_every_method_is_described(name: str) -> None:
    method = ttc.METHODS[name]
    assert all([method.description, method.changes, method.forwards, method.needs, method.paper])
    assert all(option.meaning for option in method.options.values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tnet", r"unknown method 'tnet' \(did you mean 'tent'\?\); choose from: source, norm, "),
        ("TTC", r"unknown method 'TTC' \(did you mean 'ttc'\?\)"),
        ("xyzzy", "unknown method 'xyzzy'; choose from: "),
    ],
)
def test_an_unknown_method_is_rejected(name: str, message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, name)


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        (
            "ttc",
            "bandwith",
            r"unknown option 'bandwith' of 'ttc' \(did you mean 'bandwidth'\?\); choose from: rla, spc",
        ),
        ("source", "lr", "unknown option 'lr' of 'source'; there is none"),
        ("tent+rla", "rla", r"unknown option 'rla' of 'tent\+rla'"),
        ("tent+flip", "bandwidth", r"unknown option 'bandwidth' of 'tent\+flip'; choose from: optimizer"),
    ],
)
def test_an_unknown_option_is_rejected(method: str, option: str, message: str, model: nn.Module) -> None:
    options: dict[str, Any] = {option: True}
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, method, **options)


def test_the_optimizer_is_a_factory(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "tent", optimizer=partial(torch.optim.SGD, lr=0.5))
    assert isinstance(adapter, ClusteringAdapter)
    optimizer = adapter.updater.optimizer
    assert isinstance(optimizer, torch.optim.SGD)
    assert list(adapter.optimizers()) == [optimizer]


def test_defaults_follow_the_number_of_classes() -> None:
    def optimizer(classes: int) -> torch.optim.Optimizer:
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)]
        adapter = ttc.adapt(nn.Sequential(*layers), "ttc")
        assert isinstance(adapter, ClusteringAdapter)
        return adapter.updater.optimizer

    cifar, imagenet = optimizer(100), optimizer(1000)
    assert isinstance(cifar, torch.optim.Adam)
    assert cifar.defaults["lr"] == 1e-3
    assert isinstance(imagenet, torch.optim.SGD)
    assert (imagenet.defaults["lr"], imagenet.defaults["momentum"], imagenet.defaults["nesterov"]) == (
        2.5e-4,
        0.9,
        False,
    )


def test_importing_ttc_imports_no_torch() -> None:
    code = "import sys, ttc; assert 'torch' not in sys.modules; ttc.adapt; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ttc' has no attribute 'adopt'"):
        _ = ttc.adopt


class Doubled(ttc.Adapter):
    """Predicts with twice the logits, to be told from the source."""

    def adapt(self, x: Tensor) -> Tensor:
        return 2 * self.model(x).logits


def doubled(model: ttc.Classifier, *, factor: float = 1.0) -> ttc.Adapter:
    """DOUBLED: twice the logits.

    Args:
        factor: Not used.
    """
    return Doubled(model)


def test_a_builder_of_ones_own_needs_no_table(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    adapter, source = ttc.adapt(model, doubled, factor=2.0), ttc.adapt(model, "source")
    torch.testing.assert_close(adapter(stream[0]), 2 * source(stream[0]))
    with pytest.raises(
        ttc.TTCError, match=r"unknown option 'facto' of '.*test_adapt:doubled' \(did you mean 'factor'\?\)"
    ):
        ttc.adapt(model, doubled, facto=2.0)
    adapter.save(tmp_path / "own.safetensors")
    with pytest.raises(ttc.TTCError, match="pass its builder as method="):
        ttc.load_adaptation(model, tmp_path / "own.safetensors")
    loaded = ttc.load_adaptation(model, tmp_path / "own.safetensors", method=doubled)
    assert torch.equal(loaded(stream[0]), adapter(stream[0]))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (3, "expected a method's name or a builder function, got int"),
        (lambda model: model, r"the builder '.*' must return a ttc.Adapter, got Classifier"),
    ],
)
def test_what_is_no_method_is_rejected(method: Any, message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, method)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bandwidth": "big"}, "bandwidth must be a number, got 'big'"),
        ({"optimizer": "sgd"}, "optimizer must be a callable or None, such as partial.*, got 'sgd'"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, "such as partial.*, got an object of type SGD$"),
        ({"rla": 1}, "rla must be True or False, got 1"),
        ({"accumulate": 1.5}, "accumulate must be a whole number or None, got 1.5"),
    ],
    ids=str,
)
def test_an_option_of_the_wrong_type_is_rejected(options: dict[str, Any], message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "ttc", **options)


def test_a_registered_method_is_found_by_name(model: nn.Module, stream: list[Tensor]) -> None:
    entry = ttc.Method(name="doubled", build=doubled)
    ttc.register(entry)
    try:
        assert ttc.adapt(model, "doubled")(stream[0]).shape == (24, 4)
        with pytest.raises(ttc.TTCError, match="there is a method 'doubled' already"):
            ttc.register(entry)
    finally:
        del ttc.METHODS["doubled"]
