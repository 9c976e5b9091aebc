"""From measured cells to findings: ours beside the paper's, claims judged, deviations flagged."""

import math

from ttc.report.findings import AVERAGE, Claim, Findings, ResultTable, Value, cell_record
from ttc.report.formatting import gain_text, number
from ttc.studies.known_differences import known_difference
from ttc.studies.measurements import Measurements, published
from ttc.studies.study import Entry, Greater

TOLERANCE = 0.5  # points by which two runs of the same cell may differ: the paper rounds and names no seed


def findings(measured: Measurements) -> Findings:
    """Compute what a study found."""
    study, setup = measured.study, measured.setup
    table = accuracy_table(measured) if study.entries and study.detailed else None
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
        notes=(
            *study.notes,
            *_source_splits(measured),
            *_textures(measured),
            *((setup.note,) if setup.note and study.table else ()),
            *_known(measured),
        ),
        cells=tuple(cell_record(row) for row in cells.values()),
    )


def accuracy_table(measured: Measurements) -> ResultTable:
    """Return the accuracies: a row per entry, the average first, then a column per corruption."""
    plan = measured.plan
    columns = (AVERAGE, *plan.corruptions)
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
    levels = sorted({entry.severity for entry in measured.study.entries})
    severity = f"severity {levels[0]}" if len(levels) == 1 else "the severity each row names"
    title = f"Accuracy (%), {severity}, {images:,} images of each corruption, {batches}"
    return ResultTable(measured.study.name, title, columns, marked, notes=_rule(measured))


def _value(measured: Measurements, entry: Entry, column: str) -> Value:
    corruption = None if column == AVERAGE else column
    rows = measured.rows(entry.name, corruption)
    return Value(
        measured.accuracy(entry.name, corruption),
        measured.error(entry.name, corruption),
        published(measured, entry, corruption),
        tuple(row.protocol.hash for row in rows),
    )


def _judged(measured: Measurements, entry: Entry, column: str, rows: dict[str, dict[str, Value]]) -> Value:
    """The value, flagged where it deviates from what the paper lets expect."""
    value, base = rows[entry.name][column], rows.get(measured.study.baseline, {}).get(column)
    if value.ours is None or value.paper is None or value.error is None:
        return value
    flag = ""
    if measured.setup.comparable:
        if abs(value.ours - value.paper) > TOLERANCE + 2 * value.error:
            flag = f"paper {number(value.paper)}, here {number(value.ours)}"
    elif base is not None and base.ours is not None and base.paper is not None and base.error is not None:
        theirs, ours = value.paper - base.paper, value.ours - base.ours
        if abs(theirs) >= 1 and ours * theirs < 0 and abs(ours) > 2 * math.hypot(value.error, base.error):
            flag = f"paper {number(theirs, sign=True)} over {measured.study.baseline}, here {number(ours, sign=True)}"
    why = known_difference(measured.study.table, entry.paper) if flag else ""
    return Value(value.ours, value.error, value.paper, value.cells, f"{flag}; {why}" if why else flag)


def _rule(measured: Measurements) -> tuple[str, ...]:
    if not any(published(measured, entry) is not None for entry in measured.study.entries):
        return ()
    if measured.setup.comparable:
        return (f"Flagged (*): further from the paper than {TOLERANCE} points and two standard errors.",)
    base = measured.study.baseline
    return (
        f"Flagged (*): where the paper's gain over {base} is a point or more and ours goes the other way, by more than "
        "two standard errors.",
    )


def claim(measured: Measurements, wanted: Greater) -> Claim:
    """Judge a claim by the 95 % interval of the difference, paired by image."""
    found = measured.gain(wanted.better, wanted.worse)
    if found is None:
        return Claim(wanted.text, "undecided", "not all of its cells are finished")
    verdict = "holds" if found.low > wanted.by else "does not hold" if found.high < wanted.by else "undecided"
    needed = f", more than {wanted.by:g} are claimed" if wanted.by else ""
    return Claim(wanted.text, verdict, f"{wanted.better} − {wanted.worse}: {gain_text(*found)}{needed}")


def headline(measured: Measurements) -> str:
    """Name the best row, by how much it leads, and whether the lead is significant; a control is called one."""
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
        return f"{first} and {second} are level at {number(found[first])} %, ahead of the others."
    sure = "significant at 95 %" if gain.low > 0 else "not significant at 95 %"
    role = ", a control," if first in study.controls else ""
    return f"{first}{role} is best with {number(found[first])} %, ahead of {second} by {gain_text(*gain)}: {sure}."


def _first(claims: tuple[Claim, ...]) -> str:
    return f"{claims[0].text} Here: {claims[0].verdict}; {claims[0].evidence}." if claims else ""


def _source_splits(measured: Measurements) -> tuple[str, ...]:
    """Say which methods got source images, and from where."""
    cells = [cell for cell in measured.plan.protocols if cell.source_split]
    return tuple(
        f"{', '.join(dict.fromkeys(cell.method for cell in cells if cell.source_split == split))}: source images from "
        f"the declared split {split} (checksum {checksum[:8]}), none of which is in a stream; no labels."
        for split, checksum in dict.fromkeys((cell.source_split, cell.source_checksum) for cell in cells)
    )


def _textures(measured: Measurements) -> tuple[str, ...]:
    """Say which textures frost was made with."""
    found = dict.fromkeys(cell.textures for cell in measured.plan.protocols if cell.textures)
    return tuple(f"Textures of the corruption frost: {name.replace(' frost', '')}." for name in found)


def _known(measured: Measurements) -> tuple[str, ...]:
    """The known reasons for rows of the paper that this study is compared with."""
    study = measured.study
    rows = dict.fromkeys(entry.paper for entry in study.entries if entry.paper)
    return tuple(f"{row}: {why}" for row in rows if (why := known_difference(study.table, row)))
