"""One page about everything: no network, light and dark, from a phone to paper."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from ttc.report.charts import readable
from ttc.report.findings import Cell, Claim, Figure, Findings, Table, Value
from ttc.report.labels import number
from ttc.report.palette import ROLES
from ttc.report.tables import common

WIDE, NARROW, LONG = 760, 350, 24  # widths at which charts are laid out; rows above which a table is folded
_COLOURS = {**ROLES, "yes": ("#00694d", "#3fc79a"), "no": ("#a84400", "#ff9a57")}
_CHIPS = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "undecided": ("undecided", "~")}


def page(findings: Sequence[Findings], title: str, made: str) -> str:
    """The page of some studies, the summary first; ``made`` says when and with what it was made."""
    cells = {cell.hash: cell for study in findings for cell in study.cells}
    resources = files("ttc.report")
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{escape(title)}</title><link rel="icon" href="data:,">',
        f"<style>{theme()}{(resources / 'page.css').read_text(encoding='utf-8')}</style></head>",
        f'<body><header><div><h1>{escape(title)}</h1><p class="quiet">{escape(made)}</p></div>'
        '<button id="theme" type="button" hidden>Theme</button></header><main>',
        _summary(findings),
        *(_study(study) for study in findings),
        _cells(list(cells.values())),
        "</main>",
        f'<footer class="quiet">{escape(made)}</footer>',
        f"<script>{(resources / 'page.js').read_text(encoding='utf-8')}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def theme() -> str:
    """The colours of both themes: the system's choice, the reader's, and light on paper."""
    light, dark = ("".join(f"--{role}:{pair[side]};" for role, pair in _COLOURS.items()) for side in (0, 1))
    return (
        f":root{{{light}}}@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}@media print{{:root,:root[data-theme=dark]{{{light}}}}}"
    )


def _summary(findings: Sequence[Findings]) -> str:
    lead = next((study.headline for study in findings if study.headline), "")
    cards = "".join(
        f'<li><a href="#{escape(study.study)}">{escape(study.title)}</a><p>{escape(study.headline)}</p>'
        f'<div class="chips">{_counts(study.claims)}</div></li>'
        for study in findings
    )
    # Away from the paper's data several studies come down to the same cells: what they say is counted once.
    verdicts = [claim.verdict for claim in dict.fromkeys(claim for study in findings for claim in study.claims)]
    count = f"{len(verdicts)} claims of the paper were tried here: " + ", ".join(
        _counted(verdicts.count(verdict), verdict) for verdict in _CHIPS if verdict in verdicts
    )
    told = f"<p>{escape(count)}.</p>" if verdicts else ""
    return (
        f'<section id="summary"><p class="lead">{escape(lead)}</p>{told}<nav aria-label="Studies">'
        f'<ul class="cards">{cards}</ul></nav></section>'
    )


def _counts(claims: Iterable[Claim]) -> str:
    verdicts = [claim.verdict for claim in claims]
    return "".join(
        f'<span class="chip {kind}">{sign} {escape(_counted(verdicts.count(verdict), verdict))}</span>'
        for verdict, (kind, sign) in _CHIPS.items()
        if verdict in verdicts
    )


def _counted(count: int, verdict: str) -> str:
    many = {"holds": "hold", "does not hold": "do not hold"}
    return f"{count} {verdict if count == 1 else many.get(verdict, verdict)}"


def _study(study: Findings) -> str:
    ordered = sorted(study.tables, key=lambda table: len(table.rows) > LONG)
    parts = [
        f'<section id="{escape(study.study)}"><h2>{escape(study.title)}</h2>',
        f"<p>{escape(study.about)}</p>",
        f'<p class="lead">{escape(study.headline)}</p>' if study.headline else "",
        _claims(study.claims),
        *(_figure(figure) for figure in study.figures),
        *(_table(table) for table in ordered),
        "".join(f'<p class="quiet">{escape(note)}</p>' for note in study.notes),
        _protocol(study),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    lines = []
    for claim in claims:
        kind, sign = _CHIPS[claim.verdict]
        evidence = f'<br><span class="quiet">{escape(claim.evidence)}</span>'
        chip = f'<span class="chip {kind}">{sign} {escape(claim.verdict)}</span>'
        lines.append(f"<li>{chip}<span>{escape(claim.text)}{evidence}</span></li>")
    return f'<h3>What the paper claims, here</h3><ul class="claims">{"".join(lines)}</ul>'


def _figure(figure: Figure) -> str:
    wide, narrow = (figure.chart.svg(width, alone=False) for width in (WIDE, NARROW))
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
    return f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>{caption}</figure>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(readable(column))}</th>" for column in table.columns)
    best = {column: table.winners(column) for column in table.columns}
    body = "".join(
        f"<tr><th>{escape(row)}</th>"
        + "".join(_cell(values.get(column, Value(None)), table, row in best[column]) for column in table.columns)
        + "</tr>"
        for row, values in table.rows.items()
    )
    notes = "".join(f'<p class="quiet">{escape(note)}</p>' for note in table.notes)
    heads = f"<thead><tr><th>{escape(table.what)}</th>{head}</tr></thead>"
    grid = f'<table class="sortable">{heads}<tbody>{body}</tbody></table>'
    whole = f'<div class="scroll">{grid}</div>{notes}{_beside(table)}'
    if len(table.rows) > LONG:
        return f"<details><summary>{escape(table.title)}: {len(table.rows)} rows</summary>{whole}</details>"
    return f"<h3>{escape(table.title)}</h3>{whole}"


def _cell(value: Value, table: Table, best: bool) -> str:
    text = number(value.ours, table.digits)
    notes = [f"± {number(value.error, 2)}" if value.error is not None else "", value.odd]
    if value.paper is not None:
        notes.insert(1, f"paper {number(value.paper)}, difference {number(value.difference, sign=True)}")
    title = f' title="{escape("; ".join(note for note in notes if note))}"' if any(notes) else ""
    kinds = " ".join(kind for kind, there in (("best", best), ("odd", bool(value.odd))) if there)
    kind = f' class="{kinds}"' if kinds else ""
    data = "" if value.ours is None else f"{value.ours:.6g}"
    return f'<td data-value="{data}"{kind}{title}>{_linked(text, value.cells)}</td>'


def _linked(text: str, cells: tuple[str, ...]) -> str:
    if not cells:
        return text
    short = [cell[:12] for cell in cells]
    return f'<a href="#cell-{short[0]}" data-cells="{" ".join(short)}">{text}</a>'


def _beside(table: Table) -> str:
    """Ours, the paper's, the difference and the standard error, of the column that sums up, then of every other."""
    parts = []
    for column in (table.columns[-1], *table.columns[:-1]):
        every = ((row, values.get(column, Value(None))) for row, values in table.rows.items())
        rows = {row: value for row, value in every if value.paper is not None}
        if rows:
            parts.append((column, rows))
    if not parts:
        return ""
    first = _beside_table(parts[0][1], table.what)
    others = "".join(
        f"<h3>{escape(readable(column))}</h3>{_beside_table(rows, table.what)}" for column, rows in parts[1:]
    )
    more = f"<details><summary>Beside the paper, each corruption</summary>{others}</details>" if others else ""
    return f"<h3>Beside the paper: {escape(readable(parts[0][0]))}</h3>{first}{more}"


def _beside_table(rows: dict[str, Value], what: str) -> str:
    odd = any(value.odd for value in rows.values())
    body = "".join(
        f"<tr><th>{escape(row)}</th>{_plain(value.ours, _linked(number(value.ours), value.cells))}"
        f"{_plain(value.error, number(value.error, 2))}{_plain(value.paper, number(value.paper))}"
        f"{_plain(value.difference, number(value.difference, sign=True))}"
        + (f'<td class="text">{escape(value.odd)}</td></tr>' if odd else "</tr>")
        for row, value in rows.items()
    )
    names = (what, "ours", "standard error", "paper", "difference", *(("marked",) if odd else ()))
    heads = "".join(f"<th>{name}</th>" for name in names)
    table = f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _plain(value: float | None, text: str) -> str:
    return f'<td data-value="{"" if value is None else f"{value:.6g}"}">{text}</td>'


def _protocol(study: Findings) -> str:
    if not study.cells:
        return ""
    shared = common(cell.protocol for cell in study.cells)
    title = f"Protocol shared by the {len(study.cells)} cells of this study"
    return f"<details><summary>{title}</summary>{_listed(shared)}</details>"


def _cells(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    found = "".join(_record(cell) for cell in cells)
    about = "Each cell is one experiment, fully stated. Two cells with the same hash are the same experiment."
    return (
        f'<section id="cells"><h2>Every cell</h2><p>{about}</p><details><summary>{len(cells)} cells</summary>{found}'
        "</details></section>"
    )


def _record(cell: Cell) -> str:
    protocol = cell.protocol
    place = ", ".join(readable(name) for name in protocol["corruptions"][:3])
    accuracy = f"{100 * cell.figures['accuracy']:.2f} %"
    line = f"{protocol['method']}, {place}, batch {protocol['batch_size']}, seed {protocol['seed']}: {accuracy}"
    found = {
        "hash": cell.hash,
        **protocol,
        **{name: f"{value:.5g}" for name, value in cell.figures.items()},
        **{name.replace("_", " "): f"{value:.5g}" for name, value in cell.cost.items()},
        **{f"on: {name}": value for name, value in cell.environment.items() if value is not None},
        "seconds": f"{cell.seconds:.1f}",
        "recorded": cell.recorded,
        **({"warnings": "; ".join(cell.warnings)} if cell.warnings else {}),
    }
    return (
        f'<details class="cell" id="cell-{cell.hash[:12]}"><summary>{escape(line)}</summary>{_listed(found)}</details>'
    )


def _listed(values: "dict[str, object]") -> str:
    return (
        "<dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(_text(value))}</dd>" for name, value in values.items())
        + "</dl>"
    )


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
