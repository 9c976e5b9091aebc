"""The time of a step in two versions of this package, side by side: each in a process of its own, taking turns.

    python benchmarks/versions.py ../old/src src --cases resnet20,100,ttc,20 resnet50,16,ttc,4

A case is model, batch size, method and rounds; ``selected`` is TTC with propagate="selected", ``compiled`` is TTC with
compile=True. One thread; processor time, so that other programs count little. Ratios are the first version's time over
the second's: above one is faster.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

CASES = [
    *("resnet20,1,ttc,100", "resnet20,16,ttc,60", "resnet20,100,ttc,20", "resnet20,100,tent,20"),
    *("resnet20,100,norm,20", "resnet20,100,selected,20", "wrn-16-4,1,ttc,40", "wrn-16-4,16,ttc,16"),
    *("resnet50,16,ttc,3", "resnet20,1,compiled,60", "resnet20,16,compiled,30"),
]
VARIANTS: dict[str, dict[str, Any]] = {"selected": {"propagate": "selected"}, "compiled": {"compile": True}}


def serve() -> None:
    """Read cases, run a step of each, print the seconds it took."""
    import torch
    from torch import nn

    import ttc
    from ttc.models.building import build
    from ttc.models.cifar_resnet import CifarResNet
    from ttc.models.wide_resnet import WideResNet

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models: dict[str, tuple[Callable[[], nn.Module], int]] = {
        "resnet20": (lambda: CifarResNet(20), 32),
        "wrn-16-4": (lambda: WideResNet(16, 4), 32),
        "resnet50": (lambda: build("imagenet-resnet50"), 224),
    }
    current, adapter, images = "", None, torch.empty(0)
    for line in sys.stdin:
        if line != current:
            current, (name, size, method) = line, line.split()
            make, side = models[name]
            torch.manual_seed(0)
            options = VARIANTS.get(method, {})
            adapter = ttc.adapt(make().eval(), "ttc" if options else method, **options)
            images = torch.rand(int(size), 3, side, side)
            adapter(images)
        assert adapter is not None
        start = time.process_time()
        adapter(images)
        print(time.process_time() - start, flush=True)


class Version:
    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, case: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{case}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="the source folder of the one version")
    parser.add_argument("after", help="that of the other")
    parser.add_argument("--cases", nargs="+", default=CASES)
    given = parser.parse_args()
    versions = {"before": Version(given.before), "after": Version(given.after)}
    for written in given.cases:
        *parts, rounds = written.split(",")
        case = " ".join(parts)
        for version in versions.values():
            version.seconds(case)  # warm-up
        spent: dict[str, list[float]] = {name: [] for name in versions}
        for turn in range(int(rounds)):
            for name in list(versions) if turn % 2 else reversed(versions):
                spent[name].append(versions[name].seconds(case))
        median = statistics.median(spent["before"]) / statistics.median(spent["after"])
        fastest = min(spent["before"]) / min(spent["after"])
        took = 1000 * statistics.median(spent["after"])
        print(f"{case:24} median {median:.2f}, fastest {fastest:.2f}, {took:.0f} ms", flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
