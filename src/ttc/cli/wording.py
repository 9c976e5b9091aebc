"""Numbers, counts, times and lines as the commands print them, and options that several commands share."""

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

FrostOption = Annotated[
    Path | None,
    typer.Option(
        help="A folder with the five frost textures, or procedural.",
        show_default="those of ttc data fetch frost, else procedural ones",
    ),
]


def decimal(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """Format a number with fixed digits; what rounds to zero has no minus sign.

    >>> decimal(-0.001), decimal(1.5, 1, sign=True), decimal(-0.001, sign=True)
    ('0.00', '+1.5', '+0.00')
    """
    rounded = round(value, digits) + 0.0  # -0.0 + 0.0 is 0.0
    return f"{rounded:+.{digits}f}" if sign else f"{rounded:.{digits}f}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "cell"), plural(2000, "image")
    ('1 cell', '2,000 images')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format a length of time in its natural unit.

    >>> duration(5), duration(150), duration(9000)
    ('5 s', '2.5 min', '2.5 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def print_line(title: str, text: str, column: int) -> None:
    """Print a titled line, folded to the width of the terminal; whole where there is none, so that files have it so.

    Args:
        title: What the line is about.
        text: The line.
        column: Where the text starts.
    """
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = max(20, shutil.get_terminal_size().columns - column) if known else sys.maxsize
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    for i, line in enumerate(lines or [""]):
        typer.echo(f"{'' if i else title:<{column}}{line}".rstrip())
