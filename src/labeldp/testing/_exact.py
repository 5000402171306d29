"""Exact tests and brute-force numbers that the checks judge by.

>>> round(worst_log_ratio([[0.75, 0.25], [0.25, 0.75]]), 6)  # log 3
1.098612
>>> float(two_sided([50], 100, [0.5])[0])
1.0
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]


def worst_log_ratio(matrix: Any) -> float:
    """Return max over o, y, z of log T[y, o] / T[z, o] of a dense matrix T[true, output]; infinite at 0 against > 0.

    By enumeration of the columns: nothing here knows how a channel is made.
    """
    dense = np.asarray(matrix, dtype=np.float64)
    possible = dense[:, dense.max(axis=0) > 0]
    most, least = possible.max(axis=0), possible.min(axis=0)
    if np.any(least == 0):
        return math.inf
    return float(np.log(most / least).max())


def rounding_of(epsilon: float) -> float:
    """Return how much rounding can add to a log-ratio.

    Each of the two entries carries 3 roundings at most (keep + redraw * base), their quotient one more: 8 half-ulps
    of relative error in the ratio, which are absolute in its log; the log itself rounds by an ulp of the result.
    """
    return 8 * 2.0**-53 + (math.ulp(epsilon) if math.isfinite(epsilon) else 0.0)


def two_sided(counts: Any, n: Any, probabilities: Any) -> Floats:
    """Return the exact two-sided p-value of each binomial count: twice the smaller tail, at most 1.

    Under the hypothesis, Pr[p-value <= a] <= a for every a: both tails are computed exactly (by the incomplete beta
    function), nothing is asymptotic. So a level a / m for each of m counts gives a for all of them (Bonferroni), also
    when the counts depend on each other, as the counts of one multinomial do.
    """
    from scipy.special import betainc

    c = np.asarray(counts, dtype=np.float64)
    p = np.clip(np.asarray(probabilities, dtype=np.float64), 0.0, 1.0)
    # Pr[X >= c] = I_p(c, n - c + 1) for c >= 1; Pr[X <= c] = I_(1-p)(n - c, c + 1) for c < n.
    upper = np.where(c >= 1, betainc(np.maximum(c, 1), np.maximum(n - c + 1, 1), p), 1.0)
    lower = np.where(c < n, betainc(np.maximum(n - c, 1), c + 1, 1 - p), 1.0)
    return np.minimum(1.0, 2.0 * np.minimum(upper, lower))


def agreement(row: Any) -> float:
    """Return the probability that two independent outputs of one row agree: sum of squares.

    >>> agreement([0.5, 0.5])
    0.5
    """
    return float(np.square(np.asarray(row, dtype=np.float64)).sum())
