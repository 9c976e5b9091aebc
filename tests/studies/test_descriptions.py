"""Every study says something that can be run and be compared with the paper."""

import pytest

from ttc.bench.method_specs import with_defaults
from ttc.bench.spec import Spec
from ttc.corruptions import CORRUPTIONS
from ttc.errors import TTCError
from ttc.studies import NAMES, paper, study_named
from ttc.studies.components import STUDY as COMPONENTS
from ttc.studies.known_differences import KNOWN_DIFFERENCES
from ttc.studies.profiles import PROFILES, SETTINGS
from ttc.studies.study import ALL, FIVE, THREE

TABLES = ("cifar10c-wrn28-10", "cifar100c-wrn28-10", "imagenetc-resnet50", "cifar10c-resnet50", "augmentations")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_whole(name: str) -> None:
    found = study_named(name)
    assert found.name == name
    assert found.title
    assert found.about
    entries = [entry.name for entry in found.entries]
    assert len(set(entries)) == len(entries)
    for entry in found.entries:
        with_defaults(Spec.read(entry.method))
    for claim in found.claims:
        assert {claim.better, claim.worse} <= set(entries)
    assert set(found.scale) == set(PROFILES)
    assert found.setting in SETTINGS
    assert found.baseline in entries or not entries
    assert set(found.labels) <= set(entries)
    assert all(set(scale.corruptions) <= set(CORRUPTIONS) for scale in found.scale.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_the_paper_that_a_study_names_exists(name: str) -> None:
    found = study_named(name)
    for entry in found.entries:
        if entry.paper:
            assert entry.paper in paper.tables()[found.table]


def test_all_rows_of_the_papers_tables_are_run() -> None:
    for name in NAMES:
        found = study_named(name)
        if found.table and found.table != "batch-size":
            assert {entry.paper for entry in found.entries} >= set(paper.tables()[found.table])


def test_all_sixteen_combinations_are_run() -> None:
    combinations = {entry.method for entry in COMPONENTS.entries if "flip" not in entry.method}
    assert len(combinations) == 16


@pytest.mark.parametrize("table", TABLES)
def test_the_papers_averages_are_those_of_its_rows(table: str) -> None:
    for row, numbers in paper.tables()[table].items():
        own = [numbers[corruption] for corruption in CORRUPTIONS]
        assert sum(own) / 15 == pytest.approx(numbers["average"], abs=0.11), row


def test_the_paper_is_read_by_name() -> None:
    assert paper.value("cifar10c-wrn28-10", "TENT", "fog") == 86.2
    assert paper.value("batch-size", "TENT, CIFAR-10-C, batch size 2", "CIFAR-10-C") == 17.1
    assert paper.value("collapse", "TENT (batch size = 20)", "ImageNet-C") == 39.5
    assert paper.average("components", "TENT", FIVE) is None
    with pytest.raises(TTCError, match="the paper has no table 'other'"):
        paper.value("other", "TENT", "fog")


def test_known_differences_are_about_rows_that_exist() -> None:
    for table, row in KNOWN_DIFFERENCES:
        assert row in paper.tables()[table]


def test_smaller_profiles_share_cells() -> None:
    assert set(THREE) < set(FIVE) < set(ALL) == set(CORRUPTIONS)


def test_an_unknown_study_is_rejected() -> None:
    with pytest.raises(
        TTCError, match=r"unknown study 'componets' \(did you mean 'components'\?\); choose from: cifar10c"
    ):
        study_named("componets")


@pytest.mark.parametrize("name", ["cifar10c", "cifar100c", "imagenetc", "resnet50"])
def test_the_main_tables_and_their_headlines_include_the_controls(name: str) -> None:
    found = study_named(name)
    assert {entry.name: entry.method for entry in found.entries if entry.name in found.controls} == {
        "NORM + flip": "norm+flip",
        "TENT + flip": "tent+flip",
    }
    assert set(found.controls) < set(found.labels)
    assert set(COMPONENTS.controls) == set(found.controls)
