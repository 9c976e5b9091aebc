"""Write docs/results/real.md from the findings of --profile real.

    python tools/write_real_results.py [FOLDER] [COST_FOLDER]

Datasets and models that are not in FOLDER keep the numbers that the page has; without COST_FOLDER all costs stay. The
introduction is written by hand and kept in tools/real_results_introduction.md.
"""

import argparse
import re
from pathlib import Path

from ttc.files import atomic
from ttc.report.across_datasets import across_datasets
from ttc.report.dataset_columns import read_columns
from ttc.report.explanations import NOT_TESTED

PAGE = Path(__file__).parents[1] / "docs" / "results" / "real.md"
Table = dict[str, dict[str, str]]  # row, column, cell


def merged(old: str, new: str, keep: tuple[str, ...]) -> str:
    """Return the new page with the rows and columns that only the old one has, and its sections named in ``keep``."""
    before, after = _sections(old), _sections(new)
    parts = []
    for heading in dict.fromkeys((*after, *before)):
        text, other = after.get(heading, ""), before.get(heading, "")
        parts.append(other if heading in keep or not text else _merged_section(other, text))
    return "\n".join(parts)


def _sections(page: str) -> dict[str, str]:
    """The text below each heading of the second and third level, with the heading; the part above them has none."""
    found = re.split(r"^(?=##)", page, flags=re.MULTILINE)
    return {part.partition("\n")[0] if part.startswith("##") else "": part.rstrip("\n") + "\n" for part in found}


def _merged_section(old: str, new: str) -> str:
    before, after = _table(old), _table(new)
    if not before or not after:
        return new
    corner = "holds on"
    columns = dict.fromkeys(name for table in (before, after) for row in table.values() for name in row)
    header = [*(name for name in columns if name != corner), *(name for name in columns if name == corner)]
    first = _lines(new)[0].strip("| ").split(" | ")[0] if not _lines(new)[0].startswith("|  |") else ""
    lines = [f"| {' | '.join((first, *header))} |", f"|{'---|' * (len(header) + 1)}"]
    for row in dict.fromkeys((*before, *after)):
        measured = {name: cell for name, cell in after.get(row, {}).items() if cell}
        if NOT_TESTED[1] in measured.values():
            measured = {}
        cells = {**before.get(row, {}), **measured}
        if corner in cells:
            verdicts = [cell for name, cell in cells.items() if cell and name != corner]
            cells[corner] = f"{sum(cell.startswith('holds') for cell in verdicts)} of {len(verdicts)}"
        lines.append(f"| {' | '.join((row, *(cells.get(name, '') for name in header)))} |")
    return new.replace("\n".join(_lines(new)), "\n".join(lines))


def _lines(section: str) -> list[str]:
    return [line for line in section.splitlines() if line.startswith("|")]


def _table(section: str) -> Table:
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in _lines(section)]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("reproduction/real"), help="default: %(default)s")
    parser.add_argument("cost_folder", type=Path, nargs="?", help="findings that costs are taken from")
    options = parser.parse_args()
    for folder in (options.folder, options.cost_folder):
        if folder and not folder.is_dir():
            parser.error(f"{folder} is no folder; ttc reproduce STUDY --profile real writes one")
    costs = read_columns(options.cost_folder) if options.cost_folder else ()
    introduction = Path(__file__).with_name("real_results_introduction.md").read_text(encoding="utf-8")
    page = across_datasets(read_columns(options.folder), introduction=introduction, costs=costs)
    with atomic(PAGE) as part:
        part.write_text(merged(PAGE.read_text(encoding="utf-8"), page, () if costs else ("## Cost",)), encoding="utf-8")
    print(f"wrote {PAGE} from {options.folder}")
