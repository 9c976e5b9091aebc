"""``ttc corrupt``: apply common corruptions to your own dataset."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ttc.cli.wording import FrostOption
from ttc.errors import TTCError, unknown

if TYPE_CHECKING:  # torch takes seconds to import
    from ttc.corruptions.severity_tables import TableName

TableOption = Literal["nearest", "cifar", "imagenet"]
LayoutOption = Literal["auto", "cifar-c", "imagenet-c"]


def corrupt(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC", help="A folder of images, a CIFAR folder in binary format, or (with --preview) one image."
        ),
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="DST", help="The output folder, or (with --preview) the output image.")
    ],
    layout: Annotated[
        LayoutOption, typer.Option(help="The layout of DST; auto: cifar-c if SRC is CIFAR, else imagenet-c.")
    ] = "auto",
    corruptions: Annotated[
        str,
        typer.Option(help="Names or groups (noise, blur, weather, digital, extra), by comma; all: all but extra."),
    ] = "all",
    severities: Annotated[str, typer.Option(help="Severities from 1 to 5, separated by commas.")] = "1,2,3,4,5",
    seed: Annotated[int, typer.Option(help="The seed of the random numbers.")] = 0,
    table: Annotated[
        TableOption,
        typer.Option(help="Parameters for 32 (cifar) or 224 pixels (imagenet); nearest: by the size of each image."),
    ] = "nearest",
    frost_dir: FrostOption = None,
    size: Annotated[
        int,
        typer.Option(min=0, help="Resize and crop the images of a folder to this size in pixels; 0 keeps their size."),
    ] = 224,
    workers: Annotated[int, typer.Option(min=0, help="The number of threads; 0: one per core.")] = 0,
    preview: Annotated[
        bool, typer.Option("--preview", help="Draw the image SRC with every corruption and severity to the image DST.")
    ] = False,
) -> None:
    """Generate ImageNet-C from a folder of images, or CIFAR-C from CIFAR; run it again to resume."""
    from ttc.corruptions import cifar_c, imagenet_c
    from ttc.corruptions.pool import available_cores
    from ttc.data.frost import choose_frost, describe_frost
    from ttc.data.location import data_root

    names, levels = parse_corruptions(corruptions), parse_severities(severities)
    frost_dir = choose_frost(frost_dir, data_root())
    textures = f" with {describe_frost(frost_dir)}" if "frost" in names else ""
    parameters = None if table == "nearest" else table
    if preview:
        _draw_preview(source, destination, names, parameters, seed, frost_dir, size)
        typer.echo(f"{destination}: {len(names)} corruptions x 5 severities{textures}")
        return
    if 0 < size < 16:
        raise TTCError(f"--size must be 0 or at least 16 pixels; got {size}")
    if layout == "auto":
        layout = "cifar-c" if source.exists() and cifar_c.find_cifar_file(source) else "imagenet-c"
    threads = workers or available_cores()
    kinds: Counter[str] = Counter()
    with _progress_bar(destination) as progress:
        if layout == "cifar-c":
            manifest = cifar_c.generate_cifar_c(
                source,
                destination,
                names,
                levels,
                seed=seed,
                table=parameters,
                frost_dir=frost_dir,
                workers=threads,
                progress=progress,
            )
        else:
            manifest = imagenet_c.generate_imagenet_c(
                source,
                destination,
                names,
                levels,
                seed=seed,
                table=parameters,
                frost_dir=frost_dir,
                size=size,
                workers=threads,
                progress=progress,
                converted=kinds.update,
            )
    if kinds:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        typer.echo(f"converted to 8-bit RGB: {listed}")
    listed = ", ".join(map(str, levels))
    typer.echo(f"{destination}: {len(names)} corruptions{textures}, severities {listed}; checksums in corruptions.json")
    if manifest.unreadable:
        for path, reason in manifest.unreadable.items():
            typer.echo(f"ttc: skipped {path}: {reason}", err=True)
        raise typer.Exit(1)


def parse_corruptions(text: str) -> list[str]:
    """Parse comma-separated names and groups into corruptions, without duplicates."""
    from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS

    known = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)
    names: dict[str, None] = {}
    for word in text.split(","):
        word = word.strip()
        members = CORRUPTIONS if word == "all" else GROUPS.get(word, (word,))
        for name in members:
            if name not in known:
                raise unknown("corruption", name, [*known, *GROUPS, "all"])
            names[name] = None
    return list(names)


def parse_severities(text: str) -> list[int]:
    """Parse comma-separated severities, in increasing order."""
    words = {word.strip() for word in text.split(",")}
    wrong = sorted(words - {"1", "2", "3", "4", "5"})
    if wrong:
        raise TTCError(
            f"severities must be numbers from 1 to 5, separated by commas; got {', '.join(map(repr, wrong))}"
        )
    return sorted(int(word) for word in words)


@contextmanager
def _progress_bar(destination: Path) -> Iterator[Callable[[int, int, int], None]]:
    """Show rate and remaining time, both of this run only; on Ctrl-C, explain how to resume."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(TextColumn("corrupting"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    task = bar.add_task("", total=None)
    started, all_made, all_done = time.monotonic(), 0, 0

    def progress(made: int, found: int, total: int) -> None:
        nonlocal all_made, all_done
        all_made, all_done = all_made + made, all_done + made + found
        rate = all_made / (time.monotonic() - started)
        left = f", {timedelta(seconds=round((total - all_done) / rate))} left" if rate else ""
        bar.start()  # only now: a rejected command draws nothing
        bar.update(task, completed=all_done, total=total, description=f"{rate:,.0f} images/s{left}")

    try:
        yield progress
    except KeyboardInterrupt:
        typer.echo(f"interrupted; run the same command again to resume, finished files are in {destination}", err=True)
        raise typer.Exit(130) from None
    finally:
        if bar.live.is_started:
            bar.stop()


def _draw_preview(
    source: Path,
    destination: Path,
    names: list[str],
    table: "TableName | None",
    seed: int,
    frost_dir: Path | None,
    size: int,
) -> None:
    from ttc.corruptions.imagenet_c import read_image
    from ttc.corruptions.preview import contact_sheet
    from ttc.files import atomic

    if destination.suffix.lower() not in {".png", ".jpg", ".jpeg", ".webp"}:
        raise TTCError(f"the preview must be a .png, .jpg or .webp file; got {destination}")
    try:
        image, _ = read_image(source, 0)
        if size and min(image.shape[:2]) > size:  # small images are not resized
            image, _ = read_image(source, size)
    except (OSError, SyntaxError, ValueError) as error:
        raise TTCError(f"{source} cannot be read as an image ({error}); give a PNG or JPEG file") from error
    with _progress_bar(destination) as progress:
        sheet = contact_sheet(
            image,
            names,
            table=table,
            seed=seed,
            frost_dir=frost_dir,
            done=lambda cells: progress(cells, 0, 5 * len(names)),
        )
    with atomic(destination) as part:
        sheet.save(part)
