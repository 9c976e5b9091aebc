"""``ttc adapt``: adapt a model over images of one's own, guarded, and write a prediction for each."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ttc.cli.execution import AddressOption, CpusOption, ExecutorOption, GpusOption
from ttc.cli.wording import StatisticsOption, print_line

if TYPE_CHECKING:
    from torch import nn

    from ttc.core import Adapter
    from ttc.data.decoding import Fitting
    from ttc.deploy import AdaptationJob
    from ttc.deploy.input_images import InputImages

TITLE = 19  # columns of the titles in the summary
SHOWN_CLASSES = 10  # of those that were predicted; the summary file has all
SHOWN_FILES = 20  # of those that were skipped; the summary has all
FAR = (0.5, 16)  # images whose side is this many times the model's are too small or too large for it


def adapt(
    model: Annotated[
        str,
        typer.Argument(
            help="embedded, a zoo name, timm:NAME, torchvision:NAME or package.module:function, which runs its code."
        ),
    ],
    images: Annotated[
        Path, typer.Argument(help="A folder of images, with or without class folders, or a CIFAR-C file.")
    ],
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load: .pt, .pth, .th or .safetensors.")] = None,
    num_classes: Annotated[int | None, typer.Option("--classes", help="Number of classes of the model.")] = None,
    statistics: StatisticsOption = None,
    head: Annotated[str | None, typer.Option(help="Name of the final layer, where it cannot be detected.")] = None,
    method: Annotated[str, typer.Option(help="Adaptation method; ttc methods lists them.")] = "ttc",
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1)] = 64,
    small_batches: Annotated[
        bool, typer.Option("--small-batches", help="Convert the method for batches of any size.")
    ] = False,
    guard: Annotated[bool, typer.Option(help="Monitor for collapse, roll back, fall back to the source model.")] = True,
    size: Annotated[
        int | None,
        typer.Option(help="Resize and crop images to this many pixels square; default: the model's input size.", min=1),
    ] = None,
    labels: Annotated[
        bool, typer.Option(help="Take class folders as labels, if there are as many as the model has classes.")
    ] = True,
    severity: Annotated[int, typer.Option(help="Severity to read from a CIFAR-C file.", min=1, max=5)] = 5,
    shuffle: Annotated[bool, typer.Option(help="Shuffle: images sorted by class mislead adaptation.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the order.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    adaptation: Annotated[Path | None, typer.Option(help="Saved adaptation to start from.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="adapted/MODEL-IMAGES")
    ] = None,
    table: Annotated[
        Literal["csv", "parquet"], typer.Option("--format", help="File format of the predictions.")
    ] = "csv",
    timeout: Annotated[
        float, typer.Option(help="Seconds that a process of torchrun waits for another one before it stops.", min=1)
    ] = 60,
    shards: Annotated[
        int | None,
        typer.Option(help="Split the images into so many streams, each adapted by itself and at the same time.", min=1),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Shards at a time. Default one per core.", min=1)] = None,
    executor: ExecutorOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.onnx",
            help="Also write the adapted model as this ONNX file, for images in [0, 1] of the size used here.",
        ),
    ] = None,
    second_view: Annotated[
        bool,
        typer.Option(
            "--second-view", help="Export the mean over the image and its flip too, as TTC predicts: 2 passes."
        ),
    ] = False,
) -> None:
    """Adapt a model over a set of images; write predictions, a summary, the saved adaptation and the guard's events.

    Files that cannot be read are skipped and named at the end; the exit code is then 1. Run the same command again
    after an interruption to resume. Started with torchrun --nproc-per-node P -m ttc adapt ..., P processes compute a
    part of every batch each, for the results of one process.
    """
    import ttc
    from ttc.bench.environment import cores
    from ttc.cli.adapt_shards import run_shards
    from ttc.cli.execution import make_executor
    from ttc.deploy.batch_job import AdaptationJob, JobSettings
    from ttc.deploy.input_images import read_input_images
    from ttc.deploy.job_export import check_export
    from ttc.deploy.shards import ShardedJob
    from ttc.errors import TTCError
    from ttc.methods import find_method

    if table == "parquet":
        _require_pyarrow()
    folder = out or Path("adapted") / f"{model}-{images.resolve().stem}".replace(":", "-").replace("/", "-")
    settings = JobSettings(
        model=model, images=str(images), checkpoint=str(checkpoint or ""), method=method, head=head,
        batch_size=batch_size, small_batches=small_batches, guard=guard, size=size, statistics=statistics or "",
        labels=labels, severity=severity, shuffle=shuffle, seed=seed, adaptation=str(adaptation or ""),
    )  # fmt: skip
    find_method(method)  # a wrong name is found before files are opened
    cluster = make_executor(executor, threads=1, address=address, cpus=cpus, gpus=gpus, workers=workers, device=device)
    if shards is not None:
        if export is not None:
            raise TTCError("--export writes one model and each shard adapts its own: leave --shards or --export out")
        found = read_input_images(images.absolute(), size, severity, labels)  # a worker may have another directory
        start = str(adaptation.absolute()) if adaptation else ""
        sharded = ShardedJob(replace(settings, adaptation=start), found, folder, shards)
        network = _load_model(model, checkpoint, num_classes, statistics, "cpu")
        sharded.fit(_prepare(sharded.images, model, network, size))
        summary = run_shards(sharded, network, device, workers or cores(), cluster)
        _print_summary(summary, folder, table)
        _report_skipped(summary.get("skipped", {}), folder)
        return
    if cluster is not None or workers is not None:
        raise TTCError(
            "several workers adapt one stream per shard: give their number with --shards, such as --shards 8"
        )
    job = AdaptationJob(settings, read_input_images(images, size, severity, labels), folder)
    if job.done == job.total:
        typer.echo(f"{folder} is complete; remove it to run again")
        if export is None:
            _report_skipped(job.skipped, folder)
            return
    network = _load_model(model, checkpoint, num_classes, statistics, _local_device(device))
    job.images = _prepare(job.images, model, network, size)
    adapter = ttc.adapt(network, method, head=head, small_batches=small_batches)
    if adaptation is not None and not job.done:
        adapter.load(adaptation)
    if export is not None:
        check_export(job, adapter, export, second_view=second_view)
    if _local_rank() is not None:
        adapter = ttc.distributed(adapter, batches="whole", timeout=timeout)
    if job.done < job.total:
        summary = _run(job, adapter)
        if adapter.processes.rank == 0:  # the first process writes and reports
            _print_summary(summary, folder, table)
    else:
        adapter.load(job.folder.adaptation)
    if adapter.processes.rank == 0:
        if export is not None:
            _export(job, adapter, export, second_view)
        _report_skipped(job.skipped, folder)


def _local_rank() -> int | None:
    """Return the number of this process on its machine, None if torchrun did not start it."""
    from ttc.deploy.shared_stream import launched_by_torchrun

    return int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) if launched_by_torchrun() else None


def _local_device(device: str) -> str:
    """Return the device of this process: its own GPU, where torchrun started one process per GPU."""
    rank = _local_rank()
    return f"cuda:{rank}" if device == "cuda" and rank is not None else device


def _export(job: "AdaptationJob", adapter: "Adapter", path: Path, second_view: bool) -> None:
    """Write the ONNX file, unless the guard gave the adaptation up."""
    from ttc.deploy.guard import SOURCE
    from ttc.deploy.job_export import export_job
    from ttc.errors import TTCError

    if job.read_summary().get("guard") == SOURCE:
        raise TTCError(
            f"no {path} was written: the guard found the source model better and ended with it, so there is no adapted "
            f"model to export; {job.folder.events} has the reasons, --no-guard adapts without it"
        )
    print_line("exported", str(export_job(job, adapter, path, second_view=second_view)), TITLE)


def _prepare(images: "InputImages", name: str, network: "nn.Module", size: int | None) -> "InputImages":
    """Fit the images to the model's input, and warn if they are far from it."""
    from ttc.deploy.photos import PhotoImages
    from ttc.errors import TTCError

    wanted = _fitting(network, size)
    if not isinstance(images.images, PhotoImages):
        high, wide = images.images.pixels([0]).shape[1:3]
        sizes = [(wide, high)]
    else:
        sizes = images.images.sizes() if wanted else images.images.sizes(most=None)
        if wanted is None and len(set(sizes)) > 1:
            one, other = list(dict.fromkeys(sizes))[:2]
            raise TTCError(
                f"the images differ in size ({one[0]} x {one[1]} and {other[0]} x {other[1]} pixels) and the input "
                f"size of {name} is not known: give it with --size, such as --size 224"
            )
    if wanted and sizes:
        wide, high = sorted(sizes, key=min)[len(sizes) // 2]
        if not FAR[0] <= min(wide, high) / wanted.side <= FAR[1]:
            typer.echo(
                f"ttc: warning: the images have about {wide} x {high} pixels and are resized to {wanted.side} x "
                f"{wanted.side}; predictions may be poor: choose another model, or another size with --size",
                err=True,
            )
    return images.fitted(wanted)


def _fitting(network: "nn.Module", size: int | None) -> "Fitting | None":
    """Return how images are fitted to a model: as it states, in proportion for another size; None if it does not."""
    from ttc.data.decoding import Fitting
    from ttc.models.model_input import stated_fitting

    own = stated_fitting(network)
    if own is None or size is None:
        return own if size is None else Fitting.to(size)
    return Fitting(size, round(size * own.resize / own.side), own.interpolation)


def _print_summary(summary: Mapping[str, Any], folder: Path, table: str) -> None:
    """Print a summary, and write Parquet where it was asked for."""
    from ttc.deploy.batch_job import write_parquet

    if table == "parquet":
        write_parquet(folder / "predictions.csv")
    for name, value in summary.items():
        if name != "skipped":
            print_line(name.replace("_", " "), _format(value), TITLE)
    print_line("results in", str(folder), TITLE)


def _report_skipped(skipped: Mapping[str, str], folder: Path) -> None:
    """Name the files that could not be read; the exit code says that there were some."""
    for path, reason in list(skipped.items())[:SHOWN_FILES]:
        typer.echo(f"ttc: skipped {path}: {reason}", err=True)
    if len(skipped) > SHOWN_FILES:
        typer.echo(f"ttc: and {len(skipped) - SHOWN_FILES:,} more, listed in {folder / 'summary.json'}", err=True)
    if skipped:
        raise typer.Exit(1)


def _run(job: "AdaptationJob", adapter: "Adapter") -> dict[str, Any]:
    """Run the job with a progress bar; after Ctrl-C, or when another process was lost, say how to resume."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ttc.core import LostProcessError
    from ttc.errors import TTCError

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}, left"), TimeRemainingColumn())
    start, begun = job.done, time.monotonic()
    first = adapter.processes.rank == 0
    if start and first:
        typer.echo(f"resuming after {start:,} of {job.total:,} images", err=True)
    with Progress(
        TextColumn("adapting"), *columns, console=console, disable=not (first and console.is_terminal)
    ) as progress:
        task = progress.add_task("", total=job.total, completed=start, rate="")

        def show(done: int) -> None:
            rate = (done - start) / max(time.monotonic() - begun, 1e-9)
            progress.update(task, completed=done, rate=f"{rate:,.0f} images/s")

        try:
            return job.run(adapter, show)
        except KeyboardInterrupt:
            progress.stop()
            typer.echo(f"stopped: {job.done:,} of {job.total:,} images are saved in {job.folder.path}", err=True)
            typer.echo("to resume, run the same command again", err=True)
            raise typer.Exit(130) from None
        except LostProcessError as error:
            raise TTCError(f"{error}; to resume, run the same command again") from error


def _format(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    shown = [f"{name}: {count:,}" for name, count in list(value.items())[:SHOWN_CLASSES]]
    return ", ".join(shown + ([f"{len(value) - SHOWN_CLASSES:,} more"] if len(value) > SHOWN_CLASSES else []))


def _load_model(
    name: str, checkpoint: Path | None, num_classes: int | None, statistics: str | None, device: str
) -> "nn.Module":
    import torch

    from ttc.errors import TTCError
    from ttc.models import MODELS, build

    if checkpoint is None and name in MODELS:
        raise TTCError(f"the model '{name}' has no weights of its own; pass them with --checkpoint FILE")
    network = build(name, num_classes, checkpoint, statistics)
    try:
        return network.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise TTCError(f"the device {device!r} cannot be used here ({reason}): try --device cpu") from error


def _require_pyarrow() -> None:
    from importlib.util import find_spec

    from ttc.errors import TTCError

    if find_spec("pyarrow") is None:
        raise TTCError("--format parquet needs pyarrow: pip install 'pyarrow>=15', or leave the predictions as CSV")
