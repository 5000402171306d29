"""Features as an inner estimator can take them: the check that every learner around another one makes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data


def checked_rows(learner: BaseEstimator, X: Any, *, inner: Any, reset: bool) -> Any:
    """Return a numeric matrix, sparse or with gaps only where `inner` says that it can; `learner` keeps the shape.

    Views of an example (n, views, d) and images (n, ...) pass where `inner` has the tag `three_d_array`.
    """
    accepts = get_tags(inner).input_tags
    return validate_data(
        learner,
        X,
        accept_sparse="csr" if accepts.sparse else False,
        ensure_all_finite="allow-nan" if accepts.allow_nan else True,
        dtype=[np.float64, np.float32],
        allow_nd=bool(accepts.three_d_array),
        reset=reset,
    )
