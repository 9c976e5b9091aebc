"""What an executor adds to a cell: Ray against processes of this machine, in turns, in one run.

    python benchmarks/executors.py --seconds 10 --tasks 8 --rounds 2

Tasks of a known length that compute nothing, so that what is left of the wall time is scheduling: submitting, starting
in a worker that is ready, and returning as much as a cell does. Starting workers, which happens once, is listed
separately. Then a real grid on the embedded images: seconds inside cells over seconds of wall time, start included.
"""

import argparse
import json
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttc.bench.environment import environment
from ttc.bench.executors import LocalExecutor, Task
from ttc.bench.grid import Grid, cells
from ttc.bench.ray_executor import RayExecutor
from ttc.bench.runner import run
from ttc.bench.spec import Spec
from ttc.bench.store import Store
from ttc.bench.workload import Workload

Executor = LocalExecutor | RayExecutor


def wait(seconds: float) -> NDArray[np.uint16]:
    """Last as long as a cell and return predictions of ten thousand images."""
    time.sleep(seconds)
    return np.zeros(10_000, np.uint16)


def timed(executor: Executor, tasks: list[Task]) -> float:
    start = time.perf_counter()
    errors = [result.error for _, result in executor.run(tasks) if result.error]
    assert not errors, errors
    return time.perf_counter() - start


def overhead(made: dict[str, Executor], seconds: float, tasks: int, workers: int, rounds: int) -> dict[str, object]:
    """Milliseconds per task beyond its length, in turns; the shortest round counts."""
    found: dict[str, list[float]] = {name: [] for name in made}
    started: dict[str, float] = {}
    for name, executor in made.items():
        with executor:
            pass  # the first connection imports Ray
        start = time.perf_counter()
        with executor:
            timed(executor, [partial(wait, 0.5)] * (2 * workers))  # every worker starts
            started[name] = round(time.perf_counter() - start - 1.0, 2)
    for _ in range(rounds):
        for name, executor in made.items():
            with executor:
                timed(executor, [partial(wait, 0.5)] * (2 * workers))
                wall = timed(executor, [partial(wait, seconds)] * tasks)
            found[name].append(1000 * (wall / (tasks / workers) - seconds))
    each = {name: {"per task ms": [round(value, 1) for value in values]} for name, values in found.items()}
    percent = {name: round(min(values) / (10 * seconds), 3) for name, values in found.items()}
    return {"seconds to start": started, "rounds": each, f"percent of {seconds:g} s": percent}


def grid(workers: int, images: int) -> dict[str, object]:
    """Seconds inside cells over workers × wall time, for a real grid with each executor."""
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        workload = Workload("embedded", "embedded", None, Path(folder)).resolve()
        methods = tuple(map(Spec.read, ("norm", "tent", "ttc")))
        wanted = cells(Grid(methods, ("fog", "contrast", "clean"), images=images, seeds=(0, 1)), workload)
        figures = {}
        for name in ("local", "ray"):
            executor = RayExecutor(1, workers=workers) if name == "ray" else None
            with Store(Path(folder, f"{name}.sqlite")) as store:
                start = time.perf_counter()
                list(run(wanted, workload, store, workers, executor))
                wall = time.perf_counter() - start
                rows = {row.protocol.hash: row for row in store.rows()}
            inside = sum(row.seconds for row in rows.values())
            figures[name] = {key: row.figures for key, row in rows.items()}
            found[name] = {"wall s": round(wall, 1), "inside cells s": round(inside, 1), "cells": len(rows)}
        found["equal numbers"] = figures["local"] == figures["ray"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="the length of a task")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--images", type=int, default=500, help="of each corruption, for the real grid; 0 leaves it out"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    made: dict[str, Executor] = {
        "local": LocalExecutor(given.workers, 1),
        "ray": RayExecutor(1, workers=given.workers),
    }
    found = overhead(made, given.seconds, given.tasks, given.workers, given.rounds)
    report = {"environment": environment(), "tasks": given.tasks, "workers": given.workers, **found}
    if given.images:
        report["grid"] = grid(given.workers, given.images)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":  # workers of the local executor import this file
    main()
