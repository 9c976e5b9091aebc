"""From measured cells to findings: ours beside the paper's, the claims judged, the odd cells marked."""

import math

from ttc.report.findings import Claim, Findings, Table, Value, cell_of
from ttc.report.labels import points
from ttc.studies.measured import Measured, published
from ttc.studies.reasons import reason
from ttc.studies.study import Entry, Greater

AVERAGE = "average"
_VERBS = {"holds": "holds", "does not hold": "does not hold", "undecided": "is undecided"}
SLACK = 0.5  # points by which two honest runs of the same cell may differ: the paper rounds and names no seed


def findings(measured: Measured) -> Findings:
    """What a study found."""
    study, setup = measured.study, measured.setup
    table = accuracy_table(measured) if study.entries else None
    tables = (*((table,) if table else ()), *(study.extra(measured) if study.extra else ()))
    claims = (*(claim(measured, one) for one in study.claims), *(study.judged(measured) if study.judged else ()))
    cells = {row.protocol.hash: row for entry in study.entries for row in measured.rows(entry.name)}
    return Findings(
        study=study.name,
        title=study.title,
        about=study.about,
        profile=setup.profile,
        headline=headline(measured) if study.contest else _first(claims),
        tables=tables,
        claims=claims,
        figures=study.figures(measured) if study.figures else (),
        notes=(*study.notes, *((setup.note,) if setup.note and study.table else ()), *_known(measured)),
        cells=tuple(cell_of(row) for row in cells.values()),
    )


def accuracy_table(measured: Measured) -> Table:
    """A row an entry, a column a corruption and the average."""
    plan = measured.plan
    columns = (*plan.corruptions, AVERAGE)
    rows: dict[str, dict[str, Value]] = {}
    for entry in measured.study.entries:
        rows[entry.name] = {column: _value(measured, entry, column) for column in columns}
    marked = {
        name: {column: _judged(measured, entry, column, rows) for column in columns}
        for entry, name in ((entry, entry.name) for entry in measured.study.entries)
    }
    images = next((len(row.correct) for entry in measured.study.entries for row in measured.rows(entry.name)), 0)
    sizes = sorted({entry.batch_size for entry in measured.study.entries})
    batches = f"batch size {sizes[0]}" if len(sizes) == 1 else "the batch size each row names"
    title = f"Accuracy (%), severity 5, {images:,} images of each corruption, {batches}"
    return Table(measured.study.name, title, columns, marked, notes=_rule(measured))


def _value(measured: Measured, entry: Entry, column: str) -> Value:
    corruption = None if column == AVERAGE else column
    rows = measured.rows(entry.name, corruption)
    return Value(
        measured.accuracy(entry.name, corruption),
        measured.error(entry.name, corruption),
        published(measured, entry, corruption),
        tuple(row.protocol.hash for row in rows),
    )


def _judged(measured: Measured, entry: Entry, column: str, rows: dict[str, dict[str, Value]]) -> Value:
    """The value, marked where it lies outside what the paper lets expect."""
    value, base = rows[entry.name][column], rows.get(measured.study.baseline, {}).get(column)
    if value.ours is None or value.paper is None or value.error is None:
        return value
    odd = ""
    if measured.setup.comparable:
        if abs(value.ours - value.paper) > SLACK + 2 * value.error:
            odd = f"paper {value.paper:.1f}, here {value.ours:.1f}"
    elif base is not None and base.ours is not None and base.paper is not None and base.error is not None:
        theirs, ours = value.paper - base.paper, value.ours - base.ours
        if abs(theirs) >= 1 and ours * theirs < 0 and abs(ours) > 2 * math.hypot(value.error, base.error):
            odd = f"paper {theirs:+.1f} over {measured.study.baseline}, here {ours:+.1f}"
    why = reason(measured.study.table, entry.paper) if odd else ""
    return Value(value.ours, value.error, value.paper, value.cells, f"{odd}; {why}" if why else odd)


def _rule(measured: Measured) -> tuple[str, ...]:
    if not measured.study.table:
        return ()
    if measured.setup.comparable:
        return (f"Marked (*): further from the paper than {SLACK} points and two standard errors.",)
    base = measured.study.baseline
    return (
        f"Marked (*): where the paper's gain over {base} is a point or more and ours goes the other way, by more than "
        "two standard errors.",
    )


def claim(measured: Measured, wanted: Greater) -> Claim:
    """A claim judged by the 95 % interval of the difference, image by image."""
    found = measured.gain(wanted.better, wanted.worse)
    if found is None:
        return Claim(wanted.text, "undecided", "not all of its cells are finished")
    verdict = "holds" if found.low > wanted.by else "does not hold" if found.high < wanted.by else "undecided"
    needed = f", more than {wanted.by:g} are claimed" if wanted.by else ""
    return Claim(wanted.text, verdict, f"{wanted.better} − {wanted.worse}: {points(*found)}{needed}")


def headline(measured: Measured) -> str:
    """Who wins, by how much, and whether that is sure."""
    study = measured.study
    names = study.labels or tuple(entry.name for entry in study.entries)
    found = {name: value for name in names if (value := measured.accuracy(name)) is not None}
    if len(found) < 2:
        return ""
    first, second = sorted(found, key=lambda name: -found[name])[:2]
    gain = measured.gain(first, second)
    if gain is None:
        return ""
    if round(gain.estimate, 6) == 0:
        return f"{first} and {second} share the first place with {found[first]:.1f} %."
    sure = "significant at 95 %" if gain.low > 0 else "not significant at 95 %"
    return f"{first} is best with {found[first]:.1f} %, ahead of {second} by {points(*gain)}: {sure}."


def _first(claims: tuple[Claim, ...]) -> str:
    return f"{claims[0].text} Here this {_VERBS[claims[0].verdict]}: {claims[0].evidence}." if claims else ""


def _known(measured: Measured) -> tuple[str, ...]:
    """The reasons known for rows of the paper that this study holds itself against."""
    study = measured.study
    rows = dict.fromkeys(entry.paper for entry in study.entries if entry.paper)
    return tuple(f"{row}: {why}" for row in rows if (why := reason(study.table, row)))
