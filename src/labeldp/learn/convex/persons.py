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

**The best weights.** All rows of a person have one weight, v_i = v_p: then what she says is the mean of what one row of hers, drawn
by chance, would say, and the model is about the same rows. (Weights that differ by the length of rows have a smaller F yet: they ask
about other rows, the long ones, and where a model is not exactly right that is another model.) With S_p = sum_i r_i and Q_p = sum_i r_i^2 over her rows

    F(v, R) = (sum_p v_p^2 Q_p + ratio R^2) / (sum_p v_p Q_p)^2,        v_p S_p <= R.

F does not change if v and R are multiplied by a number, so take R = 1. The root of F is a norm (convex) divided by a positive linear
function: quasiconvex, and where the gradient balances the constraints F is the least of all. For whoever is not at her constraint
the gradient vanishes where v_p is the numerator over the root of the denominator, one number for all; in units in which it is one

    **v_p = min(1, R / S_p)**,

and what is left is one number, R, which is searched: along it F falls and then rises. Who has one row has min(1, R / r_i), the weight
of the label unit; m rows alike at R = r have 1/m each, their average, which is as sensitive as one row drawn by chance and, being
its mean over that chance, never varies more. At R = the largest S_p all rows count fully: group privacy. The best lies
between: near an average of each person where noise is large, and near all rows where persons are many.

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
#: Rows on which directions are counted.
SAMPLE = 1000


class Influence(NamedTuple):
    """A weight in [0, 1] for each row, and R: the largest sum of weight times norm over one person's rows."""

    weights: Float64s
    radius: float


def share_influence(norms: Floats, persons: Persons, *, ratio: float, radius: float | None = None) -> Influence:
    """Return the weights of the module, for the norms of the rows; R is the best, or `radius` if that is given.

    `ratio` is D s^2 / phi. With 0, no noise, all rows count fully. Who has rows of norm 0 alone says nothing, with weight 1.
    """
    lengths = np.asarray(norms, np.float64)
    sums, squares = persons.sums(lengths), persons.sums(lengths**2)
    there = sums > 0
    if not there.any():
        return Influence(np.ones(len(lengths)), 0.0)
    most = float(sums.max())
    if radius is None:
        radius = most if ratio == 0 else _find_radius(sums[there], squares[there], ratio)
    each = np.minimum(1.0, np.divide(radius, sums, out=np.ones(len(sums)), where=there))
    return Influence(each[persons.codes], min(radius, most))


def estimate_error(weights: Floats, squares: Floats, *, radius: float, ratio: float) -> float:
    """Return F of the module, for weights and sums of squared norms of persons."""
    return (float(weights**2 @ squares) + ratio * radius**2) / float(weights @ squares) ** 2


def _find_radius(sums: Float64s, squares: Float64s, ratio: float) -> float:
    """Return the R of least error: a coarse look on a scale of logarithms, and then the bottom of the valley."""

    def error(log_radius: float) -> float:
        radius = math.exp(log_radius)
        return estimate_error(np.minimum(1.0, radius / sums), squares, radius=radius, ratio=ratio)

    tried = np.linspace(math.log(float(sums.min())), math.log(float(sums.max())), TRIED)
    best = int(np.argmin([error(one) for one in tried]))
    low, high = tried[max(best - 1, 0)], tried[min(best + 1, TRIED - 1)]
    if low == high:  # one person, or all of them alike
        return math.exp(tried[best])
    found = scipy.optimize.minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    chosen = float(found.x) if error(float(found.x)) <= error(tried[best]) else float(tried[best])
    return math.exp(chosen)


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
