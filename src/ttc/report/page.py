"""One self-contained page about everything, rendered from a Jinja2 template."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from ttc.report.findings import Cell, Findings, ResultTable, Value
from ttc.report.formatting import number, readable
from ttc.report.libraries import require_libraries
from ttc.report.palette import PAGE_FONT, ROLES, vega_config
from ttc.report.result_tables import shared_fields

LONG = 24  # rows above which a table is folded
_COLOURS = {**ROLES, "yes": ("#00694d", "#3fc79a"), "no": ("#a84400", "#ff9a57")}
_VERDICTS = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "undecided": ("undecided", "~")}


def render_page(findings: Sequence[Findings], title: str, made: str) -> str:
    """Render the page of some studies, the summary first.

    Args:
        findings: The studies in reading order.
        title: The title of the page.
        made: When and with what it was made.

    Returns:
        HTML that needs no network: styles, data and the plotting JavaScript are inside.
    """
    require_libraries("the page")
    import jinja2
    import vl_convert

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub lacks the default
    bundle = bundle.replace("</script", "<\\/script")
    text: str = environment.from_string(_resource("page.html.j2")).render(
        findings=findings,
        title=title,
        made=made,
        lead=next((study.headline for study in findings if study.headline), ""),
        summary=_summary(findings),
        cells=list({cell.hash: cell for study in findings for cell in study.cells}.values()),
        long=LONG,
        verdicts=_VERDICTS,
        colours=_COLOURS,
        config=vega_config(lambda role: f"var(--{role})", PAGE_FONT),
        css=_resource("page.css"),
        javascript=_resource("page.js"),
        bundle=bundle,
        **_functions(),
    )
    return text.lstrip()


def _functions() -> dict[str, Callable[..., Any]]:
    """What the template calls."""
    return {
        "number": number,
        "readable": readable,
        "raw": lambda value: "" if value is None else f"{value:.6g}",
        "tip": _tip,
        "counted": _counted,
        "shared": lambda study: shared_fields(cell.protocol for cell in study.cells),
        "paper_columns": _paper_columns,
        "cell_line": _cell_line,
        "cell_record": _cell_record,
    }


def _resource(name: str) -> str:
    return (files("ttc.report") / name).read_text(encoding="utf-8")


def _summary(findings: Sequence[Findings]) -> str:
    # without the paper's data several studies run the same cells: their claims are counted once
    verdicts = [claim.verdict for claim in dict.fromkeys(claim for study in findings for claim in study.claims)]
    if not verdicts:
        return ""
    counts = [_counted(verdicts.count(verdict), verdict) for verdict in _VERDICTS if verdict in verdicts]
    tested = "1 claim of the paper was" if len(verdicts) == 1 else f"{len(verdicts)} claims of the paper were"
    return f"{tested} tested here: {', '.join(counts)}."


def _counted(count: int, verdict: str) -> str:
    many = {"holds": "hold", "does not hold": "do not hold"}
    return f"{count} {verdict if count == 1 else many.get(verdict, verdict)}"


def _tip(value: Value) -> str:
    notes = [f"± {number(value.error, 2)}" if value.error is not None else "", value.flag]
    if value.paper is not None:
        notes.insert(1, f"paper {number(value.paper)}, difference {number(value.difference, sign=True)}")
    return "; ".join(note for note in notes if note)


def _paper_columns(table: ResultTable) -> list[str]:
    return [column for column in table.columns if table.beside_paper(column)]


def _cell_line(cell: Cell) -> str:
    protocol = cell.protocol
    place = ", ".join(readable(name) for name in protocol["corruptions"][:3])
    accuracy = f"{number(100 * cell.figures['accuracy'], 2)} %"
    return f"{protocol['method']}, {place}, batch {protocol['batch_size']}, seed {protocol['seed']}: {accuracy}"


def _cell_record(cell: Cell) -> dict[str, Any]:
    return {
        "hash": cell.hash,
        **cell.protocol,
        **{name: f"{value:.5g}" for name, value in cell.figures.items()},
        **{name.replace("_", " "): f"{value:.5g}" for name, value in cell.cost.items()},
        **{f"on: {name}": value for name, value in cell.environment.items() if value is not None},
        "seconds": number(cell.seconds),
        "recorded": cell.recorded,
        **({"warnings": "; ".join(cell.warnings)} if cell.warnings else {}),
    }
