"""``ttc methods``: the table of methods, or one of them in full."""

from collections.abc import Sequence
from typing import Annotated

import typer

HEADER = ("method", "changes", "fwd/bwd", "needs", "paper")


def methods(
    name: Annotated[str | None, typer.Argument(help="Describe this method in full, with its options.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print everything as Markdown (docs/methods.md).")
    ] = False,
) -> None:
    """List the methods: what each changes, its forward and backward passes a batch, what it needs, its paper."""
    from rich.console import Console
    from rich.table import Table

    from ttc.methods import METHODS, named

    if name is not None:
        method = named(name)
        typer.echo(f"{method.description}\n\nOptions: {', '.join(method.options) or 'none'}")
        return
    rows = [(name, *method[1:]) for name, method in METHODS.items()]
    if markdown:
        typer.echo(_markdown(rows))
        return
    table = Table(*HEADER, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print('\n"ttc methods NAME" describes one; use it with ttc.adapt(model, "NAME").', highlight=False)


def _markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """The table, then the description and options of every builder once."""
    from ttc.methods import METHODS

    lines = ["# The methods", "", "Made by `ttc methods --markdown`; `fwd/bwd` counts passes a batch.", ""]
    lines += [f"| {' | '.join(row)} |" for row in (HEADER, ("---",) * len(HEADER), *rows)]
    told = set()
    for name, method in METHODS.items():
        if method.description not in told:
            told.add(method.description)
            lines += ["", f"## {name}", "", method.description, "", f"Options: {', '.join(method.options) or 'none'}"]
    return "\n".join(lines)
