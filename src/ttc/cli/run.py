"""``ttc run``: evaluate a grid of methods, corruptions and scenarios, and keep every result."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ttc.bench.run_config import Settings
    from ttc.bench.protocol import Protocol


def run(
    methods: Annotated[str | None, typer.Option(help="Comma-separated, with options: 'norm,ttc(bandwidth=2)'.")] = None,
    corruptions: Annotated[
        str | None, typer.Option(help="Names, groups (noise, blur, weather, digital, extra, all), clean.")
    ] = None,
    severities: Annotated[str | None, typer.Option("--severities", "--severity", help="1 to 5.")] = None,
    images: Annotated[int | None, typer.Option(help="Images of each domain; all unless given.")] = None,
    batch_sizes: Annotated[str | None, typer.Option("--batch-sizes", "--batch-size", help="Default 100.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", "--seed", help="Seeds of the order of the images.")] = None,
    scenarios: Annotated[
        str | None,
        typer.Option(
            "--scenarios",
            "--scenario",
            help="per-domain, continual, episodic, gradual, mixed, label-shift(alpha=0.1), repeated(epochs=3).",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="embedded, cifar10, cifar10-c, cifar100, cifar100-c, imagenet, imagenet-c, folder:PATH[@SIZE]."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="embedded, a name of the zoo, timm:NAME, torchvision:NAME.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="The weights of a model of the zoo.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where data lives; else TTC_DATA, else the cache directory.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Where results are kept; default results.sqlite.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one for each core unless given.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Torch threads of a cell; part of the protocol. Default 1.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64 or bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:0 …")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with the same settings; flags go first.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cells and how long they would take.")] = False,
) -> None:
    """Evaluate a grid of methods, corruptions and scenarios; run it again to go on where it stopped.

    Without flags: the paper's seven methods on fifteen corruptions at severity 5, on the embedded images and model.
    """
    flags = {
        "methods": methods,
        "corruptions": corruptions,
        "severities": severities,
        "images": images,
        "batch_sizes": batch_sizes,
        "seeds": seeds,
        "scenarios": scenarios,
        "dataset": dataset,
        "model": model,
        "checkpoint": checkpoint,
        "data": data,
        "store": store,
        "workers": workers,
        "threads": threads,
        "dtype": dtype,
        "device": device,
    }
    from ttc.bench.run_config import settings
    from ttc.bench.grid import cells

    chosen = settings(config, flags)
    wanted = cells(chosen.grid, chosen.workload)
    if dry_run:
        _show(wanted, chosen)
    else:
        _run(wanted, chosen)


def _show(wanted: "list[Protocol]", chosen: "Settings") -> None:
    from rich.table import Table

    from ttc.bench.estimate import seconds
    from ttc.bench.runner import pending
    from ttc.bench.store import Store
    from ttc.cli.progress import duration, wide_console

    left = wanted
    if chosen.store.exists():
        with Store(chosen.store, readonly=True) as store:
            left = pending(wanted, store)
    todo = {cell.hash for cell in left}
    table = Table("cell", "method", "domain", "scenario", "batch", "seed", "images", "state", box=None, pad_edge=False)
    for cell in wanted:
        state = "to run" if cell.hash in todo else "finished"
        numbers = (str(cell.batch_size), str(cell.seed), str(cell.images))
        table.add_row(cell.hash[:8], cell.method, cell.domain, cell.scenario, *numbers, state)
    console = wide_console()
    console.print(table)
    expected = duration(seconds(left, chosen.workload, chosen.workers))
    processes = min(chosen.workers, max(1, len(left)))
    console.print(
        f"\n{len(wanted)} cells, {len(left)} to run: about {expected} with {processes} "
        f"worker{'s' if processes > 1 else ''}; nothing was run or written"
    )


def _run(wanted: "list[Protocol]", chosen: "Settings") -> None:
    from ttc.bench.comparison import summaries
    from ttc.bench.runner import pending, preparations, run
    from ttc.bench.store import Store
    from ttc.cli.progress import Display, summary_table, wide_console

    console = wide_console()
    failed: list[tuple[Protocol, str]] = []
    with Store(chosen.store) as store:
        left = pending(wanted, store)
        console.print(f"{len(wanted)} cells, {len(wanted) - len(left)} finished before; results go to {chosen.store}")
        done = 0
        try:
            with Display(console, left, len(preparations(left, chosen.workload))) as display:
                for event in run(left, chosen.workload, store, chosen.workers):
                    display.show(event)
                    done += event.protocol is not None
                    if event.protocol is not None and event.error is not None:
                        failed.append((event.protocol, event.error))
        except KeyboardInterrupt:
            console.print(
                f"\nstopped; {done} of {len(left)} cells are finished and kept in {chosen.store}: "
                "the same command goes on from here"
            )
            raise typer.Exit(130) from None
        places = {cell.hash: place for place, cell in enumerate(wanted)}
        rows = [row for row in store.rows() if row.protocol.hash in places]
        rows.sort(key=lambda row: places[row.protocol.hash])
    console.print(summary_table(summaries(rows)))
    for cell, error in failed:
        console.print(f"failed: {cell.label}: {error}", markup=False)
    console.print(f"results are in {chosen.store}; to see them: ttc results --store {chosen.store}")
    if failed:
        console.print(f"{len(failed)} of {len(left)} cells failed; the same command tries them again")
        raise typer.Exit(1)
