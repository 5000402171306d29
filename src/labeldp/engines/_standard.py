"""Numeric columns on one scale, learned from a sample of the table without labels: what k-means and learners see.

Design notes. The sample is chunks of a fixed size and place, at most `FIT_CHUNKS` of them spread over the table, so that
batch sizes and engines do not change it. Infinite values count as missing, and missing ones as average.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.engines._beliefs import CHUNK_ROWS
from labeldp.engines._carry import Engine
from labeldp.engines._rows import Rows, numbers

Matrix = npt.NDArray[np.float64]
#: Chunks of the sample: half a million rows, past which centres and scales hardly move.
FIT_CHUNKS = 64
#: Numbers of the sample held in memory: 256 MB.
FIT_CELLS = 2**25


class Standardised:
    """Centres and scales columns as they were in a sample; `sample` is that sample, until it is let go."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def fit(self, rows: Rows, engine: Engine) -> list[Matrix]:
        """Learn the scale, and return the sample's chunks, scaled."""
        from sklearn.preprocessing import StandardScaler

        chunks = self._sample(rows, engine)
        self._scale = StandardScaler()
        for chunk in chunks:
            self._scale.partial_fit(chunk)
        return [self.scaled(chunk) for chunk in chunks]

    def of(self, batch: Any) -> Matrix:
        """Return a batch's columns, scaled."""
        return self.scaled(self._numbers(batch))

    def scaled(self, matrix: Matrix) -> Matrix:
        """Return raw numbers scaled."""
        answer: Matrix = np.nan_to_num(self._scale.transform(matrix), nan=0.0)
        return answer

    def _sample(self, rows: Rows, engine: Engine) -> list[Matrix]:
        """Return evenly spread chunks; only the spans that hold one are read."""
        pieces = rows.pieces()
        whole = [(place, number) for place, piece in enumerate(pieces) for number in _chunk_numbers(piece)]
        most = max(1, min(FIT_CHUNKS, FIT_CELLS // (CHUNK_ROWS * len(self.columns))))
        stride = math.ceil(len(whole) / most) if rows.count > most * CHUNK_ROWS else 1
        chosen = whole[::stride]
        wanted = [(pieces[at], tuple(n for place, n in chosen if place == at)) for at in sorted({p for p, _ in chosen})]
        found = dict(engine.each(self._read, wanted))
        return [chunk for place in sorted(found) for chunk in found[place]]

    def _read(self, wanted: tuple[Rows, tuple[int, ...]]) -> list[Matrix]:
        """Return some chunks of a piece, as matrices."""
        piece, chosen = wanted
        batches = itertools.islice(piece.batches(columns=self.columns, size=CHUNK_ROWS), max(chosen) + 1)
        return [self._numbers(batch) for number, batch in enumerate(batches) if number in chosen]

    def _numbers(self, batch: Any) -> Matrix:
        matrix = numbers(batch, self.columns)
        matrix[np.isinf(matrix)] = np.nan
        return matrix


def _chunk_numbers(piece: Rows) -> range:
    return range(math.ceil(piece.count / CHUNK_ROWS))
