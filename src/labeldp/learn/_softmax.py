"""`SoftmaxRegression`: multinomial logistic regression on L-BFGS that takes soft, corrected or unseen targets.

Rows of a soft target sum to one and may be negative (the channel's unbiased targets are). With logits z = x W + b,

    loss = log sum_k exp(z_k) - sum_k q_k z_k,       gradient in z = p - q,

which is convex in W whatever q is. The targets enter through X'Q alone, computed once, so that a step costs two
products with X and no more than ordinary logistic regression. With a likelihood column l_k = T[k, o] instead of a
target, the forward loss is

    loss = -log sum_k p_k l_k,       gradient in z = p - p l / (p . l).

>>> import numpy as np
>>> X = np.array([[-1.0], [1.0]])
>>> model = SoftmaxRegression().fit_targets(X, [[1.2, -0.2], [0.0, 1.0]], classes=["no", "yes"])
>>> model.predict([[-2.0], [3.0]]).tolist()
['no', 'yes']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from labeldp._validate import check_integer, check_positive, check_real
from labeldp.errors import Described, invalid

Floats = npt.NDArray[np.floating[Any]]
Objective = Callable[[Floats], tuple[float, Floats]]


class SoftmaxRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear softmax classifier: mean loss + l2 / 2 ||W||^2, the intercept free, by L-BFGS.

    Parameters
    ----------
    l2 : float
        Weight of the squared norm, relative to the mean loss. scikit-learn's C is 1 / (n l2).
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
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        one_hot = scipy.sparse.csr_matrix((weights, (np.arange(len(codes)), codes)), shape=(len(codes), len(classes)))
        return self._minimise(X, classes, _soft_objective(X, one_hot, weights, self.l2, self.fit_intercept))

    def fit_targets(self, X: Any, targets: Any, *, classes: Sequence[Any]) -> SoftmaxRegression:
        """Fit on soft targets (n, K): rows sum to one; entries may be negative."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        matrix = _rows_for("targets", targets, X, len(classes))
        weights = np.ones(X.shape[0], X.dtype)
        return self._minimise(X, np.asarray(classes), _soft_objective(X, matrix, weights, self.l2, self.fit_intercept))

    def fit_likelihood(self, X: Any, likelihood: Any, *, classes: Sequence[Any]) -> SoftmaxRegression:
        """Fit the forward loss: `likelihood` (n, K) is Pr[what was observed | label k]."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        matrix = _rows_for("likelihood", likelihood, X, len(classes))
        return self._minimise(X, np.asarray(classes), _forward_objective(X, matrix, self.l2, self.fit_intercept))

    def _minimise(self, X: Any, classes: npt.NDArray[Any], objective: Objective) -> SoftmaxRegression:
        check_positive("SoftmaxRegression", "tol", self.tol)
        if check_real("SoftmaxRegression", "l2", self.l2) < 0:
            raise invalid("SoftmaxRegression", "l2", "be >= 0", got=self.l2)
        limit = check_integer("SoftmaxRegression", "max_iter", self.max_iter, least=1)
        start = self._start(X.shape[1], len(classes))
        options = {"maxiter": limit, "maxfun": 2 * limit + 20, "gtol": self.tol, "ftol": 0.0, "maxcor": 10}
        found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        theta = found.x.reshape(X.shape[1] + 1, len(classes))
        self.classes_ = classes
        self.coef_ = theta[:-1].T.copy()
        self.intercept_ = theta[-1].copy()
        self.n_iter_ = int(found.nit)
        return self

    def _start(self, n_features: int, n_classes: int) -> Floats:
        theta = np.zeros((n_features + 1, n_classes))
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == (n_classes, n_features):
            theta[:-1], theta[-1] = self.coef_.T, self.intercept_
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
        labels: npt.NDArray[Any] = self.classes_[self._logits(X).argmax(axis=1)]
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
    return matrix.astype(X.dtype, copy=False)


def _soft_objective(X: Any, targets: Any, weights: Floats, l2: float, intercept: bool) -> Objective:
    """Return loss and gradient for soft targets; they enter through X'Q and the column sums of Q alone."""
    n_classes = targets.shape[1]
    if not scipy.sparse.issparse(targets):
        targets = targets * weights[:, None]
    inner = np.asarray((targets.T @ X).T if not scipy.sparse.issparse(X) else (X.T @ targets), dtype=np.float64)
    inner = np.asarray(inner.todense() if scipy.sparse.issparse(inner) else inner)
    sums = np.asarray(targets.sum(axis=0), dtype=np.float64).reshape(n_classes)
    total = float(weights.sum(dtype=np.float64))

    def objective(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(-1, n_classes)
        logits, peak = _logits(X, theta)
        mass = np.exp(logits - peak)
        norm = mass.sum(axis=1, keepdims=True)
        loss = float(((np.log(norm) + peak)[:, 0].astype(np.float64) * weights).sum())
        loss -= float((inner * theta[:-1]).sum() + sums @ theta[-1])
        residual = mass * (weights[:, None] / norm)
        return _regularised(X, theta, loss, residual, inner, sums, total, l2, intercept)

    return objective


def _forward_objective(X: Any, likelihood: Floats, l2: float, intercept: bool) -> Objective:
    """Return loss and gradient of -log sum_k p_k l_k."""
    n_classes = likelihood.shape[1]
    nothing, no_sums = np.zeros((X.shape[1], n_classes)), np.zeros(n_classes)
    tiny = np.finfo(likelihood.dtype).tiny

    def objective(flat: Floats) -> tuple[float, Floats]:
        theta = flat.reshape(-1, n_classes)
        logits, peak = _logits(X, theta)
        mass = np.exp(logits - peak)
        mass /= mass.sum(axis=1, keepdims=True)
        explained = mass * likelihood
        chance = np.maximum(explained.sum(axis=1, keepdims=True), tiny)
        loss = -float(np.log(chance).sum(dtype=np.float64))
        explained /= chance
        mass -= explained
        return _regularised(X, theta, loss, mass, nothing, no_sums, X.shape[0], l2, intercept)

    return objective


def _logits(X: Any, theta: Floats) -> tuple[Floats, Floats]:
    """Return X W + b in the precision of X, and the largest logit of each row."""
    logits = X @ theta[:-1].astype(X.dtype) + theta[-1].astype(X.dtype)
    return logits, logits.max(axis=1, keepdims=True)


def _regularised(
    X: Any,
    theta: Floats,
    loss: float,
    residual: Floats,
    inner: Floats,
    sums: Floats,
    total: float,
    l2: float,
    intercept: bool,
) -> tuple[float, Floats]:
    """Return the mean loss with its penalty, and the gradient, flat."""
    gradient = np.empty_like(theta)
    gradient[:-1] = (X.T @ residual - inner) / total + l2 * theta[:-1]
    gradient[-1] = (residual.sum(axis=0, dtype=np.float64) - sums) / total if intercept else 0.0
    penalty = 0.5 * l2 * float((theta[:-1] ** 2).sum())
    return loss / total + penalty, gradient.reshape(-1)
