from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import ttc
from tests.bench.conftest import workload
from ttc.bench import Spec, method_specs
from ttc.bench.grid import Grid, cells
from ttc.core import Adapter
from ttc.corruptions import CORRUPTIONS
from ttc.corruptions.frost_textures import FILES
from ttc.errors import TTCError
from ttc.files import checksum


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
    assert (cell.dataset, cell.model, cell.images) == ("imagefolder:photos", "small_nets:small", 6)
    assert (cell.optimizer, cell.dtype, cell.device, cell.threads) == ("Adam(lr=0.001)", "float32", "cpu", 1)
    assert '"bandwidth": 2' in cell.options
    assert '"select_on": "fused"' in cell.options
    assert cell.version == ttc.__version__
    assert len(cell.data_checksum) == len(cell.model_checksum) == 64


def test_axes_are_crossed_and_duplicates_dropped(place: Path) -> None:
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
    (here,), (there,) = (cells(grid, workload(dataset=f"imagefolder:{path}")) for path in ("photos", place / "photos"))
    assert here.hash == there.hash


def test_a_cell_with_frost_states_its_textures(place: Path) -> None:
    def textures(**changes: Any) -> list[str]:
        grid = Grid(methods=(Spec("norm"),), corruptions=("fog", "frost"), images=6)
        return [cell.textures for cell in cells(grid, workload(**changes))]

    assert textures() == ["", "procedural frost"]
    (place / "data" / "frost").mkdir(parents=True)
    for name in FILES:
        Image.new("RGB", (64, 48), (40, 200, 255)).save(place / "data" / "frost" / name)
    (plain, own), given = textures(), textures(frost_dir=Path("data/frost"))
    assert plain == ""
    assert own.startswith("own frost ")
    assert given == ["", own]
    assert textures(frost_dir=Path("procedural")) == ["", "procedural frost"]
    with pytest.raises(TTCError, match=r"the frost folder photos must contain frost1\.png"):
        textures(frost_dir=Path("photos"))
    grid = Grid(methods=(Spec("norm"),), corruptions=("fog", "frost"), images=6, scenarios=(Spec("continual"),))
    assert [cell.textures for cell in cells(grid, workload())] == [own]


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


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        (Grid(methods=()), "the grid has no cells: give at least one method"),
        (Grid(corruptions=()), "the grid has no cells"),
        (Grid(seeds=()), "the grid has no cells"),
        (
            Grid(corruptions=("fogg",)),
            r"unknown corruption 'fogg' \(did you mean 'fog'\?\); choose from: gauss",
        ),
        (Grid(severities=(6,)), "the severity must be 1 to 5, got 6; for uncorrupted images add clean"),
        (Grid(batch_sizes=(0,)), "the batch size must be at least 1, got 0"),
        (Grid(seeds=(-1,)), "the seed must be at least 0, got -1"),
        (Grid(images=0), "the number of images must be at least 1, got 0"),
        (Grid(images=37), "photos has 36 images, 37 requested"),
        (Grid(threads=0), "the number of threads must be at least 1"),
        (Grid(dtype="float16x"), "unknown dtype 'float16x' .*; choose from: float32, float64, bfloat16"),
        (Grid(device="gpu"), "there is no device 'gpu'; choose cpu, cuda or cuda:0"),
        (Grid(methods=(Spec("nrm"),)), "unknown method 'nrm'"),
        (
            Grid(methods=specs("own_methods:wrong")),
            "the builder 'own_methods:wrong' must return a ttc.Adapter",
        ),
        (Grid(methods=specs("ttc(bandwidth=-1)")), "bandwidth is positive, got -1"),
    ],
)
def test_invalid_grids_are_rejected(grid: Grid, sentence: str, place: Path) -> None:
    with pytest.raises(TTCError, match=sentence):
        cells(grid, workload())


def test_the_source_file_of_an_own_builder_is_part_of_the_hash(place: Path) -> None:
    grid = Grid(specs("own_methods:sharp(temperature=2.0)", "norm"), ("clean",), images=4)
    own, norm = cells(grid, workload())
    file = place / "own_methods.py"
    assert (own.method, own.options) == ("own_methods:sharp", '{"temperature": 2.0}')
    assert own.method_checksum == checksum(file)
    assert norm.method_checksum == ""
    file.write_text(file.read_text() + "# changed\n")
    changed, same = cells(grid, workload())
    assert changed.hash != own.hash
    assert same.hash == norm.hash


def test_an_adapter_is_built_once_per_method(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = method_specs.build

    def counted_build(network: nn.Module, method: str, options: str, source: Tensor | None, *, dtype: str) -> Adapter:
        built.append(method)
        return build(network, method, options, source, dtype=dtype)

    monkeypatch.setattr(method_specs, "build", counted_build)
    resolved = workload()
    cells(Grid(specs("norm", "tent"), ("fog", "snow"), images=4, seeds=(0, 1)), resolved)
    cells(Grid(specs("norm", "tent"), ("contrast",), images=4, batch_sizes=(7,)), resolved)
    assert sorted(built) == ["norm", "tent"]
