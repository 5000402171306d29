"""The default recipe, distilling, rounds, and the run that releases no label."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from labeldp import load_release
from labeldp.accounting import Ledger
from labeldp.channel import CandidateChannel
from labeldp.errors import LabelDPError
from labeldp.guarantee import Trust
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression, recipe
from labeldp.learn import stages as stage_loop
from labeldp.learn.stages import posteriors
from labeldp.priors import ClusterPrior, PublicPrior, UniformPrior


@pytest.mark.parametrize(
    ("epsilon", "n", "classes", "shares", "clusters", "spent"),
    [
        (0.1, 60_000, 10, (), 118, 0.1),  # 60000 * 0.1 / (22 ln 10)
        (0.3, 60_000, 10, (), 355, 0.3),
        (0.4, 60_000, 10, (0.4, 0.3, 0.3), 236, 0.2),
        (1.0, 60_000, 10, (0.4, 0.3, 0.3), 296, 0.25),
        (4.0, 60_000, 10, (0.4, 0.3, 0.3), 296, 0.25),
        (4.0, 10**6, 10, (0.4, 0.3, 0.3), 1000, 0.25),
        (1.0, 60_000, 100, (0.4, 0.3, 0.3), 148, 0.25),  # ln 100 = 2 ln 10
    ],
)
def test_the_rule_with_one_histogram(epsilon, n, classes, shares, clusters, spent):
    plan = recipe(epsilon, n_examples=n, n_classes=classes)
    assert plan.shares == shares
    assert plan.prior.n_clusters == clusters
    assert plan.prior.cost(epsilon, n_examples=n, n_classes=classes) == spent


@pytest.mark.parametrize(("epsilon", "histograms", "count"), [(0.2, 1, 0), (0.21, 2, 0), (1.0, 2, 0), (1.1, 1, 3)])
def test_the_rule_where_a_model_can_be_fitted_between_histograms(epsilon, histograms, count):
    plan = recipe(epsilon, n_examples=60_000, n_classes=10, estimator=SoftmaxRegression())
    assert len(plan.shares) == count
    assert getattr(plan.prior, "histograms", 1) == histograms
    assert plan.prior.cost(epsilon, n_examples=60_000, n_classes=10) == (0.25 if count else epsilon)


@pytest.mark.parametrize(("epsilon", "count"), [(0.0, 1), (math.inf, 1), (1.0, 2)])
def test_where_nothing_can_be_counted_there_is_no_prior(epsilon, count):
    plan = recipe(epsilon, n_examples=60, n_classes=10)
    assert plan.prior == UniformPrior()
    assert len(plan.shares) == count


def test_what_is_not_auto_is_taken_as_it_is():
    mine = ClusterPrior(n_clusters=7)
    assert recipe(0.1, n_examples=600, n_classes=3, prior=mine).prior is mine
    assert recipe(0.1, n_examples=600, n_classes=3, prior=mine).shares == (0.4, 0.3, 0.3)
    assert recipe(0.1, n_examples=60_000, n_classes=3, stages=1).shares == (1.0,)
    assert recipe(1.0, n_examples=600, n_classes=3, stages=0, prior=mine).prior.whole_budget


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": "many"}, "`stages` must be"),
        ({"prior": "none"}, "`prior` must be"),
        ({"stages": 0, "prior": ClusterPrior(n_clusters=5), "distil": False}, "`distil` must be true with stages=0"),
        ({"distil": "yes"}, "`distil` must be"),
        ({"rounds": -1}, "`rounds` must be an integer"),
        ({"rounds": "some"}, "`rounds` must be"),
        ({"stage_params": {"l2": 1}}, "`stage_params` must be a list of dicts"),
        ({"stage_params": [{"width": 1}]}, "`stage_params` must name parameters of the estimator, got 'width'"),
        ({"final_params": [1]}, "`final_params` must hold parameters"),
        ({"distil": True, "estimator": RandomForestClassifier(), "correction": "forward"}, "`correction` must be one"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_charged(problem, tmp_path, settings, message):
    ledger = Ledger(tmp_path / "budget.ledger", budget=10.0)
    with pytest.raises(LabelDPError, match=message):
        LabelPrivateClassifier(ledger=ledger, **settings).fit(problem.X, problem.y)
    assert ledger.spent() is None


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_auto_learns_and_says_what_it_came_to(problem_of, door, epsilon):
    data = problem_of(6000, seed=3)
    model = LabelPrivateClassifier(epsilon=epsilon, stages="auto", prior="auto", random_state=0).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.9  # seeded; a linear model on all true labels has 0.96
    assert model.guarantee_.epsilon() <= math.nextafter(epsilon, math.inf)  # the sum of two parts, rounded up
    assert model.guarantee_.trust == Trust.CURATOR
    silent = epsilon <= 1.0
    assert model.shares_ == (() if silent else (0.4, 0.3, 0.3))
    assert (model.distil_, model.rounds_, model.correction_) == (True, 2, "em")
    assert model.prior_.startswith("StagedClusterPrior(" if epsilon == 1.0 else "ClusterPrior(")
    # Each label is counted once per histogram, and drawn once unless histograms have the whole budget.
    assert door.measured == [6000] * (2 if epsilon == 1.0 else 1)
    assert sum(door.drawn) == (0 if silent else 6000)


def test_without_stages_no_label_leaves_the_door(problem, door, tmp_path):
    prior = ClusterPrior(n_clusters=6, random_state=1)
    ledger = Ledger(tmp_path / "budget.ledger", budget=1.0)
    model = LabelPrivateClassifier(epsilon=0.7, stages=0, prior=prior, random_state=0, ledger=ledger)
    model.fit(problem.X, problem.y)
    assert (door.drawn, door.measured) == ([], [600])
    assert model.guarantee_.epsilon() == 0.7
    assert ledger.spent().epsilon() == 0.7
    assert model.stages_ == ()
    release = model.release_
    assert isinstance(release.channel, CandidateChannel)
    assert release.channel.epsilon == 0.0
    # What stands where labels would be is the histogram's best guess, a function of the released prior.
    assert np.array_equal(release.codes, release.prior.argmax(axis=1)[release.prior_index])
    assert model.score(problem.X, problem.y) > 0.85  # seeded


@pytest.mark.parametrize("estimator", [SoftmaxRegression(), RandomForestClassifier(n_estimators=10, random_state=0)])
@pytest.mark.parametrize("epsilon", [0.25, 1.5])
def test_the_receiver_of_a_recipe_ends_with_the_owners_model(problem, tmp_path, estimator, epsilon):
    settings = {"estimator": estimator, "stages": "auto", "prior": "auto"}
    owner = LabelPrivateClassifier(epsilon=epsilon, random_state=0, **settings).fit(problem.X, problem.y)
    owner.release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier(**settings).fit_release(problem.X, load_release(tmp_path / "release"))
    assert np.array_equal(receiver.predict_proba(problem.X), owner.predict_proba(problem.X))
    assert receiver.stages_ == owner.stages_
    assert receiver.guarantee_ == owner.guarantee_


def test_a_receiver_of_no_labels_needs_no_settings(problem, tmp_path):
    owner = LabelPrivateClassifier(stages=0, prior=ClusterPrior(n_clusters=6), random_state=0)
    owner.fit(problem.X, problem.y).release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier().fit_release(problem.X, load_release(tmp_path / "release"))
    assert np.array_equal(receiver.estimator_.coef_, owner.estimator_.coef_)
    assert receiver.stages_ == ()


def test_posteriors_are_bayes_rule_with_the_model_as_prior(problem):
    model = LabelPrivateClassifier(stages=2, random_state=0).fit(problem.X, problem.y)
    release = model.release_

    class Part:
        rows = np.arange(0, 600, 2)
        codes = release.codes[rows]
        channel = release.channel.take(rows)

    beliefs = np.random.default_rng(0).dirichlet(np.ones(3), size=600)
    found = posteriors(beliefs.copy(), [Part])
    for i in range(600):
        chances = release.channel.matrix(i)[:, release.codes[i]] if i % 2 == 0 else np.ones(3)
        expected = beliefs[i] * chances / (beliefs[i] * chances).sum()
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)  # a product and a quotient in float64


class Watch:
    """Every soft fit: how many rows, and the parameters of the estimator."""

    def __init__(self, monkeypatch):
        self.fits = []
        plain = stage_loop.fit_soft

        def watched(estimator, X, targets, classes, weights=None):
            self.fits.append((len(X), estimator.get_params(), targets.copy()))
            return plain(estimator, X, targets, classes, weights=weights)

        monkeypatch.setattr(stage_loop, "fit_soft", watched)


def test_each_fit_has_its_parameters_and_sees_everyone(problem, monkeypatch):
    watch = Watch(monkeypatch)
    LabelPrivateClassifier(
        SoftmaxRegression(),
        stages=2,
        prior=ClusterPrior(n_clusters=5),
        distil=True,
        rounds=2,
        stage_params=[{"l2": 0.1}, {"l2": 0.2}, {"l2": 0.3}],
        final_params={"max_iter": 7},
        random_state=0,
    ).fit(problem.X, problem.y)
    assert [rows for rows, _, _ in watch.fits] == [600] * 5  # distil, two stages, two rounds
    assert [params["l2"] for _, params, _ in watch.fits] == [0.1, 0.2, 0.3, 0.3, 0.3]
    assert [params["max_iter"] for _, params, _ in watch.fits] == [SoftmaxRegression().max_iter] * 4 + [7]


def test_rounds_go_on_where_the_stages_end(problem, monkeypatch):
    watch = Watch(monkeypatch)
    params = [{"l2": l2} for l2 in (0.1, 0.2, 0.3, 0.4)]
    model = LabelPrivateClassifier(stages=2, rounds=2, stage_params=params, random_state=0).fit(problem.X, problem.y)
    assert [given["l2"] for _, given, _ in watch.fits] == [0.3, 0.4]  # the stages, by forward, had the first two
    assert model.estimator_.l2 == 0.4


def test_distilling_starts_from_the_prior_and_self_training_sharpens(problem, monkeypatch):
    watch = Watch(monkeypatch)
    model = LabelPrivateClassifier(stages=0, prior=ClusterPrior(n_clusters=5), rounds=1, random_state=0)
    model.fit(problem.X, problem.y)
    release = model.release_
    first, second = (targets for _, _, targets in watch.fits)
    assert np.array_equal(first, release.prior[release.prior_index])
    beliefs = SoftmaxRegression().fit_targets(problem.X, first, classes=[0, 1, 2]).predict_proba(problem.X)
    sharp = beliefs**1.5
    np.testing.assert_allclose(second, sharp / sharp.sum(axis=1, keepdims=True), rtol=1e-6)  # the same solver, float64


def test_a_public_prior_can_be_distilled_without_cost(problem):
    rows = np.full((600, 3), 0.1)
    rows[np.arange(600), problem.y] = 0.8  # an oracle that is public by declaration
    model = LabelPrivateClassifier(epsilon=0.0, stages=0, prior=PublicPrior(rows), random_state=0)
    model.fit(problem.X, problem.y)
    assert model.guarantee_.epsilon() == 0.0
    assert model.score(problem.X, problem.y) > 0.9


def test_a_whole_numbered_seed_moves_on_from_fit_to_fit(problem, monkeypatch):
    watch = Watch(monkeypatch)
    forest = RandomForestClassifier(n_estimators=3, random_state=5)
    told = {"prior": ClusterPrior(n_clusters=5), "distil": True, "correction": "em"}
    LabelPrivateClassifier(forest, stages=1, random_state=0, **told).fit(problem.X, problem.y)
    assert [params["random_state"] for _, params, _ in watch.fits] == [5, 6, 7, 8]


class Views(SoftmaxRegression):
    """Takes views of an example, (n, views, d): learns from the mean view."""

    def fit_targets(self, X, targets, *, classes):
        return super().fit_targets(X.mean(axis=1), targets, classes=classes)

    def predict_proba(self, X):
        return super().predict_proba(X.mean(axis=1))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def test_views_pass_where_the_estimator_takes_them(problem):
    X = np.stack([problem.X + 0.1, problem.X - 0.1], axis=1)
    settings = {"stages": "auto", "prior": "auto", "correction": "em", "random_state": 0}
    viewed = LabelPrivateClassifier(Views(), **settings).fit(X, problem.y)
    plain = LabelPrivateClassifier(SoftmaxRegression(), **settings).fit(X.mean(axis=1), problem.y)
    assert np.array_equal(viewed.release_.codes, plain.release_.codes)
    np.testing.assert_allclose(viewed.predict_proba(X), plain.predict_proba(X.mean(axis=1)), atol=1e-12)
    with pytest.raises(ValueError, match="Found array with dim 3"):
        LabelPrivateClassifier(SoftmaxRegression(), **settings).fit(X, problem.y)
