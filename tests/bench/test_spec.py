import pytest

from ttc.bench.spec import Spec, split_list
from ttc.errors import TTCError


def test_a_spec_reads_what_it_writes() -> None:
    text = "ttc(bandwidth=2.5, normalize=[0.5, 1], optimizer='SGD(lr=0.1)', ss=False, view=None)"
    spec = Spec.read(text)
    assert str(spec) == text
    assert Spec.read(str(spec)) == spec
    assert dict(spec.options)["optimizer"] == "SGD(lr=0.1)"


def test_the_order_of_options_does_not_matter() -> None:
    assert Spec.read("a(x=1,y=2)") == Spec.read(" a( y=2, x=1 ) ") == Spec.of("a", {"y": 2, "x": 1})


def test_an_address_is_a_name() -> None:
    spec = Spec.read("my_package.module:my_builder(lr=0.1)")
    assert (spec.name, spec.options, spec.is_address) == ("my_package.module:my_builder", (("lr", 0.1),), True)
    assert str(spec) == "my_package.module:my_builder(lr=0.1)"
    assert not Spec.read("tent+rla").is_address


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"expected NAME or NAME\(option=value, ...\), got ''"),
        ("ttc(", "expected NAME"),
        ("module:", "expected NAME"),
        (":function", "expected NAME"),
        ("a:b:c", "expected NAME"),
        ("ttc(2)", "cannot read the options of 'ttc\\(2\\)'"),
        ("ttc(bandwidth=two)", "cannot read the options"),
        ("ttc(**{})", "cannot read the options"),
        ("ttc(a=1)(b=2)", "cannot read the options"),
        ("ttc(a=1e999)", "the option a of 'ttc' must be finite, got inf"),
        ("ttc(a={1: 2})", "must be a number, a string, true, false or a list, got dict"),
    ],
)
def test_what_cannot_be_parsed_is_rejected(text: str, sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence):
        Spec.read(text)


def test_splitting_a_list_leaves_brackets_and_quotes_whole() -> None:
    assert split_list("a(x=[1,2], y='p,q'), b ,,c('(')") == ["a(x=[1,2], y='p,q')", "b", "c('(')"]
    assert split_list("") == []
