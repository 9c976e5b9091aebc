"""Severities and the corruption error: the definition, the reference, and what is said when it is not mCE."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.studies.conftest import measured
from ttc.bench import Row
from ttc.corruptions import CORRUPTIONS
from ttc.report.findings import ResultTable
from ttc.studies import severity
from ttc.studies.corruption_error import ALEXNET, ALEXNET_CLEAN
from ttc.studies.measurements import Measurements


def made(methods: Mapping[str, Mapping[int, float]], corruptions: tuple[str, ...], classes: int = 10) -> Measurements:
    """Measurements of accuracies by severity, the same on every corruption."""
    rows = {
        severity._row(method, level): dict.fromkeys(corruptions if level else ("clean",), accuracy)
        for method, levels in methods.items()
        for level, accuracy in levels.items()
    }
    found = measured(severity.STUDY, rows)
    with_classes: dict[str, Row] = {
        key: replace(row, figures={**row.figures, "per_class": [None] * classes}) for key, row in found.finished.items()
    }
    found.finished = with_classes
    return found


def table(found: Measurements, name: str) -> ResultTable:
    return next(one for one in severity._tables(found) if one.name == f"severity-{name}")


SOURCE = {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.6, 4: 0.5, 5: 0.4}
TTC = {0: 0.9, 1: 0.85, 2: 0.8, 3: 0.75, 4: 0.7, 5: 0.65}


def test_errors_are_divided_by_those_of_the_source_model_except_on_imagenet() -> None:
    found = table(made({"SOURCE": SOURCE, "TTC": TTC}, CORRUPTIONS), "corruption-error")
    assert found.columns == ("mCE", "relative mCE", *CORRUPTIONS)
    assert found.rows["SOURCE"]["mCE"].ours == pytest.approx(100)
    assert found.rows["TTC"]["mCE"].ours == pytest.approx(100 * 25 / 40)  # mean errors 25 % and 40 %
    assert found.rows["TTC"]["relative mCE"].ours == pytest.approx(100 * 15 / 30)
    assert found.winners("mCE") == {"TTC"}
    assert "the errors of SOURCE, which has 100" in found.notes[0]


def test_on_imagenet_the_reference_is_alexnet() -> None:
    found = table(made({"SOURCE": SOURCE}, CORRUPTIONS, classes=1000), "corruption-error")
    assert found.rows["SOURCE"]["fog"].ours == pytest.approx(100 * 40 / 81.9324)
    expected = np.mean([100 * 40 / ALEXNET[name] for name in CORRUPTIONS])
    assert found.rows["SOURCE"]["mCE"].ours == pytest.approx(expected)
    relative = np.mean([100 * 30 / (ALEXNET[name] - ALEXNET_CLEAN) for name in CORRUPTIONS])
    assert found.rows["SOURCE"]["relative mCE"].ours == pytest.approx(relative)


def test_a_mean_over_fewer_corruptions_is_not_called_mce() -> None:
    found = table(made({"SOURCE": SOURCE, "TTC": TTC}, ("fog", "snow")), "corruption-error")
    assert found.columns[:2] == ("mean CE", "mean relative CE")
    assert found.notes[-1] == "Not mCE, which is the mean over fifteen corruptions; this is the mean over 2."


def test_a_missing_severity_gives_no_corruption_error() -> None:
    found = made({"SOURCE": SOURCE, "TTC": {level: TTC[level] for level in (0, 5)}}, ("fog",))
    assert list(table(found, "corruption-error").rows) == ["SOURCE"]
    assert table(found, "averages").rows["TTC"]["severity 5"].ours == pytest.approx(65)
    assert table(found, "averages").rows["TTC"]["severity 3"].ours is None


def test_the_curves_start_at_the_clean_images() -> None:
    (figure,) = severity.curves(table(made({"SOURCE": SOURCE}, ("fog",)), "averages"))
    assert figure.name == "severity-curves"
    assert '"x": 0.0' in str(figure.spec).replace("'", '"')


def test_alexnet_is_that_of_the_benchmark() -> None:
    assert set(ALEXNET) == set(CORRUPTIONS)
    assert np.mean([*ALEXNET.values()]) == pytest.approx(78.9, abs=0.05)
