"""What the guard costs: the time of a guarded step over that of the bare one, measured turn by turn in one run."""

import json
import statistics
import time
import warnings

import torch

import ttc
from ttc.deploy import Guard, Policy
from ttc.models.cifar_resnet import CifarResNet

ROUNDS = {1: 40, 50: 12}


def seconds(answer: object, images: torch.Tensor) -> float:
    start = time.process_time()  # other programs on the machine do not count
    assert callable(answer)
    answer(images)
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = CifarResNet(20).eval()
    found = {}
    for size, rounds in ROUNDS.items():
        bare = ttc.adapt(model, "ttc", small_batches=True)
        guarded = Guard(ttc.adapt(model, "ttc", small_batches=True), Policy(source_fraction=0))
        pairs = []
        for turn in range(rounds + 3):
            images = torch.rand(size, 3, 32, 32)
            order = [bare, guarded] if turn % 2 else [guarded, bare]
            times = {id(answer): seconds(answer, images) for answer in order}
            guarded.resume()  # random images may look unhealthy; the cost is that of an adapting guard
            if turn >= 3:
                pairs.append(times[id(guarded)] / times[id(bare)])
        found[f"batch of {size}"] = round(statistics.median(pairs), 3)
    print(json.dumps({"guarded over bare step, TTC on ResNet-20": found, "goal": 1.05, "rounds": ROUNDS}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
