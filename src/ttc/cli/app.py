"""The ``ttc`` command line: registers the commands and prints a user's error as one sentence."""

import sys
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
    train,
)
from ttc.errors import TTCError

app = typer.Typer(
    help="Adapt trained image classifiers to new data at test time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(demo.demo)
app.command()(methods.methods)
app.command()(inspect.inspect)
app.command()(adapt.adapt)
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


def main() -> None:
    """Run the command line; a user's error is one sentence on stderr and exit code 2."""
    try:
        app()
    except TTCError as error:
        typer.echo(f"ttc: {error}", err=True)
        sys.exit(2)
