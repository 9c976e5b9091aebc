"""What the parameters of STEADY could reach: its accuracy with the labels in place of its objective.

    python tools/upper_bound.py --dataset cifar100 --model resnet56-b --checkpoint FILE --images 300 --csv FILE

Statistics, parameters, steps and learning rates are those of STEADY, and a batch is predicted before it is learned
from; what is minimized is the cross-entropy with the labels. The cells are those of ``ttc reproduce regret``: the same
images in the same order. A finished cell is a line of the CSV file, so the same command resumes.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttc
from ttc.bench import scenarios
from ttc.bench.spec import Spec
from ttc.bench.workload import ResolvedWorkload, Workload
from ttc.core import Classifier
from ttc.data import Images, as_tensor
from ttc.errors import TTCError
from ttc.methods.steady import SAMPLES_PER_STEP, Steady, steady
from ttc.studies.regret import SCENARIOS
from ttc.studies.study import THREE

COLUMNS = ("dataset", "model", "scenario", "batch_size", "images", "accuracy")


class WithLabels(Steady):
    """STEADY that learns from labels; they must be set before each batch."""

    labels: Tensor  # of the batch that comes next, (N,)

    def _loss(self, logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, self.labels, reduction="sum") / max(SAMPLES_PER_STEP, len(logits))


def with_labels(model: Classifier) -> WithLabels:
    """Build STEADY on a prepared copy, learning from labels."""
    built = steady(model)
    return WithLabels(
        built.model,
        built.updater,
        doubt=built.doubt,
        prior=built.prior,
        weigh=None,
        balance=None,
        pull=built.pull,
        learn_every=built.learn_every,
    )


def accuracy(model: nn.Module, domains: Sequence[Images], scenario: str, batch_size: int) -> float:
    """Return the accuracy over a stream, in percent."""
    adapter = ttc.adapt(model, with_labels)
    assert isinstance(adapter, WithLabels)
    labels = [np.asarray(domain.labels, dtype=np.int64) for domain in domains]
    right = total = 0
    for batch in scenarios.stream(Spec.read(scenario), labels, batch_size, seed=0):
        if batch.reset:
            adapter.reset()
        rows = list(zip(batch.domain, batch.image, strict=True))
        x = torch.cat([as_tensor(domains[domain].pixels([image])) for domain, image in rows])
        truth = torch.tensor([labels[domain][image] for domain, image in rows])
        adapter.labels = truth
        right += int((adapter(x).argmax(1) == truth).sum())
        total += len(truth)
    return 100 * right / total


def cells(sizes: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Return the scenarios and batch sizes, the smallest batches last: they take longest."""
    for size in sorted(sizes, reverse=True):
        for scenario in SCENARIOS:
            yield scenario, size


def load(workload: ResolvedWorkload, scenario: str, images: int) -> list[Images]:
    """Return the domains of a scenario: three corruptions at severity 5, with clean images where it asks for them."""
    domains = scenarios.domains_of(Spec.read(scenario), THREE, 5)
    return [workload.domain(domain, images, cached=True) for domain in domains]


def main() -> None:
    """Measure the cells that the CSV file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="embedded", help="as for ttc run (default: %(default)s)")
    parser.add_argument("--model", default="embedded", help="as for ttc run (default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--images", type=int, default=300, help="of each corruption (default: %(default)s)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 100])
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    workload = Workload(options.dataset, options.model, options.checkpoint, None).resolve()
    finished = set()
    if options.csv.exists():
        with options.csv.open(newline="") as file:
            finished = {tuple(row[name] for name in COLUMNS[:-1]) for row in csv.DictReader(file)}
    for scenario, size in cells(options.batch_sizes):
        cell = (options.dataset, options.model, scenario, str(size), str(options.images))
        if cell in finished:
            continue
        domains = load(workload, scenario, options.images)
        model = workload.network(domains[0].num_classes, "float32", "cpu")
        found = accuracy(model, domains, scenario, size)
        with options.csv.open("a", newline="") as file:
            writer = csv.writer(file)
            if not file.tell():
                writer.writerow(COLUMNS)
            writer.writerow([*cell, f"{found:.2f}"])
        print(f"{scenario}, N = {size}: {found:.1f} %", flush=True)


if __name__ == "__main__":
    try:
        main()
    except TTCError as error:
        raise SystemExit(f"upper_bound.py: {error}") from None
