"""``ttc methods``: the table of methods, or one of them in full."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ttc.methods import Method, Option
    from ttc.methods.method import Passes

HEADER = ("method", "changes", "fwd/bwd", "needs", "paper")


def methods(
    name: Annotated[str | None, typer.Argument(help="Describe this method in full, with its options.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print everything as Markdown (docs/methods.md).")
    ] = False,
) -> None:
    """List the methods: what each changes, its forward and backward passes per batch, what it needs, its paper."""
    from rich.console import Console
    from rich.table import Table

    from ttc.methods import METHODS, find_method

    if name is not None:
        typer.echo(_describe(find_method(name)))
        return
    if markdown:
        typer.echo(_markdown(METHODS.values()))
        return
    table = Table(*HEADER, box=None, pad_edge=False, header_style="bold")
    for method in METHODS.values():
        table.add_row(*_row(method))
    console = Console()
    console.print(table)
    console.print('\n"ttc methods NAME" describes one; use it with ttc.adapt(model, "NAME").', highlight=False)


def _row(method: "Method") -> tuple[str, ...]:
    passes = f"{_passes(method.forwards)}/{_passes(method.backwards)}"
    changes, needs = ", ".join(method.changes) or "nothing", ", ".join(method.needs) or "nothing"
    return method.name, changes, passes, needs, method.paper


def _passes(passes: "Passes") -> str:
    return str(passes) if isinstance(passes, int) else "-".join(map(str, passes))


def _describe(method: "Method") -> str:
    """Describe a method in full for a terminal: its description, its line of the table, its options."""
    import re
    import shutil
    import textwrap

    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    line = "; ".join(f"{title}: {value}" for title, value in zip(HEADER[1:], _row(method)[1:], strict=True))
    options = [
        textwrap.fill(str(option), width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
        for option in method.options.values()
    ]
    paragraphs = re.split(r"(\n\n|\n(?=Differs |  ))", method.description)  # docstrings have lines of their own length
    text = "".join(part if part.isspace() else textwrap.fill(part, width) for part in paragraphs)
    return "\n".join([text, "", textwrap.fill(line, width), "", "Options:" if options else "Options: none", *options])


def _markdown(methods: "Iterable[Method]") -> str:
    """Write the table, then the description and options of every builder once."""
    lines = ["# The methods", "", "Made by `ttc methods --markdown`; `fwd/bwd` counts passes per batch.", ""]
    methods = list(methods)
    rows = [HEADER, ("---",) * len(HEADER), *map(_row, methods)]
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
