"""The time of a step with images of ImageNet's size, when the C library keeps freed memory and when it returns it.

    python benchmarks/allocator.py --methods norm tent ttc --images 32 --rounds 3

Each round is two fresh processes, one of each kind in turn; medians of processor time over the rounds, one thread,
random weights and images. Ratios above one are faster with memory kept.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

import ttc
from ttc.bench.allocator import reuse_memory


def measure(model: str, methods: list[str], images: int) -> dict[str, tuple[float, float]]:
    """Return the milliseconds per image of each method's third step, and the share of them spent in the kernel."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, batch = ttc.models.build(model), torch.rand(images, 3, 224, 224)
    found = {}
    for method in methods:
        adapter = ttc.adapt(network, method)
        adapter(batch)
        adapter(batch)
        start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
        adapter(batch)
        spent = time.process_time() - start
        kernel = resource.getrusage(resource.RUSAGE_SELF).ru_stime - before
        found[method] = (1000 * spent / images, kernel / spent)
    return found


def main() -> None:
    """Compare the two, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="imagenet-resnet50")
    parser.add_argument("--methods", nargs="+", default=["norm", "tent", "ttc"])
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=("keep", "return"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        if given.child == "keep" and not reuse_memory():
            sys.exit("the allocator of this system does not take the settings: there is nothing to compare")
        print(json.dumps(measure(given.model, given.methods, given.images)))
        return
    found: dict[str, list[dict[str, tuple[float, float]]]] = {"return": [], "keep": []}
    for _ in range(given.rounds):
        for kind, results in found.items():
            command = [sys.executable, *sys.argv, "--child", kind]
            results.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(f"{given.model}, {given.images} images of 224 x 224, ms per image (share in the kernel)")
    for method in given.methods:
        times, shares = (
            {kind: statistics.median(result[method][index] for result in results) for kind, results in found.items()}
            for index in (0, 1)
        )
        print(
            f"{method:6} returned {times['return']:6.1f} ({shares['return']:.0%})   "
            f"kept {times['keep']:6.1f} ({shares['keep']:.0%})   {times['return'] / times['keep']:.2f}x"
        )


if __name__ == "__main__":
    main()
