"""``ttc report``: every result as one page, and as tables and figures to use elsewhere."""

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ttc
from ttc.errors import TTCError
from ttc.studies import NAMES

if TYPE_CHECKING:
    from ttc.report.findings import Findings


def report(
    studies: Annotated[Path, typer.Option(help="Where ttc reproduce wrote.")] = Path("reproduction/embedded"),
    store: Annotated[Path, typer.Option(help="The store of ttc run; its cells that no study shows are added.")] = Path(
        "results.sqlite"
    ),
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write to.")] = Path("report"),
    title: Annotated[str, typer.Option(help="The title of the page.")] = "Test-time adaptation: results",
) -> None:
    """Write one self-contained HTML page, with Markdown, LaTeX and CSV tables and SVG, PNG and PDF figures."""
    from ttc.files import atomic
    from ttc.report.libraries import require_libraries
    from ttc.report.output import read_folder, write_files
    from ttc.report.page import render_page

    require_libraries("ttc report")
    found = read_folder(studies) if studies.is_dir() else []
    found.sort(key=lambda one: NAMES.index(one.study) if one.study in NAMES else len(NAMES))
    found += _rest(store, {cell.hash for study in found for cell in study.cells})
    if not found:
        raise TTCError(f"there is nothing to report in {studies} and {store}; run ttc reproduce or ttc run first")
    moment = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    text = render_page(found, title, f"ttc {ttc.__version__}, {moment}")
    try:
        with atomic(output / "report.html") as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TTCError(f"cannot write to {output} ({error.strerror}); choose another --output") from error
    for study in found:
        write_files(study, output)
    typer.echo(f"{output / 'report.html'} ({len(text.encode()) / 1e6:.1f} MB); tables and figures are in {output}")


def _rest(store: Path, known: set[str]) -> "list[Findings]":
    """The cells of the store that no study shows."""
    if not store.exists():
        return []
    from ttc.bench.store import Store
    from ttc.report.overview import overview

    with Store(store, readonly=True) as opened:
        return overview([row for row in opened.rows() if row.protocol.hash not in known])
