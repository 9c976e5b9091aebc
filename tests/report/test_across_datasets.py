"""One page about several datasets: verdicts side by side, and explanations that numbers confirm or not."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.conftest import protocol
from ttc.errors import TTCError
from ttc.report.across_datasets import across_datasets
from ttc.report.dataset_columns import Column, read_columns
from ttc.report.findings import Cell, Claim, Findings, ResultTable, Value, write_findings


def main_study(
    study: str,
    model: str,
    averages: dict[str, float],
    differences: dict[str, float],
    verdict: str = "holds",
) -> Findings:
    cell = protocol(model=model, corruptions=("frost",), textures="original frost", images=5000)
    record = Cell(cell.hash, json.loads(cell.json()), {"accuracy": 0.5}, {}, {}, 7200.0, "now")
    accuracy = {row: {"average": Value(value, 0.2)} for row, value in averages.items()}
    odd = {row: {"points": Value(value, 0.1, 1.0)} for row, value in differences.items()}
    cost = {"TTC": {"ms per image": Value(12.0), "peak memory (MB)": Value(30.0), "forward passes": Value(2.0)}}
    tables = (
        ResultTable(study, "Accuracy", ("average",), accuracy),
        ResultTable(f"{study}-odd-rows", "Odd", ("points",), odd),
        ResultTable(f"{study}-cost-table", "Cost", ("ms per image",), cost),
    )
    claims = (Claim("TTC improves on TENT.", verdict, "TTC − TENT: +1.84 points (+1.68 to +2.01)"),)
    return Findings(study, "t", "a", "real", "h", tables, claims, cells=(record,))


CIFAR100 = main_study("cifar100c", "resnet56-b", {"SOURCE": 40.0, "NORM": 55.0}, {"NORM − TTC": -2.0})
UNFIT = main_study("cifar100c", "resnet56-b", {"SOURCE": 8.0, "NORM": 52.0}, {"NORM − TTC": -1.0})
IMAGENET = main_study(
    "imagenetc",
    "lite0:efficientnet_lite0",
    {"SOURCE": 30.0},
    {"T3A (M = 1) − SOURCE": -3.0, "T3A − SOURCE": 0.5, "ETA − NORM, contrast": -30.0},
    "does not hold",
)
CIFAR10 = main_study("cifar10c", "embedded", {}, {"ETA (ε = 0.05) − NORM": 0.0, "ETA − NORM": 1.0})


def page(**columns: Findings) -> str:
    return across_datasets([Column(name, [findings]) for name, findings in columns.items()])


def line(text: str, start: str) -> list[str]:
    return next(row for row in text.splitlines() if row.startswith(f"| {start}")).strip("| ").split(" | ")


def test_claims_stand_side_by_side_with_their_intervals() -> None:
    text = page(one=CIFAR100, other=IMAGENET)
    assert line(text, "claim") == ["claim", "CIFAR-100, resnet56-b", "ImageNet, efficientnet_lite0", "holds on"]
    assert line(text, "TTC improves") == [
        "TTC improves on TENT.",
        "holds: +1.84 (+1.68 to +2.01)",
        "does not hold: +1.84 (+1.68 to +2.01)",
        "1 of 2",
    ]
    assert line(text, "SOURCE")[1:] == ["40.0 ± 0.20", "30.0 ± 0.20"]
    assert "| CIFAR-100, resnet56-b | 5,000 | 1 | 24 | 0 | original frost | 1 | 2.0 |" in text


def test_explanations_are_confirmed_or_dropped_by_numbers() -> None:
    text = page(**{"a": CIFAR10, "b": CIFAR100, "b-none": UNFIT, "c": IMAGENET})
    assert text.count("CIFAR-100, resnet56-b") == page(a=CIFAR10, b=CIFAR100, c=IMAGENET).count("CIFAR-100, resnet56-b")
    assert line(text, "SOURCE 8.8")[2:] == ["SOURCE 40.0 → 8.0, NORM 55.0 → 52.0 (b-none)", "confirmed"]
    assert line(text, "NORM above")[2:] == [
        "NORM − TTC −2.00 ± 0.10 (paper +1.0); −1.00 ± 0.10 (paper +1.0) (b-none)",
        "dropped",  # TTC is above NORM with both
    ]
    assert line(page(b=CIFAR100), "NORM above")[-1] == "not tested"
    assert line(text, "T3A below")[-1] == "confirmed"
    assert line(text, "ETA level")[-1] == "confirmed"
    assert line(text, "ETA 4.9")[2:] == ["contrast −30.00 ± 0.10 (paper +1.0)", "dropped"]


def test_other_statistics_are_compared_on_the_corruptions_that_both_have() -> None:
    def with_corruptions(findings: Findings, *accuracies: float) -> Findings:
        names = ("average", *("frost", "fog", "snow")[: len(accuracies)])
        values = dict(zip(names, map(Value, (0.0, *accuracies)), strict=True))
        table = ResultTable("cifar100c", "Accuracy", names, {"SOURCE": values, "NORM": values})
        return replace(findings, tables=(table, *findings.tables[1:]))

    text = page(**{"b": with_corruptions(CIFAR100, 40.0, 50.0, 90.0), "b-none": with_corruptions(UNFIT, 10.0, 11.0)})
    assert line(text, "SOURCE 8.8")[2].startswith("SOURCE 45.0 → 10.5")


def test_costs_may_come_from_cells_of_their_own() -> None:
    text = across_datasets([Column("a", [CIFAR10])], introduction="By hand.", costs=[Column("b", [IMAGENET])])
    assert text.startswith("# Three datasets, real data\n\nBy hand.\n\n")
    assert "ImageNet, efficientnet_lite0: 5,000 in batches of 24" in text
    assert "| TTC | 12.0 | 30.0 | 2.0/" in text


def test_a_claim_that_two_studies_judge_is_that_of_the_main_table() -> None:
    components = replace(IMAGENET, study="components-imagenetc", claims=(Claim("TTC improves on TENT.", "holds", ""),))
    text = across_datasets([Column("a", [components, IMAGENET])])
    assert line(text, "TTC improves")[-1] == "0 of 1"


def test_what_was_not_run_is_not_tested() -> None:
    text = page(c=IMAGENET)
    assert line(text, "SOURCE 8.8")[-1] == "not tested"
    assert line(page(b=CIFAR100), "SOURCE 8.8")[-1] == "not tested"
    assert line(text, "ETA level")[-1] == "not tested"


def test_columns_are_read_from_folders_in_the_order_of_the_datasets(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="has no main table: run ttc reproduce cifar100c --profile real"):
        read_columns(tmp_path)
    for name, findings in (("a", IMAGENET), ("z", CIFAR10)):
        write_findings(findings, tmp_path / name / f"{findings.study}.json")
    assert [column.folder for column in read_columns(tmp_path)] == ["z", "a"]
