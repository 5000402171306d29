"""How a table is cut for the work: runs of row groups of one file, each of which becomes one file of the release.

>>> cut([3, 3, 3, 9, 1], most=6)
[(0, 2), (2, 3), (3, 4), (4, 5)]

Design notes. The cut is a function of the table alone, never of the engine, its workers or its batches: batches begin anew
with each span, and so do the chunks that a model sees, which is what makes the engines' bytes the same. A file of at
most `SPAN_ROWS` rows is one span and keeps its path; a longer one becomes a folder of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from labeldp.data.tables import TableSource
from labeldp.data.tables._source import below, row_groups
from labeldp.release._writer import LABELS, LABELS_FOLDER

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
