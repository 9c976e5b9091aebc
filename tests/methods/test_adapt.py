"""The table of methods and the one-line entry."""

import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

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
