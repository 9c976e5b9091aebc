"""``ttc adapt``: adapt a model over images of one's own, guarded, and write a prediction for each."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from torch import nn

    from ttc.core import Adapter
    from ttc.deploy import AdaptationJob


def adapt(
    model: Annotated[str, typer.Argument(help="embedded, a zoo name, timm:NAME, torchvision:NAME or module:function.")],
    images: Annotated[
        Path, typer.Argument(help="A folder of images, with or without class folders, or a CIFAR-C file.")
    ],
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load: .pt, .pth, .th or .safetensors.")] = None,
    num_classes: Annotated[int | None, typer.Option("--classes", help="Number of classes of the model.")] = None,
    head: Annotated[str | None, typer.Option(help="Name of the final layer, where it cannot be detected.")] = None,
    method: Annotated[str, typer.Option(help="Adaptation method; ttc methods lists them.")] = "ttc",
    batch_size: Annotated[int, typer.Option(help="Images per batch.", min=1)] = 64,
    small_batches: Annotated[
        bool, typer.Option("--small-batches", help="Convert the method for batches of any size.")
    ] = False,
    guard: Annotated[bool, typer.Option(help="Monitor for collapse, roll back, fall back to the source model.")] = True,
    size: Annotated[int | None, typer.Option(help="Resize and crop images to this many pixels square.", min=1)] = None,
    severity: Annotated[int, typer.Option(help="Severity to read from a CIFAR-C file.", min=1, max=5)] = 5,
    shuffle: Annotated[bool, typer.Option(help="Shuffle: images sorted by class mislead adaptation.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the order.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    adaptation: Annotated[Path | None, typer.Option(help="Saved adaptation to start from.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; adapted/MODEL-IMAGES unless given.")] = None,
    table: Annotated[
        Literal["csv", "parquet"], typer.Option("--format", help="File format of the predictions.")
    ] = "csv",
) -> None:
    """Adapt a model over a set of images; write predictions, a summary, the saved adaptation and the guard's events.

    Run the same command again after an interruption to resume.
    """
    import ttc
    from ttc.deploy.batch_job import AdaptationJob, JobSettings, write_parquet
    from ttc.deploy.input_images import read_input_images

    if table == "parquet":
        _require_pyarrow()
    folder = out or Path("adapted") / f"{model}-{images.resolve().stem}".replace(":", "-").replace("/", "-")
    settings = JobSettings(
        model=model, images=str(images), checkpoint=str(checkpoint or ""), method=method, head=head,
        batch_size=batch_size, small_batches=small_batches, guard=guard, size=size, severity=severity,
        shuffle=shuffle, seed=seed, adaptation=str(adaptation or ""),
    )  # fmt: skip
    job = AdaptationJob(settings, read_input_images(images, size, severity), folder)
    if job.done == job.total:
        typer.echo(f"{folder} is complete; remove it to run again")
        return
    adapter = ttc.adapt(
        _load_model(model, checkpoint, num_classes, device), method, head=head, small_batches=small_batches
    )
    if adaptation is not None and not job.done:
        adapter.load(adaptation)
    summary = _run(job, adapter)
    if table == "parquet":
        write_parquet(folder / "predictions.csv")
    for name, value in summary.items():
        typer.echo(f"{name.replace('_', ' '):<18} {_format(value)}")
    typer.echo(f"results in         {folder}")


def _run(job: "AdaptationJob", adapter: "Adapter") -> dict[str, Any]:
    """Run the job with a progress bar; after Ctrl-C say how to resume."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}, left"), TimeRemainingColumn())
    start, begun = job.done, time.monotonic()
    if start:
        typer.echo(f"resuming after {start:,} of {job.total:,} images", err=True)
    with Progress(TextColumn("adapting"), *columns, console=console, disable=not console.is_terminal) as progress:
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


def _format(value: object) -> str:
    return ", ".join(f"{name}: {count}" for name, count in value.items()) if isinstance(value, dict) else str(value)


def _load_model(name: str, checkpoint: Path | None, num_classes: int | None, device: str) -> "nn.Module":
    import torch

    from ttc.errors import TTCError
    from ttc.models import MODELS, build

    if checkpoint is None and name in MODELS:
        raise TTCError(f"the model '{name}' has no weights of its own; pass them with --checkpoint FILE")
    network = build(name, num_classes, checkpoint)
    try:
        return network.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise TTCError(f"the device {device!r} cannot be used here ({reason}): try --device cpu") from error


def _require_pyarrow() -> None:
    from importlib.util import find_spec

    from ttc.errors import TTCError

    if find_spec("pyarrow") is None:
        raise TTCError("--format parquet needs pyarrow: pip install pyarrow, or leave the predictions as CSV")
