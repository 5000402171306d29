r"""A minimiser with a certificate: the gradient is small, or there is no answer.

For F(W) = sum of losses + l2/2 |W|^2, strong convexity gives |W - W*| <= |grad F(W)| / l2. So if |grad F(W)| <= gamma
for whatever labels, the released W moves by at most 2 gamma / l2 more than the exact minimiser does.

>>> import numpy as np
>>> from labeldp.learn.convex._losses import Logistic, one_hot
>>> rows, targets = np.array([[1.0], [-1.0], [0.5]]), one_hot(np.array([1, 0, 0]), 2)
>>> problem = Regularised(rows=rows, targets=targets, loss=Logistic(), l2=1.0)
>>> problem.certificate(certified_minimum(problem, tolerance=1e-6, owner="example")) <= 1e-6
True

Design notes. L-BFGS goes most of the way; near the minimum it is stopped by the rounding of F, whose differences are
the square of the gradient. Newton steps by conjugate gradients, accepted when the gradient shrinks, finish.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.utils.extmath import row_norms

from labeldp.errors import PrivacyError
from labeldp.learn.convex._losses import Loss

Floats = npt.NDArray[np.floating[Any]]

NEWTON_STEPS = 40
#: A Newton step is halved down to this share of itself before it is given up.
LEAST_SHARE = 1e-4
UNIT = 2.0**-53


@dataclass(frozen=True, kw_only=True, eq=False)
class Regularised:
    """F(W) = sum of losses + l2/2 |W|^2 for rows (n, D) and targets (n, K); W is (C, D)."""

    rows: Any
    targets: Floats
    loss: Loss
    l2: float

    @property
    def shape(self) -> tuple[int, int]:
        """(C, D)."""
        return (self.loss.n_scores(self.targets.shape[1]), int(self.rows.shape[1]))

    def scores(self, weights: Floats) -> Floats:
        """Return (n, C) scores."""
        return np.asarray(self.rows @ weights.T)

    def value(self, weights: Floats) -> float:
        """Return F."""
        return self.loss.value(self.scores(weights), self.targets) + 0.5 * self.l2 * float(np.vdot(weights, weights))

    def gradient(self, weights: Floats) -> Floats:
        """Return the gradient of F, (C, D)."""
        slopes = self.loss.slopes(self.scores(weights), self.targets)
        gradient: Floats = np.asarray(self.rows.T @ slopes).T + self.l2 * weights
        return gradient

    def certificate(self, weights: Floats) -> float:
        """Return an upper bound on the norm of the gradient: as computed, plus what rounding may have hidden.

        A sum of n terms errs by at most n units of the sum of their sizes; scores err by D units of |w| R and slopes by
        L_g times that.
        """
        n, width = self.rows.shape
        longest = float(row_norms(self.rows).max(initial=0.0))
        slopes = float(np.abs(self.loss.slopes(self.scores(weights), self.targets)).sum())
        size = float(np.linalg.norm(weights))
        curved = self.loss.smoothness * width * size * longest**2 * n
        hidden = UNIT * ((n + 8) * slopes * longest + curved + 8 * self.l2 * size)
        return float(np.linalg.norm(self.gradient(weights))) + float(hidden)

    def newton_step(self, weights: Floats, gradient: Floats) -> Floats:
        """Return the solution of Hessian x = gradient, to a thousandth, by conjugate gradients."""
        scores = self.scores(weights)

        def times(flat: Floats) -> Floats:
            change = self.scores(flat.reshape(self.shape))
            bent = np.asarray(self.rows.T @ self.loss.bend(scores, self.targets, change)).T
            product: Floats = bent.reshape(-1) + self.l2 * flat.reshape(-1)
            return product

        operator = LinearOperator((gradient.size, gradient.size), matvec=times, dtype=np.float64)
        answer, _ = cg(operator, gradient.reshape(-1), rtol=1e-3, maxiter=200)
        step: Floats = answer.reshape(self.shape)
        return step


def certified_minimum(problem: Regularised, *, tolerance: float, owner: str, max_iter: int = 1000) -> Floats:
    """Return weights (C, D) whose certificate is at most `tolerance`; raise PrivacyError if none are found.

    The message says nothing about how near it came: that would depend on labels.
    """
    weights = _polished(problem, _roughly(problem, tolerance, max_iter), tolerance)
    if not problem.certificate(weights) <= tolerance:
        raise PrivacyError(
            f"{owner}: the solver did not reach a gradient norm of {tolerance:g}, on which the sensitivity rests."
            " Nothing was released. Raise `tolerance` (a little more noise) or `l2`."
        )
    return weights


def _roughly(problem: Regularised, tolerance: float, max_iter: int) -> Floats:
    """Return where L-BFGS ends."""
    scale = 1.0 / problem.rows.shape[0]  # keeps its first step sane

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(problem.shape)
        scores = problem.scores(weights)
        total = problem.loss.value(scores, problem.targets) + 0.5 * problem.l2 * float(flat @ flat)
        slopes = problem.loss.slopes(scores, problem.targets)
        gradient = np.asarray(problem.rows.T @ slopes).T + problem.l2 * weights
        return scale * total, scale * gradient.reshape(-1)

    size = math.prod(problem.shape)
    goal = scale * tolerance / (2.0 * math.sqrt(size))
    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "gtol": goal, "ftol": 0.0, "maxcor": 20}
    found = scipy.optimize.minimize(objective, np.zeros(size), jac=True, method="L-BFGS-B", options=options)
    weights: Floats = found.x.reshape(problem.shape)
    return weights


def _polished(problem: Regularised, weights: Floats, tolerance: float) -> Floats:
    """Take Newton steps until the gradient is half the tolerance or nothing helps."""
    for _ in range(NEWTON_STEPS):
        gradient = problem.gradient(weights)
        if float(np.linalg.norm(gradient)) <= 0.5 * tolerance:
            break
        nearer = _stepped(problem, weights, gradient)
        if nearer is None:
            break
        weights = nearer
    return weights


def _stepped(problem: Regularised, weights: Floats, gradient: Floats) -> Floats | None:
    """Return the weights after a Newton step, halved until the gradient shrinks; None if it never does."""
    step, share, size = problem.newton_step(weights, gradient), 1.0, float(np.linalg.norm(gradient))
    while share > LEAST_SHARE:
        nearer: Floats = weights - share * step
        if float(np.linalg.norm(problem.gradient(nearer))) < (1 - 0.1 * share) * size:
            return nearer
        share /= 2
    return None
