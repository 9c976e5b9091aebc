import math

from ttc.serve.stream_history import FIRST_INTERVAL, MOST_POINTS, StreamHistory


def test_a_point_is_the_mean_over_its_images() -> None:
    history = StreamHistory()
    history.add(5, 5, "adapting", {"entropy": 1.0})
    assert history.points == []
    history.add(20, 15, "frozen", {"entropy": 3.0})
    (point,) = history.points
    assert (point["images"], point["mode"], point["entropy"]) == (20, "frozen", 2.5)


def test_a_long_life_has_a_bounded_number_of_points_over_all_of_it() -> None:
    history = StreamHistory()
    last = 1_000_000
    for images in range(1000, last + 1, 1000):
        history.add(images, 1000, "adapting", {"confidence": images / last})
    assert MOST_POINTS // 3 <= len(history.points) <= MOST_POINTS
    assert history.points[0]["images"] < last / 20
    assert history.points[-1]["images"] > last * 0.95


def test_a_value_that_is_not_finite_is_left_out() -> None:
    history = StreamHistory()
    history.add(FIRST_INTERVAL, FIRST_INTERVAL, "adapting", {"entropy": math.nan, "confidence": 1.0})
    assert "entropy" not in history.points[0]


def test_it_resumes() -> None:
    first = StreamHistory()
    first.add(20, 20, "adapting", {"entropy": 1.0})
    second = StreamHistory(first.points, first.interval)
    second.add(40, 20, "adapting", {"entropy": 2.0})
    assert [point["images"] for point in second.points] == [20, 40]
