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

Design notes. A fitted learner keeps numbers, arrays and text only, and no objects of its own: it can be saved, copied and
read by eye.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp.arrays import Floats
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex.losses import Loss, find_loss
from labeldp.release import SensitiveLabels
from labeldp.release.labels import box_labels
from labeldp.release.scores import ScoredClassifier
from labeldp.validate import check_positive, check_real

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
        """Return float64 rows, dense or csr as they came, all of norm at most `radius`."""
        rows = X.astype(np.float64)
        factors = self._find_factors(row_norms(rows))
        if scipy.sparse.issparse(rows):
            return self._scale_sparse(rows, factors)
        out = np.empty((rows.shape[0], rows.shape[1] + (self.constant > 0)))
        np.multiply(rows, factors[:, None], out=out[:, : rows.shape[1]])
        if self.constant:
            out[:, -1] = self.constant
        return out

    def _find_factors(self, norms: Floats) -> Floats:
        room = self.clip * (1 - CLIP_ROOM)
        scaled = np.divide(room, norms, out=np.ones_like(norms), where=norms > 0)
        factors: Floats = scaled if self.unit else np.minimum(scaled, 1.0)
        return factors

    def _scale_sparse(self, rows: Any, factors: Floats) -> Any:
        scaled = scipy.sparse.csr_matrix(scipy.sparse.diags_array(factors) @ rows)
        if not self.constant:
            return scaled
        column = scipy.sparse.csr_matrix(np.full((rows.shape[0], 1), self.constant))
        return scipy.sparse.hstack([scaled, column], format="csr")


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
