"""On the embedded model and images: small batches and hard streams; ``pytest -m slow -s`` prints the numbers."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

import ttc
from ttc.corruptions import CORRUPTIONS, corrupt
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.deploy import Guard
from ttc.models import embedded

pytestmark = pytest.mark.slow
Batches = list[tuple[Tensor, Tensor]]
SMALL, LARGE = 300, 1000  # images of each corruption


@cache
def domain(corruption: str, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images under one corruption at severity 5."""
    images = embedded_images()
    pixels = corrupt(images.pixels(range(count)), corruption, severity=5, seed=seed)
    return as_tensor(pixels), torch.from_numpy(images.labels[:count])


def batches(images: Tensor, labels: Tensor, size: int) -> Batches:
    return list(zip(images.split(size), labels.split(size), strict=True))


def accuracy(predict: Callable[[Tensor], Tensor], stream: Batches) -> float:
    correct = sum(int((predict(images).argmax(1) == labels).sum()) for images, labels in stream)
    return 100 * correct / sum(len(labels) for _, labels in stream)


def test_ttc_on_single_images_comes_close_to_batches_of_a_hundred() -> None:
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


def hard_streams(corruption: str, size: int = 100, seed: int = 0) -> dict[str, Batches]:
    images, labels = domain(corruption, LARGE, seed)
    order = labels.argsort(stable=True)
    domains = [domain(name, LARGE)[0] for name in ("gaussian_noise", "contrast", "fog", "jpeg_compression")]
    plain, count = batches(images, labels, size), LARGE // size
    return {
        "sorted classes": batches(images[order], labels[order], size),
        "one image": [(images[7:8].expand(size, -1, -1, -1), labels[7:8].expand(size))] * count,
        "alternating domains": [(domains[i % 4][size * i : size * i + size], plain[i][1]) for i in range(count)],
        "20 passes": plain[: SMALL // size] * 20,
    }


def compare(method: str, stream: Batches, title: str) -> tuple[float, float, Guard]:
    """Return the accuracy of source model and guarded method in the second half of a stream, and the guard."""
    source, bare = ttc.adapt(embedded(), "source"), ttc.adapt(embedded(), method)
    guard = Guard(ttc.adapt(embedded(), method))
    half = len(stream) // 2
    guarded = accuracy(guard, stream[:half]), accuracy(guard, stream[half:])
    shipped = accuracy(source, stream[:half]), accuracy(source, stream[half:])
    print(
        f"{method}, {title}: halves of the stream: SOURCE {shipped[0]:.1f} {shipped[1]:.1f}, guarded "
        f"{guarded[0]:.1f} {guarded[1]:.1f} ({guard.mode}); unguarded, whole: {accuracy(bare, stream):.1f}; "
        f"{[*guard.events][:3]}"
    )
    return shipped[1], guarded[1], guard


@pytest.mark.parametrize("corruption", ["gaussian_noise", "frost", "contrast", "jpeg_compression", "brightness"])
def test_guarded_ttc_ends_no_worse_than_the_source_on_hard_streams(corruption: str) -> None:
    for name, stream in hard_streams(corruption).items():
        shipped, guarded, _ = compare("ttc", stream, f"{corruption}, {name}")
        assert guarded >= shipped - 2


@pytest.mark.parametrize(
    ("method", "corruption", "size"),
    [("ttc", "fog", 50), ("ttc", "pixelate", 50), ("tent", "snow", 100), ("tent", "shot_noise", 50)],
)
def test_the_guard_on_streams_it_was_not_tuned_for(method: str, corruption: str, size: int) -> None:
    for name, stream in hard_streams(corruption, size, seed=1).items():
        if name in {"sorted classes", "one image"}:
            shipped, guarded, _ = compare(method, stream, f"{corruption}, N={size}, {name}")
            assert guarded >= shipped - 2
    healthy = batches(*domain(corruption, LARGE, 1), size)
    _, _, guard = compare(method, healthy, f"{corruption}, N={size}, in random order")
    assert guard.mode == "adapting"
