"""LabelPrivateClassifier with the estimators, tables and labels that people have."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import (
    SelectFromModel,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_classif,
    mutual_info_classif,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from labeldp.errors import LabelDPError
from labeldp.guarantee import SEEDED, Trust, did_not_see
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.release import SensitiveLabels
from labeldp.release.budget import CLASSES_READ_OFF

#: What "auto" takes for each, and so what each is able to.
ESTIMATORS = {
    "softmax": (SoftmaxRegression(), "forward"),
    "logistic": (LogisticRegression(max_iter=1000), "crossfit"),
    "forest": (RandomForestClassifier(20, min_samples_leaf=5, random_state=0), "crossfit"),
    "bayes": (GaussianNB(), "crossfit"),
    "boosting": (
        HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=6, max_bins=16, learning_rate=0.7, random_state=0),
        "crossfit",
    ),
    "scaled": (make_pipeline(StandardScaler(), SoftmaxRegression()), "forward"),
}


@pytest.mark.parametrize("name", list(ESTIMATORS))
@pytest.mark.parametrize("stages", [1, 2])
def test_any_classifier_with_probabilities_learns(problem, name, stages):
    estimator, correction = ESTIMATORS[name]
    model = LabelPrivateClassifier(estimator, epsilon=3.0, stages=stages, random_state=0).fit(problem.X, problem.y)
    assert model.correction_ == correction
    assert model.score(problem.X, problem.y) > 0.8  # chance is 1/3; the seed makes it the same every time
    assert np.allclose(model.predict_proba(problem.X).sum(axis=1), 1.0)


@pytest.mark.parametrize("correction", ["forward", "crossfit", "posterior", "unbiased", "none"])
@pytest.mark.parametrize("stages", [1, 3])
def test_every_correction_learns(problem, correction, stages):
    model = LabelPrivateClassifier(epsilon=3.0, stages=stages, correction=correction, random_state=0)
    assert model.fit(problem.X, problem.y).score(problem.X, problem.y) > 0.8  # as above
    assert model.correction_ == correction


@pytest.mark.parametrize(
    ("estimator", "correction", "lacks"),
    [
        (LogisticRegression(), "forward", "fit_likelihood"),
        (LogisticRegression(), "unbiased", "fit_targets"),
        (KNeighborsClassifier(), "posterior", "sample weights"),
    ],
)
def test_a_correction_that_the_estimator_cannot_take_is_refused(problem, estimator, correction, lacks):
    with pytest.raises(LabelDPError, match=f"`correction` must be one that the estimator can take.*no .?{lacks}"):
        LabelPrivateClassifier(estimator, correction=correction).fit(problem.X, problem.y)


TABLES = {
    "numpy": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "list": lambda X: X.tolist(),
    "pandas": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "polars": lambda X: pl.DataFrame(X, schema=list("abcd")),
    "csr": scipy.sparse.csr_matrix,
    "csr array": scipy.sparse.csr_array,
}


@pytest.mark.parametrize("kind", list(TABLES))
@pytest.mark.parametrize("stages", [1, 2])
def test_features_come_in_any_table(problem, kind, stages):
    X = TABLES[kind](problem.X)
    model = LabelPrivateClassifier(epsilon=3.0, stages=stages, random_state=0).fit(X, problem.y)
    plain = LabelPrivateClassifier(epsilon=3.0, stages=stages, random_state=0).fit(problem.X, problem.y)
    # The same labels are drawn (unless rounding moves a prior across a tie), so the models agree up to the solver's tol.
    assert np.abs(model.predict_proba(X) - plain.predict_proba(problem.X)).max() < 0.02
    if kind in {"pandas", "polars"}:
        assert model.feature_names_in_.tolist() == list("abcd")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_categorical_columns_go_through_the_users_pipeline(problem, frame):
    X = frame({"colour": np.array(["red", "green", "blue"])[problem.y], "size": problem.X[:, 3]})
    columns = ColumnTransformer([("words", OneHotEncoder(), ["colour"]), ("numbers", StandardScaler(), ["size"])])
    model = LabelPrivateClassifier(make_pipeline(columns, SoftmaxRegression()), epsilon=4.0, stages=2, random_state=0)
    assert model.fit(X, problem.y).score(X, problem.y) > 0.95  # the colour is the label
    assert model.feature_names_in_.tolist() == ["colour", "size"]


def test_transformers_are_fitted_without_labels(problem):
    class Witness(StandardScaler):
        def fit(self, X, y=None, sample_weight=None):
            assert y is None
            return super().fit(X)

    model = LabelPrivateClassifier(make_pipeline(Witness(), SoftmaxRegression()), random_state=0)
    model.fit(problem.X, problem.y)


def test_a_transformer_that_needs_labels_is_refused(problem):
    declared = make_pipeline(NeighborhoodComponentsAnalysis(), SoftmaxRegression())
    with pytest.raises(LabelDPError, match=r"transform without labels.*Leave out `neighborhoodcomponentsanalysis`"):
        LabelPrivateClassifier(declared).fit(problem.X, problem.y)
    own = SelectKBest(lambda X, y: tuple(f_classif(X, y)), k=2)
    with pytest.raises(ValueError, match="requires y to be passed"):  # one that does not say so finds out itself
        LabelPrivateClassifier(make_pipeline(own, SoftmaxRegression())).fit(problem.X, problem.y)


@pytest.mark.parametrize(
    "step",
    [
        SelectKBest(k=2),
        SelectPercentile(partial(mutual_info_classif, random_state=0)),
        SelectFromModel(LogisticRegression()),
        SequentialFeatureSelector(LogisticRegression()),
        PLSRegression(1),
        ColumnTransformer([("chosen", SelectKBest(k=1), [0, 1])]),
        FeatureUnion([("chosen", SelectKBest(k=1))]),
        make_pipeline(StandardScaler(), SelectKBest(k=1)),
    ],
)
def test_a_choice_of_columns_by_labels_is_refused_with_what_to_use(problem, step):
    """Before: "estimator requires y to be passed, but the target y is None", from deep inside of scikit-learn."""
    with pytest.raises(LabelDPError, match=r"Leave out `.*no guarantee covers it.*VarianceThreshold and PCA"):
        LabelPrivateClassifier(make_pipeline(step, SoftmaxRegression())).fit(problem.X, problem.y)


@pytest.mark.parametrize("step", [SelectKBest(lambda X, _: X.var(axis=0), k=2), VarianceThreshold()])
def test_a_choice_of_columns_without_labels_is_taken(problem, step):
    model = LabelPrivateClassifier(make_pipeline(step, SoftmaxRegression()), stages=1, random_state=0)
    assert len(model.fit(problem.X, problem.y).classes_) == len(set(problem.y))


def test_a_classifier_without_probabilities_is_refused(problem):
    with pytest.raises(LabelDPError, match=r"`estimator` must have `predict_proba`, got 'LinearSVC'. Wrap it in Cal"):
        LabelPrivateClassifier(LinearSVC()).fit(problem.X, problem.y)


def test_gaps_are_for_estimators_that_take_them(problem):
    X = problem.X.copy()
    X[::7, 0] = np.nan
    boosting = ESTIMATORS["boosting"][0]
    model = LabelPrivateClassifier(boosting, epsilon=3.0, random_state=0).fit(X, problem.y)
    assert model.score(X, problem.y) > 0.8
    with pytest.raises(ValueError, match="contains NaN"):
        LabelPrivateClassifier().fit(X, problem.y)


LABELS = {
    "text": (lambda y: np.array(["a", "b", "c"])[y], ["a", "b", "c"]),
    "objects": (lambda y: np.array(["a", "b", "c"], object)[y], ["a", "b", "c"]),
    "list": (lambda y: y.tolist(), [0, 1, 2]),
    "floats": (lambda y: y * 1.0, [0.0, 1.0, 2.0]),
    "booleans": (lambda y: y == 1, [False, True]),
    "pandas": (lambda y: pd.Series(y, name="label"), [0, 1, 2]),
    "categorical": (lambda y: pd.Series(pd.Categorical.from_codes(y, ["x", "y", "z"])), ["x", "y", "z"]),
    "polars": (pl.Series, [0, 1, 2]),
    "boxed": (lambda y: SensitiveLabels(y, n_classes=3), [0, 1, 2]),
}


@pytest.mark.parametrize("kind", list(LABELS))
def test_labels_come_in_any_kind(problem, kind):
    labels, classes = LABELS[kind]
    model = LabelPrivateClassifier(epsilon=4.0, stages=2, random_state=0).fit(problem.X, labels(problem.y))
    assert model.classes_.tolist() == classes
    codes = np.searchsorted(model.classes_, model.predict(problem.X))
    truth = problem.y == 1 if kind == "booleans" else problem.y
    assert np.mean(codes == truth) > 0.8


def test_classes_that_are_given_need_no_assumption(problem):
    read = LabelPrivateClassifier(random_state=0).fit(problem.X, problem.y)
    given = LabelPrivateClassifier(random_state=0, classes=[2, 0, 1, 7]).fit(problem.X, problem.y)
    known = {SEEDED, *did_not_see("features")}
    assert set(read.guarantee_.assumptions) == {CLASSES_READ_OFF, *known}
    assert set(given.guarantee_.assumptions) == known
    assert (read.guarantee_.trust, given.guarantee_.trust) == (Trust.CURATOR, Trust.NO_ONE)
    assert given.classes_.tolist() == [2, 0, 1, 7]
    assert given.predict_proba(problem.X).shape == (600, 4)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"epsilon": -1}, None, "`epsilon` must be >= 0"),
        ({"epsilon": math.nan}, None, "`epsilon` must be >= 0"),
        ({"stages": 0}, None, "`stages` must be 1 or more without a prior, got 0"),
        ({"stages": -1}, None, r"`stages` must be an integer in \[1, 100\], got -1"),
        ({"stages": (0.5, 0.6)}, None, "shares > 0 that sum to 1"),
        ({"stages": (1.5, -0.5)}, None, "shares > 0 that sum to 1"),
        ({"stages": (np.nan, 1.0)}, None, "shares > 0 that sum to 1"),
        ({"classes": 3}, None, "`classes` must be a list of classes"),
        ({"stages": (0.9999, 0.0001)}, None, "`stages` must leave each stage an example, got 600 examples"),
        ({"temperature": 0.0}, None, "`temperature` must be finite and > 0"),
        ({"correction": "both"}, None, "`correction` must be one of 'auto'"),
        ({"random_state": "x"}, None, "must be None, an int or a numpy.random.Generator"),
        ({"classes": [0, 1]}, None, "must be among the classes, got another one in row"),
        ({}, np.zeros(600, int), "`y` must have two classes or more, got 1 class. Pass classes="),
        (
            {},
            np.zeros(599, int),
            r"`y` must have one label per row of X \(inconsistent numbers of samples\), got 599 for 600 rows",
        ),
        ({"classes": ["a", "b"]}, "boxed", "`classes` must be those of the labels"),
        (
            {},
            ["ill", None] * 300,
            r"LabelPrivateClassifier: `y` must have no missing values, got 300 missing\. Drop or fill",
        ),
        ({}, ["ill", math.nan] * 300, "`y` must have no missing values, got 300 missing"),
        ({}, np.array([1, None] * 300, object), "`y` must have no missing values, got 300 missing"),
        ({}, np.array([1.0, math.nan] * 300), "`y` must have no missing values, got 300 missing"),
        ({}, np.array(["ill", 1] * 300, object), "be of one kind to be sorted, got a mixture"),
        ({"ledger": "l.sqlite"}, None, "`ledger` must be a Ledger, got a str. Open one"),
    ],
)
def test_bad_input_is_refused_in_the_one_shape(problem, settings, y, message):
    labels = problem.y if y is None else SensitiveLabels(problem.y, n_classes=3) if isinstance(y, str) else y
    with pytest.raises(LabelDPError, match=message):
        LabelPrivateClassifier(**settings).fit(problem.X, labels)


def test_sparse_features_for_an_estimator_that_takes_none_are_refused(problem):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        LabelPrivateClassifier(GaussianNB()).fit(scipy.sparse.csr_matrix(problem.X), problem.y)


@pytest.mark.parametrize("epsilon", [0.0, math.inf])
@pytest.mark.parametrize("stages", [1, 2])
def test_the_ends_of_epsilon(problem, epsilon, stages):
    model = LabelPrivateClassifier(epsilon=epsilon, stages=stages, random_state=0).fit(problem.X, problem.y)
    assert model.guarantee_.epsilon() == epsilon
    if epsilon:
        assert np.array_equal(model.release_.labels, problem.y)
    else:
        assert np.ptp(model.release_.channel.likelihood(model.release_.codes)) == 0.0  # no answer says anything


@pytest.mark.parametrize("warm", [False, True])
def test_stages_go_on_from_the_last_weights_and_leave_the_setting_alone(problem, warm):
    model = LabelPrivateClassifier(SoftmaxRegression(warm_start=warm), epsilon=3.0, stages=2, random_state=0)
    assert model.fit(problem.X, problem.y).estimator_.warm_start is warm
    assert model.estimator.warm_start is warm
    assert not hasattr(model.estimator, "coef_")
