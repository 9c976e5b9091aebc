import pytest

from ttc.cli.wording import decimal, duration, plural, print_line


@pytest.mark.parametrize(
    ("value", "digits", "sign", "expected"),
    [(-0.0049, 2, False, "0.00"), (-0.0049, 2, True, "+0.00"), (-0.0051, 2, True, "-0.01"), (3.0, 0, False, "3")],
)
def test_zero_has_no_minus_sign(value: float, digits: int, sign: bool, expected: str) -> None:
    assert decimal(value, digits, sign=sign) == expected


def test_one_thing_is_singular() -> None:
    assert [plural(count, "cell") for count in (0, 1, 2, 1000)] == ["0 cells", "1 cell", "2 cells", "1,000 cells"]


def test_times_have_their_natural_unit() -> None:
    assert [duration(seconds) for seconds in (0.2, 59, 90, 7200)] == ["1 s", "59 s", "1.5 min", "2.0 h"]


def test_a_line_is_folded_to_the_terminal_and_whole_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_line("title", "words " * 8 + "/a/path-that-is-longer/than-the-line/by-far", 10)
    assert capsys.readouterr().out.splitlines() == [
        "title     words words words words words",
        "          words words words",
        "          /a/path-that-is-longer/than-the-line/by-far",
    ]
    monkeypatch.delenv("COLUMNS")
    print_line("title", "words " * 99, 10)
    print_line("title", "", 10)
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [10 + 6 * 99 - 1, 5]
