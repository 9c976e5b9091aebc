import pytest

from ttc.bench.spec import Spec, listed, nearest
from ttc.errors import TTCError


def test_a_spec_reads_what_it_writes() -> None:
    text = "ttc(bandwidth=2.5, normalize=[0.5, 1], optimizer='SGD(lr=0.1)', ss=False, view=None)"
    spec = Spec.read(text)
    assert str(spec) == text
    assert Spec.read(str(spec)) == spec
    assert dict(spec.options)["optimizer"] == "SGD(lr=0.1)"


def test_the_order_of_options_does_not_matter() -> None:
    assert Spec.read("a(x=1,y=2)") == Spec.read(" a( y=2, x=1 ) ") == Spec.of("a", {"y": 2, "x": 1})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"expected NAME or NAME\(option=value, ...\), got ''"),
        ("ttc(", "expected NAME"),
        ("ttc(2)", "cannot read the options of 'ttc\\(2\\)'"),
        ("ttc(bandwidth=two)", "cannot read the options"),
        ("ttc(**{})", "cannot read the options"),
        ("ttc(a=1)(b=2)", "cannot read the options"),
        ("ttc(a=1e999)", "the option a of 'ttc' must be finite, got inf"),
        ("ttc(a={1: 2})", "must be a number, a text, true, false or a list, got dict"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence):
        Spec.read(text)


def test_lists_keep_brackets_and_quotes_together() -> None:
    assert listed("a(x=[1,2], y='p,q'), b ,,c('(')") == ["a(x=[1,2], y='p,q')", "b", "c('(')"]
    assert listed("") == []


def test_the_nearest_word() -> None:
    assert nearest("bandwith", ["bandwidth", "view"]) == " (did you mean 'bandwidth'?)"
    assert nearest("xyz", ["bandwidth"]) == ""
