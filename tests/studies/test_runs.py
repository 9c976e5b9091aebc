"""``ttc reproduce`` and ``ttc report`` as a user runs them."""

import csv
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.studies.conftest import SUBJECT, ttc
from ttc.errors import TTCError
from ttc.report.findings import read_findings
from ttc.report.output import read_folder
from ttc.studies import paper
from ttc.studies.features import adapted, supervised
from ttc.studies.profiles import SETTINGS, real_data, setup


def test_a_study_shows_ours_beside_the_papers(finished: Path) -> None:
    output = (finished / "cifar10c.txt").read_text()
    assert "22 cells; results go to results.sqlite" in output
    assert re.search(r"TTC +\d+\.\d +\d+\.\d\d +87\.3 +−\d+\.\d", output)
    assert "TTC improves on TENT." in output
    assert "note: ETA: the paper's ETA predicts almost as NORM does" in output
    assert "for one page about everything: ttc report --studies reproduction/embedded" in output


def test_studies_share_cells(finished: Path) -> None:
    output = (finished / "augmentations,density.txt").read_text()
    assert "augmentations: 5 cells, 1 finished before" in output  # TTC, from cifar10c
    assert "density: 2 cells, 2 finished before" in output


def test_a_finished_study_runs_nothing(there: Path) -> None:
    code, output = ttc("reproduce", "collapse", *SUBJECT, "--corruptions", "contrast")
    assert code == 0
    assert "5 cells, 5 finished before" in output


def test_everything_is_written(finished: Path) -> None:
    folder = finished / "reproduction" / "embedded"
    for name in ("cifar10c", "augmentations", "density", "collapse", "probabilities"):
        assert (folder / f"{name}.json").is_file()
        assert (folder / f"{name}.md").is_file()
    for ending in ("md", "tex", "csv"):
        assert (folder / "tables" / f"cifar10c.{ending}").is_file()
    for name in ("cifar10c-corruptions", "cifar10c-cost", "augmentations-gains", "density", "collapse-traces"):
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<svg")
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    rows = list(csv.DictReader((folder / "tables" / "cifar10c.csv").read_text().splitlines()))
    assert len(rows) == 11 * 3
    assert [row["column"] for row in rows[:3]] == ["average", "fog", "contrast"]
    fog = next(row for row in rows if row["row"] == "TTC" and row["column"] == "fog")
    assert float(fog["difference"]) == pytest.approx(float(fog["ours"]) - 87.0)
    assert r"\toprule" in (folder / "tables" / "cifar10c.tex").read_text()


class Anchors(html.parser.HTMLParser):
    """The ids and inner links of a page, and whether its tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if "href" in found else []
        self.links += [f"#cell-{name}" for name in (found.get("data-cells") or "").split()]
        if tag not in {"meta", "link", "br", "path"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_network(finished: Path) -> None:
    text = (finished / "report" / "report.html").read_text()
    assert len(text.encode()) < 5e6
    ours = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)  # the browser test watches what scripts ask for
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", ours)
    anchors = Anchors()
    anchors.feed(text)
    assert anchors.open == []
    assert len(set(anchors.ids)) == len(anchors.ids)
    inner = [link[1:] for link in anchors.links if link.startswith("#")]
    assert len(inner) > 50
    assert set(inner) <= set(anchors.ids)
    assert "setting-1" in anchors.ids, "cells of ttc run that are in no study"


def test_the_page_states_every_protocol(finished: Path) -> None:
    text = (finished / "report" / "report.html").read_text()
    found = read_findings(finished / "reproduction" / "embedded" / "cifar10c.json")
    for cell in found.cells:
        assert cell.hash in text
        assert str(cell.protocol["data_checksum"]) in text


def test_features_are_those_of_the_predictions(there: Path) -> None:
    found = setup("embedded", "cifar10c", dataset="imagefolder:photos", model="small_nets:small")
    cell = next(
        cell
        for cell in read_findings(there / "reproduction/embedded/density.json").cells
        if cell.protocol["method"] == "tent"
    )
    from ttc.bench import Protocol

    protocol = Protocol.read(json.dumps(dict(cell.protocol)))
    features = adapted(found.resolved, protocol)
    reference = supervised(found.resolved, protocol)
    assert features.shape == reference.shape == (12, 24)
    # one batch of twelve: both predict before they learn, so they agree
    assert np.allclose(features, reference, atol=1e-5)
    small = replace(protocol, batch_size=4)
    first, other = adapted(found.resolved, small), supervised(found.resolved, small)
    assert np.allclose(first[:4], other[:4], atol=1e-5)
    assert not np.allclose(first[8:], other[8:], atol=1e-5)


def test_a_dry_run_says_what_is_missing_and_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = ttc("reproduce", "cifar10c,cifar100c", "--profile", "paper", "--data", str(tmp_path), "--dry-run")
    assert code == 0
    assert "missing  CIFAR-10-C: missing in" in output
    assert "to get it: ttc data fetch cifar10-c" in output
    assert "to get it: ttc data fetch robustbench-standard" in output
    assert "the paper's is not public; train one on a GPU (ttc train --model wrn-28-10" in output
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_cells(there: Path) -> None:
    code, output = ttc("reproduce", "collapse,probabilities", *SUBJECT, "--corruptions", "contrast,fog", "--dry-run")
    assert code == 0
    assert "10 cells, 3 to run: about" in output
    assert "no data and no cells: computed at once" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce", "cifar10"], r"unknown study 'cifar10' \(did you mean 'cifar10c'\?\)"),
        (["reproduce", "collapse", "--seeds", "a"], "--seeds takes whole numbers"),
        (["reproduce", "cifar10c", "--on", "imagenetc"], "--on is for components, batch-size"),
        (
            ["reproduce", "imagenetc", "--profile", "paper", "--data", "."],
            "the paper profile of imagenetc needs what is missing here",
        ),
        (["report"], "there is nothing to report in"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TTCError, match=sentence):
        ttc(*arguments)


def test_the_paper_profile_runs_on_files_in_the_published_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CIFAR-10-C's arrays at full shape (sparse files) and a checkpoint wrapped as RobustBench's, of a smaller net."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    from ttc.data.catalogue import CIFAR10C_MD5

    for name in CIFAR10C_MD5:
        shape = (50_000,) if name == "labels" else (50_000, 32, 32, 3)
        array = np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.uint8, shape=shape)
        array[40_000:40_020] = np.random.default_rng(0).integers(0, 10 if name == "labels" else 256, (20, *shape[1:]))
        array.flush()
    (tmp_path / "checkpoints").mkdir()
    network = _network()
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "checkpoints" / "small.pt")
    own = replace(SETTINGS["cifar10c"], model="wrn-16-1", checkpoint="checkpoints/small.pt", sources=("cifar10-c",))
    monkeypatch.setitem(SETTINGS, "cifar10c", own)
    monkeypatch.chdir(tmp_path)
    code, output = ttc(
        "reproduce", "collapse", "--profile", "paper", "--data", str(tmp_path), "--images", "20", "--device", "cpu",
        "--corruptions", "fog", "--workers", "1",
    )  # fmt: skip
    assert code == 0, output
    found = read_findings(tmp_path / "reproduction" / "paper" / "collapse.json")
    assert found.profile == "paper"
    value = found.tables[0].rows["TENT (batch size = 1)"]["average"]
    assert value.paper is None, "one corruption here, fifteen in the paper"
    assert {cell.protocol["dataset"] for cell in found.cells} == {"cifar10-c"}


def _network() -> torch.nn.Module:
    from ttc.models import MODELS

    torch.manual_seed(0)
    return MODELS["wrn-16-1"](num_classes=10)


def test_a_stop_says_how_to_go_on(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ttc.bench.runner.run", stopped)
    code, output = ttc("reproduce", "collapse", *SUBJECT, "--corruptions", "snow")
    assert code == 130
    assert "stopped: 0 of 5 cells finished and stored in results.sqlite; run the same command again to resume" in output


def test_failed_cells_leave_gaps_and_are_told(there: Path) -> None:
    flags = ["--dataset", "imagefolder:photos", "--model", "small_nets:plain", "--workers", "1", "--images", "6"]
    code, output = ttc(
        "reproduce", "collapse", *flags, "--corruptions", "fog", "--store", "plain.sqlite", "-o", "plain"
    )
    assert code == 1
    assert "4 of 5 cells failed; run the same command again to retry" in output
    assert "undecided" in output
    assert read_findings(there / "plain" / "collapse.json").tables[0].rows["SOURCE"]["fog"].ours is not None


def test_a_store_is_reported_without_studies(there: Path) -> None:
    assert ttc("report", "--studies", "nowhere", "--output", "all")[0] == 0
    found = [study for study in read_folder(there / "all") if "9 images" in study.title]
    assert len(found) == 1
    values = found[0].tables[0].rows["ttc"]
    assert values["average"].ours == pytest.approx(((values["fog"].ours or 0) + (values["snow"].ours or 0)) / 2)
    assert len(values["average"].cells) == 2


REAL = ["--profile", "real", "--data", "photos", "--model", "small_nets:small", "--workers", "1"]


def test_the_real_profile_runs_on_a_folder_and_resumes(there: Path) -> None:
    flags = [*REAL, "--images", "12", "--corruptions", "frost,contrast", "--batch-size", "4"]
    code, output = ttc("reproduce", "imagenetc", *flags, "--methods", "source,norm,TENT,ttc,tent+flip")
    assert code == 0, output
    assert "10 cells; results go to results.sqlite" in output
    assert "note: Textures of the corruption frost: procedural." in output
    folder = there / "reproduction" / "real" / "imagenetc-small"
    found = read_findings(folder / "imagenetc.json")
    assert {cell.protocol["batch_size"] for cell in found.cells} == {4}
    assert {cell.protocol.get("textures") for cell in found.cells} == {"procedural frost", None}
    assert "TENT + flip" in found.tables[0].rows
    assert [claim.text for claim in found.claims if "T3A" in claim.text] == []
    by_name = {table.name: table for table in found.tables}
    odd = by_name["imagenetc-odd-rows"].rows
    assert list(odd) == ["NORM − SOURCE", "NORM − TTC"]
    theirs = [paper.average("imagenetc-resnet50", row, ("frost", "contrast")) or 0.0 for row in ("NORM", "SOURCE")]
    assert odd["NORM − SOURCE"]["points"].paper == pytest.approx(theirs[0] - theirs[1])
    cost = by_name["imagenetc-cost-table"].rows["TTC"]
    assert (cost["forward passes"].ours, cost["backward passes"].ours) == (2, 2)
    assert (cost["peak memory (MB)"].ours or 0) > 0
    code, output = ttc("reproduce", "imagenetc", *flags, "--dry-run")
    assert "22 cells, 12 to run: about" in output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["imagenetc", "--profile", "real"], "class folders: --data FOLDER; a model for them: --model NAME"),
        (["cifar100c", *REAL], "photos has class folders and cifar100c runs on CIFAR-100's test images"),
        (["imagenetc", *REAL, "--methods", "tend"], r"unknown row of imagenetc 'tend' \(did you mean 'tent'\?\)"),
        (["imagenetc", *REAL, "--methods", "ttc"], "are compared with SOURCE: add it to --methods"),
        (["batch-size", *REAL, "--batch-size", "5"], "unknown batch size of batch-size '5'"),
        (["imagenetc", *REAL, "--batch-sizes", "4,8"], "imagenetc has one batch size, got 2: run it once for each"),
        (["imagenetc", *REAL, "--batch-sizes", "few"], "--batch-sizes takes whole numbers from 1"),
        (["imagenetc", *REAL, "--scenarios", "mixed"], "unknown scenario of imagenetc 'mixed'"),
        (["imagenetc", "--profile", "real", "--data", "absent"], "there is no folder absent: with --profile real"),
    ],
)
def test_mistakes_with_the_real_profile_are_one_sentence(there: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence):
        ttc("reproduce", *arguments)


def test_a_folder_of_real_data_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "ten").mkdir()
    (tmp_path / "ten" / "test_batch.bin").write_bytes(b"")
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "test.bin").write_bytes(b"")
    assert real_data(tmp_path / "ten") == ("cifar10c", f"cifar10:{tmp_path / 'ten'}")
    assert real_data(tmp_path / "ten", "resnet50")[0] == "resnet50"
    assert real_data(tmp_path / "cifar-100-binary")[0] == "cifar100c"
    assert real_data(tmp_path, "cifar100c") == ("cifar100c", f"cifar100:{tmp_path}")
    (tmp_path / "photos").mkdir()
    assert real_data(tmp_path / "photos") == ("imagenetc", f"imagefolder:{tmp_path / 'photos'}")


def test_severities_and_few_images_are_studied_on_real_data(there: Path) -> None:
    flags = [*REAL, "--images", "6", "--corruptions", "contrast"]
    code, output = ttc("reproduce", "severity", *flags, "--methods", "source,ttc", "--batch-size", "3")
    assert code == 0, output
    folder = there / "reproduction" / "real" / "imagenetc-small"
    found = read_findings(folder / "severity-imagenetc.json")
    assert sorted({cell.protocol["severity"] for cell in found.cells}) == [0, 1, 2, 3, 4, 5]
    assert [table.name for table in found.tables] == [
        "severity-imagenetc-averages",
        "severity-imagenetc-corruption-error",
    ]
    assert (folder / "figures" / "severity-imagenetc-curves.svg").is_file()
    code, output = ttc("reproduce", "few-images", *flags, "--methods", "source,tent,tent(small_batches=True)")
    assert code == 0, output
    averages, gains = read_findings(folder / "few-images-imagenetc.json").tables
    values = averages.rows["TENT"]
    expected = (values["N = 8, small_batches"].ours or 0) - (values["N = 8, as it is"].ours or 0)
    assert gains.rows["TENT"]["N = 8"].ours == pytest.approx(expected)
