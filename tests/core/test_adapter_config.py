"""Options of an adapter as a file contains them."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import GaussianNoise
from ttc.core import AdapterConfig
from ttc.core.adapter_config import are_options, as_argument, differing_option, is_description, option_text

OWN = AdapterConfig("ttc", {"bandwidth": 2.0, "optimizer": partial(torch.optim.Adam, lr=0.01), "sizes": (1, (2, 3))})


def test_options_without_a_json_value_are_described() -> None:
    options = json.loads(json.dumps(OWN.described()))
    assert options["bandwidth"] == 2.0
    assert option_text(options["optimizer"]) == "partial(torch.optim.adam.Adam, lr=0.01)"
    assert [name for name, value in options.items() if is_description(value)] == ["optimizer"]
    assert as_argument(options["sizes"]) == (1, (2, 3))
    assert option_text(options["sizes"]) == "(1, (2, 3))"
    assert are_options(options)
    view = AdapterConfig("ttc", {"view": GaussianNoise(std=0.05, seed=3)}).shown()["view"]
    assert view.startswith("GaussianNoise(seed=3, std=0.05")


def test_tensors_are_described_by_their_contents() -> None:
    zeros, ones = (AdapterConfig("eata", {"source": value(3)}).without_tensors() for value in (torch.zeros, torch.ones))
    assert "a tensor of shape (3,) with SHA-256" in zeros.shown()["source"]
    assert zeros != ones


@pytest.mark.parametrize(
    ("saved", "difference"),
    [
        ({"bandwidth": 2.0}, None),
        ({"bandwidth": 3.0}, ("bandwidth", "3.0", "2.0")),
        ({}, ("bandwidth", "its default", "2.0")),
        ({"bandwidth": 2.0, "head": "fc"}, ("head", "'fc'", "its default")),
    ],
)
def test_the_first_difference_is_named(saved: dict[str, object], difference: tuple[str, str, str] | None) -> None:
    assert differing_option(saved, AdapterConfig("ttc", {"bandwidth": 2.0})) == difference


@pytest.mark.parametrize("options", [[], {"model": 1}, {"method": "x"}, {"a b": 1}, {"a": {"b": 1}}, {"a": [{}]}])
def test_what_is_no_option_is_told(options: object) -> None:
    assert not are_options(options)


def test_pairs_of_numbers_come_back(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    normalize = ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    adapter = ttc.adapt(model, "tipi", normalize=normalize, head="fc")
    adapter(stream[0])
    adapter.save(tmp_path / "tipi.safetensors")
    loaded = ttc.load_adaptation(model, tmp_path / "tipi.safetensors")
    assert loaded.config == adapter.config
    assert torch.equal(loaded(stream[1]), adapter(stream[1]))
