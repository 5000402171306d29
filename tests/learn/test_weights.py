"""Public weights of rows: whole numbers are copies, 0 leaves a row out, and neither the release nor its price changes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, PredefinedSplit, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from labeldp import Ledger, RandomizedResponse, privatize
from labeldp.errors import HeavyRowWarning, LabelDPError
from labeldp.learn import LabelPrivateClassifier, OutputPerturbation, PrivateSearchCV, SoftmaxRegression
from labeldp.learn.corrections import draw_copies
from labeldp.learn.crossfit import base_rates, fit_map, flat_map, recentre
from labeldp.learn.search import tabulate
from labeldp.priors import ClusterPrior
from labeldp.validate import check_weights

UNSEEN = "the sample weights did not see these labels"
#: The solver ends where no entry of the gradient exceeds this; coefficients of standardised columns then agree to
#: about a hundred times as much, since the penalty alone makes the loss curved by 1e-2.
TIGHT = {"tol": 1e-7, "l2": 1e-2, "max_iter": 2000}


@pytest.fixture(scope="module")
def release(problem):
    return privatize(problem.y, RandomizedResponse(2.0, n_classes=3), rng=0)


@pytest.fixture(scope="module")
def counts(problem):
    return np.random.default_rng(5).integers(0, 4, len(problem.y))


# ------------------------------------------------------------------------------------------------ the built-in learner


@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
@pytest.mark.parametrize("how", ["fit_targets", "fit_likelihood"])
def test_whole_weights_are_copies_for_softmax(problem, release, counts, how, kind):
    X = {"sparse": scipy.sparse.csr_matrix, "dense": np.asarray, "float32": np.float32}[kind](problem.X)
    settings = TIGHT if kind != "float32" else {**TIGHT, "tol": 1e-4}  # sums in short floats err by 1e-7 of their size
    evidence = release.channel.likelihood(release.codes)
    if how == "fit_targets":
        evidence = evidence / evidence.sum(axis=1, keepdims=True)
    many = np.repeat(np.arange(len(counts)), counts)
    weighted = getattr(SoftmaxRegression(**settings), how)(X, evidence, classes=[0, 1, 2], sample_weight=counts)
    copied = getattr(SoftmaxRegression(**settings), how)(X[many], evidence[many], classes=[0, 1, 2])
    close = 5e-5 if kind != "float32" else 1e-2
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=close)
    # Scaling all weights changes nothing: the loss is a mean.
    scaled = getattr(SoftmaxRegression(**settings), how)(X, evidence, classes=[0, 1, 2], sample_weight=counts * 0.5)
    np.testing.assert_allclose(weighted.coef_, scaled.coef_, atol=close)


@pytest.mark.parametrize("how", ["fit_targets", "fit_likelihood"])
@pytest.mark.parametrize("weights", [[1.0], [-1.0, 1.0], [np.nan, 1.0], [0.0, 0.0]])
def test_softmax_refuses_bad_weights(how, weights):
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        getattr(SoftmaxRegression(), how)(np.eye(2), np.eye(2), classes=[0, 1], sample_weight=weights)


# ------------------------------------------------------------------------------------------------ any learner


@pytest.mark.parametrize("correction", ["forward", "posterior", "unbiased", "em", "none"])
def test_whole_weights_are_copies_of_what_was_released(problem, release, counts, correction):
    def train(X, released, weights=None):
        learner = LabelPrivateClassifier(SoftmaxRegression(**TIGHT), correction=correction)
        return learner.fit_release(X, released, sample_weight=weights).estimator_.coef_

    many = np.repeat(np.arange(len(counts)), counts)
    copied = train(problem.X[many], release.take(many))
    np.testing.assert_allclose(train(problem.X, release, counts), copied, atol=5e-5)
    # The broken twin: weights that are not read.
    assert np.abs(train(problem.X, release) - copied).max() > 1e-3


@pytest.mark.parametrize("correction", ["crossfit", "posterior", "none"])
@pytest.mark.parametrize("inner", [LogisticRegression(), RandomForestClassifier(10, random_state=0), GaussianNB()])
def test_a_weight_of_zero_leaves_the_row_out_and_one_is_no_weight(problem, release, inner, correction):
    keep = np.random.default_rng(1).random(len(problem.y)) < 0.6
    learner = LabelPrivateClassifier(inner, correction=correction)
    without = learner.fit_release(problem.X[keep], release.take(np.flatnonzero(keep))).predict_proba(problem.X)
    wrong = np.where(keep[:, None], problem.X, 1e6)  # what a row of weight 0 says does not matter
    weighted = learner.fit_release(wrong, release, sample_weight=keep.astype(float)).predict_proba(problem.X)
    np.testing.assert_array_equal(weighted, without)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("inner", [SoftmaxRegression(), LogisticRegression(), KNeighborsClassifier(50)])
@pytest.mark.filterwarnings("ignore:.*takes no sample_weight")
def test_probabilities_are_those_of_the_weighted_rows(inner, stages):
    # A constant feature: all that there is to learn is the base rate, 0.3 without weights and 0.15 with them.
    rng = np.random.default_rng(0)
    n = 40_000
    second = rng.random(n) < 0.5
    y = (rng.random(n) < np.where(second, 0.6, 0.0)).astype(int)
    weights = np.where(second, 1.0, 3.0) * 0.01
    X = rng.normal(size=(n, 1))
    learner = LabelPrivateClassifier(inner, epsilon=2.0, stages=stages, classes=[0, 1], random_state=0)
    fitted = learner.fit(X, y, sample_weight=weights)
    # The standard deviation of the estimated rate at epsilon 2 is 0.0055; seeded, and six of them.
    assert abs(fitted.predict_proba(X[:4000])[:, 1].mean() - 0.15) < 0.033
    assert UNSEEN in fitted.guarantee_.assumptions


def test_base_rates_maps_and_centres_take_whole_weights_as_copies(problem, release, counts):
    likelihood = release.channel.likelihood(release.codes)
    many = np.repeat(np.arange(len(counts)), counts)
    rates = base_rates(likelihood, weights=counts.astype(float))
    np.testing.assert_allclose(rates, base_rates(likelihood[many]), atol=1e-7)
    z = np.log(np.random.default_rng(0).dirichlet(np.ones(3), len(counts)))
    kept = counts > 0
    weighted = fit_map(z[kept], likelihood[kept], towards=flat_map(rates), weights=counts[kept].astype(float))
    copied = fit_map(z[many], likelihood[many], towards=flat_map(rates))
    # The ridge is a row among 450 or among 900.
    assert abs(weighted.slope - copied.slope) < 0.01
    centred = recentre(copied, z[kept], rates, weights=counts[kept].astype(float))
    np.testing.assert_allclose(centred.intercepts, recentre(copied, z[many], rates).intercepts, atol=1e-6)
    np.testing.assert_allclose(np.average(centred(z[kept]), axis=0, weights=counts[kept]), rates, atol=1e-6)


def test_an_estimator_without_weights_gets_copies_in_proportion():
    rng = np.random.default_rng(0)
    weights, targets = rng.exponential(size=500), rng.dirichlet(np.ones(3), 500)
    rows, columns, ones = draw_copies(KNeighborsClassifier(), targets, weights=weights)
    assert len(rows) == 1000
    assert (ones == 1).all()
    # Systematic draws along the rows: each row has as many copies as it should, rounded down or up.
    wanted = 1000 * weights / weights.sum()
    assert (np.abs(np.bincount(rows, minlength=500) - wanted) < 1).all()
    share = np.bincount(columns, minlength=3) / 1000
    # 1000 draws of a share near 1/3 err by 0.015; systematic ones by less. Seeded.
    np.testing.assert_allclose(share, weights @ targets / weights.sum(), atol=0.05)


def test_copies_keep_the_weight_of_every_class():
    rng = np.random.default_rng(0)
    weights, targets = rng.exponential(size=2000), rng.dirichlet(np.ones(5), 2000)
    rows, columns, shares = draw_copies(GaussianNB(), targets, weights=weights)
    assert len(rows) <= 2 * 2000
    found = np.bincount(columns, weights=shares, minlength=5)
    np.testing.assert_allclose(found, weights @ targets, rtol=0.05)
    np.testing.assert_allclose(found.sum(), weights.sum(), rtol=0.005)  # but for a draw at the end, and dropped ones


# ------------------------------------------------------------------------------------------------ what is promised


def test_the_release_and_its_price_are_the_same_and_the_guarantee_says_what_is_assumed(problem, counts, tmp_path):
    def fit(place, **weights):
        ledger = Ledger(tmp_path / place)
        learner = LabelPrivateClassifier(epsilon=1.0, random_state=3, ledger=ledger, classes=[0, 1, 2])
        return learner.fit(problem.X, problem.y, **weights), [e.guarantee.epsilon() for e in ledger.entries("labels")]

    (plain, cost), (weighted, same_cost) = fit("a"), fit("b", sample_weight=counts)
    assert np.array_equal(plain.release_.codes, weighted.release_.codes)
    assert cost == same_cost == [1.0]
    assert UNSEEN in str(weighted.guarantee_)
    assert UNSEEN in weighted.release_.guarantee.assumptions
    assert UNSEEN not in plain.guarantee_.assumptions
    receiver = LabelPrivateClassifier().fit_release(problem.X, plain.release_, sample_weight=counts)
    np.testing.assert_array_equal(receiver.predict_proba(problem.X), weighted.predict_proba(problem.X))
    assert UNSEEN in receiver.guarantee_.assumptions
    assert UNSEEN not in receiver.release_.guarantee.assumptions


@pytest.mark.parametrize("make", [LabelPrivateClassifier, PrivateSearchCV])
@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(3), "one weight per row"),
        (np.ones((600, 1)), "one weight per row"),
        (2.0, "one weight per row"),
        (["heavy"] * 600, "hold numbers"),
        (np.full(600, np.nan), "be finite and >= 0, got nan in row 0"),
        (np.r_[np.ones(599), -1.0], "got -1.0 in row 599"),
        (np.r_[np.ones(599), np.inf], "be finite"),
        (np.zeros(600), "all zero"),
        (np.full(600, 1e308), "overflows"),
    ],
)
def test_bad_weights_are_refused_before_anything_is_spent(problem, door, tmp_path, make, weights, words):
    ledger = Ledger(tmp_path / "spent")
    with pytest.raises(LabelDPError, match=words):
        make(ledger=ledger).fit(problem.X, problem.y, sample_weight=weights)
    assert not ledger.entries("labels")
    assert not door.drawn
    assert not door.measured


class NoWeights(SoftmaxRegression):
    def fit_targets(self, X, targets, *, classes):
        return super().fit_targets(X, targets, classes=classes)

    def fit_likelihood(self, X, likelihood, *, classes):
        return super().fit_likelihood(X, likelihood, classes=classes)


@pytest.mark.parametrize(
    "settings",
    [{}, {"correction": "crossfit"}, {"correction": "em", "prior": ClusterPrior(n_clusters=5)}, {"stages": 2}],
)
def test_an_estimator_that_cannot_take_them_is_refused_before_anything_is_spent(problem, door, settings):
    learner = LabelPrivateClassifier(NoWeights(), **settings)
    with pytest.raises(LabelDPError, match="has no `sample_weight`"):
        learner.fit(problem.X, problem.y, sample_weight=np.ones(600))
    assert not door.drawn


def test_a_first_stage_without_weight_is_refused_before_it_is_drawn(problem, door):
    learner = LabelPrivateClassifier(stages=(0.01, 0.99), random_state=0)
    stage = learner.fit(problem.X, problem.y).release_.stage
    drawn = len(door.drawn)
    with pytest.raises(LabelDPError, match="leave the first stage a row"):
        learner.fit(problem.X, problem.y, sample_weight=(stage == 1).astype(float))
    assert len(door.drawn) == drawn


def test_a_run_goes_on_with_its_own_weights_only(problem, counts, tmp_path):
    def learner():
        return LabelPrivateClassifier(stages=2, random_state=0, checkpoint=tmp_path / "run")

    first = learner().fit(problem.X, problem.y, sample_weight=counts)
    again = learner().fit(problem.X, problem.y, sample_weight=list(counts))
    np.testing.assert_array_equal(first.predict_proba(problem.X), again.predict_proba(problem.X))
    for weights in (None, counts + 1):
        with pytest.raises(LabelDPError, match="another set of sample weights"):
            learner().fit(problem.X, problem.y, sample_weight=weights)


# ------------------------------------------------------------------------------------------------ the search


def test_a_search_weighs_its_scores_and_its_training(problem, release):
    keep = np.random.default_rng(1).random(len(problem.y)) < 0.7
    fold = np.arange(len(problem.y)) % 3
    grid = {"l2": [1e-3, 1e-1]}
    wrong = np.where(keep[:, None], problem.X, 50.0)
    weighted = PrivateSearchCV(SoftmaxRegression(), grid, cv=PredefinedSplit(fold))
    weighted.fit_release(wrong, release, sample_weight=keep)
    kept = PrivateSearchCV(SoftmaxRegression(), grid, cv=PredefinedSplit(fold[keep]))
    kept.fit_release(problem.X[keep], release.take(np.flatnonzero(keep)))
    for name in ("mean_test_score", "behind", "behind_error", "split0_test_score"):
        np.testing.assert_allclose(weighted.cv_results_[name], kept.cv_results_[name], rtol=1e-9, atol=1e-12)
    assert UNSEEN in weighted.guarantee_.assumptions
    assert UNSEEN in weighted.best_estimator_.guarantee_.assumptions


def test_whole_weights_of_scores_are_copies_of_columns_but_no_further_evidence():
    rng = np.random.default_rng(0)
    table, counts = rng.normal(size=(3, 200)), rng.integers(1, 4, 200)
    candidates = [{"l2": value} for value in (1, 2, 3)]
    weighted, best = tabulate(candidates, table, [100, 100], weights=counts.astype(float))
    sizes = [int(counts[:100].sum()), int(counts[100:].sum())]
    copied, other = tabulate(candidates, np.repeat(table, counts, axis=1), sizes)
    assert best == other
    for name in ("mean_test_score", "behind", "split1_test_score"):
        np.testing.assert_allclose(weighted[name], copied[name], atol=1e-12)
    assert (np.delete(weighted["behind_error"], best) > np.delete(copied["behind_error"], best)).all()


def test_a_search_says_before_the_charge_where_weights_cannot_be(problem, door):
    empty = np.ones(len(problem.y))
    held = next(iter(KFold(5, shuffle=True, random_state=0).split(problem.X)))[1]
    empty[held] = 0.0
    with pytest.raises(LabelDPError, match="leave each part of each fold a row"):
        PrivateSearchCV(SoftmaxRegression(), {"l2": [0.1]}).fit(problem.X, problem.y, sample_weight=empty)
    counted = PrivateSearchCV(OutputPerturbation(), {"l2": [0.1]}, by="noisy_count", delta=1e-6)
    with pytest.raises(LabelDPError, match="another sensitivity"):
        counted.fit(problem.X, problem.y, sample_weight=np.ones(len(problem.y)))
    assert not door.drawn
    assert not door.measured


def test_progress_is_told_of_every_fit(problem, release):
    told = []
    search = PrivateSearchCV(SoftmaxRegression(), {"l2": [0.01, 0.1]}, cv=3, progress=lambda *at: told.append(at))
    search.fit_release(problem.X, release)
    assert told == [(done, 6) for done in range(1, 7)]


# ------------------------------------------------------------------------------------------------ scikit-learn's routing


def test_weights_are_routed_to_those_who_ask(problem, counts):
    inner = LabelPrivateClassifier(LogisticRegression(), random_state=0, classes=[0, 1, 2])
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False), inner.set_fit_request(sample_weight=True)
        )
        inner.set_score_request(sample_weight=True)
        routed = pipeline.fit(problem.X, problem.y, sample_weight=counts)[-1]
        pipeline.set_score_request(sample_weight=True)  # scikit-learn 1.6 asks the pipeline, later ones its last step
        found = cross_validate(pipeline, problem.X, problem.y, params={"sample_weight": counts}, cv=2)
        search = PrivateSearchCV(SoftmaxRegression(), {"l2": [0.1]}, cv=2, random_state=0)
        search = make_pipeline(search.set_fit_request(sample_weight=True, groups=False))
        searched = search.fit(problem.X, problem.y, sample_weight=counts)[-1]
    scaled = StandardScaler().fit_transform(problem.X)
    direct = LabelPrivateClassifier(LogisticRegression(), random_state=0, classes=[0, 1, 2])
    direct.fit(scaled, problem.y, sample_weight=counts)
    np.testing.assert_array_equal(routed.predict_proba(scaled), direct.predict_proba(scaled))
    assert UNSEEN in routed.guarantee_.assumptions
    assert UNSEEN in searched.guarantee_.assumptions
    assert len(found["test_score"]) == 2


# ------------------------------------------------------------------------------------------------ a few heavy rows


def test_a_row_that_outweighs_all_others_is_warned_of_with_the_effective_number(problem):
    weights = np.ones(len(problem.y))
    weights[3] = 1e6
    model = LabelPrivateClassifier(epsilon=2.0, classes=range(3), random_state=0)
    with pytest.warns(HeavyRowWarning, match=rf"`sample_weight` makes {len(weights):,} rows worth 1: "):
        model.fit(problem.X, problem.y, sample_weight=weights)


@pytest.mark.parametrize(
    "weights",
    [
        np.r_[np.ones(5), np.zeros(5000)],  # rows of weight 0 are left out: five equal rows are worth five
        np.full(1000, 1e-300),
        np.full(1000, 1e300),
        np.random.default_rng(0).pareto(1.5, 1000) + 1.0,
    ],
    ids=["a subset", "tiny", "huge", "a long tail"],
)
def test_usual_weights_are_not_warned_of(weights):
    check_weights("demo", "sample_weight", weights, n_rows=len(weights))  # warnings are errors
