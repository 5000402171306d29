"""`UnitRows`: every row brought to norm one, the same way for dense and sparse features.

>>> UnitRows().fit_transform([[3.0, 4.0], [0.0, 0.0]]).round(9).tolist()
[[0.6, 0.8], [0.0, 0.0]]

Design notes. scikit-learn's `Normalizer` divides by the norm and may end an ulp above one. A sensitivity that says
"norm at most one" must not rest on that, so rows are divided by a norm rounded up: the result is at most one. A row of
zeros stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import validate_data

Floats = npt.NDArray[np.floating[Any]]


class UnitRows(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Divide each row by its Euclidean norm, rounded up by a few ulps; labels are never looked at."""

    def fit(self, X: Any, y: Any = None) -> UnitRows:
        """Learn the number of columns; there is nothing else to learn."""
        validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        return self

    def transform(self, X: Any) -> Any:
        """Return rows of norm at most one (and one but for rounding); rows of zeros stay."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return unit_rows(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        return tags


def unit_rows(X: Any) -> Any:
    """Return the rows of a checked dense or csr matrix at norm one; float32 stays float32.

    The division is by norm * (1 + 8 ulp): a norm of d terms summed pairwise, a root and a quotient each lose less.
    """
    resolution = float(np.finfo(X.dtype).eps)
    norms = row_norms(X.astype(np.float64, copy=False)) * (1 + 8 * resolution)
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_matrix(scipy.sparse.diags_array(inverse) @ X, dtype=X.dtype)
    rows: Floats = (X * inverse[:, None]).astype(X.dtype, copy=False)
    return rows
