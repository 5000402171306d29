"""LabelPrivateClassifier keeps scikit-learn's contract."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from labeldp import ClusterPrior
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression

#: The suite's thresholds of accuracy are met at the default epsilon, in two stages, by this seed.
SUBJECTS = [LabelPrivateClassifier(stages=2, random_state=0)]


def known_failures(_estimator):
    reason = "a row's noise belongs to its position: repeated rows have labels drawn anew (tests/learn/test_weights.py)"
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@parametrize_with_checks(SUBJECTS, expected_failed_checks=known_failures)
def test_it_is_a_scikit_learn_classifier(estimator, check):
    with warnings.catch_warnings():
        # The suite warns itself when it skips the array API, which numpy alone cannot be asked for.
        warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")
        check(estimator)


@pytest.mark.parametrize("inner", [SoftmaxRegression(), GaussianNB(), HistGradientBoostingClassifier()])
def test_what_features_may_be_is_for_the_estimator_inside_to_say(inner):
    outer, tags = (get_tags(estimator).input_tags for estimator in (LabelPrivateClassifier(inner), inner))
    assert (outer.sparse, outer.allow_nan, outer.three_d_array) == (tags.sparse, tags.allow_nan, tags.three_d_array)


def test_parameters_go_round_by_clone_and_reach_the_inner_estimator():
    model = LabelPrivateClassifier(SoftmaxRegression(l2=0.5), epsilon=2.0, stages=(0.5, 0.5), prior=ClusterPrior())
    copy = clone(model.set_params(estimator__l2=0.25))
    assert copy.get_params()["estimator__l2"] == 0.25
    assert copy.stages == (0.5, 0.5)
    assert isinstance(copy.prior, ClusterPrior)


def test_it_works_in_a_pipeline_a_grid_search_and_cross_validation(problem):
    pipeline = make_pipeline(StandardScaler(), LabelPrivateClassifier(epsilon=4.0, random_state=0))
    assert cross_val_score(pipeline, problem.X, problem.y, cv=2).min() > 0.8
    grid = {"labelprivateclassifier__epsilon": [0.05, 6.0], "labelprivateclassifier__estimator": [SoftmaxRegression()]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(problem.X, problem.y)
    # 300 labels at epsilon 0.05 say nearly nothing, at 6 nearly all; the seed makes the outcome the same every time.
    assert search.best_params_["labelprivateclassifier__epsilon"] == 6.0
    assert search.best_estimator_[-1].guarantee_.epsilon() == 6.0


def test_a_fit_that_fails_leaves_the_last_one_as_it_was(problem):
    pipeline = make_pipeline(StandardScaler(), SoftmaxRegression())
    model = LabelPrivateClassifier(pipeline, random_state=0).fit(problem.X, problem.y)
    before = model.predict_proba(problem.X)
    with pytest.raises(ValueError, match="`correction` must be one of"):
        model.set_params(correction="magic").fit(problem.X * 1000 + 5, problem.y)
    with pytest.raises(ValueError, match="have one label per row"):
        model.set_params(correction="auto").fit(problem.X * 1000 + 5, problem.y[:-1])
    assert np.array_equal(model.predict_proba(problem.X), before)
