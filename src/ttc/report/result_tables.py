"""Result tables as text: Markdown to read, LaTeX to print, CSV to compute with."""

import csv
import io
import json
from collections.abc import Iterable

from ttc.report.findings import Findings, ResultTable, Value
from ttc.report.formatting import number, readable

_LATEX = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "κ": r"$\kappa$", "σ": r"$\sigma$", "λ": r"$\lambda$"}


def markdown(table: ResultTable) -> str:
    """Format a table in Markdown: the best of a column bold, flagged values starred.

    >>> row = {"fog": Value(71.24)}, {"fog": Value(68.0)}
    >>> print(markdown(ResultTable("t", "Accuracy", ("fog",), {"TTC": row[0], "TENT": row[1]})), end="")
    | | fog |
    |---|---:|
    | TTC | **71.2** |
    | TENT | 68.0 |
    """
    best = {column: table.winners(column) for column in table.columns}
    lines = [f"| | {' | '.join(map(readable, table.columns))} |", f"|---|{'---:|' * len(table.columns)}"]
    for row, values in table.rows.items():
        cells = []
        for column in table.columns:
            value = values.get(column, Value(None))
            text = number(value.ours, table.digits)
            cells.append(f"**{text}**" if row in best[column] else text)
            cells[-1] += r" \*" if value.flag else ""
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def beside(table: ResultTable, column: str) -> str:
    """Format one column in Markdown, ours beside the paper's, with the difference and the standard error."""
    lines = ["| | ours | ± | paper | difference | |", "|---|---:|---:|---:|---:|---|"]
    for row, value in table.beside_paper(column).items():
        parts = (number(value.ours), number(value.error, 2), number(value.paper), number(value.difference, sign=True))
        lines.append(f"| {row} | {' | '.join(parts)} | {value.flag} |")
    return "\n".join(lines) + "\n"


def latex(table: ResultTable) -> str:
    """Format a table for a paper: booktabs, the best of a column bold; needs ``\\usepackage{booktabs}``.

    >>> print(latex(ResultTable("t", "Accuracy (%)", ("fog",), {"TTC": {"fog": Value(71.24)}})), end="")
    \\begin{tabular}{lr}
    \\toprule
     & fog \\\\
    \\midrule
    TTC & 71.2 \\\\
    \\bottomrule
    \\end{tabular}
    """
    best = {column: table.winners(column) for column in table.columns}
    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    lines += [rf" & {' & '.join(_escaped(readable(column)) for column in table.columns)} \\", r"\midrule"]
    for row, values in table.rows.items():
        cells = []
        for column in table.columns:
            text = number(values.get(column, Value(None)).ours, table.digits).replace("−", "$-$")
            cells.append(rf"\textbf{{{text}}}" if row in best[column] else text)
        lines.append(rf"{_escaped(row)} & {' & '.join(cells)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def as_csv(table: ResultTable) -> str:
    """Format a table as CSV, one line per number: row, column, ours, standard error, paper, difference, flag, cells.

    >>> print(as_csv(ResultTable("t", "A", ("fog",), {"TTC": {"fog": Value(71.24, 0.5, 70.0, ("ab",))}})), end="")
    row,column,ours,standard_error,paper,difference,flag,cells
    TTC,fog,71.24,0.5,70.0,1.24,,ab
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "ours", "standard_error", "paper", "difference", "flag", "cells"])
    for row, values in table.rows.items():
        for column in table.columns:
            if column not in values:
                continue
            value = values[column]
            gap = None if value.difference is None else round(value.difference, 6)
            writer.writerow([row, column, value.ours, value.error, value.paper, gap, value.flag, " ".join(value.cells)])
    return text.getvalue()


def document(findings: Findings) -> str:
    """Format a study in Markdown: what it found, its claims, its tables beside the paper's, its notes."""
    profile = f"Profile: {findings.profile}. " if findings.profile else ""
    parts = [f"# {findings.title}\n", findings.about + "\n", f"{profile}{findings.headline}\n"]
    parts += [_claims(findings)] if findings.claims else []
    for table in findings.tables:
        parts.append(f"## {table.title}\n\n{markdown(table)}")
        parts += [f"{note}\n" for note in table.notes]
        column = table.columns[0]
        if table.beside_paper(column):
            parts.append(f"### Beside the paper: {column}\n\n{beside(table, column)}")
    parts += [f"![{figure.name}](figures/{figure.name}.svg)\n\n{figure.caption}\n" for figure in findings.figures]
    parts += ["## Notes\n\n" + "".join(f"- {note}\n" for note in findings.notes)] if findings.notes else []
    parts += [f"## Protocol\n\n{_protocol(findings)}"] if findings.cells else []
    return "\n".join(parts)


def _claims(findings: Findings) -> str:
    lines = (f"- **{claim.verdict}**: {claim.text} {claim.evidence}.\n" for claim in findings.claims)
    return "## The paper's claims, here\n\n" + "".join(lines)


def _protocol(findings: Findings) -> str:
    shared = shared_fields(cell.protocol for cell in findings.cells)
    lines = [f"- {name}: {json.dumps(value)}\n" for name, value in shared.items()]
    return (
        f"The fields that all {len(findings.cells)} cells have in common; `ttc reproduce` writes every cell in full to "
        f"{findings.study}.json.\n\n{''.join(lines)}"
    )


def shared_fields(protocols: "Iterable[object]") -> dict[str, object]:
    """Return the fields that are the same in every protocol.

    >>> shared_fields([{"seed": 0, "images": 5}, {"seed": 1, "images": 5}])
    {'images': 5}
    """
    every = [dict(protocol) for protocol in protocols if isinstance(protocol, dict)]
    return (
        {key: value for key, value in every[0].items() if all(one.get(key) == value for one in every)} if every else {}
    )


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
