"""Laws of ordered labels with a given mean: the one-parameter family that a prior spans when it is tilted.

>>> tilted_laws(np.full(3, 1 / 3), np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5])).round(3).tolist()
[[0.333, 0.333, 0.333], [0.116, 0.268, 0.616]]

Tilting a law p by t gives p_t[y] ~ p[y] exp(t v[y]), an exponential family in the value v. Its mean rises strictly in t,
from the least to the largest value that p gives any mass, so every mean between them has one law. It changes with its
mean m as dp[y] / dm = p[y] (v[y] - m) / Var, since d log p_t[y] / dt = v[y] - m and dm / dt = Var.

Reference: Efron, "The geometry of exponential families", Annals of Statistics 6(2), 1978.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

#: Halvings of the bracket of t: it ends below 1e-12 of a tilt that moves a unit of range by e.
_HALVINGS = 60
#: Tilts per unit of range that are searched: e^60 between the two ends of the values, beyond which a law is a point.
_STEEPEST = 60.0
#: Means stay this share of the range away from its ends, where the law is a point and its variance zero.
MARGIN = 0.02


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
        short = _normalised(logs, scaled, middle) @ scaled < wanted
        below, above = np.where(short, middle, below), np.where(short, above, middle)
    return _normalised(logs, scaled, (below + above) / 2)


def slopes(laws: Floats, values: Floats) -> Floats:
    """Return how each law changes with its mean, dp / dm; zero for a law that is a point."""
    away = values - (laws @ values)[:, None]
    variance = (laws * away**2).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        answer: Floats = np.where(variance > 0, laws * away / variance, 0.0)
    return answer


def _normalised(logs: Floats, scaled: Floats, tilts: Floats) -> Floats:
    raw = logs[None, :] + tilts[:, None] * scaled[None, :]
    raw = np.exp(raw - raw.max(axis=1, keepdims=True))
    answer: Floats = raw / raw.sum(axis=1, keepdims=True)
    return answer
