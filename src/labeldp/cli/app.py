"""The application: which commands there are, and what belongs to all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from labeldp.cli import screen as _screen
from labeldp.cli.audit import audit
from labeldp.cli.demo import demo
from labeldp.cli.inspect import inspect
from labeldp.cli.ledger import ledger
from labeldp.cli.pate import pate
from labeldp.cli.plan import plan
from labeldp.cli.predict import evaluate, predict
from labeldp.cli.privatize import privatize
from labeldp.cli.ratings import predict_ratings, train_ratings
from labeldp.cli.report import explore, report
from labeldp.cli.top_k import top_k
from labeldp.cli.train import train

app = typer.Typer(
    name="labeldp",
    help="Release labels under label differential privacy, and learn from what was released.",
    epilog="Start with [bold]labeldp demo[/bold]. Each command shows examples under --help.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # a traceback shows local variables, and some of them are raw labels
    context_settings={"help_option_names": ["-h", "--help"]},
)

RATINGS = (train_ratings, predict_ratings)
for command in (
    *(demo, plan, privatize, inspect, train, predict, evaluate, ledger, top_k, pate, report, audit, explore),
    *RATINGS,
):
    name = command.__name__.replace("_", "-")
    app.command(name, help=_screen.reflowed(command.__doc__ or ""))(_screen.guarded(command))


def _version(asked: bool) -> None:
    if asked:
        from labeldp import __version__

        print(f"labeldp {__version__}")
        raise typer.Exit


@app.callback()
def _everything(
    version: Annotated[  # noqa: ARG001 - its callback answers and leaves
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="LABELDP_DEBUG", help="Show a traceback when something fails.")
    ] = False,
) -> None:
    """Release labels under label differential privacy, and learn from what was released."""
    _screen.show_tracebacks(debug)
