"""Features as a clusterer wants them: one row an example, and not too many columns.

>>> import numpy as np
>>> flat_features(np.ones((5, 2, 3)), n_components=None, random_state=0).shape
(5, 3)

Design notes. Labels are never asked for. k-means in the first hundred or so principal components of half-whitened image
features found purer clusters than in all of them, at a fifth of the time (RECIPES.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldp._validate import check_integer


def flat_features(X: Any, *, n_components: int | None, random_state: int) -> Any:
    """Return a row per example to cluster: views averaged, images flattened, and the first principal components.

    Features (n, views, d) are averaged over the views; (n, ...) of more axes are images and are flattened. Where there
    are no more than `n_components` columns, or it is None, or the features are sparse, they stay as they are.
    """
    rows = X
    if isinstance(X, np.ndarray) and X.ndim > 2:
        rows = X.mean(axis=1) if X.ndim == 3 else X.reshape(len(X), -1)
    if n_components is None or not isinstance(rows, np.ndarray) or rows.shape[1] <= n_components:
        return rows
    from sklearn.decomposition import PCA

    count = check_integer("ClusterPrior", "n_components", n_components, least=1)
    rank = min(count, *rows.shape)
    return PCA(rank, svd_solver="randomized", random_state=random_state).fit_transform(rows)
