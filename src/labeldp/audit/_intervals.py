"""Exact confidence limits of a binomial share: every audit rests on these two numbers.

>>> round(float(lower_limit(9, 10, level=0.05)), 4), round(float(upper_limit(0, 100, level=0.05)), 4)
(0.6058, 0.0295)

Reference: Clopper & Pearson 1934.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]


def lower_limit(successes: Any, trials: Any, *, level: float) -> Floats:
    """Return the largest p with Pr[Binomial(trials, p) >= successes] <= level; 0 where nothing succeeded.

    The true share is below it with probability `level` at most, whatever it is. Pr[X >= c] = I_p(c, n - c + 1), the
    incomplete beta function, so the limit is its inverse at `level`.
    """
    from scipy.special import betaincinv

    c, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    limit = betaincinv(np.maximum(c, 1.0), np.maximum(n - c + 1.0, 1.0), level)
    answer: Floats = np.where(c >= 1, limit, 0.0)
    return answer


def upper_limit(successes: Any, trials: Any, *, level: float) -> Floats:
    """Return the least p with Pr[Binomial(trials, p) <= successes] <= level; 1 where nothing failed."""
    n = np.asarray(trials, np.float64)
    answer: Floats = 1.0 - lower_limit(n - np.asarray(successes, np.float64), n, level=level)
    return answer
