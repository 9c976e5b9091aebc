"""The whole comparison: ``ttc run`` against the literal methods one after the other, in one run.

    python benchmarks/sweep.py --images 500

Seven methods on fifteen corruptions of the embedded images at severity 5, N = 100; wall time, corrupting not counted.
Per method: the seconds of the literal one, and ours, the time of its cells divided by the workers; what belongs to no
cell, starting the workers and predicting with SOURCE once, is listed separately.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import literal
import numpy as np
import torch
from torch import Tensor, nn

from ttc.bench import scenarios
from ttc.bench.environment import cores, environment
from ttc.bench.grid import Grid, cells
from ttc.bench.runner import run
from ttc.bench.scenarios import Domain
from ttc.bench.spec import Spec
from ttc.bench.store import Store
from ttc.bench.workload import Workload
from ttc.data.images import as_tensor
from ttc.models import embedded

LITERAL: dict[str, Callable[[nn.Module], Callable[[Tensor], Tensor]]] = {
    "source": literal.Source,
    "norm": literal.Norm,
    "t3a": literal.T3A,
    "tent": literal.Tent,
    "eta": literal.ETA,
    "tipi": literal.TIPI,
    "ttc": literal.TTC,
}


def accuracy(model: nn.Module, method: str, images: Tensor, labels: Tensor) -> float:
    predict = LITERAL[method](model)
    right = [(predict(x).argmax(1) == y).sum() for x, y in zip(images.split(100), labels.split(100), strict=True)]
    return 100 * float(torch.stack(right).sum()) / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500, help="of each corruption, up to 2,000")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        workload = Workload("embedded", "embedded", None, Path(folder)).resolve()
        grid = Grid(methods=tuple(map(Spec.read, LITERAL)), images=given.images)
        wanted = cells(grid, workload)
        corruptions = list(dict.fromkeys(cell.corruptions[0] for cell in wanted))
        domains = {name: workload.domain(Domain(name, 5), given.images, cached=True) for name in corruptions}
        found: dict[str, dict[str, float]] = {"literal": {}, "ours": {}}
        taken: dict[str, dict[str, float]] = {"literal": {}, "ours": {}}
        start, model = time.perf_counter(), embedded()
        for method in LITERAL:
            begun, marks = time.perf_counter(), []
            for images in domains.values():
                labels = np.asarray(images.labels, np.int64)
                stream = scenarios.stream(Spec.read(wanted[0].scenario), [labels], 100, wanted[0].seed)
                order = np.concatenate([batch.image for batch in stream])
                x = as_tensor(images.pixels(order))
                marks.append(accuracy(model, method, x, torch.from_numpy(labels[order])))
            found["literal"][method] = round(sum(marks) / len(marks), 2)
            taken["literal"][method] = round(time.perf_counter() - begun, 1)
        between = time.perf_counter()
        with Store(Path(folder) / "sweep.sqlite") as store:
            for _ in run(wanted, workload, store, cores()):
                pass
            end = time.perf_counter()
            for method in LITERAL:
                rows = [row for row in store.rows() if row.protocol.method == method]
                found["ours"][method] = round(100 * sum(row.figures["accuracy"] for row in rows) / len(rows), 2)
                taken["ours"][method] = round(sum(row.seconds for row in rows) / cores(), 1)
    seconds = {"literal": round(between - start, 1), "ours": round(end - between, 1)}
    ratio = round(seconds["literal"] / seconds["ours"], 2)
    apart = round(seconds["ours"] - sum(taken["ours"].values()), 1)
    print(json.dumps({"images": given.images, "seconds": seconds, "ratio": ratio, "goal": 2}))
    print(json.dumps({"seconds by method": taken, "outside of cells": apart}))
    print(json.dumps({"accuracy": found}))
    print(json.dumps(environment()))


if __name__ == "__main__":
    main()
