"""What all convex learners share: how features and labels come in, and how a linear model predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _assert_all_finite, check_is_fitted, column_or_1d, validate_data

from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.learn.convex._losses import Loss
from labeldp.learn.convex._rows import RowMap, row_map
from labeldp.release import SensitiveLabels

Floats = npt.NDArray[np.floating[Any]]


class ConvexClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear classifier on clipped rows. Subclasses release something of the labels in `fit` and call `_keep`."""

    clip: Any
    fit_intercept: bool
    intercept_scaling: float
    classes: Any
    label_set: str
    _rows: RowMap
    _loss: Loss

    def _prepared(self, X: Any, y: Any) -> tuple[Any, SensitiveLabels]:
        """Return the bounded rows and the boxed labels, or refuse."""
        owner = type(self).__name__
        self._rows = self._row_map()
        X = self._checked(X, reset=True)
        labels = self._boxed(y)
        if X.shape[0] != len(labels):
            got = Described(f"{len(labels)} for {X.shape[0]} rows")
            raise invalid(owner, "y", "have one label per row of X (inconsistent numbers of samples)", got=got)
        if labels.n_classes < 2:
            got, fix = Described("1 class"), "Pass classes=, the full public list; a class need not occur."
            raise invalid(owner, "y", "have two classes or more", got=got, fix=fix)
        return self._rows.apply(X), labels

    def _row_map(self) -> RowMap:
        return row_map(
            type(self).__name__,
            clip=self.clip,
            fit_intercept=self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
        )

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)

    def _boxed(self, y: Any) -> SensitiveLabels:
        """Check labels as scikit-learn does, and box them."""
        owner = type(self).__name__
        if isinstance(y, SensitiveLabels):
            if self.classes is not None and tuple(np.asarray(self.classes).tolist()) != y.classes:
                got = Described(f"{len(self.classes)} for labels that have their own {y.n_classes}")
                raise invalid(owner, "classes", "be those of the labels", got=got, fix="Leave classes out.")
            return y
        if y is None:
            fix = "This learner requires y to be passed, but the target y is None."
            raise invalid(owner, "y", "be given", got=None, fix=fix)
        if not hasattr(y, "dtype") or isinstance(y, np.ndarray):
            y = column_or_1d(y, warn=True)
            _assert_all_finite(y, input_name="y", estimator_name=owner)
            check_classification_targets(y)
        return SensitiveLabels(y, classes=self.classes, name=self.label_set)

    def _keep(
        self, weights: Floats, labels: SensitiveLabels, *, loss: Loss, guarantee: Guarantee, seeded: bool
    ) -> None:
        """Keep the released model: weights (C, D), the constant's weight turned into the intercept."""
        constant = self._rows.constant
        self._loss = loss
        self.coef_ = weights[:, :-1].copy() if constant else weights.copy()
        self.intercept_ = weights[:, -1] * constant if constant else np.zeros(len(weights))
        self.classes_ = np.asarray(labels.classes)
        self.guarantee_ = guarantee
        self.seeded_ = seeded

    def _scores(self, X: Any) -> Floats:
        """Return the linear scores (n, C) of clipped rows: new rows are bounded like those that were learned from."""
        check_is_fitted(self, "coef_")
        X = self._checked(X, reset=False)
        rows = replace(self._rows, constant=0.0).apply(X)
        scores: Floats = np.asarray(rows @ self.coef_.T) + self.intercept_
        return scores

    def decision_function(self, X: Any) -> Floats:
        """Return the scores: one column per class, or for two classes one number, > 0 for the second."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities (n, K), in the order of `classes_`."""
        scores = self._scores(X)
        return self._loss.probabilities(scores)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
