"""The study of all methods in all scenarios, on a few of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.conftest import place as place  # the fixture
from ttc.bench import Store
from ttc.bench.runner import run
from ttc.methods import METHODS
from ttc.studies import field
from ttc.studies.measurements import Measurements, plan
from ttc.studies.profiles import setup
from ttc.studies.reproduction import findings


def test_every_method_but_variants_and_controls_is_in_it() -> None:
    variants = {name for name in METHODS if "+" in name or name.endswith("-paper")}
    assert set(METHODS) - variants - {"norm-blend", "norm-ema", "ttc-memory"} == set(field.METHODS)
    assert len(field.STUDY.entries) == len(field.METHODS) * (3 * len(field.SCENARIOS) + 1)


def test_a_small_field_is_measured_and_drawn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "METHODS", ("source", "eata", "tent"))
    monkeypatch.setattr(field, "SIZES", (1, 16))
    monkeypatch.setattr(field, "SCENARIOS", ("per-domain", "recurring(rounds=20)", "long-tailed(ratio=10)"))
    kept = tuple(
        entry for entry in field.STUDY.entries
        if entry.method in field.METHODS and entry.batch_size in field.SIZES
        and entry.scenario in (*field.SCENARIOS, field.SINGLE)
    )  # fmt: skip
    study = replace(field.STUDY, entries=kept, lighter={"recurring(rounds=20)": "recurring(rounds=2)"})
    subject = setup("embedded", "cifar10c", dataset="imagefolder:photos", model="small_nets:small")
    planned = plan(study, subject, images=12, corruptions=("fog", "contrast"))
    assert {cell.scenario for cell in planned.protocols if "recurring" in cell.scenario} == {"recurring(rounds=2)"}
    assert {bool(cell.source_split) for cell in planned.protocols if cell.method == "eata"} == {True}
    with Store(place / "field.sqlite") as store:
        list(run(planned.protocols, subject.resolved, store))
        rows = list(store.rows())
    measured = Measurements(planned, rows)
    found = findings(measured)
    assert [table.name for table in found.tables] == ["field-1", "field-16", "field-cost"]
    assert all(
        value.ours is not None for table in found.tables for row in table.rows.values() for value in row.values()
    )
    assert len(measured.fractions("tent, recurring, N = 16")) == 12  # an image counts once
    assert any("eata: source images from the declared split clean:24" in note for note in found.notes)
    assert [figure.name for figure in found.figures] == ["field-heat-map"]
    failed = replace(rows[0], status="failed", error="the model's outputs are not finite")
    reasons = Measurements(planned, [failed, *rows[1:]])
    assert sum(bool(reasons.reason(entry.name)) for entry in kept) == 1
