"""Shards of a batch job: each is a stream of its own with its own adaptation, and their results are merged."""

import csv
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ttc import __version__
from ttc.core import Adapter
from ttc.data import ArrayImages
from ttc.deploy.batch_job import AdaptationJob, JobSettings
from ttc.deploy.input_images import InputImages
from ttc.deploy.job_reader import order_images
from ttc.deploy.photos import PhotoImages
from ttc.errors import TTCError
from ttc.files import atomic, is_partial


def split_images(images: InputImages, count: int, *, shuffle: bool, seed: int) -> list[InputImages]:
    """Split images into shards of nearly equal size.

    Args:
        images: All images.
        count: The number of shards.
        shuffle: Whether the shards are random; else each has images that follow each other.
        seed: The seed of that choice.

    Raises:
        TTCError: If there are fewer images than shards.
    """
    total = len(images.images)
    if not 1 <= count <= total:
        raise TTCError(f"{total:,} images make 1 to {total:,} shards, got {count:,}")
    order = order_images(total, shuffle=shuffle, seed=seed)
    return [_select(images, np.sort(part).tolist()) for part in np.array_split(order, count)]


def _select(images: InputImages, index: Sequence[int]) -> InputImages:
    names, whole = [images.names[i] for i in index], images.images
    if isinstance(whole, PhotoImages):
        labels = None if whole.known_labels is None else whole.known_labels[list(index)]
        return images._replace(
            images=replace(whole, files=[whole.files[i] for i in index], known_labels=labels), names=names
        )
    part = ArrayImages(whole.name, whole.pixels(index), whole.labels[list(index)], whole.num_classes)
    return images._replace(images=part, names=names)


class ShardedJob:
    """A batch job in shards; a shard that is complete in the folder is not run again.

    Args:
        settings: What decides the results.
        images: All images.
        folder: Where the results go: one folder per shard, and the merged predictions and summary.
        count: The number of shards.

    Raises:
        TTCError: If the folder contains something else.
    """

    def __init__(self, settings: JobSettings, images: InputImages, folder: Path, count: int) -> None:
        self.folder, self.images = folder, images
        self.shards = split_images(images, count, shuffle=settings.shuffle, seed=settings.seed)
        self.settings = [replace(settings, shard=f"{number + 1}/{count}") for number in range(count)]
        present = set(folder.iterdir()) if folder.exists() else set()
        if not {path.name for path in present if not is_partial(path)} <= self._names():
            raise TTCError(f"{folder} contains other files; choose another folder with --out")

    def _names(self) -> set[str]:
        own = {self.place(number).name for number in range(len(self.shards))}
        return {*own, *(f"{name}.part" for name in own), "predictions.csv", "predictions.parquet", "summary.json"}

    def fit(self, images: InputImages) -> None:
        """Take the same images, fitted to a model."""
        first = self.settings[0]
        self.images = images
        self.shards = split_images(images, len(self.shards), shuffle=first.shuffle, seed=first.seed)

    def place(self, number: int) -> Path:
        """Return the folder of a shard."""
        return self.folder / f"shard-{number + 1:0{len(str(len(self.shards)))}}-of-{len(self.shards)}"

    def missing(self) -> list[int]:
        """Return the shards that are not complete.

        Raises:
            TTCError: If the folder of a shard contains another run.
        """
        pairs = enumerate(zip(self.settings, self.shards, strict=True))
        jobs = [AdaptationJob(settings, images, self.place(number)) for number, (settings, images) in pairs]
        return [number for number, job in enumerate(jobs) if job.done < job.total]

    def write(self, number: int, files: Mapping[str, bytes]) -> None:
        """Write the files of a shard that ended, all of them or none."""
        place = self.place(number)
        part = place.with_name(f"{place.name}.part")
        part.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (part / name).write_bytes(content)
        part.rename(place)

    def merge(self) -> dict[str, Any]:
        """Write the predictions of all shards as one file, and a summary of them.

        Returns:
            The summary, as :meth:`AdaptationJob.run` returns it; ``guard`` counts the shards per mode.
        """
        places = [self.place(number) for number in range(len(self.shards))]
        summaries = [json.loads((place / "summary.json").read_text()) for place in places]
        with (
            atomic(self.folder / "predictions.csv") as part,
            part.open("w", newline="", encoding="utf-8") as file,
        ):
            rows = csv.writer(file)
            for number, place in enumerate(places):
                with (place / "predictions.csv").open(newline="", encoding="utf-8") as shard:
                    rows.writerows(row for i, row in enumerate(csv.reader(shard)) if i or not number)
        summary = _merged(summaries)
        with atomic(self.folder / "summary.json") as part:
            job = {**summaries[0]["job"], "shard": f"1-{len(places)}/{len(places)}"}
            part.write_text(json.dumps({"job": job, "version": __version__, **summary}, indent=2) + "\n")
        return summary


def _merged(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = [int(one["images"]) for one in summaries]
    total = sum(counts)
    classes: Counter[str] = Counter()
    for one in summaries:
        classes.update(one["predicted_classes"])

    def mean(name: str) -> float:
        weighted = [count * float(one[name]) for count, one in zip(counts, summaries, strict=True)]
        return round(sum(weighted) / total, 4)

    merged: dict[str, Any] = {"shards": len(summaries), "images": total}
    merged.update({name: mean(name) for name in ("mean_probability", "mean_entropy")})
    merged["predicted_classes"] = dict(classes.most_common())
    if all("accuracy" in one for one in summaries):
        merged["accuracy"] = mean("accuracy")
    if all("guard" in one for one in summaries):
        merged["guard"] = dict(Counter(one["guard"] for one in summaries).most_common())
        merged["guard_events"] = sum(one["guard_events"] for one in summaries)
    skipped = {name: why for one in summaries for name, why in one.get("skipped", {}).items()}
    return {**merged, "skipped": skipped} if skipped else merged


def run_shard(build: Callable[[], Adapter], settings: JobSettings, images: InputImages) -> dict[str, bytes]:
    """Run one shard in a folder of its own and return the files that it wrote, for the driver to write.

    Args:
        build: Builds the adapter in the state to start from.
        settings: The settings of the shard.
        images: Its images.
    """
    with tempfile.TemporaryDirectory(prefix="ttc-shard-") as folder:
        job = AdaptationJob(settings, images, Path(folder, "job"))
        job.run(build())
        return {path.name: path.read_bytes() for path in job.folder.path.iterdir()}
