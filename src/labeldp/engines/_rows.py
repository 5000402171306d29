"""The rows of a table that are released: those with a label, in order, in batches of an exact size.

>>> import pyarrow as pa
>>> parts = [pa.record_batch({"a": [1, 2, 3]}), pa.record_batch({"a": [4]}), pa.record_batch({"a": [5, 6]})]
>>> [batch.num_rows for batch in regrouped(parts, 4)]
[4, 2]

Design notes. A row is known by its position among the released rows: its noise, and where a model or a clustering
works in chunks, its chunk. So batches have exactly the size that is asked for, counted from the start of each span.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from labeldp.data.tables import TableSource
from labeldp.engines._spans import Span
from labeldp.errors import LabelDPError
from labeldp.release import SensitiveLabels

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
