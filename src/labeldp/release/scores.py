"""A score on raw labels says so: no guarantee covers it, and what is chosen by it reveals labels.

`score(X, y)` compares predictions with y as it stands. The number itself, and whatever is chosen by it, then depends on raw
labels without noise, beside the guarantee of the model. So every learner of labeldp that makes a promise has its `score`
from here, and it warns, once per process and learner. Whoever scores labels that are no secret declares it:

>>> import numpy as np, warnings
>>> from labeldp.learn import LabelPrivateClassifier, public_labels
>>> X, y = np.repeat([[-1.0], [1.0]], 500, axis=0), np.repeat(["no", "yes"], 500)
>>> model = LabelPrivateClassifier(epsilon=2.0, random_state=0).fit(X, y)
>>> TOLD.clear()  # as in a new process
>>> with warnings.catch_warnings(record=True) as told:
...     warnings.simplefilter("always")
...     _ = model.score(X, y)
>>> str(told[0].message).split(":")[0], told[0].category.__name__
('LabelPrivateClassifier.score reads raw labels', 'RawLabelWarning')
>>> with public_labels():
...     model.score(X, y)
1.0
>>> model.score(X, y, labels_are_public=True)
1.0

*How much choosing reveals.* Let two candidates differ in their prediction for one row only, a in one and b in the other. On
raw labels the candidate that names the row's label has one more right answer, always. A search by raw scores thus returns
the label itself, whatever the epsilon of the fits: the guarantee of a fit says nothing about the choice between fits.

*What this cannot see.* `GridSearchCV` and `cross_val_score` call `score` as long as they have no `scoring` of their own; with
one they call `predict` and compare it with y themselves. `CalibratedClassifierCV` never calls `score`: it fits its calibrator
on raw y. An estimator has no honest way to tell that such a tool is at work. Labels in a box (`SensitiveLabels`) stop all of
them: a box cannot be indexed, compared or read, and every learner of one label per row takes it as y.

Design notes. The warning is given once; `-W error::labeldp.errors.RawLabelWarning` makes it an error, every time. The context
manager holds for the current thread or task; worker processes of joblib do not inherit it and take the declaration through
scikit-learn's metadata routing (`set_score_request(labels_are_public=True)`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score

from labeldp.errors import Described, RawLabelWarning, invalid
from labeldp.release.labels import SensitiveLabels, refuse_masked
from labeldp.validate import hide_labels

#: The learners that were warned of in this process. Python's own register forgets whenever a library changes its filters.
TOLD: set[str] = set()
_DECLARED: ContextVar[bool] = ContextVar("labels_are_public", default=False)


@contextmanager
def public_labels() -> Iterator[None]:
    """Declare that the labels scored inside are no secret: `score` then does not warn.

    The declaration is the caller's word and is not checked. It holds for the current thread or task.
    """
    before = _DECLARED.set(True)
    try:
        yield
    finally:
        _DECLARED.reset(before)


class ScoredClassifier(ClassifierMixin):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that promises something about labels, and whose `score` says that it does not."""

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, labels_are_public: bool = False) -> float:
        """Return the accuracy on raw labels y, outside any guarantee; see `labeldp.learn.score_privately` for one inside.

        Parameters
        ----------
        X, y, sample_weight
            As in scikit-learn.
        labels_are_public : bool
            Declares that y is no secret. Otherwise a `RawLabelWarning` is given, once per process and learner.
        """
        check_raw_labels(type(self).__name__, y, declared=labels_are_public)
        return compare_labels(type(self).__name__, accuracy_score, y, self.predict(X), sample_weight)


class ScoredRegressor(RegressorMixin):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor that promises something about labels, and whose `score` says that it does not."""

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, labels_are_public: bool = False) -> float:
        """Return R^2 on raw labels y, outside any guarantee; `labels_are_public` as for a classifier."""
        check_raw_labels(type(self).__name__, y, declared=labels_are_public)
        return compare_labels(type(self).__name__, r2_score, y, self.predict(X), sample_weight)


def compare_labels(owner: str, metric: Callable[..., Any], y: Any, predicted: Any, sample_weight: Any) -> float:
    """Return a metric of scikit-learn on raw labels; labels that it cannot compare are refused without being shown."""
    refuse_masked(f"{owner}.score", "y", y)
    fix = f"Predictions are {np.asarray(predicted).dtype}, {len(predicted)} of them: so must the labels be, and the weights as many."
    with hide_labels(f"{owner}.score", "y", must="be labels as the predictions are", fix=fix):
        return float(metric(y, predicted, sample_weight=sample_weight))


def check_raw_labels(owner: str, y: Any, *, declared: bool) -> None:
    """Refuse boxed labels, and warn of others unless they are declared public, here or by `public_labels`."""
    if isinstance(y, SensitiveLabels):
        fix = "Use labeldp.learn.evaluate(..., epsilon=) or score_privately, or evaluate on released labels."
        raise invalid(f"{owner}.score", "y", "be labels that may be read", got=Described("a box of labels"), fix=fix)
    if declared or _DECLARED.get() or owner in TOLD:
        return
    warnings.warn(RAW_SCORE.format(owner=owner), RawLabelWarning, stacklevel=3)
    TOLD.add(owner)  # not reached where the warning is made an error: then it is one every time


RAW_SCORE = (
    "{owner}.score reads raw labels: the score, and any choice made by it, is outside `guarantee_`. GridSearchCV and "
    "cross_val_score come here too, and each of their fits spends epsilon anew: `guarantee_` of the best estimator "
    "speaks of one fit, and only a ledger sees them all. Choose with labeldp.learn.PrivateSearchCV; score with "
    "labeldp.learn.score_privately. If these labels are no secret, say so: score(..., labels_are_public=True), "
    "set_score_request(labels_are_public=True) under metadata routing, or `with labeldp.learn.public_labels():`."
)
