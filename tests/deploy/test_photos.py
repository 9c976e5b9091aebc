"""Photographs of any size, mode and orientation."""

from pathlib import Path

import pytest
from PIL import Image

import ttc
from ttc.data.decoding import Fitting
from ttc.deploy.photos import PhotoImages


def test_sizes_are_read_from_headers(tmp_path: Path) -> None:
    for i in range(6):
        Image.new("RGB", (10 + i, 20)).save(tmp_path / f"{i}.png")
    (tmp_path / "6.png").touch()
    images = PhotoImages("photos", tmp_path, sorted(tmp_path.iterdir()))
    assert images.sizes(most=None) == [(10 + i, 20) for i in range(6)]
    assert images.sizes(most=3) == [(10, 20), (12, 20), (14, 20)]
    assert images.labels.tolist() == [0] * 7
    assert images.fitted(Fitting.to(5)).pixels([0, 3]).shape == (2, 5, 5, 3)
    with pytest.raises(ttc.TTCError, match="no checksum"):
        _ = images.checksum
