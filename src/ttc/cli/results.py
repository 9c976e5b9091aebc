"""``ttc results``: list, filter, compare and export what is in a store."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.errors import TTCError

if TYPE_CHECKING:
    from rich.console import Console

    from ttc.bench.store import Row


class Format(str, enum.Enum):
    """How results are written."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"


def results(
    store: Annotated[Path, typer.Option(help="The store that ttc run made.")] = Path("results.sqlite"),
    format: Annotated[Format, typer.Option(help="How to write them.")] = Format.table,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write to.")] = None,
    methods: Annotated[str | None, typer.Option("--methods", "--method", help="Only these.")] = None,
    corruptions: Annotated[str | None, typer.Option("--corruptions", "--corruption", help="Only these.")] = None,
    severities: Annotated[str | None, typer.Option("--severities", "--severity", help="Only these.")] = None,
    scenarios: Annotated[str | None, typer.Option("--scenarios", "--scenario", help="Only these.")] = None,
    batch_sizes: Annotated[str | None, typer.Option("--batch-sizes", "--batch-size", help="Only these.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", "--seed", help="Only these.")] = None,
    images: Annotated[str | None, typer.Option(help="Only cells of so many images.")] = None,
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
    from ttc.cli.progress import wide_console

    with Store(store, readonly=True) as opened:
        rows = list(opened.rows())
    wide = wide_console()
    if difference is not None or cell is not None:
        _print_difference(rows, difference, wide) if difference is not None else _print_cell(rows, str(cell), wide)
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
    chosen = _filtered(rows, filters)
    rows = [row for row in chosen if row.status == ("failed" if failed else "finished")]
    if compare is not None:
        _print_comparison(rows, compare, wide)
    elif summary:
        from ttc.bench.comparison import summaries
        from ttc.cli.progress import summary_table

        wide.print(summary_table(summaries(rows)))
    else:
        _write(rows, format, output, traces, wide)
        if format is Format.table and not failed and len(chosen) > len(rows):
            wide.print(f"{len(chosen) - len(rows)} cells failed; to see why: ttc results --store {store} --failed")


def _filtered(rows: "Sequence[Row]", filters: dict[str, str | None]) -> "list[Row]":
    from ttc.bench.export import records
    from ttc.bench.spec import Spec, listed

    wanted = {name: listed(text) for name, text in filters.items() if text is not None}
    kept = []
    for row, record in zip(rows, records(rows), strict=True):
        names = {"method": {row.protocol.method, record["label"]}, "corruption": {*row.protocol.corruptions}}
        names["scenario"] = {row.protocol.scenario, Spec.read(row.protocol.scenario).name}
        if all(names.get(name, {str(record[name])}) & set(values) for name, values in wanted.items()):
            kept.append(row)
    return kept


def _write(rows: "Sequence[Row]", format: Format, output: Path | None, traces: bool, console: "Console") -> None:
    from ttc.bench.export import as_csv, as_json, records, write_parquet
    from ttc.files import atomic

    if format is Format.table:
        _print_table(rows, console)
        return
    found = records(rows, traces=traces)
    if format is Format.parquet:
        if output is None:
            raise TTCError("Parquet is written to a file: add --output FILE")
        write_parquet(found, output)
    elif output is None:
        typer.echo(as_json(found) if format is Format.json else as_csv(found), nl=format is Format.json)
        return
    else:
        try:
            with atomic(output) as part:
                part.write_text(as_json(found) if format is Format.json else as_csv(found), encoding="utf-8")
        except OSError as error:
            raise TTCError(f"cannot write {output}: {error.strerror}; choose another --output") from error
    typer.echo(f"{len(found)} cells are in {output}", err=True)


def _print_table(rows: "Sequence[Row]", console: "Console") -> None:
    from rich.table import Table

    from ttc.bench.comparison import method_names

    failed = any(row.status == "failed" for row in rows)
    figures = ["why"] if failed else ["accuracy %", "error %", "NLL", "ECE %", "passes", "ms/batch", "MB"]
    table = Table("cell", "method", "domain", "scenario", "batch", "seed", "images", *figures, box=None, pad_edge=False)
    names = method_names(rows)
    for row in rows:
        cell = row.protocol
        numbers = [str(cell.batch_size), str(cell.seed), str(cell.images)]
        table.add_row(cell.hash[:8], names[cell.hash], cell.domain, cell.scenario, *numbers, *_figures(row))
    console.print(table)
    console.print(f"\n{len(rows)} {'failed' if failed else 'finished'} cells")


def _figures(row: "Row") -> list[str]:
    if row.status == "failed":
        return [row.error or ""]
    found, cost = row.figures, row.cost
    return [
        f"{100 * found['accuracy']:.2f}",
        f"{100 - 100 * found['accuracy']:.2f}",
        f"{found['nll']:.3f}",
        f"{100 * found['ece']:.2f}",
        f"{cost['forwards']:.3g}/{cost['backwards']:.3g}",
        f"{cost['median_ms']:.1f}",
        f"{cost['peak_memory_mb']:.1f}",
    ]


def _print_comparison(rows: "Sequence[Row]", compare: str, console: "Console") -> None:
    from rich.table import Table

    from ttc.bench.comparison import comparisons
    from ttc.bench.spec import listed

    names = listed(compare)
    if len(names) != 2:
        raise TTCError(f"--compare takes two methods, such as tent,ttc; got '{compare}'")
    found, overall = comparisons(rows, *names)
    table = Table("domain", "seed", "images", f"{names[0]} %", f"{names[1]} %", "difference", "95 % interval",
                  "only one right", "McNemar p", box=None, pad_edge=False)  # fmt: skip
    for one in found:
        table.add_row(
            one.domain,
            str(one.seed),
            str(one.images),
            f"{100 * one.first:.2f}",
            f"{100 * one.second:.2f}",
            f"{100 * one.difference.estimate:+.2f}",
            f"{100 * one.difference.low:+.2f} … {100 * one.difference.high:+.2f}",
            f"{one.test.only_first} / {one.test.only_second}",
            f"{one.test.p_value:.2g}",
        )
    console.print(table)
    console.print(
        f"\nmean difference over {len(found)} cell{'s' * (len(found) > 1)}, {names[1]} - {names[0]}: "
        f"{100 * overall.estimate:+.2f} points, "
        f"95 % interval {100 * overall.low:+.2f} … {100 * overall.high:+.2f} (images resampled)"
    )


def _print_difference(rows: "Sequence[Row]", difference: str, console: "Console") -> None:
    from ttc.bench.protocol import difference as differing
    from ttc.bench.spec import listed

    starts = listed(difference)
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
