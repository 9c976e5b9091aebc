"""``ttc diagnose``: what the assignment and the update of a method do on a stream, measured."""

from pathlib import Path
from typing import Annotated

import typer

from ttc.cli.data import DataOption


def diagnose(
    corruptions: Annotated[
        str, typer.Option(help="Corruptions, as for ttc run; clean for the images as they are.")
    ] = "gaussian_noise,contrast",
    method: Annotated[
        str, typer.Option(help="A method with an assignment and an update: ttc, tent, eta and their variants.")
    ] = "ttc",
    images: Annotated[int, typer.Option(help="Images per corruption.")] = 500,
    severity: Annotated[int, typer.Option(help="1 to 5.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 100,
    seed: Annotated[int, typer.Option(help="The seed of the order of the images.")] = 0,
    dataset: Annotated[str, typer.Option(help="The data, as for ttc run.")] = "embedded",
    model: Annotated[str, typer.Option(help="The model, as for ttc run.")] = "embedded",
    checkpoint: Annotated[Path | None, typer.Option(help="The weights of a zoo model.")] = None,
    data: DataOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where tables and figures go.")] = Path("diagnosis"),
) -> None:
    """Measure the clustering view of a stream: assignment, neighbours, selection, gradient variance; a figure each.

    Labels are used to measure, never to adapt. k-means and spectral clustering of the features, as references, need
    the extra diagnose (scikit-learn).
    """
    from ttc.bench.grid import Grid
    from ttc.bench.spec import Spec, split_list
    from ttc.bench.workload import Workload
    from ttc.cli.listing import make_console, print_columns
    from ttc.report.formatting import number, readable
    from ttc.report.libraries import require_libraries
    from ttc.report.output import write_files
    from ttc.studies.diagnosis import diagnose_streams

    require_libraries("ttc diagnose")
    workload = Workload(dataset, model, checkpoint, data).resolve()
    grid = Grid(
        methods=(Spec.read(method),),
        corruptions=tuple(split_list(corruptions)),
        severities=(severity,),
        images=images,
        batch_sizes=(batch_size,),
        seeds=(seed,),
    )
    found = diagnose_streams(grid, workload)
    console = make_console()
    console.print(found.headline, markup=False)
    console.print()
    (table,) = found.tables
    columns = {"measure": list(table.rows)}
    for column in table.columns:
        columns[readable(column)] = [number(row[column].ours, table.digits) for row in table.rows.values()]
    print_columns(console, columns)
    for note in found.notes:
        console.print(f"note: {note}", style="dim", markup=False)
    written = write_files(found, output)
    console.print(f"{len(written)} files, figures as SVG, PNG and PDF, are in {output}", markup=False)
