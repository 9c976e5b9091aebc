import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bench.conftest import domain, workload
from tests.ray_cluster import STORE, RayCluster
from ttc.bench import Spec, Store
from ttc.bench.grid import Grid, cells
from ttc.bench.ray_executor import RayExecutor, _import_modules
from ttc.bench.runner import run
from ttc.bench.shipped_workload import CHUNK, StoredImages, module_sources
from ttc.bench.workload import Workload
from ttc.data import subset
from ttc.errors import TTCError


def test_stored_images_are_those_of_the_dataset() -> None:
    images = subset(domain(CHUNK + 30), CHUNK + 20)
    stored = StoredImages.of(images)
    assert (stored.name, stored.num_classes, stored.checksum) == (images.name, images.num_classes, images.checksum)
    assert len(stored) == CHUNK + 20
    np.testing.assert_array_equal(stored.labels, images.labels)
    index = [CHUNK + 19, 0, CHUNK]
    np.testing.assert_array_equal(stored.pixels(index), images.pixels(index))
    with pytest.raises(IndexError):
        stored.pixels([CHUNK + 20])


def test_own_modules_are_sent_and_others_are_not(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells(Grid((Spec("own_methods:sharp"),), ("clean",), images=12), workload())  # imports both modules
    names = ["small_nets:small", "own_methods:sharp", "timm:resnet18", "ttc", "os.path:join"]
    found = module_sources(names)
    assert found == {name: (place / f"{name}.py").read_text() for name in ("own_methods", "small_nets")}
    monkeypatch.setattr(sys, "path", [*sys.path])
    _import_modules((("module_of_a_driver", "VALUE = 3\n"), ("own_methods", "")))
    assert importlib.import_module("module_of_a_driver").VALUE == 3
    assert not Path(sys.path[-1], "own_methods.py").exists()  # it is importable here


def test_images_that_do_not_fit_are_rejected_before_anything_is_shipped(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    resolved = Workload(root=tmp_path).resolve()
    grid = Grid((Spec("norm"),), ("gaussian_noise", "shot_noise"), scenarios=(Spec("gradual"),))
    wanted = cells(grid, resolved)
    assert STORE < 18 * 2000 * 32 * 32 * 3
    sentence = r"the images of one cell take 0\.1 GB and the object store of a node has 0\.1 GB; start Ray with"
    with Store(tmp_path / "a.sqlite") as store, pytest.raises(TTCError, match=sentence):
        next(run(wanted, resolved, store, executor=RayExecutor(1, ray_cluster.address)))
