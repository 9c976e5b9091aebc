"""The manifest decides whether a folder may be filled, resumed or must be left alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ttc.corruptions.frost_textures import FILES
from ttc.corruptions.manifest import MANIFEST_NAME, CorruptionSettings, check_separate, frost_record, open_manifest
from ttc.errors import TTCError
from ttc.files import checksum

SETTINGS = CorruptionSettings("cifar-c", 0, "cifar", [1, 5], "procedural", "ab" * 32)


def test_a_new_folder_gets_a_manifest_that_is_read_back(tmp_path: Path) -> None:
    manifest = open_manifest(tmp_path / "out", SETTINGS)
    manifest.checksums["fog.npy"] = "cd" * 32
    manifest.unreadable["a.png"] = "truncated"
    manifest.save(tmp_path / "out")
    assert open_manifest(tmp_path / "out", SETTINGS) == manifest
    assert set(json.loads((tmp_path / "out" / MANIFEST_NAME).read_text())["libraries"]) == {"numpy", "pillow", "torch"}


def test_long_values_are_shortened_in_the_message(tmp_path: Path) -> None:
    open_manifest(tmp_path, SETTINGS)
    with pytest.raises(TTCError, match=rf"started with source {'ab' * 28}a\.\.\., got {'cd' * 28}c\.\.\.: "):
        open_manifest(tmp_path, replace(SETTINGS, source="cd" * 32))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": {"seed": 0}, "checksums": {}, "unreadable": {}}'])
def test_another_json_file_is_not_a_manifest(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(TTCError, match="is not a manifest of `ttc corrupt`"):
        open_manifest(tmp_path, SETTINGS)
    assert (tmp_path / MANIFEST_NAME).read_text() == content


def test_the_frost_record_changes_with_the_images(tmp_path: Path) -> None:
    assert frost_record(None) == "procedural"
    for name in FILES:
        (tmp_path / name).write_text(name)
    before = frost_record(tmp_path)
    assert f"{FILES[0]}:{checksum(tmp_path / FILES[0])[:16]}" in before
    (tmp_path / FILES[2]).write_text("another")
    assert frost_record(tmp_path) != before


def test_a_folder_beside_the_source_is_separate(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    check_separate(tmp_path / "source", tmp_path / "source-c")
    with pytest.raises(TTCError, match="is inside the source"):
        check_separate(tmp_path / "source", tmp_path / "source-c" / ".." / "source")
