"""``ttc reproduce``: run one of the paper's tables or figures and hold it against the paper's numbers."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ttc.cli.data import DataOption
from ttc.errors import TTCError
from ttc.studies import NAMES

if TYPE_CHECKING:
    from rich.console import Console

    from ttc.report.findings import Findings
    from ttc.studies.measurements import Plan
    from ttc.studies.profiles import Need


def reproduce(
    study: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}, or all.")],
    profile: Annotated[
        Literal["embedded", "cpu", "paper"],
        typer.Option(help="The shipped model and images; all of CIFAR-10; the paper's models and data."),
    ] = "embedded",
    images: Annotated[int | None, typer.Option(help="Images of each corruption, in place of the profile's.")] = None,
    corruptions: Annotated[str | None, typer.Option(help="Corruptions, in place of the profile's.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", "--seed", help="Seeds of the order of the images.")] = "0",
    on: Annotated[
        Literal["cifar10c", "cifar100c", "imagenetc"] | None,
        typer.Option(help="With --profile paper: the data for components, collapse, batch-size, ambiguities."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Other data, as for ttc run.")] = None,
    model: Annotated[str | None, typer.Option(help="Another model, as for ttc run.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="The weights of that model.")] = None,
    data: DataOption = None,
    store: Annotated[Path, typer.Option(help="Where cells are kept, and taken from.")] = Path("results.sqlite"),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: reproduction/PROFILE.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one for each core unless given.")] = None,
    threads: Annotated[int, typer.Option(help="Torch threads of a cell; part of the protocol.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:0 …")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is needed, present and missing.")] = False,
) -> None:
    """Run a table or figure of the paper and show our numbers beside the paper's; run it again to go on.

    Studies share cells: what one has measured, the next takes from the store.
    """
    from rich.console import Console

    from ttc.bench.environment import cores
    from ttc.bench.spec import listed
    from ttc.report.libraries import require_libraries
    from ttc.studies import study_named
    from ttc.studies.measurements import plan
    from ttc.studies.profiles import setup

    if not dry_run:
        require_libraries("ttc reproduce")  # now, not after hours of measuring
    console = Console(soft_wrap=True, highlight=False)
    chosen = [study_named(name) for name in (NAMES if study == "all" else listed(study))]
    numbers = listed(seeds)
    if not numbers or not all(number.isdigit() for number in numbers):
        raise TTCError(f"--seeds takes whole numbers, such as 0,1,2; got '{seeds}'")
    folder = output or Path("reproduction") / profile
    if on and not any(one.elsewhere for one in chosen):
        raise TTCError(f"--on is for components, collapse, batch-size and ambiguities; {study} has its own data")
    for one in chosen:
        moved = on if on and one.elsewhere and on != one.setting else one.setting
        one = one if moved == one.setting else replace(one, name=f"{one.name}-{moved}")
        made = setup(
            profile, moved, root=data, dataset=dataset, model=model, checkpoint=checkpoint, device=device
        )  # fmt: skip
        missing = [need for need in made.needs if need.required and not need.present] if one.entries else []
        if dry_run:
            _needs(console, one.title, made.needs if one.entries else (), profile)
        if missing and dry_run:
            continue
        if missing:
            ways = "; ".join(f"{need.what}: {need.get}" for need in missing)
            raise TTCError(f"the {profile} profile of {one.name} needs what is not here: {ways}")
        wanted = tuple(listed(corruptions)) if corruptions else ()
        planned = plan(one, made, images=images, corruptions=wanted, seeds=tuple(map(int, numbers)), threads=threads)
        if dry_run:
            _forecast(console, planned, store, workers or cores())
        else:
            _run(console, planned, store, workers or cores(), folder)


def _needs(console: "Console", title: str, needs: "tuple[Need, ...]", profile: str) -> None:
    console.print(f"\n{title}, profile {profile}", style="bold")
    for need in needs:
        state = "[green]present[/]" if need.present else "[red]missing[/]"
        console.print(f"  {state}  {need.what}", end="")
        console.print(f": {need.detail}" + ("" if need.present else f"; to get it: {need.get}"), markup=False)


def _forecast(console: "Console", planned: "Plan", store: Path, workers: int) -> None:
    from ttc.bench.estimate import seconds
    from ttc.bench.runner import pending
    from ttc.bench.store import Store
    from ttc.cli.progress import duration

    cells = planned.protocols
    left = cells
    if store.exists():
        with Store(store, readonly=True) as opened:
            left = pending(cells, opened)
    if not cells:
        console.print("  no data and no cells: computed at once")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about batches of one: the study is there to show it
        expected = duration(seconds(left, planned.setup.workload, workers)) if left else "no time"
    console.print(f"  {len(cells)} cells, {len(left)} to run: about {expected}; nothing was run or written")


def _run(console: "Console", planned: "Plan", store: Path, workers: int, folder: Path) -> None:
    from ttc.bench.runner import pending, preparations, run
    from ttc.bench.store import Store
    from ttc.cli.progress import Display
    from ttc.report.output import write_files
    from ttc.studies.measurements import Measurements
    from ttc.studies.reproduction import findings

    study, cells, failed, done = planned.study, planned.protocols, 0, 0
    rows = []
    if cells:
        with Store(store) as opened:
            left = pending(cells, opened)
            console.print(
                f"{study.name}: {len(cells)} cells, {len(cells) - len(left)} finished before; results go to {store}"
            )
            try:
                workload = planned.setup.workload
                with Display(console, left, len(preparations(left, workload))) as display:
                    for event in run(left, workload, opened, workers):
                        display.show(event)
                        done += event.protocol is not None
                        failed += event.protocol is not None and event.error is not None
            except KeyboardInterrupt:
                console.print(
                    f"\nstopped; {done} of {len(left)} cells are kept in {store}: the same command goes on from here"
                )
                raise typer.Exit(130) from None
            hashes = {cell.hash for cell in cells}
            rows = [row for row in opened.rows() if row.protocol.hash in hashes]
    found = findings(Measurements(planned, rows))
    written = write_files(found, folder)
    _show(console, found)
    console.print(f"{len(written)} files are in {folder}; for one page about everything: ttc report --studies {folder}")
    if failed:
        console.print(f"{failed} cells failed: ttc results --failed --store {store} says why; run again to retry")
        raise typer.Exit(1)


def _show(console: "Console", found: "Findings") -> None:
    from rich.table import Table

    from ttc.report.formatting import number

    console.print(f"\n{found.title}", style="bold")
    console.print(found.headline, markup=False)
    for table in found.tables:
        column = table.columns[0]
        if not any(value.paper is not None or value.error for row in table.rows.values() for value in row.values()):
            continue
        shown = Table(column, "ours %", "±", "paper %", "difference", "", box=None, pad_edge=False)
        for row, values in table.rows.items():
            value = values[column]
            gap = number(value.difference, sign=True)
            marked = [name for name, one in values.items() if one.flag and name != column]
            mark = value.flag.partition(";")[0] + (f" (also {', '.join(marked)})" if marked else "")
            shown.add_row(row, number(value.ours), number(value.error, 2), number(value.paper), gap, mark)
        console.print(shown)
        break
    for claim in found.claims:
        colour = {"holds": "green", "does not hold": "red"}.get(claim.verdict, "yellow")
        console.print(f"[{colour}]{claim.verdict:>13}[/]", end="  ")
        console.print(f"{claim.text} {claim.evidence}", markup=False)
    for note in found.notes:
        console.print(f"note: {note}", style="dim", markup=False)
