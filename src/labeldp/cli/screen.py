r"""How every command speaks: tables and JSON on stdout, progress and errors on stderr, and its exit code.

>>> classify_error(LabelDPError("plan: `epsilon` must be > 0, got -1."))
(2, 'plan: `epsilon` must be > 0, got -1.')
>>> split_names("age, sex")
['age', 'sex']
>>> print(show_plain("income\x1b[2J"))
income\x1b[2J

A command is a plain function with typer's annotations. `guard` turns whatever it raises into one line on stderr and an exit
code; `answer` prints what it found, for machines (`--json`: exactly one JSON object on stdout) or for people. Options that
several commands share stand at the end, with the functions that turn their text into values.

*Foreign text.* Names of columns and classes, label sets, whatever a manifest, model or ledger says of itself, and the names
of files were written by others. A terminal obeys escape sequences, a line break forges a line, and rich reads "[red]" as a
colour. So text is foreign unless a command says otherwise: the consoles read no markup, and every string that goes to
them, in a line or in a table, passes `show_plain`, which shows each character that is not seen as its number. Colours are
asked for by `styled`, piece by piece, and its pieces pass the same place. JSON is exact: its own escapes are ASCII.

*Streams.* `open_streams` stands before everything, once in a process. What is closed is opened on the null device: a table
or ledger that is opened next would otherwise become standard output itself. A reader who leaves early (`| head -1`) ends
nothing: labels may be drawn and charged by then, so the command goes on in silence, to the exit code that it would have
had. A stream that cannot take what is written (a full disk) is an error with code 2, said once. Where stderr is the one
that fails there is nobody to tell, and the code stays.

Design notes. This module is loaded by `labeldp --help`: rich, numpy and the library are imported inside the functions that
need them.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.interrupts import end_listening, exit_code
from labeldp.display import open_bar, open_spinner
from labeldp.errors import (
    BudgetError,
    Described,
    LabelDPError,
    PrivacyError,
    ReleaseError,
    invalid,
    nearest,
    was_interrupted,
)
from labeldp.report.words import percent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text


UNEXPECTED, BAD_INPUT, OVER_BUDGET, DAMAGED = 1, 2, 3, 4

#: A file that is piped has no width; this one keeps tables and sentences whole.
PIPED_WIDTH = 100

_settings = {"debug": False}


def show_tracebacks(debug: bool) -> None:
    """Remember whether an error is to be shown with where it came from."""
    _settings["debug"] = debug


def reflow(text: str) -> str:
    """Return a docstring whose paragraphs are one line each, so that they wrap to any screen; indents are kept.

    >>> print(reflow(" ".join(["One", "paragraph."])))
    One paragraph.
    """
    import inspect

    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part.replace("\n", " ") for part in paragraphs)


def guard(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with a border around it: what it raises becomes one line on stderr and an exit code.

    typer's own exceptions (a usage error, `--help`) pass. With `--debug` the traceback is shown first; without it never,
    since its lines may hold raw labels.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            with _say_accounts():
                command(*arguments, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt as error:
            raise typer.Exit(report_stop(error)) from None
        except Exception as error:  # noqa: BLE001 - the border: everything becomes an exit code
            exit_with(error)

    return run


@contextmanager
def _say_accounts() -> Iterator[None]:
    """Show what a ledger has recognised as a note; other warnings go where they went."""
    from labeldp.errors import AccountWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", AccountWarning)
        show = warnings.showwarning

        def say(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, AccountWarning):
                note(str(message))
            else:
                show(message, category, *place, **more)

        warnings.showwarning = say
        yield


def exit_with(error: Exception) -> NoReturn:
    """Say what went wrong and exit with the code for it."""
    raise typer.Exit(report_error(error))


def report_stop(error: BaseException) -> int:
    """Say that a signal has ended the command, and what it has left, and return the exit code for it."""
    end_listening()
    text = " ".join(str(error).split()) if isinstance(error, KeyboardInterrupt) else ""
    errors().print(styled(("stopped:", "bold red"), " ", text or "interrupted."), soft_wrap=True)
    return exit_code()


def report_error(error: Exception) -> int:
    """Say what went wrong, in one line on stderr, and return the exit code for it."""
    if was_interrupted(error) and not isinstance(error, LabelDPError):
        return report_stop(error)
    if _settings["debug"]:
        for line in traceback.format_exc().splitlines():
            errors().print(line, soft_wrap=True)
    code, message = classify_error(error)
    errors().print(styled(("error:", "bold red"), " ", message), soft_wrap=True)
    return code


def classify_error(error: Exception) -> tuple[int, str]:
    """Return the exit code for an error, and its message on one line.

    3: the budget refuses. 4: a damaged file, or one whose promise cannot be trusted. 2: bad input, or a file that the system
    does not let us read or write. 1: anything else, which is a fault of ours and is said to be one, by its type alone: what
    it says may quote data.
    """
    text = " ".join(str(error).split())
    if isinstance(error, BudgetError):
        return OVER_BUDGET, text
    if isinstance(error, (ReleaseError, PrivacyError)):
        return DAMAGED, text
    if isinstance(error, LabelDPError):
        return BAD_INPUT, text
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return BAD_INPUT, f"{error.strerror}{where}"
    hint = "" if _settings["debug"] else " This is a fault of labeldp; run `labeldp --debug ...` to see where."
    return UNEXPECTED, f"{type(error).__name__}.{hint}"


def output() -> Console:
    """The console of answers."""
    return _console(stderr=False)


def errors() -> Console:
    """The console of warnings, errors and progress."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    seen = stream is not None and stream.isatty()
    console: Console = _plain_console()(stderr=stderr, highlight=False, width=None if seen else _piped_width())
    return console


@functools.cache
def _plain_console() -> Any:
    """Return the class of our consoles: rich's, through which no foreign text goes as it is."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        """Strings are words: no markup, no emoji codes, one line each, and all that is not seen shown by its number."""

        def render_str(self, text: str, **options: Any) -> Text:
            """Every string of a line, a cell, a header or a title comes here."""
            return super().render_str(show_plain(text), **{**options, "markup": False, "emoji": False})

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            """Everything else comes here: what was made without `styled` may at most break a line."""
            for part in super().render(renderable, options):
                whole = part.control or part.text.isprintable()
                yield part if whole else Segment(show_plain(part.text, keep="\n"), part.style)

    return PlainConsole


def _piped_width() -> int:
    wanted = os.environ.get("COLUMNS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else PIPED_WIDTH


def show_plain(text: object, *, keep: str = "") -> str:
    r"""Return text as one line that a terminal prints and does not obey.

    Whatever is not seen is shown as Python writes it: control characters (of both kinds, line breaks too), marks that turn
    the direction of reading, characters of no width, halves of a character. Spaces stay; those of `keep` stay.

    >>> print(show_plain("a\rb\u202e [red]"))
    a\rb\u202e [red]
    """
    words = str(text)
    if words.isprintable():
        return words
    return "".join(
        sign if sign.isprintable() or sign in keep or unicodedata.category(sign) == "Zs" else _number_of(sign)
        for sign in words
    )


def _number_of(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def styled(*parts: object) -> Text:
    """Return a line of text from parts: each is words, or (words, style) with a style of rich, such as "bold red".

    >>> styled(("released", "bold green"), " ", Path("out[1]")).plain
    'released out[1]'
    """
    from rich.text import Text

    pairs = (part if isinstance(part, tuple) else (part, "") for part in parts)
    return Text.assemble(*((show_plain(words), style) for words, style in pairs))


# ------------------------------------------------------------------------------------------------------- streams


class _Outlet(io.FileIO):
    """Standard output or error, as the system has it: a reader who left is no error, and an error is said once."""

    def __init__(self, number: int, *, said_as: str | None) -> None:
        super().__init__(number, "wb", closefd=False)
        self._said_as = said_as

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            _fill(self.fileno())  # nothing more is written: not what waits in the buffer, nor what follows
            if self._said_as is not None and not isinstance(error, BrokenPipeError):
                raise OSError(error.errno, error.strerror, self._said_as) from error
            return len(memoryview(data).cast("B"))


def open_streams() -> None:
    """Make the three streams of this process safe to use, whatever the caller closed; see *Streams* above.

    Called once, before anything is opened. Text that a stream's encoding does not have is written by its numbers.
    """
    for number in range(3):
        if not _is_open(number):
            _fill(number)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it lasts as long as the process
    sys.stdout = _open_outlet(1, sys.stdout, said_as="standard output")
    sys.stderr = _open_outlet(2, sys.stderr, said_as=None)


def _open_outlet(number: int, stream: Any, *, said_as: str | None) -> io.TextIOWrapper:
    """Return a stream on this file descriptor, with the encoding and the buffering of the one that it replaces."""
    encoding = "utf-8" if stream is None else stream.encoding
    lines = stream is not None and stream.line_buffering
    buffer = io.BufferedWriter(_Outlet(number, said_as=said_as))
    return io.TextIOWrapper(buffer, encoding=encoding, errors="backslashreplace", line_buffering=lines)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _fill(number: int) -> None:
    """Let this file descriptor lead to the null device."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


# ------------------------------------------------------------------------------------------------------- answers


def answer(facts: dict[str, Any], *, as_json: bool, show: Callable[[Console], None]) -> None:
    """Print the answer of a command on stdout.

    Parameters
    ----------
    facts : dict
        Everything that the command found. With `as_json` it is printed as one JSON object on one line.
    as_json : bool
        Whether a machine asked.
    show : callable
        Prints the same for people, on the console that it is given.
    """
    if as_json:
        # Flushed here: what cannot be written is an error of this command, not of the interpreter's end.
        print(json.dumps(to_json_types(facts), allow_nan=False), flush=True)
    else:
        show(output())


def to_json_types(value: Any) -> Any:
    """Return JSON types; infinity becomes the text "inf", since JSON has no such number.

    >>> to_json_types({"epsilon": math.inf, "rows": (1, 2)})
    {'epsilon': 'inf', 'rows': [1, 2]}
    """
    if isinstance(value, dict):
        return {str(k): to_json_types(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_types(v) for v in value]
    if hasattr(value, "tolist"):
        return to_json_types(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def facts_table(rows: list[tuple[str, Any]], *, title: str = "") -> RenderableType:
    """Return names and values in two columns; a value of None is left out."""
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            table.add_row(name, value)
    return table


def percent_or_none(share: float | None) -> str | None:
    """Return a share as a percentage, or None where it is not known."""
    return None if share is None or math.isnan(share) else percent(share)


def entry_facts(entry: int | None) -> dict[str, Any]:
    """Return a ledger's entry as facts: its number and its hash, each None where it is not known."""
    from labeldp.accounting import note_entry

    return note_entry(entry)


def entry_text(facts: dict[str, Any]) -> str | None:
    """Return an entry as a line shows it: its number and the beginning of its hash; None without a ledger."""
    if facts["ledger_entry"] is None:
        return None
    known = facts.get("ledger_hash")
    return f"{facts['ledger_entry']}" + (f", hash {known[:16]}" if known else "")


def warn_seeded() -> None:
    """Say in red that what follows protects no one."""
    told = "The noise comes from a seed: whoever knows or guesses the seed removes it. For experiments only."
    errors().print(styled((" NOT PRIVATE ", "bold white on red"), " ", (told, "red")))


def note(text: str, *, kind: str = "note") -> None:
    """Say something that the user should know and that stops nothing, on stderr."""
    errors().print(styled((f"{kind}:", "yellow"), " ", text), soft_wrap=True)


def warn_budget(recorded: float, asked: float) -> None:
    """Say that the ledger's own budget stands, whatever the command line says."""
    note(
        f"this ledger's budget is epsilon = {recorded:g}, not {asked:g}: a recorded budget stands. "
        "`labeldp ledger FILE --set-budget B` changes it, and leaves a row that says who and when."
    )


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show on stderr how far work is that tells (rows done, rows in all or None where that is not known)."""
    with open_bar(show_plain(what), console=errors()) as told:
        yield told


@contextmanager
def shares(what: str) -> Iterator[Callable[[float, str], None]]:
    """Show on stderr how far work is that tells (share done, what it is doing)."""
    with open_bar(show_plain(what), total=1.0, console=errors()) as told:
        yield lambda share, doing: told(share, words=show_plain(doing))


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show on stderr that work goes on, where its length is not known."""
    with open_spinner(show_plain(what), console=errors()):
        yield


# ------------------------------------------------------------------------------------------- options that are shared


LEDGER = "Ledger"
ENGINE = "Engine"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
Label = Annotated[str, typer.Option("--label", "-l", help="The column to protect.", metavar="COLUMN")]
Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The privacy of each label; smaller is more private.")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="Charge this ledger before anything is drawn.", rich_help_panel=LEDGER)
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", help="The default budget of a new ledger; a recorded one stands.", rich_help_panel=LEDGER),
]
BudgetDelta = Annotated[
    float,
    typer.Option(
        "--budget-delta",
        help="The delta at which --budget is read; noise that is not pure needs one.",
        rich_help_panel=LEDGER,
    ),
]
LabelSet = Annotated[
    str | None,
    typer.Option(
        "--label-set",
        help="The account that pays. If left out: the one that has these rows, or a new one, FILE:COLUMN.",
        rich_help_panel=LEDGER,
    ),
]
Classes = Annotated[
    str | None,
    typer.Option("--classes", help="The public list of classes, with commas; read off the labels if left out."),
]
RowIds = Annotated[
    str | None, typer.Option("--row-ids", help="A column of public row ids, which must differ.", metavar="COLUMN")
]
Person = Annotated[
    str | None,
    typer.Option(
        "--person",
        help="A public column that says whose row it is: epsilon is then what a person spends on all her labels.",
        metavar="COLUMN",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Reproducible noise: NOT PRIVATE, for experiments only.")]


Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="The address of a Dask scheduler.", metavar="ADDRESS", rich_help_panel=ENGINE),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Workers inside this process; one a core if left out.", rich_help_panel=ENGINE),
]
InsecureScheduler = Annotated[
    bool,
    typer.Option(
        "--insecure-scheduler",
        help="Accept a scheduler that talks in the clear (not tls://): whoever reaches its port runs code there.",
        rich_help_panel=ENGINE,
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        help="Seal the key with the passphrase in this file (or in $LABELDP_PASSPHRASE) until the job ends, so that a "
        "failed one can be taken up with --resume.",
        metavar="FILE",
        rich_help_panel=ENGINE,
    ),
]


class Missing(str, Enum):
    """What to do with rows without a label."""

    error = "error"
    drop = "drop"


MissingLabels = Annotated[Missing, typer.Option("--missing", help="Rows without a label: an error, or left out.")]


def split_names(text: str | None) -> list[str]:
    """Return the names in a text with commas.

    >>> split_names("a, b,c"), split_names(None)
    (['a', 'b', 'c'], [])
    """
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def parse_classes(text: str | list[str] | None, kind: Any) -> list[Any] | None:
    """Return the classes of `--classes` (or a list of words) as the label column has them; None where there are none.

    `kind` is the column's Arrow type (of its values, if it is a dictionary): whole numbers, numbers and booleans are read as
    such, everything else is text. A word that is no value of the type is refused.
    """
    if text is None:
        return None
    import pyarrow as pa

    from labeldp.data.tables import value_type

    inner = value_type(kind)
    words = split_names(text) if isinstance(text, str) else text
    try:
        if pa.types.is_integer(inner):
            return [int(word) for word in words]
        if pa.types.is_floating(inner):
            return [float(word) for word in words]
        if pa.types.is_boolean(inner):
            return [{"false": False, "true": True}[word.lower()] for word in words]
    except (ValueError, KeyError) as error:
        raise invalid("--classes", "classes", f"be values of type {inner}", got=Described(", ".join(words))) from error
    return words


def open_ledger(path: Path | None, budget: float | None, *, delta: float = 0.0) -> Any:
    """Return the ledger to charge, made by the first charge if it does not exist yet, or None where no path was given.

    A command that fails before that leaves no ledger, and no budget in one. `budget`, at `delta`, becomes the default budget of a
    new ledger. A budget that is recorded already stands: the user is told so. A budget without a ledger would be forgotten, so
    it is refused.
    """
    if budget is None:
        fix = "It is the delta at which a new budget is read."
        refuse_idle("labeldp", ["--budget-delta"], where="without --budget", fix=fix)
    if path is None:
        if budget is not None:
            raise LabelDPError("--budget needs a ledger to be kept in. Add --ledger FILE.")
        return None
    from labeldp.accounting import Ledger

    book = Ledger(path, budget=budget, delta=delta, make_now=False)
    recorded = book.budget(None)
    if budget is not None and recorded is not None and recorded[0] != budget:
        warn_budget(recorded[0], budget)
    return book


def read_ledger(path: Path | None, *, owner: str) -> Any:
    """Return a ledger that exists already, or None where none was given: for commands that read and never charge."""
    if path is None:
        return None
    from labeldp.accounting import Ledger

    require_path(path, "--ledger", owner=owner)
    return Ledger(path)


def require_path(path: Path, name: str, *, owner: str, directory: bool = False) -> None:
    """Refuse a file or directory that is not there, with the names that look like it."""
    if path.is_dir() if directory else path.is_file():
        return
    around = [str(p) for p in path.parent.iterdir() if p.is_dir() or not directory] if path.parent.is_dir() else []
    must = "be a directory" if directory else "exist"
    raise invalid(owner, name, must, got=str(path), fix=nearest(str(path), around))


def read_passphrase(path: Path | None) -> str | None:
    """Return the passphrase in a file, or in the environment; never one of the command line, which others can see."""
    if path is None:
        return os.environ.get("LABELDP_PASSPHRASE")
    return path.read_text(encoding="utf-8").strip()


def without_owner(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as they go into a model file, which others get.

    How many labels are missing is the owner's to know, and so is where her files lie: of a place its last name stays.
    """
    kept = {name: value for name, value in facts.items() if name != "dropped"}
    return kept | {name: Path(kept[name]).name for name in ("source", "release") if kept.get(name) is not None}


def name_label_set(label_set: str | None, table: Any, label: str) -> str:
    """Return the ledger's name for a label column: as given, or the table's file name and the column.

    The second is a suggestion (`AccountName`): rows that the ledger knows are charged to their account, whatever its name.
    """
    from labeldp.accounting import AccountName

    return label_set if label_set is not None else AccountName(f"{table.name}:{label}")


def open_whole_table(
    name: str,
    source: Any,
    labels: list[str],
    book: Any,
    *,
    features: list[str],
    persons: Any = None,
    person: str | None = None,
) -> str:
    """Return the account that pays for a table of which every row has a label; without a ledger the name as it is.

    `features` are the columns that a model reads. `persons` (`labeldp.release.Persons`) own the rows, by the column `person`, where
    all labels of a person are protected together.
    """
    from labeldp.accounting import protect_rows
    from labeldp.release.budget import open_account

    columns = [one for one in source.names if one not in labels] or labels

    def find_rows(key: Any) -> Any:
        found = protect_rows(source.batches(columns=columns), key, label=labels, features=features)
        return found if persons is None else found.with_persons(persons.ids, key, column=person or "")

    return open_account(book, name, find_rows)
