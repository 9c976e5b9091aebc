"""``ttc demo`` on a few images, for real."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from ttc.bench import Protocol
from ttc.bench.environment import environment
from ttc.cli.app import app
from ttc.errors import TTCError
from ttc.report.libraries import LIBRARIES

FEW = ("gaussian_noise", "fog", "jpeg_compression")


def invoke(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["demo", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


class Demo(NamedTuple):
    """A demo that ran: where its data is, and what it printed."""

    data: Path
    shown: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The comparison on three images of three corruptions, run once, in this process."""
    data = tmp_path_factory.mktemp("demo")
    environment()  # caches the true number of cores
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ttc.bench.environment.cores", lambda: 1)
        patch.setattr("ttc.cli.demo._corruptions", lambda: FEW)
        return Demo(data, invoke("--images", "3", "--data", str(data), *outputs(data)))


@pytest.fixture
def demo(ran: Demo, monkeypatch: pytest.MonkeyPatch) -> Demo:
    """The same; it has the same corruptions when it runs again."""
    monkeypatch.setattr("ttc.cli.demo._corruptions", lambda: FEW)
    return ran


def outputs(folder: Path) -> tuple[str, ...]:
    return "--figure", str(folder / "p.png"), "--json", str(folder / "n.json")


def test_the_comparison_is_printed_drawn_and_written(demo: Demo) -> None:
    data, shown = demo
    for text in (
        "SOURCE",
        "TTC",
        "gaussian noise",
        "JPEG compression",
        "paper's average",
        "TENT took only 0 steps and TTC 0",
        "over TENT + flip",
    ):
        assert text in shown, text
    assert max(map(len, shown.splitlines())) <= 80
    with Image.open(data / "p.png") as figure:
        assert min(figure.size) > 600
    cells = json.loads((data / "n.json").read_text())
    assert len(cells) == 9 * 3
    assert {"norm+flip", "tent+flip"} <= {cell["method"] for cell in cells}
    assert {"hash", "method", "accuracy", "images", "batch_size", "scenario", "data_checksum"} <= set(cells[0])
    again = invoke("--images", "3", "--data", str(data), *outputs(data))  # nothing is run twice
    assert "[1/27]" in shown
    assert "[1/27]" not in again


def test_it_runs_the_methods_and_corruptions_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(wanted: Sequence[Protocol], *_: object) -> None:
        raise TTCError(f"{len(wanted)} cells")

    monkeypatch.setattr("ttc.cli.run_loop.run_cells", stop)
    with pytest.raises(TTCError, match="135 cells"):
        invoke("--images", "3", "--data", str(tmp_path))


@pytest.mark.slow
def test_the_whole_comparison(tmp_path: Path) -> None:
    shown = invoke("--images", "3", "--data", str(tmp_path), *outputs(tmp_path))
    assert "9 methods on 15 corruptions" in " ".join(shown.split())
    assert "82.5" in shown  # the paper's average of TTC
    assert len(json.loads((tmp_path / "n.json").read_text())) == 135


@pytest.mark.parametrize(("count", "message"), [("0", "must be at least 1, got 0"), ("1000000000", "1 to 2000")])
def test_an_impossible_number_of_images_is_rejected(count: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=message):
        invoke("--images", count, "--data", str(tmp_path))


def test_a_data_directory_that_is_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match="is a file: choose a directory"):
        invoke("--images", "3", "--data", str(tmp_path / "file"))


def test_a_figure_of_another_kind_is_rejected_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"a figure is written as \.svg, \.png or \.pdf, got 'p\.bmp'"):
        invoke("--images", "3", "--data", str(tmp_path), "--figure", str(tmp_path / "p.bmp"))
    assert list(tmp_path.iterdir()) == []


def test_without_the_libraries_the_table_is_still_printed(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIBRARIES, "no_such_module", "no-such-library")
    figure = tmp_path / "p.png"
    shown = invoke("--images", "3", "--data", str(demo.data), "--figure", str(figure))
    assert "paper's average" in shown
    assert "no figure: it needs libraries of the report extra that are not installed: pip install 'no-such" in shown
    assert not figure.exists()


def test_the_figure_is_not_committed_by_accident() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text().splitlines()
    (option,) = [option for option in get_command(app).commands["demo"].params if option.name == "figure"]  # type: ignore[attr-defined]
    assert f"/{option.default}" in ignored
