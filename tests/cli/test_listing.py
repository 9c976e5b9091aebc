import io
import math

from rich.console import Console

from tests.bench.conftest import protocol
from ttc.bench.comparison import Summary
from ttc.bench.metrics import MeanStd
from ttc.cli.listing import print_cells, print_summaries

SETTING = {
    "dataset": "embedded",
    "model": "embedded",
    "scenario": "per-domain",
    "severity": 5,
    "batch_size": 100,
    "images": 2000,
}


def summary(method: str, runs: int = 1, corruptions: int = 15) -> Summary:
    value = MeanStd(0.5, 0.01 if runs > 1 else math.nan, runs)
    return Summary(method, SETTING, corruptions, runs, value, value, value, value, 7.5, 1.0, 1.0)


def shown(*found: Summary, width: int = 80) -> list[str]:
    text = io.StringIO()
    print_summaries(Console(file=text, width=width, soft_wrap=True), found)
    return text.getvalue().splitlines()


def test_a_summary_shows_deviations_where_there_are_some() -> None:
    heading, titles, row = shown(summary("tent", runs=3), width=120)[:3]
    assert heading == (
        "embedded, embedded: per-domain, severity 5, batch 100, 2,000 images; mean over 15 corruptions and 3 seeds"
    )
    assert titles.split() == ["method", "accuracy", "%", "NLL", "ECE", "%", "passes", "ms/batch"]
    assert "50.00 ± 1.00" in row
    assert "±" not in shown(summary("tent"), width=120)[2]


def test_means_over_other_corruptions_are_not_in_one_table() -> None:
    lines = shown(summary("tent"), summary("norm", corruptions=2), summary("ttc"), width=120)
    assert [line.split()[0] for line in lines if line and line[0] in "tn"] == ["tent", "ttc", "norm"]
    assert "mean over 2 corruptions and 1 seed" in "\n".join(lines)


def test_columns_that_do_not_fit_are_named() -> None:
    lines = shown(summary("tent+rla+spc+ss", runs=3), width=50)
    assert max(map(len, lines)) <= 50
    assert lines[5] == "not shown at this width: NLL, ECE %"


def test_axes_that_never_change_are_named_once() -> None:
    cells = [(protocol("tent", seed=seed), "tent") for seed in (0, 1)]
    text = io.StringIO()
    print_cells(Console(file=text, width=100), cells, {"state": ["to run", "finished"]})
    lines = text.getvalue().splitlines()
    assert lines[0] == "in every cell: per-domain, batch 24, images 60"
    assert lines[2].split() == ["cell", "method", "domain", "seed", "state"]
    assert lines[3].split()[1:] == ["tent", "fog", "5", "0", "to", "run"]
