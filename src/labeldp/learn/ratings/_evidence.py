"""What a learner of ratings may know: released outputs of any channel, noisy sums over cells, or plain numbers.

>>> import labeldp
>>> channel = labeldp.RandomizedResponse(1.0, n_classes=3).channel()
>>> told = Responses.read(np.array([0, 2, 2]), channel, RatingFamily.of((1, 2, 3)))
>>> told.column.tolist(), told.score.shape[0], told.information.shape[0]
([0, 2, 2], 3, 1)

For an output o of a channel T at mean m, with the label's law p(m): the score is s = (T[., o].dp) / (T[., o].p), the
derivative of the log likelihood, and the Fisher information of the whole channel is I = sum_o (T[., o].dp)^2 / (T[., o].p).
One scoring step from m gives the pseudo-target m + s / I of weight I: E[s] = 0 and Var[s] = I, so at the true mean it is
unbiased with variance 1 / I, whatever the channel is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.channel import FiniteChannel
from labeldp.learn.ratings._family import RatingFamily

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Responses:
    """Released outputs: `column` and `matrix` of each example, tables of scores per column and information per matrix."""

    column: npt.NDArray[np.int32]
    matrix: npt.NDArray[np.int32]
    score: Floats
    information: Floats

    @classmethod
    def read(cls, codes: Ints, channel: FiniteChannel, family: RatingFamily) -> Responses:
        """Tabulate a release; examples with the same matrix share a table."""
        matrix, firsts = distinct_matrices(channel, len(codes))
        dense = np.stack([channel.matrix(int(first)) for first in firsts])
        chance = np.einsum("qk,gkm->gmq", family.laws, dense)
        change = np.einsum("qk,gkm->gmq", family.slopes, dense)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(chance > 0, change / chance, 0.0)
        outputs = dense.shape[2]
        return cls(
            column=(matrix * outputs + codes).astype(np.int32),
            matrix=matrix.astype(np.int32),
            score=score.reshape(-1, len(family.grid)),
            information=(score * change).sum(axis=1),
        )

    def mean(self, family: RatingFamily) -> float:
        """Return the likeliest common mean of all labels: where the total score, summed up along the grid, is largest.

        The sum is the log likelihood. A zero of the score would not do: scores also vanish at the ends of the grid.
        """
        counts = np.bincount(self.column[self.column >= 0], minlength=len(self.score))
        return float(family.grid[np.argmax(np.cumsum(counts @ self.score))])

    def take(self, rows: Ints) -> Responses:
        """Return the evidence of some ratings."""
        return Responses(
            column=self.column[rows], matrix=self.matrix[rows], score=self.score, information=self.information
        )

    def placed(self, rows: Ints, n: int) -> Responses:
        """Return the same evidence among n ratings, of which only `rows` have some."""
        column, matrix = np.full(n, -1, np.int32), np.zeros(n, np.int32)
        column[rows], matrix[rows] = self.column, self.matrix
        return Responses(column=column, matrix=matrix, score=self.score, information=self.information)


def distinct_matrices(channel: FiniteChannel, n: int) -> tuple[npt.NDArray[np.int64], Ints]:
    """Return which matrix each of n examples has, and an example of each; by what the channel stores per example."""
    arrays = channel.example_arrays()
    if not arrays:
        return np.zeros(n, np.int64), np.zeros(1, np.int64)
    keys = np.column_stack([np.asarray(array).reshape(n, -1) for array in arrays.values()])
    _, firsts, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return index.reshape(-1).astype(np.int64), firsts


@dataclass(frozen=True, kw_only=True, eq=False)
class CellSums:
    """Noisy sums of ratings over cells (own id, group of the other id): `sums` (n_own, G), each with `noise_variance`.

    `groups` is the public group of every id of the other side.
    """

    sums: Floats
    groups: npt.NDArray[np.int64]
    noise_variance: float

    @property
    def n_groups(self) -> int:
        """Cells per own id."""
        return int(self.sums.shape[1])
