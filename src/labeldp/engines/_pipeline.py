"""From pieces to files: reading, randomizing and writing at once, each in a thread of its own.

Design notes. The writer is the caller's thread: it reports progress, and an interrupt there stops the others. The
number of batches in memory is fixed by `DEPTH`, and so is the memory, whatever the table's length. Row groups have the same
rows whatever the batches, and one chunk each: the bytes of a file are a function of its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from labeldp._random import NoiseKey
from labeldp.engines._carry import Progress
from labeldp.engines._prefetch import prefetched
from labeldp.engines._randomizer import Randomizer
from labeldp.engines._rows import Rows, changed, regrouped
from labeldp.engines._staging import Staging, Written
from labeldp.release._writer import GROUP_ROWS, LabelsStream

#: Batches that wait between two steps: with the one that each step holds, some eight are in memory.
DEPTH = 2


class Done(NamedTuple):
    """A released batch of a span, and how many of its labels are expected to be true."""

    span: int
    batch: Any
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Draws pieces and writes each to its staged file. It travels to workers; the key does not travel with it."""

    randomizer: Randomizer
    staging: Staging
    size: int

    def write(self, pieces: Sequence[Rows], *, key: NoiseKey, progress: Progress | None = None) -> Iterator[Written]:
        """Yield what was written, piece after piece; `progress` hears of every batch."""
        told = _Told(progress, total=sum(piece.count for piece in pieces))
        by_number = {piece.spans[0].number: piece for piece in pieces}
        drawn = prefetched(self._drawn(pieces, key), depth=DEPTH)
        try:
            for number, batches in itertools.groupby(drawn, key=lambda done: done.span):
                yield self._file(by_number[number], batches, told)
        finally:
            drawn.close()  # type: ignore[attr-defined]  # a generator: its threads end with it

    def _drawn(self, pieces: Sequence[Rows], key: NoiseKey) -> Iterator[Done]:
        for piece, start, batch in prefetched(_read(pieces, self.size), depth=DEPTH):
            number = piece.spans[0].number
            if batch is None:
                yield Done(number, self.randomizer.empty(), 0.0)
            else:
                yield Done(number, *self.randomizer(batch, rows=piece, start=start, key=key))

    def _file(self, piece: Rows, batches: Iterable[Done], told: _Told) -> Written:
        """Write one piece's batches, and check that there were as many rows as were counted."""
        stream = LabelsStream(self.staging.work, self.randomizer.schema, name=(draft := self.staging.draft()))
        rows, accuracy = 0, 0.0

        def taken() -> Iterator[Any]:
            nonlocal rows, accuracy
            for done in batches:
                rows, accuracy = rows + done.batch.num_rows, accuracy + done.accuracy
                yield done.batch
                told(done.batch.num_rows)

        try:
            for group in regrouped(taken(), GROUP_ROWS):
                stream.write(group)
            facts = stream.close()
        except BaseException:
            stream.abandon()
            raise
        if rows != piece.count:
            raise changed(piece.source)
        return self.staging.keep(piece.spans[0], draft, facts=facts, rows=rows, accuracy=accuracy)


class _Told:
    """Adds up what was written, for whoever wants to know."""

    def __init__(self, progress: Progress | None, *, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None and rows:
            self._progress(self._done, self._total)


def _read(pieces: Sequence[Rows], size: int) -> Iterator[tuple[Rows, int, Any]]:
    """Yield each batch with its piece and its first position; a piece without rows has one batch that is None."""
    for piece in pieces:
        start = piece.first
        if piece.count == 0:
            yield piece, start, None
        for batch in piece.batches(size=size):
            yield piece, start, batch
            start += batch.num_rows
