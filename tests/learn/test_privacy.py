"""What `fit` spends: each label through the door once, the ledger first, the promise exactly what was asked for."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError

from labeldp import ClusterPrior, Ledger, ModelPrior, PublicPrior, RRWithPrior, UniformPrior
from labeldp.errors import BudgetError, LabelDPError, PrivacyError
from labeldp.guarantee import SEEDED, Guarantee, Trust, did_not_see
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.priors import Prior, PriorTable
from labeldp.release import SensitiveLabels, privatize


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("filtered", [False, True])
def test_each_label_passes_the_door_once(problem, door, stages, filtered):
    model = LabelPrivateClassifier(epsilon=1.0, stages=stages, filter_earlier=filtered, random_state=0)
    model.fit(problem.X, problem.y)
    assert len(door.drawn) == stages
    assert sum(door.drawn) == len(problem.y)
    assert door.measured == []
    assert [stage.n_examples for stage in model.stages_] == door.drawn


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_cluster_prior_measures_each_label_once_more(problem, door, stages):
    model = LabelPrivateClassifier(epsilon=1.0, stages=stages, prior=ClusterPrior(n_clusters=4), random_state=0)
    model.fit(problem.X, problem.y)
    assert sum(door.drawn) == len(problem.y)
    assert door.measured == [len(problem.y)]


def test_the_count_catches_a_loop_that_draws_twice(problem, door, monkeypatch):
    """The broken twin of the two tests above: a loop that asks the door again for a second opinion."""

    def draw_twice(labels, mechanism, *, prior, rng):
        privatize(labels, mechanism, prior=prior, rng=rng.child("first opinion"))
        return privatize(labels, mechanism, prior=prior, rng=rng)

    monkeypatch.setattr("labeldp.learn.draws.privatize", draw_twice)
    LabelPrivateClassifier(random_state=0).fit(problem.X, problem.y)
    assert sum(door.drawn) == 2 * len(problem.y)


def test_rows_of_the_stages_are_disjoint_and_all_rows(problem, monkeypatch):
    seen = []

    def watch(labels, mechanism, *, prior, rng):
        seen.extend(labels.row_ids.tolist())
        return privatize(labels, mechanism, prior=prior, rng=rng)

    monkeypatch.setattr("labeldp.learn.draws.privatize", watch)
    labels = SensitiveLabels(problem.y, n_classes=3, row_ids=np.arange(len(problem.y)))
    LabelPrivateClassifier(stages=3, random_state=0).fit(problem.X, labels)
    assert sorted(seen) == list(range(len(problem.y)))


def test_a_receiver_passes_no_door(problem, door):
    release = LabelPrivateClassifier(stages=2, random_state=0).fit(problem.X, problem.y).release_
    before = (list(door.drawn), list(door.measured))
    LabelPrivateClassifier().fit_release(problem.X, release)
    assert (door.drawn, door.measured) == before


def test_the_split_does_not_look_at_labels(problem):
    other = np.random.default_rng(9).integers(0, 3, len(problem.y))
    stages = [
        LabelPrivateClassifier(stages=3, random_state=5).fit(problem.X, y).release_.stage for y in (problem.y, other)
    ]
    assert np.array_equal(*stages)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 1.1, 2.7, 8.0])
@pytest.mark.parametrize("stages", [1, 2])
def test_the_promise_is_what_was_asked_for(problem, epsilon, stages):
    model = LabelPrivateClassifier(epsilon=epsilon, stages=stages, classes=[0, 1, 2], random_state=0)
    model.fit(problem.X, problem.y)
    assert model.guarantee_ == Guarantee.pure(epsilon, assumptions=(SEEDED, *did_not_see("features")))
    assert model.guarantee_.epsilon() == epsilon
    assert model.guarantee_ is model.release_.guarantee
    assert model.release_.channel.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 1.1, 2.7, 8.0])
@pytest.mark.parametrize("spent", [None, 0.07])
def test_a_cluster_prior_and_the_response_share_the_budget(problem, epsilon, spent):
    prior = ClusterPrior(n_clusters=5, epsilon=spent)
    model = LabelPrivateClassifier(epsilon=epsilon, prior=prior, classes=[0, 1, 2], random_state=0)
    promise = model.fit(problem.X, problem.y).guarantee_
    # Rounding may only take away, and no more than a few units in the last place of the two parts.
    assert epsilon * (1 - 1e-12) <= promise.epsilon() <= epsilon
    parts = dict(promise.parts)
    assert list(parts) == ["prior", "response"]
    cost = prior.cost(epsilon, n_examples=600, n_classes=3)
    assert parts["prior"].epsilon() == cost
    assert parts["prior"].trust == Trust.CURATOR
    assert parts["response"].trust == Trust.NO_ONE
    assert model.release_.channel.epsilon <= parts["response"].epsilon()


def test_trust_and_assumptions_are_the_priors(problem, problem_of):
    elsewhere = SoftmaxRegression().fit(problem_of(300, seed=3).X, problem_of(300, seed=3).y)
    table = np.array([0.5, 0.3, 0.2])

    def promise(prior):
        return LabelPrivateClassifier(prior=prior, classes=range(3)).fit(problem.X, problem.y).guarantee_

    for prior in (None, UniformPrior()):
        assert promise(prior).trust == Trust.NO_ONE
        assert promise(prior).assumptions == did_not_see("features")
    assert promise(ClusterPrior()).trust == Trust.CURATOR
    assert promise(ClusterPrior()).assumptions == did_not_see("features")
    for prior in (PublicPrior(table), PublicPrior(elsewhere), ModelPrior(elsewhere)):
        assert promise(prior).trust == Trust.NO_ONE
        assert promise(prior).epsilon() == 1.0
        assert promise(prior).assumptions == did_not_see("features", "prior")


def test_a_model_that_saw_the_labels_is_paid_for(problem):
    first = LabelPrivateClassifier(epsilon=0.4, classes=[0, 1, 2], prior=ClusterPrior(), random_state=0)
    first.fit(problem.X, problem.y)
    prior = ModelPrior(first, guarantee=first.guarantee_.assuming("the moon is round"))
    second = LabelPrivateClassifier(epsilon=1.0, classes=[0, 1, 2], prior=prior, random_state=1)
    promise = second.fit(problem.X, problem.y).guarantee_
    assert 1.0 - 1e-12 <= promise.epsilon() <= 1.0  # rounding only takes away
    assert promise.trust == Trust.CURATOR
    assert set(promise.assumptions) == {"the moon is round", SEEDED, *did_not_see("features")}
    assert second.release_.channel.epsilon <= dict(promise.parts)["response"].epsilon() <= 0.6
    with pytest.raises(LabelDPError, match=r"`epsilon` must exceed the prior's cost 0\.4"):
        second.set_params(epsilon=0.3).fit(problem.X, problem.y)


@pytest.mark.parametrize(
    "guarantee",
    [Guarantee.zcdp(0.1), Guarantee.gaussian(sigma=10.0, sensitivity=1.0), Guarantee.profile([0.0, 1.0], [0.1, 1e-6])],
)
def test_a_model_without_a_pure_epsilon_is_refused(problem, door, guarantee):
    model = SoftmaxRegression().fit(problem.X, problem.y)
    with pytest.raises(LabelDPError, match="ModelPrior: `guarantee` must have a pure epsilon"):
        LabelPrivateClassifier(epsilon=5.0, prior=ModelPrior(model, guarantee=guarantee)).fit(problem.X, problem.y)
    assert door.drawn == []


def test_a_model_that_protects_records_is_not_added_to_labels(problem):
    model = SoftmaxRegression().fit(problem.X, problem.y)
    prior = ModelPrior(model, guarantee=Guarantee.pure(0.5, unit="record_replace"))
    with pytest.raises(PrivacyError, match="`unit` must be the same"):
        LabelPrivateClassifier(prior=prior).fit(problem.X, problem.y)


class Liar(Prior):
    """A broken prior: it says that it costs nothing, and measures at epsilon 1."""

    sees_labels: ClassVar[bool] = True

    def cost(self, budget, *, n_examples, n_classes):
        return 0.0

    def table(self, X, labels, *, budget, key):
        honest = ClusterPrior(n_clusters=2, epsilon=budget / 2).table(X, labels, budget=budget, key=key)
        return PriorTable(rows=honest.rows, index=honest.index, guarantee=honest.guarantee)


def test_a_prior_that_spends_more_than_it_says_is_caught(problem, door):
    with pytest.raises(
        PrivacyError, match=r"epsilon = 0.0 was charged for a part that spent 1.0. Nothing more was released"
    ):
        LabelPrivateClassifier(epsilon=2.0, prior=Liar()).fit(problem.X, problem.y)
    assert door.drawn == []


@pytest.mark.parametrize("prior", [None, ClusterPrior(n_clusters=4)])
@pytest.mark.parametrize("stages", [1, 3])
def test_the_ledger_is_charged_once_with_everything(problem, tmp_path, prior, stages):
    ledger = Ledger(tmp_path / "ledger.db", budget=2.5)
    model = LabelPrivateClassifier(stages=stages, prior=prior, ledger=ledger, label_set="income", random_state=0)
    model.fit(problem.X, problem.y)
    (entry,) = ledger.entries("income")
    assert entry.id == model.release_.ledger_entry
    assert ledger.spent("income") == model.guarantee_
    assert (entry.n_rows, entry.seeded) == (600, True)
    assert model.release_.label_set == "income"


@pytest.mark.parametrize("prior", [None, ClusterPrior(n_clusters=4)])
def test_over_budget_nothing_is_drawn(problem, tmp_path, door, prior):
    ledger = Ledger(tmp_path / "ledger.db", budget=1.5)
    model = LabelPrivateClassifier(epsilon=2.0, stages=2, prior=prior, ledger=ledger)
    with pytest.raises(BudgetError, match=r"within its budget of epsilon = 1.5"):
        model.fit(problem.X, problem.y)
    assert (door.drawn, door.measured) == ([], [])
    assert ledger.entries() == ()
    with pytest.raises(NotFittedError):
        model.predict(problem.X)


@pytest.mark.parametrize("prior", [None, ClusterPrior(n_clusters=4)])
def test_the_ledger_is_charged_before_anything_is_drawn(problem, tmp_path, door, monkeypatch, prior):
    """A crash at the first opening of the box leaves the charge behind: budget may be wasted, never a release hidden."""
    ledger = Ledger(tmp_path / "ledger.db", budget=2.0)

    def crash(labels):
        raise KeyboardInterrupt

    monkeypatch.setattr("labeldp.release.door.codes_of", crash)
    monkeypatch.setattr("labeldp.release.measurement.codes_of", crash)
    with pytest.raises(KeyboardInterrupt):
        LabelPrivateClassifier(epsilon=1.0, prior=prior, ledger=ledger).fit(problem.X, problem.y)
    assert len(ledger.entries()) == 1
    assert 1 - 1e-12 <= ledger.spent().epsilon() <= 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"prior": PublicPrior(np.ones(4) / 4)},
        {"prior": PublicPrior(["a", "b", "c"])},
        {"prior": ClusterPrior(groups=np.zeros(599, int))},
        {"prior": ClusterPrior(groups=np.zeros(599, int), epsilon=0.1)},
        {"prior": ClusterPrior(groups=-np.ones(600, int))},
        {"prior": ClusterPrior(n_clusters=601)},
        {"prior": ClusterPrior(epsilon=1.0)},
        {"stages": (0.5, 0.4)},
        {"correction": "wrong"},
        {"temperature": -1.0},
    ],
)
def test_a_mistake_costs_no_budget(problem, tmp_path, door, settings):
    ledger = Ledger(tmp_path / "ledger.db", budget=2.0)
    with pytest.raises(LabelDPError):
        LabelPrivateClassifier(epsilon=1.0, ledger=ledger, **settings).fit(problem.X, problem.y)
    assert ledger.entries() == ()
    assert (door.drawn, door.measured) == ([], [])


def test_features_that_cannot_be_clustered_cost_no_budget(problem, tmp_path, door):
    ledger = Ledger(tmp_path / "ledger.db", budget=2.0)
    X = problem.X.copy()
    X[0, 0] = np.nan
    boosting = HistGradientBoostingClassifier(max_iter=2)  # it takes gaps, k-means does not
    with pytest.raises(ValueError, match="contains NaN"):
        LabelPrivateClassifier(boosting, prior=ClusterPrior(), ledger=ledger).fit(X, problem.y)
    assert ledger.entries() == ()
    assert (door.drawn, door.measured) == ([], [])


def test_a_seed_is_shown(problem):
    assert LabelPrivateClassifier(random_state=0).fit(problem.X, problem.y).release_.seeded
    generator = np.random.default_rng(0)
    assert LabelPrivateClassifier(random_state=generator).fit(problem.X, problem.y).release_.seeded
    assert not LabelPrivateClassifier().fit(problem.X, problem.y).release_.seeded


def test_without_a_seed_two_fits_draw_other_noise(problem):
    first, second = (LabelPrivateClassifier().fit(problem.X, problem.y).release_.codes for _ in range(2))
    # At epsilon 1 two draws of a label agree with probability < 0.4: 600 agreements have one below 1e-200.
    assert not np.array_equal(first, second)


def test_labels_are_not_kept(problem):
    secret = np.array(["secret-a", "secret-b", "secret-c"])[problem.y]
    told = {"prior": PublicPrior([0.2, 0.5, 0.3]), "mechanism": RRWithPrior(1.0), "random_state": 0}
    model = LabelPrivateClassifier(epsilon=0.0, **told).fit(problem.X, secret)
    # At epsilon 0 the whole fitted state is a function of features and prior: other labels must leave it unchanged.
    other = LabelPrivateClassifier(epsilon=0.0, **told)
    other.fit(problem.X, secret[::-1])
    assert np.array_equal(model.release_.codes, other.release_.codes)
    assert np.array_equal(model.estimator_.coef_, other.estimator_.coef_)
    assert not any(isinstance(value, np.ndarray) and value.shape == secret.shape for value in vars(model).values())
