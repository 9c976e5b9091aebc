"""The cost of the guard: processor time of a guarded step over that of a bare one, interleaved in one run."""

import json
import statistics
import time
import warnings

import torch

import ttc
from ttc.deploy import Guard, Limits, Policy
from ttc.models.cifar_resnet import CifarResNet

ROUNDS = {1: 100, 50: 20}


def seconds(predict: object, images: torch.Tensor) -> float:
    start = time.process_time()  # other programs on the machine do not count
    assert callable(predict)
    predict(images)
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = CifarResNet(20).eval()
    # Random images may seem unhealthy: with limits out of reach everything is monitored and nothing is done about it.
    limits = Limits(class_fraction=9, effective_classes=1e-9, entropy=1e-9, parameter_drift=1e9)
    policy = Policy(source_fraction=0, limits=limits)
    found = {}
    for size, rounds in ROUNDS.items():
        bare = ttc.adapt(model, "ttc", small_batches=True)
        guarded = Guard(ttc.adapt(model, "ttc", small_batches=True), policy)
        spent: dict[str, list[float]] = {"bare": [], "guarded": []}
        for turn in range(rounds + 3):
            images = torch.rand(size, 3, 32, 32)
            turns = [("bare", bare), ("guarded", guarded)]
            for name, predict in turns if turn % 2 else turns[::-1]:
                spent[name].append(seconds(predict, images))
        # The lower quartile: what else the machine does makes steps slower, never faster.
        fastest = {name: statistics.quantiles(times[3:], n=4)[0] for name, times in spent.items()}
        found[f"batch of {size}"] = round(fastest["guarded"] / fastest["bare"], 3)
    print(json.dumps({"guarded over bare step, TTC on ResNet-20": found, "goal": 1.05, "rounds": ROUNDS}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
