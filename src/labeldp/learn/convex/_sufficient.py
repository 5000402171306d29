r"""`SufficientStatistics`: release the class moments of the features once, with exact noise; then any solver is free.

Linear and canonical models see labels only through Phi'Y. Features are public under label privacy, so this matrix is all
that needs noise: L2 sensitivity sqrt 2 R (R for two classes), whatever the number of examples. Centring by a label-free
prediction P, Phi'(Y - P), is a public shift.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(3000, 4))
>>> y = np.argmax(X[:, :3], axis=1)
>>> model = SufficientStatistics(epsilon=1.0, clip=3.0, classes=[0, 1, 2], random_state=0).fit(X, y)
>>> model.score(X, y) > 0.9, model.guarantee_.epsilon(1e-5) <= 1.0, model.noise_
(True, True, 'discrete Gaussian, variance ...')

References: MECHANISMS.md, section 7; Canonne, Kamath, Steinke 2020 (discrete noise).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from labeldp._loss import ZCDP
from labeldp._random import as_key
from labeldp._validate import check_choice, check_delta, check_epsilon, check_integer, check_probability_rows
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex._base import ConvexClassifier, Floats
from labeldp.learn.convex._heads import best_ridge, ridge, softmax_head
from labeldp.learn.convex._losses import Softmax, Squared
from labeldp.learn.convex._moments import ClassMoments, completed, on_grid
from labeldp.learn.convex._rows import check_penalty
from labeldp.release import SensitiveLabels, Sensitivity, measure

#: A ridge score is read as a probability no smaller than this.
LEAST_SHARE = 0.02
#: A log-prior of less than this does not rule a class out for good.
LEAST_PRIOR = 1e-6


class SufficientStatistics(ConvexClassifier):
    """A linear classifier from noisy sums of features by class.

    Parameters
    ----------
    epsilon, delta : float
        The budget. delta > 0: discrete Gaussian noise; delta = 0: discrete Laplace noise, whose 1-norm sensitivity grows
        with the root of the number of features.
    head : {"ridge", "softmax"}
        Least squares (closed form), or the softmax model with the released moments.
    l2 : float or "auto"
        The penalty, against the SUM of losses. "auto" minimises an unbiased estimate of the risk that noise causes,
        from what was released and the known noise: free.
    clip : float or "unit-norm"
        The public bound on the norm of a row; required.
    grid_bits : int
        Features are cut to multiples of R 2^-grid_bits before they are summed.
    fit_intercept, intercept_scaling, classes, random_state, ledger, label_set
        As in LPRRSGD.

    Attributes
    ----------
    moments_ : (K, D) the released class moments, in units of the features; post-process them as you like
    l2_, noise_, noise_scale_, sensitivity_ : the penalty used, the noise in words and its spread, and the sensitivity
    coef_, intercept_, classes_, guarantee_, seeded_

    Guarantee
    ---------
    Pure epsilon (delta = 0) or zCDP that implies (epsilon, delta), when one label is replaced; trusts a curator. The
    noise is discrete and exact.

    Edge cases
    ----------
    A constant label, separable data and d > n need no care: every statistic is bounded and l2 > 0. epsilon = inf
    releases exact moments. Sparse features stay sparse; but for head="softmax" with a given l2, a dense matrix of the
    squared number of columns is solved with.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        head: str = "ridge",
        l2: float | str = "auto",
        clip: float | str | None = None,
        grid_bits: int = 14,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.25,
        classes: Sequence[Any] | None = None,
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.head = head
        self.l2 = l2
        self.clip = clip
        self.grid_bits = grid_bits
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.classes = classes
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set

    def fit(self, X: Any, y: Any, *, centre: Any = None) -> SufficientStatistics:
        """Release the moments of y and solve.

        `centre` is a label-free belief about the labels, (K,) for all or (n, K); by default uniform. A belief of each
        row's own is needed again to predict.
        """
        owner = "SufficientStatistics"
        check_choice(owner, "head", self.head, ("ridge", "softmax"))
        if self.l2 != "auto":
            check_penalty(owner, self.l2)
        rows, labels = self._prepared(X, y)
        belief = _checked_centre(centre, rows.shape[0], labels.n_classes)
        cut, guarantee, seeded = self._measured(rows, labels)
        self.centre_ = belief[0] if len(belief) == 1 else None
        weights = self._solved(cut, belief, n_classes=labels.n_classes)
        loss = Softmax() if self.head == "softmax" else Squared(two=False)
        self._keep(weights, labels, loss=loss, guarantee=guarantee, seeded=seeded)
        return self

    def _measured(self, rows: Any, labels: SensitiveLabels) -> tuple[Any, Guarantee, bool]:
        """Release the class moments of the rows, cut to the grid; return those rows, the promise and whether seeded."""
        owner = "SufficientStatistics"
        epsilon, delta = check_epsilon(owner, self.epsilon), check_delta(owner, self.delta)
        bits = check_integer(owner, "grid_bits", self.grid_bits, least=1, most=30)
        step = self._rows.radius / 2.0**bits
        query = ClassMoments(rows=on_grid(rows, bound=self._rows.radius, bits=bits))
        key = as_key(owner, self.random_state)
        measured = measure(labels, query, epsilon=epsilon, delta=delta, rng=key, ledger=self.ledger)
        reach = query.sensitivity(n_classes=labels.n_classes)
        self.sensitivity_ = Sensitivity(reach.l1 * step, reach.l2 * step)
        self.noise_, self.noise_scale_ = measured.noise, step * noise_scale(reach, measured.guarantee)
        cut = query.rows.astype(np.float64) * step
        self.moments_ = completed(measured.value * step, np.asarray(cut.sum(axis=0)).reshape(-1))
        return cut, measured.guarantee, measured.seeded

    def _solved(self, rows: Any, belief: Floats, *, n_classes: int) -> Floats:
        """Return (K, D) weights from the released moments, the public rows and the public belief."""
        if self.head == "softmax" and self.l2 != "auto":  # the one way that needs no D x D matrix
            self.l2_ = float(self.l2)
            return softmax_head(rows, self.moments_, _logs(belief), l2=self.l2_)
        product = rows.T @ rows
        gram = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
        shifts = np.broadcast_to(belief, (rows.shape[0], n_classes))
        residual = self.moments_ - np.asarray(rows.T @ shifts).T
        # Completion leaves (K - 1)/K of the variance; of two classes, measured as one, each has all of it.
        spread = self.noise_scale_ * (1.0 if n_classes == 2 else math.sqrt(1.0 - 1.0 / n_classes))
        chosen = best_ridge(gram, residual, noise=spread, n=rows.shape[0]) if self.l2 == "auto" else float(self.l2)
        self.l2_ = chosen / n_classes if self.head == "softmax" else chosen
        if self.head == "softmax":
            return softmax_head(rows, self.moments_, _logs(belief), l2=self.l2_)
        return ridge(gram, residual, l2=self.l2_)

    def decision_function(self, X: Any, *, centre: Any = None) -> Floats:
        """Return the scores with the belief added; for two classes their difference."""
        scores = self._believed(X, centre)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any, *, centre: Any = None) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        scores = self._believed(X, centre)
        if self.head == "softmax":
            return self._loss.probabilities(scores)
        cut = np.maximum(scores, LEAST_SHARE / scores.shape[1])
        shares: Floats = cut / cut.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any, *, centre: Any = None) -> npt.NDArray[Any]:
        """Return the class of the largest score of each row."""
        best = self._believed(X, centre).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def _believed(self, X: Any, centre: Any) -> Floats:
        """Return the scores (n, K) on top of the belief (its logarithm, for softmax)."""
        scores = self._scores(X)
        if centre is None and self.centre_ is None:
            fix = "The model was fitted on residuals of a belief about each row: pass that belief for these rows."
            raise invalid("SufficientStatistics", "centre", "be given", got=None, fix=fix)
        given = self.centre_ if centre is None else centre
        belief = _checked_centre(given, len(scores), scores.shape[1])
        total: Floats = scores + (_logs(belief) if self.head == "softmax" else belief)
        return total


def noise_scale(sensitivity: Sensitivity, guarantee: Guarantee) -> float:
    """Return the standard deviation of the noise behind a guarantee of `measure`, in its integers; for penalties only.

    zCDP is l2^2 / (2 sigma^2) and pure epsilon is rate * l1; a discrete Laplace of rate a has variance
    2 e^a / (e^a - 1)^2 = 1 / (2 sinh(a/2)^2).
    """
    loss, worst = guarantee.loss, guarantee.epsilon()
    if isinstance(loss, ZCDP):
        return sensitivity.l2 / math.sqrt(2.0 * loss.rho)
    if math.isinf(worst) or sensitivity.l1 == 0:
        return 0.0
    return 1.0 / (math.sqrt(2.0) * math.sinh(worst / sensitivity.l1 / 2.0))


def _logs(belief: Floats) -> Floats:
    logs: Floats = np.log(np.maximum(belief, LEAST_PRIOR))
    return logs


def _checked_centre(centre: Any, n: int, n_classes: int) -> Floats:
    """Return the belief as (1, K) or (n, K) probabilities."""
    if centre is None:
        return np.full((1, n_classes), 1.0 / n_classes)
    rows = check_probability_rows("SufficientStatistics", "centre", np.atleast_2d(np.asarray(centre)))
    if rows.shape not in ((1, n_classes), (n, n_classes)):
        got = Described(f"an array of shape {rows.shape}")
        raise invalid("SufficientStatistics", "centre", f"have shape ({n_classes},) or ({n}, {n_classes})", got=got)
    return rows.astype(np.float64)
