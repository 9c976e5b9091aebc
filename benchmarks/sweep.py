"""The whole comparison: ``ttc run`` against the literal methods one after the other, in one run.

    python benchmarks/sweep.py --images 500

Seven methods on fifteen corruptions of the embedded images at severity 5, N = 100; wall time, corrupting not counted.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import literal
import torch
from torch import Tensor, nn

from ttc.bench.environment import cores, environment
from ttc.bench.grid import Grid, cells
from ttc.bench.running import run
from ttc.bench.specs import Spec
from ttc.bench.store import Store
from ttc.bench.subjects import Subject
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
    answer = LITERAL[method](model)
    right = [(answer(x).argmax(1) == y).sum() for x, y in zip(images.split(100), labels.split(100), strict=True)]
    return 100 * float(torch.stack(right).sum()) / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500, help="of each corruption, up to 2,000")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject("embedded", "embedded", None, Path(folder))
        grid = Grid(methods=tuple(map(Spec.read, LITERAL)), images=given.images)
        wanted = cells(grid, subject)
        corruptions = list(dict.fromkeys(cell.corruptions[0] for cell in wanted))
        shown = {name: subject.domain(name, 5, given.images, subject.cache) for name in corruptions}
        found: dict[str, dict[str, float]] = {"literal": {}, "ours": {}}
        start, model = time.perf_counter(), embedded()
        for method in LITERAL:
            marks = []
            for images in shown.values():
                order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
                x = as_tensor(images.pixels(order.numpy()))
                marks.append(accuracy(model, method, x, torch.from_numpy(images.labels[order.numpy()])))
            found["literal"][method] = round(sum(marks) / len(marks), 2)
        between = time.perf_counter()
        with Store(Path(folder) / "sweep.sqlite") as store:
            events = [event for event in run(wanted, subject, store, cores()) if event.protocol]
        end = time.perf_counter()
        for method in LITERAL:
            marks = [
                100 * event.accuracy
                for event in events
                if event.protocol and event.protocol.method == method and event.accuracy
            ]
            found["ours"][method] = round(sum(marks) / len(marks), 2)
    seconds = {"literal": round(between - start, 1), "ours": round(end - between, 1)}
    ratio = round(seconds["literal"] / seconds["ours"], 2)
    print(json.dumps({"images": given.images, "seconds": seconds, "ratio": ratio, "goal": 2, "accuracy": found}))
    print(json.dumps(environment()))


if __name__ == "__main__":
    main()
