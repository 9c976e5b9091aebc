import hashlib
import io
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.data.conftest import Server
from ttc.data import fetching
from ttc.data.catalogue import GROUPS, SOURCES, DataFile, Source
from ttc.data.fetching import fetch, resolve_names, source_status
from ttc.errors import TTCError

FILES = {"small/a.bin": b"a" * 5000, "small/b.bin": b"b" * 300}


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def sources(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A small dataset and a small checkpoint without a checksum, served from this machine."""
    archive = tarred(FILES)
    server.content = {"small.tar.gz": archive, "w.pt": b"weights" * 100}
    parts = tuple(DataFile(name, len(content), md5(content)) for name, content in FILES.items())
    url = server.url("good", "small.tar.gz")
    dataset = Source("Small", "small.tar.gz", (url,), len(archive), md5(archive), ".", parts)
    path = "checkpoints/w.pt"
    weights = Source("Weights", path, (server.url("good", "w.pt"),), parts=(DataFile(path, 700),))
    monkeypatch.setitem(SOURCES, "small", dataset)
    monkeypatch.setitem(SOURCES, "weights", weights)
    return server


def test_a_dataset_is_fetched_checked_and_tidied(sources: Server, tmp_path: Path) -> None:
    root, steps = tmp_path / "data", list[str]()
    assert source_status("small", root).status == "missing"
    assert fetch("small", root, lambda what, done, total: steps.append(what)).status == "present"
    assert {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()} == FILES
    assert list(dict.fromkeys(what.split()[0] for what in steps)) == ["download", "unpack", "check"]
    assert source_status("small", root) == ("present", "not verified")
    assert source_status("small", root, thorough=True) == ("present", "verified")
    asked = len(sources.requests)
    fetch("small", root)
    assert len(sources.requests) == asked  # nothing to do


def test_the_archive_may_be_kept_and_is_used_offline(sources: Server, tmp_path: Path) -> None:
    fetch("small", tmp_path, keep_archive=True)
    assert (tmp_path / "small.tar.gz").exists()
    shutil.rmtree(tmp_path / "small")
    asked = len(sources.requests)
    fetch("small", tmp_path)
    assert len(sources.requests) == asked
    assert source_status("small", tmp_path, thorough=True).status == "present"


def test_a_damaged_archive_by_hand_is_replaced(sources: Server, tmp_path: Path) -> None:
    (tmp_path / "small.tar.gz").write_bytes(b"broken")
    assert fetch("small", tmp_path).status == "present"


def test_damage_is_found_and_repaired(sources: Server, tmp_path: Path) -> None:
    fetch("small", tmp_path)
    path = tmp_path / "small" / "a.bin"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    assert source_status("small", tmp_path).status == "present"  # a glance does not read
    assert source_status("small", tmp_path, thorough=True).detail.startswith(
        "small/a.bin does not match its checksum md5:"
    )
    path.write_bytes(b"a")
    assert source_status("small", tmp_path) == ("damaged", "small/a.bin has 1 bytes instead of 5000")
    path.unlink()
    assert source_status("small", tmp_path) == ("damaged", "1 of 2 files are missing, such as small/a.bin")
    assert fetch("small", tmp_path).status == "present"


def test_an_archive_with_the_wrong_content_is_rejected(
    sources: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tarred({"small/a.bin": FILES["small/a.bin"]})
    sources.content["small.tar.gz"] = archive
    good = SOURCES["small"]
    changed = Source("Small", good.file, good.urls, len(archive), md5(archive), ".", good.parts)
    monkeypatch.setitem(SOURCES, "small", changed)
    with pytest.raises(
        TTCError, match=r"downloaded but is incomplete: 1 of 2 files are missing, .*the archive is still at"
    ):
        fetch("small", tmp_path)


def test_without_a_published_checksum_the_first_one_counts(sources: Server, tmp_path: Path) -> None:
    assert fetch("weights", tmp_path) == ("present", "verified")
    note = tmp_path / "checkpoints" / "w.pt.sha256"
    assert note.read_text() == f"{hashlib.sha256(sources.content['w.pt']).hexdigest()}  w.pt\n"
    path = tmp_path / "checkpoints" / "w.pt"
    path.write_bytes(b"W" + path.read_bytes()[1:])
    assert "does not match its checksum sha256:" in source_status("weights", tmp_path, thorough=True).detail
    assert fetch("weights", tmp_path).status == "present"  # the same file comes again
    path.unlink()
    sources.content["w.pt"] = b"changed" * 100
    with pytest.raises(TTCError, match="its checksum is not sha256:"):
        fetch("weights", tmp_path)


def test_a_file_brought_by_hand_is_recorded(sources: Server, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "w.pt"
    path.parent.mkdir()
    path.write_bytes(b"by hand" * 100)
    assert source_status("weights", tmp_path).detail == "not verified; no checksum to compare"
    fetch("weights", tmp_path)
    assert path.with_name("w.pt.sha256").exists()
    assert sources.requests == []


def test_no_room(sources: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]
    with pytest.raises(TTCError, match=r"Small needs 0.0 GB at .*, 0.0 GB are free: free some space"):
        fetch("small", tmp_path)


def test_what_cannot_be_fetched_says_why(tmp_path: Path) -> None:
    with pytest.raises(
        TTCError, match=r"ImageNet validation set cannot be downloaded automatically: .*imagenet/val/<wnid>"
    ):
        fetch("imagenet", tmp_path)


def test_imagenet_folders_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PER_FOLDER", 2)
    for folder in SOURCES["imagenet-c-noise"].folders:
        (tmp_path / folder / "n1").mkdir(parents=True)
        for name in ("a.JPEG", "b.JPEG", "notes.txt"):
            (tmp_path / folder / "n1" / name).touch()
    assert source_status("imagenet-c-noise", tmp_path, thorough=True).status == "present"
    (tmp_path / "ImageNet-C" / "shot_noise" / "3" / "n1" / "a.JPEG").unlink()
    assert source_status("imagenet-c-noise", tmp_path).status == "present"
    found = source_status("imagenet-c-noise", tmp_path, thorough=True)
    assert found == ("damaged", "ImageNet-C/shot_noise/3 has 1 images instead of 2")


def test_names() -> None:
    assert resolve_names("cifar10") == ("cifar10",)
    assert resolve_names("imagenet-c") == GROUPS["imagenet-c"]
    with pytest.raises(
        TTCError, match=r"unknown dataset or checkpoint 'cifar-10' \(did you mean 'cifar10'\?\); choose from: cifar10, "
    ):
        resolve_names("cifar-10")


def test_test_images_alone_are_complete(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    with (folder / "test.bin").open("wb") as file:
        file.truncate(30_740_000)
    status, detail = source_status("cifar100", tmp_path)
    assert (status, detail) == ("present", "not verified; test images only, training needs the whole dataset")
    assert "accepted as your own copy" in source_status("cifar100", tmp_path, thorough=True).detail
    (folder / "test.bin").rename(folder / "train.bin")
    assert source_status("cifar100", tmp_path).status == "damaged"


def test_a_reordered_copy_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = DataFile("mine/test.bin", 8, "md5:00000000000000000000000000000000", record=4)
    monkeypatch.setitem(SOURCES, "mine", Source("Mine", "mine.tar", (), None, None, ".", (part,)))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test.bin").write_bytes(b"badcfehg")
    status, detail = source_status("mine", tmp_path, thorough=True)
    assert status == "present"
    assert detail.startswith("mine/test.bin not the official file but complete: accepted as your own copy")
    assert fetch("mine", tmp_path).status == "present"  # nothing is downloaded over it
    (tmp_path / "mine" / "test.bin").write_bytes(b"badcfe")
    assert source_status("mine", tmp_path, thorough=True).status == "damaged"
