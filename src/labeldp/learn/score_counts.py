r"""One noisy histogram of scores by labels, and what it tells of every sum that a report is made of.

The probabilities of all rows are public, so that rows can be put into cells of similar scores without looking at labels; what is
measured is how many rows of each cell have which label. With two classes the second is counted, and one replaced label
moves one count by 1: sensitivity 1, and the cells compose in parallel. With K > 2 classes, class c has its own cells, by its own
score p[., c] (and by the predicted class, where the report is detailed), and in them the rows of class c are counted. A
replaced label leaves one cell of its old class and enters one of its new class: sensitivity 2, whatever the cells are. Noise is
exact discrete Laplace of rate a = epsilon / sensitivity on every count (`labeldp.measure`), of variance 2 e^a / (e^a - 1)^2.

>>> two = ScoreCounts(cells=np.array([0, 0, 1]), n_cells=2)
>>> two.sensitivity(n_classes=2), two.exact(np.array([1, 0, 1]), n_classes=2).tolist()
(Sensitivity(l1=1.0, l2=1.0), [1, 1])

A sum over labels, theta = sum_i 1[y_i = c] w_i, follows from the counts N_b of its cells by

    theta = sum_i e_i w_i + sum_b (N_b - sum_(i in b) e_i) w_b,       w_b = sum_b v_i w_i / sum_b v_i,     v_i = e_i (1 - e_i),

where e_i is the score, made to fit the noisy counts by a line in log odds. It is exact but for noise where w is constant within
cells; cells end where bins, cuts and predictions end as long as there are cells enough. What is left is how labels lie
within a cell: it has variance sum_i v_i (w_i - w_b)^2, and the slope of e within a cell is doubted by
a quarter of it and by its standard error. More cells
mean less of that and more noise: the error of a log loss is of order m / B^2 for B cells with m rows of the rarer side, and its
noise of order sqrt(B) / a, so that B = (2 m a)^0.4. Where a cut lies within a cell, how labels lie there is a fact of these rows
and no matter of the draw: over many rows intervals cover as they say, and for one cut of one table more or less often.

*The other way*, a noisy sum for each weight, divides the budget by their number, and a log loss has the range of its logarithm as
sensitivity. benchmarks/evaluation.py measures both.

With K > 2 classes the counts of all classes in all cells of one predicted class add up to a public number of rows: what noise
moved that sum is taken off, evenly.

References: Dwork, McSherry, Nissim & Smith 2006 (histograms); Deville & Sarndal 1992 (sums that are fitted to known totals).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.special

from labeldp.arrays import Float64s, Int64s, Ints
from labeldp.errors import Described, invalid
from labeldp.learn.evaluated import Estimated
from labeldp.learn.metrics import Scores
from labeldp.learn.scoring import PUBLIC_SCORES
from labeldp.release import Measurement, Query, Sensitivity
from labeldp.release.measurement import choose_noise

#: How often sums are drawn again for an interval; fewer where they are many, so that all draws stay below `DRAWN_CELLS`.
DRAWS, FEWEST_DRAWS, DRAWN_CELLS = 4000, 1000, 1 << 23
#: Intervals are drawn by a public seed: they say nothing about labels, and the same release gives the same report.
DRAW_SEED = 0
#: How uncertain the slope of the scores within a cell is, as a share of the slope that fits the cells.
SLOPE_DOUBT = 0.25
#: Log odds are cut here: beyond it a line through them would be drawn by a few certain rows.
MOST_LOGIT = 12.0
#: Cells of one class are at most this many, and their number does not grow with a rate beyond this one.
MOST_CELLS, MOST_RATE = 256, 20.0
#: Where all rows are certain, they are equally important.
LEAST_WEIGHT = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCounts(Query):
    """How many rows of each cell have the label that the cell is for: the one measurement behind a private report.

    Parameters
    ----------
    cells : integer array of shape (n,) or (K, n)
        The public cell of each row. A vector is for two classes, of which the second is counted. Of K > 2 classes row c
        has the cells in which class c is counted; different classes have different cells.
    n_cells : int
        How many cells there are in all.

    Notes
    -----
    A replaced label of two classes moves one count by 1. Of more, it leaves one cell of its old class and enters one of its
    new class: 2 in the 1-norm, sqrt 2 in the 2-norm. Neither depends on how many cells there are.
    """

    cells: Ints = field(repr=False)
    n_cells: int
    assumptions: tuple[str, ...] = (PUBLIC_SCORES,)

    def check_size(self, n_examples: int) -> None:
        """One cell per label and class, numbered below `n_cells`; the cells of one class are not those of another."""
        table = np.atleast_2d(self.cells)
        if table.shape[1] != n_examples or table.shape[0] == 2 or table.size == 0:
            got = Described(f"an array of shape {np.shape(self.cells)} for {n_examples} labels")
            raise invalid("ScoreCounts", "cells", "have one entry per label (and class)", got=got)
        if int(table.min()) < 0 or int(table.max()) >= self.n_cells:
            raise invalid("ScoreCounts", "cells", f"be in [0, {self.n_cells - 1}]", got=Described("others"))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """1 for two classes, else (2, sqrt 2)."""
        counted = len(np.atleast_2d(self.cells))
        if counted != (1 if n_classes == 2 else n_classes):
            got = Described(f"cells of {counted} for labels of {n_classes} classes")
            raise invalid("ScoreCounts", "cells", "have a row for each class that is counted", got=got)
        return Sensitivity(1.0, 1.0) if n_classes == 2 else Sensitivity(2.0, math.nextafter(math.sqrt(2.0), 2.0))

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Count."""
        if n_classes == 2:
            mine = np.atleast_2d(self.cells)[0][codes == 1]
        else:
            mine = np.take_along_axis(self.cells, codes.astype(np.int64)[None], axis=0)[0]
        return np.bincount(mine, minlength=self.n_cells).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The cells of a private report: chosen from public scores, epsilon and the number of rows."""

    query: ScoreCounts
    rate: float
    #: Groups of counts, over all classes, whose sum is public: a sum over all classes counts rows.
    groups: Ints
    group_sizes: Ints

    @classmethod
    def choose(cls, scores: Scores, *, epsilon: float, most: int = 1) -> Cells:
        """Return the cells for so many rows at this epsilon; see the module for how many.

        With `most` rows of one person, whose labels are replaced together, the noise is for that many.
        """
        K = scores.n_classes
        query = ScoreCounts(
            cells=np.zeros(scores.n, np.int64) if K == 2 else np.zeros((K, scores.n), np.int64), n_cells=1
        )
        row = query.sensitivity(n_classes=K)
        noise = choose_noise(Sensitivity(row.l1 * most, row.l2 * most), epsilon, 0.0)
        rate = math.inf if noise.rate is None else float(noise.rate)
        tables, groups, first = [], [], 0
        for c in [1] if K == 2 else range(K):
            grouped = np.zeros(scores.n, np.int64) if K == 2 else scores.predicted
            if K > 2 and not scores.detailed:
                grouped = (scores.predicted == c).astype(np.int64)
            own = divide_rows(scores, c, grouped, rate=rate)
            owner = np.zeros(int(own.max()) + 1, np.int64)
            owner[own] = scores.predicted if scores.detailed else 0
            tables.append(own + first)
            groups.append(owner)
            first += len(owner)
        sizes = np.bincount(scores.predicted if scores.detailed else np.zeros(scores.n, np.int64), minlength=K)
        cells = tables[0] if K == 2 else np.stack(tables)
        query = ScoreCounts(cells=cells, n_cells=first)
        return cls(query=query, rate=rate, groups=np.concatenate(groups), group_sizes=sizes)

    def estimate(self, scores: Scores, measured: Measurement) -> Estimated:
        """Return the sums that the noisy counts tell of, and draws of what they may really be."""
        K, width = scores.n_classes, scores.width
        rng = np.random.default_rng(DRAW_SEED)
        n_draws = count_draws(max(K * width, self.query.n_cells))
        noise = _draw_laplace(rng, self.rate, (n_draws, self.query.n_cells))
        counts = measured.value.astype(np.float64)
        spread = measured.spread
        if K > 2:
            noise, counts = self._project(noise, 0.0), self._project(counts[None], self.group_sizes)[0]
        sums, draws = np.zeros((K, width)), np.zeros((n_draws, K, width))
        soft = np.zeros((scores.n, K))
        for c in [1] if K == 2 else range(K):
            cells = np.atleast_2d(self.query.cells)[0 if K == 2 else c]
            low, high = int(cells.min()), int(cells.max()) + 1
            part = Allocation.fit(scores, c, cells - low, counts[low:high], spread=spread)
            mean, drawn = part.sums(), part.draws(rng, noise[:, low:high])
            sums += mean.reshape(K, width) if K == 2 else 0.0
            if K == 2:
                draws += drawn.reshape(n_draws, K, width)
                soft[:, 1] = part.soft
                soft[:, 0] = 1.0 - part.soft
            else:
                sums[c], draws[:, c], soft[:, c] = mean, drawn, part.soft
        method = f"{self.query.n_cells} counts of rows by score and label, {measured.noise} on each"
        return Estimated(sums=sums, draws=sums - draws, soft=np.clip(soft, 0.0, 1.0), method=method)

    def _project(self, counts: Float64s, sizes: Any) -> Float64s:
        """Return counts, or noise, with what is known of their sums: over all classes, a group has so many rows."""
        members = np.bincount(self.groups, minlength=len(self.group_sizes))
        totals = np.zeros((len(counts), len(self.group_sizes)))
        for group in np.flatnonzero(members):
            totals[:, group] = counts[:, self.groups == group].sum(axis=1)
        off = np.divide(totals - sizes, members, out=np.zeros_like(totals), where=members > 0)
        return np.asarray(counts - off[:, self.groups], np.float64)


def divide_rows(scores: Scores, c: int, groups: Ints, *, rate: float) -> Ints:
    """Return the cell of each row for class c, numbered from 0: rows of one group with neighbouring scores.

    Cells start where metrics have their steps (bins, cuts, groups). Those with fewer rows than the noise tells apart are
    joined with a neighbour; then the least important are joined, or the most important are split, until there are as many
    as the module says. A row's importance is half of its share of the rows, half of its share of p (1 - p).
    """
    chance = scores.chances[:, c]
    doubt = chance * (1 - chance)
    weight = 0.5 / scores.n + 0.5 * doubt / max(float(doubt.sum()), LEAST_WEIGHT)
    expected = float(chance.sum())
    rarer = max(min(expected, scores.n - expected), 1.0)
    wanted = min(MOST_CELLS, max(2, round((2 * rarer * min(rate, MOST_RATE)) ** 0.4)))
    fewest = 1.0 if math.isinf(rate) else 2 * math.sqrt(2.0) / rate
    order = np.lexsort((chance, groups))
    value, group = chance[order], groups[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(value) != 0) | (np.diff(group) != 0)])  # of runs that stay together
    row_ends = np.r_[starts[1:], scores.n]
    weights = np.add.reduceat(weight[order], starts)
    marks = [scores.bins[order]] if scores.n_classes == 2 else [np.where(group == c, scores.bins[order], -1)]
    if scores.detailed:
        marks.append(np.searchsorted(np.sort(scores.cuts[0][c]), value, side="left"))
        marks.append(np.searchsorted(np.sort(scores.cuts[0][c]), value, side="right"))
        marks.append(scores.predicted[order])
    steps = np.any([np.r_[True, np.diff(mark) != 0] for mark in marks], axis=0)[starts]
    walls = np.r_[True, np.diff(group) != 0][starts]
    bounds = _join_cells(np.flatnonzero(steps | walls), walls, weights, row_ends, wanted=wanted, fewest=fewest)
    bounds = _split_cells(bounds, weights, row_ends, wanted=wanted, fewest=fewest)
    cell = np.zeros(len(starts), np.int64)
    cell[bounds[1:]] = 1
    out = np.empty(scores.n, np.int64)
    out[order] = np.repeat(np.cumsum(cell), np.diff(np.r_[starts, scores.n]))
    return out


def _join_cells(
    bounds: Ints, walls: Any, weights: Float64s, row_ends: Ints, *, wanted: int, fewest: float
) -> list[int]:
    """Join cells, given by the runs at which they start, until none is too small and there are no more than wanted."""
    starts = bounds.tolist()
    row_starts = np.r_[0, row_ends[:-1]]
    mass = np.add.reduceat(weights, starts).tolist()
    size = np.diff(np.r_[row_starts[starts], row_ends[-1]]).tolist()
    closed = walls[starts].tolist()  # cell j may not be joined with the one before it
    settled: set[int] = set()
    while len(starts) > 1:
        open_cells = [
            j for j in range(len(starts)) if starts[j] not in settled and (size[j] < fewest or len(starts) > wanted)
        ]
        if not open_cells:
            break
        j = min(open_cells, key=lambda at: (size[at] >= fewest, mass[at]))
        before = mass[j - 1] if j > 0 and not closed[j] else math.inf
        after = mass[j + 1] if j + 1 < len(starts) and not closed[j + 1] else math.inf
        if math.isinf(before) and math.isinf(after):
            settled.add(starts[j])
            continue
        right = j if before <= after else j + 1  # the cell that is joined with the one before it
        mass[right - 1] += mass[right]
        size[right - 1] += size[right]
        for values in (starts, mass, size, closed):
            del values[right]
    return [int(start) for start in starts]


def _split_cells(bounds: list[int], weights: Float64s, row_ends: Ints, *, wanted: int, fewest: float) -> list[int]:
    """Split the most important cells in two halves of equal importance until there are as many as wanted."""
    total = np.r_[0.0, np.cumsum(weights)]
    rows = np.r_[0, row_ends]
    ends = [*bounds[1:], len(weights)]
    cells = dict(zip(bounds, ends, strict=True))
    done: set[int] = set()
    while len(cells) < wanted and len(done) < len(cells):
        start = max((s for s in cells if s not in done), key=lambda s: total[cells[s]] - total[s])
        end = cells[start]
        middle = int(np.searchsorted(total, (total[start] + total[end]) / 2))
        middle = min(max(middle, start + 1), end - 1)
        small = middle <= start or min(rows[middle] - rows[start], rows[end] - rows[middle]) < fewest
        if small:
            done.add(start)
        else:
            cells[start], cells[middle] = middle, end
    return sorted(cells)


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """What noisy counts of one class in its cells say of its sums; the formulas are those of the module."""

    base: Float64s
    means: Float64s
    excess: Float64s
    within: Float64s
    slope: Float64s
    soft: Float64s

    @classmethod
    def fit(cls, scores: Scores, c: int, cells: Ints, counts: Float64s, *, spread: float) -> Allocation:
        """Fit scores to counts, and collect the weights of the cells."""
        logit = np.clip(scipy.special.logit(scores.chances[:, c]), -MOST_LOGIT, MOST_LOGIT)
        sizes = np.bincount(cells, minlength=len(counts))
        intercept, slope, doubted = fit_line(logit, cells, np.clip(counts, 0, sizes), sizes, spread=spread)
        chance = scipy.special.expit(intercept + slope * logit)
        doubt = np.maximum(chance * (1 - chance), 1e-9)  # a certain row still takes its part of a count
        total = np.bincount(cells, doubt, len(counts))
        excess = counts - np.bincount(cells, chance, len(counts))
        soft = chance + doubt * (excess / total)[cells]
        centre = np.bincount(cells, doubt * logit, len(counts)) / total
        width = scores.width * (2 if scores.n_classes == 2 else 1)
        base, means, lean = np.zeros(width), np.zeros((len(counts), width)), np.zeros(width)
        square = np.zeros((width, width))
        for low, high in scores.pieces():
            weights, rest = _count_weights(scores, c, low, high)
            part, here = slice(low, high), cells[low:high]
            base += rest + chance[part] @ weights
            weighted = doubt[part, None] * weights
            means += (
                scipy.sparse.csr_array((np.ones(len(here)), (here, np.arange(len(here)))), (len(means), len(here)))
                @ weighted
            )
            lean += (logit[part] - centre[here]) @ weighted
            square += weights.T @ weighted
        means /= total[:, None]
        within = square - (means * total[:, None]).T @ means
        return cls(
            base=base,
            means=means,
            excess=excess,
            within=within,
            slope=math.hypot(SLOPE_DOUBT * slope, doubted) * lean,
            soft=soft,
        )

    def sums(self) -> Float64s:
        """Return the sums."""
        return self.base + self.excess @ self.means

    def draws(self, rng: np.random.Generator, noise: Float64s) -> Float64s:
        """Return draws of their error: the noise of the counts, and where in its cell a label lies."""
        inside = draw_normals(rng, self.within, len(noise))
        return np.asarray(noise @ self.means + inside + rng.normal(size=(len(noise), 1)) * self.slope, np.float64)


def _count_weights(scores: Scores, c: int, low: int, high: int) -> tuple[Float64s, Any]:
    """Return what a row of class c adds to the sums, and what the rows add that are not.

    Of two classes a row that is not of the second is of the first: the sums of both follow from one count.
    """
    weights = scores.weights(c, low, high)
    if scores.n_classes > 2:
        return weights, 0.0
    first = scores.weights(0, low, high)
    return np.concatenate([-first, weights], axis=1), np.concatenate([first.sum(axis=0), np.zeros(scores.width)])


def fit_line(
    logit: Float64s, cells: Ints, counts: Float64s, sizes: Ints, *, spread: float
) -> tuple[float, float, float]:
    """Return (a, b) for which sigmoid(a + b logit) fits the counts of cells, and the standard error of b.

    b >= 0, and (a, b) is near (0, 1) where the counts say little.

    Newton's method on the binomial likelihood of cells at their mean log odds, each weighted down by the noise of its count;
    (0, 1), the scores as they are, is held by a normal prior of standard deviations 3 and 1.
    """
    place = np.bincount(cells, logit, len(counts)) / np.maximum(sizes, 1)
    design = np.stack([np.ones(len(place)), place], axis=1)
    prior, held = np.array([0.0, 1.0]), np.array([1 / 9.0, 1.0])
    line, curvature = prior.copy(), np.diag(held)
    for _ in range(25):
        chance = scipy.special.expit(design @ line)
        variance = np.maximum(sizes * chance * (1 - chance), 1e-9)
        trust = variance / (variance + spread**2)
        gradient = design.T @ (trust * (counts - sizes * chance)) - held * (line - prior)
        curvature = (design * (trust * variance)[:, None]).T @ design + np.diag(held)
        step = np.linalg.solve(curvature, gradient)
        line = line + np.clip(step, -2.0, 2.0)
        line[1] = min(max(line[1], 0.0), 5.0)
    return float(line[0]), float(line[1]), math.sqrt(float(np.linalg.inv(curvature)[1, 1]))


def count_draws(cells: int) -> int:
    """Return how often so many sums are drawn again."""
    return max(FEWEST_DRAWS, min(DRAWS, DRAWN_CELLS // cells))


def _draw_laplace(rng: np.random.Generator, rate: float, shape: tuple[int, int]) -> Float64s:
    """Return simulated discrete Laplace noise for intervals, a difference of two geometric draws; nothing is protected by it."""
    if math.isinf(rate):
        return np.zeros(shape)
    stop = -math.expm1(-rate)
    return np.asarray(rng.geometric(stop, shape) - rng.geometric(stop, shape), np.float64)


def draw_normals(rng: np.random.Generator, covariance: Float64s, count: int) -> Float64s:
    """Return normal draws; what rounding or an estimate leaves below zero in a covariance is taken as zero."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rng.normal(size=(count, len(values))) @ root.T, np.float64)
