"""The time of a step: literal transcriptions, ours, ours compiled, and the floor, taken in turns in one run.

    python benchmarks/step.py --models resnet20 --sizes 16 100 --no-compile --output step.json

Wall time, medians after two warm-up rounds, one for ``--rounds 2``; ratios are literal over ours, so above one is
faster. Stop other programs first, or use ``--processor-time``: one thread, and only its own time counts.
"""

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import literal
import torch
from torch import Tensor, nn

import ttc
from ttc.bench.environment import environment
from ttc.models.building import build
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.wide_resnet import WideResNet

Predict = Callable[[Tensor], Tensor]
MODELS: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...]]] = {  # builder, size of image, batch sizes
    "resnet20": (lambda: CifarResNet(20), 32, (1, 16, 100, 200)),
    "wrn-16-4": (lambda: WideResNet(16, 4), 32, (1, 16, 100, 200)),
    "resnet50": (lambda: build("imagenet-resnet50"), 224, (1, 16)),  # 100 images take 17 GB in the literal step
}


def contestants(model: nn.Module, compiled: bool) -> dict[str, Predict]:
    found: dict[str, Predict] = {
        "ttc literal": literal.TTC(model),
        "ttc ours": ttc.adapt(model, "ttc"),
        "ttc ours, selected": ttc.adapt(model, "ttc", propagate="selected"),
        "floor": literal.Floor(model),
        "tent literal": literal.Tent(model),
        "tent ours": ttc.adapt(model, "tent"),
        "norm literal": literal.Norm(model),
        "norm ours": ttc.adapt(model, "norm"),
    }
    return {**found, "ttc ours, compiled": ttc.adapt(model, "ttc", compile=True)} if compiled else found


def milliseconds(
    steps: dict[str, Predict], images: Tensor, seconds: float, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Medians of as many rounds as the seconds allow, and ``rounds`` at least."""
    for _ in range(min(2, rounds // 2)):
        for predict in steps.values():
            predict(images)
    spent: dict[str, list[float]] = {name: [] for name in steps}
    begin = time.perf_counter()
    while len(spent["floor"]) < rounds or time.perf_counter() - begin < seconds:
        for name, predict in steps.items():
            start = clock()
            predict(images)
            spent[name].append(clock() - start)
    return {name: round(1000 * statistics.median(times), 2) for name, times in spent.items()}


def ratios(took: dict[str, float]) -> dict[str, float]:
    return {
        name: round(took[f"{name.split()[0]} literal" if name != "floor" else "ttc literal"] / time_, 2)
        for name, time_ in took.items()
        if "literal" not in name
    }


def peak_megabytes(predict: Predict, images: Tensor) -> float:
    """The peak memory of tensors during a step, above what was allocated before it; not the first step."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        predict(images)
    allocated = peak = 0
    assert profile.profiler is not None
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            allocated += event.nbytes()
            peak = max(peak, allocated)
    return round(peak / 1e6, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["resnet20", "wrn-16-4"])
    parser.add_argument("--sizes", nargs="+", type=int, default=None, help="batch sizes, in place of each model's own")
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled step")
    parser.add_argument("--seconds", type=float, default=20, help="for each model and batch size, at least")
    parser.add_argument("--rounds", type=int, default=5, help="for each, at least; 2 where a step takes a minute")
    parser.add_argument("--output", type=Path, default=Path("step.json"))
    parser.add_argument("--processor-time", action="store_true", help="of one thread, in place of wall time")
    given = parser.parse_args()
    clock = time.process_time if given.processor_time else time.perf_counter
    if given.processor_time:
        torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, object] = {"environment": environment(), "threads": torch.get_num_threads()}
    for name in given.models:
        make, size, sizes = MODELS[name]
        torch.manual_seed(0)
        model = make().eval()
        for count in given.sizes or sizes:
            images = torch.rand(count, 3, size, size)
            steps = contestants(model, not given.no_compile)
            took = milliseconds(steps, images, given.seconds, given.rounds, clock)
            memory = {step: peak_megabytes(steps[step], images) for step in ("ttc literal", "ttc ours")}
            fraction = round(memory["ttc ours"] / memory["ttc literal"], 2)
            found[f"{name}, N = {count}"] = {"ms": took, "ratios": ratios(took), "MB": memory, "memory ratio": fraction}
            print(f"{name}, N = {count}: {ratios(took)}, memory {fraction}", file=sys.stderr, flush=True)
            given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {given.output}")


if __name__ == "__main__":
    main()
