"""What objects look like at a prompt and in a notebook."""

import pytest
from torch import Tensor, nn

import ttc


def test_an_adapter_is_a_short_table(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc", bandwidth=2.0)
    lines = repr(adapter).splitlines()
    assert lines == [
        "adapter",
        "  method          ttc (bandwidth=2.0)",
        "  model           SmallNet, 4 classes, cpu",
        "  adapts          48 of 1,484 parameters",
        "  changed so far  0 % of these parameters' norm",
    ]
    for batch in (*stream, *stream):
        adapter(batch)
    assert "changed so far  0 %" not in repr(adapter)


def test_a_guard_is_a_short_table(model: nn.Module, stream: list[Tensor]) -> None:
    guard = ttc.Guard(ttc.adapt(model, "ttc"))
    guard(stream[0])
    guard.freeze()
    shown = repr(guard)
    assert "mode              frozen (level healthy)" in shown
    assert "images            24 in 1 batch\n" in shown
    assert "event             freeze after 24: requested" in shown
    assert "method            ttc" in shown


@pytest.mark.parametrize("kind", ["adapter", "guard", "inspection"])
def test_a_notebook_shows_the_same_as_html(kind: str, model: nn.Module) -> None:
    adapter = ttc.adapt(model, "ttc")
    value = {"adapter": adapter, "guard": ttc.Guard(adapter), "inspection": ttc.inspect(model)}[kind]
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert html.startswith("<table>")
    for name, text in value.summary_rows():  # type: ignore[attr-defined]
        assert name in repr(value)
        assert name in html
        assert text.replace("'", "&#x27;") in html
    assert max(map(len, repr(value).splitlines())) <= 80
