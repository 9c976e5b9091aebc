from hypothesis import given
from hypothesis import strategies as st

from ttc.report.formatting import gain_text, interval_text, number


@given(st.floats(-1e6, 1e6), st.integers(0, 4), st.booleans())
def test_a_number_is_rounded_and_zero_has_no_sign(value: float, digits: int, sign: bool) -> None:
    text = number(value, digits, sign=sign)
    plain = float(text.replace("−", "-"))
    assert abs(plain - value) <= 0.5001 * 10**-digits + 1e-9
    assert (text[0] in "+−") == (plain < 0 or (sign and plain > 0))
    assert "-" not in text


def test_intervals_are_written_with_their_ends() -> None:
    assert gain_text(-0.001, -0.2, 0.004) == "0.00 points (−0.20 to 0.00)"
    assert interval_text(1.0, 0.5, 1.5, 2, sign=True) == "+1.00 (+0.50 to +1.50)"
