"""Every setting of a store, study or not: one table and one figure each."""

import json
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ttc.bench.comparison import by_textures, method_names
from ttc.bench.metrics import paired_interval
from ttc.bench.store import Row
from ttc.report.findings import AVERAGE, Findings, ResultTable, Value, cell_record
from ttc.report.formatting import gain_text, number
from ttc.report.plots import accuracy_figure


def overview(rows: Sequence[Row]) -> list[Findings]:
    """Return findings for each data set, model, scenario, severity, number of images and batch size."""
    finished = [row for row in rows if row.status == "finished"]
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in finished:
        groups[_setting(row)].append(row)
    settings = {
        f"{setting}, {textures}" if textures else setting: part
        for setting, group in groups.items()
        for textures, part in by_textures(group).items()
    }
    return [_findings(place, setting, group) for place, (setting, group) in enumerate(settings.items(), 1)]


def _setting(row: Row) -> str:
    cell = row.protocol
    level = f"severity {cell.severity}" if cell.severity else "clean"
    return (
        f"{cell.dataset}, {cell.model}, {cell.scenario}, {level}, {cell.images:,} images, batch size {cell.batch_size}"
    )


def _findings(place: int, setting: str, rows: Sequence[Row]) -> Findings:
    names = method_names(rows)
    columns = tuple(dict.fromkeys(_column(row) for row in rows))
    methods: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        methods[names[row.protocol.hash]][_column(row)].append(row)
    values: dict[str, dict[str, Value]] = {}
    for method, found in methods.items():
        values[method] = {column: _value(group) for column, group in found.items()}
        if len(columns) > 1 and len(found) == len(columns):
            values[method][AVERAGE] = _value([row for group in found.values() for row in group])
    shown = (AVERAGE, *columns) if any(AVERAGE in row for row in values.values()) else columns
    table = ResultTable(f"setting-{place}", f"Accuracy (%): {setting}", shown, values)
    whole = {method: [row for group in found.values() for row in group] for method, found in methods.items()
             if len(found) == len(columns)}  # fmt: skip
    return Findings(
        study=f"setting-{place}",
        title=setting,
        about="Every finished cell of the store in this setting.",
        profile="",
        headline=_headline(whole),
        tables=(table,),
        figures=(accuracy_figure(f"setting-{place}", f"Accuracy: {setting}", table),),
        cells=tuple(cell_record(row) for row in rows),
    )


def _column(row: Row) -> str:
    names = row.protocol.corruptions
    return names[0] if len(names) == 1 else f"{len(names)} corruptions"


def _value(rows: Sequence[Row]) -> Value:
    lengths = {len(row.correct) for row in rows}
    error = None
    if len(lengths) == 1:
        fractions = np.mean([row.correct for row in rows], axis=0)
        error = 100 * float(fractions.std()) / len(fractions) ** 0.5
    accuracy = 100 * float(np.mean([row.figures["accuracy"] for row in rows]))
    return Value(accuracy, error, None, tuple(row.protocol.hash for row in rows))


def _headline(methods: dict[str, list[Row]]) -> str:
    means = {name: float(np.mean([row.figures["accuracy"] for row in rows])) for name, rows in methods.items()}
    if len(means) < 2:
        return ""
    first, second = sorted(means, key=lambda name: -means[name])[:2]
    images = {(json.dumps(row.protocol.corruptions), row.protocol.seed) for row in methods[first]}
    if images != {(json.dumps(row.protocol.corruptions), row.protocol.seed) for row in methods[second]}:
        return f"{first} is best with {number(100 * means[first])} %."
    fractions = [np.mean([row.correct for row in methods[name]], axis=0) for name in (second, first)]
    gain = paired_interval(fractions[0], fractions[1])
    sure = "significant at 95 %" if gain.low > 0 else "not significant at 95 %"
    by = gain_text(*(100 * end for end in gain))
    return f"{first} is best with {number(100 * means[first])} %, ahead of {second} by {by}: {sure}."
