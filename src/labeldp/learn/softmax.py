"""`SoftmaxRegression`: multinomial logistic regression on L-BFGS that takes plain labels, soft targets or likelihoods.

>>> import numpy as np
>>> X = np.array([[-1.0], [1.0]])
>>> model = SoftmaxRegression().fit_targets(X, [[1.2, -0.2], [0.0, 1.0]], classes=["no", "yes"])
>>> model.predict([[-2.0], [3.0]]).tolist()
['no', 'yes']

The losses, their gradients and the solver are those of `labeldp.softmax`. Rows of a soft target sum to one and may be
negative: the channel's unbiased targets are, and the loss stays convex. A likelihood says how probable what was observed is
under each label; the forward loss then needs no guess of the label at all. Both may be `labeldp.channel.LazyRows`, of which
some rows at a time are made: with many classes an (n, K) array would not fit into memory. The answer is the same up to
the order of sums.

Features may be dense, sparse, or `labeldp.softmax.RowBatches`: rows that are read in batches in each step of the solver,
so that only one batch is in memory. The answer is the same up to the order of sums: both end where no entry of the
gradient exceeds `tol`.

*How strong a penalty?* With labels as they are, l2 = 0.001 is little. Answers that say little are another matter: a model of many columns
fits their noise, and its probabilities are then worse than those of a constant. So `l2="auto"`, the default, asks the answers themselves
(`choose_l2`), where they have few nats for each coefficient: a third of them after the other is held out, models of some penalties (`LADDER`) are
fitted on the others, and a stronger one is taken if it explains what was held out better, by half a standard error at least. An answer says
ln K + sum_k q_k ln q_k nats, q = L / sum L its likelihoods as shares: that is its information about a label of which nothing else is
known. All this reads what was released and nothing else.

Columns may have any units. Their means and scales are taken from the features alone, which are public here, in a first pass;
the solver works on standardised columns and `coef_` and `intercept_` refer to the columns as they came (`labeldp.softmax`
has the formulas). Multiplying a column by a constant, or adding one, changes no prediction. Features that all lie in [-1, 1] and
are none of them narrow (pixels, shares, categories) share a unit already and stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import scipy.special
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.channel import LazyRows
from labeldp.channel.evidence import keep_small, make_rows
from labeldp.errors import Described, hide_warnings, invalid
from labeldp.softmax import (
    ColumnMoments,
    Columns,
    RowBatches,
    SoftmaxObjective,
    minimise,
    read_batches,
    softmax,
    sum_forward,
    sum_soft,
    sum_targets,
)
from labeldp.validate import check_classes, check_integer, check_positive, check_real, check_weights, expect_numbers

#: The penalty of labels as they are, and the stronger ones, as multiples of it, that faint answers may choose.
L2, LADDER = 1e-3, (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
#: Answers of fewer nats than so many for each coefficient may be noise; in so many parts they are held out to tell. With more classes
#: than this nothing was measured, and nothing is chosen.
NATS_PER_COEFFICIENT, FOLDS, MOST_CLASSES = 20.0, 3, 30
#: Of more rows than this one part only is held out: each fit takes long, and a third of them is many.
MANY_ROWS = 50_000
#: By how many standard errors a stronger penalty must explain what is held out better.
SURENESS = 0.5
#: Steps of the solver in a fit that is there to be compared: one that needs more is learning noise.
TRIAL_STEPS = 100
#: The least chance that an answer has.
LEAST_CHANCE = 1e-300
#: Sums in float32 err by 1e-7 of their size, and centring by m scales multiplies that by m: beyond this the gradient would
#: not come below the default `tol`.
MOST_SHORT = 8.0


class SoftmaxRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear softmax classifier: mean loss + l2 / 2 ||W S||^2, the intercept free, by L-BFGS.

    Parameters
    ----------
    l2 : float or "auto"
        Weight of the squared norm of the coefficients of the standardised columns, relative to the mean loss. On columns
        that are standardised already, scikit-learn's C is 1 / (n l2), and 2 / (n l2) for two classes, where it has one
        coefficient and this has two of half its size. "auto" is 0.001, and more where likelihoods say little (see above).
    max_iter : int
        Most iterations of L-BFGS; `n_iter_` says how many it took. Where it ends above `tol`, scikit-learn's
        ConvergenceWarning says so.
    tol : float
        Stop when no entry of the gradient of the mean loss exceeds this.
    fit_intercept : bool
        Whether to learn a free constant per class.
    warm_start : bool
        Whether to start from the coefficients of the last fit.
    standardise : bool
        Whether S are the scales of the columns: the standard deviation, or the distance of the two values where a column
        has two; 1 where features share a unit (see above). Without it S = 1: the penalty then depends on units, and so does
        the way of the solver. For features whose scales mean something, such as principal components.

    Attributes
    ----------
    coef_, intercept_ : (K, d), (K,)
        The coefficients, in the units of the columns as they came, and the constants.
    l2_ : float
        The penalty, chosen or given.
    n_iter_ : int
        The iterations of the solver in the last fit.
    """

    #: `fit_targets` and `fit_likelihood` take `labeldp.channel.LazyRows`.
    takes_lazy_rows = True
    standardise: bool = True  # models of version 0.1 were saved without it

    def __init__(
        self,
        *,
        l2: float | str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-5,
        fit_intercept: bool = True,
        warm_start: bool = False,
        standardise: bool = True,
    ) -> None:
        self.l2 = l2
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.standardise = standardise

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SoftmaxRegression:
        """Fit on plain labels. `sample_weight` (n,), >= 0, multiplies the losses: a weight of 2 is a row that is there twice."""
        if y is not None:  # without them, scikit-learn says what is missing
            y = check_classes("SoftmaxRegression", "y", y)
        if isinstance(X, RowBatches):
            X = self._check_features(X)
        else:
            with expect_numbers("SoftmaxRegression", X):
                X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise invalid(
                "SoftmaxRegression",
                "y",
                "have two classes or more",
                got=Described("one class" if len(classes) else "none"),
            )
        weights = _check_weights(sample_weight, X)
        X, columns = self._measure_columns(X, weights)
        one_hot = scipy.sparse.csr_matrix((weights, (np.arange(len(codes)), codes)), shape=(len(codes), len(classes)))
        sizes = {"total": weights.sum(), "n_classes": len(classes)}
        return self._minimise(X, classes, self._soft_objective(X, one_hot, weights, columns, **sizes))

    def fit_targets(
        self, X: Any, targets: Any, *, classes: Sequence[Any], sample_weight: Any = None
    ) -> SoftmaxRegression:
        """Fit on soft targets (n, K): rows sum to one; entries may be negative. `sample_weight` as for `fit`."""
        X = self._check_features(X)
        weights = _check_weights(sample_weight, X)
        X, columns = self._measure_columns(X, None if sample_weight is None else weights)

        checked = _check_rows("targets", targets, X, len(classes), check=_check_targets)

        def take_targets(positions: Any) -> Floats:
            matrix: Floats = make_rows(checked, positions).astype(X.dtype, copy=False)
            return matrix if sample_weight is None else matrix * weights[positions, None]

        parts = take_targets if isinstance(checked, LazyRows) else take_targets(slice(None))
        total = weights.sum(dtype=np.float64)
        objective = self._soft_objective(X, parts, weights, columns, total=total, n_classes=len(classes))
        return self._minimise(X, np.asarray(classes), objective)

    def fit_likelihood(
        self, X: Any, likelihood: Any, *, classes: Sequence[Any], sample_weight: Any = None
    ) -> SoftmaxRegression:
        """Fit the forward loss: `likelihood` (n, K) is Pr[what was observed | label k]. `sample_weight` as for `fit`."""
        X = self._check_features(X)
        weights = None if sample_weight is None else _check_weights(sample_weight, X)
        checked = _check_rows("likelihood", likelihood, X, len(classes), check=_check_likelihood)
        chosen = self.plain_l2
        if isinstance(self.l2, str) and are_faint(checked, n_columns=X.shape[1]):
            chosen, _ = choose_l2(self, X, checked, classes=classes, weights=weights)
        return self.fit_chosen(X, checked, classes=classes, weights=weights, l2=chosen)

    def fit_chosen(
        self, X: Any, checked: Any, *, classes: Sequence[Any], weights: Floats | None, l2: float
    ) -> SoftmaxRegression:
        """`fit_likelihood` of features and likelihoods that were checked, with a penalty that is settled."""
        (fitted,) = self.fit_path(X, checked, classes=classes, weights=weights, strengths=[l2])
        return fitted

    def fit_path(
        self, X: Any, checked: Any, *, classes: Sequence[Any], weights: Floats | None, strengths: Sequence[float]
    ) -> Iterator[SoftmaxRegression]:
        """Fit with one penalty after the other, and return this model after each; what no penalty changes is made once."""
        X, columns = self._measure_columns(X, weights)

        def take_logarithms(positions: Any) -> Floats:
            with np.errstate(divide="ignore"):  # a label that is ruled out has log 0 = -inf, and exp of it is 0 again
                return np.ascontiguousarray(np.log(make_rows(checked, positions)).T, dtype=X.dtype)

        logarithms = take_logarithms if isinstance(checked, LazyRows) else take_logarithms(slice(None))
        for l2 in strengths:
            objective = SoftmaxObjective(
                curved=partial(sum_forward, X, logarithms=logarithms, weights=weights),
                linear=np.zeros((len(classes), X.shape[1] + 1)),
                total=float(X.shape[0]) if weights is None else float(weights.sum(dtype=np.float64)),
                l2=l2,
                intercept=self.fit_intercept,
                columns=columns,
            )
            yield self._minimise(X, np.asarray(classes), objective)

    def check_fit(self, X: Any, *, n_classes: int, n_rows: int | None = None) -> None:
        """Refuse what a fit on these rows would refuse, whatever their labels are (`labeldp.learn.rehearsal`); nothing is fitted."""
        self._check_parameters()
        if getattr(X, "ndim", 2) > 2 and get_tags(self).input_tags.three_d_array:
            return  # a subclass that makes rows of them first
        copied: SoftmaxRegression = clone(self)  # a fitted model stays as it is
        copied._check_features(X)

    def _check_parameters(self) -> tuple[float, int]:
        """Return the penalty of labels as they are and the most steps; refuse parameters that make no sense."""
        check_positive("SoftmaxRegression", "tol", self.tol)
        return self.plain_l2, check_integer("SoftmaxRegression", "max_iter", self.max_iter, least=1)

    def _check_features(self, X: Any) -> Any:
        if isinstance(X, RowBatches):
            self.n_features_in_ = X.shape[1]
            return X
        with expect_numbers("SoftmaxRegression", X):
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])

    def _measure_columns(self, X: Any, weights: Floats | None = None) -> tuple[Any, Columns | None]:
        """Return the features and the units of their columns.

        Short floats far from 0 (a year, a time stamp) are made long: what is left of their digits after centring would not
        do for the solver.
        """
        if not self.standardise:
            return X, None
        columns = ColumnMoments.of_rows(X, weights).columns(intercept=self.fit_intercept)
        far = bool((np.abs(columns.mean) > MOST_SHORT * columns.scale).any())
        if far and X.dtype == np.float32 and not isinstance(X, RowBatches):
            X = X.astype(np.float64)
        return X, columns

    def _soft_objective(
        self, X: Any, targets: Any, weights: Floats, columns: Columns | None, *, total: float, n_classes: int
    ) -> SoftmaxObjective:
        """Return the loss of soft targets, an array or a function of positions, that are multiplied by the weights already."""
        return SoftmaxObjective(
            curved=partial(sum_soft, X, weights=weights),
            linear=sum_targets(X, targets, n_classes=n_classes, intercept=self.fit_intercept),
            total=float(total),
            l2=self.plain_l2,
            intercept=self.fit_intercept,
            columns=columns,
        )

    def _minimise(self, X: Any, classes: npt.NDArray[Any], objective: SoftmaxObjective) -> SoftmaxRegression:
        _, limit = self._check_parameters()
        start, columns = self._start(X.shape[1], len(classes)), objective.columns
        if columns is not None:
            start = columns.to_standard(start)
        theta, self.n_iter_ = minimise(
            objective,
            start,
            max_iter=limit,
            tol=self.tol,
            owner=type(self).__name__,
            l2=objective.l2 if self.standardise else 0.0,
            dtype=X.dtype,
        )
        self.l2_ = objective.l2
        if columns is not None:
            theta = columns.to_raw(theta)
        self.classes_ = classes
        self.coef_ = theta[:, :-1].copy()
        self.intercept_ = theta[:, -1].copy()
        return self

    @property
    def plain_l2(self) -> float:
        """The penalty of labels as they are: l2, or what "auto" begins with."""
        if isinstance(self.l2, str) and self.l2 == "auto":
            return L2
        if check_real("SoftmaxRegression", "l2", self.l2) < 0:
            raise invalid("SoftmaxRegression", "l2", "be >= 0", got=self.l2)
        return float(self.l2)

    def _start(self, n_features: int, n_classes: int) -> Floats:
        theta = np.zeros((n_classes, n_features + 1))
        if self.warm_start and getattr(self, "coef_", np.empty(0)).shape == (n_classes, n_features):
            theta[:, :-1], theta[:, -1] = self.coef_, self.intercept_
        return theta

    def decision_function(self, X: Any) -> Floats:
        """Return the logits; for two classes the difference, as scikit-learn has it."""
        logits = self.find_logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def find_logits(self, X: Any) -> Floats:
        """Return the logits (n, K) of all classes."""
        check_is_fitted(self)
        if isinstance(X, RowBatches):
            logits = np.empty((len(X), len(self.classes_)))
            for positions, matrix in X.batches():
                logits[positions] = matrix @ self.coef_.T + self.intercept_
            return logits
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        answer: Floats = X @ self.coef_.T + self.intercept_
        return answer

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K)."""
        return softmax(self.find_logits(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row; logits of all rows are never in memory at once."""
        check_is_fitted(self)
        if not isinstance(X, RowBatches):
            X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        best = np.empty(X.shape[0], np.intp)
        for positions, matrix in read_batches(X, len(self.classes_)):
            best[positions] = (matrix @ self.coef_.T + self.intercept_).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# ------------------------------------------------------------------------------------------------ how strong a penalty


def are_faint(likelihood: Any, *, n_columns: int) -> bool:
    """Whether answers have so few nats for each coefficient of a model of so many columns that they may be noise to it.

    >>> likely = np.tile([[3.0, 1.0], [1.0, 3.0]], (500, 1))  # 0.13 nats each
    >>> are_faint(likely, n_columns=2), are_faint(likely, n_columns=20)
    (False, True)
    """
    n_rows, n_classes = likelihood.shape
    if isinstance(likelihood, LazyRows) or not 2 <= n_classes <= MOST_CLASSES or n_rows < 2 * FOLDS * n_classes:
        return False
    shares = likelihood / likelihood.sum(axis=1, keepdims=True)
    nats = n_rows * math.log(n_classes) + float(scipy.special.xlogy(shares, shares).sum())
    # Labels that are said as they are are no noise, however few.
    most = min(NATS_PER_COEFFICIENT * (n_classes - 1) * n_columns, 0.9 * n_rows * math.log(n_classes))
    return bool(0.0 < nats < most)


def choose_l2(
    estimator: SoftmaxRegression, X: Any, likelihood: Floats, *, classes: Sequence[Any], weights: Floats | None
) -> tuple[float, Floats]:
    """Return the penalty under which answers that are held out are explained best, and the held-out logits (n, K) of it.

    Rows are left out of a fit (`hold_out`), or where they are read in batches have no weight in it. Each model starts from the next
    stronger one.
    """
    parts = hold_out(len(likelihood))
    counts = np.ones(len(likelihood)) if weights is None else np.asarray(weights, dtype=np.float64)
    trial = make_trial(estimator).set_params(warm_start=True)
    first = estimator.plain_l2
    strengths = [first * factor for factor in LADDER] if isinstance(estimator.l2, str) else [first]
    logits = {l2: np.zeros(likelihood.shape) for l2 in strengths}
    for held in parts:
        if not counts[~held].any():
            return first, logits[first]
        in_batches = isinstance(X, RowBatches)
        rows, answers, others = (X, likelihood, X) if in_batches else (X[~held], likelihood[~held], X[held])
        kept = np.where(held, 0.0, counts) if in_batches else counts[~held]
        path = clone(trial).fit_path(
            rows, answers, classes=classes, weights=kept.astype(X.dtype), strengths=strengths[::-1]
        )
        with hide_warnings(ConvergenceWarning):  # only what is kept has to be finished
            for model in path:
                found = model.find_logits(others)
                logits[model.l2_][held] = found[held] if in_batches else found
    seen = np.where(np.any(parts, axis=0), counts, 0.0)
    explained = {l2: explain(logits[l2], likelihood, seen) for l2 in strengths}
    best = max(strengths, key=lambda l2: float(explained[l2].sum()))
    gains = explained[best] - explained[first]
    sure = gains.sum() > SURENESS * math.sqrt(float(gains @ gains))
    return (best, logits[best]) if sure else (first, logits[first])


def make_trial(estimator: SoftmaxRegression) -> Any:
    """Return an unfitted copy whose fits are there to be compared."""
    return clone(estimator).set_params(max_iter=min(estimator.max_iter, TRIAL_STEPS))


def hold_out(n_rows: int) -> list[npt.NDArray[np.bool_]]:
    """Return the rows that are held out together: every third of few rows in turn, one third of many, where that tells enough.

    >>> [held.tolist() for held in hold_out(4)]
    [[True, False, False, True], [False, True, False, False], [False, False, True, False]]
    """
    turn = np.arange(n_rows) % FOLDS
    return [turn == number for number in range(1 if n_rows > MANY_ROWS else FOLDS)]


def explain(logits: Floats, likelihood: Floats, counts: Floats) -> Floats:
    """Return the log of the chance of each row's answer under a model's logits, sum_k softmax(z)_k L_k, times its weight."""
    chances = (softmax(logits) * likelihood).sum(axis=1)
    return np.asarray(counts * np.log(np.maximum(chances, LEAST_CHANCE)))


def _check_weights(sample_weight: Any, X: Any) -> Floats:
    """Return one weight per row, in the precision of X; one for each, if none are given."""
    if isinstance(X, RowBatches):
        if sample_weight is None:
            return np.ones(len(X), X.dtype)
        return check_weights("SoftmaxRegression", "sample_weight", sample_weight, n_rows=len(X)).astype(X.dtype)
    answer: Floats = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
    if not answer.any():  # scikit-learn itself refuses it from 1.8 on
        raise invalid(
            "SoftmaxRegression", "sample_weight", "have a sum > 0", got=Described("weights that are all zero")
        )
    return answer


def _check_rows(name: str, values: Any, X: Any, n_classes: int, *, check: Callable[..., Floats]) -> Any:
    """Return checked rows: an array, or lazy rows where they are many, which are made once here to be looked at."""
    if isinstance(values, LazyRows) and values.shape == (X.shape[0], n_classes):
        values = keep_small(values)
        if isinstance(values, LazyRows):
            start = 0
            for batch in values:
                check(_check_finite(name, batch), first=start)
                start += len(batch)
            return values
    matrix = values if isinstance(values, LazyRows) else np.asarray(values)
    if isinstance(matrix, LazyRows) or matrix.dtype.kind not in "fiu" or matrix.shape != (X.shape[0], n_classes):
        got = Described(f"an array of shape {matrix.shape}")
        raise invalid("SoftmaxRegression", name, f"have shape ({X.shape[0]}, {n_classes})", got=got)
    return check(_check_finite(name, matrix))


def _check_finite(name: str, matrix: Floats) -> Floats:
    if not np.isfinite(matrix).all():
        raise invalid("SoftmaxRegression", name, "be finite", got=Described("NaN or infinity"))
    return matrix


def _check_targets(targets: Floats, first: int = 0) -> Floats:
    """Refuse rows that do not sum to one; rounding grows with the largest entry of a signed row."""
    sums = targets.sum(axis=1, dtype=np.float64)
    wrong = np.abs(sums - 1.0) > 1e-4 * np.maximum(1.0, np.abs(targets).max(axis=1))  # float32 targets are welcome
    if wrong.any():
        row = int(np.argmax(wrong))
        got = Described(f"a sum of {sums[row]:.9g} in row {first + row}")
        raise invalid("SoftmaxRegression", "targets", "have rows that sum to 1", got=got)
    return targets


def _check_likelihood(likelihood: Floats, first: int = 0) -> Floats:
    """Refuse a row that no label explains, and negative chances."""
    wrong = (likelihood < 0).any(axis=1) | (likelihood.max(axis=1) <= 0)
    if wrong.any():
        got = Described(f"row {first + int(np.argmax(wrong))}")
        fix = "What was observed has a chance under some label."
        raise invalid("SoftmaxRegression", "likelihood", "be >= 0 and not all zero in a row", got=got, fix=fix)
    return likelihood
