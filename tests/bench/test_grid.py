from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ttc
from tests.bench.conftest import workload
from ttc.bench import Spec
from ttc.bench.grid import Grid, cells
from ttc.corruptions import CORRUPTIONS
from ttc.errors import TTCError


def specs(*texts: str) -> tuple[Spec, ...]:
    return tuple(map(Spec.read, texts))


def test_the_default_grid_is_the_papers_table(place: Path) -> None:
    found = cells(Grid(images=4), workload())
    assert len(found) == 7 * 15 == len({cell.hash for cell in found})
    assert {cell.method for cell in found} == {"source", "norm", "t3a", "tent", "eta", "tipi", "ttc"}
    assert {cell.corruptions for cell in found} == {(name,) for name in CORRUPTIONS}
    assert {(cell.severity, cell.batch_size, cell.seed, cell.scenario) for cell in found} == {(5, 100, 0, "per-domain")}


def test_a_cell_states_everything(place: Path) -> None:
    (cell,) = cells(Grid(specs("ttc(bandwidth=2)"), ("fog",), (3,), 6), workload())
    assert (cell.dataset, cell.model, cell.images) == ("folder:pictures", "small_nets:small", 6)
    assert (cell.optimizer, cell.dtype, cell.device, cell.threads) == ("Adam(lr=0.001)", "float32", "cpu", 1)
    assert '"bandwidth": 2' in cell.options
    assert '"select_on": "fused"' in cell.options
    assert cell.version == ttc.__version__
    assert len(cell.data_checksum) == len(cell.model_checksum) == 64


def test_axes_are_crossed_and_repetitions_dropped(place: Path) -> None:
    grid = Grid(specs("norm", "tent", "norm"), ("fog", "noise", "fog"), (1, 5), 4, (2, 3), (0, 1, 2), specs("episodic"))
    assert len(cells(grid, workload())) == 2 * 4 * 2 * 2 * 3


def test_a_sequence_is_one_cell(place: Path) -> None:
    grid = Grid(specs("norm"), ("fog", "contrast", "clean"), (5,), 4, scenarios=specs("continual", "mixed", "gradual"))
    found = cells(grid, workload())
    assert [cell.corruptions for cell in found] == [("fog", "contrast", "clean")] * 3
    assert len({cell.data_checksum for cell in found}) == 2  # gradual meets more domains


def test_clean_images_have_severity_zero_once(place: Path) -> None:
    found = cells(Grid(specs("norm"), ("clean", "fog"), (1, 5), 4), workload())
    assert [(cell.corruptions[0], cell.severity) for cell in found] == [("clean", 0), ("fog", 1), ("fog", 5)]


def test_the_hash_does_not_depend_on_where_the_files_are(place: Path) -> None:
    grid = Grid(specs("norm"), ("fog",), images=4)
    (here,), (there,) = (cells(grid, workload(dataset=f"folder:{path}")) for path in ("pictures", place / "pictures"))
    assert here.hash == there.hash


def test_changed_weights_change_the_hash(place: Path) -> None:
    grid = Grid(specs("norm"), ("clean",), images=4)
    (before,) = cells(grid, workload())
    import small_nets  # type: ignore[import-not-found]

    changed = small_nets.small()
    with torch.no_grad():
        changed[5].bias += 1e-6
    torch.save(changed.state_dict(), place / "changed.pt")
    (after,) = cells(grid, workload(checkpoint=Path("changed.pt")))
    assert before.model_checksum != after.model_checksum


def test_a_part_of_a_sorted_set_has_every_class(place: Path) -> None:
    images = workload().domain("clean", 0, 6)
    assert np.bincount(images.labels).tolist() == [2, 2, 2]
    whole = workload().domain("clean", 0, None)
    np.testing.assert_array_equal(images.pixels([0, 5]), whole.pixels([0, 30]))
    assert images.name == "pictures[6 spread]"
    assert images.checksum != whole.checksum
    assert len(workload(dataset="folder:pictures@8").domain("clean", 0, 3).pixels([0])[0]) == 8


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        (Grid(methods=()), "the grid has no cells: give at least one method"),
        (Grid(corruptions=()), "the grid has no cells"),
        (Grid(seeds=()), "the grid has no cells"),
        (Grid(corruptions=("fogg",)), r"there is no corruption 'fogg' \(did you mean 'fog'\?\); choose gaussian_noise"),
        (Grid(severities=(6,)), "the severity must be 1 to 5, got 6; for uncorrupted images add clean"),
        (Grid(batch_sizes=(0,)), "the batch size must be at least 1, got 0"),
        (Grid(seeds=(-1,)), "the seed must be at least 0, got -1"),
        (Grid(images=0), "the number of images must be at least 1, got 0"),
        (Grid(images=37), "pictures has 36 images, 37 were asked for"),
        (Grid(threads=0), "the number of threads must be at least 1"),
        (Grid(dtype="float16x"), "dtype must be one of float32, float64, bfloat16, got 'float16x'"),
        (Grid(device="gpu"), "there is no device 'gpu'; choose cpu, cuda or cuda:0"),
        (Grid(methods=(Spec("nrm"),)), "there is no method 'nrm'"),
        (Grid(methods=specs("ttc(bandwidth=-1)")), "bandwidth is positive, got -1"),
    ],
)
def test_wrong_grids_are_refused(grid: Grid, sentence: str, place: Path) -> None:
    with pytest.raises(TTCError, match=sentence):
        cells(grid, workload())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"dataset": "cifar11"},
            r"there is no data set 'cifar11' \(did you mean 'cifar10'\?\); choose embedded, cifar10",
        ),
        ({"dataset": "cifar10"}, "CIFAR-10 .*is not at .*ttc data fetch cifar10"),
        ({"dataset": "folder:absent"}, "absent"),
        ({"model": "resnet20"}, "the model 'resnet20' comes without weights; give them with --checkpoint FILE"),
        ({"model": "resnet21"}, "unknown model 'resnet21'"),
        (
            {"model": "embedded", "checkpoint": Path("mine.pt")},
            "comes with its weights .* name the architecture they belong",
        ),
        ({"model": "small_nets:few"}, "tells 2 classes apart and folder:pictures has 3; choose a --model"),
    ],
)
def test_wrong_subjects_are_refused(changes: dict[str, Any], sentence: str, place: Path) -> None:
    with pytest.raises(TTCError, match=sentence):
        cells(Grid(specs("norm"), ("fog",)), workload(**changes))
