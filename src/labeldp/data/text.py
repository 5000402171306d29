r"""Text tables in batches: CSV and lines of JSON, packed or not, in any encoding, in bounded memory.

>>> import pathlib, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "people.csv"
>>> _ = path.write_bytes("name;größe\nana;1,75\nbo;1,8\n".encode("cp1252"))
>>> found = find_format(path, Asked())
>>> found.words
"separator ';', decimal ',', encoding cp1252, 2 columns"
>>> [batch.to_pydict() for batch in read_text(path, ["größe"], found)]
[{'größe': [1.75, 1.8]}]
>>> folder.cleanup()

Names say what a file is: .csv, .tsv and .txt are text with separators, .jsonl and .ndjson have a JSON object per line; .gz, .bz2
and .zip behind it (or .zip alone) say how it is packed. `labeldp.data.sniffing` concludes the rest.

Design notes. *Speed.* A file that is plain UTF-8 on this machine is read by Arrow from its path. Others come through a Python
stream, block by block.

*Streams.* Arrow reads ahead in threads of its own, which call the Python stream, and hold the blocks that they have read. If the
interpreter ends meanwhile, or while such a thread lets go of the stream or of a block, the process is aborted, whatever its exit code was to
be. So whoever is done with a stream, or fails on the way, waits until Arrow has let go of all of it (`_let_go`).

*Bounds.* Memory is bounded by a block, never by the file. A line may have `MOST_LINE` bytes. A packed file that unpacks to more
than `MOST_RATIO` times its size, beyond `FREE_BYTES`, is refused as it is read, whatever it declares: its owner can unpack
it. An archive holds one table. Objects in lines of JSON are flat.

*Types that turn out wrong.* They are concluded from pieces. A later value of another kind is a `ColumnTypeError`, and
`look_at_all` then concludes from every row: an integer column with 1.5 in its last row is a column of numbers. So what a
column is does not depend on where its values stand. One thing does: a leading zero that is in none of the pieces. The column
is then read as numbers.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import functools
import io
import json
import time
import weakref
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from labeldp.data.places import Place
from labeldp.data.sniffing import (
    HEAD_BYTES,
    MOST_LINE,
    NULLS,
    OWNER,
    Asked,
    Look,
    TextFormat,
    arrow_type,
    check_typed,
    choose_kinds,
    find_decimal,
    look_at,
    name_groups,
    parse_column,
    sniff_text,
    spell_type,
)
from labeldp.errors import ColumnTypeError, Described, LabelDPError, invalid
from labeldp.untrusted import parse_json

#: The ends of names of text tables, and of what they are packed with.
TEXT = (".csv", ".tsv", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".zip": "zip"}
#: A block of CSV. Arrow reads some 32 blocks ahead: a peak of 40 MB at this size, 150 MB at four times it, and no faster.
BLOCK_BYTES = 2**20
#: The longest wait for Arrow to let go of a stream.
MOST_SECONDS = 10.0
#: Pieces beyond the first that are looked at, and how large they are.
MORE_PIECES, PIECE_BYTES = 16, 2**14
#: Text of zeros and commas packs to a hundredth; a bomb is a thousand times its size. Small files may be anything.
MOST_RATIO, FREE_BYTES = 250, 2**28
#: Rows of lines of JSON that become a batch.
JSON_ROWS = 2**14


def is_text(name: str) -> bool:
    """Whether the name of a file says that it is a text table."""
    return bool(_endings(name)[0]) or name.lower().endswith(".zip")


#: What `Asked` says about text that is no JSON alone, by the names of `open_table`; and all of it.
OF_LINES = ("sep", "decimal", "quote", "columns", "header", "missing_values")
OF_TEXT = (*OF_LINES, "encoding", "types")


def idle_options(name: str) -> tuple[str, ...]:
    """Return which options of `open_table` say nothing about a file of this name.

    >>> idle_options("people.csv"), idle_options("people.jsonl.gz")
    ((), ('sep', 'decimal', 'quote', 'columns', 'header', 'missing_values'))
    >>> idle_options("people.parquet") == OF_TEXT
    True
    """
    if not is_text(name):
        return OF_TEXT
    return OF_LINES if _endings(name)[0] in JSON_LINES else ()


def _endings(name: str) -> tuple[str, str]:
    """Return the ending that says what a file is, and what it is packed with; both may be empty."""
    lower = name.lower()
    packing = next((word for ending, word in PACKINGS.items() if lower.endswith(ending)), "")
    bare = lower.rpartition(".")[0] if packing else lower
    return next((ending for ending in (*TEXT, *JSON_LINES) if bare.endswith(ending)), ""), packing


def find_format(part: Place, asked: Asked) -> TextFormat:
    """Return how a text table is written, from its first bytes and a few pieces further on."""
    ending, packing = _endings(part.name)
    member = ""
    if packing == "zip":
        member = _find_member(part)
        ending = _endings(member)[0]
    head, whole = _read_head(part, TextFormat(packing=packing, member=member))
    if ending in JSON_LINES:
        found = _look_at_objects([_json_rows(head, asked, whole=whole)], asked)
        if not whole and not set(asked.types) <= set(found.names):  # a column may be first seen further on
            found = _look_at_objects(_json_lines(part, replace(found, packing=packing, member=member)), asked)
        check_typed(asked, found.columns)
    else:
        if ending == ".tsv" and asked.sep is None:
            asked = replace(asked, sep="\t")
        more = _read_pieces(part, len(head)) if not packing and not whole else ()
        found = sniff_text(head, asked, more=more, whole=whole)
    return replace(found, packing=packing, member=member, small=whole)


def read_text(part: Place, columns: Sequence[str], form: TextFormat) -> Iterator[Any]:
    """Yield the rows of a text table in record batches, in their order."""
    if form.lines_of_json:
        yield from _read_objects(part, columns, form)
        return
    raw = {name: pa.string() if name in form.parsed else form.type_of(name) for name in columns}
    for batch in _open_csv(part, list(columns), raw, form):
        yield _parse(batch, form) if form.parsed.intersection(columns) else batch


def look_at_all(part: Place, form: TextFormat) -> TextFormat:
    """Return the format with types that hold for every row: a pass over the whole file."""
    if form.lines_of_json:
        lines = _json_lines(part, form)
        return replace(_look_at_objects(lines, form.asked), packing=form.packing, member=form.member, whole=True)
    looks = dict.fromkeys(form.columns, Look())
    texts = dict.fromkeys(form.columns, pa.string())
    for batch in _open_csv(part, list(form.columns), texts, form):
        for name in form.columns:
            if looks[name].kinds or looks[name].empty:
                looks[name] &= look_at(batch.column(name), form.missing)
    decimal = form.asked.decimal or find_decimal(looks.values())
    kinds, parsed = choose_kinds(looks, decimal=decimal, asked=form.asked, separator=form.separator)
    notes = [note for note in form.notes if not note.startswith("groups of")]
    return replace(
        form, kinds=kinds, parsed=parsed, decimal=decimal or ".", notes=(*notes, *name_groups(kinds)), whole=True
    )


# ---------------------------------------------------------------------------------------------------------- bytes


def _read_head(part: Place, form: TextFormat) -> tuple[bytes, bool]:
    """Return the first piece, unpacked, and whether it is all; it grows until it has a whole line."""
    head = bytearray()
    for block in _read_bytes(part, form):
        head += block
        if len(head) > HEAD_BYTES and (b"\n" in head or b"\r" in head):
            short = bytes(head[:HEAD_BYTES])
            return short if short.count(b"\n") + short.count(b"\r") > 1 else bytes(head), False
        if len(head) > MOST_LINE:
            raise _refuse_line()
    return bytes(head), True


def _read_pieces(part: Place, start: int) -> list[bytes]:
    """Return pieces spread over the rest of a file, the last of it among them."""
    if not isinstance(part, Path):
        return []
    end = part.stat().st_size
    step = max(PIECE_BYTES, (end - start) // MORE_PIECES)
    places = [*range(start, max(start, end - PIECE_BYTES), step), max(start, end - PIECE_BYTES)]
    with part.open("rb") as handle:
        return [(handle.seek(place), handle.read(PIECE_BYTES))[1] for place in places]


def _find_member(part: Place) -> str:
    """Return the one table in an archive; several, locked ones and ones of another kind are refused."""
    with part.open("rb") as handle, zipfile.ZipFile(handle) as archive:
        inside = [
            one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith(("__MACOSX/", "."))
        ]
        if len(inside) != 1:
            fix = "Unpack it, and name the file that is meant."
            raise invalid(OWNER, "path", "be an archive of one table", got=Described(f"{len(inside)} files"), fix=fix)
        (member,) = inside
        ending, packing = _endings(member.filename)
        if not ending or packing:
            fix = f"Unpack it. An archive may hold one of {', '.join((*TEXT, *JSON_LINES))}."
            raise invalid(OWNER, "path", "be an archive of a text table", got=member.filename, fix=fix)
        if member.flag_bits & 1:
            raise invalid(OWNER, "path", "be an open archive", got=Described("one with a password"), fix="Unpack it.")
        _check_ratio(member.file_size, member.compress_size)
        return member.filename


def _check_ratio(unpacked: int, packed: int) -> None:
    """Refuse what unpacks to very much more than it is: a few kilobytes must not become a disk."""
    if unpacked > max(FREE_BYTES, MOST_RATIO * packed):
        got = Described(f"{unpacked:,} bytes or more from {packed:,}")
        fix = "If you trust it, unpack it yourself and name the file."
        raise invalid(OWNER, "path", f"unpack to at most {MOST_RATIO} times its size", got=got, fix=fix)


def _read_bytes(part: Place, form: TextFormat) -> Iterator[bytes]:
    """Yield a file's bytes block by block, unpacked."""
    with part.open("rb") as handle:
        if form.packing == "zip":
            with zipfile.ZipFile(handle) as archive, archive.open(form.member) as inside:
                yield from iter(functools.partial(inside.read, BLOCK_BYTES), b"")
        elif form.packing:
            yield from _unpack(handle, form.packing)
        else:
            yield from iter(functools.partial(handle.read, BLOCK_BYTES), b"")


def _unpack(handle: Any, packing: str) -> Iterator[bytes]:
    """Yield what a gzip or bzip2 stream unpacks to, never more than a block at once; streams may follow each other."""
    make: Callable[[], Any] = bz2.BZ2Decompressor if packing == "bzip2" else functools.partial(zlib.decompressobj, 31)
    worker: Any = None
    packed = unpacked = 0
    rest = b""
    while True:
        hungry = worker is None or packing == "gzip" or worker.needs_input
        if not rest and hungry:
            rest = handle.read(2**16)
            packed += len(rest)
        if not rest and worker is None:
            return
        worker = worker or make()
        ended = not rest and hungry
        block = worker.decompress(rest, BLOCK_BYTES)
        rest = worker.unconsumed_tail if packing == "gzip" else b""
        unpacked += len(block)
        _check_ratio(unpacked, packed)
        yield block
        if worker.eof:
            rest, worker = worker.unused_data.lstrip(b"\0"), None
        elif ended and not block:
            raise OSError(0, "the packed file is cut short")


class _Stream(io.RawIOBase):
    """Blocks of bytes as a file that Arrow reads."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks, self._left = blocks, b""

    def end(self) -> None:
        """Have nothing more to read."""
        self._blocks, self._left = iter(()), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = block
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


class _ReadAhead(io.BufferedReader):
    """A stream of which Arrow takes whole blocks, and which knows those that somebody still has."""

    def __init__(self, raw: _Stream) -> None:
        super().__init__(raw, BLOCK_BYTES)  # a read that came up short would be a block without an end of line
        #: This stream, and the blocks that were taken from it.
        self.held: list[Callable[[], Any]] = [weakref.ref(self)]

    def read_buffer(self, size: int) -> Any:
        """Return the next block; Arrow asks for this where a stream has it. Bytes cannot be watched, an array over them can."""
        block = np.frombuffer(self.read(size) or bytearray(), np.uint8)
        self.held[:] = [one for one in self.held if one() is not None]
        self.held.append(weakref.ref(block))
        return block


def _as_utf8(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield blocks of another encoding as UTF-8, without the mark that a file may begin with."""
    decoder = codecs.getincrementaldecoder(encoding)()
    first = True
    for block in blocks:
        text = decoder.decode(block)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        yield text.encode()
    yield decoder.decode(b"", final=True).encode()


def _refuse_line() -> LabelDPError:
    fix = "Is a quote open, or the separator of lines unusual? Otherwise write it as Parquet."
    return invalid(OWNER, "path", f"have lines of at most {MOST_LINE:,} bytes", got=Described("a longer one"), fix=fix)


# ------------------------------------------------------------------------------------------------------------ CSV


def _open_csv(part: Place, columns: list[str], types: dict[str, Any], form: TextFormat) -> Iterator[Any]:
    """Yield record batches of some columns, as Arrow reads them."""
    if isinstance(part, Path) and not form.packing and form.encoding == "utf-8":
        yield from _parse_csv(part, columns, types, form)
        return
    blocks = _read_bytes(part, form)
    raw = _Stream(blocks if form.encoding == "utf-8" else _as_utf8(blocks, form.encoding))
    stream = _ReadAhead(raw)
    held = stream.held
    batches = _parse_csv(stream, columns, types, form, end=raw.end)
    del stream
    try:
        yield from batches
    finally:
        batches.close()
        del batches
        _let_go(held)


def _let_go(held: Sequence[Callable[[], Any]]) -> None:
    """Wait until nobody holds a stream or a block of it any more; a thread that has not let go by then does not keep us."""
    until = time.monotonic() + MOST_SECONDS
    while any(one() is not None for one in held) and time.monotonic() < until:
        time.sleep(0.001)


def _parse_csv(
    stream: Any, columns: list[str], types: dict[str, Any], form: TextFormat, *, end: Callable[[], None] | None = None
) -> Generator[Any, None, None]:
    """Yield what Arrow reads from a path or a stream; whoever stops early has the stream brought to its `end`."""
    block = min(MOST_LINE, max(BLOCK_BYTES, 4 * form.longest))
    names = [f"{place}\0" if name is None else name for place, name in enumerate(form.names)]
    try:
        reader = pa_csv.open_csv(
            stream,
            read_options=pa_csv.ReadOptions(block_size=block, column_names=names, skip_rows=form.skip),
            parse_options=pa_csv.ParseOptions(
                delimiter=form.separator,
                quote_char=form.quote or False,
                escape_char=form.escape or False,
                newlines_in_values=True,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=columns,
                column_types=types,
                strings_can_be_null=True,
                decimal_point=form.decimal,
                null_values=[*NULLS, *form.missing],
            ),
        )
    finally:
        del stream  # an error keeps this frame, which must not keep the stream
    with reader:
        try:
            yield from reader
        finally:
            if end is not None:  # Arrow's thread finds nothing more to read, and is done
                end()
                with contextlib.suppress(pa.ArrowException, OSError, ValueError):
                    for _ in reader:
                        pass
            del reader


def _parse(batch: Any, form: TextFormat) -> Any:
    """Return a batch whose columns that were read as text are what their kinds say."""
    names = batch.schema.names
    columns = [
        _parse_named(name, values, form) if name in form.parsed else values
        for name, values in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _parse_named(name: str, values: Any, form: TextFormat) -> Any:
    try:
        return parse_column(values, form.kinds[name], form.missing)
    except ValueError:
        raise wrong_type(name) from None


def wrong_type(column: str) -> ColumnTypeError:
    """Return the error for a value of another kind than its column was given; the value is not shown."""
    fix = f"Say what it is: types={{{column!r}: 'string'}} (--type {column}=string)."
    error = invalid(
        OWNER, "path", f"hold one kind of values in {column}", got=Described("another, further on"), fix=fix
    )
    return ColumnTypeError(str(error))


def find_uneven_line(part: Place, form: TextFormat) -> int | None:
    """Return the number of the first line with more or fewer fields than there are columns, counted from 1."""
    import csv

    blocks = _Stream(_as_utf8(_read_bytes(part, form), form.encoding))
    lines = io.TextIOWrapper(io.BufferedReader(blocks), encoding="utf-8", errors="replace", newline="")
    options: dict[str, Any] = {"quotechar": form.quote} if form.quote else {"quoting": csv.QUOTE_NONE}
    try:
        reader = csv.reader(lines, delimiter=form.separator, escapechar=form.escape or None, **options)
        for row in reader:
            if row and reader.line_num > form.skip and len(row) != len(form.names):
                return int(reader.line_num)
    except (csv.Error, ValueError, OSError):
        return None
    return None


# ---------------------------------------------------------------------------------------------------- lines of JSON


def _json_lines(part: Place, form: TextFormat) -> Iterator[list[dict[str, Any]]]:
    """Yield the objects of some lines at a time."""
    waiting: list[dict[str, Any]] = []
    rest, number = b"", 0
    blocks = _read_bytes(part, form)
    for block in blocks if form.encoding == "utf-8" else _as_utf8(blocks, form.encoding):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > MOST_LINE:
            raise _refuse_line()
        for line in lines:
            number += 1
            if line.strip():
                waiting.append(_json_object(line, number))
            if len(waiting) >= JSON_ROWS:
                yield waiting
                waiting = []
    if rest.strip():
        waiting.append(_json_object(rest, number + 1))
    yield waiting


def _json_rows(head: bytes, asked: Asked, *, whole: bool) -> list[dict[str, Any]]:
    """Return the objects of the first piece."""
    text = head if asked.encoding is None else next(_as_utf8(iter([head]), asked.encoding))
    lines = text.split(b"\n") if whole else text.split(b"\n")[:-1]
    return [_json_object(line, number) for number, line in enumerate(lines, 1) if line.strip()]


def _json_object(line: bytes, number: int) -> dict[str, Any]:
    """Return the object of a line, which must be flat."""
    try:
        found = parse_json(line.removeprefix(codecs.BOM_UTF8), most_bytes=MOST_LINE)
    except (ValueError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        fix = 'Each line is an object: {"age": 30, "ill": "no"}.'
        raise invalid(
            OWNER, "path", "hold a JSON object per line", got=Described(f"another in line {number:,}"), fix=fix
        )
    if any(isinstance(value, (dict, list)) for value in found.values()):
        fix = "Give each value a column of its own, or leave it out."
        got = Described(f"an object or a list inside of line {number:,}")
        raise invalid(OWNER, "path", "hold flat objects", got=got, fix=fix)
    return found


def _look_at_objects(pieces: Any, asked: Asked) -> TextFormat:
    """Return the columns of lines of JSON, in the order in which they are first seen, and their kinds."""
    seen: dict[str, set[type]] = {}
    looks: dict[str, Look] = {}
    for rows in pieces:
        texts: dict[str, list[str]] = {}
        for row in rows:
            for name, value in row.items():
                types = seen.setdefault(name, set())
                if value is not None:
                    types.add(type(value))
                if isinstance(value, str):
                    texts.setdefault(name, []).append(value)
        for name, values in texts.items():
            looks[name] = looks.get(name, Look()) & look_at(values)
    if not seen:
        raise invalid(OWNER, "path", "have rows", got=Described("an empty file"), fix="Write it again.")
    kinds = {name: _json_kind(name, types, looks.get(name)) for name, types in seen.items()}
    kinds |= {name: spell_type(name, spelt) for name, spelt in asked.types.items() if name in kinds}
    return TextFormat(
        lines_of_json=True,
        encoding=asked.encoding or "utf-8",
        names=tuple(seen),
        kinds=kinds,
        parsed=frozenset(name for name, kind in kinds.items() if kind in ("date", "stamp", "zoned")),
        asked=asked,
    )


def _json_kind(name: str, types: set[type], look: Look | None) -> str:
    """Return the kind of a column of JSON values: text is a date where all of it is one."""
    if not types:
        return "missing"
    if types == {str}:
        kinds = look.kinds if look is not None and not look.marked else frozenset()
        return next((kind for kind in ("date", "stamp", "zoned") if kind in kinds), "text")
    if types == {bool}:
        return "bool"
    if types <= {int, float}:
        return "int" if types == {int} else "number ."
    got = Described(
        " and ".join(sorted({"bool": "booleans", "str": "text"}.get(one.__name__, "numbers") for one in types))
    )
    fix = "Write all of them as text, or as numbers."
    raise invalid(OWNER, "path", f"hold one kind of values in {name}", got=got, fix=fix)


def _read_objects(part: Place, columns: Sequence[str], form: TextFormat) -> Iterator[Any]:
    """Yield the batches of lines of JSON."""
    known = set(form.names)
    for rows in _json_lines(part, form):
        strange = next((name for row in rows for name in row if name not in known), None)
        if strange is not None:
            raise wrong_type(strange)
        arrays = []
        for name in columns:
            kind = form.kinds[name]
            values = [row.get(name) for row in rows]
            try:
                if name in form.parsed:
                    arrays.append(parse_column(pa.array(values, pa.string()), kind))
                elif kind == "text":
                    words = [one if one is None or isinstance(one, str) else json.dumps(one) for one in values]
                    asked = form.asked.types.get(name)
                    arrays.append(pa.array(values if asked is None else words, pa.string()))
                else:
                    arrays.append(_array(values, arrow_type(kind)))
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                raise wrong_type(name) from None
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _array(values: list[Any], kind: Any) -> Any:
    """Return values as an array of a type; booleans are no numbers, though Python takes them for such."""
    if not pa.types.is_boolean(kind) and any(isinstance(value, bool) for value in values):
        raise ValueError("a boolean among numbers")
    return pa.array(values, kind)
