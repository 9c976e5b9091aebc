"""Which frost textures are used, by name and by checksum."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.corruptions.frost_textures import FILES
from ttc.data import ArrayImages, corrupt_images, frost, frost_folder
from ttc.data.frost import describe_frost
from ttc.errors import TTCError
from ttc.files import checksum


@pytest.fixture
def textures(tmp_path: Path) -> Path:
    (tmp_path / "frost").mkdir()
    for index, name in enumerate(FILES):
        Image.new("RGB", (64, 48), (40 * index, 200, 255)).save(tmp_path / "frost" / name)
    return tmp_path / "frost"


def clean() -> ArrayImages:
    pixels = np.random.default_rng(3).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    return ArrayImages("three", pixels, np.arange(3), 3)


def test_the_names_are_those_the_corruption_opens() -> None:
    assert frost.NAMES == FILES


def test_the_folder_counts_once_it_is_complete(textures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert frost_folder(tmp_path) == textures
    assert frost_folder(tmp_path / "elsewhere") is None
    monkeypatch.setenv("TTC_DATA", str(tmp_path))
    assert frost_folder(tmp_path / "elsewhere") == textures
    (textures / "frost4.jpg").unlink()
    with pytest.raises(TTCError, match=r"frost lacks frost4.jpg: run ttc data fetch frost, or delete the folder"):
        frost_folder(tmp_path)
    with pytest.raises(TTCError, match=r"must contain frost1.png, .*missing: frost4.jpg"):
        describe_frost(textures)


def test_datasets_say_which_frost_they_have(textures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    procedural = corrupt_images(clean(), "frost", 5)
    own = corrupt_images(clean(), "frost", 5, frost_dir=textures, cache=tmp_path / "cache")
    own_name, own_checksum = own.name, own.checksum
    monkeypatch.setattr(frost, "_ORIGINAL", tuple(checksum(textures / name) for name in FILES))
    original = corrupt_images(clean(), "frost", 5, frost_dir=textures, cache=tmp_path / "cache")
    assert procedural.name == "three frost 5 (procedural frost)"
    assert own_name.startswith("three frost 5 (own frost ")
    assert original.name == "three frost 5 (original frost)"
    assert len({procedural.checksum, own_checksum, original.checksum}) == 3
    assert sorted(path.name.partition("-5-")[0] for path in (tmp_path / "cache").iterdir()) == [
        "frost-original",
        "frost-own",
    ]
    assert not np.array_equal(procedural.pixels([0]), original.pixels([0]))


def test_other_corruptions_do_not_depend_on_frost(textures: Path) -> None:
    without, with_textures = corrupt_images(clean(), "fog", 5), corrupt_images(clean(), "fog", 5, frost_dir=textures)
    assert (without.name, without.checksum) == (with_textures.name, with_textures.checksum)
