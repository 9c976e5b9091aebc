"""What a server saves: one folder per stream, from which it resumes as if it had never stopped."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch

from ttc.core import Adapter
from ttc.deploy import Guard
from ttc.errors import TTCError
from ttc.files import atomic

FORMAT = 1


class SavedStream(NamedTuple):
    """What is saved of a stream besides its adapter and guard.

    Args:
        images: Images predicted so far.
        history: Points of its history, oldest first.
        interval: Images between two points.
    """

    images: int = 0
    history: tuple[dict[str, Any], ...] = ()
    interval: int = 0


class StreamFolder:
    """The folder of one stream.

    Args:
        path: The folder; it is created with the first save.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, predictor: Guard | Adapter, saved: SavedStream) -> None:
        """Save the adaptation, the guard's state and the history.

        Files are named by the number of images: whenever the process is killed, ``stream.json`` names complete ones.

        Raises:
            Exception: If the folder cannot be written; what was saved before is then still complete.
        """
        adaptation, guard = self._files(saved.images)
        predictor.save(adaptation)
        if isinstance(predictor, Guard):
            with atomic(guard) as part:
                torch.save(predictor.state_dict(), part)
        with atomic(self.path / "stream.json") as part:
            part.write_text(json.dumps({"format": FORMAT, **saved._asdict()}) + "\n", encoding="utf-8")
        for path in (*self.path.glob("adaptation-*.safetensors"), *self.path.glob("guard-*.pt")):
            if path not in (adaptation, guard):
                path.unlink(missing_ok=True)

    def restore(self, predictor: Guard | Adapter) -> SavedStream:
        """Restore what was saved, if anything was.

        Raises:
            TTCError: If the files are damaged, or of another model or method; nothing is changed or deleted.
        """
        index = self.path / "stream.json"
        if not index.exists():
            return SavedStream()
        try:
            content = json.loads(index.read_text(encoding="utf-8"))
            saved = SavedStream(int(content["images"]), tuple(content["history"]), int(content["interval"]))
            adaptation, guard = self._files(saved.images)
            if isinstance(predictor, Guard):
                predictor.adapter.load(adaptation)
                predictor.load_state_dict(torch.load(guard, map_location="cpu", weights_only=True))
            else:
                predictor.load(adaptation)
        except TTCError:
            raise
        except (OSError, ValueError, RuntimeError, UnpicklingError, KeyError, TypeError) as error:
            raise TTCError(
                f"the saved stream in {self.path} is damaged ({type(error).__name__}): move it away"
            ) from error
        return saved

    def _files(self, images: int) -> tuple[Path, Path]:
        return self.path / f"adaptation-{images}.safetensors", self.path / f"guard-{images}.pt"


class StateFolder:
    """The folder of all streams of a server; it belongs to one model and method, and to one process at a time.

    Args:
        path: The folder; it is created.
        identity: What the streams in it are of.

    Raises:
        TTCError: If it cannot be written, belongs to another model or method, or another server uses it.
    """

    def __init__(self, path: Path, identity: Mapping[str, object]) -> None:
        self.path = path
        try:
            (path / "streams").mkdir(parents=True, exist_ok=True)
            self._lock = _lock(path / "lock")
            self._check_identity(dict(identity))
        except OSError as error:
            raise TTCError(f"cannot write to the folder {path}: {error.strerror or error}") from error
        self.known = {entry.name for entry in (path / "streams").iterdir()}

    def stream(self, name: str) -> StreamFolder:
        """Return the folder of a stream, whose name has been checked."""
        return StreamFolder(self.path / "streams" / name)

    def close(self) -> None:
        """Let another server use the folder."""
        self._lock.close()

    def _check_identity(self, identity: dict[str, object]) -> None:
        file = self.path / "server.json"
        if not file.exists():
            with atomic(file) as part:
                part.write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")
            return
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            changed = [name for name in identity if saved.get(name) != identity[name]]
        except (ValueError, AttributeError):
            changed = ["server.json is damaged"]
        if changed:
            self.close()
            raise TTCError(
                f"the folder {self.path} contains the streams of another server (different: {', '.join(changed)}); "
                "choose another with --state"
            )


def _lock(path: Path) -> Any:
    """Open a file that only one process has open; the lock ends with the process, however it ends."""
    file = path.open("w")
    with suppress(ImportError):  # only on POSIX systems
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise TTCError(f"another server uses the folder {path.parent}: choose another with --state") from error
    return file
