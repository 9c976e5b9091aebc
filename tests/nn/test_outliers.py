"""One outlier among batches leaves the statistics nearly as they were; batches that confirm each other count fully."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.outlier_check import FAR, FEWEST, OutlierCheck, channel_distances, is_blank
from ttc.core.statistics import repeat_batch
from ttc.corruptions import corrupt
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.models import embedded
from ttc.nn import EmaNorm, RunningNorm, track_statistics
from ttc.nn.outliers import MAX_MOVE, bounded_move, distance

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
    [(position, *shift) for position in (0, 1, 4) for shift in ((0.0, 0.1), (0.0, 1.0), (0.5, 1.5))],
)
def test_an_outlier_moves_the_statistics_by_the_bound_at_most(
    make: Callable[[nn.BatchNorm2d], EmaNorm | RunningNorm], position: int, mean: float, std: float
) -> None:
    stream = batches(6, mean, std)
    disturbed = [*stream[:position], *batches(1, -1.5, 0.5, seed=1), *stream[position:]]
    wanted, found = (statistics(make(nn.BatchNorm2d(6)), images) for images in (stream, disturbed))
    assert float(channel_distances(wanted, found, EPS).max()) <= 1.5 * MAX_MOVE


@pytest.mark.parametrize("position", [0, 1, 4])
def test_another_view_of_an_outlier_does_not_confirm_it(position: int) -> None:
    def view(batch: Tensor) -> Tensor:
        return batch * 0.97

    found = []
    stream, outlier = batches(6, 0.5, 1.5), batches(1, -1.5, 0.5, seed=1)
    for images in (stream, [*stream[:position], *outlier, *stream[position:]]):
        layer = EmaNorm(nn.BatchNorm2d(6), weight=0.01)
        for batch in images:
            layer(batch)
            with repeat_batch(layer):
                layer(view(batch))
        assert layer.mean is not None
        assert layer.variance is not None
        found.append((layer.mean, layer.variance))
    assert float(channel_distances(found[0], found[1], EPS).max()) <= 1.5 * MAX_MOVE


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


def images(seed: int, count: int = 20) -> Tensor:
    """Smooth images, brighter and darker ones."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.rand(count, 3, 4, 4, generator=generator)
    return nn.functional.interpolate(small, scale_factor=8, mode="bilinear")


OUTLIERS: dict[str, Callable[[Tensor], Tensor]] = {
    "noise": lambda x: torch.rand(x.shape, generator=torch.Generator().manual_seed(9)),
    "black": torch.zeros_like,
    "x 4": lambda x: x * 4,
    "negative": lambda x: -x,
    "huge": lambda x: x * 1e38,
}


@pytest.mark.parametrize("kind", OUTLIERS)
def test_an_outlier_is_contradicted_by_the_next_batch(kind: str) -> None:
    check = OutlierCheck()
    check.include(images(0))
    assert not check.is_contradicted_by(OUTLIERS[kind](images(1)))  # it may be the start of another stream
    check.include(OUTLIERS[kind](images(1)))
    assert check.last is not None
    assert bool(check.last.isfinite().all())
    assert check.is_contradicted_by(images(2))
    check.include(images(2))
    assert not check.is_contradicted_by(images(3))


def test_a_lasting_change_and_ordinary_batches_contradict_nothing() -> None:
    check = OutlierCheck()
    changed = [OUTLIERS["noise"](images(i)) for i in range(3)]
    for batch in [images(0), images(1, FEWEST), images(2), *changed]:
        assert not check.is_contradicted_by(batch)
        check.include(batch)
    assert check.is_contradicted_by(images(4)) is False  # the noise was confirmed, this may be the outlier
    assert FAR > 0


@pytest.mark.parametrize("kind", ["black", "x 4", "negative"])
def test_a_batch_far_from_the_last_one_waits_for_another_like_it(kind: str) -> None:
    check = OutlierCheck()
    assert not check.is_unconfirmed(OUTLIERS[kind](images(0)))  # the first batch has nothing to be compared with
    check.include(images(0))
    assert not check.is_unconfirmed(images(1))
    far = OUTLIERS[kind](images(2))
    assert check.is_unconfirmed(far)
    assert not check.is_unconfirmed(far[: FEWEST - 1])
    check.include(far)
    assert not check.is_unconfirmed(images(4))  # it was an outlier: the stream continues
    assert not check.is_unconfirmed(OUTLIERS[kind](images(3)))


@pytest.mark.parametrize("kind", OUTLIERS)
def test_the_third_batch_tells_whether_the_first_was_an_outlier(kind: str) -> None:
    outlier = OUTLIERS[kind](images(0))
    for first, second in ((outlier, images(1)), (images(1), outlier)):
        check = OutlierCheck()
        assert not check.is_second_and_far(first)
        check.include(first)
        assert check.is_second_and_far(second)
        assert check.is_unconfirmed(second)
        assert not check.is_second_and_far(second[: FEWEST - 1])
        assert not check.is_second_and_far(second[:, :1])
        assert not check.shows_first_as_outlier(second)
        check.include(second)
        assert check.shows_first_as_outlier(images(2)) is (first is outlier)
        assert check.is_contradicted_by(images(2)) is (second is outlier)
        assert not check.is_second_and_far(images(2))
        check.include(images(2))
        assert not check.shows_first_as_outlier(images(3))


@pytest.mark.parametrize("size", [8, 16, 50])
@pytest.mark.parametrize(
    "corruption", [None, "contrast", "fog", "frost", "gaussian_noise", "defocus_blur", "brightness"]
)
def test_good_batches_of_one_stream_are_never_far(corruption: str | None, size: int) -> None:
    data = embedded_images()
    pixels = data.pixels(range(300))
    stream = as_tensor(pixels if corruption is None else corrupt(pixels, corruption, severity=5)).split(size)
    for first, second, third in zip(stream, stream[1:], stream[2:], strict=False):
        check = OutlierCheck()
        check.include(first)
        assert not check.is_second_and_far(second)
        check.include(second)
        assert not check.shows_first_as_outlier(third)


@pytest.mark.parametrize(("method", "small"), [("norm-ema", False), ("norm", True)])
@pytest.mark.parametrize("corruption", ["contrast", "frost"])
def test_streams_without_outliers_are_predicted_as_without_the_check(
    method: str, small: bool, corruption: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = embedded_images()
    pixels = data.pixels(range(100))
    stream = as_tensor(pixels if corruption is None else corrupt(pixels, corruption, severity=5))
    found = {size: predictions(method, small, list(stream[: 3 * size].split(size))) for size in (8, 33)}
    monkeypatch.setattr("ttc.nn.stream_statistics.is_second_and_far", lambda *_: False)
    for size, logits in found.items():
        assert torch.equal(logits, predictions(method, small, list(stream[: 3 * size].split(size))))


def predictions(method: str, small: bool, stream: list[Tensor]) -> Tensor:
    adapter = ttc.adapt(embedded(), method, small_batches=small)
    return torch.cat([adapter(batch) for batch in stream])


def test_images_that_wait_are_those_of_the_last_batch() -> None:
    check, statistics = OutlierCheck(), torch.zeros(2, 6)
    check.check_state({"last": statistics, "before": None, "batches": 2, "waiting": images(0)})
    for waiting in (1.0, images(0)[:, :1], images(0)[:1], images(0).long()):
        with pytest.raises(ValueError, match="not those of the last batch"):
            check.check_state({"last": statistics, "before": None, "batches": 2, "waiting": waiting})


def test_images_are_blank_if_all_of_them_have_one_colour() -> None:
    colours = torch.rand(4, 3, 1, 1)
    assert is_blank(colours.expand(4, 3, 8, 8))
    assert is_blank(torch.zeros(2, 3, 8))
    assert not is_blank(torch.zeros(2, 3))  # vectors, of which each value is a channel
    assert not is_blank(torch.cat([colours.expand(4, 3, 8, 8), torch.rand(1, 3, 8, 8)]))


def test_small_batches_and_other_channels_are_not_compared() -> None:
    check = OutlierCheck()
    for batch in (images(0), torch.zeros(20, 3, 32, 32)):
        check.include(batch)
    assert not check.is_contradicted_by(images(1)[: FEWEST - 1])
    assert not check.is_contradicted_by(images(1)[:, :1])
    assert check.is_contradicted_by(images(1))
    check.include(images(1)[:1])
    assert check.last is None
    with pytest.raises(ValueError, match="a mean and a variance per channel"):
        check.check_state({"last": torch.zeros(3), "before": None, "batches": 1, "waiting": None})
    with pytest.raises(ValueError, match="a mean and a variance per channel"):
        check.check_state({"last": None, "before": 1.0, "batches": 1, "waiting": None})
