"""``ttc adapt``: adapt a model over images of one's own, guarded, and write a prediction for each."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ttc.cli.adapt_output import TITLE, print_summary, report_skipped, run_with_progress
from ttc.cli.execution import AddressOption, CpusOption, ExecutorOption, GpusOption
from ttc.cli.fitted_images import fit_images
from ttc.cli.model_options import CheckpointOption, ClassesOption, HeadOption, ModelArgument, StatisticsOption
from ttc.cli.wording import print_line

if TYPE_CHECKING:
    from ttc.core import Adapter
    from ttc.deploy import AdaptationJob


def adapt(
    model: ModelArgument,
    images: Annotated[
        Path, typer.Argument(help="A folder of images, with or without class folders, or a CIFAR-C file.")
    ],
    checkpoint: CheckpointOption = None,
    num_classes: ClassesOption = None,
    statistics: StatisticsOption = None,
    head: HeadOption = None,
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
    from ttc.bench.allocator import reuse_memory
    from ttc.bench.environment import cores
    from ttc.cli.adapt_shards import run_shards
    from ttc.cli.execution import make_executor
    from ttc.deploy.batch_job import AdaptationJob, JobSettings
    from ttc.deploy.input_images import read_input_images
    from ttc.deploy.job_export import check_export
    from ttc.deploy.shards import ShardedJob
    from ttc.errors import TTCError
    from ttc.methods import find_method
    from ttc.models.building import build_trained

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
        network = build_trained(model, num_classes, checkpoint, statistics, "cpu")
        sharded.fit(fit_images(sharded.images, model, network, size))
        summary = run_shards(sharded, network, device, workers or cores(), cluster)
        print_summary(summary, folder, table)
        report_skipped(summary.get("skipped", {}), folder)
        return
    if cluster is not None or workers is not None:
        raise TTCError(
            "several workers adapt one stream per shard: give their number with --shards, such as --shards 8"
        )
    reuse_memory()
    job = AdaptationJob(settings, read_input_images(images, size, severity, labels), folder)
    if job.done == job.total:
        typer.echo(f"{folder} is complete; remove it to run again")
        if export is None:
            report_skipped(job.skipped, folder)
            return
    network = build_trained(model, num_classes, checkpoint, statistics, _local_device(device))
    job.images = fit_images(job.images, model, network, size)
    adapter = ttc.adapt(network, method, head=head, small_batches=small_batches)
    if adaptation is not None and not job.done:
        adapter.load(adaptation)
    if export is not None:
        check_export(job, adapter, export, second_view=second_view)
    if _local_rank() is not None:
        adapter = ttc.distributed(adapter, batches="whole", timeout=timeout)
    if job.done < job.total:
        summary = run_with_progress(job, adapter)
        if adapter.processes.rank == 0:  # the first process writes and reports
            print_summary(summary, folder, table)
    else:
        adapter.load(job.folder.adaptation)
    if adapter.processes.rank == 0:
        if export is not None:
            _export(job, adapter, export, second_view)
        report_skipped(job.skipped, folder)


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


def _require_pyarrow() -> None:
    from importlib.util import find_spec

    from ttc.errors import TTCError

    if find_spec("pyarrow") is None:
        raise TTCError("--format parquet needs pyarrow: pip install 'pyarrow>=15', or leave the predictions as CSV")
