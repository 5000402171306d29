"""Label-free beliefs that moments are centred by, and the spread of the noise behind a guarantee.

>>> checked_centre(None, 3, 4).tolist()
[[0.25, 0.25, 0.25, 0.25]]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._loss import ZCDP
from labeldp._validate import check_probability_rows
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.release import Sensitivity

Floats = npt.NDArray[np.floating[Any]]

#: A log-prior of less than this does not rule a class out for good.
LEAST_PRIOR = 1e-6


def noise_scale(sensitivity: Sensitivity, guarantee: Guarantee) -> float:
    """Return the standard deviation of the noise behind a guarantee of `measure`, in its integers; for penalties only.

    zCDP is l2^2 / (2 sigma^2) and pure epsilon is rate * l1; a discrete Laplace of rate a has variance
    2 e^a / (e^a - 1)^2 = 1 / (2 sinh(a/2)^2).
    """
    loss, worst = guarantee.loss, guarantee.epsilon()
    if isinstance(loss, ZCDP):
        return sensitivity.l2 / math.sqrt(2.0 * loss.rho)
    if math.isinf(worst) or sensitivity.l1 == 0:
        return 0.0
    return 1.0 / (math.sqrt(2.0) * math.sinh(worst / sensitivity.l1 / 2.0))


def logs(belief: Floats) -> Floats:
    """Return log-probabilities, none of which rules a class out for good."""
    logs: Floats = np.log(np.maximum(belief, LEAST_PRIOR))
    return logs


def checked_centre(centre: Any, n: int, n_classes: int) -> Floats:
    """Return the belief as (1, K) or (n, K) probabilities."""
    if centre is None:
        return np.full((1, n_classes), 1.0 / n_classes)
    rows = check_probability_rows("SufficientStatistics", "centre", np.atleast_2d(np.asarray(centre)))
    if rows.shape not in ((1, n_classes), (n, n_classes)):
        got = Described(f"an array of shape {rows.shape}")
        raise invalid("SufficientStatistics", "centre", f"have shape ({n_classes},) or ({n}, {n_classes})", got=got)
    return rows.astype(np.float64)
