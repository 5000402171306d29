"""The linear program behind `OptimalResponse`: the best mixture of staircase patterns, rounded to the private side.

>>> patterns(3, 0.5).shape
(7, 3)

Every extreme epsilon-private channel is a mixture of staircase patterns S in {e^-epsilon, 1}^K, one output each
(Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 17, 2016, Theorem 2). With weights
theta >= 0 and T[y, o] = theta_o S_o[y], rows that sum to one are K linear equations, and a gain that is a sum over outputs
of a sublinear function of their columns is linear in theta.

Design notes. The solver is right to 1e-9, privacy must be right to the last bit. So the vertex is computed again from
its support, rows are divided by their sums, and then T moves towards the channel that says nothing, (1 - s) T + s 1 q',
by the least s of a doubling search at which the channel on its sampling grid keeps epsilon. s is some 1e-15.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.channel import MatrixChannel
from labeldp.errors import LabelDPError

Floats = npt.NDArray[np.floating[Any]]

#: Weights below this are the solver's tolerance, not outputs.
_NEGLIGIBLE = 1e-8


class Columns(NamedTuple):
    """Candidate outputs: their pattern (J, K), what each is reported as, what a unit of its weight gains.

    `equations` (E, J) and `right` (E,) are conditions on the weights besides those of the rows.
    """

    pattern: Floats
    report: Floats
    gain: Floats
    equations: Floats
    right: Floats


def patterns(n_classes: int, least: float) -> Floats:
    """Return the staircase patterns with entries `least` and 1; the constant one once."""
    numbers = np.arange(1, 1 << n_classes)
    high = (numbers[:, None] >> np.arange(n_classes)) & 1
    answer: Floats = np.where(high == 1, 1.0, least)
    return answer


def best_mixture(columns: Columns) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return the optimal channel (K, M) before it is made exactly private, and which columns are its outputs."""
    from scipy.optimize import linprog

    conditions = np.vstack([columns.pattern.T, columns.equations])
    right = np.concatenate([np.ones(columns.pattern.shape[1]), columns.right])
    solved = linprog(-columns.gain, A_eq=conditions, b_eq=right, bounds=(0, None), method="highs")
    if solved.status != 0:
        raise LabelDPError(f"OptimalResponse: no channel meets the objective ({solved.message}). Widen its reports.")
    chosen = np.flatnonzero(solved.x > _NEGLIGIBLE)
    theta = _sharpened(conditions[:, chosen], right, solved.x[chosen])
    transition = (columns.pattern[chosen] * theta[:, None]).T
    return transition / transition.sum(axis=1, keepdims=True), chosen


def _sharpened(conditions: Floats, right: Floats, theta: Floats) -> Floats:
    """Return the vertex with this support to full precision, or the solver's where that has a negative weight."""
    exact: Floats = np.linalg.lstsq(conditions, right, rcond=None)[0]
    return exact if exact.min() > 0 else theta


def made_private(transition: Floats, epsilon: float) -> Floats:
    """Return the channel on its sampling grid, moved towards saying nothing until it keeps epsilon exactly."""
    silent = np.broadcast_to(transition.mean(axis=0), transition.shape)
    share = 0.0
    while share < 1.0:
        channel = MatrixChannel((1.0 - share) * transition + share * silent)
        if channel.epsilon <= epsilon:
            kept: Floats = channel.transition[0]
            return kept
        share = max(2.0 * share, math.ldexp(1.0, -52))
    nothing: Floats = MatrixChannel(silent).transition[0]
    return nothing
