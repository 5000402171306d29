"""The linear model of the cluster studies: its penalty follows from how noisy the released labels are.

A released label pulls the weights at zero with the gradient g_i = 1/K - q_i, where q_i are the targets (or the normalised
likelihood) of example i. If the labels were pure noise of that size, the mean gradient would still be about

    l2 = sqrt(mean_i |g_i|^2) / sqrt(n)

long (times the length of x): its standard error. This is the penalty, for every mechanism and every correction. It has
no constant to tune and reads released values alone. It takes care of scale by itself: unbiased targets are longer by
1/keep and are held harder; the forward loss is flatter by about keep^2 and is held less.

>>> import numpy as np
>>> float(penalty(np.eye(2)[[0, 1, 1, 0]]))  # |1/2 - q| is sqrt(1/2) for plain labels of two classes
0.3535533905932738

Design notes. `SoftmaxRegression` keeps the penalty as a parameter; here `fit` sets it, since the stages of
`LabelPrivateClassifier` train on releases that do not exist when the estimator is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from labeldp.arrays import Floats
from labeldp.learn import SoftmaxRegression
from labeldp.learn.softmax import Objective

#: Most steps of L-BFGS, the same for every row: a bound on time, which the fits of Fashion-MNIST reach.
STEPS = 80
#: The solver stops when no entry of the gradient exceeds this share of the length of an example's gradient at zero.
RELATIVE_TOLERANCE = 1e-4


def penalty(targets: Floats) -> float:
    """Return l2 = sqrt(mean |1/K - q|^2 / n) for rows q that sum to one, signed or not."""
    n, n_classes = targets.shape
    squares = np.square(targets - 1.0 / n_classes).sum(axis=1, dtype=np.float64)
    return math.sqrt(float(squares.mean()) / n)


class NoiseScaledSoftmax(SoftmaxRegression):
    """`SoftmaxRegression` whose l2 and tolerance are set by `penalty` at each fit; the other parameters are its own."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NoiseScaledSoftmax:
        """Fit on plain labels: every |1/K - q|^2 is 1 - 1/K."""
        n_classes = max(2, len(np.unique(y)))
        self._scale(math.sqrt((1.0 - 1.0 / n_classes) / len(y)), len(y))
        super().fit(X, y, sample_weight)
        return self

    def fit_targets(self, X: Any, targets: Any, *, classes: Sequence[Any]) -> NoiseScaledSoftmax:
        """Fit on soft or signed targets."""
        self._scale(penalty(np.asarray(targets)), len(targets))
        super().fit_targets(X, targets, classes=classes)
        return self

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Sequence[Any]) -> NoiseScaledSoftmax:
        """Fit the forward loss, whose gradient at zero is 1/K minus the normalised likelihood."""
        rows = np.asarray(likelihood)
        self._scale(penalty(rows / rows.sum(axis=1, keepdims=True)), len(rows))
        super().fit_likelihood(X, likelihood, classes=classes)
        return self

    def fit_objective(self, X: Any, objective: Objective, *, l2: float, classes: Sequence[Any]) -> NoiseScaledSoftmax:
        """Fit a loss of the caller's own, which has this l2 in it already."""
        self._scale(l2, len(X))
        self.n_features_in_ = X.shape[1]
        self._minimise(X, np.asarray(classes), objective)
        return self

    def _scale(self, l2: float, n: int) -> None:
        self.l2 = l2
        # A release that says nothing (all likelihoods equal) has l2 = 0, and the solver needs a tolerance above 0.
        self.tol = max(RELATIVE_TOLERANCE * l2 * math.sqrt(n), 1e-12)


def model() -> NoiseScaledSoftmax:
    """Return the one model of the studies, unfitted."""
    return NoiseScaledSoftmax(max_iter=STEPS)
