"""What a fit would refuse whatever the labels are is refused before the ledger is charged: no epsilon is lost by a wrong setting."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from labeldp import Ledger
from labeldp.errors import LabelDPError
from labeldp.learn import (
    PATE,
    BoosterClassifier,
    LabelPrivateClassifier,
    LabelPrivateRegressor,
    PrivateSearchCV,
    SoftmaxRegression,
)

#: Few rows: nothing here is trained for long, and most of it not at all.
N = 60
CLASSES = [0, 1, 2]


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    return generator.normal(size=(N, 4)), generator.integers(0, 3, N)


@pytest.fixture
def refused(tmp_path):
    """Fit a learner that must refuse, and look at what that cost."""

    def refuse(learner, X, y, *, match, kind=ValueError, **given):
        ledger = Ledger(tmp_path / "ledger.sqlite", budget=5.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(kind, match=match):
                learner.set_params(ledger=ledger).fit(X, y, **given)
        assert ledger.remaining("labels") == 5.0

    return refuse


class Careful(ClassifierMixin, BaseEstimator):
    """An estimator of somebody else's that says what it would refuse."""

    def __init__(self, depth=1):
        self.depth = depth

    def check_fit(self, X, *, n_classes, n_rows):
        if self.depth > n_rows:
            raise LabelDPError(f"Careful: `depth` must be at most {n_rows}, got {self.depth}, for {n_classes} classes.")

    def fit(self, X, y, sample_weight=None):
        raise AssertionError("a rehearsal does not train")

    def predict_proba(self, X):
        raise AssertionError("a rehearsal does not predict")


ESTIMATORS = {
    "C": (LogisticRegression(C=-1), {}, "'C' parameter"),
    "n_estimators": (RandomForestClassifier(n_estimators=0), {}, "'n_estimators' parameter"),
    "inside of another": (CalibratedClassifierCV(LogisticRegression(C=-1)), {}, "'C' parameter"),
    "of a transformer": (make_pipeline(PCA(svd_solver="x"), LogisticRegression()), {}, "'svd_solver' parameter"),
    "l2": (SoftmaxRegression(l2=-1), {}, "`l2`"),
    "tol": (SoftmaxRegression(tol=0), {}, "`tol`"),
    "max_iter": (SoftmaxRegression(max_iter=0), {}, "`max_iter`"),
    "library": (BoosterClassifier("forest"), {}, "`library`"),
    "of a stage": (SoftmaxRegression(), {"stages": 2, "stage_params": [{}, {"l2": -1}]}, "`l2`"),
    "of the last fit": (SoftmaxRegression(), {"final_params": {"l2": -1}}, "`l2`"),
    "of the last fit, on top": (LogisticRegression(), {"final_params": {"C": -1}}, "'C' parameter"),
    "gaps of a transformer": (make_pipeline(FunctionTransformer(np.sqrt), LogisticRegression()), {}, "NaN"),
    "gaps for ours": (make_pipeline(FunctionTransformer(np.sqrt), SoftmaxRegression()), {}, "NaN"),
    "gaps for one inside": (make_pipeline(FunctionTransformer(np.sqrt), CalibratedClassifierCV()), {}, "NaN"),
    "numbers below 0": (MultinomialNB(), {}, "Negative values"),
    "says it itself": (Careful(depth=N + 1), {}, f"at most {N}"),
    "rows of the first stage": (Careful(depth=20), {"stages": (0.25, 0.75)}, "at most 15"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_settings_of_an_estimator_cost_nothing(refused, rows, name):
    estimator, settings, match = ESTIMATORS[name]
    refused(LabelPrivateClassifier(estimator, classes=CLASSES, **settings), *rows, match=match)


def test_sparse_rows_of_a_transformer_cost_nothing(refused, rows):
    learner = LabelPrivateClassifier(make_pipeline(OneHotEncoder(), GaussianNB()), classes=CLASSES)
    refused(learner, rows[0].round(), rows[1], match="[Ss]parse", kind=(TypeError, ValueError))


REGRESSORS = {
    "alpha": (Ridge(alpha=-1), "'alpha' parameter"),
    "n_estimators": (RandomForestRegressor(n_estimators=0), "'n_estimators' parameter"),
    "of a transformer": (make_pipeline(PCA(svd_solver="x"), Ridge()), "'svd_solver' parameter"),
    "gaps of a transformer": (make_pipeline(FunctionTransformer(np.sqrt), Ridge()), "NaN"),
    "a classifier": (LogisticRegression(), "be a regressor"),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_settings_of_a_regressor_cost_nothing(refused, rows, name):
    estimator, match = REGRESSORS[name]
    refused(LabelPrivateRegressor(estimator, bounds=(0, 2)), *rows, match=match)


SEARCHES = {
    "value": (SoftmaxRegression(), {"l2": [1e-3, -1]}, {}, "`l2`"),
    "value for scikit-learn": (LogisticRegression(), {"C": [1.0, -1]}, {}, "'C' parameter"),
    "value in a pipeline": (
        make_pipeline(PCA(2), LogisticRegression()),
        {"logisticregression__C": [1.0, -1]},
        {},
        "'C' parameter",
    ),
    "value of a transformer": (
        make_pipeline(PCA(2), LogisticRegression()),
        {"pca__svd_solver": ["auto", "x"]},
        {},
        "'svd_solver' parameter",
    ),
    "value of the learner": (LabelPrivateClassifier(), {"rounds": [0, -3]}, {}, "`rounds`"),
    "value of its estimator": (LabelPrivateClassifier(), {"estimator": [SoftmaxRegression(l2=-1)]}, {}, "`l2`"),
    "value by a count": (LabelPrivateClassifier(), {"rounds": [0, -3]}, {"by": "noisy_count"}, "`rounds`"),
    "stages by a count": (LabelPrivateClassifier(), {"stages": [1, -2]}, {"by": "noisy_count"}, "`stages`"),
    "no labels": (LabelPrivateClassifier(stages=0, trust="curator"), {}, {"epsilon": 4.0}, "release labels"),
    "splitter": (SoftmaxRegression(), {}, {"cv": GroupKFold(3)}, "`cv`"),
    "many folds": (SoftmaxRegression(), {}, {"cv": KFold(N + 1)}, "`cv`"),
    "n_jobs": (SoftmaxRegression(), {}, {"n_jobs": "two"}, "`n_jobs`"),
    "no jobs": (SoftmaxRegression(), {}, {"n_jobs": 0}, "`n_jobs`"),
    "progress": (SoftmaxRegression(), {}, {"progress": "yes"}, "`progress`"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_settings_of_a_search_cost_nothing(refused, rows, name):
    estimator, grid, settings, match = SEARCHES[name]
    refused(PrivateSearchCV(estimator, grid, **{"classes": CLASSES, "cv": 2, **settings}), *rows, match=match)


def test_a_student_of_teachers_costs_nothing(refused, rows):
    X, y = rows
    learner = PATE(n_teachers=3, student=LogisticRegression(C=-1), classes=CLASSES, epsilon=4.0, delta=1e-5)
    refused(learner, X, y, X_public=X[:10], match="'C' parameter")


def test_what_is_not_known_before_is_not_refused(rows):
    """A search inside sets what its estimator has; a class that wrote its own `fit` takes what it takes."""

    class Mine(DecisionTreeClassifier):
        def fit(self, X, y, sample_weight=None):
            self.max_depth = 2
            return super().fit(X, y, sample_weight)

    inside = GridSearchCV(DecisionTreeClassifier(max_depth=-1), {"max_depth": [1, 2]}, cv=2)
    for estimator in (inside, Mine(max_depth="of my own")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LabelPrivateClassifier(estimator, classes=CLASSES, epsilon=8.0, random_state=0).fit(*rows)


TAKE_GAPS = {
    "a calibration": CalibratedClassifierCV(DecisionTreeClassifier(max_depth=2), cv=2),
    "a search": GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2),
    "a pipeline": make_pipeline(FunctionTransformer(), make_pipeline(SimpleImputer(), LogisticRegression())),
    "votes": VotingClassifier([("a", make_pipeline(SimpleImputer(), LogisticRegression()))], voting="soft"),
    "no look at features": DummyClassifier(),
}


@pytest.mark.parametrize("name", TAKE_GAPS)
def test_gaps_are_left_to_what_stands_inside(rows, name):
    """The tags of what hands rows on to others do not say that these take gaps."""
    X, y = rows
    estimator = make_pipeline(FunctionTransformer(make_gaps), TAKE_GAPS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LabelPrivateClassifier(estimator, classes=CLASSES, epsilon=8.0, random_state=0).fit(X, y)


def make_gaps(X):
    return np.where(X > 1, np.nan, X)


def test_what_is_frozen_is_not_fitted_and_not_looked_at(rows):
    scaler = StandardScaler().fit(rows[0])
    scaler.with_std = "of another version"
    estimator = make_pipeline(FrozenEstimator(scaler), LogisticRegression())
    LabelPrivateClassifier(estimator, classes=CLASSES, epsilon=8.0, random_state=0).fit(*rows)


def test_a_rehearsal_leaves_random_numbers_as_they_were(rows):
    """Folds of a splitter with a generator, or with numpy's own, are those that it would have cut without a rehearsal."""

    class Recorded(KFold):
        kept = []  # noqa: RUF012 - of all copies

        def split(self, X, y=None, groups=None):
            folds = list(super().split(X, y, groups))
            self.kept.append(folds[0][1].tolist())
            return iter(folds)

    for make in (lambda: np.random.RandomState(3), lambda: None):
        Recorded.kept.clear()
        np.random.seed(3)  # what a splitter without a seed draws from
        cv = Recorded(2, shuffle=True, random_state=make())
        PrivateSearchCV(SoftmaxRegression(), {}, cv=cv, epsilon=np.inf, classes=CLASSES, random_state=0).fit(*rows)
        assert len(Recorded.kept) == 2
        assert Recorded.kept[0] == Recorded.kept[1]


def test_transformers_are_fitted_once_for_candidates_that_share_them(rows):
    class Counted(FunctionTransformer):
        fits = []  # noqa: RUF012 - of all clones

        def fit_transform(self, X, y=None, **params):
            self.fits.append(len(X))
            return super().fit_transform(X, y, **params)

    grid = {"softmaxregression__l2": [1e-3, 1e-2, 1e-1, 1.0]}
    made = make_pipeline(Counted(), SoftmaxRegression())
    PrivateSearchCV(made, grid, cv=2, epsilon=np.inf, classes=CLASSES, random_state=0).fit(*rows)
    # One rehearsal, the owner's fit, two folds for each of four candidates, and the last fit.
    assert len(Counted.fits) == 1 + 1 + 8 + 1
