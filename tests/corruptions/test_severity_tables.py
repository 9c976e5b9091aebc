"""The two severity tables and the scaling rule."""

import pytest

from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS, TABLES, nearest_table
from ttc.corruptions.severity_tables import length_scale

ALL = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)


def test_both_tables_name_all_corruptions_in_order() -> None:
    assert len(CORRUPTIONS) == 15
    for table in TABLES.values():
        assert tuple(table.parameters) == ALL
        assert all(len(severities) == 5 for severities in table.parameters.values())


def test_groups_contain_every_corruption_once() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(ALL)
    assert len(set(grouped)) == 19


@pytest.mark.parametrize(("height", "width"), [(32, 32), (64, 200), (200, 64), (84, 84)])
def test_lengths_of_the_cifar_table_follow_the_shorter_side(height: int, width: int) -> None:
    assert nearest_table(height, width) == "cifar"
    assert length_scale("cifar", height, width) == min(height, width) / 32


def test_lengths_of_the_cifar_table_never_shrink() -> None:
    assert length_scale("cifar", 16, 16) == 1
    assert length_scale("imagenet", 112, 112) == 0.5
