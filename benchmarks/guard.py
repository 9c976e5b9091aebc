"""The cost of the guard: processor time of a guarded step over that of a bare one, interleaved in one run.

Without the comparison with the source model, and with a comparison of every batch: six forward passes more.
"""

import json
import statistics
import time
import warnings

import torch

import ttc
from ttc.deploy import Guard, Limits, Policy
from ttc.models.cifar_resnet import CifarResNet

ROUNDS = {1: 100, 50: 12}
KINDS = {"bare": None, "guarded": 0.0, "guarded and compared": 1.0}  # the fraction of images that are compared


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
    limits = Limits(class_fraction=9, effective_classes=1e-9, entropy=1e-9, parameter_drift=1e9, consistency_gap=9)
    found = {}
    for size, rounds in ROUNDS.items():
        predictors: dict[str, ttc.Adapter | Guard] = {}
        for name, fraction in KINDS.items():
            adapter = ttc.adapt(model, "ttc", small_batches=True)
            policy = Policy(source_fraction=fraction or 0.0, limits=limits)
            predictors[name] = adapter if fraction is None else Guard(adapter, policy)
        spent: dict[str, list[float]] = {name: [] for name in KINDS}
        for turn in range(rounds + 3):
            images = torch.rand(size, 3, 32, 32)
            for name in list(KINDS)[:: 1 if turn % 2 else -1]:
                spent[name].append(seconds(predictors[name], images))
        # The lower quartile: what else the machine does makes steps slower, never faster.
        fastest = {name: statistics.quantiles(times[3:], n=4)[0] for name, times in spent.items()}
        found[f"batch of {size}"] = {name: round(fastest[name] / fastest["bare"], 3) for name in list(KINDS)[1:]}
    print(json.dumps({"over a bare step, TTC on ResNet-20": found, "goal without comparison": 1.05, "rounds": ROUNDS}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
