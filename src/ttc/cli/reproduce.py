"""``ttc reproduce``: run one of the paper's tables or figures and compare it with the paper's numbers."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ttc.cli.execution import AddressOption, CpusOption, ExecutorOption, GpusOption, SharedFilesOption
from ttc.cli.model_options import StatisticsOption
from ttc.cli.wording import FrostOption
from ttc.errors import TTCError
from ttc.studies import NAMES, PAPER

if TYPE_CHECKING:
    from rich.console import Console

    from ttc.bench.ray_executor import RayExecutor
    from ttc.report.findings import Findings
    from ttc.studies.measurements import Plan
    from ttc.studies.profiles import Need


def reproduce(
    study: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}, or all: those of the paper.")],
    profile: Annotated[
        Literal["embedded", "cpu", "real", "paper"],
        typer.Option(help="The shipped model and images; all of CIFAR-10; your data; the paper's models and data."),
    ] = "embedded",
    images: Annotated[int | None, typer.Option(help="Images per corruption, in place of the profile's.")] = None,
    corruptions: Annotated[str | None, typer.Option(help="Corruptions, in place of the profile's.")] = None,
    seeds: Annotated[str, typer.Option("--seeds", "--seed", help="Seeds of the order of the images.")] = "0",
    methods: Annotated[str | None, typer.Option(help="Only these rows, by method: source,tent,ttc.")] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(
            "--batch-sizes",
            "--batch-size",
            help="Images per batch, in place of 100; where a study varies them: only these.",
        ),
    ] = None,
    scenarios: Annotated[str | None, typer.Option(help="Only these rows, by scenario: per-domain,continual.")] = None,
    on: Annotated[
        Literal["cifar10c", "cifar100c", "imagenetc"] | None,
        typer.Option(help="With --profile paper: the data for components, batch-size, severity and other studies."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Other data, as for ttc run.")] = None,
    model: Annotated[str | None, typer.Option(help="Another model, as for ttc run.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="The weights of that model.")] = None,
    statistics: StatisticsOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data directory, else TTC_DATA, else the platform's cache directory. With --profile real: the "
            "folder of your images, CIFAR-10, CIFAR-100 or one folder per class."
        ),
    ] = None,
    frost_dir: FrostOption = None,
    store: Annotated[Path, typer.Option(help="The file of results, shared by all studies.")] = Path("results.sqlite"),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: reproduction/PROFILE.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. Default one per core.", min=1)] = None,
    threads: Annotated[int, typer.Option(help="Torch threads per cell; part of the protocol.")] = 1,
    dtype: Annotated[
        str, typer.Option(help="float32, float64 or bfloat16: computed in it, stored in float32.")
    ] = "float32",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:0 …")] = None,
    executor: ExecutorOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    shared_files: SharedFilesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is missing and how long it takes.")] = False,
) -> None:
    """Run a table or figure of the paper and show our numbers beside the paper's; run it again to resume.

    Studies share cells: what one study ran, the next takes from the store.
    """
    from rich.console import Console

    from ttc.bench.environment import cores
    from ttc.bench.spec import split_list
    from ttc.cli.execution import count_workers, make_executor
    from ttc.cli.run_loop import print_note_on_single_batches
    from ttc.report.libraries import require_libraries
    from ttc.studies import study_named
    from ttc.studies.measurements import plan
    from ttc.studies.profiles import real_data, setup

    if not dry_run:
        require_libraries("ttc reproduce")  # now, not after hours of measuring
    cluster = make_executor(
        executor, threads=threads, address=address, cpus=cpus, gpus=gpus, workers=workers, shared_files=shared_files,
        device=device,
    )  # fmt: skip
    console = Console(soft_wrap=True, highlight=False)
    chosen = [study_named(name) for name in (PAPER if study == "all" else split_list(study))]
    numbers = _whole_numbers("--seeds", seeds, "0,1,2", least=0)
    processes = count_workers(cluster if dry_run else None, workers or cores(), given=workers is not None)
    wanted = tuple(split_list(corruptions)) if corruptions else ()
    rows = tuple(split_list(methods)) if methods else ()
    orders = tuple(split_list(scenarios)) if scenarios else ()
    sizes = () if batch_sizes is None else _whole_numbers("--batch-sizes", batch_sizes, "8,100", least=1)
    if on and not any(one.elsewhere for one in chosen):
        movable = ", ".join(name for name in NAMES if study_named(name).elsewhere)
        raise TTCError(f"--on is for {movable}; {study} has its own data")
    for one in chosen:
        moved, root, images_of = on if on and one.elsewhere else one.setting, data, dataset
        if profile == "real":
            root = None
            if data is not None and dataset is None and one.entries:
                moved, images_of = real_data(data, "" if one.elsewhere and not on else moved)
        usual = one.embedded_sizes if profile == "embedded" else ()
        one = one.restrict(rows, sizes or usual, orders) if one.entries else one
        one = one if moved == one.setting else replace(one, name=f"{one.name}-{moved}")
        made = setup(
            profile,
            moved,
            root=root,
            dataset=images_of,
            model=model,
            checkpoint=checkpoint,
            device=device,
            frost_dir=frost_dir,
            statistics=statistics,
        )
        missing = [need for need in made.needs if need.required and not need.present] if one.entries else []
        if dry_run:
            _print_needs(console, one.title, made.needs if one.entries else (), profile)
        if missing and dry_run:
            continue
        if missing:
            ways = "; ".join(f"{need.what}: {need.get}" for need in missing)
            raise TTCError(f"the {profile} profile of {one.name} needs what is missing here: {ways}")
        folder = output or Path("reproduction") / profile
        if profile == "real" and not output:
            folder /= f"{moved}-{_file_name(made.workload.model, statistics)}"
        planned = plan(
            one, made, images=images, corruptions=wanted, seeds=numbers, threads=threads, dtype=dtype,
            planned_on="cpu" if cluster else None,
        )  # fmt: skip
        print_note_on_single_batches(planned.protocols, console)
        if dry_run:
            _print_dry_run(console, planned, store, processes)
        else:
            _run(console, planned, store, processes, folder, cluster)


def _whole_numbers(option: str, text: str, example: str, *, least: int) -> tuple[int, ...]:
    from ttc.bench.spec import split_list

    parts = split_list(text)
    if not parts or not all(part.isdecimal() and int(part) >= least for part in parts):
        raise TTCError(f"{option} takes whole numbers from {least}, such as {example}; got '{text}'")
    return tuple(map(int, parts))


def _file_name(model: str, statistics: str | None) -> str:
    """The model as the name of a folder: what was measured with another model is not overwritten."""
    name = model.rpartition(":")[2] + (f"-{statistics}" if statistics else "")
    return "".join(character if character.isalnum() or character in "-_." else "-" for character in name)


def _print_needs(console: "Console", title: str, needs: "tuple[Need, ...]", profile: str) -> None:
    console.print(f"\n{title}, profile {profile}", style="bold")
    for need in needs:
        state = "[green]present[/]" if need.present else "[red]missing[/]"
        console.print(f"  {state}  {need.what}", end="")
        console.print(f": {need.detail}" + ("" if need.present else f"; to get it: {need.get}"), markup=False)


def _print_dry_run(console: "Console", planned: "Plan", store: Path, workers: int) -> None:
    from ttc.cli.run_loop import describe_dry_run, missing_cells

    cells = planned.protocols
    if not cells:
        console.print("  no data and no cells: computed at once")
        return
    left = missing_cells(cells, store)
    console.print(f"  {describe_dry_run(cells, left, planned.setup.resolved, workers, store)}")


def _run(
    console: "Console", planned: "Plan", store: Path, workers: int, folder: Path, cluster: "RayExecutor | None"
) -> None:
    from ttc.cli.run_loop import CompletedRun, exit_if_failed, run_cells
    from ttc.report.output import write_files
    from ttc.studies.measurements import Measurements
    from ttc.studies.reproduction import findings

    done = CompletedRun([], 0, [])
    if planned.protocols:
        console.print(f"{planned.study.name}: ", end="", markup=False)
        done = run_cells(planned.protocols, planned.setup.resolved, store, workers, console, cluster)
    found = findings(Measurements(planned, done.rows))
    written = write_files(found, folder)
    _show(console, found)
    console.print(f"{len(written)} files are in {folder}; for one page about everything: ttc report --studies {folder}")
    exit_if_failed(done, store, console)


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
