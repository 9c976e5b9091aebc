"""How numbers are compared with the paper, on values made to order."""

import numpy as np
import pytest

from tests.studies.conftest import measured
from ttc.studies import study_named
from ttc.studies.measurements import published
from ttc.studies.reproduction import accuracy_table, claim, findings, headline
from ttc.studies.study import ALL, FIVE, Entry, Greater, Study, scales

STUDY = Study(
    name="small",
    title="t",
    about="a",
    setting="cifar10c",
    entries=(
        Entry("SOURCE", "source", paper="SOURCE"),
        Entry("ETA", "eta", paper="ETA"),
        Entry("TTC", "ttc", paper="TTC"),
    ),
    scale=scales(images=10),
    table="cifar10c-wrn28-10",
)


def test_the_average_is_over_corruptions_and_its_error_over_images() -> None:
    found = measured(STUDY, {"SOURCE": {"fog": 0.5, "snow": 1.0}}, images=100)
    fractions = (np.arange(100) < 50).astype(float) / 2 + 0.5
    assert found.accuracy("SOURCE") == pytest.approx(75)
    assert found.accuracy("SOURCE", "fog") == pytest.approx(50)
    assert found.error("SOURCE") == pytest.approx(100 * np.std(fractions) / 10)
    assert found.error("SOURCE", "fog") == pytest.approx(5.0)


def test_a_missing_cell_leaves_no_number() -> None:
    found = measured(STUDY, {"SOURCE": {"fog": 0.5}, "TTC": {"fog": 0.6, "snow": 0.7}})
    assert found.accuracy("ETA") is None
    assert found.gain("TTC", "ETA") is None
    assert claim(found, Greater("c", "TTC", "ETA")).verdict == "undecided"
    assert accuracy_table(found).rows["ETA"]["fog"].ours is None


@pytest.mark.parametrize(
    ("better", "by", "verdict"),
    [(0.9, 0, "holds"), (0.9, 60, "does not hold"), (0.5, 0, "undecided"), (0.2, 0, "does not hold")],
)
def test_claims_are_judged_by_their_interval(better: float, by: float, verdict: str) -> None:
    found = measured(STUDY, {"SOURCE": {"fog": 0.5}, "TTC": {"fog": better}})
    judged = claim(found, Greater("TTC is better.", "TTC", "SOURCE", by))
    assert judged.verdict == verdict
    assert judged.evidence.startswith("TTC − SOURCE: ")


def test_on_the_papers_own_set_up_levels_are_compared() -> None:
    found = measured(
        STUDY, {"SOURCE": {"fog": 0.74}, "ETA": {"fog": 0.92}, "TTC": {"fog": 0.87}}, 10_000, comparable=True
    )
    rows = accuracy_table(found).rows
    assert rows["SOURCE"]["fog"].flag == ""  # the paper's 74.0
    assert rows["ETA"]["fog"].flag.startswith("paper 84.8, here 92.0; the paper's ETA predicts almost as NORM does")
    assert rows["TTC"]["fog"].difference == pytest.approx(0.0)


def test_elsewhere_only_the_direction_is_compared() -> None:
    found = measured(STUDY, {"SOURCE": {"fog": 0.3}, "ETA": {"fog": 0.2}, "TTC": {"fog": 0.35}})
    rows = accuracy_table(found).rows
    assert rows["TTC"]["fog"].flag == ""
    assert rows["ETA"]["fog"].flag.startswith("paper +10.8 over SOURCE, here −10.0; ")
    assert "ours goes the other way" in accuracy_table(found).notes[0]


def test_the_paper_is_averaged_over_the_same_corruptions() -> None:
    found = measured(STUDY, {"TTC": {"fog": 0.5, "snow": 0.5}})
    entry = STUDY.entries[2]
    assert published(found, entry) == pytest.approx((87.0 + 84.3) / 2)
    assert published(found, entry, "fog") == 87.0
    assert published(found, Entry("x", "tent")) is None


def test_a_mean_over_some_corruptions_is_never_beside_the_papers_over_fifteen() -> None:
    components = study_named("components")
    entry = next(entry for entry in components.entries if entry.name == "+RLA")
    some = measured(components, {"+RLA": dict.fromkeys(FIVE, 0.5), "TENT": dict.fromkeys(FIVE, 0.5)})
    assert published(some, entry) is None
    table = findings(some).tables[0]
    assert table.beside_paper("average") == {}
    assert table.notes == ()
    whole = measured(components, {"+RLA": dict.fromkeys(ALL, 0.5)})
    assert published(whole, entry) == 82.6


def test_the_average_is_the_first_column() -> None:
    assert accuracy_table(measured(STUDY, {"TTC": {"fog": 0.5, "snow": 0.5}})).columns == ("average", "fog", "snow")


def test_the_headline_says_when_a_control_wins() -> None:
    found = measured(study_named("cifar10c"), {"TTC": {"fog": 0.7}, "TENT + flip": {"fog": 0.8}, "TENT": {"fog": 0.6}})
    assert headline(found).startswith("TENT + flip, a control, is best with 80.0 %, ahead of TTC by +10.00 points")


def test_zero_has_no_sign() -> None:
    found = measured(STUDY, {"SOURCE": {"fog": 0.5}, "TTC": {"fog": 0.5}})
    assert claim(found, Greater("c", "TTC", "SOURCE")).evidence == "TTC − SOURCE: 0.00 points (0.00 to 0.00)"


def test_the_headline_names_the_winner_and_how_sure_it_is() -> None:
    sure = measured(STUDY, {"SOURCE": {"fog": 0.5}, "TTC": {"fog": 0.9}})
    assert headline(sure).startswith("TTC is best with 90.0 %, ahead of SOURCE by +40.00 points (")
    assert headline(sure).endswith(": significant at 95 %.")
    even = measured(STUDY, {"SOURCE": {"fog": 0.5}, "TTC": {"fog": 0.5}})
    assert headline(even) == "SOURCE and TTC are level at 50.0 %, ahead of the others."
    close = measured(STUDY, {"SOURCE": {"fog": 0.5}, "TTC": {"fog": 0.5025}})
    assert headline(close).endswith(": not significant at 95 %.")
    assert headline(measured(STUDY, {"TTC": {"fog": 0.9}})) == ""


def test_known_differences_are_always_stated() -> None:
    notes = findings(measured(STUDY, {"TTC": {"fog": 0.9}})).notes
    assert any(note.startswith("ETA: the paper's ETA predicts almost as NORM does") for note in notes)
    for name, start in (("cifar10c", "T3A: "), ("cifar100c", "SOURCE: 8.8 % is several times below")):
        found = findings(measured(study_named(name), {"SOURCE": {"fog": 0.5}}))
        assert any(note.startswith(start) for note in found.notes)
