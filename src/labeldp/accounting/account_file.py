"""What a ledger's file keeps of the rows of its accounts, and how they are found again, by index.

>>> import tempfile
>>> from pathlib import Path
>>> from labeldp.accounting import AccountName, protect_ids
>>> from labeldp.accounting import Ledger, fingerprint
>>> from labeldp.guarantee import Guarantee
>>> ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.sqlite")
>>> rows = protect_ids([7, 8, 9], ledger.row_key())
>>> name = AccountName("visits", rows, given=True)
>>> entry = ledger.charge(Guarantee.pure(1.0), label_set=name, rows="0" * 64, n_rows=3, mechanism="RR")
>>> ledger.choose_account(AccountName("copy", protect_ids([9, 8, 7], ledger.row_key()))).label_set
'visits'

Four tables beside the rows of the ledger: `row_key` (the secret of the hashes, once), `sketch` (a sample of an account's
rows for each of the two kinds, by ids and by columns), `row_set` (the tables that were charged to it), and `row_hash`, in
which every hash of every sample leads to its sketches.

A row of the ledger that adds rows to an account names, in its content, the SHA-256 of the sketch after it, key included. A
sketch that is read must be the one that its row names. What is not read at a charge, `Ledger.verify` compares: that each
sketch is the newest that a row names, that none is missing or too many, and that the index has the hashes of all samples and
no others. Without that an attacker who removes a hash from the index would not be seen: a charge cannot ask what is not there.

Design notes. A charge for a table that is known finds it by its total and reads one sketch. A table that is new takes a
look-up for each hash of its sample, in groups of `AT_ONCE`, and as many insertions: some tens of milliseconds, once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labeldp.accounting.accounts import (
    Choice,
    Exposed,
    KnownRows,
    Overlap,
    choose_account,
    compare_rows,
    find_exposed,
    refuse_exposed,
)
from labeldp.accounting.ledger_file import Record, Table, has_accounts, tampering_error
from labeldp.accounting.sketches import COLUMNS, IDS, NO_ROWS, ProtectedRows, RowKey, RowSample, RowSet, RowSketch
from labeldp.arrays import Words
from labeldp.untrusted import parse_json

#: Hashes that are looked up in one query: SQLite takes at least 999 values.
AT_ONCE = 500


class AccountTables:
    """The accounts of an open ledger; a ledger of an older version has none, and knows its labels by name."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._there = has_accounts(table.version)

    def find_key(self) -> RowKey | None:
        """Return the ledger's key, or None before it has one."""
        if not self._there:
            return None
        found = self._table.connection.execute("SELECT bytes FROM row_key").fetchall()
        if not found:
            return None
        try:
            ((secret,),) = found
            return RowKey(secret, self._find_person_columns())
        except (TypeError, ValueError) as error:
            raise self._tampered("a key that labeldp did not make") from error

    def _find_person_columns(self) -> tuple[str, ...]:
        """Return the names of columns of persons' ids, in whichever accounts."""
        query = "SELECT DISTINCT columns FROM row_set JOIN sketch ON sketch.number = row_set.sketch WHERE kind = ?"
        return tuple(sorted({name for (text,) in self._ask(query, IDS) for name in parse_json(text)}))

    def keep_key(self, key: RowKey) -> None:
        """Write the key of a ledger that has none."""
        self._table.connection.execute("INSERT INTO row_key (id, bytes) VALUES (1, ?)", (key.reveal(),))

    def choose(self, name: str, rows: ProtectedRows, *, given: bool) -> tuple[Choice, tuple[Overlap, ...]]:
        """Return which account pays for rows of this name, and all accounts that have some of them.

        Features that are labels which the ledger protects in these rows are refused, whichever account pays.
        """
        told = refuse_exposed(self._find_exposed(rows))
        overlaps = self.find_overlaps(rows)
        state = self._find_names(name)
        choice = choose_account(name, overlaps, given=given, label=rows.label, state=state)
        return replace(choice, notes=(*choice.notes, *told)), overlaps

    def _find_exposed(self, rows: ProtectedRows) -> list[Exposed]:
        """Return the features of rows that are label columns of some account: by their names first, then by the rows."""
        if not self._there or not rows.features:
            return []
        features = set(rows.features)
        labels = self._ask("SELECT DISTINCT sketch, label FROM row_set WHERE label <> ''")
        numbers = {number for number, label in labels if features & {str(label), *str(label).split(",")}}
        return [one for number in sorted(numbers) for one in find_exposed(rows, self._read_sketch(number))]

    def find_overlaps(self, rows: ProtectedRows) -> tuple[Overlap, ...]:
        """Return the accounts that have some of these rows, each once: this very table first, then by their share."""
        best: dict[str, Overlap] = {}
        asked = [("", sketch) for sketch in rows.sketches] + list(rows.owners.items())
        for column, sketch in asked:
            for known in self._find_candidates(sketch):
                if column and column not in known.person_columns:
                    continue
                found = compare_rows(sketch, known)
                found = replace(found, persons=column, equal=False) if found is not None and column else found
                before = best.get(known.label_set)
                if found is not None and (before is None or _rank(found) < _rank(before)):
                    best[known.label_set] = found
        return tuple(sorted(best.values(), key=_rank))

    def find_rows(self, label_set: str) -> tuple[KnownRows, ...]:
        """Return what is known of an account's rows, by ids and by columns."""
        if not self._there:
            return ()
        query = "SELECT number FROM sketch WHERE label_set = ? ORDER BY kind DESC"
        return tuple(self._read_sketch(number) for (number,) in self._ask(query, label_set))

    def attach(self, label_set: str, rows: ProtectedRows, *, entry: int) -> list[list[str]]:
        """Add rows to an account in the name of the ledger's next row, and return what that row must name."""
        names = []
        known = {one.kind: one for one in self.find_rows(label_set)}
        for sketch in rows.sketches:
            before = known.get(sketch.kind) or KnownRows(label_set=label_set, kind=sketch.kind, sets=(), sample=NO_ROWS)
            if before.includes(sketch):
                continue
            after = before.widened(sketch)
            self._write_sketch(before, after, entry=entry)
            names.append([sketch.kind, digest_rows(after, rows.key)])
        return names

    def verify(self, records: Iterable[Record]) -> None:
        """Refuse sketches, a key or an index that are not what the rows of the ledger name."""
        named = {(record.label_set, kind): record.id for record in records for kind in read_names(record)}
        if not self._there:
            if named:
                raise self._tampered("accounts without their rows")
            return
        there = self._ask("SELECT number, label_set, kind, entry FROM sketch")
        if {(label_set, kind): entry for _, label_set, kind, entry in there} != named:
            raise self._tampered("other accounts beside its rows than they name")
        size = 0
        for number, _, _, _ in there:
            sample = self._read_sketch(number).sample
            found = sum(count for (count,) in self._look_up(sample.hashes, number))
            if found != len(sample):
                raise self._tampered("an index of rows that lacks some")
            size += found
        checks = (
            ("SELECT count(*) FROM row_hash", size, "an index of rows with some too many"),
            ("SELECT count(*) FROM row_set WHERE sketch NOT IN (SELECT number FROM sketch)", 0, "rows of no account"),
        )
        for query, count, what in checks:
            if self._ask(query) != [(count,)]:
                raise self._tampered(what)

    def _find_names(self, name: str) -> dict[str, str]:
        """Return whether accounts of this name, and of this name with a number, are known by rows or by name alone."""
        state: dict[str, str] = {}
        free, number = name, 1
        while self._ask("SELECT 1 FROM record WHERE label_set = ? LIMIT 1", free):
            known = self._there and self._ask("SELECT 1 FROM sketch WHERE label_set = ? LIMIT 1", free)
            state[free] = "rows" if known else "name"
            number += 1
            free = f"{name} #{number}"
        return state

    def _find_candidates(self, sketch: RowSketch) -> Iterator[KnownRows]:
        """Yield the accounts that may have rows of a sketch: by its total, else by its size and by its hashes."""
        if not self._there:
            return
        same = self._ask("SELECT sketch FROM row_set WHERE total = ?", sketch.rows.total)
        numbers = {number for (number,) in same}
        equal = [known for known in map(self._read_sketch, sorted(numbers)) if known.kind == sketch.kind]
        if equal:  # what else has these rows was decided when they were charged first
            yield from equal
            return
        if sketch.kind == COLUMNS:
            numbers |= {n for (n,) in self._ask("SELECT sketch FROM row_set WHERE n_rows = ?", sketch.rows.n_rows)}
        numbers |= {number for (number,) in self._look_up(sketch.sample.hashes)}
        for number in sorted(numbers):
            known = self._read_sketch(number)
            if known.kind == sketch.kind:
                yield known

    def _look_up(self, hashes: Words, number: int | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the sketches that have one of these hashes, or how many of them one sketch has."""
        signed = hashes.view(np.int64).tolist()
        what = "DISTINCT sketch" if number is None else "count(*)"
        for at in range(0, len(signed), AT_ONCE):
            part = signed[at : at + AT_ONCE]
            query = f"SELECT {what} FROM row_hash WHERE hash IN ({','.join('?' * len(part))})"  # noqa: S608 - signs alone
            yield from (
                self._ask(query, *part) if number is None else self._ask(query + " AND sketch = ?", *part, number)
            )

    def _read_sketch(self, number: int) -> KnownRows:
        """Return a sketch, once the row that it belongs to vouches for it."""
        rows = self._ask("SELECT label_set, kind, entry, hashes, counts FROM sketch WHERE number = ?", number)
        query = "SELECT n_rows, total, label, columns FROM row_set WHERE sketch = ? ORDER BY total, label"
        key = self.find_key()
        try:
            ((label_set, kind, entry, hashes, counts),) = rows
            sets = [
                RowSet(n_rows=n_rows, total=total, label=label, columns=parse_json(columns))
                for n_rows, total, label, columns in self._ask(query, number)
            ]
            sample = RowSample(
                hashes=np.frombuffer(hashes, "<u8").astype(np.uint64), counts=np.frombuffer(counts, np.uint8)
            )
            known = KnownRows(label_set=label_set, kind=kind, sets=tuple(sets), sample=sample)
            named = read_names(self._table.find_row(entry)).get(kind)
            whole = key is not None and named == digest_rows(known, key.digest)
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._tampered("rows of an account that cannot be read") from error
        if not whole:
            raise self._tampered(f"rows of account {label_set!r:.60} that row {entry} does not name")
        return known

    def _write_sketch(self, before: KnownRows, after: KnownRows, *, entry: int) -> None:
        """Write an account's rows over what there was of them."""
        connection, sample = self._table.connection, after.sample
        hashes, counts = sample.hashes.astype("<u8").tobytes(), sample.counts.tobytes()
        found = self._ask("SELECT number FROM sketch WHERE label_set = ? AND kind = ?", after.label_set, after.kind)
        if found:
            ((number,),) = found
            command = "UPDATE sketch SET entry = ?, hashes = ?, counts = ? WHERE number = ?"
            connection.execute(command, (entry, hashes, counts, number))
        else:
            command = "INSERT INTO sketch (label_set, kind, entry, hashes, counts) VALUES (?, ?, ?, ?, ?)"
            number = connection.execute(command, (after.label_set, after.kind, entry, hashes, counts)).lastrowid
        gone = np.setdiff1d(before.sample.hashes, sample.hashes, assume_unique=True)
        new = np.setdiff1d(sample.hashes, before.sample.hashes, assume_unique=True)
        for words, line in (
            (gone, "DELETE FROM row_hash WHERE hash = ? AND sketch = ?"),
            (new, "INSERT INTO row_hash (hash, sketch) VALUES (?, ?)"),
        ):
            # In the order of the index, so that neighbours are on one page.
            connection.executemany(line, [(word, number) for word in np.sort(words.view(np.int64)).tolist()])
        old = before.sets_by_total()
        connection.executemany(
            "REPLACE INTO row_set (sketch, total, label, n_rows, columns) VALUES (?, ?, ?, ?, ?)",
            [
                (number, one.total, one.label, one.n_rows, _columns_text(one))
                for one in after.sets
                if old.get((one.total, one.label)) != one
            ],
        )

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._table.connection.execute(query, values).fetchall()

    def _tampered(self, what: str) -> Exception:
        return tampering_error(self._table.path, what)


def read_names(record: Record) -> dict[str, str]:
    """Return the digests of the sketches that a row names, by their kind; none for most rows."""
    try:
        return {str(kind): str(digest) for kind, digest in parse_json(record.content).get("accounts", ())}
    except (TypeError, ValueError, AttributeError, RecursionError):
        return {}


def digest_rows(known: KnownRows, key: str) -> str:
    """Return the SHA-256 by which a row of the ledger names an account's rows; `key` is that of the ledger's key."""
    sets = [[one.n_rows, one.total, one.label, _columns_text(one)] for one in known.sets]
    facts = json.dumps([key, known.label_set, known.kind, sets], separators=(",", ":"))
    digest = hashlib.sha256(facts.encode())
    digest.update(known.sample.hashes.astype("<u8").tobytes())
    digest.update(known.sample.counts.tobytes())
    return digest.hexdigest()


def _columns_text(rows: RowSet) -> str:
    return json.dumps(dict(rows.columns), sort_keys=True, separators=(",", ":"))


def _rank(overlap: Overlap) -> tuple[bool, float, str]:
    return not overlap.equal, -overlap.share, overlap.label_set


def list_overlaps(overlaps: Sequence[Overlap], *, but: str) -> list[list[Any]]:
    """Return the other accounts with some of the rows, and their share, as a row of the ledger records them."""
    return [[one.label_set, round(one.share, 6)] for one in overlaps if one.label_set != but]
