"""One outlier among batches leaves the statistics nearly as they were; batches that confirm each other count fully."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ttc.nn import EmaNorm, RunningNorm, track_statistics
from ttc.nn.outliers import MAX_MOVE, bounded_move, channel_distances, distance

EPS = 1e-5
MAKERS: list[Callable[[nn.BatchNorm2d], EmaNorm | RunningNorm]] = [
    lambda layer: EmaNorm(layer, weight=0.01),
    lambda layer: RunningNorm(layer, momentum=0.1, bounded=True),
]


def batches(count: int, mean: float, std: float, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [mean + std * torch.randn(20, 6, 8, 8, generator=generator) for _ in range(count)]


def statistics(layer: EmaNorm | RunningNorm, stream: list[Tensor]) -> tuple[Tensor, Tensor]:
    for batch in stream:
        with track_statistics(layer):
            layer(batch)
    assert layer.mean is not None
    assert layer.variance is not None
    return layer.mean.view(-1), layer.variance.view(-1)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("position", "mean", "std"),
    [(0, 0.0, 1.0), *((position, *shift) for position in (1, 4) for shift in ((0.0, 0.1), (0.0, 1.0), (0.5, 1.5)))],
)
def test_an_outlier_moves_the_statistics_by_the_bound_at_most(
    make: Callable[[nn.BatchNorm2d], EmaNorm | RunningNorm], position: int, mean: float, std: float
) -> None:
    stream = batches(6, mean, std)
    disturbed = [*stream[:position], *batches(1, -1.5, 0.5, seed=1), *stream[position:]]
    wanted, found = (statistics(make(nn.BatchNorm2d(6)), images) for images in (stream, disturbed))
    assert float(channel_distances(wanted, found, EPS).max()) <= 1.5 * MAX_MOVE


@pytest.mark.parametrize("make", MAKERS)
def test_without_the_alternatives_the_outlier_stays(
    make: Callable[[nn.BatchNorm2d], EmaNorm | RunningNorm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttc.nn.outliers.MARGIN", 0.0)
    stream = batches(6, 0.0, 1.0)
    disturbed = [*stream[:4], *batches(1, -1.5, 0.5, seed=1), *stream[4:]]
    wanted, found = (statistics(make(nn.BatchNorm2d(6)), images) for images in (stream, disturbed))
    assert float(channel_distances(wanted, found, EPS).max()) > 10 * MAX_MOVE


def test_a_lasting_change_of_the_stream_counts_fully() -> None:
    stream = [*batches(3, 0.0, 1.0), *batches(4, -1.5, 0.5)]
    plain = statistics(RunningNorm(nn.BatchNorm2d(6)), stream)
    torch.testing.assert_close(statistics(RunningNorm(nn.BatchNorm2d(6), bounded=True), stream), plain)


def test_a_batch_shown_twice_does_not_confirm_itself() -> None:
    stream, outlier = batches(6, 0.0, 1.0), batches(1, -1.5, 0.5, seed=1)
    make = MAKERS[1]
    wanted = statistics(make(nn.BatchNorm2d(6)), stream)
    found = statistics(make(nn.BatchNorm2d(6)), [*stream[:3], *outlier, *outlier, *stream[3:]])
    assert float(channel_distances(wanted, found, EPS).max()) <= 1.5 * MAX_MOVE


def test_distances() -> None:
    one, other = (torch.tensor([0.0, 0.0]), torch.ones(2)), (torch.tensor([3.0, 0.0]), torch.tensor([1.0, torch.e**2]))
    torch.testing.assert_close(channel_distances(one, other, 0.0), torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert float(distance(one, other, 0.0)) == pytest.approx(1.0)
    assert float(distance(one, one, 0.0)) == 0
    moved = bounded_move(one, other, 0.0)
    torch.testing.assert_close(
        channel_distances(one, moved, 0.0), torch.full((2,), MAX_MOVE, dtype=torch.float64), rtol=1e-2, atol=0
    )
