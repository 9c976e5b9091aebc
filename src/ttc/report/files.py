"""The findings of a study as files: JSON, Markdown, LaTeX and CSV tables, SVG and PNG figures."""

from pathlib import Path

from ttc.errors import TTCError
from ttc.files import atomic
from ttc.report import tables
from ttc.report.findings import Findings, read, write


def write_files(findings: Findings, folder: Path) -> list[Path]:
    """Write everything about a study below ``folder`` and say what was written."""
    texts = {folder / f"{findings.study}.md": tables.document(findings)}
    for table in findings.tables:
        for ending, written in (("md", tables.markdown), ("tex", tables.latex), ("csv", tables.as_csv)):
            texts[folder / "tables" / f"{table.name}.{ending}"] = written(table)
    for figure in findings.figures:
        texts[folder / "figures" / f"{figure.name}.svg"] = figure.chart.svg()
    try:
        write(findings, folder / f"{findings.study}.json")
        for path, text in texts.items():
            with atomic(path) as part:
                part.write_text(text, encoding="utf-8")
        pictures = [folder / "figures" / f"{figure.name}.png" for figure in findings.figures]
        for path, figure in zip(pictures, findings.figures, strict=True):
            figure.chart.png(path)
    except OSError as error:
        raise TTCError(f"cannot write to {folder} ({error.strerror}); choose another --output") from error
    return [folder / f"{findings.study}.json", *texts, *pictures]


def read_folder(folder: Path) -> list[Findings]:
    """The findings of every study that was written below ``folder``."""
    return [read(path) for path in sorted(folder.glob("*.json"))]
