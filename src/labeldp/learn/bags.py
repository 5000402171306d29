r"""Noisy counts of bags as evidence: what a histogram of a cluster's labels says of the rows in the cluster.

A curator counts the labels of each cluster (a bag of rows) and releases h_c = sum_{i in c} e(y_i) + noise, e(y) being one at y.
Let r_i be what is believed of row i without the counts: the model's probabilities times the likelihood of its own answer.
Counts are evidence *beside* that, and not a belief to start from: a start is forgotten, or is too sure of itself.

A model that is wrong is wrong for a whole bag at once, so each bag gets an offset theta_c in the logarithms,

    q_i[y] = r_i[y] exp(theta_c[y]) / sum_k r_i[k] exp(theta_c[k]),

which is believed to be near 0, as a normal variable of spread `SPREAD`, and the counts to be normal around sum_i q_i with the
known variance v of their noise. The offsets that are used are the likeliest ones, minimising

    |theta_c|^2 / (2 SPREAD^2) + |h_c - sum_{i in c} q_i(theta_c)|^2 / (2 v).

Where the noise is large, or the model is as sure as it is right, theta is near 0; where counts are exact, the beliefs of a bag add
up to them, as in proportional fitting (`labeldp.priors.staged.fit_shares`). In between it is a ridge towards the model's own sums.

>>> bags = Bags(index=np.zeros(100, int), counts=np.array([[80.0, 20.0]]), variance=800.0)
>>> flat = np.full((100, 2), 0.5)
>>> bags.move(flat)[0].round(2).tolist()  # the counts have a noise of 28: two thirds of the way are believed
[0.71, 0.29]
>>> Bags(index=bags.index, counts=bags.counts, variance=1.0).move(flat)[0].round(2).tolist()
[0.8, 0.2]

Everything here reads what was released: post-processing, free. What travels with a release are the shares of each bag and the bag
of each row (its prior), and what the counts cost is the whole epsilon less that of the answers: a receiver has both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from labeldp.arrays import Floats, Ints
from labeldp.priors import PriorTable

#: How far a model may be off for a whole bag, in logarithms of odds.
SPREAD = 1.0
#: Newton's steps, each by at most one: more change nothing that noise would not.
STEPS = 25
#: An epsilon below this is what is left by rounding.
LEAST_EPSILON = 1e-6
#: Counts that are shares times sizes are off by more than the root of this; a variance of 0 (epsilon above 745) would divide by it.
LEAST_VARIANCE = 1e-30


@dataclass(frozen=True, kw_only=True, eq=False)
class Bags:
    """The bag of each row (n,), the noisy counts of each bag's labels (C, K), and the variance of their noise."""

    index: Ints
    counts: Floats
    variance: float

    def move(self, beliefs: Floats) -> Floats:
        """Return beliefs (n, K) moved by the likeliest offset of each bag: steps of Newton's method, the curvature diagonal."""
        offsets = np.zeros(self.counts.shape)
        for _ in range(STEPS):
            moved = self._shift(beliefs, offsets)
            over = ((self._add(moved) - self.counts) / self.variance)[self.index]
            uphill = self._add(moved * (over - (moved * over).sum(axis=1, keepdims=True))) + offsets / SPREAD**2
            # What one label gains others lose: the covariance of a bag's labels has no eigenvalue above twice its diagonal.
            curvature = (2.0 * self._add(moved * (1.0 - moved))) ** 2 / self.variance + 1.0 / SPREAD**2
            offsets -= np.clip(uphill / curvature, -1.0, 1.0)
        return self._shift(beliefs, offsets)

    def _shift(self, beliefs: Floats, offsets: Floats) -> Floats:
        moved: Floats = beliefs * np.exp(offsets)[self.index]
        moved /= moved.sum(axis=1, keepdims=True)
        return moved

    def _add(self, values: Floats) -> Floats:
        """Return the sums of values (n, K) over each bag."""
        sums = [np.bincount(self.index, weights=column, minlength=len(self.counts)) for column in values.T]
        return np.stack(sums, axis=1)


def read_bags(table: PriorTable, *, epsilon: float) -> Bags | None:
    """Return a prior's table as counts of bags that cost epsilon; None where it is something else.

    A table with a row per example has no bags, and one that cost nothing has no counts behind it.
    """
    n_bags, n_classes = table.rows.shape
    if n_bags >= len(table.index) or table.says_nothing or not LEAST_EPSILON < epsilon < math.inf:
        return None
    sizes = np.bincount(table.index, minlength=n_bags)
    return Bags(
        index=table.index,
        counts=np.asarray(table.rows, np.float64) * sizes[:, None],
        variance=noise_variance(epsilon, n_classes=n_classes),
    )


def noise_variance(epsilon: float, *, n_classes: int) -> float:
    """Return the variance of one noisy count: discrete Laplace of rate epsilon / 2, or of epsilon with two classes; never 0.

    >>> round(noise_variance(0.1, n_classes=10)), round(noise_variance(0.1, n_classes=2))
    (800, 200)
    """
    rate = epsilon if n_classes == 2 else epsilon / 2
    return max(2.0 * math.exp(-rate) / math.expm1(-rate) ** 2, LEAST_VARIANCE)
