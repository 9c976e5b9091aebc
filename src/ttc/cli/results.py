"""``ttc results``: list, filter, compare and export what is in a store."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.cli.wording import decimal, plural
from ttc.errors import TTCError

if TYPE_CHECKING:
    from rich.console import Console

    from ttc.bench.metrics import Interval
    from ttc.bench.store import Row


class Format(str, enum.Enum):
    """The format of the output."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"
    cells = "cells"


def results(
    store: Annotated[Path, typer.Option(help="The file of results of ttc run.")] = Path("results.sqlite"),
    add: Annotated[
        list[Path] | None,
        typer.Option(
            help="First copy the finished cells of another store, or of a CSV file of --format cells, into this one; "
            "can be repeated."
        ),
    ] = None,
    format: Annotated[
        Format, typer.Option(help="The format of the output; cells is CSV that --add takes.")
    ] = Format.table,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write to.")] = None,
    methods: Annotated[str | None, typer.Option("--methods", "--method", help="Only these.")] = None,
    corruptions: Annotated[str | None, typer.Option("--corruptions", "--corruption", help="Only these.")] = None,
    severities: Annotated[str | None, typer.Option("--severities", "--severity", help="Only these.")] = None,
    scenarios: Annotated[str | None, typer.Option("--scenarios", "--scenario", help="Only these.")] = None,
    batch_sizes: Annotated[str | None, typer.Option("--batch-sizes", "--batch-size", help="Only these.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", "--seed", help="Only these.")] = None,
    images: Annotated[str | None, typer.Option(help="Only cells with so many images.")] = None,
    traces: Annotated[
        bool, typer.Option("--traces", help="Add the per-batch traces to JSON, CSV and Parquet.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="The cells that failed, and why.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Means over corruptions, mean ± std over seeds.")] = False,
    compare: Annotated[
        str | None, typer.Option(help="Two methods, 'tent,ttc': paired bootstrap interval and McNemar test.")
    ] = None,
    cell: Annotated[str | None, typer.Option(help="One cell, by the start of its hash: everything about it.")] = None,
    difference: Annotated[
        str | None, typer.Option(help="Two cells, by the start of their hash: the fields in which they differ.")
    ] = None,
) -> None:
    """List the finished cells of a store, or filter, summarize, compare and export them."""
    from ttc.bench.store import Store
    from ttc.cli.listing import make_console, print_summaries

    for path in add or ():
        typer.echo(f"{plural(_add(path, store), 'cell')} of {path} added to {store}", err=True)
    with Store(store, readonly=True) as opened:
        rows = list(opened.rows())
    console = make_console()
    if difference is not None or cell is not None:
        if difference is not None:
            _print_difference(rows, difference, console)
        if cell is not None:
            _print_cell(rows, cell, console)
        return
    filters = {
        "method": methods,
        "corruption": corruptions,
        "severity": severities,
        "scenario": scenarios,
        "batch_size": batch_sizes,
        "seed": seeds,
        "images": images,
    }
    chosen = _filter(rows, filters)
    rows = [row for row in chosen if row.status == ("failed" if failed else "finished")]
    if compare is not None:
        _print_comparison(rows, compare, console)
    elif summary:
        from ttc.bench.comparison import summaries

        print_summaries(console, summaries(rows))
        if not rows:
            console.print("0 finished cells")
    else:
        _write(rows, format, output, traces, console)
        if format is Format.table and not failed and len(chosen) > len(rows):
            failures = plural(len(chosen) - len(rows), "cell")
            console.print(f"{failures} failed; to see why: ttc results --store {store} --failed", markup=False)


def _add(path: Path, store: Path) -> int:
    """Copy the finished cells of a store or of a CSV file into the store; return how many were new."""
    from ttc.bench.cells_csv import read_cells_csv
    from ttc.bench.store import Store

    if path.suffix.lower() == ".csv":
        cells = read_cells_csv(path)
        with Store(store) as own:
            return own.add_rows(cells)
    with Store(path, readonly=True) as other, Store(store) as own:
        return own.add(other)


def _filter(rows: "Sequence[Row]", filters: dict[str, str | None]) -> "list[Row]":
    from ttc.bench.export import records
    from ttc.bench.spec import Spec, split_list

    wanted = {name: split_list(text) for name, text in filters.items() if text is not None}
    chosen = []
    for row, record in zip(rows, records(rows), strict=True):
        names = {"method": {row.protocol.method, record["label"]}, "corruption": {*row.protocol.corruptions}}
        names["scenario"] = {row.protocol.scenario, Spec.read(row.protocol.scenario).name}
        if all(names.get(name, {str(record[name])}) & set(values) for name, values in wanted.items()):
            chosen.append(row)
    return chosen


def _write(rows: "Sequence[Row]", format: Format, output: Path | None, traces: bool, console: "Console") -> None:
    from ttc.bench.cells_csv import as_cells_csv
    from ttc.bench.export import as_csv, as_json, records, write_parquet
    from ttc.files import atomic

    if format is Format.table:
        _print_table(rows, console)
        return
    if format is Format.parquet:
        if output is None:
            raise TTCError("Parquet is written to a file: add --output FILE")
        write_parquet(records(rows, traces=traces), output)
        typer.echo(f"wrote {plural(len(rows), 'cell')} to {output}", err=True)
        return
    if format is Format.cells:
        text = as_cells_csv(rows)
    else:
        found = records(rows, traces=traces)
        text = f"{as_json(found)}\n" if format is Format.json else as_csv(found)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with atomic(output) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TTCError(f"cannot write {output}: {error.strerror}; choose another --output") from error
    typer.echo(f"wrote {plural(len(rows), 'cell')} to {output}", err=True)


def _print_table(rows: "Sequence[Row]", console: "Console") -> None:
    from ttc.bench.comparison import method_names
    from ttc.cli.listing import print_cells

    names = method_names(rows)
    if any(row.status == "failed" for row in rows):
        for row in rows:
            cell = row.protocol
            console.print(f"{cell.hash[:8]}  {cell.describe(names[cell.hash])}: {row.error}", markup=False)
        console.print(f"\n{plural(len(rows), 'failed cell')}")
        return
    figures = {
        "accuracy %": [decimal(100 * row.figures["accuracy"]) for row in rows],
        "NLL": [decimal(row.figures["nll"], 3) for row in rows],
        "ECE %": [decimal(100 * row.figures["ece"]) for row in rows],
        "passes": [f"{row.cost['forwards']:.3g}/{row.cost['backwards']:.3g}" for row in rows],
        "ms/batch": [decimal(row.cost["median_ms"], 1) for row in rows],
        "MB": [decimal(row.cost["peak_memory_mb"], 1) for row in rows],
    }
    cells = [(row.protocol, names[row.protocol.hash]) for row in rows]
    if cells:
        print_cells(console, cells, figures, optional=("MB", "passes", "ECE %", "NLL", "ms/batch"))
    console.print(f"\n{plural(len(rows), 'finished cell')}")


def _print_comparison(rows: "Sequence[Row]", compare: str, console: "Console") -> None:
    from ttc.bench.comparison import comparisons
    from ttc.bench.spec import split_list
    from ttc.cli.listing import print_columns

    names = split_list(compare)
    if len(names) != 2:
        raise TTCError(f"--compare takes two methods, such as tent,ttc; got '{compare}'")
    found, overall = comparisons(rows, *names)
    columns = {
        "domain": [one.domain for one in found],
        "seed": [str(one.seed) for one in found],
        "images": [str(one.images) for one in found],
        f"{names[0]} %": [decimal(100 * one.first) for one in found],
        f"{names[1]} %": [decimal(100 * one.second) for one in found],
        "difference": [decimal(100 * one.difference.estimate, sign=True) for one in found],
        "95 % interval": [_interval(one.difference) for one in found],
        "only one right": [f"{one.test.only_first} / {one.test.only_second}" for one in found],
        "McNemar p": [f"{one.test.p_value:.2g}" for one in found],
    }
    print_columns(console, columns, optional=("only one right", "images", "seed", "difference"))
    console.print(
        f"\nmean difference over {plural(len(found), 'cell')}, {names[1]} - {names[0]}: "
        f"{decimal(100 * overall.estimate, sign=True)} points, 95 % interval {_interval(overall)} (images resampled)",
        markup=False,
    )


def _interval(interval: "Interval") -> str:
    return f"{decimal(100 * interval.low, sign=True)} … {decimal(100 * interval.high, sign=True)}"


def _print_difference(rows: "Sequence[Row]", difference: str, console: "Console") -> None:
    from ttc.bench.protocol import difference as differing
    from ttc.bench.spec import split_list

    starts = split_list(difference)
    if len(starts) != 2:
        raise TTCError(f"--difference takes the starts of two hashes, such as 1f3a,9c20; got '{difference}'")
    one, other = (_row_of(rows, start).protocol for start in starts)
    changes = differing(one, other)
    for name, (before, after) in changes.items():
        console.print(f"{name}: {before} -> {after}", markup=False)
    if not changes:
        console.print("the same experiment")


def _print_cell(rows: "Sequence[Row]", start: str, console: "Console") -> None:
    from ttc.bench.export import records

    (record,) = records([_row_of(rows, start)])
    for name, value in record.items():
        console.print(f"{name:<16} {value}", markup=False)


def _row_of(rows: "Sequence[Row]", start: str) -> "Row":
    found = [row for row in rows if row.protocol.hash.startswith(start)]
    if len(found) != 1:
        raise TTCError(f"{len(found)} cells have a hash that starts with '{start}'; ttc results lists the cells")
    return found[0]
