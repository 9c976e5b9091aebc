"""Saved streams: complete after a kill, and of one server."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc import Guard, TTCError
from ttc.serve.stream_folder import SavedStream, StateFolder, StreamFolder

IDENTITY = {"model": "embedded", "method": "ttc"}


def guarded(model: nn.Module) -> Guard:
    return Guard(ttc.adapt(model, "tent", small_batches=True))


def test_a_stream_resumes_with_its_guard(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    guard, folder = guarded(model), StreamFolder(tmp_path / "a")
    assert folder.restore(guard) == SavedStream()
    guard(stream[0])
    saved = SavedStream(24, ({"images": 24, "mode": "adapting"},), 20)
    folder.save(guard, saved)
    resumed = guarded(model)
    assert folder.restore(resumed) == saved
    assert torch.equal(resumed(stream[1]), guard(stream[1]))
    assert resumed.stats == guard.stats


def test_what_a_kill_leaves_is_the_last_complete_save(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    guard, folder = guarded(model), StreamFolder(tmp_path / "a")
    guard(stream[0])
    folder.save(guard, SavedStream(24))
    (tmp_path / "a" / "adaptation-48.safetensors").write_bytes(b"half")  # killed while saving the next one
    assert folder.restore(guarded(model)).images == 24
    folder.save(guard, SavedStream(72))
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {"stream.json", "adaptation-72.safetensors", "guard-72.pt"}


@pytest.mark.parametrize("name", ["stream.json", "guard-24.pt", "adaptation-24.safetensors"])
def test_a_damaged_file_is_an_error(name: str, model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    guard, folder = guarded(model), StreamFolder(tmp_path / "a")
    guard(stream[0])
    folder.save(guard, SavedStream(24))
    (tmp_path / "a" / name).write_bytes(b"{}")
    with pytest.raises(TTCError):
        folder.restore(guarded(model))


def test_an_adapter_without_a_guard_is_saved_too(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    adapter, folder = ttc.adapt(model, "tent"), StreamFolder(tmp_path / "a")
    adapter(stream[0])
    folder.save(adapter, SavedStream(24))
    resumed = ttc.adapt(model, "tent")
    assert folder.restore(resumed).images == 24
    assert torch.equal(resumed(stream[1]), adapter(stream[1]))


def test_a_folder_belongs_to_one_model_and_method(tmp_path: Path) -> None:
    StateFolder(tmp_path, IDENTITY).close()
    StateFolder(tmp_path, IDENTITY).close()
    with pytest.raises(TTCError, match=r"streams of another server \(different: method\); choose another with --state"):
        StateFolder(tmp_path, {**IDENTITY, "method": "tent"})
    (tmp_path / "server.json").write_text(json.dumps([]))
    with pytest.raises(TTCError, match="damaged"):
        StateFolder(tmp_path, IDENTITY)


def test_two_servers_never_use_one_folder(tmp_path: Path) -> None:
    first = StateFolder(tmp_path, IDENTITY)
    with pytest.raises(TTCError, match="another server uses the folder"):
        StateFolder(tmp_path, IDENTITY)
    first.close()
    StateFolder(tmp_path, IDENTITY).close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match="cannot write to the folder"):
        StateFolder(tmp_path / "file", IDENTITY)
