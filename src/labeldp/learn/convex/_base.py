"""What all convex learners share: how features and labels come in, and how a linear model predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from labeldp.guarantee import Guarantee
from labeldp.learn.convex._losses import Loss
from labeldp.learn.convex._rows import RowMap, row_map
from labeldp.release import SensitiveLabels
from labeldp.release._boxing import boxed_labels

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
        labels = boxed_labels(owner, y, n_rows=X.shape[0], classes=self.classes, label_set=self.label_set)
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
