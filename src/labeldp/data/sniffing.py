r"""How a text table is written: its encoding, separator, quotes, decimal sign, header and the types of its columns.

>>> found = sniff_text(b"name;size;since\nana;1,75;03.05.2001\nbo;1.234,5;28.11.1999\n", Asked())
>>> found.words
"separator ';', decimal ',', 3 columns, groups of thousands in size"
>>> found.kinds
{'name': 'text', 'size': 'group .,', 'since': '%d.%m.%Y'}
>>> sniff_text(b"1;ana\n2;bo\n3;cy\n", Asked())
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: open_table: `header` must name the columns, got a first line that looks like data. If there is no line of names, ...

Everything is concluded from bounded pieces: the first `HEAD_BYTES` of the file, and where it can be had cheaply some pieces
further on. What a user says (`Asked`) is not guessed. The conclusion is a `TextFormat`: public facts, shown in one line.

*Separator and quotes.* Each candidate reads the first piece. Good is one that gives every line as many fields, and whose
fields do not look as if they should be cut further: a number with a decimal comma may hold a comma, other text is suspect.

*Types.* A column has the kinds that all its values have. A value may have several: "1" is a whole number, a number with either
decimal sign, and one with groups of thousands. Kinds of pieces are intersected, so the order of rows does not matter. What
text can mean two things is refused or stays text: "1,234" alone is refused unless another column, or the user, says what a
comma is; "04/05/2024" stays text where no value says which is the day. Numbers with leading zeros are text (postal codes),
and so are whole numbers beyond 64 bits, which a float would round.

*Missing values.* What Arrow takes for missing (empty, NA, NaN, null and their kin) is missing in every column. "?", "-", "--"
and "." are missing where all other values are numbers or dates; elsewhere they are words, since "-" is a class of many a
label column.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from labeldp.errors import Described, invalid, nearest

OWNER = "open_table"
#: The first piece of a file, and the most that it may grow to where one line is longer.
HEAD_BYTES = 2**18
MOST_LINE = 2**24
#: Of these, so many characters say which the separator is.
MARKS_CHARACTERS = 2**15
#: Lines of a piece that are looked at.
MOST_LINES = 5_000
SEPARATORS = (",", ";", "\t", "|")
#: A candidate for the separator must give so many of the lines as many fields.
LEAST_CONSISTENT = 0.8
#: What Arrow takes for missing, and what is missing among numbers and dates alone.
NULLS = tuple(pa_csv.ConvertOptions().null_values)
MARKS = ("?", "-", "--", ".")

_WHOLE = r"(0|[1-9][0-9]*)"
_TAIL = r"([eE][+-]?[0-9]+)?"
#: Space, no-break space, narrow no-break space, apostrophe: what separates groups of three digits besides point and comma.
_GAPS = r"[ \x{00a0}\x{202f}\x{2019}']"


def _number(decimal: str) -> str:
    return rf"^[+-]?(({_WHOLE}({decimal}[0-9]*)?|{decimal}[0-9]+){_TAIL}|[Ii]nf(inity)?)$"


def _grouped(group: str, decimal: str) -> str:
    return rf"^[+-]?([1-9][0-9]{{0,2}}({group}[0-9]{{3}})+|{_WHOLE})({decimal}[0-9]*)?$"


#: Kinds of values that are read by a pattern, in the order in which a column is given one.
PATTERNS = {
    "int": rf"^[+-]?{_WHOLE}$",
    "bool": r"^(true|True|TRUE|false|False|FALSE)$",
    "date": r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$",
    "time": r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
    "stamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$",
    "zoned": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})$",
    "number .": _number(r"\."),
    "number ,": _number(","),
    "group ,.": _grouped(",", r"\."),
    "group .,": _grouped(r"\.", ","),
    "group _.": _grouped(_GAPS, r"\."),
    "group _,": _grouped(_GAPS, ","),
}
_DAY, _MONTH, _YEAR = r"(0?[1-9]|[12][0-9]|3[01])", r"(0?[1-9]|1[0-2])", r"[0-9]{4}"
_PARTS = {"%d": _DAY, "%m": _MONTH, "%Y": _YEAR, "%H": "([01]?[0-9]|2[0-3])", "%M": "[0-5][0-9]", "%S": "[0-5][0-9]"}
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
#: Dates that are not written as ISO 8601 has them, without and with the time of day.
DATES = (*_DAYS, *(f"{day} {time}" for day in _DAYS for time in ("%H:%M", "%H:%M:%S")))


def date_pattern(spelt: str) -> str:
    """Return the pattern of a date that is written so."""
    return "^" + re.sub(r"%[dmYHMS]", lambda part: _PARTS[part[0]], re.escape(spelt).replace(r"\%", "%")) + "$"


KINDS = {**PATTERNS, **{spelt: date_pattern(spelt) for spelt in DATES}}
ARROW_TYPES = {
    "int": pa.int64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "time": pa.time32("s"),
    "stamp": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
    "text": pa.string(),
    "missing": pa.null(),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a user says about a text file; what is None is found out.

    `columns` are the names of a file that has none, or with `header` those to use instead. `types` are Arrow's names of
    types, or ways of writing a date (``%d/%m/%Y``). `missing` are further words for a missing value.
    """

    sep: str | None = None
    decimal: str | None = None
    quote: str | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None
    header: bool | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("sep", "decimal", "quote"):
            value = getattr(self, name)
            if value is not None and (len(value.encode()) != 1 or value in "\r\n"):
                fix = "A tab is '\\t' (in a shell, $'\\t')."
                raise invalid(OWNER, name, "be one ASCII character", got=value, fix=fix)
        if self.decimal not in (None, ".", ","):
            raise invalid(OWNER, "decimal", "be a point or a comma", got=self.decimal)
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                fix = "Examples: utf-8, utf-16, cp1252, latin-1."
                raise invalid(OWNER, "encoding", "be one that Python knows", got=self.encoding, fix=fix) from None


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """How a text table is read. `names` has None for a column that ends every line and holds nothing.

    `kinds` says what each column holds, and `parsed` which columns are read as text first. `skip` counts the lines above the
    first row of data. `small` says that the first piece is the whole file, `whole` that the types hold for all rows, and not
    only for those that were looked at.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = ""
    decimal: str = "."
    encoding: str = "utf-8"
    lines_of_json: bool = False
    packing: str = ""
    member: str = ""
    skip: int = 0
    names: tuple[str | None, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    parsed: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    longest: int = 0
    small: bool = False
    whole: bool = False
    asked: Asked = field(default_factory=Asked)
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a reader sees."""
        return tuple(name for name in self.names if name is not None)

    @property
    def plain(self) -> bool:
        """Whether this is what everybody expects of a CSV: nothing was concluded that a user should see."""
        usual = TextFormat(names=self.names, kinds=self.kinds)
        same = ("separator", "quote", "escape", "decimal", "encoding", "packing", "lines_of_json")
        return not self.notes and all(getattr(self, name) == getattr(usual, name) for name in same)

    @property
    def words(self) -> str:
        """The format in one line."""
        said = [f"lines of JSON{self._packed()}"] if self.lines_of_json else [f"separator {self.separator!r}"]
        said += [f"decimal {self.decimal!r}"] if not self.lines_of_json else []
        said += [f"quote {self.quote!r}"] if self.quote != '"' else []
        said += [f"escape {self.escape!r}"] if self.escape else []
        said += [f"encoding {self.encoding}"] if self.encoding != "utf-8" else []
        said += [f"packed by {self.packing}"] if self.packing and not self.lines_of_json else []
        return ", ".join([*said, f"{len(self.columns)} columns", *self.notes])

    def _packed(self) -> str:
        return f", packed by {self.packing}" if self.packing else ""

    def type_of(self, name: str) -> Any:
        """Return the Arrow type of a column."""
        return arrow_type(self.kinds[name])


def arrow_type(kind: str) -> Any:
    """Return the Arrow type of a kind of values."""
    if kind in ARROW_TYPES:
        return ARROW_TYPES[kind]
    if kind.startswith(("number", "group")):
        return pa.float64()
    if "%" in kind:
        return pa.timestamp("s") if "%H" in kind else pa.date32()
    return pa.type_for_alias(kind)


def sniff_text(head: bytes, asked: Asked, *, more: Iterable[bytes] = (), whole: bool = True) -> TextFormat:
    """Return how a text table is written.

    `head` is its first piece, `whole` says whether that is all of it, and `more` are pieces of further lines, cut anywhere.
    """
    further = list(more)
    encoding = asked.encoding or _find_encoding(head, further)
    text = _decode(head, encoding, whole=whole)
    if not text.strip():
        raise invalid(
            OWNER, "path", "have rows", got=Described("an empty file"), fix="Write it again; it is cut short."
        )
    skip, asked = _take_first_line(text, asked)
    separator, quote, escape = _find_marks(text, asked, skip=skip, whole=whole)
    lines = _read_lines(text, separator, quote, escape, skip=skip, whole=whole)
    if whole and not lines.sound:
        fix = f"Look for a quote ({quote}) that is opened and not closed, or say which quotes there are (--quote)."
        raise invalid(
            OWNER, "path", "close its quotes", got=Described("text that ends, or goes on, after a quote"), fix=fix
        )
    names, above, body, notes = _find_names(lines, asked)
    pieces = [body]
    if encoding.lower() in _ONE_BYTE:
        pieces += [_read_piece(one, encoding, separator, quote, escape, width=len(names)) for one in further]
    looks = [look_at([row[place] for piece in pieces for row in piece if len(row) == len(names)], asked.missing)
             for place in range(len(names))]  # fmt: skip
    if asked.columns is None and asked.header is None and lines.rows:
        _check_header(lines.rows[0], looks, body)
    decimal = asked.decimal or find_decimal(looks)
    kinds, parsed = choose_kinds(
        {name: look for name, look in zip(names, looks, strict=True) if name is not None},
        decimal=decimal, asked=asked, separator=separator,
    )  # fmt: skip
    return TextFormat(
        separator=separator, quote=quote, escape=escape, decimal=decimal or ".", encoding=encoding, skip=above,
        names=tuple(names), kinds=kinds, parsed=parsed, missing=asked.missing, asked=asked,
        longest=max((len(line) for line in text.splitlines()), default=0), notes=(*notes, *name_groups(kinds)),
    )  # fmt: skip


def name_groups(kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Say which columns were read in a way that a user should know of."""
    grouped = [name for name, kind in kinds.items() if kind.startswith("group")]
    return (f"groups of thousands in {', '.join(grouped[:5])}",) if grouped else ()


# ------------------------------------------------------------------------------------------------------- encodings

#: Encodings whose pieces can be read from anywhere: a line end is one byte.
_ONE_BYTE = ("utf-8", "ascii", "cp1252", "latin-1", "iso-8859-1", "iso-8859-15", "cp1250", "cp1251")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip


def _find_encoding(head: bytes, more: Sequence[bytes]) -> str:
    """Return the encoding: by its mark, by where its NUL bytes are, UTF-8 if it is, and else that of Windows."""
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    even, odd = head[0:2_000:2].count(0), head[1:2_000:2].count(0)
    if max(even, odd) > 0.3 * len(head[:2_000]) / 2 and min(even, odd) == 0:
        return "utf-16-le" if odd else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
        for piece in more:
            piece[piece.find(b"\n") + 1 : piece.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        whole = head + b"".join(more)
        return "latin-1" if any(byte in whole for byte in b"\x81\x8d\x8f\x90\x9d") else "cp1252"
    return "utf-8"


def _decode(head: bytes, encoding: str, *, whole: bool) -> str:
    """Return the first piece as text, without the mark of its encoding."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head, whole)
    except (UnicodeDecodeError, LookupError):
        fix = "Say which it is: --encoding cp1252, utf-16, ..."
        raise invalid(OWNER, "encoding", "be that of the file", got=encoding, fix=fix) from None
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        fix = "It is binary, or of another encoding: say --encoding utf-16-le, or take the NUL characters out."
        raise invalid(OWNER, "path", "be text", got=Described("NUL characters"), fix=fix)
    return text


# --------------------------------------------------------------------------------------- separators, quotes and lines


@dataclass(frozen=True)
class _Lines:
    """Rows of fields, at which line each ends, and whether the quotes came out right."""

    rows: list[list[str]]
    ends: list[int]
    sound: bool


def _take_first_line(text: str, asked: Asked) -> tuple[int, Asked]:
    """Return how many lines to leave out, and the separator that a first line ``sep=;`` states, as Excel writes it."""
    found = re.match(r'"?sep=(.)"?[ \t]*(\r\n|\r|\n)', text, re.IGNORECASE)
    if found is None:
        return 0, asked
    from dataclasses import replace

    return 1, replace(asked, sep=asked.sep or found[1])


def _read_lines(text: str, separator: str, quote: str, escape: str, *, skip: int, whole: bool) -> _Lines:
    """Return the rows of a piece; the last line of a piece that is cut is left out."""
    stream, done = io.StringIO(text, newline=""), [False]

    def lines() -> Iterable[str]:
        yield from stream
        done[0] = True

    rows: list[list[str]] = []
    ends: list[int] = []
    before = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(
            lines(), delimiter=separator, quotechar=quote or None, quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            escapechar=escape or None, doublequote=True, strict=True,
        )  # fmt: skip
        for row in reader:
            if reader.line_num > skip and row:
                rows.append(row)
                ends.append(reader.line_num)
            if len(rows) > MOST_LINES:
                break
    except csv.Error:
        return _Lines(rows, ends, sound=done[0] and not whole)
    finally:
        csv.field_size_limit(before)
    if not whole and done[0] and len(rows) > 1:
        rows.pop()
    return _Lines(rows, ends, sound=True)


def _find_marks(text: str, asked: Asked, *, skip: int, whole: bool) -> tuple[str, str, str]:
    """Return separator, quote and escape: those under which lines have as many fields, and fields look whole."""
    if len(text) > MARKS_CHARACTERS and text.find("\n", 0, MARKS_CHARACTERS // 4) > 0:
        text, whole = text[:MARKS_CHARACTERS], False
    quotes = ['"', "'"] if re.search(r"(^|[,;\t|\n])'", text) else ['"']
    quotes = quotes if asked.quote is None else [asked.quote]
    escapes = ["", "\\"] if '\\"' in text else [""]
    best: tuple[Any, ...] = (0.0,)
    chosen = (asked.sep or ",", quotes[0], "")
    for quote in quotes:
        for escape in escapes:
            for separator in SEPARATORS if asked.sep is None else (asked.sep,):
                found = _read_lines(text, separator, quote, escape, skip=skip, whole=whole)
                score = _judge(found, separator, quote)
                if score > best:
                    best, chosen = score, (separator, quote, escape)
    return chosen


def _judge(found: _Lines, separator: str, quote: str) -> tuple[Any, ...]:
    """Return how well a separator explains the lines: sound quotes, equal numbers of fields, whole fields, many fields."""
    if not found.rows:
        return (0.0,)
    widths = Counter(len(row) for row in found.rows)
    width, _ = widths.most_common(1)[0]
    if width < 2:
        return (0.0,)
    alike = (
        widths[width] + widths[width + 1] * all(row[-1] == "" for row in found.rows if len(row) == width + 1)
    ) / len(found.rows)
    if alike < LEAST_CONSISTENT:
        return (0.0,)
    others = re.compile("[" + re.escape("".join(sign for sign in SEPARATORS if sign != separator)) + "]")
    wrapped = re.compile("^'.*'$" if quote != "'" else '^".*"$', re.DOTALL)
    fields = [one for row in found.rows[:200] for one in row]
    suspect = sum(
        bool(wrapped.match(one)) or bool(others.search(one) and not _NUMBER_LIKE.match(one)) for one in fields
    )
    return (1.0 + found.sound, round(alike, 2), round(1 - suspect / max(1, len(fields)), 2), width)


_NUMBER_LIKE = re.compile(r"^\s*[+-]?[0-9.,'\s]*[0-9]([eE][+-]?[0-9]+)?\s*$")


def _read_piece(piece: bytes, encoding: str, separator: str, quote: str, escape: str, *, width: int) -> list[list[str]]:
    """Return the rows of a piece that is cut anywhere; what does not look like a row is left out."""
    text = piece[piece.find(b"\n") + 1 : piece.rfind(b"\n") + 1].decode(encoding, "replace")
    rows = _read_lines(text, separator, quote, escape, skip=0, whole=True).rows
    return [row for row in rows if len(row) == width]


def _find_names(lines: _Lines, asked: Asked) -> tuple[list[str | None], int, list[list[str]], tuple[str, ...]]:
    """Return the names of the fields, the lines above the data, the rows of data, and what should be said."""
    rows = lines.rows
    headed = asked.columns is None or bool(asked.header)
    body = rows[1:] if headed else rows
    above = lines.ends[0] if headed and lines.ends else 0
    if not body:
        raise invalid(OWNER, "path", "have rows", got=Described("an empty table"), fix="It has a line of names alone.")
    width = Counter(len(row) for row in body).most_common(1)[0][0]
    given: list[str] = list(asked.columns) if asked.columns is not None else [name.strip() for name in rows[0]]
    ended = all(row[-1] == "" for row in body if len(row) == width)
    names: list[str | None] = list(given)
    if len(given) == width - 1 and ended:
        names = [*given, None]
    elif len(given) == width and headed and ended and given[-1] == "":
        names = [*given[:-1], None]
    elif len(given) == width + 1 and headed and given[-1] == "":
        names = [*given[:-1]]
    elif len(given) != width:
        fix = "Remove lines above the names, say the separator (--sep), or name all columns (--columns a,b,...)."
        raise invalid(
            OWNER, "header", f"name {width} columns, as other lines have", got=Described(f"{len(given)}"), fix=fix
        )
    empty = [place for place, name in enumerate(names) if name == ""]
    for place in empty:
        names[place] = f"column_{place + 1}"
    named = ", ".join(f"column_{place + 1}" for place in empty[:3])
    return names, above, body, (f"without a name: {named}",) if empty else ()


def _check_header(first: Sequence[str], looks: Sequence[Look], body: Sequence[Sequence[str]]) -> None:
    """Refuse a first line that looks like data: numbers, dates, or words that its column has again.

    A word above a column of numbers is a name, and then so are the others.
    """
    typed = [bool(look.kinds) and not look.empty for look in looks]
    cells = [look_at([cell]) for cell in first[: len(looks)]]
    values = [bool(cell.kinds) and not cell.empty for cell in cells]
    if any(kind and not value for kind, value in zip(typed, values, strict=False)):
        return
    again = any(
        cell != "" and any(row[place : place + 1] == [cell] for row in body) for place, cell in enumerate(first)
    )
    if any(values) or again:
        fix = (
            "If there is no line of names, give them: columns= (--columns a,b,c). If it is one, say so: header=True "
            "(--header)."
        )
        got = Described("a first line that looks like data")
        raise invalid(OWNER, "header", "name the columns", got=got, fix=fix)


# -------------------------------------------------------------------------------------------------- kinds of columns


@dataclass(frozen=True)
class Look:
    """What some values of a column look like: the kinds that all have, and whether Arrow reads them as they are.

    `empty` says that there were none but missing ones, `marked` that some were marks of `MARKS`, `untidy` that some have
    a plus sign or spaces around them.
    """

    kinds: frozenset[str] = frozenset(KINDS)
    empty: bool = True
    marked: bool = False
    untidy: bool = False

    def __and__(self, other: Look) -> Look:
        """Return what both look like."""
        return Look(
            self.kinds & other.kinds,
            self.empty and other.empty,
            self.marked or other.marked,
            self.untidy or other.untidy,
        )


def look_at(values: Any, missing: Sequence[str] = ()) -> Look:
    """Return what values look like, from a list of texts or an Arrow array of them."""
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, pa.string())
    array = pc.unique(array).drop_null()
    array = array.filter(pc.invert(pc.is_in(array, value_set=pa.array([*NULLS, *missing], pa.string()))))
    if not len(array):
        return Look()
    tidy = pc.utf8_trim_whitespace(array)
    untidy = not tidy.equals(array) or bool(pc.any(pc.starts_with(tidy, "+")).as_py())
    none = pc.is_in(tidy, value_set=pa.array([*NULLS, *missing, *MARKS], pa.string()))
    marked = bool(pc.any(none).as_py())
    tidy = tidy.filter(pc.invert(none)) if marked else tidy
    if not len(tidy):
        return Look(frozenset() if marked else frozenset(KINDS), empty=False, marked=marked, untidy=untidy)
    # The first value says which kinds are possible at all: most columns need one pattern then, or none.
    first = tidy.slice(0, 1)
    kinds = [kind for kind, pattern in KINDS.items() if pc.match_substring_regex(first, pattern)[0].as_py()]
    kinds = [kind for kind in kinds if pc.all(pc.match_substring_regex(tidy, KINDS[kind])).as_py()]
    if "int" in kinds and not _fits(tidy):
        kinds = []  # whole numbers beyond 64 bits are names: a float would round them
    kinds = [kind for kind in kinds if kind not in ("date", "stamp", "zoned") or _casts(tidy, ARROW_TYPES[kind])]
    return Look(frozenset(kinds), empty=False, marked=marked, untidy=untidy)


def _fits(values: Any) -> bool:
    """Whether whole numbers have at most 64 bits."""
    return not pc.any(pc.greater(pc.utf8_length(values), 18)).as_py() or _casts(pc.utf8_ltrim(values, "+"), pa.int64())


def _casts(values: Any, kind: Any) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


def find_decimal(looks: Iterable[Look]) -> str | None:
    """Return the decimal sign that the columns of numbers have; None where no column says it."""
    votes: Counter[str] = Counter()
    for look in looks:
        commas = look.kinds & {"number ,", "group .,", "group _,"}
        points = look.kinds & {"number .", "group ,.", "group _."}
        if not look.empty and bool(commas) != bool(points):
            votes["," if commas else "."] += 1
    return votes.most_common(1)[0][0] if votes else None


def choose_kinds(
    looks: Mapping[str, Look], *, decimal: str | None, asked: Asked, separator: str
) -> tuple[dict[str, str], frozenset[str]]:
    """Return the kind of each column, and which columns must be read as text first."""
    kinds: dict[str, str] = {}
    parsed: set[str] = set()
    for name, look in looks.items():
        spelt = asked.types.get(name)
        kinds[name] = _choose_kind(name, look, decimal, asked, separator) if spelt is None else spell_type(name, spelt)
        kind = kinds[name]
        direct = kind in ("int", "text", "missing") or kind == f"number {decimal or '.'}" or spelt is not None
        direct = direct or (kind in ("bool", "date", "time", "stamp", "zoned") and not look.untidy)
        plus = look.untidy and kind not in ("text", "missing") and spelt is None
        if "%" in kind or not direct or (look.marked and kind not in ("text", "missing")) or plus:
            parsed.add(name)
    check_typed(asked, looks)
    return kinds, frozenset(parsed)


def check_typed(asked: Asked, names: Iterable[str]) -> None:
    """Refuse a type for a column that is not there."""
    known = list(names)
    absent = [name for name in asked.types if name not in known]
    if absent:
        raise invalid(OWNER, "types", "name columns", got=absent[0], fix=nearest(absent[0], known))


def _choose_kind(name: str, look: Look, decimal: str | None, asked: Asked, separator: str) -> str:
    """Return what a column is read as: the first kind that all its values have and that has one meaning."""
    if look.empty:
        return "missing"
    for kind in ("int", "bool", "date", "time", "stamp", "zoned"):
        if kind in look.kinds:
            return kind
    own, other = (",", ".") if decimal == "," else (".", ",")
    if decimal is None and {"number ,", "group ,."} <= look.kinds and "number ." not in look.kinds and separator != ",":
        fix = "Is 1,234 more than a thousand? Say --decimal . if it is, and --decimal , if it is not."
        raise invalid(
            OWNER, f"decimal of {name}", "be known", got=Described("numbers that can be read in two ways"), fix=fix
        )
    order = [f"number {own}", f"group {other}{own}", f"group _{own}"]
    if asked.decimal is None and not (decimal is None and separator == ","):
        order += [f"number {other}", f"group {own}{other}", f"group _{other}"]
    found = next((kind for kind in order if kind in look.kinds), None)
    if found is None:
        dates = [kind for kind in DATES if kind in look.kinds]
        found = dates[0] if len(dates) == 1 else None
    return found or "text"


#: The types that are worth knowing, as Arrow spells them; it knows a few more.
TYPES = ("string", "bool", "int8 to int64", "uint8 to uint64", "float32", "double", "date32", "timestamp[s]")


def spell_type(name: str, spelt: str) -> str:
    """Return the kind that a user spells: an Arrow type, or a way of writing dates."""
    if "%" in spelt:
        if set(re.findall("%.", spelt)) - set(_PARTS):
            fix = "Parts are %d, %m, %Y, %H, %M and %S."
            raise invalid(OWNER, "types", f"spell how the dates of {name} are written", got=spelt, fix=fix)
        return spelt
    try:
        pa.type_for_alias(spelt)
    except ValueError:
        fix = f"Known are {', '.join(TYPES)}; or how dates are written: %d/%m/%Y."
        raise invalid(OWNER, "types", f"spell Arrow's name of a type for {name}", got=spelt, fix=fix) from None
    return "text" if spelt in ("string", "str", "utf8") else spelt


def parse_column(values: Any, kind: str, missing: Sequence[str] = ()) -> Any:
    """Return a column of texts as what its kind says; a value of another kind is a ValueError, which does not show it."""
    tidy = pc.utf8_trim_whitespace(values)
    none = pc.is_in(tidy, value_set=pa.array([*NULLS, *MARKS, *missing], pa.string()))
    tidy = pc.if_else(none, pa.scalar(None, pa.string()), tidy)
    pattern = KINDS.get(kind) or (date_pattern(kind) if "%" in kind else None)
    if pattern is not None and pc.all(pc.match_substring_regex(tidy, pattern)).as_py() is False:
        raise ValueError("a value of another kind")
    try:
        if "%" in kind:
            return pc.strptime(tidy, format=kind, unit="s").cast(arrow_type(kind))
        if kind == "bool":
            tidy = pc.utf8_lower(tidy)
        if kind == "int" or kind.startswith(("number", "group")):
            tidy = pc.utf8_ltrim(tidy, "+")
        if kind.startswith("group"):
            tidy = pc.replace_substring_regex(tidy, _GAPS if kind[6] == "_" else re.escape(kind[6]), "")
        if kind.startswith(("number", "group")) and kind.endswith(","):
            tidy = pc.replace_substring(tidy, ",", ".")
        return tidy.cast(arrow_type(kind))
    except pa.ArrowException:
        raise ValueError("a value of another kind") from None
