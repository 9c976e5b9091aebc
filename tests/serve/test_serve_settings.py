from pathlib import Path
from typing import Any

import pytest

from ttc import TTCError
from ttc.serve.serve_settings import ServeSettings, digest_token, read_token_digest, valid_stream_name

LONG = "x" * 16


@pytest.mark.parametrize("name", ["a", "camera-7", "7", "line.2_left", "a" * 64])
def test_names_of_streams(name: str) -> None:
    assert valid_stream_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a\\b", "-a", "a.", "A", "ä", "a" * 65, "a\n", "a b", "a\0"]
)
def test_a_name_with_a_path_in_it_is_rejected(name: str) -> None:
    with pytest.raises(TTCError, match="a stream name has 1 to 64 characters"):
        valid_stream_name(name)


@pytest.mark.parametrize(
    "options",
    [{"max_streams": 0}, {"save_every": 0}, {"max_pixels": 90_000_000}, {"timeout": 0}, {"timeout": float("nan")},
     {"max_wait": -1}, {"max_wait": 40}],
    ids=str,
)  # fmt: skip
def test_a_number_out_of_range_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(TTCError, match=next(iter(options))):
        ServeSettings("embedded", **options)


def test_the_token_is_stored_nowhere() -> None:
    digest = digest_token(LONG)
    settings = ServeSettings("embedded", token_digest=digest)
    assert LONG not in str(vars(settings))
    assert digest not in repr(settings)


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "x" * 15 + "é", "x x x x x x x x x x", "x" * 16 + "\0"])
def test_a_token_that_can_be_guessed_is_rejected(token: str) -> None:
    with pytest.raises(TTCError, match="at least 16 printable ASCII characters"):
        digest_token(token)


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{LONG}\n")
    assert read_token_digest(tmp_path / "token", "other" * 4) == digest_token(LONG)
    assert read_token_digest(None, LONG) == digest_token(LONG)
    assert read_token_digest(None, None) == ""
    with pytest.raises(TTCError, match="cannot read the token file"):
        read_token_digest(tmp_path / "missing", None)
    with pytest.raises(TTCError, match="at least 16"):  # set but empty: never a server without a token by accident
        read_token_digest(None, "")
