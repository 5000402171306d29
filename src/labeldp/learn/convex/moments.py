r"""Noisy class moments: the sums of feature rows by class, and the models that need no more of the labels.

Linear and canonical models see labels only through the class moments M[k] = sum of x_i over i with y_i = k. `ClassMoments`
measures them with exact noise; `solve_ridge` and `solve_softmax` turn what was measured into weights.

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
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse

from labeldp.arrays import Floats, Int64s
from labeldp.errors import Described, invalid
from labeldp.release import Query, Sensitivity
from labeldp.release.measurement import MOST_TOTAL, largest_size, round_to_integers
from labeldp.softmax import SoftmaxObjective, minimise, sum_soft
from labeldp.validate import check_probability_rows

#: Penalties tried, relative to the mean eigenvalue of G.
GRID = np.logspace(-6, 4, 61)
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


def choose_ridge(gram: Floats, moments: Floats, *, noise: float, n: int) -> float:
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


def solve_ridge(gram: Floats, moments: Floats, *, l2: float) -> Floats:
    """Return (C, D) weights (G + l2)^{-1} m."""
    lifted = gram + l2 * np.eye(len(gram))
    weights: Floats = scipy.linalg.solve(lifted, moments.T, assume_a="pos").T
    return weights


def solve_softmax(rows: Any, moments: Floats, offsets: Floats, *, l2: float, max_iter: int = 200) -> Floats:
    """Return (K, D) weights of the softmax model with these class moments and log-prior offsets (1 or n, K).

    `l2` is against the sum over examples. The solver stops at a gradient of 1e-6 per example.
    """
    n = rows.shape[0]
    linear = np.column_stack([moments, np.zeros(len(moments))])  # no intercepts: a constant is a feature like any other
    curved = partial(sum_soft, rows, weights=np.ones(n), offsets=np.ascontiguousarray(offsets.T))
    objective = SoftmaxObjective(curved=curved, linear=linear, total=float(n), l2=l2 / n, intercept=False)
    theta, _ = minimise(objective, np.zeros(linear.shape), max_iter=max_iter, tol=1e-6, owner="SufficientStatistics")
    weights: Floats = theta[:, :-1]
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
