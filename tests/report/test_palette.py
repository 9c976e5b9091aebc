import re

from tests.report.made import METHODS
from ttc.report.palette import ROLES, STYLES, style, vega_config


def test_a_method_looks_the_same_everywhere_and_like_no_other() -> None:
    assert len({style(name).colour for name in METHODS}) == len({style(name).shape for name in METHODS}) == len(METHODS)
    assert style("TENT (batch size = 1)") == style("tent+rla") == STYLES["tent"]
    assert style("something", 3) == style("else", 3) != style("else", 4)


def test_the_config_takes_its_colours_from_the_theme() -> None:
    config = str(vega_config(lambda role: f"<{role}>", "a font"))
    assert {role for role in ROLES if f"<{role}>" in config} == set(ROLES)
    assert not re.search(r"#[0-9a-f]{6}", config)


def test_every_colour_can_be_seen_on_both_themes() -> None:
    for name, (colour, _, _) in STYLES.items():
        for surface in ROLES["surface"]:
            light, dark = sorted((_luminance(colour), _luminance(surface)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 2, name


def _luminance(colour: str) -> float:
    """The relative luminance of WCAG."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
