"""The findings of a study as files: JSON, Markdown, LaTeX and CSV tables, SVG, PNG and PDF figures."""

from pathlib import Path
from typing import get_args

from ttc.errors import TTCError
from ttc.files import atomic
from ttc.report import result_tables
from ttc.report.findings import Findings, read_findings, write_findings
from ttc.report.rendering import Kind, render


def write_files(findings: Findings, folder: Path) -> list[Path]:
    """Write everything about a study.

    Args:
        findings: The study.
        folder: Where its Markdown and JSON go, with ``tables/`` and ``figures/`` below it.

    Returns:
        The files written.

    Raises:
        TTCError: The folder cannot be written, or a library of the ``report`` extra is missing.
    """
    contents = {folder / f"{findings.study}.md": result_tables.document(findings).encode()}
    for table in findings.tables:
        for ending, write in (
            ("md", result_tables.markdown),
            ("tex", result_tables.latex),
            ("csv", result_tables.as_csv),
        ):
            contents[folder / "tables" / f"{table.name}.{ending}"] = write(table).encode()
    for figure in findings.figures:
        for kind in get_args(Kind):
            contents[folder / "figures" / f"{figure.name}.{kind}"] = render(figure.spec, kind)
    data = folder / f"{findings.study}.json"
    try:
        write_findings(findings, data)
        for path, content in contents.items():
            with atomic(path) as part:
                part.write_bytes(content)
    except OSError as error:
        raise TTCError(f"cannot write to {folder} ({error.strerror}); choose another --output") from error
    return [data, *contents]


def read_folder(folder: Path) -> list[Findings]:
    """Read the findings of every study that was written to ``folder``."""
    return [read_findings(path) for path in sorted(folder.glob("*.json"))]
