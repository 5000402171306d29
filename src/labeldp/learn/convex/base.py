"""What all convex learners share: bounded rows, labels on their way in, and how a linear model predicts.

Every sensitivity in this folder is a multiple of the largest norm of a row. `RowMap` brings rows within a public bound and
appends a constant, whose weight is the intercept. `ConvexClassifier` applies it, to the rows that are learned from and to
those that are predicted.

>>> import numpy as np
>>> rows = RowMap(clip=1.0, unit=False, constant=0.5)
>>> rows.apply(np.array([[3.0, 4.0], [0.3, 0.4]])).round(6).tolist()
[[0.6, 0.8, 0.5], [0.3, 0.4, 0.5]]
>>> round(rows.radius, 6)
1.118034

*The norm in floating point.* A row's norm is taken of the row divided by a power of two near its largest entry, which is
exact. Squares of entries near 1e-162 would be rounded to nothing or to twice their size, and the row brought to "norm one"
would be sqrt(d) long; squares of entries above 1e154 would be infinite. Entries of a sparse row that are stored in several
parts are added up first: the norm of the parts is not that of the row.

>>> tiny = np.full((1, 4), 1.6e-162)
>>> float(np.linalg.norm(RowMap(clip=1.0, unit=True, constant=0.0).apply(tiny)).round(6))
1.0

Design notes. A fitted learner keeps numbers, arrays and text only, and no objects of its own: it can be saved, copied and
read by eye.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex.losses import Loss, find_loss
from labeldp.release import SensitiveLabels
from labeldp.release.labels import box_labels
from labeldp.release.scores import ScoredClassifier
from labeldp.validate import check_positive, check_real, expect_numbers

UNIT_NORM = "unit-norm"
#: Clipped rows end this much below the bound, relatively: a norm of d terms, a root and a quotient lose less (d < 1e6).
CLIP_ROOM = 1e-9


@dataclass(frozen=True, kw_only=True)
class RowMap:
    """Clip rows to norm `clip` (or bring them to it, if `unit`), then append `constant` unless it is 0.

    Rows of zeros stay as they are.
    """

    clip: float
    unit: bool
    constant: float

    @property
    def radius(self) -> float:
        """The largest norm of a row with its constant, rounded up."""
        return math.nextafter(math.hypot(self.clip, self.constant), math.inf)

    def apply(self, X: Any) -> Any:
        """Return float64 rows, dense or csr as they came, all of norm at most `radius`; refuse what is not finite."""
        rows = read_finite(X)
        factors = self._find_factors(*split_norms(rows))
        if scipy.sparse.issparse(rows):
            return self._scale_sparse(rows, factors)
        out = np.empty((rows.shape[0], rows.shape[1] + (self.constant > 0)))
        np.multiply(rows, factors[0][:, None], out=out[:, : rows.shape[1]])
        out[:, : rows.shape[1]] *= factors[1][:, None]
        if self.constant:
            out[:, -1] = self.constant
        return out

    def _find_factors(self, scales: Floats, norms: Floats) -> tuple[Floats, Floats]:
        """Return two factors per row, the first a power of two: their product may be beyond the range of floats."""
        room = self.clip * (1 - CLIP_ROOM)
        with np.errstate(over="ignore"):  # of a row near the largest float: beyond the clip, as it should be
            longer = norms * scales > room
        scaled = np.divide(room, norms, out=np.ones_like(norms), where=norms > 0)
        change = norms > 0 if self.unit else longer
        return np.where(change, 1.0 / scales, 1.0), np.where(change, scaled, 1.0)

    def _scale_sparse(self, rows: Any, factors: Sequence[Floats]) -> Any:
        scaled = rows
        for factor in factors:
            scaled = scipy.sparse.csr_matrix(scipy.sparse.diags(factor) @ scaled)
        if not self.constant:
            return scaled
        column = scipy.sparse.csr_matrix(np.full((rows.shape[0], 1), self.constant))
        return scipy.sparse.hstack([scaled, column], format="csr")


def read_finite(X: Any) -> Any:
    """Return a float64 copy of rows, dense or csr, a sparse entry stored once; refuse NaN and infinities.

    Every sensitivity here is a multiple of a norm, and what is not a number has none.
    """
    rows = X.astype(np.float64)
    if scipy.sparse.issparse(rows):
        rows = scipy.sparse.csr_matrix(rows)
        rows.sum_duplicates()
    if not np.isfinite(rows.data if scipy.sparse.issparse(rows) else rows).all():
        fix = "Clean the features, and check what a transform or a network makes of them."
        raise invalid("RowMap", "X", "be finite", got=Described("entries that are NaN or infinite"), fix=fix)
    return rows


def split_norms(rows: Any) -> tuple[Floats, Floats]:
    """Return a power of two near each row's largest entry, and the norm of the row divided by it: in [0.5, sqrt d).

    The power is kept to [2^-1022, 2^1022], so that it and its inverse are floats. A row of zeros has norm 0.
    """
    sparse = scipy.sparse.issparse(rows)
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        return np.ones(rows.shape[0]), np.zeros(rows.shape[0])
    largest = abs(rows).max(axis=1).toarray().reshape(-1) if sparse else np.abs(rows).max(axis=1)
    exponents = np.clip(np.frexp(largest)[1], -1022, 1022)
    scales = np.ldexp(1.0, np.where(largest > 0, exponents, 0))
    inverse = 1.0 / scales
    near = scipy.sparse.csr_matrix(scipy.sparse.diags(inverse) @ rows) if sparse else rows * inverse[:, None]
    return scales, row_norms(near)


class Inputs(NamedTuple):
    """What a learner learns from: the map of its rows, the rows within their bound, and the boxed labels."""

    row_map: RowMap
    rows: Any
    labels: SensitiveLabels


class ConvexClassifier(ScoredClassifier, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear classifier on bounded rows.

    `fit` of a subclass calls `_read_inputs`, releases something about the labels, and hands what it learned to `_keep`.
    """

    clip: Any
    fit_intercept: bool
    intercept_scaling: float
    classes: Any
    label_set: str
    row_kind: ClassVar[type[RowMap]] = RowMap

    def _read_inputs(self, X: Any, y: Any) -> Inputs:
        """Return the bounded rows and the boxed labels, or refuse."""
        owner = type(self).__name__
        row_map = self._make_row_map()
        X = self._check_rows(X, reset=True)
        labels = box_labels(owner, y, n_rows=X.shape[0], classes=self.classes, label_set=self.label_set)
        return Inputs(row_map, row_map.apply(X), labels)

    def _make_row_map(self) -> RowMap:
        return make_row_map(
            type(self).__name__,
            clip=self.clip,
            fit_intercept=self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
        )

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        with expect_numbers(type(self).__name__, X):
            return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)

    def _keep(
        self,
        weights: Floats,
        inputs: Inputs,
        *,
        loss: Loss,
        guarantee: Guarantee,
        seeded: bool,
    ) -> None:
        """Keep the released model: weights (C, D), the constant's weight turned into the intercept."""
        row_map = inputs.row_map
        self.coef_ = weights[:, :-1].copy() if row_map.constant else weights.copy()
        self.intercept_ = weights[:, -1] * row_map.constant if row_map.constant else np.zeros(len(weights))
        self._loss_name = loss.name
        self._clip, self._unit_norm = row_map.clip, row_map.unit
        self.classes_ = np.asarray(inputs.labels.classes)
        self.guarantee_ = guarantee
        self.seeded_ = seeded

    def _find_scores(self, X: Any) -> Floats:
        """Return the linear scores (n, C): new rows are bounded like those that were learned from."""
        check_is_fitted(self, "coef_")
        row_map = self.row_kind(clip=self._clip, unit=self._unit_norm, constant=0.0)
        rows = row_map.apply(self._check_rows(X, reset=False))
        scores: Floats = np.asarray(rows @ self.coef_.T) + self.intercept_
        return scores

    def decision_function(self, X: Any) -> Floats:
        """Return the scores: one column per class, or for two classes one number, > 0 for the second."""
        scores = self._find_scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        scores = self._find_scores(X)
        return find_loss(self._loss_name, len(self.classes_)).probabilities(scores)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def make_row_map(owner: str, *, clip: Any, fit_intercept: bool, intercept_scaling: Any) -> RowMap:
    """Return the map that the parameters of a learner describe, or say what is missing.

    The constant is `intercept_scaling` times the bound on the norm, or 0 without an intercept.
    """
    if clip is None:
        fix = 'Pass a public bound on the norm of a row (longer rows are scaled down to it), or clip="unit-norm".'
        raise invalid(owner, "clip", "be given: sensitivity is a multiple of it", got=clip, fix=fix)
    unit = isinstance(clip, str)
    if unit and clip != UNIT_NORM:
        raise invalid(owner, "clip", f'be a number or "{UNIT_NORM}"', got=clip)
    bound = 1.0 if unit else check_positive(owner, "clip", clip)
    constant = 0.0
    if fit_intercept:
        fix = "Use fit_intercept=False for no intercept."
        constant = bound * check_positive(owner, "intercept_scaling", intercept_scaling, fix=fix)
    return RowMap(clip=bound, unit=unit, constant=constant)


def check_penalty(owner: str, value: Any) -> float:
    """Return lambda > 0: without strong convexity a minimiser may move without bound."""
    number = check_real(owner, "l2", value)
    if not (number > 0 and math.isfinite(number)):
        fix = "The sensitivity of a minimiser is a multiple of 1 / l2."
        raise invalid(owner, "l2", "be finite and > 0", got=value, fix=fix)
    return number
