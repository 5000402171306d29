"""The command line: which commands there are, and what belongs to all of them. One file per command or pair of commands.

>>> from labeldp.cli import app, main
>>> main.__name__, app.info.name
('main', 'labeldp')

A command talks and leaves the work to the library. Exit codes: 0 done; 1 unexpected (run again with --debug to see where);
2 a usage error or bad input; 3 the budget refuses; 4 a damaged file, or one whose promise cannot be trusted; 130 or
143 stopped by Ctrl-C or SIGTERM. Neither a closed stream nor a reader who leaves early (`| head -1`) changes the code; output that
cannot be written (a full disk) is code 2.

Design notes. Start-up is most of what a short command takes, so nothing heavy is imported before a command runs: each
command imports what it needs. Answers go to stdout; progress, warnings and errors go to stderr, so that `--json` leaves
exactly one JSON object on stdout. To add a command: write its function in a file here and name it in `COMMANDS`.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from labeldp.cli import (
    audit,
    evaluate,
    inspect,
    interrupts,
    ledger,
    look,
    pate,
    plan,
    predict,
    privatize,
    ratings,
    report,
    screen,
    tables,
    top_k,
    train,
)

#: In the order of the help text. The name of a command is that of its function, with dashes.
COMMANDS = (
    report.demo,
    look.look,
    plan.plan,
    privatize.privatize,
    inspect.inspect,
    train.train,
    predict.predict,
    evaluate.evaluate,
    ledger.ledger,
    top_k.top_k,
    pate.pate,
    report.report,
    audit.audit,
    report.explore,
    ratings.train_ratings,
    ratings.predict_ratings,
)


#: The base of all usage errors: click's, or that of the copy of click that typer carries.
_UsageError: Any = typer.BadParameter.__bases__[0]


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Let no usage error pass on what a terminal would obey: it quotes arguments, and a shell fills in names of files.

    A signal that comes while arguments are read, before the border of a command, is said to have stopped it.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Exit(screen.report_stop(error)) from None
    except _UsageError as error:
        error.message = screen.show_plain(error.message)
        raise


class _Commands(TyperGroup):
    """The commands, whose usage errors are fit for a terminal."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _plain_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _plain_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name="labeldp",
    cls=_Commands,
    help="Release labels under label differential privacy, and learn from what was released.",
    epilog="Start with [bold]labeldp demo[/bold]. Each command shows examples under --help.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # a traceback shows local variables, and some of them are raw labels
    context_settings={"help_option_names": ["-h", "--help"]},
)
_KINDS: dict[Any, Any] = {privatize.privatize: privatize.PrivatizeCommand, train.train: train.TrainCommand}
for _command in COMMANDS:
    _name = _command.__name__.replace("_", "-")
    _whole = screen.guard(tables.expand(_command))
    app.command(_name, cls=_KINDS.get(_command), help=screen.reflow(_command.__doc__ or ""))(_whole)


def main() -> None:
    """Run the command line of this process: its streams are made safe first, and warnings are written as lines."""
    screen.open_streams()
    interrupts.listen()
    warnings.showwarning = _show_warning
    try:
        app(prog_name="labeldp")
    except OSError as error:  # help that cannot be written; the commands have a border of their own
        sys.exit(screen.report_error(error))
    except KeyboardInterrupt as error:  # while typer looks at the commands
        sys.exit(screen.report_stop(error))
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:  # typer takes every interrupt for Ctrl-C
            end.code = interrupts.exit_code()
        raise
    finally:
        interrupts.end_listening()


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    screen.note(" ".join(str(message).split()), kind=category.__name__)


def _show_version(asked: bool) -> None:
    if asked:
        from labeldp import __version__

        print(f"labeldp {__version__}", flush=True)
        raise typer.Exit


@app.callback()
def _set_common_options(
    version: Annotated[  # noqa: ARG001 - its callback answers and leaves
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="LABELDP_DEBUG", help="Show a traceback when something fails.")
    ] = False,
) -> None:
    """Release labels under label differential privacy, and learn from what was released."""
    screen.show_tracebacks(debug)
