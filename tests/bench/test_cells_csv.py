"""Cells as a CSV file: what comes back, what is refused, and the published ones."""

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.bench.conftest import make_row
from ttc.bench import Store
from ttc.bench.cells_csv import COLUMNS, as_cells_csv, read_cells_csv
from ttc.bench.store import UNKNOWN_CLASS, Row
from ttc.errors import TTCError


def cell(method: str = "tent", seed: int = 0, fraction: float = 0.5) -> Row:
    row = make_row(method, fraction, seed)
    return make_row(method, fraction, seed, figures={**row.figures, "per_domain": [0.5], "per_pass": [0.5]})


def written(path: Path, *rows: Row) -> Path:
    path.write_text(as_cells_csv(rows), encoding="utf-8")
    return path


def test_what_was_written_is_read_but_for_predictions_and_traces(tmp_path: Path) -> None:
    original = cell()
    (row,) = read_cells_csv(written(tmp_path / "cells.csv", original, make_row("eta", status="failed")))
    for name in ("protocol", "status", "cost", "warnings", "environment", "seconds", "recorded", "label"):
        assert getattr(row, name) == getattr(original, name)
    assert row.figures == {**original.figures, "per_class": []}
    np.testing.assert_array_equal(row.correct, original.correct)
    assert set(row.predictions) == {UNKNOWN_CLASS}
    assert len(row.predictions) == 80
    assert len(row.trace) == 0


def test_the_order_of_the_cells_does_not_matter() -> None:
    assert as_cells_csv([cell(seed=1), cell(seed=2)]) == as_cells_csv([cell(seed=2), cell(seed=1)])


def test_cells_are_added_once_and_in_place_of_failed_ones(store: Store, tmp_path: Path) -> None:
    known, failing, new = cell(seed=1), cell(seed=2), cell(seed=3)
    store.add_rows([known])
    store.fail(failing.protocol, "no memory", {}, 1.0)
    changed = make_row("tent", 0.5, 1, figures=known.figures, environment={"torch": "3"})
    cells = read_cells_csv(written(tmp_path / "cells.csv", changed, failing, new))
    assert store.add_rows(cells) == 2
    assert store.add_rows(cells) == 0
    found = {row.protocol.seed: row for row in store.rows()}
    assert {seed: row.status for seed, row in found.items()} == dict.fromkeys((1, 2, 3), "finished")
    assert found[1].environment == {"torch": "2"}
    np.testing.assert_array_equal(found[3].correct, new.correct)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('""seed"":0', '""seed"":7', "its protocol is not the one of its hash"),
        ("80:", "90:", "it has 80 bits for 90 images"),
        ("80:", "80:!", "its bits are not base64"),
        ("80:", "80:////////", "bits for 80 images"),
        ('""accuracy"":0.', '""accuracy"":1.', "its accuracy is not that of its images"),
        ('""nll""', '""other""', "its accuracy is not that of its images"),
        ("now", "now,,", "longer"),
    ],
)
def test_a_changed_line_is_named(tmp_path: Path, old: str, new: str, reason: str) -> None:
    text = as_cells_csv([cell()])
    assert old in text
    path = tmp_path / "cells.csv"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(TTCError, match=reason) as error:
        read_cells_csv(path)
    assert str(error.value).startswith(f"cell 1 of {path} is damaged")
    assert str(error.value).endswith("nothing was added")


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    with pytest.raises(TTCError, match="No such file"):
        read_cells_csv(path)
    for content in (b"", b"row,column,ours\nTENT,average,3\n", ",".join(COLUMNS[:-1]).encode()):
        path.write_bytes(content)
        with pytest.raises(TTCError, match="other columns than a file of cells"):
            read_cells_csv(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TTCError, match="is not a CSV file of cells"):
        read_cells_csv(path)


RESULTS = Path(__file__).parents[2] / "docs" / "results" / "real"


@pytest.mark.parametrize("path", sorted((RESULTS / "cells").glob("*.csv")), ids=lambda path: path.stem)
def test_published_cells_are_those_of_the_published_table(path: Path) -> None:
    cells = {row.protocol.hash: row for row in read_cells_csv(path)}
    used: set[str] = set()
    with (RESULTS / "tables" / path.name).open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            hashes = line["cells"].split()
            if hashes:
                used.update(hashes)
                mean = np.mean([100 * cells[key].figures["accuracy"] for key in hashes])
                assert mean == pytest.approx(float(line["ours"]))
    assert used == set(cells)
