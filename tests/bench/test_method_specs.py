import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ttc
from tests.bench.conftest import protocol
from ttc.bench import Spec
from ttc.bench.method_specs import (
    build,
    describe_optimizers,
    method_checksum,
    method_label,
    options_json,
    with_defaults,
    without_defaults,
)
from ttc.clustering import ClusteringAdapter, GaussianNoise, vertical_flip
from ttc.errors import TTCError
from ttc.files import checksum
from ttc.nn import EmaNorm

SHORT = {"rmt": {"warm_up_samples": 400}}  # two steps of its warm-up; by default there are 250


@pytest.mark.parametrize("name", sorted(ttc.METHODS))
def test_a_method_built_from_its_written_options_predicts_as_the_original(name: str, model: nn.Module) -> None:
    spec = with_defaults(Spec.of(name, SHORT.get(name, {})))
    assert with_defaults(spec) == spec
    assert sorted(json.loads(options_json(spec))) == sorted(ttc.METHODS[name].options)
    images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    source = (
        torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1)) if ttc.METHODS[name].source_images else None
    )
    given: dict[str, Any] = {**SHORT.get(name, {}), **({} if source is None else {"source_images": source})}
    ours, theirs = build(model, name, options_json(spec), source), ttc.adapt(model, name, **given)
    for _ in range(2):
        assert torch.equal(ours(images), theirs(images))


def test_the_optimizer_is_the_one_that_was_built(model: nn.Module) -> None:
    written = {
        "tent": "Adam(lr=0.001)",
        "tent+flip": "Adam(lr=0.001)",
        "tipi": "Adam(lr=0.001)",
        "norm": "none",
        "tent(optimizer='SGD(momentum=0.9, lr=0.1)')": "SGD(lr=0.1, momentum=0.9)",
        "tent(optimizer='AdamW(lr=0.1, betas=[0.5, 0.9])')": "AdamW(betas=[0.5, 0.9], lr=0.1)",
    }
    for method, expected in written.items():
        spec = with_defaults(Spec.read(method))
        assert describe_optimizers(build(model, spec.name, options_json(spec))) == expected


def test_views_by_name(model: nn.Module) -> None:
    for text, expected in {"vertical_flip": vertical_flip, "GaussianNoise(std=0.2)": GaussianNoise(std=0.2)}.items():
        spec = with_defaults(Spec.of("ttc", {"view": text}))
        adapter = build(model, "ttc", options_json(spec))
        assert isinstance(adapter, ClusteringAdapter)
        assert adapter.views[1] == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tnet", r"unknown method 'tnet' \(did you mean 'tent'\?\); choose from: source, norm"),
        ("ttc(bandwith=2)", r"unknown option of 'ttc' 'bandwith' \(did you mean 'bandwidth'\?\); choose from: rla"),
        ("norm(x=1)", "unknown option of 'norm' 'x'; choose from: small_batches"),
        ("tent(optimizer='Adamm')", r"unknown torch optimizer 'Adamm' \(did you mean 'Adam'\?\); choose from:"),
        ("tent(optimizer='SGD(lr=-1)')", "the optimizer SGD\\(lr=-1\\) cannot be built: Invalid learning rate"),
        ("tent(optimizer='SGD(rate=1)')", "cannot be built: .*unexpected keyword"),
        ("ttc(view='flip')", "unknown view 'flip'.*; choose from: horizontal_flip, vertical_flip"),
        ("ttc(view='GaussianNoise(sigma=1)')", "the view GaussianNoise\\(sigma=1\\) cannot be built"),
    ],
)
def test_invalid_methods_are_rejected(text: str, sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence):
        with_defaults(Spec.read(text))


def test_an_option_of_the_wrong_type_is_rejected(model: nn.Module) -> None:
    spec = with_defaults(Spec.read("ttc(bandwidth='wide')"))
    with pytest.raises(TTCError, match="bandwidth must be a number, got 'wide'"):
        build(model, "ttc", options_json(spec))


def test_a_label_leaves_defaults_out() -> None:
    assert method_label(protocol("ttc(bandwidth=1.0, ss=False)")) == "ttc(ss=False)"
    assert str(without_defaults(with_defaults(Spec.read("ttc(bandwidth=1)")))) == "ttc(bandwidth=1)"  # not 1.0
    assert method_label(protocol("norm")) == "norm"


def test_an_own_builder_is_imported_and_built(place: Path, model: nn.Module) -> None:
    spec = with_defaults(Spec.read("own_methods:sharp"))
    assert options_json(spec) == '{"temperature": 1.0}'  # that of loss cannot be written
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    plain, sharp = (build(model, spec.name, f'{{"temperature": {t}}}')(images) for t in (1.0, 0.5))
    torch.testing.assert_close(sharp, 2 * plain)
    assert str(without_defaults(with_defaults(Spec.read("own_methods:sharp(temperature=0.5)")))) == (
        "own_methods:sharp(temperature=0.5)"
    )
    assert method_checksum(spec) == checksum(place / "own_methods.py")
    assert method_checksum(Spec("tent")) == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("own_methods:absent", "own_methods:absent: the module own_methods has no function 'absent'"),
        ("own_methods:number", "own_methods:number must be a function, it is int"),
        ("own_metods:sharp", "own_metods:sharp: cannot import own_metods .*run from its directory or set PYTHONPATH"),
        ("broken_methods:sharp", r"broken_methods:sharp: cannot import broken_methods \(SyntaxError: "),
        ("own_methods:sharp(temperatur=1)", "unknown option of 'own_methods:sharp' 'temperatur' .*'temperature'"),
        ("own_methods:demanding", r"needs the option temperature: write own_methods:demanding\(temperature=...\)"),
        ("own_methods:sharp(temperature='a')", "temperature must be a number, got 'a'"),
        ("own_methods:wrong", "the builder 'own_methods:wrong' must return a ttc.Adapter, got int"),
    ],
)
def test_invalid_own_builders_are_rejected(text: str, sentence: str, place: Path, model: nn.Module) -> None:
    (place / "broken_methods.py").write_text("def sharp(\n")

    def build_from(text: str) -> None:
        spec = with_defaults(Spec.read(text))
        build(model, spec.name, options_json(spec))

    with pytest.raises(TTCError, match=sentence):
        build_from(text)


def test_small_batches_is_an_option_of_every_method_and_no_part_of_cells_without_it(model: nn.Module) -> None:
    plain = with_defaults(Spec.read("tent"))
    assert with_defaults(Spec.read("tent(small_batches=False)")) == plain
    converted = with_defaults(Spec.read("tent(small_batches=True)"))
    assert dict(converted.options)["small_batches"] is True
    assert str(without_defaults(converted)) == "tent(small_batches=True)"
    adapter = build(model, "tent", options_json(converted))
    assert any(isinstance(layer, EmaNorm) for layer in adapter.model.modules())
    with pytest.raises(TTCError, match="small_batches is True, False or one of 'average', 'blend', 'window', got 'x'"):
        build(model, "tent", options_json(with_defaults(Spec.read("tent(small_batches='x')"))))
