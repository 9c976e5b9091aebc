"""``ttc methods``: the table of methods, or one of them in full."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from ttc.methods import Method, Option
    from ttc.methods.method import Passes

HEADER = ("method", "changes", "fwd/bwd", "needs", "paper")
MORE = ("predicts", "smallest batch", "memory", "source images")


_LEGEND = (
    "`fwd/bwd` counts passes per batch; `predicts`: outputs are from before or after the update with the same batch; "
    "`memory`: what is stored beyond the model and its optimizer; `source images`: how many it asks for, which the "
    "benchmark takes only from a declared source split."
)

_USUAL = (
    "fwd/bwd counts passes per batch. A method predicts before the update with the same\n"
    "batch, accepts single images (batch 1), needs no source images and stores nothing\n"
    "beyond the model and its optimizer, except:"
)


def methods(
    name: Annotated[str | None, typer.Argument(help="Describe this method in full, with its options.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print everything as Markdown (docs/methods.md).")
    ] = False,
) -> None:
    """List the methods: what each changes, its passes per batch, what it needs, when it predicts, what it stores."""
    from rich.console import Console

    from ttc.methods import METHODS, find_method

    if name is not None:
        typer.echo(_describe(find_method(name)))
        return
    if markdown:
        typer.echo(_markdown(METHODS.values()))
        return
    console = Console()
    console.print(_table(HEADER, map(_row, METHODS.values())))
    usual = ("before", "1", "nothing", "none")
    others = [(method.name, *_more(method)) for method in METHODS.values() if _more(method) != usual]
    console.print(f"\n{_USUAL}\n", highlight=False)
    console.print(
        _table(("method", *MORE[:1], "batch", "source", "memory"), [(*row[:3], row[4], row[3]) for row in others])
    )
    console.print('\n"ttc methods NAME" describes one; use it with ttc.adapt(model, "NAME").', highlight=False)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=title in {"method", "fwd/bwd"})
    for row in rows:
        table.add_row(*row)
    return table


def _row(method: "Method") -> tuple[str, ...]:
    passes = f"{_passes(method.forwards)}/{_passes(method.backwards)}"
    changes, needs = ", ".join(method.changes) or "nothing", ", ".join(method.needs) or "nothing"
    return method.name, changes, passes, needs, method.paper


def _more(method: "Method") -> tuple[str, ...]:
    source = f"{method.source_images:,}" if method.source_images else "none"
    return method.predicts, str(method.smallest_batch), method.memory or "nothing", source


def _passes(passes: "Passes") -> str:
    return str(passes) if isinstance(passes, int) else "-".join(map(str, passes))


def _describe(method: "Method") -> str:
    """Describe a method in full for a terminal: its description, its line of the table, its options."""
    import re
    import shutil
    import textwrap

    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    values = zip((*HEADER[1:], *MORE), (*_row(method)[1:], *_more(method)), strict=True)
    line = "; ".join(f"{title}: {value}" for title, value in values)
    options = [
        textwrap.fill(str(option), width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
        for option in method.options.values()
    ]
    paragraphs = re.split(r"(\n\n|\n(?=Differs |  ))", method.description)  # docstrings have lines of their own length
    text = "".join(part if part.isspace() else textwrap.fill(part, width) for part in paragraphs)
    return "\n".join([text, "", textwrap.fill(line, width), "", "Options:" if options else "Options: none", *options])


def _markdown(methods: "Iterable[Method]") -> str:
    """Write the table, then the description and options of every builder once."""
    lines = ["# The methods", "", "Made by `ttc methods --markdown`.", "", _LEGEND, ""]
    methods = list(methods)
    header = (*HEADER, *MORE)
    rows = [header, ("---",) * len(header), *((*_row(method), *_more(method)) for method in methods)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    described = set()
    for method in methods:
        if method.description not in described:
            described.add(method.description)
            lines += ["", f"## {method.name}", "", method.description, ""]
            lines += ["Options:", ""] if method.options else ["Options: none"]
            lines += [f"- {_option_in_markdown(option)}" for option in method.options.values()]
    return "\n".join(lines)


def _option_in_markdown(option: "Option") -> str:
    head, _, meaning = str(option).partition("): ")
    name, _, rest = head.partition(" ")
    return f"`{name}` {rest}): {meaning}"
