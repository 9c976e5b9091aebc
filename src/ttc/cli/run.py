"""``ttc run``: evaluate a grid of methods, corruptions and scenarios, and store every result."""

from pathlib import Path
from typing import Annotated

import typer

from ttc.cli.execution import AddressOption, CpusOption, ExecutorOption, GpusOption, SharedFilesOption
from ttc.cli.model_options import StatisticsOption
from ttc.cli.wording import FrostOption


def run(
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, with options: 'norm,ttc(bandwidth=2)'. A method of your own is "
            "my_module:my_builder: the module is imported, also from the current directory, which runs its code."
        ),
    ] = None,
    corruptions: Annotated[
        str | None, typer.Option(help="Names, groups (noise, blur, weather, digital, extra, all), clean.")
    ] = None,
    severities: Annotated[str | None, typer.Option("--severities", "--severity", help="1 to 5. Default 5.")] = None,
    images: Annotated[int | None, typer.Option(help="Images per domain. Default all.")] = None,
    batch_sizes: Annotated[
        str | None, typer.Option("--batch-sizes", "--batch-size", help="Images per batch. Default 100.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", "--seed", help="Seeds of the order of the images. Default 0.")
    ] = None,
    scenarios: Annotated[
        str | None,
        typer.Option(
            "--scenarios",
            "--scenario",
            help="per-domain, continual, episodic, gradual, clean-corrupt-clean, mixed, label-shift(alpha=0.1), "
            "long-tailed(ratio=10), recurring(rounds=20), repeated(epochs=3), single-image.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="embedded, cifar10[:PATH], cifar10-c, cifar100[:PATH], cifar100-c, imagenet, imagenet-c, "
            "imagefolder:PATH[@SIZE]."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="embedded, a zoo name, timm:NAME, torchvision:NAME, or package.module:function for a model of your "
            "own: the module is imported, also from the current directory, which runs its code."
        ),
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="The weights of the model.")] = None,
    statistics: StatisticsOption = None,
    data: Annotated[
        Path | None, typer.Option(help="The data directory; else TTC_DATA, else the cache directory.")
    ] = None,
    source_split: Annotated[
        str | None,
        typer.Option(
            help="Where eata and rmt get source images: clean[:N] for clean images that are not evaluated (default), "
            "cifar10-train[:N], cifar100-train[:N] or another dataset."
        ),
    ] = None,
    frost_dir: FrostOption = None,
    store: Annotated[Path | None, typer.Option(help="The file of results. Default results.sqlite.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. Default one per core.", min=1)] = None,
    threads: Annotated[
        int | None, typer.Option(help="Torch threads per cell; part of the protocol. Default 1.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, float64 or bfloat16: computed in it, stored in float32.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:0 …")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the same settings; flags take precedence.")
    ] = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Let the file of --config name module:function, whose code runs.")
    ] = False,
    executor: ExecutorOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    shared_files: SharedFilesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and estimate how long they take.")] = False,
) -> None:
    """Evaluate a grid of methods, corruptions and scenarios; run it again to resume where it stopped.

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
        "statistics": statistics,
        "data": data,
        "source_split": source_split,
        "frost_dir": frost_dir,
        "store": store,
        "workers": workers,
        "threads": threads,
        "dtype": dtype,
        "device": device,
    }
    from ttc.bench.comparison import summaries
    from ttc.bench.grid import cells
    from ttc.bench.method_specs import method_label
    from ttc.bench.run_config import load_config
    from ttc.cli.execution import count_workers, make_executor
    from ttc.cli.listing import make_console, print_cells, print_summaries
    from ttc.cli.run_loop import (
        describe_dry_run,
        exit_if_failed,
        missing_cells,
        print_note_on_single_batches,
        run_cells,
    )

    chosen = load_config(config, flags, allow_code=allow_code)
    cluster = make_executor(
        executor, threads=chosen.grid.threads, address=address, cpus=cpus, gpus=gpus, workers=workers,
        shared_files=shared_files, device=chosen.grid.device,
    )  # fmt: skip
    workload = chosen.workload.resolve()
    wanted = cells(chosen.grid, workload, planned_on="cpu" if cluster else None)
    console = make_console()
    print_note_on_single_batches(wanted, console)
    if dry_run:
        left = missing_cells(wanted, chosen.store)
        todo = {cell.hash for cell in left}
        states = ["to run" if cell.hash in todo else "finished" for cell in wanted]
        print_cells(console, [(cell, method_label(cell)) for cell in wanted], {"state": states})
        processes = count_workers(cluster, chosen.workers, given=workers is not None)
        console.print(f"\n{describe_dry_run(wanted, left, workload, processes, chosen.store)}")
        return
    done = run_cells(wanted, workload, chosen.store, chosen.workers, console, cluster)
    console.print()
    print_summaries(console, summaries(done.rows))
    for split in dict.fromkeys(cell.source_split for cell in wanted if cell.source_split):
        names = dict.fromkeys(cell.method for cell in wanted if cell.source_split == split)
        console.print(f"source images: {', '.join(names)} got the split {split}, without labels", markup=False)
    console.print(f"results are in {chosen.store}; to list them: ttc results --store {chosen.store}", markup=False)
    exit_if_failed(done, chosen.store, console)
