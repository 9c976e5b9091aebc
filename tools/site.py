"""What the documentation site makes at build time: the list of decisions. A hook of mkdocs, named in mkdocs.yml."""

import re
from pathlib import Path
from typing import Any

MARKER = "<!-- the decisions -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with the list of decisions in place of the marker."""
    if MARKER not in markdown:
        return markdown
    folder = Path(__file__).parents[1] / "docs" / "decisions"
    lines = [f"- {number}: [{title}]({name})" for number, title, name in decisions(folder)]
    return markdown.replace(MARKER, "\n".join(lines))


def decisions(folder: Path) -> list[tuple[str, str, str]]:
    """The number, title and file name of every decision below ``folder``."""
    found = []
    for path in sorted(folder.glob("[0-9]*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0]
        title = re.sub(r"^#\s*\d+\s*[:—-]?\s*", "", heading)  # "# 0040: ..." or "# 0050 — ..." or "# 0001 ..."
        found.append((path.name[:4], title[:1].upper() + title[1:], path.name))
    return found
