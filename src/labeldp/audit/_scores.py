"""What an attacker reads off the things a pipeline publishes: a score for every example and label.

>>> import labeldp
>>> release = labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(2.0, n_classes=2), rng=0)
>>> release_scores(release).shape
(3, 2)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.release import Release

Floats = npt.NDArray[np.floating[Any]]

#: Probabilities below this count as this: a score is finite, and a label that cannot be still comes last.
LEAST = 1e-12


def release_scores(release: Release) -> Floats:
    """Return log Pr[what was released | label y] for every example and label y, and log of a released prior with it.

    The prior belongs to it: where a histogram reveals a label, the response to it may be constant and say nothing.
    """
    scores = np.log(np.maximum(release.channel.likelihood(release.codes), LEAST))
    if release.prior is None or release.prior_index is None:
        return scores
    prior = np.log(np.maximum(np.asarray(release.prior, np.float64), LEAST))
    answer: Floats = scores + prior[release.prior_index]
    return answer


def model_scores(model: Any, X: Any) -> Floats:
    """Return log of the model's `predict_proba`, for scores of a fitted classifier."""
    answer: Floats = np.log(np.maximum(np.asarray(model.predict_proba(X), np.float64), LEAST))
    return answer
