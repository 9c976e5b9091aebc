from typing import Any

import pytest
import torch

from tests.conftest import SmallNet
from ttc import Guard, TTCError
from ttc.core import Adapter
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.served_model import ServedModel


def unsized() -> SmallNet:
    return SmallNet()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "embeded"}, r"unknown model 'embeded' \(did you mean 'embedded'\?\)"),
        ({"method": "tend"}, r"unknown method 'tend' \(did you mean 'tent'\?\)"),
        ({"model": "resnet20"}, "has no weights of its own; pass them with --checkpoint"),
        ({"model": "tests.serve.test_served_model:unsized"}, "is not known: give it with --size"),
        ({"device": "cuda:99"}, "try --device cpu"),
        ({"class_names": ("a", "b")}, "has 10 classes and the file 2 names"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_said_before_anything_starts(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TTCError, match=words):
        ServedModel(ServeSettings(**{"model": "embedded", **options}))


def test_predictors_share_nothing_and_have_a_guard_unless_told() -> None:
    made = ServedModel(ServeSettings("tests.serve.test_served_model:unsized", size=8))
    assert (made.fitting.side, made.num_classes) == (8, 4)
    first, second = made.new_predictor(), made.new_predictor()
    assert isinstance(first, Guard)
    assert isinstance(second, Guard)
    before = second.predict_state = second.adapter.state_dict()  # type: ignore[attr-defined]
    first(torch.rand(8, 3, 8, 8))
    after = second.adapter.state_dict()
    assert str(before) == str(after)
    bare = ServedModel(ServeSettings("tests.serve.test_served_model:unsized", size=8, guard=False))
    assert isinstance(bare.new_predictor(), Adapter)
    assert bare.class_name(3) == "3"


def test_a_size_of_one_s_own_keeps_the_proportions_of_the_model() -> None:
    assert ServedModel(ServeSettings("embedded", size=48)).fitting[:2] == (48, 48)
