"""Finding the head, reading features, and what a model must return."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Classifier, find_head


class Named(nn.Module):
    """Layers by name in the given order; the forward does not matter for finding the head."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)


class Returns(nn.Module):
    """A network that hands out its logits in some wrapping."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> object:
        features = self.bn(self.conv(x)).mean((2, 3))
        logits = self.fc(features)
        predictions: dict[str, object] = {
            "tensor": logits,
            "tuple": (logits, features),
            "dict": {"logits": logits, "features": features},
            "list": [logits],
            "object": SimpleNamespace(loss=None, logits=logits),
            "strings": ("logits",),
            "features": {"features": features},
            "sum": logits.sum(1),
            "twice": logits + (self.fc(features) if self.kind == "twice" else 0),
            "none": None,
        }
        return predictions[self.kind]


def conv() -> nn.Module:
    return nn.Conv2d(3, 4, 3)


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (nn.Sequential(conv(), nn.Flatten(), nn.Linear(4, 2)), "2"),
        (Named(fc=nn.Linear(4, 2), conv=conv()), "fc"),  # the only one, wherever it stands
        (Named(conv=conv(), fc1=nn.Linear(4, 4), fc2=nn.Linear(4, 2)), "fc2"),  # fc1 leads into fc2
        (Named(conv=conv(), fc1=nn.Linear(9, 4), fc2=nn.Linear(4, 2)), "fc2"),
        (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), "2"),
        (
            Named(blocks=nn.Sequential(nn.Linear(4, 12), nn.Linear(4, 4)), norm=nn.LayerNorm(4), head=nn.Linear(4, 2)),
            "head",
        ),
    ],
)
def test_the_obvious_head_is_found(model: nn.Module, head: str) -> None:
    assert find_head(model) == head
    assert Classifier(model).num_classes == 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.Sequential(conv(), nn.Flatten()),
            "no linear layer that could be its head; name the final layer with head=",
        ),
        (
            Named(conv=conv(), head=nn.Linear(4, 2), head_dist=nn.Linear(4, 2)),
            "several heads; name the one for the classes: head='head', head='head_dist'",
        ),
        (Named(conv=conv(), label=nn.Linear(4, 2), domain=nn.Linear(4, 3)), "several heads"),
        (Named(fc1=nn.Linear(4, 2), fc2=nn.Linear(2, 2), conv=conv()), "2 linear layers and none comes last"),
    ],
)
def test_two_heads_or_none_is_an_error(model: nn.Module, message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        Classifier(model)


def test_a_named_head_is_taken() -> None:
    model = Named(conv=conv(), label=nn.Linear(4, 2), domain=nn.Linear(4, 3))
    assert Classifier(model, head="label").num_classes == 2


@pytest.mark.parametrize(
    ("head", "message"),
    [("fc", r"no layer called 'fc'; its linear layers: head='2'"), ("1", r"the layer '1' \(Flatten\) has no weight")],
)
def test_a_wrong_name_is_an_error(head: str, message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        Classifier(nn.Sequential(conv(), nn.Flatten(), nn.Linear(4, 2)), head=head)


def test_a_convolutional_head_gives_flat_features() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 6, 1), nn.Flatten()
    )
    prediction = Classifier(model, head="3")(torch.rand(2, 3, 8, 8))
    assert prediction.logits.shape == (2, 6)
    assert prediction.features.shape == (2, 4)
    assert ttc.adapt(model, "t3a", head="3")(torch.rand(2, 3, 8, 8)).shape == (2, 6)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("strings", "logits .N, K., got a tuple of 1, the first of type str; say where they are with output="),
        ("features", r"got a dict with keys \['features'\]"),
        ("sum", r"expected logits of shape \(2, 5\)"),
        ("twice", "the layer 'fc' ran 2 times for one batch, a head runs once"),
        ("none", "got NoneType"),
    ],
)
def test_a_model_that_returns_something_else_is_rejected(kind: str, message: str) -> None:
    adapter = ttc.adapt(Returns(kind), "ttc")
    with pytest.raises(ttc.TTCError, match=message):
        adapter(torch.rand(4, 3, 8, 8))


def test_features_are_the_heads_input(model: nn.Module, stream: list[Tensor]) -> None:
    classifier = Classifier(model)
    logits, features = classifier(stream[0])
    assert isinstance(classifier.head, nn.Linear)
    torch.testing.assert_close(classifier.head_weight @ features[0] + classifier.head.bias, logits[0])
    assert features.shape == (24, 16)


def test_the_copy_stays_in_evaluation_mode(model: nn.Module) -> None:
    classifier = Classifier(model).train()
    assert not any(module.training for module in classifier.modules())
    assert model.training


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # of torch.compile itself
def test_a_compiled_model_is_adapted_uncompiled(model: nn.Module, stream: list[Tensor]) -> None:
    compiled = torch.compile(model)
    assert torch.equal(ttc.adapt(compiled, "ttc")(stream[0]), ttc.adapt(model, "ttc")(stream[0]))  # type: ignore[arg-type]


def test_what_cannot_be_copied_is_rejected() -> None:
    class Stubborn(nn.Linear):
        def __deepcopy__(self, memo: object) -> nn.Module:
            raise RuntimeError("no copies")

    with pytest.raises(ttc.TTCError, match="cannot be copied, and adaptation never touches the original: no copies"):
        Classifier(Stubborn(4, 2))


def test_what_is_not_a_module_is_rejected() -> None:
    with pytest.raises(ttc.TTCError, match=r"expected a torch\.nn\.Module to adapt, got function"):
        ttc.adapt(lambda x: x)  # type: ignore[arg-type]


def test_parameters_of_inference_mode_become_trainable(stream: list[Tensor]) -> None:
    with torch.inference_mode():
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
        )
    adapter = ttc.adapt(copy.copy(model), "tent")
    first = adapter(stream[0])
    assert not torch.equal(first, adapter(stream[0]))
