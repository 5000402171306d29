"""Multi-label models on targets in which a label may be always or never there: small parts have many such columns.

>>> import numpy as np
>>> from sklearn.tree import DecisionTreeClassifier
>>> X, Y = np.array([[0.0], [1.0]]), np.array([[0, 1, 0], [1, 1, 0]])
>>> fit_labels(DecisionTreeClassifier(), X, Y).predict(X).tolist()
[[0, 1, 0], [1, 1, 0]]

Design notes. A constant column has nothing to be learned from, and scikit-learn's estimators refuse it, warn, or drop a
column of probabilities. So it is set aside and put back. One column that varies is handed over with its complement: a
single column would be taken for a binary target, of another shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, invalid

Array = npt.NDArray[Any]
Indicator = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelModel:
    """A fitted multi-label model of the varying columns (None if there are none) and the values of the constant ones."""

    model: Any
    varying: npt.NDArray[np.int64]
    constant: Indicator

    def predict(self, X: Any) -> Indicator:
        """Return rows of 0 and 1, a column per label."""
        rows = np.tile(self.constant, (X.shape[0], 1))
        if self.model is not None:
            found = self.model.predict(X)
            found = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
            width = max(self.varying.size, 2)
            if found.shape != (X.shape[0], width) or not np.isin(found, (0, 1)).all():
                fix = "It must be a multi-label classifier, such as OneVsRestClassifier(...)."
                got = Described(f"a prediction of shape {found.shape}, dtype {found.dtype}")
                raise invalid("MultiLabelPATE", "teacher or student", "predict rows of 0 and 1", got=got, fix=fix)
            rows[:, self.varying] = found[:, : self.varying.size]
        return rows

    def scores(self, X: Any) -> Floats:
        """Return the probability of each label; where the model has none, its prediction."""
        rows = np.tile(self.constant.astype(np.float64), (X.shape[0], 1))
        if self.model is None:
            return rows
        if not hasattr(self.model, "predict_proba"):
            return self.predict(X).astype(np.float64)
        found = self.model.predict_proba(X)
        # Some multi-label estimators return a matrix, others a list with Pr[0], Pr[1] for each label.
        matrix = np.stack([part[:, 1] for part in found], axis=1) if isinstance(found, list) else np.asarray(found)
        if np.isnan(matrix).any():
            got = Described("NaN among its probabilities")
            raise invalid("MultiLabelPATE", "teacher or student", "return probabilities", got=got)
        rows[:, self.varying] = matrix[:, : self.varying.size]
        return rows


def fit_labels(estimator: Any, X: Any, targets: Array) -> LabelModel:
    """Fit the estimator on the columns that vary."""
    constant = targets[0].astype(np.uint8)
    varying = np.flatnonzero((targets != targets[0]).any(axis=0))
    if not varying.size:
        return LabelModel(model=None, varying=varying, constant=constant)
    columns = targets[:, varying]
    if varying.size == 1:
        columns = np.hstack([columns, 1 - columns])
    return LabelModel(model=estimator.fit(X, columns.astype(np.int64)), varying=varying, constant=constant)
