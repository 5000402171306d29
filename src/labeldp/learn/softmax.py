"""`SoftmaxRegression`: multinomial logistic regression on L-BFGS that takes soft, corrected or unseen targets.

Rows of a soft target sum to one and may be negative (the channel's unbiased targets are). With logits z = x W + b,

    loss = log sum_k exp(z_k) - sum_k q_k z_k,       gradient in z = p - q,

which is convex in W whatever q is. The targets enter through X'Q alone, computed once, so that a step costs two
products with X and no more than ordinary logistic regression. With a likelihood column l_k = T[k, o] instead of a
target, the forward loss is

    loss = -log sum_k p_k l_k = log sum_k exp(z_k) - log sum_k exp(z_k + log l_k),
    gradient in z = softmax(z) - softmax(z + log l),

a difference of two log-sums, so that no probability underflows, however large the logits.

>>> import numpy as np
>>> X = np.array([[-1.0], [1.0]])
>>> model = SoftmaxRegression().fit_targets(X, [[1.2, -0.2], [0.0, 1.0]], classes=["no", "yes"])
>>> model.predict([[-2.0], [3.0]]).tolist()
['no', 'yes']

Design notes. Logits are kept as (K, n): sums over a few classes then run along contiguous rows, several times faster
than along short ones. Parameters are float64, products with X are in the precision of X.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.errors import Described, invalid
from labeldp.validate import check_integer, check_positive, check_real

Objective = Callable[[Floats], tuple[float, Floats]]


class SoftmaxRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear softmax classifier: mean loss + l2 / 2 ||W||^2, the intercept free, by L-BFGS.

    Parameters
    ----------
    l2 : float
        Weight of the squared norm, relative to the mean loss. scikit-learn's C is 1 / (n l2), and 2 / (n l2) for two
        classes, where it has one coefficient and this has two of half its size.
    max_iter : int
        Most iterations of L-BFGS; `n_iter_` says how many it took.
    tol : float
        Stop when no entry of the gradient of the mean loss exceeds this.
    fit_intercept : bool
        Whether to learn a free constant per class.
    warm_start : bool
        Whether to start from the coefficients of the last fit.
    """

    def __init__(
        self,
        *,
        l2: float = 1e-3,
        max_iter: int = 200,
        tol: float = 1e-5,
        fit_intercept: bool = True,
        warm_start: bool = False,
    ) -> None:
        self.l2 = l2
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SoftmaxRegression:
        """Fit on plain labels."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise invalid("SoftmaxRegression", "y", "have two classes or more", got=Described(f"{len(classes)} class"))
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        one_hot = scipy.sparse.csr_matrix((weights, (np.arange(len(codes)), codes)), shape=(len(codes), len(classes)))
        return self._minimise(X, classes, _soft_objective(self._problem(X, one_hot, total=weights.sum()), weights))

    def fit_targets(self, X: Any, targets: Any, *, classes: Sequence[Any]) -> SoftmaxRegression:
        """Fit on soft targets (n, K): rows sum to one; entries may be negative."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        matrix = _checked_targets(_rows_for("targets", targets, X, len(classes))).astype(X.dtype, copy=False)
        weights = np.ones(X.shape[0], X.dtype)
        return self._minimise(X, np.asarray(classes), _soft_objective(self._problem(X, matrix), weights))

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Sequence[Any]) -> SoftmaxRegression:
        """Fit the forward loss: `likelihood` (n, K) is Pr[what was observed | label k]."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        matrix = _checked_likelihood(_rows_for("likelihood", likelihood, X, len(classes)))
        with np.errstate(divide="ignore"):  # a label that is ruled out has log 0 = -inf, and exp of it is 0 again
            logarithms = np.ascontiguousarray(np.log(matrix).T, dtype=X.dtype)
        problem = self._problem(X, np.zeros((X.shape[0], len(classes)), X.dtype))
        return self._minimise(X, np.asarray(classes), _forward_objective(problem, logarithms))

    def _problem(self, X: Any, targets: Any, *, total: float | None = None) -> Problem:
        """Return what a step needs; the targets are there as X'Q and the sums of Q."""
        linear = np.empty((targets.shape[1], X.shape[1] + 1))
        linear[:, :-1] = _transposed_product(targets, X)
        linear[:, -1] = np.asarray(targets.sum(axis=0, dtype=np.float64)).reshape(-1) if self.fit_intercept else 0.0
        count = float(X.shape[0] if total is None else total)
        return Problem(X=X, linear=linear, total=count, l2=self.l2, intercept=self.fit_intercept)

    def _minimise(self, X: Any, classes: npt.NDArray[Any], objective: Objective) -> SoftmaxRegression:
        check_positive("SoftmaxRegression", "tol", self.tol)
        if check_real("SoftmaxRegression", "l2", self.l2) < 0:
            raise invalid("SoftmaxRegression", "l2", "be >= 0", got=self.l2)
        limit = check_integer("SoftmaxRegression", "max_iter", self.max_iter, least=1)
        start = self._start(X.shape[1], len(classes))
        options = {"maxiter": limit, "maxfun": 2 * limit + 20, "gtol": self.tol, "ftol": 0.0, "maxcor": 10}
        found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        theta = found.x.reshape(len(classes), X.shape[1] + 1)
        self.classes_ = classes
        self.coef_ = theta[:, :-1].copy()
        self.intercept_ = theta[:, -1].copy()
        self.n_iter_ = int(found.nit)
        return self

    def _start(self, n_features: int, n_classes: int) -> Floats:
        theta = np.zeros((n_classes, n_features + 1))
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == (n_classes, n_features):
            theta[:, :-1], theta[:, -1] = self.coef_, self.intercept_
        return theta.reshape(-1)

    def decision_function(self, X: Any) -> Floats:
        """Return the logits; for two classes the difference, as scikit-learn has it."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def _logits(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        logits: Floats = X @ self.coef_.T + self.intercept_
        return logits

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K)."""
        return softmax(self._logits(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        best = self._logits(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def softmax(logits: Floats) -> Floats:
    """Return exp(z) / sum exp(z) along rows, without overflow."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    answer: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return answer


def _rows_for(name: str, values: Any, X: Any, n_classes: int) -> Floats:
    matrix = np.asarray(values)
    if matrix.dtype.kind not in "fiu" or matrix.shape != (X.shape[0], n_classes):
        got = Described(f"an array of shape {matrix.shape}")
        raise invalid("SoftmaxRegression", name, f"have shape ({X.shape[0]}, {n_classes})", got=got)
    if not np.isfinite(matrix).all():
        raise invalid("SoftmaxRegression", name, "be finite", got=Described("NaN or infinity"))
    return matrix


def _checked_targets(targets: Floats) -> Floats:
    """Refuse rows that do not sum to one; rounding grows with the largest entry of a signed row."""
    sums = targets.sum(axis=1, dtype=np.float64)
    wrong = np.abs(sums - 1.0) > 1e-4 * np.maximum(1.0, np.abs(targets).max(axis=1))  # float32 targets are welcome
    if wrong.any():
        row = int(np.argmax(wrong))
        got = Described(f"a sum of {sums[row]:.9g} in row {row}")
        raise invalid("SoftmaxRegression", "targets", "have rows that sum to 1", got=got)
    return targets


def _checked_likelihood(likelihood: Floats) -> Floats:
    """Refuse a row that no label explains, and negative chances."""
    wrong = (likelihood < 0).any(axis=1) | (likelihood.max(axis=1) <= 0)
    if wrong.any():
        got = Described(f"row {int(np.argmax(wrong))}")
        fix = "What was observed has a chance under some label."
        raise invalid("SoftmaxRegression", "likelihood", "be >= 0 and not all zero in a row", got=got, fix=fix)
    return likelihood


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What a step of the solver needs besides the loss: the loss is [curved(theta) - <linear, theta>] / total + penalty.

    theta is (K, d + 1), its last column the intercepts; `linear` is (X'Q)' beside the column sums of Q.
    """

    X: Any
    linear: Floats
    total: float
    l2: float
    intercept: bool

    def logits(self, theta: Floats) -> Floats:
        """Return (K, n) logits in the precision of X."""
        weights = theta[:, :-1].astype(self.X.dtype, copy=False)
        logits = _dense(self.X @ weights.T).T.copy() if scipy.sparse.issparse(self.X) else weights @ self.X.T
        logits += theta[:, -1:].astype(self.X.dtype)
        answer: Floats = logits
        return answer

    def finished(self, theta: Floats, curved: float, residual: Floats) -> tuple[float, Floats]:
        """Return the mean loss with its penalty, and the gradient, flat; `residual` is d curved / d logits."""
        gradient = np.empty_like(theta)
        gradient[:, :-1] = _transposed_product(residual.T, self.X)
        gradient[:, -1] = residual.sum(axis=1, dtype=np.float64) if self.intercept else 0.0
        gradient -= self.linear
        gradient /= self.total
        gradient[:, :-1] += self.l2 * theta[:, :-1]
        penalty = 0.5 * self.l2 * float((theta[:, :-1] ** 2).sum())
        return (curved - float((self.linear * theta).sum())) / self.total + penalty, gradient.reshape(-1)


def _transposed_product(rows: Any, X: Any) -> Floats:
    """Return rows' X, dense, for (n, K) rows; a sparse X is never made dense.

    (X' rows)' and not rows' X: for a few long rows, OpenBLAS with two threads was measured 25 times slower the other way.
    """
    if scipy.sparse.issparse(rows):
        return _dense(rows.T @ X)
    return _dense(X.T @ rows).T


def _dense(product: Any) -> Floats:
    answer: Floats = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
    return answer


def _soft_objective(problem: Problem, weights: Floats) -> Objective:
    """Return loss and gradient for soft targets: the curved part is the weighted log-sum of the logits."""

    def objective(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(problem.linear.shape)
        mass, height = _normalised(problem.logits(theta))
        mass *= weights
        return problem.finished(theta, float(height @ weights.astype(np.float64)), mass)

    return objective


def _forward_objective(problem: Problem, logarithms: Floats) -> Objective:
    """Return loss and gradient of -log sum_k p_k l_k, `logarithms` (K, n) those of l."""

    def objective(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(problem.linear.shape)
        logits = problem.logits(theta)
        explained, reached = _normalised(logits + logarithms)
        mass, height = _normalised(logits)
        mass -= explained
        return problem.finished(theta, float((height - reached).sum()), mass)

    return objective


def _normalised(logits: Floats) -> tuple[Floats, Floats]:
    """Return the softmax of each column, in place, and the logs of the sums in float64."""
    peak = logits.max(axis=0)
    logits -= peak
    np.exp(logits, out=logits)
    total = logits.sum(axis=0)
    logits /= total
    return logits, np.log(total, dtype=np.float64) + peak
