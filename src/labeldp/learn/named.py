"""Models that have a name: what `labeldp train --estimator` offers, how a table goes into it, and what a search tries of it.

>>> named_estimator("softmax")
SoftmaxRegression()
>>> model = table_classifier("logistic", epsilon=1.0, columns=["age"])
>>> [name for name, _ in model.estimator.steps]
['table', 'classifier']

An owner who trains and a receiver of a release build their model here, so that both train the same. Every seed is fixed: it sees
released labels alone. `search_grid` reads the settings that a search is to try, and tries each on made-up rows before anything is
spent.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline

from labeldp.errors import Described, hide_warnings, invalid, nearest
from labeldp.learn.boosters import make_classifier
from labeldp.learn.classifier import LabelPrivateClassifier
from labeldp.learn.regressor import PENALTIES, LabelPrivateRegressor
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.learn.tables import TableEncoder
from labeldp.priors import Prior

#: The classifiers that the command line offers by name.
ESTIMATORS = ("softmax", "logistic", "forest", "boosting", "bayes", "lightgbm", "xgboost", "catboost")

#: The regressors, for labels that are numbers.
REGRESSORS = ("ridge", "forest", "boosting")

#: What a search tries of each: how much to smooth, and for boosted trees how fast and how finely to learn. Noisy labels want more
#: smoothing than plain ones, the more the smaller epsilon is, so that no default is best for all.
GRIDS: dict[str, dict[str, list[Any]]] = {
    "softmax": {"l2": [1e-4, 1e-3, 1e-2, 1e-1]},
    "logistic": {"C": [0.01, 0.1, 1.0, 10.0]},
    "forest": {"min_samples_leaf": [5, 20, 50, 100]},
    "boosting": {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 15, 31]},
    "bayes": {"var_smoothing": [1e-9, 1e-3, 1e-1]},
    "lightgbm": {"learning_rate": [0.03, 0.1], "num_leaves": [7, 15, 31]},
    "xgboost": {"learning_rate": [0.03, 0.1], "max_depth": [2, 4, 6]},
    "catboost": {"learning_rate": [0.03, 0.1], "depth": [2, 4, 6]},
}

#: Boosted trees for noisy labels: twenty rows or so in a leaf (for XGBoost by the curvature of its loss, at most 1/4 a row), 100
#: steps and one seed. One thread, so that the trees are the same everywhere; on a busy machine LightGBM's threads wait for
#: each other longer than they work.
BOOSTED: dict[str, dict[str, Any]] = {
    "lightgbm": {"n_estimators": 100, "learning_rate": 0.1, "min_child_samples": 20, "n_jobs": 1, "random_state": 0},
    "xgboost": {"n_estimators": 100, "learning_rate": 0.1, "min_child_weight": 5.0, "n_jobs": 1, "random_state": 0},
    "catboost": {"iterations": 100, "learning_rate": 0.1, "l2_leaf_reg": 5.0, "thread_count": 1, "random_seed": 0},
}


def table_classifier(
    estimator: str = "softmax",
    *,
    epsilon: float,
    columns: Sequence[str],
    trust: str | None = None,
    stages: int | str = "auto",
    prior: Prior | str | None = "auto",
    correction: str = "auto",
    random_state: Any = None,
    ledger: Any = None,
    label_set: str = "labels",
) -> LabelPrivateClassifier:
    """Return a classifier that takes raw tables: owner and receiver build it here, so that they train the same model."""
    steps = [("table", TableEncoder(columns=list(columns))), ("classifier", named_estimator(estimator))]
    return LabelPrivateClassifier(
        Pipeline(steps),
        epsilon=epsilon,
        trust=trust,
        stages=stages,
        prior=prior,
        correction=correction,
        random_state=random_state,
        ledger=ledger,
        label_set=label_set,
    )


def named_estimator(name: str) -> BaseEstimator:
    """Return a fresh classifier of a few that are good at tables; its own seed is fixed, which sees no raw label."""
    if name == "softmax":
        return SoftmaxRegression()
    if name == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=500)
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        # Leaves of 20: noisy labels need averaging where a tree would otherwise remember each of them.
        return RandomForestClassifier(n_estimators=100, min_samples_leaf=20, n_jobs=-1, random_state=0)
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    if name == "bayes":
        from sklearn.naive_bayes import GaussianNB

        return GaussianNB()
    if name in BOOSTED:
        return make_classifier(name, BOOSTED[name])
    raise invalid("train", "estimator", "be one that has a name here", got=name, fix=nearest(name, ESTIMATORS))


def table_regressor(
    estimator: str = "ridge",
    *,
    epsilon: float,
    columns: Sequence[str],
    bounds: tuple[float, float] | None = None,
    mechanism: Any = None,
    outside: str = "clip",
    stages: int = 1,
    random_state: Any = None,
    ledger: Any = None,
    label_set: str = "labels",
) -> LabelPrivateRegressor:
    """Return a regressor that takes raw tables, the twin of `table_classifier` for labels that are numbers."""
    steps = [("table", TableEncoder(columns=list(columns))), ("regressor", named_regressor(estimator))]
    return LabelPrivateRegressor(
        Pipeline(steps),
        epsilon=epsilon,
        bounds=bounds,
        mechanism=mechanism,
        outside=outside,
        stages=stages,
        random_state=random_state,
        ledger=ledger,
        label_set=label_set,
    )


def named_regressor(name: str) -> BaseEstimator:
    """Return a fresh regressor with squared loss, which noisy numbers need; its own seed is fixed, which sees no raw label."""
    if name == "ridge":
        from sklearn.linear_model import RidgeCV

        return RidgeCV(alphas=PENALTIES)
    if name == "forest":
        from sklearn.ensemble import RandomForestRegressor

        # Leaves of 50: an answer varies by several times what labels do, and a leaf must average that away.
        return RandomForestRegressor(n_estimators=100, min_samples_leaf=50, n_jobs=-1, random_state=0)
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(
            early_stopping=False, min_samples_leaf=100, max_leaf_nodes=15, random_state=0
        )
    fix = "Labels are numbers: use one of " + ", ".join(REGRESSORS) + "."
    raise invalid("train", "estimator", "be a regressor", got=name, fix=fix)


#: Where `table_classifier` has the settings of the classifier inside.
INSIDE = "estimator__classifier__"


def search_grid(estimator: str, told: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Return the settings of a named classifier to choose among, by their names in `table_classifier`.

    `told` are texts like "l2=0.001,0.01"; without any it is the grid of `GRIDS`. Every candidate is fitted once on a few made-up
    rows, so that a name or a value that it does not take is refused here, before anything is spent.

    >>> search_grid("softmax", ["l2=0.001,0.01"])
    {'estimator__classifier__l2': [0.001, 0.01]}
    """
    plain = named_estimator(estimator)
    grid: dict[str, list[Any]] = {}
    for text in told:
        name, _, values = text.partition("=")
        name = name.strip()
        known = sorted({*plain.get_params(), *inspect.signature(type(plain).__init__).parameters} - {"self", "kwargs"})
        if name not in known:
            fix = nearest(name, known) or 'For example "l2=0.001,0.01,0.1".'
            raise invalid("train", "--search", f"name a setting of {estimator}", got=name, fix=fix)
        if name in grid:
            raise invalid("train", "--search", "name a setting once", got=name)
        grid[name] = [parse_value(value) for value in values.split(",") if value.strip()]
        if not grid[name]:
            fix = f'For example "{name}=...,...".'
            raise invalid("train", "--search", "give a setting its values", got=text, fix=fix)
    grid = grid or dict(GRIDS[estimator])
    for params in ParameterGrid(grid):
        _try_settings(plain, params)
    return {INSIDE + name: values for name, values in grid.items()}


def _try_settings(plain: BaseEstimator, params: Mapping[str, Any]) -> None:
    """Refuse settings that a classifier does not take: most of them look at their settings only when they are fitted."""
    X, y = np.random.default_rng(0).normal(size=(64, 2)), np.arange(64) % 2
    try:
        with hide_warnings():  # about made-up rows
            clone(plain).set_params(**params).fit(X, y)
    except Exception as error:  # each library has errors of its own
        got = ", ".join(f"{name}={value!r}" for name, value in params.items())
        fix = f"{type(plain).__name__} says: {' '.join(str(error).split())[:200]}"
        raise invalid(
            "train", "--search", "be values that the classifier takes", got=Described(got), fix=fix
        ) from error


def parse_value(text: str) -> Any:
    """Return a number, true, false or none as such, and anything else as text.

    >>> parse_value("20"), parse_value("1e-3"), parse_value("none"), parse_value("balanced")
    (20, 0.001, None, 'balanced')
    """
    words = {"true": True, "false": False, "none": None}
    plain = text.strip()
    if plain.lower() in words:
        return words[plain.lower()]
    try:
        return int(plain) if re.fullmatch(r"[+-]?\d+", plain) else float(plain)
    except ValueError:
        return plain
