"""The work of ``ttc adapt``: images in, predictions out, with a checkpoint to go on from."""

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

import ttc
from ttc.core import Adapter
from ttc.core.state import State
from ttc.data import ArrayImages, Images, as_tensor, image_folder
from ttc.data.folders import SUFFIXES, FolderImages
from ttc.deploy import Guard
from ttc.errors import TTCError
from ttc.files import atomic

CHECKPOINT_SECONDS = 20.0  # between checkpoints: what an interruption may cost
PROGRESS, ADAPTATION, EVENTS, SUMMARY = "progress.json", "adaptation.safetensors", "events.jsonl", "summary.json"


def checkpoint(folder: Path, done: int) -> tuple[Path, Path]:
    """The adaptation and what the guard remembers after ``done`` images, while there are more to come.

    Progress names them by that number: a kill at any moment leaves the pair that belongs to it.
    """
    return folder / f"adaptation-{done}.safetensors", folder / f"guard-{done}.pt"


class Pictures(NamedTuple):
    """What is to be answered: the images, a name for each, the names of the classes, and whether labels are known."""

    images: Images
    names: Sequence[str]
    classes: Sequence[str] | None
    labelled: bool


def pictures(path: Path, size: int | None, severity: int) -> Pictures:
    """The pictures at ``path``: class folders (labelled), a folder of pictures, or an array file of CIFAR-C."""
    if path.suffix == ".npy":
        return _array(path, severity)
    if not path.is_dir():
        raise TTCError(f"expected a folder of pictures or a .npy file of CIFAR-C, there is no {path}")
    loose = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    if loose:
        labels = np.zeros(len(loose), np.int64)
        found = FolderImages(path.name, path, loose, labels, ("unknown",), size)
    else:
        found = image_folder(path, size)
    names = [file.relative_to(path).as_posix() for file in found.files]
    return Pictures(found, names, None if loose else found.classes, not loose)


def _array(path: Path, severity: int) -> Pictures:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise TTCError(f"cannot read {path} ({error})") from error
    if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8:
        raise TTCError(f"{path}: expected uint8 pictures of shape (N, H, W, 3), got {array.dtype} {array.shape}")
    beside = path.with_name("labels.npy")
    labels = np.load(beside, allow_pickle=False).astype(np.int64) if beside.is_file() else None
    rows = slice((severity - 1) * 10_000, severity * 10_000) if len(array) == 50_000 else slice(None)
    known = labels is not None and labels.shape == array.shape[:1]
    chosen = labels[rows] if known and labels is not None else np.zeros(len(array[rows]), np.int64)
    images = ArrayImages(path.stem, array[rows], chosen, int(chosen.max()) + 1)
    first = rows.start or 0
    return Pictures(images, [f"{path.name}#{first + i}" for i in range(len(images))], None, known)


def finished(folder: Path, job: dict[str, Any], total: int) -> int:
    """How many images an earlier run of the same job answered; another job's results are not overwritten."""
    path = folder / PROGRESS
    if not path.exists():
        if folder.exists() and any(folder.iterdir()):
            raise TTCError(f"{folder} holds something else; choose another place with --out")
        return 0
    earlier = json.loads(path.read_text())
    if earlier["job"] != job or earlier["total"] != total:
        changed = [name for name in job if earlier["job"].get(name) != job[name]] or ["the images"]
        raise TTCError(f"{folder} holds another run ({', '.join(changed)} differ); choose another place with --out")
    return int(earlier["done"])


@dataclass(frozen=True)
class Job:
    """Everything that decides the results; an earlier run with the same settings is gone on with."""

    model: str
    images: str
    checkpoint: str
    method: str
    head: str | None
    batch_size: int
    small_batches: bool
    guard: bool
    size: int | None
    severity: int
    shuffle: bool
    seed: int
    adaptation: str

    def run(
        self, network: nn.Module, found: Pictures, folder: Path, done: int, start: Path | None, table: str
    ) -> dict[str, Any]:
        """Answer the images from number ``done`` on and write everything; the summary."""
        folder.mkdir(parents=True, exist_ok=True)
        adapter = ttc.adapt(network, self.method, head=self.head, small_batches=self.small_batches)
        adaptation, memory = checkpoint(folder, done)
        if done or start is not None:
            adapter.load(adaptation if done else start or "")
        if found.labelled and found.classes is not None and len(found.classes) != adapter.model.num_classes:
            found = unlabelled(found)
        with _Writer(self, found, folder, done) as writer:
            answer = Guard(adapter, on_event=writer.note) if self.guard else adapter
            if isinstance(answer, Guard) and done:
                answer.load_state_dict(_guard_state(memory))
            self._answer(answer, adapter, found, done, writer)
        summary = _summary(folder, found, answer, writer)
        with atomic(folder / SUMMARY) as part:
            part.write_text(json.dumps({"job": asdict(self), "version": ttc.__version__, **summary}, indent=2) + "\n")
        if table == "parquet":
            _as_parquet(folder / "predictions.csv")
        return summary

    def _answer(self, answer: Guard | Adapter, adapter: Adapter, found: Pictures, done: int, writer: "_Writer") -> None:
        total = len(found.images)
        order = np.random.default_rng(self.seed).permutation(total) if self.shuffle else np.arange(total)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}, left"), TimeRemainingColumn())
        console = Console(stderr=True)
        with Progress(TextColumn("adapting"), *columns, console=console, disable=not console.is_terminal) as progress:
            task, begun = progress.add_task("", total=total, completed=done, rate=""), time.monotonic()
            for first in range(done, total, self.batch_size):
                index = order[first : first + self.batch_size]
                logits = answer(as_tensor(found.images.pixels(index)).to(adapter.device))
                writer.write(index.tolist(), logits.cpu(), answer)
                rate = (first + len(index) - done) / (time.monotonic() - begun)
                progress.update(task, completed=first + len(index), rate=f"{rate:,.0f} images/s")


def unlabelled(found: Pictures) -> Pictures:
    """The pictures without labels: folders that are not the model's classes say nothing of them."""
    return found._replace(classes=None, labelled=False)


class _Writer:
    """Appends predictions and events, and now and then makes a checkpoint that a later run goes on from."""

    def __init__(self, job: Job, found: Pictures, folder: Path, done: int) -> None:
        self.job, self.found, self.folder, self.done = job, found, folder, done
        self.files = {name: folder / name for name in ("predictions.csv", EVENTS)}
        sizes = json.loads((folder / PROGRESS).read_text())["sizes"] if done else {}
        for name, path in self.files.items():  # what came after the last checkpoint is made again
            with path.open("ab") as file:
                file.truncate(sizes.get(name, 0))
        self.predictions = self.files["predictions.csv"].open("a", newline="", encoding="utf-8")
        self.events = self.files[EVENTS].open("a", encoding="utf-8")
        self.rows = csv.writer(self.predictions)
        if not done:
            self.rows.writerow(["path", "class", "probability", "entropy", *(["label"] if found.labelled else [])])
            self._keep_progress({})
        self.saved = time.monotonic()

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.predictions.close()
        self.events.close()

    def note(self, event: Any) -> None:
        """Append one of the guard's events."""
        self.events.write(json.dumps(event._asdict()) + "\n")

    def write(self, index: Sequence[int], logits: Tensor, answer: Guard | Adapter) -> None:
        """Append the answers for the images at ``index``."""
        log_probability = logits.double().log_softmax(1)
        entropy = torch.special.entr(log_probability.exp()).sum(1).tolist()
        probability, winner = log_probability.exp().max(1)
        for i, best, p, h in zip(index, winner.tolist(), probability.tolist(), entropy, strict=True):
            label = [self._class(int(self.found.images.labels[i]))] if self.found.labelled else []
            self.rows.writerow([self.found.names[i], self._class(best), f"{p:.6f}", f"{h:.6f}", *label])
        self.done += len(index)
        whole = self.done == len(self.found.images)
        if whole or time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            self._checkpoint(answer, whole=whole)

    def _class(self, number: int) -> str:
        return self.found.classes[number] if self.found.classes else str(number)

    def _checkpoint(self, answer: Guard | Adapter, *, whole: bool) -> None:
        self.predictions.flush()
        self.events.flush()
        adaptation, memory = checkpoint(self.folder, self.done)
        answer.save(self.folder / ADAPTATION if whole else adaptation)
        if isinstance(answer, Guard) and not whole:
            with atomic(memory) as part:
                torch.save(answer.state(), part)
        self._keep_progress({name: path.stat().st_size for name, path in self.files.items()})
        for pattern in ("adaptation-*.safetensors", "guard-*.pt"):
            for path in self.folder.glob(pattern):
                if whole or path not in (adaptation, memory):
                    path.unlink()
        self.saved = time.monotonic()

    def _keep_progress(self, sizes: dict[str, int]) -> None:
        state = {"job": asdict(self.job), "total": len(self.found.images), "done": self.done, "sizes": sizes}
        with atomic(self.folder / PROGRESS) as part:
            part.write_text(json.dumps(state, indent=2) + "\n")


def _guard_state(path: Path) -> State:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, UnpicklingError) as error:
        raise TTCError(f"cannot go on from {path}; remove {path.parent} to start anew") from error


def _summary(folder: Path, found: Pictures, answer: Any, writer: _Writer) -> dict[str, Any]:
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["class"]] = counts.get(row["class"], 0) + 1
    summary: dict[str, Any] = {
        "images": len(rows),
        "mean_probability": round(sum(float(row["probability"]) for row in rows) / len(rows), 4),
        "mean_entropy": round(sum(float(row["entropy"]) for row in rows) / len(rows), 4),
        "predicted_classes": dict(sorted(counts.items(), key=lambda pair: -pair[1])),
    }
    if found.labelled:
        summary["accuracy"] = round(sum(row["class"] == row["label"] for row in rows) / len(rows), 4)
    if isinstance(answer, Guard):
        summary["guard"] = answer.mode
        summary["guard_events"] = len(writer.files[EVENTS].read_text(encoding="utf-8").splitlines())
    return summary


def _as_parquet(path: Path) -> None:
    rows = import_module("pyarrow.csv").read_csv(path)
    with atomic(path.with_suffix(".parquet")) as part:
        import_module("pyarrow.parquet").write_table(rows, part)
