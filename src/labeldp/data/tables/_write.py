"""Parquet out, all or nothing: a reader sees the whole table or no table.

>>> import pyarrow as pa
>>> write_table([], pa.schema([("a", pa.int64())]), "no/such/folder/out.parquet")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: write_table: `path` must be in an existing folder, got 'out.parquet'. There is no folder no/such/folder.

Design notes. Rows go to a hidden file beside the target; it is flushed to the disk and then given its name by a hard
link, which fails if the name is taken: two writers cannot overwrite each other, which a rename would allow. A kill
leaves at most the hidden file. Where a file system has no hard links, a check and a rename take their place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labeldp.errors import Described, LabelDPError, invalid

#: The device is full, a quota is used up, or the file may not grow further: the user's fix is the same.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_table(
    batches: Iterable[Any], schema: Any, path: str | os.PathLike[str], *, compression: str = "snappy"
) -> int:
    """Write record batches (or tables) of one schema to a new Parquet file, and return the number of rows.

    The target appears complete and on the disk, or not at all: an existing target is refused, and after any error,
    one of `batches` included, nothing is left behind.
    """
    target = Path(path)
    _check_target(target)
    with _no_room(target), _hidden(target) as (hidden, stream):
        rows = _write(batches, schema, stream, compression)
        stream.flush()
        os.fsync(stream.fileno())
        _name(hidden, target)
    return rows


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise invalid(
            "write_table",
            "path",
            "be in an existing folder",
            got=target.name,
            fix=f"There is no folder {target.parent}.",
        )
    if os.path.lexists(target):
        raise _taken(target)


def _taken(target: Path) -> LabelDPError:
    fix = f"It exists in {target.parent} and nothing is overwritten: choose another name, or remove it first."
    return invalid("write_table", "path", "be a new file", got=target.name, fix=fix)


@contextlib.contextmanager
def _hidden(target: Path) -> Iterator[tuple[Path, Any]]:
    """A hidden file in the target's folder, gone at the end whatever happens."""
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".unfinished", dir=target.parent)
    try:
        with _closing(os.fdopen(number, "wb")) as stream:
            yield Path(name), stream
    finally:
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def _closing(stream: Any) -> Iterator[Any]:
    """Close at the end; after an error, bytes that still do not fit are dropped without a second complaint."""
    try:
        yield stream
    except BaseException:
        with contextlib.suppress(OSError):
            stream.close()
        raise
    stream.close()


def _write(batches: Iterable[Any], schema: Any, stream: Any, compression: str) -> int:
    rows = 0
    with pq.ParquetWriter(stream, schema, compression=compression) as writer:
        for batch in batches:
            if not batch.schema.equals(schema):
                got = Described(f"columns {', '.join(batch.schema.names)}")
                fix = "Cast each batch to the schema that was given."
                raise invalid("write_table", "batches", "have the schema that was given", got=got, fix=fix)
            writer.write(batch) if isinstance(batch, pa.Table) else writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _name(hidden: Path, target: Path) -> None:
    """Give the finished file its name, unless the name has been taken meanwhile, and put the folder on the disk."""
    # mkstemp makes files for their owner alone; a table gets the rights that any new file would get.
    mask = os.umask(0)
    os.umask(mask)
    hidden.chmod(0o666 & ~mask)
    try:
        os.link(hidden, target)
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError:
        _check_target(target)
        hidden.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _no_room(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        fix = "Free some space or write elsewhere; nothing was left behind."
        got = Described(os.strerror(error.errno or 0))
        raise invalid("write_table", str(target), "have room on its disk", got=got, fix=fix) from error
