"""Versions that differ between the driver and the nodes of a real cluster."""

import pytest

import ttc
from tests.ray_cluster import RayCluster
from ttc.bench.node_versions import version_difference, versions
from ttc.bench.ray_executor import RayExecutor
from ttc.errors import TTCError

pytest.importorskip("ray")


def test_other_versions_are_rejected(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ttc.__version__
    monkeypatch.setattr(ttc, "__version__", "0.0.1")  # of the driver; the nodes have the real one
    sentence = f"has ttc {there} and the driver 0.0.1; install the same version on both"
    with pytest.raises(TTCError, match=sentence), RayExecutor(1, ray_cluster.address):
        pass


def test_equal_versions_do_not_differ() -> None:
    assert version_difference(versions(), versions()) == ""
