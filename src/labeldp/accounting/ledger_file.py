"""The file under a ledger: an SQLite table that only grows, each row bound to the one before it; and names of rows.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "ledger.sqlite"
>>> with open_for_writing(path, timeout=1.0) as table:
...     draft = Draft(kind="budget", label_set="labels", who="doctest", content={"epsilon": 1.0, "delta": 0.0})
...     first = table.append(draft, balance="all that is known of this label set")
>>> with open_for_reading(path, timeout=1.0) as table:
...     table.read_records() == (first,), table.find_balance("labels")
(True, 'all that is known of this label set')

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
- Beside the rows is a balance for each label set: what its rows say, in short, so that a charge reads one text instead
  of all rows. Each row holds the SHA-256 of its set's balance after it. A balance is believed only if the newest row of
  its set, found by an index, is sealed and names this very text: an edited, older or missing balance is a broken chain.
  Rows and balances are written in one transaction.
- At every opening, for reading or for writing, the last `RECENT` rows are checked, and as many at a random place: a
  ledger of up to twice as many rows wholly, of n rows each old one with probability `RECENT`/n at least. All rows are
  checked by `Table.read_records`, and so by every call that lists them; that the balances say what the rows say is
  checked by `Ledger.verify` (`labeldp ledger --verify`).
- Files of version 1 had no balances. They are read whole as before; the first charge adds what is missing in its own
  transaction, and its row names the balances of all sets. Files of version 2 knew accounts by name alone; whoever writes to
  one next adds the tables that `labeldp.accounting.account_file` keeps rows in.
- Whatever SQLite, a decoder or a parser says of a damaged file becomes one of our errors here.

Design notes on fingerprints. Every field goes into SHA-256 behind its length, so no two inputs share a text. Ids are
hashed in order, in chunks of a fixed size: the number of rows is bounded by patience, not by memory. The hash tells
whether two releases name the same rows; someone who can guess the ids can check the guess, so ids that are themselves
secret (a social security number) belong in a column of their own making first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import sqlite3
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.accounting.balance import digest_text
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.untrusted import parse_json
from labeldp.validate import check_integer

#: "LDPL": what the header of a ledger says that it is.
APPLICATION_ID = 0x4C44504C
VERSION = 3
#: The version without balances, which is still read, and written anew by the first charge.
PLAIN_VERSION = 1
#: The version with balances, in which accounts are known by their names alone.
NAMED_VERSION = 2
#: Rows that are checked at every opening: the last ones, and as many at a random place.
RECENT = 64
#: The longest text or number of bytes in one cell that is read: more is no row of ours.
LONGEST_CELL = 64 * 1024 * 1024
#: The hash before the first row.
ORIGIN = "0" * 64

SELECT = "SELECT id, kind, label_set, at, who, content, previous, hash FROM record"
INSERT = """INSERT INTO record (id, kind, label_set, at, who, content, previous, hash)
    VALUES (:id, :kind, :label_set, :when, :who, :content, :previous, :hash)"""
PLAIN_SCHEMA = {
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
#: What version 2 has beside the rows: the default balance, of no label set, has the empty name.
ADDED_SCHEMA = {
    "record_of_set": "CREATE INDEX record_of_set ON record (label_set, id)",
    "balance": """CREATE TABLE balance (
        label_set TEXT PRIMARY KEY, entry INTEGER NOT NULL, content TEXT NOT NULL
    ) WITHOUT ROWID""",
    "noted": """CREATE TABLE noted (
        note TEXT NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY (note, entry)
    ) WITHOUT ROWID""",
}
#: What version 3 has beside the balances: the rows of accounts (`labeldp.accounting.account_file`).
ACCOUNT_SCHEMA = {
    "row_key": "CREATE TABLE row_key (id INTEGER PRIMARY KEY CHECK (id = 1), bytes BLOB NOT NULL)",
    "sketch": """CREATE TABLE sketch (
        number INTEGER PRIMARY KEY, label_set TEXT NOT NULL, kind TEXT NOT NULL, entry INTEGER NOT NULL,
        hashes BLOB NOT NULL, counts BLOB NOT NULL, UNIQUE (label_set, kind)
    )""",
    "row_set": """CREATE TABLE row_set (
        sketch INTEGER NOT NULL, total TEXT NOT NULL, label TEXT NOT NULL, n_rows INTEGER NOT NULL,
        columns TEXT NOT NULL, PRIMARY KEY (sketch, total, label)
    ) WITHOUT ROWID""",
    "row_set_by_total": "CREATE INDEX row_set_by_total ON row_set (total)",
    "row_set_by_size": "CREATE INDEX row_set_by_size ON row_set (n_rows)",
    "row_hash": """CREATE TABLE row_hash (
        hash INTEGER NOT NULL, sketch INTEGER NOT NULL, PRIMARY KEY (hash, sketch)
    ) WITHOUT ROWID""",
}
SCHEMA = {**PLAIN_SCHEMA, **ADDED_SCHEMA, **ACCOUNT_SCHEMA}
SCHEMAS = {PLAIN_VERSION: PLAIN_SCHEMA, NAMED_VERSION: {**PLAIN_SCHEMA, **ADDED_SCHEMA}, VERSION: SCHEMA}


def has_accounts(version: int) -> bool:
    """Whether files of this version keep the rows of accounts."""
    return version > NAMED_VERSION


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a caller wants to write: a release or a budget, its label set (None: every set), who, and plain facts.

    A `note` among the facts can be found again by `Table.find_noted`.
    """

    kind: str
    label_set: str | None
    who: str
    content: Mapping[str, Any]


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
    """The open file inside one transaction, its header, schema and last rows checked.

    `version` is the file's; one of `PLAIN_VERSION` has no balances, and `upgrade` gives it some. `last` is the newest row.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.version = check_header(path, connection)
        self.last = check_recent(path, connection)
        self._unbound: dict[str | None, str] = {}

    def read_records(self) -> tuple[Record, ...]:
        """Return every row, oldest first, after checking the whole chain."""
        records = tuple(read_rows(self.connection))
        check_links(self.path, records, first=1, previous=ORIGIN)
        if len(records) != (self.last.id if self.last else 0):
            raise tampering_error(self.path, f"{len(records)} rows where {self.last and self.last.id} were written")
        return records

    def find_balance(self, label_set: str | None) -> str | None:
        """Return the balance of a label set, or of the default (None), once the chain vouches for it; None without rows."""
        if label_set in self._unbound or self.version == PLAIN_VERSION:
            return self._unbound.get(label_set)
        query = "SELECT entry, content FROM balance WHERE label_set = ?"
        found = self.connection.execute(query, (label_set or "",)).fetchone()
        (newest,) = self.connection.execute("SELECT max(id) FROM record WHERE label_set IS ?", (label_set,)).fetchone()
        if found is None and newest is None:
            return None
        what = "the default" if label_set is None else f"label set {label_set!r:.60}"
        if found is None or newest is None or not isinstance(found[0], int) or found[0] < newest:
            raise tampering_error(self.path, f"no balance of {what} after its newest row")
        entry, text = found
        if not isinstance(text, str) or read_bindings(self.find_row(entry)).get(label_set) != digest_text(text):
            raise tampering_error(self.path, f"a balance of {what} that row {entry} does not name")
        return text

    def read_balances(self) -> dict[str | None, tuple[int, str]]:
        """Return the row and the text of every balance, unchecked: for whoever replays all rows."""
        found = self.connection.execute("SELECT label_set, entry, content FROM balance")
        return {name or None: (entry, text) for name, entry, text in found}

    def find_row(self, number: int) -> Record:
        """Return one row, which must be there and sealed."""
        found = list(read_rows(self.connection, "WHERE id = ?", number))
        if not found or not is_sealed(found[0]):
            raise tampering_error(self.path, f"a broken chain at row {number}")
        return found[0]

    def find_noted(self, note: str, *, longer: bool = False) -> tuple[Record, ...]:
        """Return the rows with this note, or (`longer`) with one that begins so, by the index, oldest first."""
        if longer:
            bounds = (note, note + chr(0x10FFFF))
            found = self.connection.execute("SELECT entry FROM noted WHERE note >= ? AND note < ?", bounds)
        else:
            found = self.connection.execute("SELECT entry FROM noted WHERE note = ?", (note,))
        numbers = sorted(entry for (entry,) in found)
        return tuple(self.find_row(number) for number in numbers)

    def read_notes(self) -> set[tuple[str, int]]:
        """Return every note of the index with its row."""
        return {(note, entry) for note, entry in self.connection.execute("SELECT note, entry FROM noted")}

    def assume(self, balances: Mapping[str | None, str]) -> None:
        """Take these balances for those of a file of the plain version, in this transaction: whoever replayed it knows."""
        self._unbound = dict(balances)

    def upgrade(self, balances: Mapping[str | None, str], notes: Iterable[tuple[str, int]]) -> None:
        """Turn a file of the plain version into one with balances; the next row that is appended binds them."""
        for command in ADDED_SCHEMA.values():
            self.connection.execute(command)
        self.connection.executemany("INSERT INTO noted (note, entry) VALUES (?, ?)", notes)
        self.version = NAMED_VERSION
        self.add_accounts()
        self.assume(balances)

    def add_accounts(self) -> None:
        """Turn a file with balances into one that can know accounts by their rows; nothing in it changes by that."""
        for command in ACCOUNT_SCHEMA.values():
            self.connection.execute(command)
        self.connection.execute(f"PRAGMA user_version = {VERSION}")
        self.version = VERSION

    def append(self, draft: Draft, *, balance: str) -> Record:
        """Insert one row after the last, with its set's balance after it; both count once the transaction is committed."""
        balances = {**self._unbound, draft.label_set: balance}
        bindings = [[name, digest_text(text)] for name, text in balances.items()]
        record = next_record(self.last, replace(draft, content={**draft.content, "balances": bindings}))
        self.connection.execute(INSERT, dataclasses.asdict(record))
        self.connection.executemany(
            "REPLACE INTO balance (label_set, entry, content) VALUES (?, ?, ?)",
            [(name or "", record.id, text) for name, text in balances.items()],
        )
        if note := draft.content.get("note"):
            self.connection.execute("INSERT INTO noted (note, entry) VALUES (?, ?)", (note, record.id))
        self.last, self._unbound = record, {}
        return record


def next_record(last: Record | None, draft: Draft) -> Record:
    """Return the row that follows `last`, stamped in UTC and sealed."""
    fields = {
        "id": last.id + 1 if last else 1,
        "kind": draft.kind,
        "label_set": draft.label_set,
        "when": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "who": draft.who,
        # Strict JSON, one text for one content.
        "content": json.dumps(draft.content, sort_keys=True, separators=(",", ":"), allow_nan=False),
        "previous": last.hash if last else ORIGIN,
    }
    return Record(**fields, hash=Record(**fields, hash="").compute_hash())  # type: ignore[arg-type]


def read_bindings(record: Record) -> dict[str | None, str]:
    """Return the digests of the balances that a sealed row names, by label set; none for rows of the plain version."""
    try:
        return {name: str(digest) for name, digest in parse_json(record.content).get("balances", ())}
    except (TypeError, ValueError, AttributeError, RecursionError):
        return {}


@contextmanager
def open_for_reading(path: Path, *, timeout: float) -> Iterator[Table | None]:
    """Open one read transaction on a ledger; None if there is no file yet, or an empty one.

    `timeout` is how many seconds to wait for a writer who holds the file. Raises `PrivacyError` if rows were edited or
    removed, and `LabelDPError` if the file is no ledger or cannot be read.
    """
    check_place(path)
    if not path.exists():
        yield None
        return
    with open_connection(path, mode="rw", timeout=timeout) as connection:
        connection.execute("BEGIN")
        yield None if is_blank(path, connection) else Table(path, connection)


@contextmanager
def open_for_writing(path: Path, *, timeout: float) -> Iterator[Table]:
    """Open one write transaction: committed when the block ends, undone when it raises.

    A new or empty file becomes a ledger first. Other writers wait, so that what the block read is still true when it writes.
    A new file is its owner's alone, whatever the umask: what was spent on whose labels is not for everyone. SQLite gives its
    journal the same rights.
    """
    check_place(path)
    create_private(path)
    with open_connection(path, mode="rwc", timeout=timeout) as connection:
        connection.execute("BEGIN IMMEDIATE")
        if is_blank(path, connection):
            create_table(connection)
        yield Table(path, connection)
        connection.execute("COMMIT")


def create_private(path: Path) -> None:
    """Make an empty file that its owner alone may open, if there is none; one that is there keeps its rights."""
    with suppress(OSError):  # it is there, or cannot be made, which SQLite will say
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


@contextmanager
def open_connection(path: Path, *, mode: str, timeout: float) -> Iterator[sqlite3.Connection]:
    """Open a connection and close it, which undoes what was not committed; SQLite's complaints become ours."""
    try:
        address = f"{path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)
        try:
            # Bytes that are no text are another hand's: they must reach the chain, whose hash they break.
            connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            if sys.version_info >= (3, 11):  # older ones cannot set a limit
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA synchronous = EXTRA")
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translate_error(path, error, timeout=timeout) from error
    except (UnicodeError, OverflowError, MemoryError) as error:
        # SQLite's complaint about a damaged schema quotes its bytes, which need not be text; and the like.
        raise damage_error(path, type(error).__name__) from error


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
    """Mark the file as ours and lay out its tables."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for command in SCHEMA.values():
        connection.execute(command)


def check_header(path: Path, connection: sqlite3.Connection) -> int:
    """Return the version of a file that is a ledger of ours with its schema as it was laid out."""
    if read_number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise foreign_file_error(path)
    version = read_number(connection, "PRAGMA user_version")
    if version not in SCHEMAS:
        got = Described(f"version {version} in {shorten_path(path)}")
        raise invalid("Ledger", "path", f"be a ledger of version {VERSION}", got=got, fix="Upgrade labeldp.")
    check_schema(path, connection, SCHEMAS[version])
    return version


def check_recent(path: Path, connection: sqlite3.Connection) -> Record | None:
    """Return the newest row, after checking it, those right before it, and as many at a random place."""
    # A ledger without rows has no line in sqlite_sequence.
    count = read_number(connection, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'record'")
    there = read_number(connection, "SELECT coalesce(max(id), 0) FROM record")
    if count != there:
        raise tampering_error(path, f"{there} rows where {count} were written")
    begin = max(1, count - RECENT + 1)
    spans = [(begin, count)]
    if begin > 1:
        start = 1 + RECENT * secrets.randbelow(-(-(begin - 1) // RECENT))
        spans.append((start, min(start + RECENT - 1, begin - 1)))
    newest = None
    for first, last in spans:
        rows = list(read_rows(connection, "WHERE id BETWEEN ? AND ?", first - 1, last))
        before = rows.pop(0).hash if first > 1 and rows else ORIGIN
        check_links(path, rows, first=first, previous=before)
        if len(rows) != last - first + 1:
            raise tampering_error(path, f"rows missing between {first} and {last}")
        newest = newest or (rows[-1] if rows else None)
    return newest


def read_rows(connection: sqlite3.Connection, condition: str = "", *values: int) -> Iterator[Record]:
    """Yield rows as they are on disk, oldest first."""
    names = [part.name for part in dataclasses.fields(Record)]
    for row in connection.execute(f"{SELECT} {condition} ORDER BY id", values):
        yield Record(**dict(zip(names, row, strict=True)))


def check_schema(path: Path, connection: sqlite3.Connection, schema: Mapping[str, str]) -> None:
    """Refuse a ledger whose table or guards are not the ones that were laid out."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite^_%' ESCAPE '^'"))
    changed = sorted(str(name) for name in {*found, *schema} if found.get(name) != schema.get(name))
    if changed:
        raise tampering_error(path, f"another `{changed[0]:.60}` in its schema")


def check_links(path: Path, records: Iterable[Record], *, first: int, previous: str) -> None:
    """Refuse rows from number `first` on that were edited, removed, reordered or put in by another hand."""
    for position, record in enumerate(records, start=first):
        if record.id != position or record.previous != previous or not is_sealed(record):
            raise tampering_error(path, f"a broken chain at row {position}")
        previous = record.hash


def is_sealed(record: Record) -> bool:
    """Whether the row carries its own hash; a field that JSON cannot hold was not written by us."""
    try:
        return record.hash == record.compute_hash()
    except TypeError:
        return False


def read_number(connection: sqlite3.Connection, command: str) -> int:
    """Return the one integer that a command answers."""
    (value,) = connection.execute(command).fetchone()
    return value if isinstance(value, int) else -1


def tampering_error(path: Path, what: str) -> LabelDPError:
    """Return the error for a ledger whose record cannot be trusted."""
    fix = f"What {path} says was spent cannot be trusted: restore it from a backup."
    return invalid("Ledger", "path", "be a ledger as it was written", got=Described(what), fix=fix, kind=PrivacyError)


def damage_error(path: Path, what: str) -> LabelDPError:
    """Return the error for a file that is no whole SQLite file any more."""
    got = Described(f"{shorten_path(path)} ({what})")
    fix = "Restore it from a backup."
    return invalid("Ledger", "path", "be a whole SQLite file", got=got, fix=fix, kind=PrivacyError)


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
    if "malformed" in text:
        return damage_error(path, "malformed")
    for sign, must, fix in COMPLAINTS:
        if sign in text:
            return invalid("Ledger", "path", must.format(timeout=timeout), got=shorten_path(path), fix=fix)
    fix = f"SQLite says: {text}. If the file is damaged, restore it from a backup."
    return invalid("Ledger", "path", "be a ledger that can be used", got=shorten_path(path), fix=fix)


def shorten_path(path: Path) -> Described:
    """Return a path to show: its end says more than its beginning."""
    text = str(path)
    return Described(text if len(text) <= 60 else f"...{text[-57:]}")


COMPLAINTS = (
    ("locked", "be free within {timeout:g} s", "Another process is writing: try again, or give a longer `timeout`."),
    ("readonly", "be writable", "Nothing was charged. Ask for write access to the file and its directory."),
    ("unable to open", "be readable and in a writable directory", "Nothing was charged. Check who owns them."),
    ("full", "have room to grow", "Nothing was charged. Free some space on the disk."),
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

    Notes
    -----
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
    if np.ma.is_masked(row_ids):
        raise bad_ids_error("masked ones")
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
