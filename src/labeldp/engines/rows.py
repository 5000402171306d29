"""The rows of a table that are released, batch by batch and piece by piece, and what a prior may ask about them.

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

`TableExamples` is how a `labeldp.priors.Prior` sees the rows. Its readers are functions of one batch, and its passes over the
table are work that an `Engine` carries. No label leaves it: groups are counted by `StreamedCounts`.

Design notes. The fingerprint of the rows equals that of the same ids in memory (a test compares them) without holding them:
ten million ids in text would be a gigabyte of Python objects. The sample that scales and k-means are fitted to is chunks of a
fixed size and place, at most `FIT_CHUNKS` of them spread over the table, so that batch sizes and engines do not change it.
Infinite values count as missing, and missing ones as average. A model that remembers column names gets an Arrow table of
them, which scikit-learn accepts and whose names it checks; one that does not gets the numeric columns as a matrix, in the
order of the table. pandas is not needed.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.accounting import ProtectedRows, RowKey, fingerprint, protect_ids, protect_rows
from labeldp.accounting.ledger_file import CHUNK, add_bytes, check_identity, encode_ids
from labeldp.arrays import Float64s, Floats, Int64s
from labeldp.data.label_column import (
    LabelProfile,
    check_label,
    check_missing,
    check_row_ids,
    join_profiles,
    label_profile,
    outside_list,
)
from labeldp.data.tables import TableSource, below, row_groups
from labeldp.engines.engine import Engine, prefetch
from labeldp.errors import ColumnTypeError, Described, LabelDPError, invalid
from labeldp.guarantee import Guarantee
from labeldp.priors.base import (
    CHUNK_ROWS,
    Examples,
    Grouping,
    Reader,
    chunk_probabilities,
    model_probabilities,
    one_thread,
)
from labeldp.priors.cluster import MOST_CLUSTERS
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release.columns import RESERVED
from labeldp.release.door import draw_part
from labeldp.release.labels import NumberRule, list_owners, refuse_lonely_class
from labeldp.release.manifest import LABELS, LABELS_FOLDER
from labeldp.release.measurement import StreamedCounts
from labeldp.release.persons import Persons, RowsOfPersons, gather_rows
from labeldp.release.saving import check_plain_classes
from labeldp.validate import check_integer, check_probability_rows

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
    beyond; their classes are then the levels that the mechanism rounds them to. `asked` are the positions of the rows that are
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
        values = _decode(batch.column(self.label))
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
        absent = pc.is_null(batch.column(self.label), nan_is_null=True)
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
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
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


def gather_persons(rows: Rows, engine: Engine, *, column: str, most: int) -> RowsOfPersons:
    """Return what a plan of answers is made of: a pass over the column of ids, whose answer grows with the persons alone."""
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


def protect_table(rows: Rows, engine: Engine, key: RowKey, *, persons: Any = None) -> ProtectedRows:
    """Return what a ledger remembers of the rows: a pass over all columns but the label's, carried by the engine.

    With `persons`, the ids of all of them, it remembers whose rows they are: her rows in another table are hers too.
    """
    found = engine.reduce(functools.partial(_protect_piece, key=key), ProtectedRows.joined, rows.pieces())
    return (
        found if persons is None else replace(found, ids=protect_ids(persons, key, label=rows.label, persons=True).ids)
    )


def _protect_piece(piece: Rows, *, key: RowKey) -> ProtectedRows:
    columns = [name for name in piece.source.names if name != piece.label]
    batches = piece.batches(columns=columns or [piece.label])  # without features the rows are counted, and no more
    return protect_rows(prefetch(batches, depth=2), key, label=piece.label, row_ids=piece.row_ids)


# -------------------------------------------------------------------------------------- what a prior may ask about rows

#: A small table is gone through so often at most when clusters are fitted.
MOST_EPOCHS = 20
#: Counts held in memory, groups times classes: 128 MB, and twice that for the channel.
MOST_CELLS = 2**24
#: Chunks of the sample that scales and clusters are fitted to: half a million rows, past which they hardly move.
FIT_CHUNKS = 64
#: Numbers of the sample held in memory: 256 MB.
FIT_CELLS = 2**25


class TableExamples(Examples):
    """The rows of a table as a prior sees them; passes over them are carried by an engine."""

    def __init__(self, rows: Rows, engine: Engine) -> None:
        self._rows, self._engine = rows, engine
        self.classes, self.n_classes = rows.classes, rows.n_classes

    def __len__(self) -> int:
        return self._rows.count

    def read_columns(self, names: Sequence[str]) -> Reader:
        """Read columns of numbers; in float32 where all of them are."""
        columns = self._require(names)
        types = [self._rows.source.schema.field(name).type for name in columns]
        for name, dtype in zip(columns, types, strict=True):
            if not (pa.types.is_floating(dtype) or pa.types.is_integer(dtype)):
                fix = "A prior is a probability for each class."
                raise invalid(OWNER, "prior_columns", "hold numbers", got=Described(f"{dtype} in {name}"), fix=fix)
        narrow = all(dtype == pa.float32() for dtype in types)
        return Reader(read=functools.partial(_read_numbers, columns, narrow), columns=columns)

    def read_features(self, owner: str) -> Reader:
        """Read the numeric columns, scaled as they are in a sample of the table."""
        return self._scale(owner)[0]

    def read_model(self, model: Any) -> Reader:
        """Read the predictions of a fitted classifier, after trying it on the first chunk."""
        if not hasattr(model, "predict_proba") or not hasattr(model, "classes_"):
            got, fix = type(model).__name__, "Pass a fitted classifier."
            raise invalid(OWNER, "model", "have `predict_proba` and `classes_`", got=got, fix=fix)
        columns, by_name = self._model_columns(model)
        read = _ReadModel(model=model, classes=self.classes, columns=columns, by_name=by_name)
        first = next(self._rows.batches(columns=columns, size=CHUNK_ROWS))
        check_probability_rows(OWNER, "model", read(first, slice(0, first.num_rows)))
        return Reader(read=read, columns=columns, chunk=CHUNK_ROWS)

    def group_column(self, name: str) -> Grouping:
        """Collect the column's values, and number them in their order."""
        columns = self._require([name])
        dtype = value_type(self._rows.source.schema.field(name).type)
        if not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
            got, fix = str(dtype), "Round or cast it first."
            raise invalid(OWNER, "groups", "be a column of whole numbers or text", got=got, fix=fix)
        values = Reader(read=functools.partial(_read_values, name), columns=columns)
        seen = self.collect(values, functools.partial(_seen_values, name), functools.partial(_join_values, name))
        known = pa.array(sorted(seen), type=dtype)
        changed = replace(self._rows.source, parts=())
        read = functools.partial(_read_groups, name, known, changed)
        return Grouping(read=read, columns=columns, n_groups=len(known), words=f"by {name}")

    def group_clusters(
        self, n_clusters: int, *, random_state: int, full_steps: int, n_components: int | None
    ) -> Grouping:
        """Fit MiniBatchKMeans to chunks of standardised numeric columns that are spread over the table."""
        from sklearn.cluster import MiniBatchKMeans

        if full_steps or n_components is not None:
            got = Described("steps over all rows" if full_steps else "principal components")
            raise invalid("ClusterPrior", "full_steps and n_components", "be left out on a table", got=got)
        check_integer(OWNER, "n_clusters", n_clusters, least=1, most=MOST_CLUSTERS)
        fix = "There are no more rows than that."
        check_integer(OWNER, "n_clusters", n_clusters, least=1, most=len(self), fix=fix)
        scaled, sample = self._scale("n_clusters", fix="Name a column of groups instead (cluster_column=).")
        chunks = _largest_first(sample, n_clusters)
        centres = MiniBatchKMeans(n_clusters=n_clusters, random_state=random_state, n_init=1)
        for _ in range(max(1, min(MOST_EPOCHS, FIT_CHUNKS // len(chunks)))):
            for chunk in chunks:
                with one_thread():
                    centres.partial_fit(chunk)
        read = functools.partial(_read_clusters, centres, scaled.read)
        words = f"of {n_clusters} clusters"
        return Grouping(read=read, columns=scaled.columns, chunk=CHUNK_ROWS, n_groups=n_clusters, words=words)

    def collect(
        self, reader: Reader, work: Callable[[Any, int], Result], join: Callable[[Result, Result], Result]
    ) -> Result:
        """Have an engine read every piece; one result is in memory for each that is under way."""
        if not reader.columns:  # it goes by position: any column will do to count rows
            reader = replace(reader, columns=(self._rows.label,))
        each = functools.partial(_collect_piece, reader=reader, work=work, join=join)
        found: Result = self._engine.reduce(each, functools.partial(_join_some, join), self._rows.pieces())
        return found

    def count(self, grouping: Grouping) -> StreamedCounts:
        """Count the labels in groups; the counts stay behind the door until they have their noise."""
        if grouping.n_groups * self.n_classes > MOST_CELLS:
            got = Described(f"{grouping.n_groups:,} groups of {self.n_classes:,} classes")
            raise invalid(OWNER, "groups", f"need at most {MOST_CELLS:,} counts", got=got, fix="Merge some.")
        each = functools.partial(_count_piece, grouping=grouping)
        return self._engine.reduce(each, StreamedCounts.joined, self._rows.pieces())

    def draw(
        self, reader: Reader, channel: Callable[[int], Any], *, promise: Guarantee, key: NoiseKey
    ) -> Iterator[tuple[Any, slice, Any]]:
        """Draw chunk after chunk on this machine: whoever learns from labels has an order."""
        start = self._rows.first
        batches = self._rows.batches(columns=[self._rows.label, *reader.columns], size=CHUNK_ROWS)
        for batch in prefetch(batches, depth=2):
            rows = slice(start, start + batch.num_rows)
            labels = self._rows.labels(batch)
            codes = draw_part(labels, channel(batch.num_rows), promise=promise, key=key, start=start)
            yield reader.read(batch, rows), rows, codes
            start = rows.stop

    def _require(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return names of columns that are there, and of which none is what is to be hidden."""
        if self._rows.label in names:
            fix = "It is what is to be hidden: name another column."
            raise invalid(OWNER, "prior", "not be the label column", got=self._rows.label, fix=fix)
        self._rows.source.require(*names)
        return tuple(names)

    @property
    def _apart(self) -> tuple[str, ...]:
        """Columns that are no features: the label and the row ids."""
        return tuple(name for name in (self._rows.label, self._rows.row_ids) if name is not None)

    def _model_columns(self, model: Any) -> tuple[tuple[str, ...], bool]:
        """Return the columns that a model was fitted on, or all numeric ones if it has forgotten their names."""
        named = getattr(model, "feature_names_in_", None)
        if named is not None:
            names = tuple(str(name) for name in named)
            self._rows.source.require(*names)
            # A model that reads the label is no prior: it would see, for free, what is to be hidden.
            seen = next((name for name in names if name in self._apart), None)
            if seen is not None:
                fix = "Fit it without the label and the row ids."
                raise invalid(OWNER, "model", "not take the label as a feature", got=seen, fix=fix)
            return names, True
        names = tuple(numeric_columns(self._rows.source, but=self._apart))
        wanted = getattr(model, "n_features_in_", len(names))
        if wanted != len(names):
            got = Described(f"a model of {wanted} features for {len(names)} numeric columns")
            fix = "Fit it on a table with named columns, so that it knows which it wants."
            raise invalid(OWNER, "model", "take the table's numeric columns", got=got, fix=fix)
        return names, False

    def _scale(self, owner: str, *, fix: str = "") -> tuple[Reader, list[Float64s]]:
        """Return a reader of the numeric columns on one scale, and the scaled sample that the scale was learned from."""
        from sklearn.preprocessing import StandardScaler

        columns = tuple(numeric_columns(self._rows.source, but=self._apart))
        if not columns:
            raise invalid(OWNER, owner, "have numeric columns", got=Described("none"), fix=fix)
        sample = self._sample(columns)
        scale = StandardScaler()
        for chunk in sample:
            scale.partial_fit(chunk)
        read = functools.partial(_read_scaled, scale, columns)
        return Reader(read=read, columns=columns, chunk=CHUNK_ROWS), [_apply_scale(scale, chunk) for chunk in sample]

    def _sample(self, columns: tuple[str, ...]) -> list[Float64s]:
        """Return evenly spread chunks; only the spans that hold one are read."""
        pieces = self._rows.pieces()
        whole = [
            (place, number)
            for place, piece in enumerate(pieces)
            for number in range(math.ceil(piece.count / CHUNK_ROWS))
        ]
        most = max(1, min(FIT_CHUNKS, FIT_CELLS // (CHUNK_ROWS * len(columns))))
        stride = math.ceil(len(whole) / most) if self._rows.count > most * CHUNK_ROWS else 1
        chosen = whole[::stride]
        wanted = [(pieces[at], tuple(n for place, n in chosen if place == at)) for at in sorted({p for p, _ in chosen})]
        found = dict(self._engine.each(functools.partial(_read_sample, columns), wanted))
        return [chunk for place in sorted(found) for chunk in found[place]]


def _collect_piece(piece: Rows, *, reader: Reader, work: Any, join: Any) -> Any:
    """Return the joined results of one piece's batches; None of a piece without rows."""
    joined, start = None, piece.first
    for batch in piece.batches(columns=reader.columns, size=BATCH_ROWS // reader.chunk * reader.chunk):
        rows = slice(start, start + batch.num_rows)
        result = work(reader.read(batch, rows), start)
        joined, start = result if joined is None else join(joined, result), rows.stop
    return joined


def _join_some(join: Any, one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else join(one, other)


def _count_piece(piece: Rows, *, grouping: Grouping) -> StreamedCounts:
    """Count one piece's labels in its groups."""
    counts, start = StreamedCounts(n_groups=grouping.n_groups, n_classes=len(piece.classes)), piece.first
    size = BATCH_ROWS // grouping.chunk * grouping.chunk
    for batch in prefetch(piece.batches(columns=[piece.label, *grouping.columns], size=size), depth=2):
        rows = slice(start, start + batch.num_rows)
        counts.add(piece.labels(batch), grouping.read(batch, rows))
        start = rows.stop
    return counts


def _read_sample(columns: tuple[str, ...], wanted: tuple[Rows, tuple[int, ...]]) -> list[Float64s]:
    """Return some chunks of a piece, as matrices."""
    piece, chosen = wanted
    batches = itertools.islice(piece.batches(columns=columns, size=CHUNK_ROWS), max(chosen) + 1)
    return [_finite_numbers(batch, columns) for number, batch in enumerate(batches) if number in chosen]


def _read_numbers(columns: tuple[str, ...], narrow: bool, batch: Any, _: slice) -> Floats:  # noqa: FBT001 - a partial
    matrix = numbers(batch, columns)
    return matrix.astype(np.float32) if narrow else matrix


@dataclass(frozen=True, kw_only=True)
class _ReadModel:
    """Reads a model's probabilities, chunk by chunk, from a table of named columns or from a matrix."""

    model: Any
    classes: tuple[Any, ...]
    columns: tuple[str, ...]
    by_name: bool

    def __call__(self, batch: Any, _: slice) -> Floats:
        if not self.by_name:
            return chunk_probabilities(self.model, numbers(batch, self.columns), self.classes)
        chunks = [batch.slice(start, CHUNK_ROWS) for start in range(0, batch.num_rows, CHUNK_ROWS)]
        tables = [pa.table({name: _decode(chunk.column(name)) for name in self.columns}) for chunk in chunks]
        with one_thread():
            return np.concatenate([model_probabilities(self.model, table, self.classes) for table in tables])


def _read_scaled(scale: Any, columns: tuple[str, ...], batch: Any, _: slice) -> Float64s:
    return _apply_scale(scale, _finite_numbers(batch, columns))


def _apply_scale(scale: Any, matrix: Float64s) -> Float64s:
    answer: Float64s = np.nan_to_num(scale.transform(matrix), nan=0.0)
    return answer


def _finite_numbers(batch: Any, columns: tuple[str, ...]) -> Float64s:
    matrix = numbers(batch, columns)
    matrix[np.isinf(matrix)] = np.nan
    return matrix


def _read_values(name: str, batch: Any, _: slice) -> Any:
    return _decode(batch.column(name))


def _seen_values(name: str, values: Any, _: int) -> frozenset[Any]:
    return _check_values(name, frozenset(pc.unique(values).to_pylist()))


def _join_values(name: str, one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
    return _check_values(name, one | other)


def _check_values(name: str, seen: frozenset[Any]) -> frozenset[Any]:
    if None in seen:
        got, fix = Described(f"missing ones in {name}"), "Fill them with a group of their own."
        raise invalid(OWNER, "groups", "have no missing values", got=got, fix=fix)
    if len(seen) > MOST_CELLS // 2:
        got, fix = Described(f"more than {MOST_CELLS // 2:,} in {name}"), "It looks like a row id."
        raise invalid(OWNER, "groups", "be groups", got=got, fix=fix)
    return seen


def _read_groups(name: str, known: Any, source: TableSource, batch: Any, _: slice) -> Int64s:
    found = pc.index_in(_decode(batch.column(name)), value_set=known)
    if found.null_count:
        raise table_changed(source)
    groups: Int64s = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return groups


def _read_clusters(centres: Any, read: Callable[[Any, slice], Float64s], batch: Any, rows: slice) -> Int64s:
    """Return the nearest centre of each row, chunk by chunk."""
    matrix = read(batch, rows)
    starts = range(0, len(matrix), CHUNK_ROWS)
    with one_thread():
        found = [centres.predict(matrix[start : start + CHUNK_ROWS]) for start in starts]
    groups: Int64s = np.concatenate(found).astype(np.int64)
    return groups


def _largest_first(chunks: list[Float64s], least: int) -> list[Float64s]:
    """Return the chunks with the largest first, which must have a row for each cluster; all as one if none has."""
    largest = max(range(len(chunks)), key=lambda place: len(chunks[place]))
    ordered = [chunks[largest], *chunks[:largest], *chunks[largest + 1 :]]
    return ordered if len(ordered[0]) >= least else [np.concatenate(ordered)]


def _decode(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


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
    dtype = value_type(source.schema.field(label).type)
    try:
        listed = pa.array([value.item() if isinstance(value, np.generic) else value for value in classes])
        return tuple(listed.cast(dtype).to_pylist())
    except (pa.ArrowException, ValueError, TypeError) as error:
        got = Described(str(error).splitlines()[0])
        raise invalid("privatize_table", "classes", f"be values of the column's type, {dtype}", got=got) from error


def value_type(dtype: Any) -> Any:
    """The type of a column's values, also where they are stored as a dictionary."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype
