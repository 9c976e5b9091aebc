import csv
import dataclasses
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bench.conftest import protocol
from ttc.bench import Row
from ttc.bench.comparison import comparisons, method_names, summaries
from ttc.bench.export import as_csv, as_json, records, write_parquet
from ttc.bench.metrics import mcnemar, paired_interval
from ttc.errors import TTCError


def row(method: str = "tent", share: float = 0.5, seed: int = 0, corruption: str = "fog", **changes: object) -> Row:
    correct = np.random.default_rng([seed, int(100 * share), len(corruption)]).random(80) < share
    values = {
        "protocol": protocol(method, seed=seed, corruptions=(corruption,), data_checksum=corruption),
        "status": "finished",
        "figures": {"accuracy": float(correct.mean()), "nll": 1 - share, "ece": 0.1, "per_class": [None, 0.5]},
        "cost": {
            "forwards": 1.0,
            "backwards": 1.0,
            "median_ms": 5.0,
            "p95_ms": 6.0,
            "peak_memory_mb": 1.0,
            "trainable": 4,
        },
        "warnings": (),
        "error": None,
        "environment": {"torch": "2"},
        "seconds": 1.0,
        "recorded": "now",
        "trace": np.array([[80, 0.5, 0.1, np.nan, np.nan, 0.2]], np.float32),
        "predictions": np.zeros(80, np.uint16),
        "correct": correct,
    }
    return Row(**{**values, **changes})  # type: ignore[arg-type]


GRID = [row(m, s, seed, c) for m, s in (("norm", 0.5), ("ttc", 0.7)) for seed in (0, 1) for c in ("fog", "snow")]


def test_summaries_average_over_corruptions_then_seeds() -> None:
    norm, better = summaries([*GRID, row("tipi", status="failed", figures={}, error="it broke")])
    assert (norm.method, better.method, norm.corruptions, norm.seeds) == ("norm", "ttc", 2, 2)
    accuracies = [row.figures["accuracy"] for row in GRID[:4]]
    by_seed = [np.mean(accuracies[:2]), np.mean(accuracies[2:])]
    assert norm.accuracy == pytest.approx((np.mean(by_seed), np.std(by_seed, ddof=1), 2))
    assert norm.error.mean == pytest.approx(1 - norm.accuracy.mean)
    assert better.nll.mean == pytest.approx(0.3)


def test_settings_are_kept_apart() -> None:
    other = row("norm")
    other = dataclasses.replace(other, protocol=dataclasses.replace(other.protocol, batch_size=9))
    assert len(summaries([row("norm"), other])) == 2


def test_a_method_is_called_as_one_would_write_it() -> None:
    rows = [row("ttc(bandwidth=2)"), row("ttc"), row("ttc(bandwidth=1)"), row("norm")]
    gone = row("norm")
    rows.append(
        dataclasses.replace(gone, protocol=dataclasses.replace(gone.protocol, method="mine", options='{"a":1}'))
    )
    names = ["ttc(bandwidth=2)", "ttc", "ttc(bandwidth=1)", "norm", "mine(a=1)"]
    assert list(method_names(rows).values()) == names


def test_a_method_is_compared_though_variants_of_it_were_run() -> None:
    found, _ = comparisons([*GRID, row("ttc(bandwidth=2)", 0.1)], "norm", "ttc(bandwidth=1.0)")
    assert found == comparisons(GRID, "norm", "ttc")[0]
    assert len(comparisons([*GRID, row("ttc(bandwidth=2)", 0.1)], "ttc", "ttc(bandwidth=2)")[0]) == 1


def test_two_methods_are_compared_on_the_same_images() -> None:
    found, overall = comparisons(GRID, "norm", "ttc")
    assert [(one.domain, one.seed) for one in found][:2] == [
        ("fog 5, per-domain, batch 24", 0),
        ("snow 5, per-domain, batch 24", 0),
    ]
    first, second = GRID[0].correct, GRID[4].correct
    assert found[0].difference == paired_interval(first, second)
    assert found[0].test == mcnemar(first, second)
    means = [np.mean([row.correct for row in part], axis=0) for part in (GRID[:4], GRID[4:])]
    assert overall == paired_interval(means[0], means[1])
    assert overall.estimate == pytest.approx(np.mean([one.difference.estimate for one in found]))
    assert overall.low < overall.estimate < overall.high


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(
        TTCError, match=r"no finished cell of 'nrm' \(did you mean 'norm'\?\); the store has: norm, ttc"
    ):
        comparisons(GRID, "nrm", "ttc")
    with pytest.raises(TTCError, match="no cell was finished by both 'norm' and 'ttc' in the same setting"):
        comparisons([row("norm", seed=0), row("ttc", seed=1)], "norm", "ttc")
    short = np.ones(3, bool)
    rows = [*GRID[:1], *GRID[4:5], row("norm", seed=7, correct=short), row("ttc", seed=7, correct=short)]
    with pytest.raises(TTCError, match=r"cells of \[3, 80\] images cannot be averaged image by image"):
        comparisons(rows, "norm", "ttc")


def test_records_are_json_and_csv() -> None:
    found = records([row("ttc")], traces=True)
    loaded = json.loads(as_json(found))
    assert len(loaded) == 1
    assert (loaded[0]["method"], loaded[0]["corruption"], loaded[0]["per_class"]) == ("ttc", "fog", [None, 0.5])
    assert loaded[0]["accuracy"] + loaded[0]["error"] == pytest.approx(1)
    assert loaded[0]["trace"]["selected"] == [None]
    assert loaded[0]["options"]["bandwidth"] == 1
    (line,) = csv.DictReader(io.StringIO(as_csv(found)))
    assert (line["method"], line["seed"], json.loads(line["per_class"])) == ("ttc", "0", [None, 0.5])
    assert "trace" not in records([row()])[0]
    assert (as_json([]), as_csv([])) == ("[]", "")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TTCError, match=r"Parquet needs pyarrow: pip install 'test-time-clustering\[parquet\]'"):
        write_parquet(records([row()]), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_parquet_with_pyarrow(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = records(GRID)
    write_parquet(found, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [one["accuracy"] for one in table] == [one["accuracy"] for one in found]
