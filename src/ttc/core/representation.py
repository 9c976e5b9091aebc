"""Short tables of what an object is, as text for the terminal and as HTML for notebooks."""

from collections.abc import Sequence
from html import escape

Rows = Sequence[tuple[str, str]]


def text_table(title: str, rows: Rows) -> str:
    """Format a title and named values as text.

    Example:
        >>> print(text_table("a model", [("classes", "10"), ("head", "'fc'")]))
        a model
          classes  10
          head     'fc'
    """
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "batch", "batches"), counted(2000, "batch", "batches")
        ('1 batch', '2,000 batches')
    """
    return f"{count:,} {one if count == 1 else many}"


def html_table(title: str, rows: Rows) -> str:
    """Format a title and named values as an HTML table, escaped, without styles of its own.

    Example:
        >>> html_table("a model", [("layers", "<3")])
        '<table><caption>a model</caption><tr><th>layers</th><td>&lt;3</td></tr></table>'
    """
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{body}</table>"
