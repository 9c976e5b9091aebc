"""Real runs of real studies on a few images, and measurements made to order."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.bench.conftest import made_place, protocol
from ttc.bench import Protocol, Row
from ttc.cli.app import app
from ttc.studies.measurements import Measurements, Plan
from ttc.studies.profiles import Setup, setup
from ttc.studies.study import Study

SUBJECT = ["--dataset", "imagefolder:photos", "--model", "small_nets:small", "--workers", "1", "--images", "12"]


def ttc(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which some studies were reproduced, with their store and their report."""
    place = tmp_path_factory.mktemp("studies")
    made_place(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        patch.setenv("TTC_DATA", str(place / "data"))
        patch.chdir(place)
        for name, corruptions in (
            ("cifar10c", "fog,contrast"),
            ("augmentations,density", "contrast"),
            ("collapse", "contrast"),
            ("probabilities", "contrast"),
        ):
            code, output = ttc("reproduce", name, *SUBJECT, "--corruptions", corruptions)
            assert code == 0, output
            (place / f"{name}.txt").write_text(output)
        flags = ["--dataset", "imagefolder:photos", "--model", "small_nets:small", "--workers", "1", "--images", "9"]
        assert ttc("run", *flags, "--methods", "norm,ttc", "--corruptions", "fog,snow")[0] == 0
        code, output = ttc("report")
        assert code == 0, output
        (place / "report.txt").write_text(output)
    return place


@pytest.fixture
def there(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same directory, as the current one."""
    monkeypatch.syspath_prepend(str(finished))
    monkeypatch.setenv("TTC_DATA", str(finished / "data"))
    monkeypatch.chdir(finished)
    return finished


def made_setup(comparable: bool = False) -> Setup:
    found = setup("embedded", "cifar10c")
    return Setup("paper", found.workload, "cpu", True, "t", found.column, ()) if comparable else found


def measured(
    study: Study, fractions: Mapping[str, Mapping[str, float]], images: int = 400, comparable: bool = False
) -> Measurements:
    """Measurements to order: ``{entry: {corruption: accuracy}}``, right on the first images of each."""
    names = tuple(dict.fromkeys(corruption for row in fractions.values() for corruption in row))
    cells: dict[tuple[str, str], tuple[Protocol, ...]] = {}
    rows = []
    for entry, row in fractions.items():
        for corruption, fraction in row.items():
            cell = protocol(corruptions=(corruption,), images=images, model=entry)
            cells[entry, corruption] = (cell,)
            correct = np.arange(images) < round(fraction * images)
            rows.append(
                Row(
                    cell,
                    "finished",
                    {"accuracy": fraction, "nll": 1.0, "ece": 0.1},
                    {"median_ms": 5.0},
                    (),
                    None,
                    json.loads("{}"),
                    1.0,
                    "now",
                    np.zeros((4, 6), np.float32),
                    np.zeros(images, np.uint16),
                    correct,
                )
            )
    return Measurements(Plan(study, made_setup(comparable), names, cells), rows)
