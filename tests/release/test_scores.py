"""No learner with a promise can forget to say that its score reads raw labels: all public ones are walked."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

import labeldp
from labeldp import SensitiveLabels
from labeldp.errors import LabelDPError, MissingExtraError, RawLabelWarning
from labeldp.release.scores import TOLD, ScoredClassifier, ScoredRegressor, check_raw_labels

#: Plain learners: they take what they are given, promise nothing, and are trained on released labels by those that do.
PLAIN = {"BoosterClassifier", "MatrixFactorisation", "NetClassifier", "SoftmaxRegression"}

EXTRAS = ("dask", "distributed", "opacus", "torch", "zmq")


def find_estimators() -> dict[str, type]:
    """Return every estimator with a `score` that some module of labeldp defines, but for extras that are not installed."""
    found = {}
    for module in pkgutil.walk_packages(labeldp.__path__, "labeldp."):
        if module.name.endswith("__main__"):
            continue
        try:
            room = importlib.import_module(module.name)
        except ImportError as error:
            if error.name in EXTRAS or isinstance(error, MissingExtraError):
                continue
            raise
        for name, value in vars(room).items():
            ours = inspect.isclass(value) and value.__module__.startswith("labeldp.")
            if ours and issubclass(value, BaseEstimator) and hasattr(value, "score"):
                found[name] = value
    return found


ESTIMATORS = find_estimators()
#: Learners whose score is another measure, with arguments of its own (deviance, exposure).
OWN_SCORE = {"PrivateGLM"}


def test_the_walk_finds_the_learners():
    for library in EXTRAS:
        pytest.importorskip(library, reason=f"needs all extras: {library} is not installed")
    known = {"LabelPrivateClassifier", "PATE", "MultiLabelPATE", "OutputPerturbation", "LPRRSGD", "LabelPrivateRatings"}
    assert known | {"DPSGDClassifier", "PrivateSearchCV"} | PLAIN <= set(ESTIMATORS)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_learner_scores_by_the_one_that_warns_or_promises_nothing(name):
    learner = ESTIMATORS[name]
    if name in PLAIN:
        assert "guarantee_" not in inspect.getsource(learner)
        assert not {"epsilon", "ledger"} & set(inspect.signature(learner).parameters)
        return
    assert issubclass(learner, (ScoredClassifier, ScoredRegressor))
    if name in OWN_SCORE:  # it says so before it does anything else, fitted or not
        TOLD.discard(name)
        with pytest.warns(RawLabelWarning, match=f"{name}.score reads raw labels"), pytest.raises(NotFittedError):
            learner().score([[0.0]], [0.0])
        return
    assert learner.score in (ScoredClassifier.score, ScoredRegressor.score)


def test_a_learner_that_forgets_would_be_caught():
    from sklearn.base import ClassifierMixin

    class Forgetful(ClassifierMixin, BaseEstimator):
        """Has a guarantee, and scikit-learn's own score."""

        def __init__(self, epsilon: float = 1.0) -> None:
            self.epsilon = epsilon

    assert Forgetful.score not in (ScoredClassifier.score, ScoredRegressor.score)
    assert {"epsilon", "ledger"} & set(inspect.signature(Forgetful).parameters)


def test_nothing_in_the_house_scores_raw_labels_by_itself():
    called = re.compile(r"^(?!.*>>>)(?!\s*\.\.\.).*\b(?!super\(\))\w+\.score\(", re.MULTILINE)
    for path in Path(labeldp.__file__).parent.rglob("*.py"):
        text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text(encoding="utf-8"))
        assert not called.findall(text.replace("super().score(", "")), path.name


def test_labels_in_a_box_are_refused():
    with pytest.raises(LabelDPError, match="score_privately"):
        check_raw_labels("Learner", SensitiveLabels([0, 1], n_classes=2), declared=True)


@pytest.mark.parametrize("kind", [ScoredClassifier, ScoredRegressor])
def test_masked_labels_are_missing(kind):
    """Before: R^2 read what lies under the mask, and accuracy said that labels are "something else"."""

    class Learner(kind, BaseEstimator):
        def predict(self, X):
            return np.array([row[0] for row in X])

    y = np.ma.array([1, 2, 4], mask=[False, True, False])
    with pytest.raises(LabelDPError, match=r"Learner\.score: `y` must have no missing values, got 1 missing"):
        Learner().score([[1], [2], [4]], y, labels_are_public=True)


def test_the_warning_points_at_the_line_that_scores(tmp_path):
    TOLD.discard("Learner")

    class Learner(ScoredRegressor, BaseEstimator):
        def predict(self, X):
            return [row[0] for row in X]

    with pytest.warns(RawLabelWarning, match="Learner.score reads raw labels") as told:
        assert Learner().score([[1.0], [2.0], [4.0]], [1.0, 2.0, 4.0]) == 1.0
    assert Path(told[0].filename).name == Path(__file__).name
