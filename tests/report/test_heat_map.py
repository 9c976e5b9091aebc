from ttc.report.heat_map import HeatPanel, heat_map
from ttc.report.rendering import render


def made() -> dict[str, object]:
    first = HeatPanel(
        "batch size 1",
        {"continual": {"tent": 12.0, "ttc": None}, "mixed": {"tent": 61.4, "ttc": 70.0}},
        {"ms per image": {"tent": 3.14, "ttc": 12.3}},
        {("continual", "ttc"): "accepts batches of 2 images or more"},
    )
    second = HeatPanel("batch size 16", {"continual": {"tent": 70.5, "ttc": 75.0}})
    return heat_map([first, second], "Two methods", label="accuracy (%)")


def test_a_missing_number_is_a_dash_with_its_reason() -> None:
    values = str(made())
    assert "'text': '—', 'note': 'accepts batches of 2 images or more'" in values


def test_panels_share_colours_and_numbers_are_in_the_cells() -> None:
    spec = made()
    assert spec["usermeta"] == {"fit": {"legend": 0, "panel": 260, "columns": 1}}
    svg = render(spec, "svg").decode()
    for text in ("batch size 1", "batch size 16", ">12<", ">61<", ">3.1<", ">—<", "continual", "ms per image"):
        assert text in svg
    assert str(spec).count("'domain': [12.0, 75.0]") == 2
