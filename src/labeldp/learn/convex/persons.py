r"""How much each row of a person may say in a sum of labels times features, so that all of them together say no more than R.

A sum t = sum_i v_i y_i z_i is released with noise for its sensitivity. Where all labels of a person may be replaced at once, they
move it by at most range * sum_i v_i |z_i| over her rows (the triangle inequality). Public weights v_i with

    sum over a person's rows of v_i |z_i| <= R                                                                        (1)

have sensitivity R times the range, however many rows she has. `share_influence` chooses R and the weights, from public features
alone, such that the estimated error of what is learned from t is least.

>>> from labeldp.release.persons import Persons
>>> persons = Persons.of(["ann"] * 6 + ["bob"] * 2 + [f"who has one row, {number}" for number in range(92)])
>>> quiet, loud = (share_influence(np.ones(100), persons, ratio=ratio) for ratio in (1.0, 50.0))
>>> quiet.weights[[0, 6, 8]].round(3).tolist(), round(quiet.radius, 3)
([0.2, 0.6, 1.0], 1.2)
>>> loud.weights[[0, 6, 8]].round(3).tolist(), round(loud.radius, 3)
([0.167, 0.5, 1.0], 1.0)

**The error.** The model solves sum_i v_i z_i (y_i - mean(z_i'b)) = 0, whose weights b have to first order the covariance

    A^-1 (sum_i v_i^2 phi_i z_i z_i' + s^2 R^2 I) A^-1,        A = sum_i v_i h_i z_i z_i',

with phi_i the variance of a label given its row (labels of a person are taken for independent, given her rows), h_i the curvature
of the model, and s the deviation of the noise for a sensitivity of one. Labels are not to be looked at, so phi_i = phi and
h_i = h for all. If rows point in D directions alike, z_i z_i' is |z_i|^2 I / D on average. With r_i = |z_i| and the influence
u_i = v_i r_i of a row, the trace is then, up to a constant,

    F(u, R) = (sum_i u_i^2 + ratio R^2) / (sum_i u_i r_i)^2,        ratio = D s^2 / phi,        sum of u over a person <= R.

**The best weights.** F does not change if u and R are multiplied by a number, so take R = 1. The root of F is a norm (convex)
divided by a positive linear function: quasiconvex, and over the convex set (1) a point where the gradient balances the
constraints is the least of all. There, with a price m_p >= 0 of each person's constraint,

    u_i = max(0, (N / D) r_i - m_p),      N the numerator and D the root of the denominator.

In units in which N / D is one: **u_i = max(0, r_i - m_p)**, where m_p = 0 for whoever stays within R and otherwise fills R
(water-filling: all her rows give up the same influence, so that long ones keep most of their weight, and of rows alike each has the
share R / m). Who has one row has the weight min(1, R / r_i), which is that of the label unit. What is left is one number, R, and
F is least at one of them: it is searched.

At R -> 0 each person's longest row counts alone, all persons alike: one row a person. At R = the largest sum of anyone all
rows count fully: group privacy. The best lies between, near the first where noise is large and near the second where rows are many.

**The ratio.** For K classes the statistic has K sums of D numbers, of sensitivity sqrt 2 R, and labels' variances add up to at most
1 - 1/K; completion by the public total takes a K-th of the noise away: D s^2 / phi is 2 K D s^2. For two classes, measured as one
sum of sensitivity R with phi <= 1/4, it is the same, and so for numbers with phi <= (range / 2)^2. D is the number of directions
that rows have, (trace G)^2 / |G|^2 for G = sum_i z_i z_i', estimated on some rows. All of it is public, and none of it is needed
for the guarantee, which counts the integers that are summed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.arrays import Float64s, Floats, Int64s
from labeldp.release.persons import Persons

#: Radii tried before the best is refined.
TRIED = 48
#: The least radius tried, as a share of the shortest of the persons' longest rows: there F is flat.
LEAST_RADIUS = 1e-3
#: Rows on which directions are counted.
SAMPLE = 1000


class Influence(NamedTuple):
    """A weight in [0, 1] for each row, and R: the largest sum of weight times norm over one person's rows."""

    weights: Float64s
    radius: float


def share_influence(norms: Floats, persons: Persons, *, ratio: float, radius: float | None = None) -> Influence:
    """Return the weights of the module, for the norms of the rows; R is the best, or `radius` if that is given.

    `ratio` is D s^2 / phi. With 0, no noise, all rows count fully. Rows of norm 0 say nothing and have weight 1.
    """
    fill = _Filling(np.asarray(norms, np.float64), persons)
    if fill.most == 0:
        return Influence(np.ones(len(norms)), 0.0)
    if radius is None:
        radius = fill.most if ratio == 0 else _find_radius(fill, ratio)
    reach = min(radius, fill.most)
    influence = fill.at(reach)
    there = fill.norms > 0
    weights = np.divide(influence, fill.norms, out=np.zeros(len(influence)), where=there)
    top = float(weights.max())  # below 1 where everyone is cut: the scale is free, and a small one would be lost on a grid
    return Influence(np.where(there, np.minimum(weights / top, 1.0), 1.0), reach / top)


def estimate_error(influence: Floats, norms: Floats, *, radius: float, ratio: float) -> float:
    """Return F of the module."""
    return (float(influence @ influence) + ratio * radius**2) / float(influence @ norms) ** 2


def _find_radius(fill: _Filling, ratio: float) -> float:
    """Return the R of least error: a coarse look on a scale of logarithms, and then the bottom of the valley."""

    def error(log_radius: float) -> float:
        radius = math.exp(log_radius)
        return estimate_error(fill.at(radius), fill.norms, radius=radius, ratio=ratio)

    tried = np.linspace(math.log(LEAST_RADIUS * fill.least), math.log(fill.most), TRIED)
    best = int(np.argmin([error(one) for one in tried]))
    low, high = tried[max(best - 1, 0)], tried[min(best + 1, TRIED - 1)]
    if low == high:  # one row, or all persons alike
        return math.exp(tried[best])
    found = scipy.optimize.minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    chosen = float(found.x) if error(float(found.x)) <= error(tried[best]) else float(tried[best])
    return min(math.exp(chosen), fill.most)


class _Filling:
    """Rows of persons, longest first, so that u_i = max(0, r_i - m_p) is found for any R in one pass."""

    def __init__(self, norms: Float64s, persons: Persons) -> None:
        self.norms, self._owners = norms, persons.codes
        self._order = np.lexsort((-norms, persons.codes))
        owners, lengths = persons.codes[self._order], norms[self._order]
        starts = np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]])) if len(owners) else np.empty(0, int)
        sizes = np.diff(np.append(starts, len(owners)))
        before = np.repeat(np.cumsum(lengths)[starts] - lengths[starts], sizes) if len(owners) else np.empty(0)
        rank = np.arange(len(owners)) - np.repeat(starts, sizes) + 1
        self._sums = np.cumsum(lengths) - before
        #: What her longer rows have above this one: row i has influence iff that is below R.
        self._above = np.maximum(self._sums - rank * lengths, 0.0)
        self._starts, self._sorted_owners = starts, owners
        sums = persons.sums(norms)
        self.most = float(sums.max(initial=0.0))
        longest = lengths[starts]
        self.least = float(longest[longest > 0].min(initial=math.inf))

    def at(self, radius: float) -> Float64s:
        """Return the influence of each row for this R."""
        filled = np.bincount(self._sorted_owners[self._above < radius], minlength=len(self._starts))
        last = np.maximum(filled, 1) + self._starts - 1
        price = np.maximum((self._sums[last] - radius) / np.maximum(filled, 1), 0.0)
        whole = np.empty(len(self.norms))
        lengths = self.norms[self._order]
        whole[self._order] = np.maximum(lengths - price[self._sorted_owners], 0.0)
        return whole


def noise_ratio(rows: Any, *, n_classes: int, epsilon: float, delta: float) -> float:
    """Return D s^2 / phi for sums of these rows by class (2 for numbers): what noise costs, over what labels' own chance does."""
    if math.isinf(epsilon):
        return 0.0
    directions = count_directions(rows)
    if delta > 0:
        deviation = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0)
    else:  # Laplace noise is for the 1-norm, which is up to the root of the number of columns times the norm
        deviation = math.sqrt(2.0 * directions) / epsilon
    return 2.0 * n_classes * directions * deviation**2


def count_directions(rows: Any) -> float:
    """Return (trace G)^2 / |G|^2, the number of directions that public rows have, from pairs of some of them.

    >>> round(count_directions(np.tile(np.eye(5), (40, 1))))
    5
    """
    some: Int64s = np.unique(np.linspace(0, rows.shape[0] - 1, min(SAMPLE, rows.shape[0])).astype(np.int64))
    part = rows[some]
    products = part @ part.T
    products = products.toarray() if scipy.sparse.issparse(products) else np.asarray(products)
    squares = float(np.diag(products).mean())
    apart = products[~np.eye(len(products), dtype=bool)]
    between = float((apart**2).mean()) if apart.size else 0.0
    most = float(min(rows.shape))
    return min(max(squares**2 / between, 1.0), most) if between > 0 else most
