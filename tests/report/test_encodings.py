from typing import Any

from tests.report.made import KINDS, SIZES
from ttc.report.encodings import WIDTH


def test_a_plot_fills_its_width_and_panels_share_it() -> None:
    assert KINDS["dots"]()["width"] == WIDTH
    for kind, columns in (("panels", 2), ("areas", 3)):
        spec = KINDS[kind]()
        assert spec["columns"] == columns
        assert 0.5 * WIDTH < sum(panel["width"] for panel in spec["concat"][:columns]) < WIDTH


def test_batch_sizes_are_ticks_of_a_logarithmic_axis() -> None:
    axis: dict[str, Any] = KINDS["lines"]()["layer"][0]["layer"][1]["encoding"]["x"]
    assert axis["scale"]["type"] == "log"
    assert axis["axis"]["values"] == list(SIZES)


def test_the_page_still_scrolls_over_a_plot_that_zooms() -> None:
    zoom = next(param for param in KINDS["scatter"]()["params"] if param["name"] == "zoom")
    assert "ctrlKey" in zoom["select"]["zoom"]
    assert "mouse" in zoom["select"]["translate"]
