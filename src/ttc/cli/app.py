"""The ``ttc`` command line: registers the commands and prints a user's error as one sentence."""

import os
import sys
import warnings
from typing import Annotated

import typer

import ttc
from ttc.cli import (
    adapt,
    corrupt,
    data,
    demo,
    diagnose,
    doctor,
    inspect,
    methods,
    report,
    reproduce,
    results,
    run,
    serve,
    train,
)
from ttc.errors import TTCError

app = typer.Typer(
    help="Adapt trained image classifiers to new data at test time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it takes [@SIZE] for a style and cuts long defaults
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(demo.demo)
app.command()(methods.methods)
app.command()(inspect.inspect)
app.command()(adapt.adapt)
app.command()(serve.serve)
app.add_typer(data.app, name="data")
app.command()(doctor.doctor)
app.command()(corrupt.corrupt)
app.command()(train.train)
app.command()(run.run)
app.command()(results.results)
app.command()(reproduce.reproduce)
app.command()(report.report)
app.command()(diagnose.diagnose)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ttc {ttc.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _print_warnings_once() -> None:
    """Print the text of a warning, once, without the source line that raised it."""
    printed: set[str] = set()

    def show(message: Warning | str, *details: object, **more: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            typer.echo(f"ttc: warning: {message}", err=True)

    warnings.showwarning = show


def _print_plainly_in_notebooks() -> None:
    """Draw nothing that moves below a notebook cell: its shell is a terminal, and every frame would be saved."""
    if "JPY_PARENT_PID" in os.environ:  # set in the kernels of Jupyter
        os.environ.setdefault("TTY_COMPATIBLE", "0")  # read by rich


def main() -> None:
    """Run the command line; a user's error is one sentence on stderr and exit code 2."""
    _print_plainly_in_notebooks()
    _print_warnings_once()
    try:
        app()
    except TTCError as error:
        typer.echo(f"ttc: {error}", err=True)
        sys.exit(2)
