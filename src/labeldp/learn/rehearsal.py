"""The rehearsal before a charge: what a fit of the estimator would refuse, whatever the labels are, is refused without any.

>>> from sklearn.linear_model import LogisticRegression
>>> check_estimator(LogisticRegression(), np.zeros((4, 2)), n_classes=2)
>>> check_estimator(LogisticRegression(C=-1.0), np.zeros((4, 2)), n_classes=2)
Traceback (most recent call last):
    ...
sklearn.utils._param_validation.InvalidParameterError: The 'C' parameter of LogisticRegression must be a float ...

An epsilon that was charged for a fit that then stumbles over a setting is lost. So every learner that pays first and trains
afterwards asks here before it pays, for the estimator as each of its fits will use it. Estimators of priors that learn
(`labeldp.priors.staged`) are not asked: priors are made below learners.

What is asked depends on whose estimator it is. One that has `check_fit(X, *, n_classes, n_rows)` knows itself what its fit would
refuse; those of labeldp have it. The parameters of scikit-learn's own are validated as the first step of their `fit` does it, those
of estimators inside of them too, and the features are compared with what their tags say that they take. Of others (LightGBM, XGBoost,
CatBoost, your own) nothing is known without training them, and nothing is done.

Nothing is trained, drawn, written or printed; no label is read. What a fit finds out only while it trains (a combination of
settings that a solver does not have, a module without a gradient, a full disk) stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_array, get_tags

from labeldp.errors import hide_warnings
from labeldp.learn.settings import Settings
from labeldp.release.templates import walk_parts

__all__ = ["check_estimator", "check_parameters", "check_training"]


def check_training(settings: Settings, examples: Any, features: Any, *, n_rows: int) -> None:
    """Refuse what a fit of a loop in stages would refuse (`labeldp.learn.stages`).

    Parameters
    ----------
    settings : Settings
        Whose estimator is looked at with each of the parameters that it will have.
    examples : array or dataset
        The rows as the student takes them, where there is one; else they are not looked at.
    features : array or dataset, optional
        The rows as the estimator takes them. Without them a quick reader is not looked at.
    n_rows : int
        The fewest rows that a fit of the estimator will have.
    """
    n_classes = len(settings.classes)
    if settings.student is not None:  # its one fit has all rows
        check_estimator(settings.student, examples, n_classes=n_classes)
    if features is not None:
        check_estimator(settings.estimator, features, n_classes=n_classes, n_rows=n_rows, ways=settings.ways)


def check_estimator(
    estimator: BaseEstimator,
    X: Any,
    *,
    n_classes: int | None,
    n_rows: int | None = None,
    ways: Sequence[Mapping[str, Any]] = ({},),
) -> None:
    """Refuse an estimator whose fit on X would refuse its parameters, or X, whatever the labels are.

    Parameters
    ----------
    estimator
        What will be cloned and fitted. It stays as it is.
    X
        Its features.
    n_classes : int, optional
        How many classes there will be; None for numbers.
    n_rows : int, optional
        The fewest rows of X that a fit will have; by default all.
    ways : sequence of dicts
        Parameters that it will have in one fit or another.
    """
    for number, params in enumerate(ways):
        made = clone(estimator)
        if params:
            made.set_params(**params)
        if n_classes is not None and hasattr(made, "check_fit"):
            made.check_fit(X, n_classes=n_classes, n_rows=n_rows)
            continue
        check_parameters(made)
        if number == 0 and _is_of_sklearn(made):
            _check_features(made, X)


def check_parameters(estimator: Any) -> None:
    """Refuse parameters that scikit-learn's own estimators, this one or those inside of it, would refuse when they are fitted.

    Anything else, None too, is taken.
    """
    if get_config()["skip_parameter_validation"]:
        return
    # A search sets other parameters than its estimator has, which may be anything, and what is frozen is not fitted.
    for part, _ in walk_parts(estimator, closed=(BaseSearchCV, FrozenEstimator)):
        if _is_of_sklearn(part):
            part._validate_params()  # noqa: SLF001 - what their `fit` calls first; subclasses of others call it too


def _is_of_sklearn(estimator: Any) -> bool:
    """Whether scikit-learn's own `fit` will be called: one that was written over it may take other values."""
    fit = getattr(type(estimator), "fit", None)
    own = getattr(fit, "__module__", None) or ""
    return own.split(".")[0] == "sklearn" and hasattr(type(estimator), "_parameter_constraints")


def _check_features(estimator: BaseEstimator, X: Any) -> None:
    """Refuse numbers of a kind that an estimator's tags say it does not take: gaps, sparse rows, numbers below 0."""
    sparse, tags = scipy.sparse.issparse(X), get_tags(estimator)
    if tags.no_validation or not (sparse or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf")):
        return  # features that are not looked at; tables and rows in batches, which are the estimator's own matter
    with hide_warnings():
        check_array(
            X,
            accept_sparse=bool(tags.input_tags.sparse),
            dtype=None,
            ensure_all_finite="allow-nan" if _may_take_gaps(estimator) else True,
            ensure_non_negative=bool(tags.input_tags.positive_only),
            allow_nd=True,
            estimator=estimator,
            input_name="X",
        )


def _may_take_gaps(estimator: BaseEstimator) -> bool:
    """Whether it, or an estimator inside of it, says that it takes gaps, or is none of scikit-learn's and may take anything.

    The tags of a search, a calibration or a pipeline do not say what those inside of it take.
    """
    parts = [part for part, _ in walk_parts(estimator) if hasattr(part, "fit")]
    return any(not isinstance(part, BaseEstimator) or get_tags(part).input_tags.allow_nan for part in parts)
