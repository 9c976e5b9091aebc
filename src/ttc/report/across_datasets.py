"""One Markdown page about the same studies on several datasets and models: which claims hold where, with numbers."""

from collections.abc import Mapping, Sequence

from ttc.report.dataset_columns import Column
from ttc.report.explanations import EXPLANATIONS, beside
from ttc.report.findings import Claim, Value
from ttc.report.formatting import number
from ttc.report.result_tables import markdown

STATISTICS = ("none", "half", "cifar10", "cifar100", "imagenet")  # what --statistics takes


def across_datasets(columns: Sequence[Column], *, introduction: str = "", costs: Sequence[Column] = ()) -> str:
    """Write the page.

    Args:
        columns: What :func:`ttc.report.dataset_columns.read_columns` returned; one that was made with other input
            statistics (``--statistics``) only serves to test an explanation.
        introduction: Markdown below the heading.
        costs: Columns measured for their cost, without which the main tables' own is shown.

    Returns:
        Markdown.
    """
    shown, variants = _split(columns)
    parts = [
        "# Three datasets, real data\n",
        *([f"{introduction.strip()}\n"] if introduction else []),
        _protocols(shown),
        f"## Average accuracy (%)\n\n{_averages(shown)}",
        f"## The paper's claims\n\n{_claims(shown)}",
        f"## The paper's odd rows\n\n{_odd_rows(shown)}",
        f"### Explanations tested\n\n{_explanations(shown, variants)}",
        f"## Cost\n\n{_costs(costs or shown)}",
        *_severities(shown),
        *_studies(shown),
    ]
    return "\n".join(parts)


def _split(columns: Sequence[Column]) -> tuple[list[Column], list[Column]]:
    """The columns to show, and those of the same data and model with other input statistics, by their folder's name."""
    folders = {column.folder for column in columns}
    variants = [
        column
        for column in columns
        if column.folder.rpartition("-")[0] in folders and column.folder.rpartition("-")[2] in STATISTICS
    ]
    return [column for column in columns if column not in variants], variants


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _protocols(columns: Sequence[Column]) -> str:
    rows = []
    for column in columns:
        cells = [cell for one in column.findings for cell in one.cells]
        own = [cell.protocol for cell in column.main.cells]
        frost = dict.fromkeys(str(one["textures"]) for one in own if one.get("textures"))
        rows.append(
            [
                column.title,
                _values(own, "images"),
                str(len({str(one["corruptions"]) for one in own})),
                _values(own, "batch_size"),
                _values(own, "seed"),
                ", ".join(frost) or "none",
                f"{len({cell.hash for cell in cells}):,}",
                f"{sum({cell.hash: cell.seconds for cell in cells}.values()) / 3600:.1f}",
            ]
        )
    header = ("", "images", "corruptions", "N", "seed", "frost", "cells of all studies", "hours of one core")
    return (
        "Severity 5, one pass, a fresh model per corruption. Hours are wall-clock times of the cells, added up; ± is "
        f"the standard error over images, intervals are 95 %.\n\n{_lines(header, rows)}"
    )


def _values(protocols: Sequence[Mapping[str, object]], name: str) -> str:
    return ", ".join(dict.fromkeys(f"{one[name]:,}" for one in protocols))


def _averages(columns: Sequence[Column]) -> str:
    tables = [column.table(column.main.study) for column in columns]
    methods = dict.fromkeys(row for table in tables if table for row in table.rows)
    rows = [[method, *(_with_error(column.average(method)) for column in columns)] for method in methods]
    return _lines(("", *(column.title for column in columns)), rows)


def _with_error(value: Value) -> str:
    return f"{number(value.ours)} ± {number(value.error, 2)}" if value.ours is not None else ""


def _claims(columns: Sequence[Column]) -> str:
    claims = {column.folder: _main_first(column) for column in columns}
    texts = dict.fromkeys(claim.text for every in claims.values() for claim in every)
    rows = []
    for text in texts:
        cells, verdicts = [], []
        for column in columns:
            found = [claim for claim in claims[column.folder] if claim.text == text]
            verdicts += [found[0].verdict] if found else []
            evidence = found[0].evidence.partition(": ")[2].replace(" points", "") if found else ""
            cells.append(f"{found[0].verdict}: {evidence}" if evidence else found[0].verdict if found else "")
        rows.append([text, *cells, f"{verdicts.count('holds')} of {len(verdicts)}"])
    note = "Differences in points with their 95 % interval, paired by image.\n\n"
    return note + _lines(("claim", *(column.title for column in columns), "holds on"), rows)


def _main_first(column: Column) -> list[Claim]:
    """The claims of a column; where two studies judge the same one, that of the main table comes first."""
    return [claim for one in (column.main, *column.findings) for claim in one.claims]


def _odd_rows(columns: Sequence[Column]) -> str:
    tables = [column.table("odd-rows") for column in columns]
    names = dict.fromkeys(row for table in tables if table for row in table.rows)
    rows = [[name, *(beside(column.difference(name)) for column in columns)] for name in names]
    note = "Differences in points ± standard error, and the paper's on the same corruptions of its own data.\n\n"
    return note + _lines(("", *(column.title for column in columns)), rows)


def _explanations(columns: Sequence[Column], variants: Sequence[Column]) -> str:
    rows = [
        [odd, explanation, *test([column for column in columns if column.main.study == study], variants)]
        for odd, study, explanation, test in EXPLANATIONS
    ]
    return _lines(("odd row", "explanation", "here", "verdict"), rows)


def _costs(columns: Sequence[Column]) -> str:
    """Milliseconds per image and peak memory, per method, of every column."""
    tables = {column.title: column.table("cost-table") for column in columns}
    methods = dict.fromkeys(row for table in tables.values() if table for row in table.rows)
    rows = []
    for method in methods:
        row = [method]
        for table in tables.values():
            values = table.rows.get(method, {}) if table else {}
            row += [number(values.get(name, Value(None)).ours, 1) for name in ("ms per image", "peak memory (MB)")]
        passes = [table.rows[method] for table in tables.values() if table and method in table.rows]
        counts = [number(passes[0].get(f"{kind} passes", Value(None)).ours, 1) for kind in ("forward", "backward")]
        rows.append([*row, "/".join(counts)])
    header = ["", *(f"{title}: {what}" for title in tables for what in ("ms per image", "MB")), "forward/backward"]
    sizes = ", ".join(f"{column.title}: {_size(column)}" for column in columns)
    note = "Medians over the cells, processor time of one thread; MB is the peak of tensors."
    return f"{note} Images and batch size: {sizes}.\n\n{_lines(header, rows)}"


def _size(column: Column) -> str:
    own = [cell.protocol for cell in column.main.cells]
    return f"{_values(own, 'images')} in batches of {_values(own, 'batch_size')}"


def _severities(columns: Sequence[Column]) -> list[str]:
    found = [(column, column.table("corruption-error", "severity")) for column in columns]
    parts = [f"### {column.title}\n\n{markdown(table)}\n{' '.join(table.notes)}\n" for column, table in found if table]
    return ["## Corruption error over five severities\n", *parts] if parts else []


def _studies(columns: Sequence[Column]) -> list[str]:
    """The other studies of each column, by their headline."""
    parts = []
    for column in columns:
        lines = [f"- {one.title}: {one.headline}" for one in column.findings if one is not column.main and one.headline]
        parts += [f"### {column.title}\n\n" + "\n".join(lines) + "\n"] if lines else []
    return ["## Other studies\n", *parts] if parts else []
