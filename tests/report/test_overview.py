import pytest

from tests.studies.conftest import measured
from ttc.report.overview import overview
from ttc.studies.study import Entry, Study, scales

STUDY = Study("s", "t", "a", "cifar10c", (Entry("one", "tent"),), scales())


def test_a_setting_is_a_table_and_a_figure_with_the_average_first() -> None:
    rows = list(measured(STUDY, {"one": {"fog": 0.5, "snow": 0.7}}, images=100).finished.values())
    found = overview(rows)
    assert len(found) == 1
    table = found[0].tables[0]
    assert table.columns == ("average", "fog", "snow")
    (values,) = table.rows.values()
    assert values["average"].ours == pytest.approx(60)
    assert values["fog"].error == pytest.approx(5)
    assert [figure.name for figure in found[0].figures] == ["setting-1"]
    assert found[0].headline == "", "one method is no contest"
    assert {cell.hash for cell in found[0].cells} == {row.protocol.hash for row in rows}


def test_settings_are_kept_apart() -> None:
    small = list(measured(STUDY, {"one": {"fog": 0.5}}, images=100).finished.values())
    large = list(measured(STUDY, {"one": {"fog": 0.5}}, images=200).finished.values())
    assert [findings.study for findings in overview([*small, *large])] == ["setting-1", "setting-2"]
