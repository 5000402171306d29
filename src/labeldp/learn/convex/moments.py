r"""Noisy moments: sums of feature rows by class or times a number, and the models that need no more of the labels.

Linear and canonical models see labels only through a sum over rows, sum_i T(y_i) x_i'. For classes T is the one-hot vector
and the sums are the class moments M[k] = sum of x_i over i with y_i = k (`ClassMoments`); for numbers T(y) = y
(`NumberMoments`). `release_moments` measures either with exact noise; `solve_ridge`, `solve_softmax` and the shrinkage of
`choose_shrinkage` turn what was measured into weights. `SufficientStatistics` and `PrivateGLM` stand on this one module.

*Measuring.* Rows are cut to integers towards zero, |x_ij| 2^bits / R rounded down, so that no norm grows: the clip bound
holds for the integers. A replaced label takes the row x_i from one class and adds it to another: |change|_1 = 2 |x_i|_1 and
|change|_2 = sqrt 2 |x_i|_2, the worst over the public rows at hand. With two classes only M[1] is measured, at half the
1-norm and 1/sqrt 2 of the 2-norm; the sum of all rows is public.

>>> import numpy as np
>>> query = ClassMoments(rows=np.array([[3, -4], [1, 0]]))
>>> query.sensitivity(n_classes=3).l1, round(query.sensitivity(n_classes=3).l2, 6), query.sensitivity(n_classes=2).l1
(14.0, 7.071068, 7.0)
>>> query.exact(np.array([2, 0]), n_classes=3).tolist()
[[1, 0], [0, 0], [3, -4]]

*Ridge.* With features Phi, G = Phi'Phi and residual moments m = Phi'(Y - P) + noise of variance s^2 an entry, the
weights are (G + l)^{-1} m. In the eigenvectors of G (eigenvalues g_j) the noiseless weights are w_j, m_j = g_j w_j + s z_j,
and the expected squared distance of the fitted from the noiseless predictions, sum_j g_j (m_j/(g_j + l) - w_j)^2, is, up
to a constant, estimated without bias by

    risk(l) = sum_j [g_j m_j^2 / (g_j + l)^2 - 2 (m_j^2 - s^2) / (g_j + l)]

(since E[m_j w_j] g_j = E[m_j^2] - s^2). It uses only what was released, so the best l is chosen for free: Mallows' rule
with the noise of privacy in the place of the noise of labels.

>>> gram, moments = np.diag([100.0, 1.0]), np.array([[50.0, 3.0]])
>>> quiet, loud = (choose_ridge(gram, moments, noise=s, n=1000) for s in (0.01, 20.0))
>>> quiet < loud
True

*Shrinkage.* Of a canonical model with Hessian H at the null model and prior weights w ~ N(0, tau^2), the score that was
released is m = H w + (label noise of variance phi H) + (privacy noise of variance s^2). In the eigenvectors of H

    m_j ~ N(0, h_j^2 tau^2 + phi h_j + s^2),      E[w_j | m_j] = m_j / (h_j + p_j),      p_j = (phi + s^2 / h_j) / tau^2,

so the Bayes rule is a penalty that is large where the features have little extent: there the noise of privacy, which is
the same in all directions, drowns what labels say. `choose_shrinkage` takes the tau of the largest likelihood of m, and
none beyond a public bound. *It cannot blow up*: a direction of small extent (h_j -> 0) has the same likelihood whatever tau
is, so that chance there decides nothing, and its weight is at most |m_j| tau^2 h_j / s^2, which goes to 0 with h_j; over all
directions the expected squared error of the predictions that noise causes, sum_j h_j s^2 / (h_j + p_j)^2, is at most
0.33 s tau an eigenvector. An unbiased estimate of the risk has neither property: divided by h_j + l, chance in a
direction without extent is worth any price.

>>> loud = choose_shrinkage(np.diag([100.0, 1e-6]), np.array([[50.0, 9.0]]), noise=3.0, dispersion=0.1, most=1.0)
>>> weights = np.linalg.solve(np.diag([100.0, 1e-6]) + loud.penalty, [50.0, 9.0])
>>> bool(0.3 < weights[0] < 0.5), bool(abs(weights[1]) < 1e-5)
(True, True)

*Softmax.* sum_i log sum_k exp(o_ik + <w_k, x_i>) - <M, W> + l/2 |W|^2, where M are the class moments and o = log P: the
likelihood of a canonical model needs no more of the labels. It is convex for any M, and bounded below for l > 0 even
where noise has taken M out of the range of class moments. Near uniform P its Hessian is G/K, so that l = (ridge's)/K.

References: Stein 1981; Mallows 1973; Vu & Slavkovic 2009 and Foulds et al. 2016 (noisy sufficient statistics).

Design notes. The sums are integers, so that neighbours' statistics differ exactly by what is said here, and discrete
noise hides it without a thought about floating point. What the learner then solves with is the same cut rows: the
grid costs no bias. The class sums add up to the sum of all rows, which is public; `complete_sums` uses that to take a K-th
of the noise away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.optimize
import scipy.sparse

from labeldp.arrays import Floats, Int64s
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.random import NoiseKey
from labeldp.release import LabelSums, Query, SensitiveLabels, Sensitivity, measure
from labeldp.release.persons import Persons
from labeldp.release.queries import MOST_TOTAL, largest_size, round_to_integers
from labeldp.softmax import SoftmaxObjective, minimise, sum_soft
from labeldp.validate import check_probability_rows

#: Penalties tried, relative to the mean eigenvalue of G.
GRID = np.logspace(-6, 4, 61)
#: Prior variances tried, relative to the largest that is allowed.
VARIANCES = np.logspace(-8, 0, 65)
#: Eigenvalues are not taken to be less than this share of the largest: below it they are rounding.
LEAST_EXTENT = 1e-9
#: A dispersion is taken for the labels' own if its likelihood is at least the best over this.
NEAR_BEST = 3.0
#: A belief is not taken to be less than this: no class is ruled out for good.
LEAST_PRIOR = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassMoments(Query):
    """Sums of public integer rows (n, D), dense or csr, by class: (K, D), or (1, D) for the second of two classes."""

    rows: Any

    def __post_init__(self) -> None:
        if self.rows.dtype != np.int64 or self.rows.ndim != 2:
            got = Described(f"{self.rows.dtype} of shape {self.rows.shape}")
            raise invalid("ClassMoments", "rows", "be an int64 matrix", got=got)
        top = largest_size(self.rows)
        # A sum of n entries, and a sum of D squares, must stay within int64.
        if top * self.rows.shape[0] >= MOST_TOTAL or top * top * self.rows.shape[1] >= MOST_TOTAL:
            got = Described(f"{self.rows.shape[0]} rows with entries up to {top}")
            raise invalid("ClassMoments", "rows", "have sums that fit in 64 bits", got=got, fix="Use fewer grid_bits.")

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """2 |x|_1 and sqrt 2 |x|_2 of the worst row, halved and by sqrt 2 for two classes; rounded up."""
        l1 = int(np.asarray(abs(self.rows).sum(axis=1)).max(initial=0))
        squares = self.rows.multiply(self.rows) if scipy.sparse.issparse(self.rows) else self.rows * self.rows
        square = int(np.asarray(squares.sum(axis=1)).max(initial=0))
        copies = 1 if n_classes == 2 else 2
        root = math.sqrt(copies * square)
        return Sensitivity(float(copies * l1), math.nextafter(root, math.inf) if square else 0.0)

    def person_sensitivity(self, persons: Persons, *, n_classes: int) -> Sensitivity:
        """The largest sum over one person's rows of what each of them moves: 2 |x|_1 and sqrt 2 |x|_2; rounded up.

        Her labels take rows from classes and add them to others: sum_i (e_k' - e_k) x_i', of a size of at most the sum of the
        sizes, which is reached where her rows point the same way and all go from one class to another.
        """
        copies = 1.0 if n_classes == 2 else 2.0
        squares = self.rows.multiply(self.rows) if scipy.sparse.issparse(self.rows) else self.rows * self.rows
        norms = np.sqrt(np.asarray(squares.sum(axis=1), np.float64).reshape(-1))
        l1 = copies * persons.largest_sum(np.asarray(abs(self.rows).sum(axis=1), np.float64).reshape(-1))
        l2 = math.sqrt(copies) * persons.largest_sum(norms)
        up = 1.0 + 2.0**-50  # roots and a product, each to half a unit in the last place
        return Sensitivity(l1 if l1 < 2.0**53 else l1 * up, l2 * up)

    def take(self, rows: Int64s) -> ClassMoments:
        """Sum over some rows."""
        return ClassMoments(rows=self.rows[rows])

    def check_size(self, n_examples: int) -> None:
        """One row per label."""
        if n_examples != self.rows.shape[0]:
            got = Described(f"{self.rows.shape[0]} for {n_examples} labels")
            raise invalid("ClassMoments", "rows", "have one row per label", got=got)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Sum in integers."""
        self.check_size(len(codes))
        members = scipy.sparse.csr_matrix(
            (np.ones(len(codes), np.int64), (codes.astype(np.int64), np.arange(len(codes)))),
            shape=(n_classes, len(codes)),
        )
        sums = members @ self.rows
        dense: Int64s = sums.toarray() if scipy.sparse.issparse(sums) else np.asarray(sums)
        return dense[1:] if n_classes == 2 else dense


@dataclass(frozen=True, kw_only=True, eq=False)
class NumberMoments(LabelSums):
    """Sums of public integer rows (n, D), each times the number of its label: `LabelSums` of numbers on a grid.

    `scores[k]` is the number of code k and `weights` are the rows. A replaced label moves the sums by its row times the range
    of the scores at most. The rows are the features, of which the box says already that they did not see the labels.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "assumptions", ())


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """One release: public rows on the grid (n, D), noisy sums (C, D) in units of the features, and what these cost.

    `noise` says in words what was added, `scale` is its standard deviation, in units of the sums. With public `weights` the sums
    are of rows times their weights.
    """

    rows: Any
    sums: Floats
    guarantee: Guarantee
    noise: str
    scale: float
    sensitivity: Sensitivity
    weights: Floats | None = None

    @property
    def weighted(self) -> Any:
        """The rows times their weights: what was summed."""
        if self.weights is None:
            return self.rows
        if scipy.sparse.issparse(self.rows):
            return scipy.sparse.csr_matrix(scipy.sparse.diags(self.weights) @ self.rows)
        return self.rows * self.weights[:, None]

    @property
    def total(self) -> float:
        """The sum of the weights; without any, the number of rows."""
        return float(self.rows.shape[0]) if self.weights is None else float(self.weights.sum())


def release_moments(
    labels: SensitiveLabels,
    query: ClassMoments | NumberMoments,
    *,
    step: float,
    epsilon: float,
    delta: float,
    key: NoiseKey,
    unit: float = 1.0,
    within: Guarantee | None = None,
    ledger: Any = None,
    persons: Persons | None = None,
    weights: Floats | None = None,
) -> Moments:
    """Measure a statistic of integers and return it in units of the features, `step`, and of the labels, `unit`.

    The noise has the sensitivity of the integers themselves, after rows and labels were brought to their grids: what
    rounding adds to a norm is part of it. Class sums are completed by their public total. With `persons` the noise is for
    all labels of one. `weights` are those that the rows of the query were multiplied by, and are divided by again: the rows that
    come back are such that rows times weights is what was summed, to the last bit of the grid.
    """
    measured = measure(
        labels, query, epsilon=epsilon, delta=delta, within=within, rng=key, ledger=ledger, persons=persons
    )
    if persons is None:
        reach = query.sensitivity(n_classes=labels.n_classes)
    else:
        reach = query.person_sensitivity(persons, n_classes=labels.n_classes)
    grid, scale = (query.rows if isinstance(query, ClassMoments) else query.weights), step * unit
    rows = grid.astype(np.float64) * step
    sums = np.atleast_2d(measured.value) * scale
    if isinstance(query, ClassMoments):
        sums = complete_sums(sums, np.asarray(rows.sum(axis=0)).reshape(-1))
    if weights is not None:
        inverse = np.divide(1.0, weights, out=np.zeros(len(weights)), where=weights > 0)
        sparse = scipy.sparse.issparse(rows)
        rows = scipy.sparse.csr_matrix(scipy.sparse.diags(inverse) @ rows) if sparse else rows * inverse[:, None]
    return Moments(
        weights=weights,
        rows=rows,
        sums=sums,
        guarantee=measured.guarantee,
        noise=measured.noise,
        scale=scale * measured.spread,
        sensitivity=Sensitivity(reach.l1 * scale, reach.l2 * scale),
    )


def cut_to_grid(rows: Any, *, bound: float, bits: int) -> Any:
    """Return floor(|x| 2^bits / bound) with the sign of x, as int64, dense or csr.

    Rows that were clipped with room to spare (`CLIP_ROOM`) have integer norms of at most 2^bits, the product's rounding
    included; in any case sensitivity is computed from the integers, not from the bound. Rows that are not finite are
    refused, whoever let them in: rows are public, and so is the refusal.
    """
    scale = 2.0**bits / bound
    if scipy.sparse.issparse(rows):
        # Entries that are stored twice are one entry of their sum: added up before they are cut, not after.
        cut = scipy.sparse.csr_matrix(rows, copy=True)
        cut.sum_duplicates()
        whole = round_to_integers("cut_to_grid", "rows", cut.data * scale, down=True)
        cut = scipy.sparse.csr_matrix((whole, cut.indices, cut.indptr), shape=cut.shape)
        cut.eliminate_zeros()
        return cut
    return round_to_integers("cut_to_grid", "rows", rows * scale, down=True)


def complete_sums(noisy: Floats, total: Floats) -> Floats:
    """Return class sums that add up to the public `total`: two classes from one, or K projected on that plane.

    Projection keeps a share (K - 1)/K of the noise variance and moves nothing else.
    """
    if len(noisy) == 1:
        return np.concatenate([total[None, :] - noisy, noisy])
    sums: Floats = noisy + (total - noisy.sum(axis=0)) / len(noisy)
    return sums


def choose_ridge(gram: Floats, moments: Floats, *, noise: float, n: float) -> float:
    """Return the penalty of least estimated risk for residual moments (C, D) with noise of this spread."""
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    squares = ((moments @ vectors) ** 2).sum(axis=0)
    variance = len(moments) * noise**2
    # Along an eigenvector the noiseless squares are |R'a|^2 <= |R|^2 |a|^2 <= 2 n g_j, for residuals R of norm sqrt 2 a row:
    # where features have next to no extent (g_j = 0), what is there is noise, and an estimate beyond the bound is too.
    bound = 2.0 * n * values
    squares = variance + np.clip(squares - variance, -bound, bound)
    penalties = GRID * max(float(values.mean()), 1e-12 * n)
    risks = estimate_risks(values, squares, variance=variance, penalties=penalties)
    return float(penalties[int(np.argmin(risks))])


def estimate_risks(values: Floats, squares: Floats, *, variance: float, penalties: Floats) -> Floats:
    """Return risk(l) of the module for each penalty: linear in the squared moments, so unbiased when they are."""
    shrunk = values[None, :] + penalties[:, None]
    risks: Floats = (values * squares / shrunk**2 - 2.0 * (squares - variance) / shrunk).sum(axis=1)
    return risks


class Shrinkage(NamedTuple):
    """The penalty, a matrix (d, d), and the prior variance tau^2 of a weight that it follows from."""

    penalty: Floats
    variance: float


def choose_shrinkage(
    hessian: Floats, scores: Floats, *, noise: float, dispersion: float | Sequence[float], most: float
) -> Shrinkage:
    """Return the penalty of the module for released scores (C, d), with tau^2 of the largest likelihood, `most` at most.

    `noise` is s, the standard deviation of privacy's noise in a score. `dispersion` is phi, or several to choose from: then the
    smallest whose likelihood is within a factor `NEAR_BEST` of the largest, since where the data cannot tell labels' noise
    from signal it is better to have taken too little of it for noise.
    """
    values, vectors = np.linalg.eigh(hessian)
    top = float(values.max(initial=0.0))
    if not top > 0:  # no column varies: nothing can be learned, and any penalty will do
        return Shrinkage(np.eye(len(hessian)), most)
    values = np.maximum(values, LEAST_EXTENT * top)
    squares = ((scores @ vectors) ** 2).mean(axis=0)
    variances, phis = most * VARIANCES, np.sort(np.atleast_1d(dispersion))
    spreads = (
        values[None, None, :] ** 2 * variances[:, None, None]
        + phis[None, :, None] * values[None, None, :]
        + max(noise**2, np.finfo(np.float64).tiny)
    )
    likely = -0.5 * len(scores) * (np.log(spreads) + squares / spreads).sum(axis=2)
    best = likely.max(axis=0)
    phi = int(np.argmax(best >= best.max() - math.log(NEAR_BEST)))
    chosen = float(variances[int(np.argmax(likely[:, phi]))])
    penalty: Floats = (vectors * ((phis[phi] + noise**2 / values) / chosen)) @ vectors.T
    return Shrinkage(penalty, chosen)


def solve_ridge(gram: Floats, moments: Floats, *, l2: float) -> Floats:
    """Return (C, D) weights (G + l2)^{-1} m."""
    lifted = gram + l2 * np.eye(len(gram))
    weights: Floats = scipy.linalg.solve(lifted, moments.T, assume_a="pos").T
    return weights


def solve_softmax(
    rows: Any, moments: Floats, offsets: Floats, *, l2: float, max_iter: int = 200, row_weights: Floats | None = None
) -> Floats:
    """Return (K, D) weights of the softmax model with these class moments and log-prior offsets (1 or n, K).

    `l2` is against the sum over examples. `row_weights` are public weights of the examples, which the moments have too. The
    solver stops at a gradient of 1e-6 per example.
    """
    n = rows.shape[0]
    linear = np.column_stack([moments, np.zeros(len(moments))])  # no intercepts: a constant is a feature like any other
    curved = partial(
        sum_soft,
        rows,
        weights=np.ones(n) if row_weights is None else row_weights,
        offsets=np.ascontiguousarray(offsets.T),
    )
    objective = SoftmaxObjective(curved=curved, linear=linear, total=float(n), l2=l2 / n, intercept=False)
    theta, _ = minimise(objective, np.zeros(linear.shape), max_iter=max_iter, tol=1e-6, owner="SufficientStatistics")
    weights: Floats = theta[:, :-1]
    return weights


def minimise_round(
    objective: Callable[[Floats], tuple[float, Floats]], start: Floats, hessian: Floats, *, max_iter: int = 500
) -> Floats:
    """Return the minimum of a smooth function of weights, by L-BFGS on L'w where L L' is its Hessian somewhere.

    `objective(weights)` returns the value and the gradient. Where the Hessian changes little, one step is enough.
    """
    lifted = hessian + 1e-12 * float(np.trace(hessian)) / len(hessian) * np.eye(len(hessian))
    factor = np.linalg.cholesky(lifted)

    def in_round(point: Floats) -> tuple[float, Floats]:
        value, gradient = objective(scipy.linalg.solve_triangular(factor.T, point))
        return value, scipy.linalg.solve_triangular(factor, gradient, lower=True)

    first = factor.T @ start
    size = max(1.0, abs(in_round(first)[0]))
    answer = scipy.optimize.minimize(
        lambda point: tuple(part / size for part in in_round(point)),
        first,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "ftol": 1e-12, "gtol": 1e-8},
    )
    weights: Floats = scipy.linalg.solve_triangular(factor.T, answer.x)
    return weights


def log_belief(belief: Floats) -> Floats:
    """Return log-probabilities, none of which rules a class out for good."""
    answer: Floats = np.log(np.maximum(belief, LEAST_PRIOR))
    return answer


def check_centre(centre: Any, n: int, n_classes: int) -> Floats:
    """Return a label-free belief as (1, K) or (n, K) probabilities; the uniform one if none is given.

    >>> check_centre(None, 3, 4).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    if centre is None:
        return np.full((1, n_classes), 1.0 / n_classes)
    rows = check_probability_rows("SufficientStatistics", "centre", np.atleast_2d(np.asarray(centre)))
    if rows.shape not in ((1, n_classes), (n, n_classes)):
        got = Described(f"an array of shape {rows.shape}")
        raise invalid("SufficientStatistics", "centre", f"have shape ({n_classes},) or ({n}, {n_classes})", got=got)
    return rows.astype(np.float64)
