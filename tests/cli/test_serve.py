"""``ttc serve``: everything that is wrong with a command is one sentence before anything starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ttc import TTCError
from ttc.cli.app import app
from ttc.serve.local_server import bind


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["serve", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["embedded", "--host", "0.0.0.0"],
            "listens on 0.0.0.0 needs a token: put one into the variable TTC_SERVE_TOKEN",
        ),
        (["embedded", "--token-file", "missing"], "cannot read the token file missing"),
        (["embedded", "--address", "auto"], "give it with --ray"),
        (["embedded", "--method", "tend"], "unknown method 'tend'"),
        (["embeded", "--port", "0"], "unknown model 'embeded'"),
        (["embedded", "--port", "0", "--class-names", "missing"], "cannot read the class names in missing"),
        (["embedded", "--port", "0", "--max-pixels", "99000000"], "max_pixels must be at most 89,000,000"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(
    words: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TTC_SERVE_TOKEN", raising=False)
    with pytest.raises(TTCError, match=error):
        run(*words)
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with bind("127.0.0.1", 0) as opened, pytest.raises(TTCError, match="choose another with --port"):
        run("embedded", "--port", opened.getsockname()[1])
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_is_empty_is_no_server_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTC_SERVE_TOKEN", "")
    with pytest.raises(TTCError, match="a token has at least 16"):
        run("embedded")


def test_the_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttc.serve.requirements.find_spec", lambda name: None)
    with pytest.raises(TTCError, match=r"pip install 'starlette>=0.40' 'uvicorn>=0.30'$"):
        run("embedded")
