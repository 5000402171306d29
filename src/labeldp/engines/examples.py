"""What a prior may ask about the rows of a table: columns, a model's beliefs, groups, clusters, counts.

`TableExamples` is how a `labeldp.priors.Prior` sees the rows. Its readers are functions of one batch, and its passes over the
table are work that an `Engine` carries. No label leaves it: groups are counted by `StreamedCounts`.

Design notes. The sample that scales and k-means are fitted to is chunks of a fixed size and place, at most `FIT_CHUNKS` of them
spread over the table, so that batch sizes and engines do not change it. Infinite values count as missing, and missing ones as
average. A model that remembers column names gets an Arrow table of them, which scikit-learn accepts and whose names it checks; one
that does not gets the numeric columns as a matrix, in the order of the table. pandas is not needed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.arrays import Float64s, Floats, Int64s
from labeldp.data.tables import TableSource, decode_dictionary, value_type
from labeldp.engines.engine import Engine, prefetch
from labeldp.engines.rows import (
    BATCH_ROWS,
    OWNER,
    Result,
    Rows,
    numbers,
    numeric_columns,
    table_changed,
)
from labeldp.errors import Described, invalid
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
from labeldp.release.door import draw_part
from labeldp.release.measurement import StreamedCounts
from labeldp.validate import check_integer, check_probability_rows

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
        """Return names of columns that are there, and of which none is what is to be hidden, or left out."""
        if self._rows.label in names:
            fix = "It is what is to be hidden: name another column."
            raise invalid(OWNER, "prior", "not be the label column", got=self._rows.label, fix=fix)
        self._rows.source.require(*names)
        gone = next((name for name in names if name in self._rows.left_out), None)
        if gone is not None:
            fix = "What is released would depend on it: leave it out of `drop` (--drop), or of the prior."
            raise invalid(OWNER, "prior", "not be read from a column that is dropped", got=gone, fix=fix)
        return tuple(names)

    @property
    def _apart(self) -> tuple[str, ...]:
        """Columns that are no features: the label, the row ids, and those that are left out."""
        own = (self._rows.label, self._rows.row_ids, *self._rows.left_out)
        return tuple(name for name in own if name is not None)

    def _model_columns(self, model: Any) -> tuple[tuple[str, ...], bool]:
        """Return the columns that a model was fitted on, or all numeric ones if it has forgotten their names."""
        named = getattr(model, "feature_names_in_", None)
        if named is not None:
            names = tuple(str(name) for name in named)
            self._rows.source.require(*names)
            # A model that reads the label is no prior: it would see, for free, what is to be hidden.
            seen = next((name for name in names if name in self._apart), None)
            if seen is not None:
                what = "a dropped column" if seen in self._rows.left_out else "the label"
                fix = "Fit it without the label, the row ids and columns that are dropped."
                raise invalid(OWNER, "model", f"not take {what} as a feature", got=seen, fix=fix)
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
        counts.add(piece.labels(batch), grouping.read(batch, rows), start=start)
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
        tables = [pa.table({name: decode_dictionary(chunk.column(name)) for name in self.columns}) for chunk in chunks]
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
    return decode_dictionary(batch.column(name))


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
    found = pc.index_in(decode_dictionary(batch.column(name)), value_set=known)
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
