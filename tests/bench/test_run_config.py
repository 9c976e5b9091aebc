from pathlib import Path

import pytest

from ttc.bench import Spec
from ttc.bench.environment import cores
from ttc.bench.grid import Grid
from ttc.bench.run_config import load_config
from ttc.bench.workload import Workload
from ttc.errors import TTCError

TOML = """
methods = ["norm", "ttc(bandwidth=2)", {name = "ttc", bandwidth = 2, ss = false}]
corruptions = ["fog", "noise"]
severities = [3, 5]
images = 200
batch_sizes = [1, 100]
seeds = [0, 1]
scenarios = ["continual", {name = "label-shift", alpha = 0.5}]
dataset = "cifar10"
model = "resnet20"
checkpoint = "weights.pt"
data = "here"
store = "all.sqlite"
workers = 3
threads = 2
dtype = "float64"
device = "cpu"
"""


def test_every_setting_can_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(TOML)
    found = load_config(tmp_path / "grid.toml", {})
    assert found.grid == Grid(
        methods=(Spec("norm"), Spec.read("ttc(bandwidth=2)"), Spec.read("ttc(bandwidth=2, ss=False)")),
        corruptions=("fog", "noise"),
        severities=(3, 5),
        images=200,
        batch_sizes=(1, 100),
        seeds=(0, 1),
        scenarios=(Spec("continual"), Spec.read("label-shift(alpha=0.5)")),
        dtype="float64",
        threads=2,
    )
    assert found.workload == Workload("cifar10", "resnet20", Path("weights.pt"), Path("here"))
    assert (found.store, found.workers) == (Path("all.sqlite"), 3)


def test_flags_take_precedence(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(TOML)
    flags = {
        "methods": "tent, ttc(bandwidth=2, ss=False)",
        "seeds": "4,5",
        "images": 7,
        "store": Path("b"),
        "model": None,
    }
    found = load_config(tmp_path / "grid.toml", flags)
    assert found.grid.methods == (Spec("tent"), Spec.read("ttc(ss=False, bandwidth=2)"))
    assert (found.grid.seeds, found.grid.images, found.store) == ((4, 5), 7, Path("b"))
    assert found.workload.model == "resnet20"


def test_the_defaults() -> None:
    found = load_config(None, {"images": None})
    assert (found.grid, found.workload, found.store) == (Grid(), Workload(), Path("results.sqlite"))
    assert found.workers == cores() >= 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "batch_size = 3",
            r"unknown setting 'batch_size' \(did you mean 'batch_sizes'\?\); choose from: methods,",
        ),
        ("images = 'many'", "images must be a whole number, got 'many'"),
        ("images = true", "images must be a whole number, got True"),
        ("seeds = [0, 1.5]", "seeds must be a whole number, got 1.5"),
        ("corruptions = [1]", "corruptions must be a string, got 1"),
        ("methods = [{bandwidth = 2}]", "methods must be strings such as 'ttc\\(bandwidth=2\\)' or tables with a name"),
        ("methods = [{name = 'ttc', x = 2020-01-01}]", "the option x of 'ttc' must be a number, a string"),
        ("images = ", "grid.toml is not valid TOML"),
    ],
)
def test_invalid_files_are_rejected(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(TTCError, match=sentence):
        load_config(tmp_path / "grid.toml", {})


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"cannot read the configuration .*absent.toml: No such file"):
        load_config(tmp_path / "absent.toml", {})
