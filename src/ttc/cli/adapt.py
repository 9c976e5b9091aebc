"""``ttc adapt``: adapt a model over images of one's own, guarded, and write what it says of each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from torch import nn


def adapt(
    model: Annotated[str, typer.Argument(help="embedded, a zoo name, timm:NAME, torchvision:NAME or module:function.")],
    images: Annotated[Path, typer.Argument(help="A folder of pictures, in class folders or not, or a CIFAR-C file.")],
    checkpoint: Annotated[Path | None, typer.Option(help="Weights to load: .pt, .pth, .th or .safetensors.")] = None,
    num_classes: Annotated[int | None, typer.Option("--classes", help="How many classes the model knows.")] = None,
    head: Annotated[str | None, typer.Option(help="The final layer's name, where it cannot be told.")] = None,
    method: Annotated[str, typer.Option(help="A method of ttc methods.")] = "ttc",
    batch_size: Annotated[int, typer.Option(help="Images answered at once.", min=1)] = 64,
    small_batches: Annotated[bool, typer.Option("--small-batches", help="Make the method fit for any size.")] = False,
    guard: Annotated[bool, typer.Option(help="Watch for collapse, roll back, fall back to the source model.")] = True,
    size: Annotated[int | None, typer.Option(help="Fit pictures to this many pixels square.", min=1)] = None,
    severity: Annotated[int, typer.Option(help="Which part of a CIFAR-C file.", min=1, max=5)] = 5,
    shuffle: Annotated[bool, typer.Option(help="Mix the order: folders sorted by class mislead adaptation.")] = True,
    seed: Annotated[int, typer.Option(help="Decides the order.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    adaptation: Annotated[Path | None, typer.Option(help="A saved adaptation to start from.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where results go [default: adapted/MODEL-IMAGES].")] = None,
    table: Annotated[Literal["csv", "parquet"], typer.Option("--format", help="Of the predictions.")] = "csv",
) -> None:
    """Adapt a model over images, and write predictions, a summary, the saved adaptation and the guard's events.

    Run the same command again after an interruption and it goes on where it stopped.
    """
    from dataclasses import asdict

    from ttc.deploy.batch_job import Job, finished, pictures
    from ttc.errors import TTCError

    if table == "parquet":
        _require_pyarrow()
    found = pictures(images, size, severity)
    folder = out or Path("adapted") / f"{model}-{images.resolve().stem}".replace(":", "-").replace("/", "-")
    job = Job(
        model=model, images=str(images), checkpoint=str(checkpoint or ""), method=method, head=head,
        batch_size=batch_size, small_batches=small_batches, guard=guard, size=size, severity=severity,
        shuffle=shuffle, seed=seed, adaptation=str(adaptation or ""),
    )  # fmt: skip
    done = finished(folder, asdict(job), len(found.images))
    if done == len(found.images):
        typer.echo(f"{folder} is complete already; remove it to start anew")
        return
    network = _network(model, checkpoint, num_classes, device)
    try:
        summary = job.run(network, found, folder, done, adaptation, table)
    except KeyboardInterrupt:
        kept = finished(folder, asdict(job), len(found.images))
        typer.echo(f"stopped; {kept:,} of {len(found.images):,} images are kept in {folder}", err=True)
        typer.echo("to go on: run the same command again", err=True)
        raise typer.Exit(130) from None
    except OSError as error:
        raise TTCError(f"cannot write to {folder}: {error.strerror or error}") from error
    for name, value in summary.items():
        typer.echo(f"{name:<20} {value}")
    typer.echo(f"results: {folder}")


def _network(name: str, checkpoint: Path | None, num_classes: int | None, device: str) -> "nn.Module":
    import torch

    from ttc.errors import TTCError
    from ttc.models import MODELS, build

    if checkpoint is None and name in MODELS:
        raise TTCError(f"the model '{name}' comes without weights; give them with --checkpoint FILE")
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
