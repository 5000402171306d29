"""The rows of a table that are released, batch by batch and piece by piece.

>>> import pyarrow as pa
>>> parts = [
...     pa.RecordBatch.from_pydict({"a": [1, 2, 3]}),
...     pa.RecordBatch.from_pydict({"a": [4]}),
...     pa.RecordBatch.from_pydict({"a": [5, 6]}),
... ]
>>> [batch.num_rows for batch in regroup(parts, 4)]
[4, 2]
>>> cut([3, 3, 3, 9, 1], most=6)
[(0, 2), (2, 3), (3, 4), (4, 5)]

`Rows` are those with a label, in order. A row is known by its position among them: its noise depends on that alone, and where
a model or a clustering works in chunks, so does its chunk. So batches have exactly the size that is asked for, counted from
the start of each span. Rows are also the set of labels that a ledger knows: `Budget` takes them as they are.

A `Span` is a run of row groups of one file and becomes one file of the release. The cut is a function of the table alone,
never of the engine, its workers or its batches: batches begin anew with each span, and so do the chunks that a model sees,
which is what makes the engines' bytes the same. A file of at most `SPAN_ROWS` rows is one span and keeps its path; a longer
one becomes a folder of that name.

Design notes. The fingerprint of the rows equals that of the same ids in memory (a test compares them) without holding them:
ten million ids in text would be a gigabyte of Python objects.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.accounting import ProtectedRows, RowKey, fingerprint, protect_rows
from labeldp.accounting.ledger_file import CHUNK, add_bytes, check_identity, encode_ids
from labeldp.arrays import Float64s, Int64s
from labeldp.data.label_column import (
    LabelProfile,
    check_label,
    check_missing,
    check_row_ids,
    join_profiles,
    label_profile,
    outside_list,
)
from labeldp.data.tables import TableSource, below, decode_dictionary, find_missing, row_groups, value_type
from labeldp.engines.engine import Engine, prefetch
from labeldp.errors import ColumnTypeError, Described, LabelDPError, invalid
from labeldp.release import SensitiveLabels
from labeldp.release.columns import RESERVED
from labeldp.release.labels import NumberRule, list_owners, refuse_lonely_class
from labeldp.release.manifest import LABELS, LABELS_FOLDER
from labeldp.release.persons import Persons, RowsOfPersons, gather_rows
from labeldp.release.saving import check_plain_classes
from labeldp.validate import check_class_list

#: Rows of a batch by default: 10 MB at 20 columns of 8 bytes.
BATCH_ROWS = 2**16
#: Rows of a span, unless one row group has more: seconds of work, so that losing a worker costs seconds.
SPAN_ROWS = 2**22
#: Rows of the column of ids that are read at once: few joins, and no more than a span.
GATHER_ROWS = 2**21
OWNER = "privatize_table"

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that will be released: how many in each span, under which label column, of which classes.

    A piece of a table is rows too: `first` is then the position of its first row among all. `name` is what a ledger calls
    the labels, and `row_ids` the column that it knows the rows by, if there is one. `classes_read_off` says whether the
    list of classes was read off the column, `drop` whether rows without a label are left out, and `beside` what is
    released with the labels as it is. Labels that are numbers have `bounds`, and `outside` says what is done with those
    beyond; their classes are then the levels that the mechanism rounds them to. Nothing of the columns of `left_out`
    is released; ids may be read from them. `asked` are the positions of the rows that are
    answered, rising, where persons have answers for some of their rows only; None where all are answered.
    """

    source: TableSource
    label: str
    classes: tuple[Any, ...]
    value_set: Any = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)
    drop: bool
    classes_read_off: bool
    name: str
    beside: tuple[str, ...] = ("other columns",)
    row_ids: str | None = None
    first: int = 0
    bounds: tuple[float, float] | None = None
    outside: str | None = None
    asked: Int64s | None = field(default=None, repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are released as they are."""
        return tuple(name for name in self.source.names if name != self.label and name not in self.left_out)

    @property
    def answered(self) -> int:
        """How many rows are answered."""
        return self.count if self.asked is None else len(self.asked)

    def asked_within(self, low: int, high: int) -> Int64s | None:
        """Return the positions in low .. high - 1 that are answered; None where all are."""
        if self.asked is None:
            return None
        return self.asked[slice(*np.searchsorted(self.asked, [low, high]).tolist())]

    @property
    def count(self) -> int:
        """Rows in all."""
        return sum(self.counts)

    def __len__(self) -> int:
        return self.count

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    def fingerprint(self, *, start: int = 0) -> str:
        """Return what the ledger knows the rows by: their ids where the table has them, else how many there are."""
        if self.row_ids is None:
            return fingerprint(self.name, n_rows=self.count, start=start)
        digest = hashlib.sha256(b"labeldp rows 1\n")
        add_bytes(digest, check_identity(self.name))
        add_bytes(digest, f"{start}:{self.count}".encode())
        for batch in self.batches(columns=[self.row_ids], size=CHUNK):
            add_bytes(digest, encode_ids(_plain_ids(batch.column(0))))
        return digest.hexdigest()

    def pieces(self) -> list[Rows]:
        """Return the rows of each span by themselves."""
        starts = [self.first, *(self.first + total for total in itertools.accumulate(self.counts))]
        return [
            replace(
                self,
                source=span.of(self.source),
                spans=(span,),
                counts=(count,),
                first=start,
                asked=self.asked_within(start, start + count),
            )
            for span, count, start in zip(self.spans, self.counts, starts, strict=False)
        ]

    def batches(self, *, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield the released rows' columns in record batches of exactly `size` rows, the last of each span shorter."""
        chosen = list(self.source.names if columns is None else columns)
        read = chosen if self.label in chosen or not self.drop else [*chosen, self.label]
        for span in self.spans:
            pieces = span.of(self.source).batches(columns=read, batch_rows=size)
            kept = (self._drop_missing(piece) for piece in pieces) if self.drop else pieces
            for batch in regroup(kept, size):
                yield batch.select(chosen) if len(read) > len(chosen) else batch

    def labels(self, batch: Any) -> SensitiveLabels:
        """Return a batch's labels boxed, as codes or as numbers; they were checked in the pass before."""
        values = decode_dictionary(batch.column(self.label))
        if self.bounds is not None:
            try:
                return SensitiveLabels(values, bounds=self.bounds, outside=self.outside or "clip")
            except LabelDPError:
                raise table_changed(self.source) from None
        codes = pc.index_in(values, value_set=self.value_set)
        if codes.null_count:
            raise table_changed(self.source)
        return SensitiveLabels(codes.to_numpy(zero_copy_only=False), n_classes=len(self.classes))

    def _drop_missing(self, batch: Any) -> Any:
        absent = find_missing(batch.column(self.label))
        return batch.filter(pc.invert(absent)) if pc.any(absent).as_py() else batch


def regroup(batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Yield record batches of exactly `size` rows; batches that have it already pass without a copy."""
    pending: list[Any] = []
    waiting = 0
    for batch in batches:
        pending.append(batch)
        waiting += batch.num_rows
        while waiting >= size:
            whole = _concat(pending)
            yield whole.slice(0, size)
            waiting -= size
            pending = [whole.slice(size)] if waiting else []
    if waiting:
        yield _concat(pending)


def _concat(batches: list[Any]) -> Any:
    """Return batches as one; `pyarrow.concat_batches` does the same, and came with version 19."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(i) for batch in batches]) for i in range(batches[0].num_columns)]
    if not columns:  # rows without columns have a number, which only a table keeps
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _plain_ids(column: Any) -> Any:
    plain = decode_dictionary(column)
    if pa.types.is_integer(plain.type):
        return plain.to_numpy(zero_copy_only=False)
    return np.array(plain.to_pylist(), dtype=object)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A run of row groups of one part: `file` is the part's path in the table, `name` its file in the release."""

    number: int
    file: str
    name: str
    part: Any = field(repr=False)
    groups: tuple[int, int] | None
    rows: int | None

    def of(self, source: TableSource) -> TableSource:
        """Return this piece of the table."""
        return replace(source, rows=self.rows, parts=(self.part,), groups=self.groups)


def spans_of(source: TableSource) -> tuple[Span, ...]:
    """Return the spans of a table, in the order of its rows."""
    found: list[Span] = []
    for part in source.parts:
        file, sizes = below(part, source.path), row_groups(part)
        runs: list[tuple[int, int] | None] = [None]
        if sizes is not None and sum(sizes) > SPAN_ROWS:
            runs = [*cut(sizes, most=SPAN_ROWS)]
        for place, run in enumerate(runs):
            name = _name(file, place, runs=len(runs), alone=len(source.parts) == 1)
            rows = None if sizes is None else sum(sizes if run is None else sizes[slice(*run)])
            found.append(Span(number=len(found), file=file, name=name, part=part, groups=run, rows=rows))
    return tuple(found)


def cut(sizes: Sequence[int], *, most: int) -> list[tuple[int, int]]:
    """Return runs of row groups of at most `most` rows, at least one group each."""
    ends, filled = [0], 0
    for number, size in enumerate(sizes):
        if filled and filled + size > most:
            ends.append(number)
            filled = 0
        filled += size
    return list(zip(ends, [*ends[1:], len(sizes)], strict=True))


def _name(file: str, place: int, *, runs: int, alone: bool) -> str:
    if runs > 1:
        return f"{LABELS_FOLDER}/{file}/{place:05d}.parquet"
    return LABELS if alone else f"{LABELS_FOLDER}/{file}"


def check_rows(
    source: TableSource,
    label: str,
    *,
    classes: Sequence[Any] | None,
    missing: str,
    engine: Engine,
    numbers: NumberRule | None = None,
) -> tuple[Rows, int]:
    """Return the rows to release, and how many are left out; one pass over the label column.

    With `numbers` its values are not counted: they are checked to be numbers, and `classes` are the levels of a mechanism.
    """
    source.require(label)
    check_names(source)
    _check_partitions(source, label)
    listed = None if numbers is not None else class_values(source, label, classes)
    spans = spans_of(source)
    each = functools.partial(_profile_span, label=label, numbers=numbers)
    try:
        found = dict(engine.each(each, _place_spans(source, spans)))
    except ColumnTypeError:
        if (
            source.form is not None and source.form.whole
        ):  # every row was looked at: a type that was asked for does not fit
            raise
        source = source.retype()
        listed = None if numbers is not None else class_values(source, label, classes)
        found = dict(engine.each(each, _place_spans(source, spans)))
    profiles = [found[number] for number in range(len(spans))]
    if numbers is not None:
        profile = functools.reduce(join_profiles, profiles)
        check_missing(profile, missing)
        rows = Rows(
            source=source,
            label=label,
            classes=tuple(classes or ()),
            value_set=None,
            spans=spans,
            counts=tuple(one.rows - one.missing for one in profiles),
            drop=profile.missing > 0,
            classes_read_off=False,
            name=label,
            bounds=numbers.bounds,
            outside=numbers.outside,
        )
        return rows, profile.missing
    _check_files(spans, profiles, listed)
    profile = functools.reduce(join_profiles, profiles)
    known = check_label(profile, missing=missing, classes=listed)
    dtype = value_type(source.schema.field(label).type)
    declared = listed is not None or pa.types.is_boolean(dtype)
    if listed is None and declared:
        known = (False, True)
    check_plain_classes(known, owner=OWNER)
    rows = Rows(
        source=source,
        label=label,
        classes=known,
        value_set=pa.array(list(known), type=dtype),
        spans=spans,
        counts=tuple(one.rows - one.missing for one in profiles),
        drop=profile.missing > 0,
        classes_read_off=not declared,
        name=label,
    )
    return rows, profile.missing


def _place_spans(source: TableSource, spans: Sequence[Span]) -> list[tuple[TableSource, int, str]]:
    """Return each span's piece of the table, its first row in its file, and the file's name where there are several."""
    found, before = [], {span.file: 0 for span in spans}
    for span in spans:
        found.append((span.of(source), before[span.file], f" of {span.file}" if len(before) > 1 else ""))
        before[span.file] += span.rows or 0  # a file of unknown length is one span
    return found


def _profile_span(placed: tuple[TableSource, int, str], *, label: str, numbers: NumberRule | None) -> LabelProfile:
    """Return the profile of one span's labels; numbers are checked on the way."""
    piece, first, where = placed
    if numbers is None:
        return label_profile(piece, label)
    return label_profile(piece, label, check=functools.partial(numbers.check, label=label, first=first, where=where))


def _check_files(spans: Sequence[Span], profiles: Sequence[LabelProfile], listed: Sequence[Any] | None) -> None:
    """Name the file where a value outside the list is; that there is one, the check of the whole will say as well."""
    known = set(listed or ())
    for span, profile in zip(spans, profiles, strict=True):
        if listed is not None and len(spans) > 1 and any(value not in known for value in profile.counts):
            raise outside_list(profile, known, where=f" of {span.file}")


def _check_partitions(source: TableSource, label: str) -> None:
    """Refuse folders named after the label (label=yes/...): their names would be released as they are."""
    for part in source.parts:
        if any(name.partition("=")[0] == label and "=" in name for name in below(part, source.path).split("/")):
            fix = "The names of folders are released as they are: write the table again in other folders."
            raise invalid(OWNER, "label", "not be in the names of folders", got=Described(f"{label}=..."), fix=fix)


def check_ids(source: TableSource, row_ids: str | None, label: str) -> str | None:
    """Return the column of row ids: each one once, and not the label."""
    if row_ids == label:
        fix = "It is what is to be hidden: name another column."
        raise invalid(OWNER, "row_ids", "not be the label column", got=row_ids, fix=fix)
    if row_ids is not None:
        check_row_ids(source, row_ids)
    return row_ids


def check_left_out(source: TableSource, drop: Sequence[str], label: str) -> tuple[str, ...]:
    """Return the columns that are not released: some of the table's, and not the label."""
    names = (drop,) if isinstance(drop, str) else tuple(drop)
    source.require(*names)
    if label in names:
        fix = "What is released in its place is private: leave out other columns."
        raise invalid(OWNER, "drop", "not be the label column", got=label, fix=fix)
    return names


def gather_persons(rows: Rows, engine: Engine, *, column: str, most: int) -> RowsOfPersons:
    """Return what a plan of answers is made of: a pass over the column of ids, whose answer grows with the persons alone."""
    if not isinstance(column, str):
        fix = "Whose row it is stands in the table: name the column of ids."
        raise invalid(OWNER, "persons", "be the name of a column", got=Described(f"a {type(column).__name__}"), fix=fix)
    if column == rows.label:
        fix = "It is what is to be hidden: name the column that says whose row it is."
        raise invalid(OWNER, "persons", "not be the label column", got=column, fix=fix)
    rows.source.require(column)
    each = functools.partial(_gather_piece, column=column, most=most)
    return engine.reduce(each, RowsOfPersons.join, [piece for piece in rows.pieces() if piece.count])


def _gather_piece(piece: Rows, *, column: str, most: int) -> RowsOfPersons:
    found: RowsOfPersons | None = None
    start = piece.first
    for batch in prefetch(piece.batches(columns=[column], size=GATHER_ROWS), depth=2):
        persons = Persons.of(batch.column(0), owner=OWNER)
        part = gather_rows(persons, most=most, first=start)
        found = part if found is None else found.join(part)
        start += batch.num_rows
    assert found is not None  # a piece with rows
    return found


def check_owners(rows: Rows, engine: Engine, *, column: str) -> None:
    """Refuse classes that were read off the table where one person alone has one of them, in whichever files."""
    if not rows.classes_read_off:
        return
    pieces = [piece for piece in rows.pieces() if piece.count]
    owners = engine.reduce(functools.partial(_find_owners, column=column), _join_owners, pieces)
    lonely = next((row for ids, row in owners.values() if len(ids) == 1), None)
    if lonely is not None:
        refuse_lonely_class(OWNER, f"row {lonely:,}")


#: For each class up to two of its owners, and a row of the first.
Owners = dict[int, tuple[frozenset[Any], int]]


def _find_owners(piece: Rows, *, column: str) -> Owners:
    found: Owners = {}
    start = piece.first
    for batch in prefetch(piece.batches(columns=[piece.label, column]), depth=2):
        persons = Persons.of(batch.column(column), owner=OWNER)
        found = _join_owners(
            found, {k: (v[0], v[1] + start) for k, v in list_owners(piece.labels(batch), persons).items()}
        )
        start += batch.num_rows
    return found


def _join_owners(one: Owners, other: Owners) -> Owners:
    both = dict(one)
    for code, (ids, row) in other.items():
        known, first = both.get(code, (frozenset(), row))
        both[code] = (frozenset(itertools.islice(known | ids, 2)), min(first, row))
    return both


def protect_table(rows: Rows, engine: Engine, key: RowKey, *, persons: Any = None, column: str = "") -> ProtectedRows:
    """Return what a ledger remembers of the rows: a pass over all columns but the label's, carried by the engine.

    With `persons`, the ids of all of them in a `column`, it remembers whose rows they are: her rows in another table are hers too.
    """
    # The key beside each piece and not inside the work, which engines may store.
    found = engine.reduce(_protect_piece, ProtectedRows.joined, [(piece, key) for piece in rows.pieces()])
    return found if persons is None else found.with_persons(persons, key, column=column)


def _protect_piece(item: tuple[Rows, RowKey]) -> ProtectedRows:
    piece, key = item
    columns = [name for name in piece.source.names if name != piece.label]
    batches = piece.batches(columns=columns or [piece.label])  # without features the rows are counted, and no more
    return protect_rows(
        prefetch(batches, depth=2), key, label=piece.label, row_ids=piece.row_ids, features=piece.features
    )


# ---------------------------------------------------------------------------------------- columns and their types


def numbers(batch: Any, columns: Sequence[str]) -> Float64s:
    """Return numeric columns of a batch as a float64 matrix; missing values are NaN."""
    matrix = np.empty((batch.num_rows, len(columns)))
    for place, name in enumerate(columns):
        matrix[:, place] = batch.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return matrix


def numeric_columns(source: TableSource, *, but: Sequence[str]) -> list[str]:
    """Return the names of the columns of numbers, except some."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    fields = [field for field in source.schema if field.name not in but]
    return [field.name for field in fields if any(kind(field.type) for kind in kinds)]


def table_changed(source: TableSource) -> LabelDPError:
    """Return the error for a table that is not what it was when it was checked."""
    return LabelDPError(
        f"privatize_table: {source.path} changed while it was read. Nothing was kept: run it again on a table at rest."
    )


def check_names(source: TableSource) -> None:
    """Refuse columns under the names that labeldp adds its own by."""
    taken = next((name for name in source.names if name.startswith(RESERVED)), None)
    if taken is not None:
        fix = f"Names that begin with {RESERVED!r} are labeldp's: rename or drop it."
        raise invalid("privatize_table", "columns", "not have a reserved name", got=taken, fix=fix)


def class_values(source: TableSource, label: str, classes: Sequence[Any] | None) -> tuple[Any, ...] | None:
    """Return listed classes in the label column's own type: a command line spells 0 and 1 as text."""
    if classes is None:
        return None
    given = check_class_list(OWNER, classes)
    dtype = value_type(source.schema.field(label).type)
    try:
        return tuple(pa.array(given).cast(dtype).to_pylist())
    except (pa.ArrowException, ValueError, TypeError) as error:
        got = Described(str(error).splitlines()[0])
        raise invalid("privatize_table", "classes", f"be values of the column's type, {dtype}", got=got) from error
