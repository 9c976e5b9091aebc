import json

import pytest
import torch
from torch import nn

import ttc
from ttc.bench import Spec
from ttc.bench.method_specs import build, complete, optimizer_of, options_text
from ttc.clustering import ClusteringAdapter, GaussianNoise, vertical_flip
from ttc.errors import TTCError


@pytest.mark.parametrize("name", sorted(ttc.METHODS))
def test_a_method_built_from_its_written_options_answers_as_the_original(name: str, model: nn.Module) -> None:
    spec = complete(Spec.read(name))
    assert complete(spec) == spec
    assert sorted(json.loads(options_text(spec))) == sorted(ttc.METHODS[name].options)
    images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    ours, theirs = build(model, name, options_text(spec)), ttc.adapt(model, name)
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
        spec = complete(Spec.read(method))
        assert optimizer_of(build(model, spec.name, options_text(spec))) == expected


def test_views_by_name(model: nn.Module) -> None:
    for text, expected in {"vertical_flip": vertical_flip, "GaussianNoise(std=0.2)": GaussianNoise(std=0.2)}.items():
        spec = complete(Spec.of("ttc", {"view": text}))
        adapter = build(model, "ttc", options_text(spec))
        assert isinstance(adapter, ClusteringAdapter)
        assert adapter.views[1] == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tnet", r"there is no method 'tnet' \(did you mean 'tent'\?\); the methods: source, norm"),
        ("ttc(bandwith=2)", r"'ttc' has no option 'bandwith' \(did you mean 'bandwidth'\?\); its options: rla"),
        ("norm(x=1)", "'norm' has no option 'x'; its options: it has none"),
        ("tent(optimizer='Adamm')", r"torch has no optimizer 'Adamm' \(did you mean 'Adam'\?\); it has:"),
        ("tent(optimizer='SGD(lr=-1)')", "the optimizer SGD\\(lr=-1\\) cannot be made: Invalid learning rate"),
        ("tent(optimizer='SGD(rate=1)')", "cannot be made: .*unexpected keyword"),
        ("ttc(view='flip')", "there is no view 'flip'.*; the views: horizontal_flip, vertical_flip"),
        ("ttc(view='GaussianNoise(sigma=1)')", "the view GaussianNoise\\(sigma=1\\) cannot be made"),
    ],
)
def test_wrong_methods_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence):
        complete(Spec.read(text))


def test_an_option_of_the_wrong_kind_is_a_sentence(model: nn.Module) -> None:
    spec = complete(Spec.read("ttc(bandwidth='wide')"))
    with pytest.raises(TTCError, match=r"'ttc' cannot take the options .*bandwidth"):
        build(model, "ttc", options_text(spec))
