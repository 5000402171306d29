"""Rows of a table as a ledger remembers them: how many, a total, and a sample of keyed hashes; nothing is computed from labels.

>>> import pyarrow as pa
>>> key = RowKey.fresh()
>>> table = pa.table({"age": [30, 41, 55], "job": ["a", "b", "a"], "ill": [0, 1, 1]})
>>> known = protect_rows(table.to_batches(), key, label="ill")
>>> turned = table.take([2, 0, 1]).select(["job", "ill", "age"]).set_column(2, "age", pa.array([55.0, 30.0, 41.0]))
>>> protect_rows(turned.to_batches(), key, label="ill").columns.rows == known.columns.rows
True

What is protected is a set of labels, and a set of labels is that of a set of rows. A ledger remembers a `RowSketch` of the
rows: how many there are, a total, and a sample. Nothing of it is computed from the label column.

**The hash of a row.** The value of each column is mixed into 64 bits under four secret words, which are derived from the
ledger's `RowKey` and the column's name; the sum over the columns, mixed again, is h(row). So the order of columns does not
matter. Values are taken in one form: a whole number is the same in any width, also as a float, and so are true and 1; -0.0
is 0; NaN, null and empty text are missing; dates and times count in nanoseconds, whatever their unit; a dictionary stands
for its values; text and binary count by their bytes. Decimals are taken as floats. Anything else (lists, structs) goes by
the text that Python shows it as, which is slow. The key is made once per ledger, of 32 random bytes, and kept in it: without
the ledger nobody can test a guess about a row, and sketches of two ledgers have nothing in common. The hash tells rows apart
for those who do not know the key; whoever does can make two rows of one hash.

**The total** is the sum of h(row), and of a second hash of h(row), modulo 2^64 each. It does not depend on the order of rows.
Equal sets of rows, repeats counted, have equal totals. Two different sets have equal totals with probability 2^-128, and
2^-64 at most if all rows in which they differ happen to collide.

**The sample** is the m = 16,384 smallest different hashes. A table of up to m different rows is known wholly. Of n different
rows each is in the sample with probability m / n, and two samples agree on which rows are in both: those below the smaller of
the two largest hashes (Broder 1997; Bar-Yossef et al. 2002). If x rows of the larger table, of n, are in the smaller one,
the sample shows at least one of them with probability 1 - (1 - m/n)^x, about 1 - exp(-x m / n): for n = 10^6 and x = 1,000 all
but 8 of 10^8 times. A false hit is a collision of hashes: m k / 2^64, at k hashes in the ledger.

**Persons** have their ids hashed apart from ids of rows. Whose account a sketch is, `labeldp.accounting.accounts` decides.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from labeldp.arrays import Bools, UInt8s, Words
from labeldp.errors import Described, invalid

if TYPE_CHECKING:
    from typing_extensions import Self

#: Different hashes in a sample: 144 kB.
SAMPLE_ROWS = 16_384
KEY_BYTES = 32
#: One more than the largest sum.
WORD = 2**64
#: Kinds of values, part of the hash: equal words of two kinds are two values.
MISSING, WHOLE, FRACTION, TEXT, MOMENT, LARGE, CLOCK, SPAN = range(8)
#: The units of Arrow's times, in nanoseconds.
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
IDS, COLUMNS = "ids", "columns"
#: What the hash of a person's id has in the place of a column's name.
PERSON = "person"


class RowKey:
    """The secret under which one ledger hashes rows. It pickles, since workers hash rows too; it shows nothing.

    `person_columns` are names of columns that say whose row it is, in some account of the ledger.
    """

    __slots__ = ("_secret", "person_columns")

    def __init__(self, secret: bytes, person_columns: tuple[str, ...] = ()) -> None:
        self._secret, self.person_columns = bytes(secret), person_columns
        if len(self._secret) != KEY_BYTES:
            got = Described(f"{len(self._secret)} bytes")
            raise invalid("RowKey", "secret", f"have {KEY_BYTES} bytes", got=got)

    @classmethod
    def fresh(cls) -> Self:
        """Return a new key of the operating system's randomness."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @property
    def digest(self) -> str:
        """What names the key without telling it."""
        return hashlib.sha256(b"labeldp row key 1\n" + self._secret).hexdigest()

    def reveal(self) -> bytes:
        """Return the secret itself, for the ledger that keeps it."""
        return self._secret

    def derive(self, purpose: str, name: str = "") -> Words:
        """Return four words for one purpose (a column, the rows), the last three odd."""
        text = f"{purpose}\n{name}".encode("utf-8", "surrogatepass")
        words = np.frombuffer(hashlib.blake2b(text, key=self._secret, digest_size=32).digest(), "<u8").astype(np.uint64)
        words[1:] |= np.uint64(1)
        return words

    def __repr__(self) -> str:
        return "<RowKey: secret>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RowKey, (self._secret, self.person_columns)


@dataclass(frozen=True, kw_only=True)
class RowSet:
    """A set of rows in a few facts: how many, the total of their hashes and of each column's, and which column is the label.

    The label column's name is empty where labels came without a table.
    """

    n_rows: int
    total: str
    label: str = ""
    columns: Mapping[str, str] = field(default_factory=dict, repr=False)

    def shares_rows(self, other: RowSet) -> bool:
        """Whether these are the same rows as far as their common columns tell; see *Other label columns* above."""
        mine = {name: total for name, total in self.columns.items() if name not in other.label_columns}
        its = {name: total for name, total in other.columns.items() if name not in self.label_columns}
        common = mine.keys() & its.keys()
        return (
            self.n_rows == other.n_rows
            and len(common) == min(len(mine), len(its)) > 0
            and all(mine[name] == its[name] for name in common)
        )

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of the label: several at once have commas between their names."""
        return (self.label, *self.label.split(","))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSample:
    """The smallest different hashes of rows, sorted, and how often each occurs: once, twice, or (3) more often."""

    hashes: Words
    counts: UInt8s

    @property
    def limit(self) -> int:
        """Hashes up to here are all known."""
        return int(self.hashes[-1]) if len(self.hashes) >= SAMPLE_ROWS else WORD - 1

    def below(self, limit: int) -> RowSample:
        """Return the part of the sample up to a hash."""
        size = int(np.searchsorted(self.hashes, np.uint64(limit), side="right"))
        return RowSample(hashes=self.hashes[:size], counts=self.counts[:size])

    def joined(self, other: RowSample, *, same_table: bool) -> RowSample:
        """Return the sample of both: counts add up for parts of one table, and are the larger of the two otherwise."""
        both = np.concatenate([self.hashes, other.hashes])
        hashes, places = np.unique(both, return_inverse=True)
        counts = np.zeros(len(hashes), np.int64)
        numbers = np.concatenate([self.counts, other.counts]).astype(np.int64)
        (np.add if same_table else np.maximum).at(counts, places.reshape(-1), numbers)
        return RowSample(hashes=hashes[:SAMPLE_ROWS], counts=np.minimum(counts, 3).astype(np.uint8)[:SAMPLE_ROWS])

    def __len__(self) -> int:
        return len(self.hashes)


NO_ROWS = RowSample(hashes=np.empty(0, np.uint64), counts=np.empty(0, np.uint8))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSketch:
    """What a ledger remembers of one table, by its `ids` or by its `columns`."""

    kind: str
    rows: RowSet
    sample: RowSample = field(repr=False)

    def joined(self, other: RowSketch) -> RowSketch:
        """Return the sketch of two parts of one table."""
        names = dict.fromkeys([*self.rows.columns, *other.rows.columns])
        sums = {name: _add_words(self.rows.columns.get(name), other.rows.columns.get(name)) for name in names}
        rows = RowSet(
            n_rows=self.rows.n_rows + other.rows.n_rows,
            total=_add_words(self.rows.total, other.rows.total),
            label=self.rows.label,
            columns=sums,
        )
        return RowSketch(kind=self.kind, rows=rows, sample=self.sample.joined(other.sample, same_table=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class ProtectedRows:
    """The rows whose labels are protected, as the ledger with this key knows them: by columns, by ids, or by both.

    `of_persons` says that the ids are those of the rows' owners, whose other rows are theirs too. `owners` are sketches of columns
    that say whose row it is in other accounts, by their names, where nobody said so of these rows. `features` are the columns that
    leave with what is released, or that a model learns from, as they are: none of them may be a label that the ledger protects.
    """

    key: str
    columns: RowSketch | None = None
    ids: RowSketch | None = None
    of_persons: bool = False
    owners: Mapping[str, RowSketch] = field(default_factory=dict)
    features: tuple[str, ...] = ()

    @property
    def sketches(self) -> tuple[RowSketch, ...]:
        """Those that there are, ids first: an id says more than what a row looks like."""
        return tuple(one for one in (self.ids, self.columns) if one is not None)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.sketches[0].rows.n_rows

    @property
    def label(self) -> str:
        """The label column's name; empty where it has none."""
        return self.sketches[0].rows.label

    def joined(self, other: ProtectedRows) -> ProtectedRows:
        """Return the rows of two parts of one table."""
        columns = None if self.columns is None or other.columns is None else self.columns.joined(other.columns)
        ids = None if self.ids is None or other.ids is None else self.ids.joined(other.ids)
        owners = {name: one.joined(other.owners[name]) for name, one in self.owners.items() if name in other.owners}
        return replace(self, columns=columns, ids=ids, of_persons=self.of_persons and other.of_persons, owners=owners)

    def with_persons(self, ids: Any, key: RowKey, *, column: str = "") -> ProtectedRows:
        """Return the same rows, known by the ids of their owners, each once, in the place of ids of their own.

        `column` is where a table has them.
        """
        found = protect_ids(ids, key, label=self.label, persons=True, column=column).ids
        return replace(self, ids=found, of_persons=True, owners={})


# --------------------------------------------------------------------------------------------------- tables to sketches


def protect_rows(
    batches: Iterable[Any],
    key: RowKey,
    *,
    label: str | Sequence[str],
    row_ids: str | None = None,
    features: Sequence[str] = (),
) -> ProtectedRows:
    """Return what a ledger remembers of the rows of record batches, read one after the other.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch or pyarrow.Table
        All columns, or all but the label's, which are not looked at.
    key : RowKey
        The ledger's.
    label : str or several
        The label columns.
    row_ids : str, optional
        The column of ids. The other columns are remembered too, so that a copy is found also where ids are not given.
    features : sequence of str
        The columns that are released, or learned from, as they are.
    """
    labels = (label,) if isinstance(label, str) else tuple(label)
    named = ",".join(labels)
    columns = RowCounter(key, COLUMNS, label=named)
    ids = None if row_ids is None else RowCounter(key, IDS, label=named)
    owners: dict[str, RowCounter] = {}
    for batch in batches:
        table = batch.combine_chunks() if hasattr(batch, "combine_chunks") else batch
        found = {name: table.column(name) for name in table.schema.names if name not in labels}
        columns.add(found, n_rows=table.num_rows)
        for name in found.keys() & set(key.person_columns):
            counter = owners.setdefault(name, RowCounter(key, IDS, label=named))
            counter.add({PERSON: found[name]}, n_rows=table.num_rows)
        if ids is not None and row_ids is not None:
            ids.add({"": found[row_ids]}, n_rows=table.num_rows)
    return ProtectedRows(
        key=key.digest,
        columns=columns.finish(),
        ids=None if ids is None else ids.finish(),
        owners={name: counter.finish() for name, counter in owners.items()},
        features=tuple(features),
    )


def protect_ids(
    row_ids: Any, key: RowKey, *, label: str = "", persons: bool = False, column: str = ""
) -> ProtectedRows:
    """Return what a ledger remembers of rows by a column of ids: integers or text.

    With `persons` the ids are those of persons, each once, whose labels are protected together whatever their rows are; the
    person 7 and the row 7 are two things. `column` is where a table has them.
    """
    import pyarrow as pa

    values = row_ids if isinstance(row_ids, (pa.Array, pa.ChunkedArray)) else pa.array(row_ids)
    counter = RowCounter(key, IDS, label=label)
    counter.add({PERSON if persons else "": values}, n_rows=len(values))
    found = counter.finish()
    if column:
        found = replace(found, rows=replace(found.rows, columns={column: found.rows.total}))
    return ProtectedRows(key=key.digest, ids=found, of_persons=persons)


class RowCounter:
    """Hashes rows batch by batch, and keeps what a sketch needs: memory does not grow with them."""

    def __init__(self, key: RowKey, kind: str, *, label: str) -> None:
        self._key, self._kind, self._label = key, kind, label
        self._row_seeds = key.derive(f"rows by {kind}")
        self._n_rows, self._columns = 0, dict[str, int]()
        self._totals = np.zeros(2, np.uint64)
        self._sample = NO_ROWS
        self._waiting: list[Words] = []

    def add(self, columns: Mapping[str, Any], *, n_rows: int) -> None:
        """Add rows, given as columns by their names."""
        from labeldp.kernels import add_hashes, close_hashes

        rows = np.zeros(n_rows, np.uint64)
        for name, column in columns.items():
            seeds = _column_seeds(self._key, name)
            words, tags = read_values(column, seeds)
            total = int(add_hashes(words, tags, seeds, rows)) if n_rows else 0
            self._columns[name] = (self._columns.get(name, 0) + total) % WORD
        kept = np.empty(n_rows, np.uint64)
        count = int(close_hashes(rows, self._row_seeds, np.uint64(self._sample.limit), kept, self._totals))
        self._n_rows += n_rows
        self._waiting.append(kept[:count].copy())
        if sum(map(len, self._waiting)) > 4 * SAMPLE_ROWS:
            self._settle()

    def _settle(self) -> None:
        """Put the hashes that wait into the sample."""
        hashes, counts = np.unique(np.concatenate([NO_ROWS.hashes, *self._waiting]), return_counts=True)
        found = RowSample(hashes=hashes, counts=np.minimum(counts, 3).astype(np.uint8))
        self._sample, self._waiting = self._sample.joined(found, same_table=True), []

    def finish(self) -> RowSketch:
        """Return the sketch of all rows so far."""
        self._settle()
        total = "".join(f"{int(word):016x}" for word in self._totals)
        sums = {name: f"{word:016x}" for name, word in self._columns.items()} if self._kind == COLUMNS else {}
        rows = RowSet(n_rows=self._n_rows, total=total, label=self._label, columns=sums)
        return RowSketch(kind=self._kind, rows=rows, sample=self._sample)


@functools.lru_cache(maxsize=4096)
def _seeds_of(secret: bytes, name: str) -> Words:
    return RowKey(secret).derive("column", name)


def _column_seeds(key: RowKey, name: str) -> Words:
    return _seeds_of(key.reveal(), name)


def _add_words(one: str | None, other: str | None) -> str:
    """Return the sums, modulo 2^64, of numbers of 16 hexadecimal digits each."""
    one, other = one or "0" * len(other or ""), other or "0" * len(one or "")
    parts = [(int(one[at : at + 16], 16) + int(other[at : at + 16], 16)) % WORD for at in range(0, len(one), 16)]
    return "".join(f"{part:016x}" for part in parts)


def read_values(column: Any, seeds: Words) -> tuple[Words, UInt8s]:
    """Return a word and a kind for each value of an Arrow column, in the one form that the module's docstring describes."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return read_values(column.storage, seeds)
    if pa.types.is_dictionary(kind):
        return _read_dictionary(column, seeds)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64), np.zeros(len(column), np.uint8)
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    if pa.types.is_integer(kind):
        return _read_wholes(column)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _read_fractions(column)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _read_moments(column)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if not any(test(kind) for test in texts):
        column = _as_texts(column)
    return _read_texts(column, seeds)


def _find_missing(column: Any) -> Bools:
    missing: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return missing


def _read_dictionary(column: Any, seeds: Words) -> tuple[Words, UInt8s]:
    words, tags = read_values(column.dictionary, seeds)
    places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(words):
        return np.zeros(len(column), np.uint64), np.zeros(len(column), np.uint8)
    missing = _find_missing(column.indices)
    return np.where(missing, np.uint64(0), words[places]), np.where(missing, np.uint8(MISSING), tags[places])


def _read_wholes(column: Any, *, tag: int = WHOLE) -> tuple[Words, UInt8s]:
    plain = column.fill_null(0) if column.null_count else column
    values = plain.to_numpy(zero_copy_only=False)
    tags = np.full(len(values), tag, np.uint8)
    if values.dtype == np.uint64:
        tags[values >= np.uint64(2**63)] = LARGE
    if column.null_count:
        tags[_find_missing(column)] = MISSING
    return values.astype(np.uint64 if values.dtype == np.uint64 else np.int64).view(np.uint64), tags


def _read_fractions(column: Any) -> tuple[Words, UInt8s]:
    import pyarrow as pa

    from labeldp.kernels import read_floats

    plain = column.cast(pa.float64(), safe=False) if pa.types.is_decimal(column.type) else column
    values = np.ascontiguousarray(plain.to_numpy(zero_copy_only=False), np.float64)  # a null becomes NaN
    words, tags = np.empty(len(values), np.uint64), np.empty(len(values), np.uint8)
    read_floats(values, values.view(np.uint64), words, tags)
    return words, tags


def _read_moments(column: Any) -> tuple[Words, UInt8s]:
    """Return times in nanoseconds, modulo 2^64: dates and moments alike, times of day and durations apart."""
    import pyarrow as pa

    kind = column.type
    tag = SPAN if pa.types.is_duration(kind) else CLOCK if pa.types.is_time(kind) else MOMENT
    unit = 86_400 * 10**9 if kind == pa.date32() else NANOSECONDS[getattr(kind, "unit", "ms")]
    whole = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    words, tags = _read_wholes(whole, tag=tag)
    return words * np.uint64(unit), tags


def _as_texts(column: Any) -> Any:
    """Return other types as text: views and binaries of fixed size by their bytes, anything nested by what Python shows."""
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if str(column.type) in ("string_view", "binary_view"):
        return column.cast(pa.large_string() if str(column.type) == "string_view" else pa.large_binary())
    return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.large_string())


def _read_texts(column: Any, seeds: Words) -> tuple[Words, UInt8s]:
    import pyarrow as pa

    from labeldp.kernels import hash_texts

    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, places, data = column.buffers()
    size = len(column)
    if size == 0 or places is None:
        return np.zeros(size, np.uint64), np.zeros(size, np.uint8)
    offsets = np.frombuffer(places, np.int64 if wide else np.int32)[column.offset : column.offset + size + 1]
    offsets = offsets.astype(np.int64)
    flat = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    words = np.empty(size, np.uint64)
    hash_texts(flat, offsets, seeds, words)
    missing = offsets[1:] == offsets[:-1]
    if column.null_count:
        missing |= _find_missing(column)
    return np.where(missing, np.uint64(0), words), np.where(missing, np.uint8(MISSING), np.uint8(TEXT))
