"""On the embedded model and images: small batches and hard streams; ``pytest -m slow -s`` prints the numbers."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

import ttc
from ttc.corruptions import CORRUPTIONS
from ttc.data import as_tensor, corrupted, first
from ttc.data.embedded import embedded as embedded_images
from ttc.deploy import Guard
from ttc.models import embedded

pytestmark = pytest.mark.slow
Batches = list[tuple[Tensor, Tensor]]
SMALL, LARGE = 300, 1000  # images of each corruption


@cache
def domain(corruption: str, count: int) -> tuple[Tensor, Tensor]:
    """Images under one corruption at severity 5, seed 0."""
    images = corrupted(first(embedded_images(), count), corruption, 5)
    return as_tensor(images.pixels(range(count))), torch.from_numpy(images.labels)


def batches(images: Tensor, labels: Tensor, size: int) -> Batches:
    return list(zip(images.split(size), labels.split(size), strict=True))


def accuracy(answer: Callable[[Tensor], Tensor], stream: Batches) -> float:
    right = sum(int((answer(images).argmax(1) == labels).sum()) for images, labels in stream)
    return 100 * right / sum(len(labels) for _, labels in stream)


def test_ttc_on_single_images_nears_itself_on_batches_of_a_hundred() -> None:
    def mean(size: int, method: str, **options: bool) -> float:
        found = []
        for corruption in CORRUPTIONS:
            adapter = ttc.adapt(embedded(), method, small_batches=options.get("small", False))
            found.append(accuracy(adapter, batches(*domain(corruption, SMALL), size)))
        print(f"{method} {options or ''} N={size}: mean {sum(found) / 15:.2f}, {[round(one, 1) for one in found]}")
        return sum(found) / 15

    source, reference = mean(100, "source"), mean(100, "ttc")
    for size in (1, 2, 10, 50, 100):
        small = mean(size, "ttc", small=True)
        assert small > source
        assert small > reference - 4


def hard_streams(corruption: str) -> dict[str, Batches]:
    images, labels = domain(corruption, LARGE)
    order = labels.argsort(stable=True)
    domains = [domain(name, LARGE)[0] for name in ("gaussian_noise", "contrast", "fog", "jpeg_compression")]
    plain = batches(images, labels, 100)
    return {
        "sorted classes": batches(images[order], labels[order], 100),
        "one image": [(images[7:8].expand(100, -1, -1, -1), labels[7:8].expand(100))] * 10,
        "alternating domains": [(domains[i % 4][100 * i : 100 * i + 100], plain[i][1]) for i in range(10)],
        "20 passes": plain[:3] * 20,
    }


@pytest.mark.parametrize("corruption", ["gaussian_noise", "frost", "contrast", "jpeg_compression", "brightness"])
def test_guarded_ttc_ends_no_worse_than_the_source_on_hard_streams(corruption: str) -> None:
    for name, stream in hard_streams(corruption).items():
        source, bare = ttc.adapt(embedded(), "source"), ttc.adapt(embedded(), "ttc")
        guard = Guard(ttc.adapt(embedded(), "ttc"))
        half = len(stream) // 2
        begins, ends = accuracy(guard, stream[:half]), accuracy(guard, stream[half:])
        shipped = accuracy(source, stream[:half]), accuracy(source, stream[half:])
        alone = accuracy(bare, stream)
        print(
            f"{corruption}, {name}: halves of the stream: SOURCE {shipped[0]:.1f} {shipped[1]:.1f}, guarded TTC "
            f"{begins:.1f} {ends:.1f} ({guard.mode}); unguarded, whole: {alone:.1f}; {[*guard.events][:3]}"
        )
        assert ends >= shipped[1] - 1
