"""The file under a ledger: an SQLite table that only grows, each row bound to the one before it; and names of rows.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "ledger.sqlite"
>>> with open_for_writing(path, timeout=1.0) as table:
...     first = table.append(Draft(kind="budget", label_set="labels", who="doctest", content="{}"))
>>> read_records(path, timeout=1.0) == (first,)
True

`fingerprint` says which labels a release was about, by the data set's name and row ids and never by label values:

>>> first = fingerprint("adult", n_rows=3, row_ids=[7, 8, 9])
>>> len(first), first == fingerprint("adult", n_rows=3, row_ids=[9, 8, 7])
(64, False)

References: SQLite's "Atomic Commit" and "Pragma statements" pages.

Design notes on the file.

- A rollback journal, not a write-ahead log: one file at rest, no shared memory, and a process killed at any moment
  leaves a journal that the next opener rolls back. `synchronous=EXTRA` also syncs the directory after the journal is
  removed, so that a power cut right after a commit cannot bring the journal, and with it the past, back.
- A connection per call. None is held between calls, so threads and forked children share nothing.
- Writers start with BEGIN IMMEDIATE: what they read is still true when they write, and two of them queue.
- The file is never opened beside SQLite: closing such a handle would drop the POSIX locks of this process.
- Row i has the SHA-256 of its own content and of the hash of row i - 1. Whoever edits a row breaks the chain; whoever
  drops rows at the end is behind the count that AUTOINCREMENT keeps. This finds accidents and careless hands. A forger
  who rewrites the whole file is found only by someone who kept an earlier hash (`Ledger.verify(known=...)`).

Design notes on fingerprints. Every field goes into SHA-256 behind its length, so no two inputs share a text. Ids are
hashed in order, in chunks of a fixed size: the number of rows is bounded by patience, not by memory. The hash tells
whether two releases name the same rows; someone who can guess the ids can check the guess, so ids that are themselves
secret (a social security number) belong in a column of their own making first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.validate import check_integer

#: "LDPL": what the header of a ledger says that it is.
APPLICATION_ID = 0x4C44504C
VERSION = 1
#: The hash before the first row.
ORIGIN = "0" * 64

SELECT = "SELECT id, kind, label_set, at, who, content, previous, hash FROM record ORDER BY id"
INSERT = """INSERT INTO record (id, kind, label_set, at, who, content, previous, hash)
    VALUES (:id, :kind, :label_set, :when, :who, :content, :previous, :hash)"""
SCHEMA = {
    "record": """CREATE TABLE record (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK (kind IN ('release', 'budget')),
        label_set TEXT,
        at TEXT NOT NULL,
        who TEXT NOT NULL,
        content TEXT NOT NULL,
        previous TEXT NOT NULL,
        hash TEXT NOT NULL
    )""",
    "record_is_final": """CREATE TRIGGER record_is_final BEFORE UPDATE ON record
        BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    "record_stays": """CREATE TRIGGER record_stays BEFORE DELETE ON record
        BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    # INSERT OR REPLACE deletes without asking the trigger above.
    "record_is_next": """CREATE TRIGGER record_is_next BEFORE INSERT ON record
        WHEN NEW.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM record)
        BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
}


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a caller wants to write: a release or a budget, its label set (None: every set), who, and JSON."""

    kind: str
    label_set: str | None
    who: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row as it is on disk."""

    id: int
    kind: str
    label_set: str | None
    when: str
    who: str
    content: str
    previous: str
    hash: str

    def compute_hash(self) -> str:
        """Return the SHA-256 that this row must carry; JSON keeps the fields apart."""
        fields = [self.id, self.kind, self.label_set, self.when, self.who, self.content, self.previous]
        return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()


class Table:
    """The open table inside one write transaction."""

    def __init__(self, connection: sqlite3.Connection, records: tuple[Record, ...]) -> None:
        self._connection = connection
        self.records = records

    def append(self, draft: Draft) -> Record:
        """Insert one row after the last; it counts once the transaction is committed."""
        record = next_record(self.records, draft)
        self._connection.execute(INSERT, dataclasses.asdict(record))
        self.records = (*self.records, record)
        return record


def next_record(records: tuple[Record, ...], draft: Draft) -> Record:
    """Return the row that follows `records`, stamped in UTC and sealed."""
    fields = {
        "id": len(records) + 1,
        "kind": draft.kind,
        "label_set": draft.label_set,
        "when": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "who": draft.who,
        "content": draft.content,
        "previous": records[-1].hash if records else ORIGIN,
    }
    return Record(**fields, hash=Record(**fields, hash="").compute_hash())  # type: ignore[arg-type]


def read_records(path: Path, *, timeout: float) -> tuple[Record, ...]:
    """Return every row, after checking that the file is a ledger and that its chain holds; none if there is no file.

    `timeout` is how many seconds to wait for a writer who holds the file. Raises `PrivacyError` if rows were edited or
    removed, and `LabelDPError` if the file is no ledger or cannot be read.
    """
    check_place(path)
    if not path.exists():
        return ()
    with open_connection(path, mode="rw", timeout=timeout) as connection:
        connection.execute("BEGIN")
        return () if is_blank(path, connection) else read_checked_records(path, connection)


@contextmanager
def open_for_writing(path: Path, *, timeout: float) -> Iterator[Table]:
    """Open one write transaction: committed when the block ends, undone when it raises.

    Yields the `Table` with all rows read and checked; a new or empty file becomes a ledger first. Other writers wait, so
    that what the block read is still true when it writes.
    """
    check_place(path)
    with open_connection(path, mode="rwc", timeout=timeout) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if is_blank(path, connection):
            create_table(connection)
        yield Table(connection, read_checked_records(path, connection))
        connection.execute("COMMIT")


@contextmanager
def open_connection(path: Path, *, mode: str, timeout: float) -> Iterator[sqlite3.Connection]:
    """Open a connection and close it, which undoes what was not committed; SQLite's complaints become ours."""
    try:
        address = f"{path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translate_error(path, error, timeout=timeout) from error


def check_place(path: Path) -> None:
    """Refuse a path that cannot hold a ledger."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            fix = "Create the directory first."
            raise invalid("Ledger", "path", "be in a directory that exists", got=shorten_path(path), fix=fix) from None
        return
    except (OSError, ValueError) as error:
        raise invalid("Ledger", "path", "name a file", got=shorten_path(path), fix=f"{error}.") from error
    if not stat.S_ISREG(mode):
        what = "directory" if stat.S_ISDIR(mode) else "special file"
        raise invalid("Ledger", "path", "be a file", got=Described(f"the {what} {shorten_path(path)}"))


def is_blank(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file holds nothing yet: an empty file, or what a crash before the first commit leaves.

    The size is asked too, since SQLite takes a file of one byte for an empty one; the query before it takes the lock
    that keeps the size still.
    """
    return read_number(connection, "SELECT count(*) FROM sqlite_master") == 0 and path.stat().st_size == 0


def create_table(connection: sqlite3.Connection) -> None:
    """Mark the file as ours and lay out the table."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for command in SCHEMA.values():
        connection.execute(command)


def read_checked_records(path: Path, connection: sqlite3.Connection) -> tuple[Record, ...]:
    """Return every row of a file that is a ledger, with its chain intact."""
    if read_number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise foreign_file_error(path)
    version = read_number(connection, "PRAGMA user_version")
    if version != VERSION:
        got = Described(f"version {version} in {shorten_path(path)}")
        raise invalid("Ledger", "path", f"be a ledger of version {VERSION}", got=got, fix="Upgrade labeldp.")
    check_schema(path, connection)
    names = [part.name for part in dataclasses.fields(Record)]
    records = tuple(Record(**dict(zip(names, row, strict=True))) for row in connection.execute(SELECT))
    # A ledger without rows has no line in sqlite_sequence.
    count = read_number(connection, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'record'")
    check_chain(path, records, count=count)
    return records


def check_schema(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a ledger whose table or guards are not the ones that were laid out."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite^_%' ESCAPE '^'"))
    changed = sorted(name for name in {*found, *SCHEMA} if found.get(name) != SCHEMA.get(name))
    if changed:
        raise tampering_error(path, f"another `{changed[0]}` in its schema")


def check_chain(path: Path, records: tuple[Record, ...], *, count: int) -> None:
    """Refuse rows that were edited, removed, reordered or put in by another hand."""
    previous = ORIGIN
    for position, record in enumerate(records, start=1):
        if record.id != position or record.previous != previous or not is_sealed(record):
            raise tampering_error(path, f"a broken chain at row {position}")
        previous = record.hash
    if count != len(records):
        raise tampering_error(path, f"{len(records)} rows where {count} were written")


def is_sealed(record: Record) -> bool:
    """Whether the row carries its own hash; a field that JSON cannot hold was not written by us."""
    try:
        return record.hash == record.compute_hash()
    except TypeError:
        return False


def read_number(connection: sqlite3.Connection, command: str) -> int:
    """Return the one integer that a command answers."""
    (value,) = connection.execute(command).fetchone()
    return int(value)


def tampering_error(path: Path, what: str) -> LabelDPError:
    """Return the error for a ledger whose record cannot be trusted."""
    fix = f"What {path} says was spent cannot be trusted: restore it from a backup."
    return invalid("Ledger", "path", "be a ledger as it was written", got=Described(what), fix=fix, kind=PrivacyError)


def foreign_file_error(path: Path) -> LabelDPError:
    """Return the error for a file that is something else; nothing was written to it."""
    return invalid(
        "Ledger", "path", "be a ledger of labeldp", got=shorten_path(path), fix="Name another file, or a new one."
    )


def translate_error(path: Path, error: sqlite3.Error, *, timeout: float) -> LabelDPError:
    """Return our error for one of SQLite's, told apart by its text (error codes came with Python 3.11)."""
    text = str(error)
    if "not a database" in text:
        return foreign_file_error(path)
    for sign, must, fix in COMPLAINTS:
        if sign in text:
            return invalid("Ledger", "path", must.format(timeout=timeout), got=shorten_path(path), fix=fix)
    return invalid(
        "Ledger", "path", "be a ledger that can be used", got=shorten_path(path), fix=f"SQLite says: {text}."
    )


def shorten_path(path: Path) -> Described:
    """Return a path to show: its end says more than its beginning."""
    text = str(path)
    return Described(text if len(text) <= 60 else f"...{text[-57:]}")


COMPLAINTS = (
    ("locked", "be free within {timeout:g} s", "Another process is writing: try again, or give a longer `timeout`."),
    ("readonly", "be writable", "Nothing was charged. Ask for write access to the file and its directory."),
    ("unable to open", "be readable and in a writable directory", "Nothing was charged. Check who owns them."),
    ("full", "have room to grow", "Nothing was charged. Free some space on the disk."),
    ("malformed", "be a whole SQLite file", "Restore it from a backup."),
    ("append-only", "only grow", "A ledger never forgets: charge or set a budget anew instead."),
)


#: Part of the definition: another value gives other fingerprints.
CHUNK = 65_536
OWNER = "fingerprint"


def fingerprint(name: str, *, n_rows: int, start: int = 0, row_ids: Any = None) -> str:
    """Return 64 hexadecimal digits that name rows `start` .. `start + n_rows` of a data set.

    Parameters
    ----------
    name : str
        What identifies the data set: a name, a path, a version.
    n_rows, start : int
        How many rows, and the number of the first.
    row_ids : array of integers or strings, optional
        An id per row, in order. Equal integers of different widths count as equal; 7 and "7" do not.

    Label values never enter.
    """
    count = check_integer(OWNER, "n_rows", n_rows, least=0)
    first = check_integer(OWNER, "start", start, least=0)
    digest = hashlib.sha256(b"labeldp rows 1\n")
    add_bytes(digest, check_identity(name))
    add_bytes(digest, f"{first}:{count}".encode())
    if row_ids is not None:
        ids = read_ids(row_ids, count)
        for at in range(0, count, CHUNK):
            add_bytes(digest, encode_ids(ids[at : at + CHUNK]))
    return digest.hexdigest()


def add_bytes(digest: Any, data: bytes) -> None:
    """Feed bytes behind their length."""
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def read_ids(row_ids: Any, n_rows: int) -> npt.NDArray[Any]:
    """Return the ids as a 1-d array of integers or of Python strings."""
    ids = np.asarray(row_ids)
    if ids.shape != (n_rows,):
        got = Described(f"shape {ids.shape} for {n_rows} rows")
        raise invalid(OWNER, "row_ids", "have one id a row", got=got)
    if ids.size == 0 or ids.dtype.kind in "iuU":
        return ids
    kinds = {type(value) for value in ids.tolist()} if ids.dtype.kind in "OT" else {ids.dtype.type}
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return as_64_bits(ids)
    if not all(issubclass(kind, str) for kind in kinds):
        raise bad_ids_error(", ".join(sorted(kind.__name__ for kind in kinds)))
    return ids


def check_identity(name: Any) -> bytes:
    """Return the data set's name as bytes."""
    if not isinstance(name, str) or not name:
        raise invalid(OWNER, "name", "be a text that names the data set", got=name)
    return name.encode("utf-8", "surrogatepass")


def as_64_bits(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Python integers as 64-bit ones."""
    low, high = int(ids.min()), int(ids.max())
    if low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63):
        raise bad_ids_error("integers of more than 64 bits")
    return ids.astype(np.int64 if high < 2**63 else np.uint64)


def bad_ids_error(what: str) -> LabelDPError:
    """Return the error for ids that are neither integers nor strings."""
    fix = "Turn the ids into strings first; fill or drop missing ones."
    return invalid(OWNER, "row_ids", "be integers of 64 bits, or strings", got=Described(what), fix=fix)


def encode_ids(ids: npt.NDArray[Any]) -> bytes:
    """Return one chunk as bytes: a mark of the kind, then the integers, or the lengths and the texts."""
    if ids.dtype.kind in "iu":
        # Only an unsigned number past the signed range is written unsigned, so that the width says nothing.
        wide = ids.dtype == np.uint64 and bool((ids > np.iinfo(np.int64).max).any())
        return (b"u" if wide else b"i") + ids.astype("<u8" if wide else "<i8").tobytes()
    texts = [text.encode("utf-8", "surrogatepass") for text in ids.tolist()]
    lengths = np.array([len(text) for text in texts], dtype="<i8")
    return b"s" + lengths.tobytes() + b"".join(texts)
