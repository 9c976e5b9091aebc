"""``ttc inspect`` as a user runs it."""

import pytest
from typer.testing import CliRunner

from ttc.cli.app import app
from ttc.errors import TTCError


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, ["inspect", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_zoo_model_is_described() -> None:
    text = shown("resnet20")
    assert "19 BatchNorm2d" in text
    assert "'linear', 64 features to 10 classes" in text
    assert "warning" not in text


def test_a_batch_of_one_is_warned_of() -> None:
    assert "batch of one" in shown("resnet20", "--batch-size", "1")


def test_other_input_statistics() -> None:
    assert "19 BatchNorm2d" in shown("resnet20", "--statistics", "imagenet")
    with pytest.raises(TTCError, match=r"unknown input statistics 'imgnet' \(did you mean 'imagenet'\?\)"):
        CliRunner().invoke(app, ["inspect", "resnet20", "--statistics", "imgnet"], catch_exceptions=False)


def test_an_unknown_model_is_rejected() -> None:
    with pytest.raises(TTCError, match="unknown model 'resnet21'"):
        CliRunner().invoke(app, ["inspect", "resnet21"], catch_exceptions=False)
