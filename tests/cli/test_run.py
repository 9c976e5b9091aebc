"""``ttc run`` as a user runs it, on images and a network of this test."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.bench.conftest import made_place
from tests.bench.conftest import place as place  # the fixture
from ttc.bench import Row, Store
from ttc.cli.app import app
from ttc.errors import TTCError
from ttc.models import build

WORKLOAD = ["--dataset", "imagefolder:photos", "--model", "small_nets:small", "--images", "12", "--batch-size", "5"]
GRID = [*WORKLOAD, "--methods", "norm,tent", "--corruptions", "fog,contrast", "--seeds", "0,1", "--store", "a.sqlite"]


def ttc(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_grid_from_flags_and_again(place: Path) -> None:
    code, output = ttc("run", *GRID, "--workers", "1")
    assert code == 0
    assert "8 cells; results go to a.sqlite" in output
    assert "[8/8] tent, contrast 5, per-domain, batch 5, seed 1: " in output
    assert "to list them: ttc results --store a.sqlite" in output
    code, output = ttc("run", *GRID)
    assert code == 0
    assert "8 cells, 8 finished before" in output
    assert "[1/" not in output


def test_a_dry_run_writes_nothing(place: Path) -> None:
    code, output = ttc("run", *GRID, "--dry-run", "--workers", "2")
    assert code == 0
    assert output.count("to run") == 8 + 1
    assert "in every cell: per-domain, batch 5, images 12" in output
    assert "8 cells, 8 to run: about " in output
    assert "with 2 workers (" in output
    assert " of work); nothing was run or written" in output
    assert not Path("a.sqlite").exists()
    assert not (place / "data").exists()
    ttc("run", *GRID, "--workers", "1", "--seeds", "0")
    _, output = ttc("run", *GRID, "--dry-run")
    assert "8 cells, 4 to run" in output
    assert output.count("finished") == 4


def test_a_grid_from_a_file(place: Path) -> None:
    Path("grid.toml").write_text(
        'methods = ["norm", {name = "ttc", bandwidth = 2}]\ncorruptions = ["fog", "clean"]\nimages = 12\n'
        'dataset = "imagefolder:photos"\nmodel = "small_nets:small"\nstore = "b.sqlite"\nworkers = 1\n'
        'scenarios = ["continual", "label-shift(alpha=0.5)", "repeated(epochs=2)"]\n'
    )
    with pytest.raises(TTCError, match=r"grid.toml names small_nets:small, whose code would run; .* add --allow-code"):
        ttc("run", "--config", "grid.toml")
    code, output = ttc("run", "--config", "grid.toml", "--batch-size", "6", "--allow-code")
    assert code == 0
    assert "10 cells; results go to b.sqlite" in output
    _, output = ttc("results", "--store", "b.sqlite", "--format", "json", "--scenario", "continual")
    assert {one["corruption"] for one in json.loads(output)} == {"fog+clean"}
    Path("grid.toml").write_text("corruption = 'fog'\n")
    with pytest.raises(TTCError, match=r"unknown setting 'corruption' \(did you mean 'corruptions'\?\)"):
        ttc("run", "--config", "grid.toml")


def test_no_workers_are_rejected(place: Path) -> None:
    code, output = ttc("run", *GRID, "--workers", "0", "--dry-run")
    assert (code, "--workers" in output) == (2, True)
    Path("grid.toml").write_text("workers = 0\n")
    with pytest.raises(TTCError, match="the number of workers must be at least 1, got 0"):
        ttc("run", "--config", "grid.toml", "--dry-run")


def test_a_method_in_a_file_runs_no_code(place: Path) -> None:
    Path("marker.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    for methods in ('"norm,marker:build"', '["norm", {name = "marker:build"}]'):
        Path("grid.toml").write_text(f"methods = {methods}\n")
        with pytest.raises(TTCError, match=r"grid.toml names marker:build, whose code would run"):
            ttc("run", "--config", "grid.toml", "--dry-run")
    assert not Path("ran").exists()
    code, _ = ttc("run", "--config", "grid.toml", *GRID, "--dry-run")  # the flags name other methods
    assert code == 0


def test_other_statistics_are_another_model(place: Path) -> None:
    torch.manual_seed(0)
    torch.save(build("resnet20", 3).state_dict(), "weights.pt")
    grid = ["--model", "resnet20", "--checkpoint", "weights.pt", "--methods", "norm", "--corruptions", "fog"]
    cells = set()
    for statistics in ("cifar10", "imagenet", "none"):
        _, output = ttc("run", *WORKLOAD, *grid, "--statistics", statistics, "--dry-run")
        cells.add(next(line.split()[0] for line in output.splitlines() if "to run" in line))
    assert len(cells) == 3


def test_a_failing_cell_does_not_stop_the_rest(place: Path) -> None:
    broken = ["run", *GRID, "--methods", "norm,own_methods:failing", "--workers", "1"]
    code, output = ttc(*broken)
    assert code == 1
    assert "failed: own_methods:failing, fog 5, per-domain, batch 5, seed 0: the model's outputs" in output
    assert "4 of 8 cells failed; run the same command again to retry" in output
    assert len(json.loads(ttc("results", "--store", "a.sqlite", "--format", "json")[1])) == 4
    assert "not finite" in ttc("results", "--store", "a.sqlite", "--failed")[1]
    assert (
        "4 cells failed; to see why: ttc results --store a.sqlite --failed" in ttc("results", "--store", "a.sqlite")[1]
    )
    code, output = ttc(*broken)
    assert (code, "8 cells, 4 finished before" in output) == (1, True)


def test_a_run_that_cannot_write_says_so(place: Path) -> None:
    Store(Path("a.sqlite")).close()
    with sqlite3.connect("a.sqlite") as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(TTCError, match="written by a newer version"):
        ttc("run", *GRID)
    with pytest.raises(TTCError, match="the grid has no cells"):
        ttc("run", *GRID, "--methods", "")


def test_one_cell_is_not_called_cells(place: Path) -> None:
    _, output = ttc("run", *WORKLOAD, "--methods", "norm", "--corruptions", "fog", "--store", "a.sqlite")
    assert "1 cell; results go to a.sqlite" in output
    assert "mean over 1 corruption and 1 seed" in output
    _, output = ttc("run", *WORKLOAD, "--methods", "norm", "--corruptions", "fog", "--store", "a.sqlite", "--dry-run")
    assert "1 cell, all finished; nothing was run or written" in output


def test_a_method_of_ones_own(place: Path) -> None:
    own = ["run", *GRID, "--methods", "norm,own_methods:sharp(temperature=0.5)", "--seeds", "0", "--workers", "1"]
    code, output = ttc(*own)
    assert code == 0
    assert "own_methods:sharp(temperature=0.5), fog 5, per-domain, batch 5, seed 0: " in output
    assert "4 cells, 4 finished before" in ttc(*own)[1]
    file = place / "own_methods.py"
    file.write_text(file.read_text() + "# changed\n")
    assert "4 cells, 2 finished before" in ttc(*own)[1]
    with pytest.raises(TTCError, match="own_methods:sharper: the module own_methods has no function 'sharper'"):
        ttc("run", *GRID, "--methods", "own_methods:sharper")


STARTER = """
import os, random, signal, sys, time
import torch, ttc.bench.runner, ttc.bench.estimate
from ttc.cli.app import main

kills, arguments = int(sys.argv[1]), sys.argv[2:]

def start(name):
    child = os.fork()
    if child == 0:
        os.environ["TTC_DATA"] = os.path.abspath(name)
        sys.argv = ["ttc", *arguments, "--store", f"{name}.sqlite"]
        try:
            main()
        finally:
            os._exit(0)
    return child

random.seed()
begin = time.monotonic()
os.waitpid(start("whole"), 0)
lived = (time.monotonic() - begin) / 3
killed = 0
for _ in range(kills):
    child = start("killed")
    time.sleep(random.uniform(0, lived))
    os.kill(child, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
os.waitpid(start("killed"), 0)
print("KILLED", killed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_ten_kills_at_random_moments_leave_the_rows_of_an_uninterrupted_run(tmp_path: Path) -> None:
    grid = [*GRID[:-2], "--methods", "source,norm,ttc", "--workers", "1"]
    made_place(tmp_path)
    command = [sys.executable, "-c", STARTER, "10", "run", *grid]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert int(shown.stdout.split()[-1]) >= 3, shown.stdout
    found: list[dict[str, Row]] = []
    for name in ("whole", "killed"):
        with Store(tmp_path / f"{name}.sqlite", readonly=True) as store:
            found.append({row.protocol.hash: row for row in store.rows()})
    whole, killed = found
    assert len(whole) == 3 * 2 * 2
    assert {row.status for row in whole.values()} == {"finished"}
    assert sorted(whole) == sorted(killed)
    for key, row in whole.items():
        assert (row.protocol, row.status, row.figures) == (
            killed[key].protocol,
            killed[key].status,
            killed[key].figures,
        )
        np.testing.assert_array_equal(row.predictions, killed[key].predictions)
        np.testing.assert_array_equal(row.trace, killed[key].trace)
    leftovers = [path for path in (tmp_path / "killed" / "cache").iterdir() if ".part" not in path.name]
    assert {path.name for path in leftovers} == {path.name for path in (tmp_path / "whole" / "cache").iterdir()}


def test_ctrl_c_stops_cleanly_and_says_how_to_resume(tmp_path: Path) -> None:
    made_place(tmp_path)
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # behind nohup, too
    code = f"{listening}; from ttc.cli.app import main; main()"
    grid = [*GRID, "--scenarios", "repeated(epochs=3000)", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "run", *grid],
        cwd=tmp_path,
        env={**os.environ, "TTC_DATA": str(tmp_path / "data"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 240
    while not list(tmp_path.glob("data/cache/contrast*")) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "of 8 cells finished and stored in a.sqlite; run the same command again to resume" in output
    assert "Traceback" not in output + errors
