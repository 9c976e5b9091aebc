"""``ttc results`` as a user runs it, on a grid that ``ttc run`` ran."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.bench.conftest import make_row
from tests.bench.conftest import place as place  # the fixture
from tests.bench.test_store import HERE, result
from tests.cli.test_run import GRID, ttc
from ttc.bench import Store
from ttc.errors import TTCError


def test_results_as_json_csv_and_table(place: Path) -> None:
    ttc("run", *GRID, "--workers", "1")
    _, output = ttc("results", "--store", "a.sqlite", "--format", "json")
    found = json.loads(output)
    assert len(found) == 8
    assert {one["status"] for one in found} == {"finished"}
    assert all(0 <= one["accuracy"] <= 1 and one["images"] == 12 for one in found)
    _, output = ttc("results", "--store", "a.sqlite", "--format", "csv", "--method", "tent", "--seed", "1")
    lines = list(csv.DictReader(io.StringIO(output)))
    assert [(line["method"], line["corruption"], line["seed"]) for line in lines] == [
        ("tent", "fog", "1"),
        ("tent", "contrast", "1"),
    ]
    _, output = ttc("results", "--store", "a.sqlite", "--corruption", "fog", "--scenario", "per-domain")
    assert "4 finished cells" in output
    assert "fog 5" in output
    assert "contrast 5" not in output
    code, output = ttc("results", "--store", "a.sqlite", "--format", "json", "--output", "out.json", "--traces")
    assert (code, len(json.loads(Path("out.json").read_text())[0]["trace"]["entropy"])) == (0, 3)
    assert "wrote 8 cells to out.json" in output
    assert ttc("results", "--store", "a.sqlite", "--format", "json", "--method", "eta")[1].strip() == "[]"


def test_the_stores_of_two_machines_become_one(place: Path) -> None:
    for name, seed in (("one.sqlite", 1), ("two.sqlite", 2)):
        with Store(Path(name)) as store:
            store.finish(make_row(seed=seed).protocol, result(), HERE)
    code, output = ttc("results", "--store", "both.sqlite", "--add", "one.sqlite", "--add", "two.sqlite")
    assert code == 0
    assert "1 cell of two.sqlite added to both.sqlite" in output
    assert "2 finished cells" in output
    with pytest.raises(TTCError, match=r"there is no store three\.sqlite"):
        ttc("results", "--store", "both.sqlite", "--add", "three.sqlite")


def test_cells_travel_as_csv_and_are_compared_as_before(place: Path) -> None:
    ttc("run", *GRID, "--workers", "1")
    _, comparison = ttc("results", "--store", "a.sqlite", "--compare", "norm,tent")
    code, output = ttc("results", "--store", "a.sqlite", "--format", "cells", "--output", "cells.csv")
    assert (code, "wrote 8 cells to cells.csv" in output) == (0, True)
    assert ttc("results", "--store", "a.sqlite", "--format", "cells")[1] == Path("cells.csv").read_text()
    _, output = ttc("results", "--store", "b.sqlite", "--add", "cells.csv", "--add", "cells.csv")
    assert "8 cells of cells.csv added to b.sqlite" in output
    assert "0 cells of cells.csv added to b.sqlite" in output
    assert ttc("results", "--store", "b.sqlite", "--compare", "norm,tent")[1] == comparison
    Path("cells.csv").write_text("method,accuracy\ntent,0.5\n")
    with pytest.raises(TTCError, match="other columns than a file of cells"):
        ttc("results", "--store", "c.sqlite", "--add", "cells.csv")
    assert not Path("c.sqlite").exists()


def test_summary_comparison_and_difference(place: Path) -> None:
    ttc("run", *GRID, "--workers", "1")
    _, output = ttc("results", "--store", "a.sqlite", "--summary")
    assert "±" in output
    assert "1/1" in output
    _, output = ttc("results", "--store", "a.sqlite", "--compare", "norm,tent")
    assert "mean difference over 4 cells, tent - norm" in output
    assert "McNemar p" in output
    with Store(Path("a.sqlite"), readonly=True) as store:
        hashes = [row.protocol.hash for row in store.rows() if row.protocol.corruptions == ("fog",)]
    _, output = ttc("results", "--store", "a.sqlite", "--difference", f"{hashes[0][:12]},{hashes[2][:12]}")
    assert output == "seed: 0 -> 1\n"
    _, output = ttc("results", "--store", "a.sqlite", "--difference", f"{hashes[0]},{hashes[0]}")
    assert output == "the same experiment\n"
    _, output = ttc("results", "--store", "a.sqlite", "--cell", hashes[0][:12])
    assert f"hash             {hashes[0]}" in output
    assert "optimizer" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--compare", "norm"], "--compare takes two methods, such as tent,ttc; got 'norm'"),
        (["--difference", "aa"], "--difference takes the starts of two hashes, such as 1f3a,9c20; got 'aa'"),
        (["--difference", "aa,zz"], "0 cells have a hash that starts with 'aa'; ttc results lists the cells"),
        (["--format", "csv", "--output", "/dev/null/x.csv"], "cannot write /dev/null/x.csv: "),
        (["--format", "parquet"], "Parquet is written to a file: add --output FILE"),
        (["--store", "absent.sqlite"], "there is no store absent.sqlite"),
    ],
)
def test_invalid_requests_are_rejected(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    Store(tmp_path / "empty.sqlite").close()
    with pytest.raises(TTCError, match=sentence):
        ttc("results", "--store", str(tmp_path / "empty.sqlite"), *arguments)


def test_a_summary_fits_eighty_columns(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ttc("run", *GRID, "--workers", "1")
    monkeypatch.setenv("COLUMNS", "80")
    _, output = ttc("results", "--store", "a.sqlite", "--summary")
    table = [line for line in output.splitlines() if line.startswith(("method", "norm", "tent"))]
    assert len(table) == 3
    assert max(map(len, table)) <= 80
    _, output = ttc("results", "--store", "a.sqlite")
    assert max(map(len, output.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "50")
    _, output = ttc("results", "--store", "a.sqlite")
    assert "not shown at this width: MB, passes" in output
    assert max(len(line) for line in output.splitlines() if "fog" in line) <= 50


def test_an_empty_store_has_no_table(tmp_path: Path) -> None:
    Store(tmp_path / "a.sqlite").close()
    assert ttc("results", "--store", str(tmp_path / "a.sqlite")) == (0, "\n0 finished cells\n")
    assert ttc("results", "--store", str(tmp_path / "a.sqlite"), "--summary") == (0, "0 finished cells\n")


def test_a_difference_of_nothing_has_no_minus_sign(place: Path) -> None:
    ttc("run", *GRID, "--workers", "1")
    _, output = ttc("results", "--store", "a.sqlite", "--compare", "norm,norm")
    assert "norm - norm: +0.00 points, 95 % interval +0.00 … +0.00" in output
    assert "-0.0" not in output


def test_methods_of_ones_own_are_listed_without_their_code(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        row = make_row(label="gone:builder(lr=0.1)")
        store.finish(row.protocol, result(), HERE, row.label)
    _, output = ttc("results", "--store", str(tmp_path / "a.sqlite"), "--methods", "gone:builder(lr=0.1)")
    assert "gone:builder(lr=0.1)" in output
    assert "1 finished cell\n" in output
