import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.bench.conftest import workload
from ttc.bench import Spec
from ttc.bench.grid import Grid, cells
from ttc.bench.scenarios import Domain
from ttc.core.state import model_digest
from ttc.errors import TTCError

CLEAN = Domain("clean", 0)


def test_data_and_model_are_loaded_once(place: Path) -> None:
    resolved = workload()
    assert resolved.domain(Domain("fog", 5), 6) is resolved.domain(Domain("fog", 5), 6)
    assert resolved.network(3) is resolved.network(3)
    assert resolved.network(3, "float64") is not resolved.network(3)
    assert resolved.model_checksum(3) == model_digest(resolved.network(3))


def test_it_is_pickled_as_names_and_shared_in_a_process(place: Path) -> None:
    resolved = workload()
    resolved.domain(CLEAN, None)
    written = pickle.dumps(resolved)
    assert len(written) < 2000
    copy, again = pickle.loads(written), pickle.loads(written)
    assert copy is again
    assert copy.names == resolved.names
    assert copy.domain(CLEAN, None).checksum == resolved.domain(CLEAN, None).checksum


def test_a_new_workload_sees_new_weights(place: Path) -> None:
    nets = pytest.importorskip("small_nets")
    network = nets.small()
    for _ in range(2):
        torch.save(network.state_dict(), place / "w.pt")
        found = workload(checkpoint=Path("w.pt"))
        assert found.model_checksum(3) == model_digest(network)
        with torch.no_grad():
            network[5].bias += 1


def test_images_are_corrupted_into_the_cache_on_request(place: Path) -> None:
    resolved, fog = workload(), Domain("fog", 5)
    made = resolved.domain(fog, 6)
    assert not resolved.cache.exists()
    cached = resolved.domain(fog, 6, cached=True)
    assert len(list(resolved.cache.iterdir())) == 1
    assert cached.checksum == made.checksum
    np.testing.assert_array_equal(cached.pixels(range(6)), made.pixels(range(6)))
    assert resolved.corrupts


def test_a_subset_of_class_folders_has_every_class(place: Path) -> None:
    images = workload().domain(CLEAN, 6)
    assert np.bincount(images.labels).tolist() == [2, 2, 2]
    whole = workload().domain(CLEAN, None)
    np.testing.assert_array_equal(images.pixels([0, 5]), whole.pixels([0, 30]))
    assert images.name == "photos[6 spread]"
    assert images.checksum != whole.checksum
    assert len(workload(dataset="imagefolder:photos@8").domain(CLEAN, 3).pixels([0])[0]) == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"dataset": "cifar11"},
            r"unknown dataset 'cifar11' \(did you mean 'cifar10'\?\); choose from: embedded, cifar10",
        ),
        ({"dataset": "cifar10"}, "CIFAR-10 .*was not found at .*ttc data fetch cifar10"),
        ({"dataset": "imagefolder:absent"}, "absent"),
        ({"model": "resnet20"}, "the model 'resnet20' comes without weights; give them with --checkpoint FILE"),
        ({"model": "resnet21"}, "unknown model 'resnet21'"),
        (
            {"model": "embedded", "checkpoint": Path("mine.pt")},
            "the embedded model has fixed weights, .*: to set any of them, name an architecture",
        ),
        ({"model": "small_nets:few"}, "photos has 3 class folders, the model has 2 classes"),
    ],
)
def test_invalid_workloads_are_rejected(changes: dict[str, Any], sentence: str, place: Path) -> None:
    with pytest.raises(TTCError, match=sentence):
        cells(Grid((Spec("norm"),), ("fog",)), workload(**changes))


def test_folders_are_the_classes_of_the_model(place: Path) -> None:
    with pytest.raises(TTCError, match="photos has 3 class folders, the model has 10 classes"):
        workload(model="embedded").domain(CLEAN, None)
    for name, number in zip(sorted(path.name for path in (place / "photos").iterdir()), ("2", "7", "3"), strict=True):
        (place / "photos" / name).rename(place / "photos" / number)
    images = workload(model="embedded").domain(CLEAN, None)
    assert images.num_classes == 10
    assert set(images.labels.tolist()) == {2, 3, 7}
