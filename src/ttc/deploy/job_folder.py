"""The results folder of a batch job: how far it is, and the checkpoint from which a later run resumes."""

import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch

from ttc.core import Adapter
from ttc.deploy.guard import Guard
from ttc.errors import TTCError
from ttc.files import atomic, has_files

FORMAT = 2  # of progress.json; version 0.1 wrote none


class Progress(NamedTuple):
    """How far a job is.

    Args:
        done: The number of images that were predicted or skipped.
        sizes: The sizes in bytes of the files that the predictions were written to.
        skipped: Why each unreadable file was skipped, by name.
    """

    done: int
    sizes: Mapping[str, int]
    skipped: Mapping[str, str] = {}


class JobFolder:
    """The folder of one job; files of other jobs in it are never overwritten.

    Args:
        path: The folder; it is created with the first file.
        settings: Everything that decides the results, as JSON values.
        total: The number of images of the job.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], total: int) -> None:
        self.path, self.settings, self.total = path, dict(settings), total
        self.predictions, self.events = path / "predictions.csv", path / "events.jsonl"
        self.adaptation, self.summary = path / "adaptation.safetensors", path / "summary.json"

    def read_progress(self) -> Progress:
        """Read how far an earlier run of the same job got; one that saved no prediction leaves the folder free.

        Raises:
            TTCError: If the folder contains something else.
        """
        path = self.path / "progress.json"
        if not path.exists():
            if has_files(self.path):
                raise TTCError(f"{self.path} contains other files; choose another folder with --out")
            return Progress(0, {})
        saved = json.loads(path.read_text())
        if not saved["done"]:
            return Progress(0, {})
        if saved["job"] != self.settings or saved["total"] != self.total:
            changed = [name for name in self.settings if saved["job"].get(name) != self.settings[name]]
            raise TTCError(
                f"{self.path} contains another run (different: {', '.join(changed) or 'the number of images'}); "
                "choose another folder with --out"
            )
        if saved.get("format") != FORMAT and saved["done"] < self.total:
            raise TTCError(
                f"{self.path} contains an interrupted run of another version of ttc, which cannot be resumed; "
                "choose another folder with --out, or remove it to start again"
            )
        return Progress(int(saved["done"]), saved["sizes"], saved.get("skipped", {}))

    def write_progress(self, progress: Progress) -> None:
        """Record how far the job is."""
        content = {"format": FORMAT, "job": self.settings, "total": self.total, **progress._asdict()}
        with atomic(self.path / "progress.json") as part:
            part.write_text(json.dumps(content, indent=2) + "\n")

    def remove_if_unused(self) -> None:
        """Remove the files of a run that saved no prediction, and the folder if nothing else is in it."""
        progress = self.path / "progress.json"
        if not progress.exists() or json.loads(progress.read_text())["done"]:
            return
        for path in (self.predictions, self.events, *self._checkpoints(), progress):
            path.unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def save_checkpoint(self, predictor: Guard | Adapter, done: int, skipped: Mapping[str, str] | None = None) -> None:
        """Save the state after ``done`` images, then the progress, then remove what that replaces.

        Files are named by ``done``: whenever the process is killed, progress names a complete checkpoint.
        """
        complete = done == self.total
        adaptation, guard = self._checkpoint(done)
        predictor.save(self.adaptation if complete else adaptation)
        if isinstance(predictor, Guard) and not complete:
            with atomic(guard) as part:
                torch.save(predictor.state_dict(), part)
        sizes = {path.name: path.stat().st_size for path in (self.predictions, self.events)}
        self.write_progress(Progress(done, sizes, dict(skipped or {})))
        for path in self._checkpoints():
            if complete or path not in (adaptation, guard):
                path.unlink()

    def load_checkpoint(self, predictor: Guard | Adapter, done: int) -> None:
        """Restore the state after ``done`` images.

        Raises:
            TTCError: If a file of the checkpoint is damaged.
        """
        adaptation, guard = self._checkpoint(done)
        adapter = predictor.adapter if isinstance(predictor, Guard) else predictor
        adapter.load(adaptation)
        if isinstance(predictor, Guard):
            try:
                state = torch.load(guard, map_location="cpu", weights_only=True)
                predictor.load_state_dict(state)
            except (OSError, RuntimeError, UnpicklingError, KeyError, TypeError) as error:
                raise TTCError(f"cannot resume from {guard}; remove {self.path} to start again") from error

    def _checkpoints(self) -> list[Path]:
        return [*self.path.glob("adaptation-*.safetensors"), *self.path.glob("guard-*.pt")]

    def _checkpoint(self, done: int) -> tuple[Path, Path]:
        return self.path / f"adaptation-{done}.safetensors", self.path / f"guard-{done}.pt"
