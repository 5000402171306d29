"""The rows of a table that are released: those with a label, in order, in batches of an exact size.

>>> import pyarrow as pa
>>> parts = [pa.record_batch({"a": [1, 2, 3]}), pa.record_batch({"a": [4]}), pa.record_batch({"a": [5, 6]})]
>>> [batch.num_rows for batch in regrouped(parts, 4)]
[4, 2]

Design notes. A row is known by its position among the released rows: its noise, and where a model or a clustering
works in chunks, its chunk. So batches have exactly the size that is asked for, counted from the start of each span.

How a table is cut for the work: runs of row groups of one file, each of which becomes one file of the release.

>>> cut([3, 3, 3, 9, 1], most=6)
[(0, 2), (2, 3), (3, 4), (4, 5)]

Design notes. The cut is a function of the table alone, never of the engine, its workers or its batches: batches begin anew
with each span, and so do the chunks that a model sees, which is what makes the engines' bytes the same. A file of at
most `SPAN_ROWS` rows is one span and keeps its path; a longer one becomes a folder of that name.

Which rows a table's release is about, for the ledger: `labeldp.accounting.fingerprint` over a stream of row ids.

Design notes. Equal to the fingerprint of the same ids in memory (a test compares them), without holding them: ten
million ids in text would be a gigabyte of Python objects.

The schema of a table's release: the input's, with nothing in it that speaks of raw labels.

>>> import pyarrow as pa
>>> raw = pa.schema([pa.field("ill", pa.string(), metadata={"rate": "0.02"})], metadata={"positives": "17"})
>>> print(released_schema(raw, label="ill", extras={"row": pa.int32()}).to_string(show_schema_metadata=True))
ill: string
_labeldp_row: int32 not null

Design notes. Types, order and names are kept. Free-form metadata may say anything about the labels (a rate, a count, a
list of rows), so of the table's only pandas' description of types stays, and the label's own is dropped. Statistics and
dictionaries in the file are made anew, from the released labels, when it is written.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.accounting import fingerprint
from labeldp.accounting.ledger_file import CHUNK, add_bytes, check_identity, encode_ids
from labeldp.data.tables import TableSource, below, row_groups
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.release import SensitiveLabels
from labeldp.release.files import LABELS, LABELS_FOLDER, RESERVED

#: Rows of a batch by default: 10 MB at 20 columns of 8 bytes.
BATCH_ROWS = 2**16


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows that will be released: how many in each span, under which label column, of which classes.

    A piece of a table is rows too: `first` is then the position of its first row among all.
    """

    source: TableSource
    label: str
    classes: tuple[Any, ...]
    value_set: Any = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)
    drop: bool
    read_off: bool
    first: int = 0

    @property
    def count(self) -> int:
        """Rows in all."""
        return sum(self.counts)

    def pieces(self) -> list[Rows]:
        """Return the rows of each span by themselves."""
        starts = [self.first, *(self.first + total for total in itertools.accumulate(self.counts))]
        return [
            replace(self, source=span.of(self.source), spans=(span,), counts=(count,), first=start)
            for span, count, start in zip(self.spans, self.counts, starts, strict=False)
        ]

    def batches(self, *, columns: Sequence[str] | None = None, size: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield the released rows' columns in record batches of exactly `size` rows, the last of each span shorter."""
        chosen = list(self.source.names if columns is None else columns)
        read = chosen if self.label in chosen or not self.drop else [*chosen, self.label]
        for span in self.spans:
            pieces = span.of(self.source).batches(columns=read, batch_rows=size)
            kept = (self._kept(piece) for piece in pieces) if self.drop else pieces
            for batch in regrouped(kept, size):
                yield batch.select(chosen) if len(read) > len(chosen) else batch

    def labels(self, batch: Any) -> SensitiveLabels:
        """Return a batch's labels boxed, as codes; the classes were checked in the pass before."""
        values = batch.column(self.label)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        codes = pc.index_in(values, value_set=self.value_set)
        if codes.null_count:
            raise changed(self.source)
        return SensitiveLabels(codes.to_numpy(zero_copy_only=False), n_classes=len(self.classes))

    def _kept(self, batch: Any) -> Any:
        absent = pc.is_null(batch.column(self.label), nan_is_null=True)
        return batch.filter(pc.invert(absent)) if pc.any(absent).as_py() else batch


def regrouped(batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Yield record batches of exactly `size` rows; batches that have it already pass without a copy."""
    pending: list[Any] = []
    waiting = 0
    for batch in batches:
        pending.append(batch)
        waiting += batch.num_rows
        while waiting >= size:
            whole = _joined(pending)
            yield whole.slice(0, size)
            waiting -= size
            pending = [whole.slice(size)] if waiting else []
    if waiting:
        yield _joined(pending)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def numbers(batch: Any, columns: Sequence[str]) -> npt.NDArray[np.float64]:
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


def changed(source: TableSource) -> LabelDPError:
    """Return the error for a table that is not what it was when it was checked."""
    return LabelDPError(
        f"privatize_table: {source.path} changed while it was read. Nothing was kept: run it again on a table at rest."
    )


#: Rows of a span, unless one row group has more: seconds of work, so that losing a worker costs seconds.
SPAN_ROWS = 2**22


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


def table_fingerprint(name: str, rows: Rows, *, row_ids: str | None) -> str:
    """Return the fingerprint of the released rows, by their ids where the table has them."""
    if row_ids is None:
        return fingerprint(name, n_rows=rows.count)
    digest = hashlib.sha256(b"labeldp rows 1\n")
    add_bytes(digest, check_identity(name))
    add_bytes(digest, f"0:{rows.count}".encode())
    for batch in rows.batches(columns=[row_ids], size=CHUNK):
        add_bytes(digest, encode_ids(_ids(batch.column(0))))
    return digest.hexdigest()


def _ids(column: Any) -> Any:
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_integer(plain.type):
        return plain.to_numpy(zero_copy_only=False)
    return np.array(plain.to_pylist(), dtype=object)


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
    dtype = value_type(source.schema.field(label).type)
    try:
        listed = pa.array([value.item() if isinstance(value, np.generic) else value for value in classes])
        return tuple(listed.cast(dtype).to_pylist())
    except (pa.ArrowException, ValueError, TypeError) as error:
        got = Described(str(error).splitlines()[0])
        raise invalid("privatize_table", "classes", f"be values of the column's type, {dtype}", got=got) from error


def released_schema(schema: Any, *, label: str, extras: Mapping[str, Any]) -> Any:
    """Return the input's schema without metadata about labels, and the reserved columns behind it."""
    fields = [field.remove_metadata() if field.name == label else field for field in schema]
    added = [pa.field(RESERVED + name, dtype, nullable=False) for name, dtype in extras.items()]
    return pa.schema([*fields, *added], metadata=_pandas_alone(schema.metadata, label))


def released_column(codes: Any, *, dtype: Any, classes: Sequence[Any]) -> Any:
    """Return released codes as values of the input's type; a dictionary holds the public list of classes."""
    values = pa.array(list(classes), type=value_type(dtype))
    if pa.types.is_dictionary(dtype):
        indices = pa.array(codes).cast(dtype.index_type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered)
    return values.take(pa.array(codes))


def value_type(dtype: Any) -> Any:
    """The type of a column's values, also where they are stored as a dictionary."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _pandas_alone(metadata: Mapping[bytes, bytes] | None, label: str) -> dict[bytes, bytes] | None:
    """Return pandas' description of the columns' types, without a data frame's free-form attributes."""
    try:
        described = json.loads((metadata or {})[b"pandas"])
        described.pop("attributes", None)
        for column in described["columns"]:
            if label in (column.get("name"), column.get("field_name")):
                column["metadata"] = None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return {b"pandas": json.dumps(described).encode()}
