"""The study of regret, on a few methods and cells."""

from pathlib import Path

from tests.bench.conftest import place as place  # the fixture
from ttc.bench import Store
from ttc.bench.runner import run
from ttc.studies import regret
from ttc.studies.measurements import Measurements, plan
from ttc.studies.profiles import setup
from ttc.studies.reproduction import findings


def test_the_regret_of_a_method_is_what_it_lacks_to_the_best() -> None:
    cells = {("mixed", 1): {"a": 10.0, "b": 30.0}, ("mixed", 4): {"a": 50.0, "b": 40.0, "c": 20.0}}
    found = regret.regrets(cells)
    assert found == {
        "a": {("mixed", 1): 20.0, ("mixed", 4): 0.0},
        "b": {("mixed", 1): 0.0, ("mixed", 4): 10.0},
        "c": {("mixed", 4): 30.0},
    }


def test_a_small_grid_is_measured_and_drawn(place: Path) -> None:
    study = regret.STUDY.restrict(("source", "norm", "steady"), (4, 16), ("mixed", "label-shift(alpha=0.1)"))
    assert study.baseline == "source, mixed, N = 4"
    subject = setup("embedded", "cifar10c", dataset="imagefolder:photos", model="small_nets:small")
    planned = plan(study, subject, images=12, corruptions=("fog", "contrast"))
    with Store(place / "regret.sqlite") as store:
        list(run(planned.protocols, subject.resolved, store))
        measured = Measurements(planned, list(store.rows()))
    found = findings(measured)
    assert [table.name for table in found.tables] == ["regret", "regret-accuracy-4", "regret-accuracy-16"]
    summary = found.tables[0].rows
    assert set(summary) == {"source", "norm", "steady"}
    assert summary["source"]["most below source"].ours == 0
    for row in summary.values():
        mean, worst = row["mean"].ours, row["worst"].ours
        assert mean is not None
        assert worst is not None
        assert 0 <= mean <= worst
    assert [figure.name for figure in found.figures] == ["regret-heat-map"]
    empty = findings(Measurements(planned, [])).tables[0]
    assert all(value.ours is None for row in empty.rows.values() for value in row.values())


def test_a_row_is_found_in_either_kind_of_quotes() -> None:
    for row in ("tent+flip(optimizer='Adam(lr=3e-3)')", 'tent+flip(optimizer="Adam(lr=3e-3)")'):
        study = regret.STUDY.restrict(("source", row), (4,), ("mixed",))
        assert [entry.method for entry in study.entries] == ["source", 'tent+flip(optimizer="Adam(lr=3e-3)")']
