"""What an answer says of the mean of its label: for stars, counts and amounts, through any channel.

A learner of numbers predicts means. To learn from an answer it needs the law of a label given its mean, p(m) over K rising values,
and the channel T. An answer o has the likelihood T[., o].p(m). Its *score* is the derivative of the logarithm in m, and the
*information* of the whole answer is the variance of the score:

    s(o) = (T[., o].dp) / (T[., o].p),        I = sum_o (T[., o].dp)^2 / (T[., o].p),        E[s] = 0,  Var[s] = I.

One scoring step from m gives the *pseudo-target* m + s / I of weight I: at the true mean it is unbiased with variance 1 / I,
whatever the channel is. Any learner with squared loss that takes weights can learn from it, a few times over.

>>> from labeldp.channel import MatrixChannel
>>> flip = MatrixChannel([[0.75, 0.25], [0.25, 0.75]])
>>> table = MeanTable.of(ShareLaws())
>>> told = MeanEvidence.read(np.array([1, 0]), flip, table)
>>> targets, weights = told.at_means(np.array([0.5, 0.5]))
>>> targets.round(3).tolist(), weights.round(3).tolist()
([1.5, -0.5], [1.0, 1.0])

*Why not the answer itself.* An unbiased answer v is its own pseudo-target for a learner that knows nothing of p: its variance is
that of the answer. Knowing p, some answers weigh more than others, and what cannot be told from far off is discounted
(`labeldp.learn.number_stages` has an example in numbers). The price is that p must be about right; the unbiased answer needs no such
thing.

| laws | p(m) | of |
|---|---|---|
| `NormalLaws` | exp(-(v - c)^2 / 2 d) on the values, c such that the mean is m | stars, amounts |
| `CountLaws` | Poisson, the last value standing for all from it on | counts |
| `ShareLaws` | (1 - m, m) | zeros and ones |

*Tilting.* p_t[y] ~ p[y] exp(t v[y]) is an exponential family in the value v. Its mean rises strictly in t, from the least to the
largest value that p gives any mass, so every mean between them has one law. It changes with its mean m as dp[y] / dm =
p[y] (v[y] - m) / Var, since d log p_t[y] / dt = v[y] - m and dm / dt = Var (Efron, "The geometry of exponential families",
Annals of Statistics 6(2), 1978). A tilted discrete normal is one with another centre.

>>> tilted_laws(np.full(3, 1 / 3), np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5])).round(3).tolist()
[[0.333, 0.333, 0.333], [0.116, 0.268, 0.616]]

Design notes. Everything here is public: answers, channels, laws. Learners of many rows read a table of means (`MeanTable`),
those with few rows or a likelihood to climb ask the laws themselves (`score_answers`).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s, Ints
from labeldp.channel.finite import FiniteChannel
from labeldp.errors import Described, invalid

#: Halvings of the bracket of t: it ends below 1e-12 of a tilt that moves a unit of range by e.
_HALVINGS = 60
#: Tilts per unit of range that are searched: e^60 between the two ends of the values, beyond which a law is a point.
_STEEPEST = 60.0
#: Means stay this share of the range away from its ends, where the law is a point and its variance zero.
MARGIN = 0.02
#: A normal law that is narrower than this share of the squared range cannot be tilted to every mean (`_STEEPEST`).
NARROWEST = 1 / 100
#: Grid points of the mean: a hundredth of a star for five stars.
_POINTS = 381
#: The grid ends this share of the range from its ends, where a mean says that all labels are the same.
_GRID_MARGIN = 0.025
#: Added to every information: an answer that says nothing has no target.
LEAST_INFORMATION = 1e-6


# ------------------------------------------------------------------------------------------------ laws of a label


class MeanLaws(abc.ABC):
    """How a label is spread over K rising values, given its mean."""

    @property
    @abc.abstractmethod
    def values(self) -> Floats:
        """The values."""

    @abc.abstractmethod
    def tabulate(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the law at each mean, (n, K), and its derivative in the mean, (n, K)."""


@dataclass(frozen=True, eq=False)
class NormalLaws(MeanLaws):
    """A discretised normal on the values; its dispersion is public: by default a quarter of the range, squared.

    That leaves two standard deviations to either side of the middle.
    """

    numbers: Any
    dispersion: float | None = None

    @property
    def values(self) -> Floats:
        """The values."""
        return np.asarray(self.numbers, dtype=np.float64)

    def tabulate(self, means: Floats) -> tuple[Floats, Floats]:
        """Tilt the law at the middle of the values."""
        values = self.values
        span, middle = float(np.ptp(values)), float(values.min() + values.max()) / 2
        spread = (span / 4) ** 2 if self.dispersion is None else max(self.dispersion, NARROWEST * span**2)
        base = np.exp(-((values - middle) ** 2) / (2 * spread))
        laws = tilted_laws(base / base.sum(), values, means)
        return laws, slopes(laws, values)


@dataclass(frozen=True)
class CountLaws(MeanLaws):
    """Poisson counts 0 .. most, where `most` stands for all counts from it on; the mean is that of the whole Poisson law.

    With Q(k, m) = Pr[count < k]: dp[k] / dm = p[k-1] - p[k], and p[most - 1] for the last.

    >>> laws, slopes = CountLaws(2).tabulate(np.array([0.1]))
    >>> laws.round(4).tolist(), slopes.round(4).tolist()
    ([[0.9048, 0.0905, 0.0047]], [[-0.9048, 0.8144, 0.0905]])
    """

    most: int

    @property
    def values(self) -> Floats:
        """0 .. most."""
        return np.arange(self.most + 1.0)

    def tabulate(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the clipped Poisson laws."""
        import scipy.special

        m, k = np.asarray(means, np.float64)[:, None], np.arange(self.most)
        inside = np.exp(scipy.special.xlogy(k, m) - m - scipy.special.gammaln(k + 1))
        laws = np.column_stack([inside, scipy.special.gammainc(self.most, m[:, 0])])
        before = np.column_stack([np.zeros(len(m)), inside])
        return laws, before - np.column_stack([inside, np.zeros(len(m))])


@dataclass(frozen=True)
class ShareLaws(MeanLaws):
    """Zeros and ones."""

    @property
    def values(self) -> Floats:
        """0 and 1."""
        return np.array([0.0, 1.0])

    def tabulate(self, means: Floats) -> tuple[Floats, Floats]:
        """1 - m and m."""
        m = np.asarray(means, np.float64)
        return np.column_stack([1 - m, m]), np.tile([-1.0, 1.0], (len(m), 1))


def tilted_laws(law: Floats, values: Floats, means: Floats) -> Floats:
    """Return, for each mean, the tilt of `law` that has it, (Q, K); means are moved inside what the law can reach."""
    there = values[law > 0]
    low, high = float(there.min()), float(there.max())
    if high == low:
        return np.broadcast_to(law, (len(means), len(law))).copy()
    scaled = (values - low) / (high - low)
    wanted = np.clip((means - low) / (high - low), MARGIN, 1 - MARGIN)
    with np.errstate(divide="ignore"):
        logs = np.log(law)
    below, above = np.full(len(wanted), -_STEEPEST), np.full(len(wanted), _STEEPEST)
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        short = _tilt_law(logs, scaled, middle) @ scaled < wanted
        below, above = np.where(short, middle, below), np.where(short, above, middle)
    return _tilt_law(logs, scaled, (below + above) / 2)


def slopes(laws: Floats, values: Floats) -> Floats:
    """Return how each law changes with its mean, dp / dm; zero for a law that is a point."""
    away = values - (laws @ values)[:, None]
    variance = (laws * away**2).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        answer: Floats = np.where(variance > 0, laws * away / variance, 0.0)
    return answer


def _tilt_law(logs: Floats, scaled: Floats, tilts: Floats) -> Floats:
    """Return p[y] exp(t scaled[y]) for each tilt t, divided by its sum; `logs` are the logarithms of p."""
    raw = logs[None, :] + tilts[:, None] * scaled[None, :]
    raw = np.exp(raw - raw.max(axis=1, keepdims=True))
    answer: Floats = raw / raw.sum(axis=1, keepdims=True)
    return answer


# ------------------------------------------------------------------------------------------------ a table of means


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanTable:
    """Laws on an even grid of means: `laws` (Q, K), their derivatives `slopes` (Q, K), and `variances` (Q,).

    >>> MeanTable.of(NormalLaws((1, 2, 3, 4, 5))).law(3.0).round(3).tolist()
    [0.054, 0.244, 0.403, 0.244, 0.054]
    """

    values: Floats
    grid: Floats
    laws: Floats
    slopes: Floats
    variances: Floats

    @classmethod
    def of(cls, family: MeanLaws) -> MeanTable:
        """Tabulate a family between its least and its largest value."""
        numbers = family.values
        span = float(np.ptp(numbers))
        grid = np.linspace(numbers[0] + _GRID_MARGIN * span, numbers[-1] - _GRID_MARGIN * span, _POINTS)
        laws, change = family.tabulate(grid)
        variances = (laws * (numbers - grid[:, None]) ** 2).sum(axis=1)
        return cls(values=numbers, grid=grid, laws=laws, slopes=change, variances=variances)

    @property
    def span(self) -> float:
        """Largest value less the least."""
        return float(self.values[-1] - self.values[0])

    def law(self, mean: float) -> Floats:
        """Return the law at the grid point nearest a mean."""
        answer: Floats = self.laws[self.at(np.asarray([mean]))[0]]
        return answer

    def variance(self, mean: float) -> float:
        """Return the variance of a label with this mean."""
        return float(self.variances[self.at(np.asarray([mean]))[0]])

    def at(self, means: Floats) -> npt.NDArray[np.intp]:
        """Return the nearest grid points."""
        step = self.grid[1] - self.grid[0]
        nearest: npt.NDArray[np.intp] = (
            np.rint((means - self.grid[0]) / step).clip(0, len(self.grid) - 1).astype(np.intp)
        )
        return nearest


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanEvidence:
    """Released answers: `column` and `matrix` of each example, tables of scores per column and information per matrix.

    A column below zero marks a label of which nothing was released.
    """

    column: npt.NDArray[np.int32]
    matrix: npt.NDArray[np.int32]
    score: Floats
    information: Floats
    grid: Floats

    @classmethod
    def read(cls, codes: Ints, channel: FiniteChannel, table: MeanTable) -> MeanEvidence:
        """Tabulate a release; examples with the same matrix share a table."""
        matrix, dense = _read_matrices("MeanEvidence", channel, len(codes), n_values=len(table.values))
        chance = np.einsum("qk,gkm->gmq", table.laws, dense)
        change = np.einsum("qk,gkm->gmq", table.slopes, dense)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(chance > 0, change / chance, 0.0)
        outputs = dense.shape[2]
        return cls(
            column=(matrix * outputs + codes).astype(np.int32),
            matrix=matrix.astype(np.int32),
            score=score.reshape(-1, len(table.grid)),
            information=(score * change).sum(axis=1),
            grid=table.grid,
        )

    def at_means(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the pseudo-target of each example, one scoring step from its mean, and the target's weight."""
        targets, weights = np.empty(len(means)), np.empty(len(means))
        self.write_targets(means, targets, weights)
        return targets, weights

    def write_targets(self, means: Floats, targets: Floats, weights: Floats) -> None:
        """Write what `at_means` returns into arrays that are there; weight zero where nothing was released."""
        from labeldp import kernels

        low, step = float(self.grid[0]), float(self.grid[1] - self.grid[0])
        tables = (self.column, self.matrix, self.score, self.information)
        kernels.linearise(means, *tables, low, step, LEAST_INFORMATION, targets, weights)

    def mean(self) -> float:
        """Return the likeliest common mean of all labels: where the total score, summed up along the grid, is largest.

        The sum is the log likelihood. A zero of the score would not do: scores also vanish at the ends of the grid.
        """
        counts = np.bincount(self.column[self.column >= 0], minlength=len(self.score))
        return float(self.grid[np.argmax(np.cumsum(counts @ self.score))])

    def take(self, rows: Ints) -> MeanEvidence:
        """Return the evidence of some examples."""
        return MeanEvidence(
            column=self.column[rows],
            matrix=self.matrix[rows],
            score=self.score,
            information=self.information,
            grid=self.grid,
        )

    def place(self, rows: Ints, n: int) -> MeanEvidence:
        """Return the same evidence among n examples, of which only `rows` have some."""
        column, matrix = np.full(n, -1, np.int32), np.zeros(n, np.int32)
        column[rows], matrix[rows] = self.column, self.matrix
        return MeanEvidence(
            column=column, matrix=matrix, score=self.score, information=self.information, grid=self.grid
        )


def _read_matrices(owner: str, channel: FiniteChannel, n: int, *, n_values: int) -> tuple[Int64s, Floats]:
    """Return `distinct_matrices` of a channel whose labels are these many values, or refuse it."""
    index, matrices = distinct_matrices(channel, n)
    if matrices.shape[1] != n_values:
        got = Described(f"{matrices.shape[1]} for {n_values} values")
        raise invalid(owner, "channel", "have one label per value", got=got)
    return index, matrices


def distinct_matrices(channel: FiniteChannel, n: int) -> tuple[Int64s, Floats]:
    """Return which matrix each of n examples has, and the matrices (G, K, M); told apart by what the channel stores per example."""
    arrays = channel.example_arrays()
    if not arrays:
        return np.zeros(n, np.int64), channel.matrix(0)[None]
    keys = np.column_stack([np.asarray(array).reshape(n, -1) for array in arrays.values()])
    _, firsts, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return index.reshape(-1).astype(np.int64), np.stack([channel.matrix(int(first)) for first in firsts])


# ------------------------------------------------------------------------------------------------ row by row


@dataclass(frozen=True, kw_only=True, eq=False)
class AnswerLikelihood:
    """The likelihood of answers at any means, without a table: `index` and `matrices` of the channel, and the laws."""

    codes: Ints
    index: Int64s
    matrices: Floats
    laws: MeanLaws

    @classmethod
    def read(cls, codes: Ints, channel: FiniteChannel, laws: MeanLaws) -> AnswerLikelihood:
        """Read a release."""
        index, matrices = _read_matrices("AnswerLikelihood", channel, len(codes), n_values=len(laws.values))
        return cls(codes=np.asarray(codes, np.int64), index=index, matrices=matrices, laws=laws)

    def climb(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the log likelihood of each answer at its mean, and its derivative in the mean."""
        law, change = self.laws.tabulate(means)
        seen = self.matrices[self.index, :, self.codes]
        # An answer that the law rules out has a likelihood below any other, and not minus infinity: a step back is found.
        chance = np.maximum(np.einsum("nk,nk->n", law, seen), np.finfo(np.float64).tiny)
        return np.log(chance), np.einsum("nk,nk->n", change, seen) / chance

    def information(self, means: Floats) -> Floats:
        """Return the information of each answer about its mean."""
        law, change = self.laws.tabulate(means)
        told = np.empty(len(means))
        for group, matrix in enumerate(self.matrices):
            rows = np.flatnonzero(self.index == group)
            chance, moved = law[rows] @ matrix, change[rows] @ matrix
            with np.errstate(divide="ignore", invalid="ignore"):
                told[rows] = np.where(chance > 0, moved**2 / chance, 0.0).sum(axis=1)
        return told
