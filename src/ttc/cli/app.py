"""The ``ttc`` command line: registers the commands and prints a user's error as one sentence."""

import os
import sys
import warnings
from collections.abc import Callable
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

COMMANDS: tuple[tuple[Callable[..., None], str], ...] = (  # whole in the 80 columns of ttc --help
    (demo.demo, "Compare the paper's methods on the shipped images, offline."),
    (methods.methods, "List the methods, or explain one with its options."),
    (inspect.inspect, "Show what can be adapted in a model, and what prevents it."),
    (adapt.adapt, "Adapt a model over a folder of images; write predictions."),
    (serve.serve, "Predict and adapt over HTTP."),
    (doctor.doctor, "Check the installation, the data and the checkpoints."),
    (corrupt.corrupt, "Write corrupted copies of a folder of images or of CIFAR."),
    (train.train, "Train a source model on CIFAR."),
    (run.run, "Evaluate a grid of methods, corruptions and scenarios."),
    (results.results, "List, compare and export what ttc run has finished."),
    (reproduce.reproduce, "Run a table or figure of the paper, ours beside theirs."),
    (report.report, "Write one page with the tables and figures of all runs."),
    (diagnose.diagnose, "Measure the clustering view of a stream."),
)
for command, summary in COMMANDS:
    app.command(short_help=summary)(command)
app.add_typer(data.app, name="data")


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
