"""Beliefs from groups of rows: a public column of group ids, or k-means on the numeric columns, then noisy counts.

The counts get the noise of `ClusterPrior` (Ghazi et al. 2021, Algorithm 4) and cost the same share of the budget; the
release is the one that `ClusterPrior(groups=...)` and `RRWithPrior` give in memory under the same key.

Design notes. Groups are made before the charge and without labels. k-means is fitted by `partial_fit` on the chunks of a
sample (see `_standard`). Values of a column and counts of labels are joined as a tree, wherever the pieces are.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from labeldp._random import NoiseKey
from labeldp._validate import check_integer
from labeldp.engines._beliefs import CHUNK_ROWS, Answer, Belief, Response, one_thread
from labeldp.engines._carry import Engine
from labeldp.engines._prefetch import prefetched
from labeldp.engines._rows import BATCH_ROWS, Rows, changed, numeric_columns
from labeldp.engines._standard import FIT_CHUNKS, Matrix, Standardised
from labeldp.errors import Described, invalid
from labeldp.mechanisms import Mechanism
from labeldp.priors import ClusterPrior
from labeldp.priors._cluster import MOST_CLUSTERS
from labeldp.release._counting import shares
from labeldp.release._stream import StreamedCounts

#: A small table is gone through so often at most.
MOST_EPOCHS = 20
#: Counts held in memory, groups times classes: 128 MB, and twice that for the channel.
MOST_CELLS = 2**24
GroupIds = npt.NDArray[np.int64]


class Groups(Belief, abc.ABC):
    """Rows in public groups, whose labels are counted with noise; a subclass says how rows are grouped."""

    n_groups: int

    def __init__(self, *, epsilon: float | None) -> None:
        self._epsilon = epsilon

    @abc.abstractmethod
    def group(self, rows: Rows, engine: Engine) -> None:
        """Learn the groups, without labels."""

    @abc.abstractmethod
    def of(self, batch: Any) -> GroupIds:
        """Return the group of each row."""

    def prepare(self, rows: Rows, engine: Engine) -> None:
        """Make the groups and count labels in them; the counts stay behind the door until they have their noise."""
        self.group(rows, engine)
        if self.n_groups * len(rows.classes) > MOST_CELLS:
            got = Described(f"{self.n_groups:,} groups of {len(rows.classes):,} classes")
            raise invalid(
                "privatize_table", "clusters", f"need at most {MOST_CELLS:,} counts", got=got, fix="Merge some."
            )
        self._counts: StreamedCounts | None = engine.reduced(self._counted, StreamedCounts.joined, rows.pieces())

    def _counted(self, piece: Rows) -> StreamedCounts:
        """Count one piece's labels in its groups."""
        counts = StreamedCounts(n_groups=self.n_groups, n_classes=len(piece.classes))
        size = BATCH_ROWS // self.chunk * self.chunk
        for batch in prefetched(piece.batches(columns=[piece.label, *self.columns], size=size), depth=2):
            counts.add(piece.labels(batch), self.of(batch))
        return counts

    def cost(self, budget: float, *, n_examples: int, n_classes: int) -> float:
        """Epsilon of the histograms, by the rule of `ClusterPrior`."""
        if budget == 0:
            fix = "Leave the clusters out: nothing can be learned at epsilon 0."
            raise invalid("privatize_table", "epsilon", "be > 0 for a prior from clusters", got=budget, fix=fix)
        prior = ClusterPrior(n_clusters=self.n_groups, epsilon=self._epsilon)
        return prior.cost(budget, n_examples=n_examples, n_classes=n_classes)

    def respond(self, rows: Rows, mechanism: Mechanism, *, spent: float, key: NoiseKey) -> Response:
        """Draw the noise of the counts, and answer each row by its group's shares."""
        assert self._counts is not None
        measured = self._counts.release(epsilon=spent, key=key.child("cluster prior"))
        self._counts = None  # exact: what answers batches may travel, and they must not travel with it
        prior = shares(measured.value)
        whole = mechanism.channel(prior, groups=np.arange(self.n_groups))
        accuracy = np.asarray(whole.expected_accuracy(prior))
        whole.prepare()  # once, not once a batch

        def answer(batch: Any, _: int) -> Answer:
            groups = self.of(batch)
            return Answer(whole.take(groups), float(accuracy[groups].sum()))

        return Response(answer=answer, shared=whole, prior=prior.astype(np.float64))


class GroupColumn(Groups):
    """A public column of whole numbers or text; its values are the groups."""

    def __init__(self, column: str, *, epsilon: float | None) -> None:
        super().__init__(epsilon=epsilon)
        self.columns = (column,)
        self.description = f" on noisy histograms by {column}"

    def group(self, rows: Rows, engine: Engine) -> None:
        """Collect the column's values, sorted."""
        column = self.columns[0]
        rows.source.require(column)
        dtype = _value_type(rows.source.schema.field(column).type)
        if not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
            fix = "Round or cast it first."
            raise invalid("privatize_table", "cluster_column", "be whole numbers or text", got=str(dtype), fix=fix)
        seen: frozenset[Any] = engine.reduced(self._seen, lambda one, other: one | other, rows.pieces())
        _check_seen(column, seen)
        self._source = replace(rows.source, parts=())
        self._values = pa.array(sorted(seen), type=dtype)
        self.n_groups = len(seen)

    def _seen(self, piece: Rows) -> frozenset[Any]:
        """Return the values of one piece."""
        seen: set[Any] = set()
        for batch in piece.batches(columns=self.columns):
            seen.update(pc.unique(_decoded(batch.column(0))).to_pylist())
            _check_seen(self.columns[0], seen)
        return frozenset(seen)

    def of(self, batch: Any) -> GroupIds:
        """Look the values up."""
        found = pc.index_in(_decoded(batch.column(self.columns[0])), value_set=self._values)
        if found.null_count:
            raise changed(self._source)
        groups: GroupIds = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return groups


class KMeans(Groups):
    """MiniBatchKMeans on the numeric columns, standardised; missing values count as average."""

    chunk = CHUNK_ROWS

    def __init__(self, n_clusters: int, *, epsilon: float | None, apart: Sequence[str]) -> None:
        super().__init__(epsilon=epsilon)
        self.n_groups = check_integer("privatize_table", "n_clusters", n_clusters, least=1, most=MOST_CLUSTERS)
        self._apart = tuple(apart)
        self.description = f" on noisy histograms of {self.n_groups} clusters"

    def group(self, rows: Rows, engine: Engine) -> None:
        """Fit the scale, then the centres, on chunks spread over the table."""
        from sklearn.cluster import MiniBatchKMeans

        fix = "There are no more rows than that."
        check_integer("privatize_table", "n_clusters", self.n_groups, least=1, most=rows.count, fix=fix)
        self.columns = tuple(numeric_columns(rows.source, but=self._apart))
        if not self.columns:
            fix = "Name a column of groups instead (cluster_column=)."
            raise invalid("privatize_table", "n_clusters", "have numeric columns", got=Described("none"), fix=fix)
        self._features = Standardised(self.columns)
        chunks = _first_large(self._features.fit(rows, engine), self.n_groups)
        self._centres = MiniBatchKMeans(n_clusters=self.n_groups, random_state=0, n_init=1)
        for _ in range(max(1, min(MOST_EPOCHS, FIT_CHUNKS // len(chunks)))):
            for chunk in chunks:
                with one_thread():
                    self._centres.partial_fit(chunk)

    def of(self, batch: Any) -> GroupIds:
        """Return the nearest centre of each row, chunk by chunk."""
        matrix = self._features.of(batch)
        starts = range(0, len(matrix), CHUNK_ROWS)
        with one_thread():
            found = [self._centres.predict(matrix[start : start + CHUNK_ROWS]) for start in starts]
        groups: GroupIds = np.concatenate(found).astype(np.int64)
        return groups


def _first_large(chunks: list[Matrix], least: int) -> list[Matrix]:
    """Return the chunks with the largest first, which must have a row for each cluster; all as one if none has."""
    largest = max(range(len(chunks)), key=lambda place: len(chunks[place]))
    ordered = [chunks[largest], *chunks[:largest], *chunks[largest + 1 :]]
    return ordered if len(ordered[0]) >= least else [np.concatenate(ordered)]


def _check_seen(column: str, seen: Collection[Any]) -> None:
    if None in seen:
        fix = "Fill them with a group of their own."
        got = Described(f"missing ones in {column}")
        raise invalid("privatize_table", "cluster_column", "have no missing values", got=got, fix=fix)
    if len(seen) > MOST_CELLS // 2:
        got = Described(f"more than {MOST_CELLS // 2:,} in {column}")
        raise invalid("privatize_table", "cluster_column", "name groups", got=got, fix="It looks like a row id.")


def _value_type(dtype: Any) -> Any:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
