"""Tables out: the format follows the name, and a file appears whole or not at all.

>>> import pyarrow as pa, tempfile, pathlib
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "answers.csv"
>>> table = pa.table({"row": [1, 2], "ill": ["no", None]})
>>> write_table([table], table.schema, path)
2
>>> print(path.read_text(), end="")
"row","ill"
1,"no"
2,
>>> folder.cleanup()

    .parquet, .pq        Parquet
    .csv, .tsv           text with commas or tabs, UTF-8, a line of names; a missing value is empty
    .jsonl, .ndjson      a JSON object per line; what is missing, and what is no finite number, is null
    .feather, .arrow     Arrow's own file format

Design notes. Rows go to a hidden file beside the target; it is flushed to the disk and then given its name by a hard
link, which fails if the name is taken: two writers cannot overwrite each other, which a rename would allow. A kill leaves
at most the hidden file. Where a file system has no hard links, a check and a rename take their place.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labeldp.data.tables import value_type
from labeldp.errors import Described, LabelDPError, invalid

#: The device is full, a quota is used up, or the file may not grow further: the user's fix is the same.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_table(
    batches: Iterable[Any], schema: Any, path: str | os.PathLike[str], *, compression: str = "snappy"
) -> int:
    """Write record batches (or tables) of one schema to a new file, and return the number of rows.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch or pyarrow.Table
        The rows; each batch must have the schema that is given.
    schema : pyarrow.Schema
        Of the file. It is written even where there are no rows.
    path : path
        A new file in an existing folder; its format follows its name.
    compression : str
        Of Parquet, as Parquet has it.

    Notes
    -----
    The target appears complete and on the disk, or not at all: an existing target is refused, and after any error,
    one of `batches` included, nothing is left behind.

    Example
    -------
    >>> write_table([], pa.schema([("a", pa.int64())]), "no/such/folder/out.parquet")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: write_table: `path` must be in an existing folder, got 'out.parquet'. There is no folder no/such/folder.
    >>> write_table([], pa.schema([("a", pa.int64())]), "out.xls")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: write_table: `path` must end in the name of a known format, got 'out.xls'. Known are .parquet, .pq, .csv, ...
    """
    target = Path(path)
    make = choose_writer(target, owner="write_table")
    _check_target(target)
    with _explain_no_room(target), _hidden_file(target) as (hidden, stream):
        rows = _write_rows(batches, schema, make(stream, schema, compression))
        stream.flush()
        os.fsync(stream.fileno())
        _give_name(hidden, target)
    return rows


def write_stream(batches: Iterable[Any], schema: Any, stream: Any) -> int:
    """Write record batches (or tables) as CSV to an open binary stream, which stays open, and return the number of rows."""
    return _write_rows(batches, schema, _CsvWriter(stream, schema, ","))


def choose_writer(path: Path, *, owner: str) -> Callable[[Any, Any, str], Any]:
    """Return what writes the format that a name asks for; a name that asks for none is refused, with the known ones."""
    name = path.name.lower()
    for ending, make in WRITERS.items():
        if name.endswith(ending):
            return make
    fix = "Known are " + ", ".join(WRITERS) + "."
    raise invalid(owner, "path", "end in the name of a known format", got=path.name, fix=fix)


class _CsvWriter:
    """CSV through Arrow; columns that text has no form for are refused before a byte is written."""

    def __init__(self, stream: Any, schema: Any, separator: str) -> None:
        self._plain = pa.schema([pa.field(one.name, _plain_type(one)) for one in schema])
        options = pa_csv.WriteOptions(delimiter=separator)
        self._writer = pa_csv.CSVWriter(pa.PythonFile(_Kept(stream), mode="w"), self._plain, write_options=options)

    def write(self, table: Any) -> None:
        self._writer.write_table(table.cast(self._plain))

    def close(self) -> None:
        self._writer.close()


class _JsonWriter:
    """A JSON object per line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, table: Any) -> None:
        lines = (json.dumps({name: _plain_value(value) for name, value in row.items()}) for row in table.to_pylist())
        self._stream.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        self._stream.flush()


class _ArrowWriter:
    """Parquet, or Arrow's own format."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, table: Any) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _Kept:
    """A stream that its writer does not close."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self.write, self.flush = stream.write, stream.flush

    def close(self) -> None:
        self.flush()


def _write_parquet(stream: Any, schema: Any, compression: str) -> _ArrowWriter:
    return _ArrowWriter(pq.ParquetWriter(stream, schema, compression=compression))


def _write_csv(stream: Any, schema: Any, _: str) -> _CsvWriter:
    return _CsvWriter(stream, schema, ",")


def _write_tsv(stream: Any, schema: Any, _: str) -> _CsvWriter:
    return _CsvWriter(stream, schema, "\t")


def _write_json(stream: Any, _: Any, __: str) -> _JsonWriter:
    return _JsonWriter(stream)


def _write_arrow(stream: Any, schema: Any, _: str) -> _ArrowWriter:
    return _ArrowWriter(pa.ipc.new_file(_Kept(stream), schema))


#: What writes the files whose names end so.
WRITERS: dict[str, Callable[[Any, Any, str], Any]] = {
    ".parquet": _write_parquet,
    ".pq": _write_parquet,
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".jsonl": _write_json,
    ".ndjson": _write_json,
    ".feather": _write_arrow,
    ".arrow": _write_arrow,
}


def _plain_type(column: Any) -> Any:
    """Return the type that a column has in CSV: the values of a dictionary; nested and binary ones have none."""
    kind = value_type(column.type)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        fix = "Leave it out, or write .parquet."
        raise invalid("write_table", column.name, "be of a type that CSV has", got=Described(str(kind)), fix=fix)
    return kind


def _plain_value(value: Any) -> Any:
    """Return a value that JSON has; dates and times as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str, list, dict)) else str(value)


def _write_rows(batches: Iterable[Any], schema: Any, writer: Any) -> int:
    """Write the batches and return the number of rows."""
    rows = 0
    with contextlib.closing(writer):
        for batch in batches:
            if not batch.schema.equals(schema):
                got = Described(f"columns {', '.join(batch.schema.names)}")
                fix = "Cast each batch to the schema that was given."
                raise invalid("write_table", "batches", "have the schema that was given", got=got, fix=fix)
            writer.write(batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch]))
            rows += batch.num_rows
    return rows


def _check_target(target: Path) -> None:
    """Refuse a target whose folder is missing or whose name is taken."""
    if not target.parent.is_dir():
        raise invalid(
            "write_table",
            "path",
            "be in an existing folder",
            got=target.name,
            fix=f"There is no folder {target.parent}.",
        )
    if os.path.lexists(target):
        raise _taken_error(target)


def _taken_error(target: Path) -> LabelDPError:
    """Return the error for a name that is taken."""
    fix = f"It exists in {target.parent} and nothing is overwritten: choose another name, or remove it first."
    return invalid("write_table", "path", "be a new file", got=target.name, fix=fix)


@contextlib.contextmanager
def _hidden_file(target: Path) -> Iterator[tuple[Path, Any]]:
    """A hidden file in the target's folder, for its owner alone, gone at the end whatever happens.

    Its name and its lock are those of all unfinished work of ours (`labeldp.release.unfinished`), which lies on this floor
    too and is not imported: what a kill leaves is found there.
    """
    hidden = target.with_name(f".{target.name}.partial-{secrets.token_hex(8)}")
    number = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with _close_after(os.fdopen(number, "wb")) as stream:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield hidden, stream
    finally:
        hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def _close_after(stream: Any) -> Iterator[Any]:
    """Close at the end; after an error, bytes that still do not fit are dropped without a second complaint."""
    try:
        yield stream
    except BaseException:
        with contextlib.suppress(OSError):
            stream.close()
        raise
    stream.close()


def _give_name(hidden: Path, target: Path) -> None:
    """Give the finished file its name, unless the name has been taken meanwhile, and put the folder on the disk."""
    # A hidden file is its owner's alone; a table gets the rights that any new file would get.
    mask = os.umask(0)
    os.umask(mask)
    hidden.chmod(0o666 & ~mask)
    try:
        os.link(hidden, target)
    except FileExistsError as error:
        raise _taken_error(target) from error
    except OSError:
        _check_target(target)
        hidden.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _explain_no_room(target: Path) -> Iterator[None]:
    """Turn the errors of a full disk into our one shape; others pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        fix = "Free some space or write elsewhere; nothing was left behind."
        got = Described(os.strerror(error.errno or 0))
        raise invalid("write_table", str(target), "have room on its disk", got=got, fix=fix) from error
