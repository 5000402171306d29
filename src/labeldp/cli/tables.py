"""Tables of commands, in and out: how text is read, how labels are tidied, what must be confirmed, and where rows go.

Options that several commands share come in groups. A command takes a group as one argument, `reading: Reading = Reading()`, and `expand` turns it into the options that its fields
declare: typer knows functions of single options alone. It also tells `labeldp.cli.given` which line is at work.

>>> import inspect
>>> def count(table: str, *, reading: Reading = Reading()) -> None: ...
>>> list(inspect.signature(expand(count)).parameters)
['table', 'sep', 'decimal', 'quote', 'encoding', 'columns', 'header', 'kind', 'na', 'context']

*What is shown.* A text table that is not plain (commas, points, UTF-8) is said to be read as it is read, in one line on stderr.
*What is asked.* Where a person sits at a terminal, questions replace refusals: about labels that look like one class in several
spellings, about missing ones, about an epsilon that protects next to nothing. Nothing here prints a label value but the
classes that a release makes public, and those to a terminal alone; `labeldp look` is the command that shows them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import sys
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.given import reading_line, refuse_idle
from labeldp.cli.screen import errors, note, parse_classes, styled
from labeldp.errors import Described, LabelDPError, invalid

TEXT = "Text tables (found out if left out)"
LABELS = "Labels as they are read"
NUMBERS = "Labels that are numbers"
#: Above this a label is as good as published: the odds of the truth grow by a factor of 500 million.
LARGE_EPSILON = 20.0
#: Bytes of a file of classes.
MOST_CLASS_BYTES = 2**24


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How text tables are written."""

    sep: Annotated[str | None, typer.Option("--sep", help="The separator: ';', '|', tab.", rich_help_panel=TEXT)] = None
    decimal: Annotated[str | None, typer.Option("--decimal", help="The decimal sign: . or ,", rich_help_panel=TEXT)] = (
        None
    )
    quote: Annotated[str | None, typer.Option("--quote", help="The quote: \" or '", rich_help_panel=TEXT)] = None
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="utf-8, cp1252, utf-16, ...", rich_help_panel=TEXT)
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", help="The names of the columns, with commas: there is no line of names.", rich_help_panel=TEXT
        ),
    ] = None
    header: Annotated[
        bool,
        typer.Option("--header", help="The first line holds names, though it looks like data.", rich_help_panel=TEXT),
    ] = False
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="A column's type: zip=string, day=%d/%m/%Y; may be repeated.",
            metavar="COLUMN=TYPE",
            rich_help_panel=TEXT,
        ),
    ] = None
    na: Annotated[
        list[str] | None,
        typer.Option(
            "--na", help="A further word for a missing value; may be repeated.", metavar="WORD", rich_help_panel=TEXT
        ),
    ] = None

    @property
    def types(self) -> dict[str, str]:
        """The types that were said, by column."""
        return dict(_split_pair(text, "--type") for text in self.kind or ())

    def open(
        self,
        path: Any,
        *,
        settle: bool = True,
        as_text: Iterable[str] = (),
        again: bool = False,
        beside: Iterable[Any] = (),
    ) -> Any:
        """Return a table, and say how its text is read unless that is plain, or was said before (`again`).

        With `settle`, its types hold for every row; without, whoever reads it sees to that. Columns of `as_text`, where there
        are such, are read as text, as a model knows them: a postal code may look like a number here. Options that say nothing
        about this table are refused, unless they are about another one of this line (`beside`).
        """
        from labeldp.data import open_table
        from labeldp.data.text import idle_options

        said: dict[str, Any] = {
            "sep": {"tab": "\t", "\\t": "\t"}.get(str(self.sep), self.sep),
            "decimal": self.decimal,
            "quote": self.quote,
            "encoding": self.encoding,
            "columns": None if self.columns is None else [name.strip() for name in self.columns.split(",")],
            "header": True if self.header else None,
            "missing_values": self.na or (),
        }
        idle = set(idle_options(Path(path).name))
        everywhere = idle.intersection(*(idle_options(Path(other).name) for other in beside))
        fix = "It says how text is written; this format says itself what its columns and values are."
        refuse_idle("labeldp", _spell_options(everywhere), where=f"for {Path(path).name or path}", fix=fix)
        open_so = functools.partial(
            open_table, path, **{name: value for name, value in said.items() if name not in idle}
        )
        types = {} if "types" in idle else self.types
        source = open_so(types=types)
        if source.form is not None:
            others = [name for name in as_text if name in source.names and source.form.kinds[name] != "text"]
            if others:
                source = open_so(types={**dict.fromkeys(others, "string"), **types})
        source = source.settle() if settle else source
        if source.form is not None and not source.form.plain and not again:
            note(f"{source.form.words} ({source.path.name})", kind="read as")
        return source


@dataclass(frozen=True, kw_only=True)
class Tidying:
    """How labels are tidied before anything else sees them."""

    strip: Annotated[bool, typer.Option("--strip", help="Take spaces around labels away.", rich_help_panel=LABELS)] = (
        False
    )
    merge: Annotated[
        list[str] | None,
        typer.Option(
            "--merge",
            help="Read a spelling as a class: yes=YES; may be repeated.",
            metavar="CLASS=SPELLING",
            rich_help_panel=LABELS,
        ),
    ] = None

    def apply(self, source: Any, label: str, *, tell: bool = True) -> Any:
        """Return the table with its labels tidied; a person at the terminal is told of spellings that no label has.

        Whether a label occurs is private, so nothing is said, and nothing refused, where it would be kept.
        """
        merge: dict[str, list[str]] = {}
        for text in self.merge or ():
            kept, spelling = _split_pair(text, "--merge")
            merge.setdefault(kept, []).append(spelling)
        tidy = source.rewrite(label, strip=self.strip, merge=merge)
        if tell and merge and can_ask():
            _tell_unmatched(tidy)
        return tidy


@dataclass(frozen=True, kw_only=True)
class LabelRules(Tidying):
    """How labels are tidied, and which classes there are."""

    one_class: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            help="A class of the public list; may be repeated, and may hold commas.",
            metavar="CLASS",
            rich_help_panel=LABELS,
        ),
    ] = None
    classes_file: Annotated[
        Path | None,
        typer.Option(
            "--classes-file",
            help="The public list of classes: a line each, UTF-8.",
            metavar="FILE",
            rich_help_panel=LABELS,
        ),
    ] = None

    def classes(self, text: str | None, kind: Any) -> list[Any] | None:
        """Return the public list of classes, from `--classes` or in one of the other two ways; None if there is none."""
        ways = {"--classes": text, "--class": self.one_class or None, "--classes-file": self.classes_file}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) > 1:
            raise invalid(
                "classes", " and ".join(given), "not be given together", got=Described("both"), fix="Choose one."
            )
        if self.classes_file is not None:
            if self.classes_file.stat().st_size > MOST_CLASS_BYTES:
                raise invalid(
                    "classes", "--classes-file", f"have at most {MOST_CLASS_BYTES:,} bytes", got=Described("more")
                )
            lines = self.classes_file.read_text(encoding="utf-8-sig").splitlines()
            return parse_classes([line for line in lines if line], kind)
        return parse_classes(text if self.one_class is None or not self.one_class else self.one_class, kind)


class Outside(str, Enum):
    """What is done with a number outside of its bounds."""

    clip = "clip"
    refuse = "refuse"


@dataclass(frozen=True, kw_only=True)
class NumberRange:
    """Labels that are numbers: their public bounds, or counts."""

    bounds: Annotated[
        str | None,
        typer.Option(
            "--bounds",
            help="The label is a number (an amount, a duration) between these public bounds: 0,5000. Never read off the data.",
            metavar="LOW,HIGH",
            rich_help_panel=NUMBERS,
        ),
    ] = None
    counts: Annotated[
        str | None,
        typer.Option(
            "--counts", help="The label is a count: 0..4, its public range.", metavar="0..C", rich_help_panel=NUMBERS
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether labels are numbers."""
        return self.bounds is not None or self.counts is not None

    def read_bounds(self) -> tuple[float, float] | None:
        """Return the two numbers of --bounds."""
        if self.bounds is None:
            return None
        words = self.bounds.split(",")
        try:
            low, high = (float(word) for word in words)
        except ValueError:
            fix = "For example --bounds 0,5000, with points for decimals: public, and known without the labels."
            raise invalid("labeldp", "--bounds", "be two numbers, low,high", got=self.bounds, fix=fix) from None
        return low, high

    def read_counts(self) -> tuple[int, int] | None:
        """Return the first and the last of --counts."""
        if self.counts is None:
            return None
        first, dots, last = self.counts.partition("..")
        try:
            return (int(first), int(last)) if dots else (0, int(first))
        except ValueError:
            fix = "For example --counts 0..4."
            raise invalid("labeldp", "--counts", "be two whole numbers", got=self.counts, fix=fix) from None


@dataclass(frozen=True, kw_only=True)
class NumberRules(NumberRange):
    """Labels that are numbers: their public range, and what is done outside of it."""

    outside: Annotated[
        Outside,
        typer.Option(
            "--outside",
            help="Numbers beyond the bounds: brought to the nearest one, or the table is refused.",
            rich_help_panel=NUMBERS,
        ),
    ] = Outside.clip

    def ways(self) -> dict[str, Any]:
        """Return what `privatize_table` and `read_labelled` take."""
        return {"bounds": self.read_bounds(), "counts": self.read_counts(), "outside": self.outside.value}


@dataclass(frozen=True, kw_only=True)
class Consent:
    """What must be confirmed."""

    accept_large_epsilon: Annotated[
        bool,
        typer.Option(
            "--accept-large-epsilon",
            help=f"Go on with an epsilon above {LARGE_EPSILON:g}, which hides next to nothing.",
        ),
    ] = False

    def check_epsilon(self, epsilon: float | None) -> None:
        """Have a person confirm an epsilon that hides next to nothing; refuse it where nobody can be asked.

        One below 0 is refused here, before anything is read or made.
        """
        if epsilon is not None and not epsilon >= 0:
            fix = "Smaller is more private: 0 tells nothing, 1 is a usual choice, inf is no privacy."
            raise invalid("labeldp", "--epsilon", "be 0 or more", got=epsilon, fix=fix)
        if epsilon is None or not epsilon > LARGE_EPSILON or self.accept_large_epsilon:
            return
        told = f"an epsilon of {epsilon:g} hides next to nothing: almost every released label is the true one"
        if can_ask():
            if typer.confirm(f"{told}. Go on?", err=True):
                return
            raise LabelDPError("stopped before anything was spent.")
        fix = f"At {epsilon:g} almost every released label is the true one. Meant so? --accept-large-epsilon."
        raise invalid("--epsilon", "epsilon", f"be at most {LARGE_EPSILON:g}", got=epsilon, fix=fix)


#: What `expand` knows.
GROUPS = (Reading, Tidying, LabelRules, NumberRange, NumberRules, Consent)


def options_of(*groups: Any) -> tuple[str, ...]:
    """Return the names of the options of some groups.

    >>> options_of(Tidying, NumberRange)
    ('--strip', '--merge', '--bounds', '--counts')
    """
    hints = [typing.get_type_hints(group, include_extras=True) for group in groups]
    # typer takes the first name for a default until it sees the annotation.
    return tuple(typing.get_args(hint)[1].default for each in hints for hint in each.values())


def refuse_other_kind(owner: str, *, numeric: bool, of_classes: Iterable[str] = ()) -> None:
    """Refuse the options of the other kind of label: of classes (and of `of_classes`) where it is a number, or of numbers."""
    if numeric:
        names = ("--classes", *options_of(LabelRules), *of_classes)
        fix = "Numbers have bounds, classes have a list: leave one of the two out."
        refuse_idle(owner, names, where="for labels that are numbers", fix=fix)
    else:
        fix = "It is about numbers outside of --bounds or --counts: add one of the two."
        refuse_idle(owner, ["--outside"], where="for labels that are classes", fix=fix)


#: The name of standard output, as a target.
STDOUT = "-"


def check_output(to: Path, *, owner: str, as_json: bool = False) -> None:
    """Refuse a target whose name says no format, before any work; and rows on a stream that shall hold one JSON object."""
    from labeldp.data.writing import choose_writer

    if str(to) != STDOUT:
        choose_writer(to, owner=owner)
    elif as_json:
        fix = "Write the rows to a file."
        raise invalid(owner, "--to", "be a file with --json", got=Described("standard output"), fix=fix)


def write_rows(batches: Iterable[Any], schema: Any, to: Path) -> int:
    """Write rows in the format that the name asks for; to `-` as CSV on standard output."""
    from labeldp.data.writing import write_stream, write_table

    if str(to) != STDOUT:
        return write_table(batches, schema, to)
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is not None:
        rows = write_stream(batches, schema, stream)
        stream.flush()
        return rows
    memory = io.BytesIO()  # a stream of text alone, as a test or a notebook puts there
    rows = write_stream(batches, schema, memory)
    sys.stdout.write(memory.getvalue().decode())
    return rows


def can_ask() -> bool:
    """Whether a person is there to answer: both the questions and the answers go over a terminal."""
    return bool(sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty())


@dataclass(frozen=True, kw_only=True)
class LabelChoice:
    """What a person at the terminal decided about a label column."""

    source: Any
    classes: list[Any] | None
    missing: str


def ask_about_labels(
    source: Any, label: str, *, classes: list[Any] | None, missing: str, numbers: bool = False
) -> LabelChoice:
    """Show what a label column will be read as, and ask where it looks wrong, before anything is spent.

    Where nobody can be asked, the classes are listed, or labels are numbers, nothing happens here: the check of labels refuses.
    """
    choice = LabelChoice(source=source, classes=classes, missing=missing)
    if not can_ask() or classes is not None or numbers:
        return choice
    from labeldp.data.label_column import choose_spelling, find_alike, label_profile

    source = source.settle()
    profile = label_profile(source, label)
    alike = find_alike(profile.counts) if profile.complete else []
    if alike:
        errors().print(
            styled(f"{len(alike)} groups of labels differ in spaces or capitals alone; `labeldp look` shows them.")
        )
        if not typer.confirm("Read each group as one class?", err=True):
            raise LabelDPError("stopped before anything was spent. List the classes with --classes, or --class.")
        merge: dict[str, list[str]] = {}
        for group in alike:
            kept = choose_spelling(group)
            merge[kept] = sorted({value.strip() for value in group} - {kept})
        old = source.rewritten
        for spelling, kept in () if old is None else old.pairs:
            merge.setdefault(kept, []).append(spelling)
        source = source.rewrite(label, strip=True, merge=merge)
        profile = label_profile(source, label)
    if profile.missing and missing == "error" and profile.missing < profile.rows:
        if not typer.confirm(f"{profile.missing:,} of {profile.rows:,} rows have no label. Leave them out?", err=True):
            raise LabelDPError("stopped before anything was spent.")
        missing = "drop"
    lone = [value for value, count in profile.counts.items() if count == 1]
    listed: list[Any] | None = None
    if lone and profile.complete and len(profile.counts) > 1:
        rows = ", ".join(f"{profile.first[value]:,}" for value in lone[:5])
        told = f"{len(lone)} classes have one row alone (row {rows}): that they occur becomes public."
        if not typer.confirm(f"{told} Were all classes known beforehand?", err=True):
            raise LabelDPError("stopped before anything was spent. List the classes that are known with --classes.")
        listed = sorted(profile.counts)
    shown = ", ".join(str(value) for value in sorted(profile.counts)[:20]) if profile.complete else "too many to show"
    note(f"{len(profile.counts):,} ({shown}); which there are becomes public", kind="classes")
    return LabelChoice(source=source, classes=listed, missing=missing)


def _tell_unmatched(source: Any) -> None:
    """Tell the owner which spellings were named in vain."""
    from labeldp.data.label_column import find_unmatched

    for spelling in find_unmatched(source):
        note(
            f"no label is spelt {spelling!r}. --merge CLASS=SPELLING: what is read as another stands on the right. That is said "
            "to this terminal alone, since which labels occur is private.",
            kind="merge",
        )


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose groups of options are single options, as typer wants them, and which says what was given."""
    # Not typing.get_type_hints: Python 3.10 makes what may be None an Optional around what typer reads the names of options from.
    hints = inspect.get_annotations(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if hints.get(name) not in GROUPS:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        kind = hints[name]
        inner = typing.get_type_hints(kind, include_extras=True)
        fields = dataclasses.fields(kind)
        groups[name] = (kind, [one.name for one in fields])
        parameters += [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=inner[one.name])
            for one in fields
        ]
    parameters.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    @functools.wraps(command)
    def run(*arguments: Any, context: typer.Context | None = None, **options: Any) -> None:
        made = {
            name: kind(**{one: options.pop(one) for one in fields if one in options})
            for name, (kind, fields) in groups.items()
        }
        with reading_line(context):
            command(*arguments, **options, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _spell_options(names: Iterable[str]) -> list[str]:
    """Return the options that stand for parameters of `open_table`."""
    other = {"missing_values": "--na", "types": "--type"}
    return [other.get(name, f"--{name}") for name in names]


def _split_pair(text: str, option: str) -> tuple[str, str]:
    """Return both sides of the first equals sign."""
    left, sign, right = text.partition("=")
    if not sign or not left:
        raise invalid("labeldp", option, "be two words with = between them", got=text)
    return left, right
