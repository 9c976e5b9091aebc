"""``ttc diagnose`` on a few images and a network of this test."""

from pathlib import Path

import pytest

from tests.bench.conftest import place as place  # the fixture
from tests.studies.conftest import ttc
from ttc.errors import TTCError

SUBJECT = ["--dataset", "imagefolder:photos", "--model", "small_nets:small", "--images", "36", "--batch-size", "12"]


def test_a_table_and_a_figure_for_each_measure(place: Path) -> None:
    code, output = ttc("diagnose", *SUBJECT, "--corruptions", "fog", "--output", "found")
    assert code == 0
    assert "Fusing views takes the accuracy of the assignment from " in output
    assert " points (" in output
    for measure in ("accuracy, fused views (%)", "wrong samples removed (%)", "nearest neighbour: same label (%)"):
        assert measure in output
    for name in ("assignment", "neighbours", "selection", "gradient"):
        assert (place / "found" / "figures" / f"diagnosis-{name}.svg").read_text().startswith("<svg")
    assert (place / "found" / "tables" / "diagnosis.csv").is_file()


def test_a_method_without_the_two_steps_is_rejected(place: Path) -> None:
    with pytest.raises(TTCError, match="'t3a' has no assignment and update to diagnose; choose ttc, tent, eta"):
        ttc("diagnose", *SUBJECT, "--corruptions", "fog", "--method", "t3a")
