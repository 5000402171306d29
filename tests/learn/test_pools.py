"""Answers pooled in neighbourhoods: shares against a convex solver, the rule, and what the classifier makes of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_digits

from labeldp import InformativeResponse, LabelPrivateClassifier, privatize
from labeldp.channel import Evidence
from labeldp.learn import SoftmaxRegression
from labeldp.learn.pools import (
    PSEUDO_COUNT,
    count_pools,
    find_shares,
    fit_linear,
    overwhelms,
    pool_answers,
    says_little,
)
from labeldp.mechanisms import most_information


def test_shares_are_the_likeliest():
    """EM against a solver that knows nothing of it; the function is concave, so there is one maximum."""
    rng = np.random.default_rng(0)
    likelihood = rng.choice([1.0, 0.4], size=(300, 3))
    groups = rng.integers(0, 2, 300)
    groups[:2] = 0, 1
    found = find_shares(groups, likelihood)
    for group in (0, 1):
        mine = likelihood[groups == group]

        def loss(logits: np.ndarray, mine: np.ndarray = mine) -> float:
            shares = np.exp(logits) / np.exp(logits).sum()
            return -float(np.log(mine @ shares).sum() + PSEUDO_COUNT * np.log(shares).sum())

        best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-8})
        # A hundred steps of EM end within a nat's ten thousandth of the maximum; shares within a hundredth.
        assert loss(np.log(found[group])) - best.fun < 1e-4
        np.testing.assert_allclose(found[group], np.exp(best.x) / np.exp(best.x).sum(), atol=0.01)


def test_the_rule_depends_on_rows_epsilon_and_classes_together():
    for rows in (2_000, 8_000, 60_000):
        little = [
            says_little(epsilon, n_examples=rows, n_classes=10) for epsilon in (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        ]
        assert little == sorted(little, reverse=True)  # more budget, and answers are read one by one
        assert little[0]
        assert not says_little(16.0, n_examples=rows, n_classes=10)
    assert not says_little(1.0, n_examples=8_000, n_classes=2)  # a set is a label
    assert not says_little(1.0, n_examples=8_000, n_classes=100)  # not measured
    assert not says_little(0.0, n_examples=8_000, n_classes=10)
    assert not says_little(float("inf"), n_examples=8_000, n_classes=10)
    assert not says_little(1.0, n_examples=15, n_classes=10)


def test_no_more_pools_than_answers_can_tell():
    for rows in (100, 8_000, 60_000):
        for epsilon in (0.1, 1.0, 4.0):
            nats = rows * most_information(epsilon)
            count = count_pools(nats, n_examples=rows, n_classes=10)
            assert 10 <= count <= min(1000, rows // 2)
            assert count == 10 or count * 4 * np.log(10) <= nats


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_pools_of_real_rows_tell_far_more_than_answers_alone(epsilon: float):
    """Digits: a row's own answer names its class in about half of the cases; its neighbourhood knows nearly always."""
    X, y = load_digits(return_X_y=True)
    release = privatize(y, InformativeResponse(epsilon, n_classes=10), rng=0)
    beliefs = pool_answers(X, [Evidence(release.codes[:900], release.channel.take(slice(900))), _rest(release, 900)])
    np.testing.assert_allclose(beliefs.sum(axis=1), 1.0, atol=1e-9)
    alone = release.channel.likelihood(release.codes)
    # 1,797 rows: a share has a standard error below 1.2 points, and the gap is tens of points.
    assert np.mean(beliefs.argmax(axis=1) == y) > np.mean(alone.argmax(axis=1) == y) + 0.3


def _rest(release: object, start: int) -> Evidence:
    return Evidence(release.codes[start:], release.channel.take(slice(start, len(release.codes))))  # type: ignore[attr-defined]


def test_the_classifier_pools_where_little_is_said_and_a_receiver_gets_the_same_model():
    pytest.importorskip("torch")
    from labeldp.nn import NetClassifier

    X, y = load_digits(return_X_y=True)
    train = slice(1200)
    net = NetClassifier("mlp", hidden=64, epochs=20, random_state=0)
    owner = LabelPrivateClassifier(net, epsilon=0.5, trust="no one", classes=range(10), random_state=0)
    owner.fit(X[train], y[train])
    receiver = LabelPrivateClassifier(net, epsilon=0.5, trust="no one", classes=range(10)).fit_release(
        X[train], owner.release_
    )
    np.testing.assert_array_equal(owner.predict_proba(X[1200:]), receiver.predict_proba(X[1200:]))
    forward = LabelPrivateClassifier(
        net, epsilon=0.5, trust="no one", correction="em", classes=range(10), random_state=0
    )
    forward.fit(X[train], y[train])
    right = np.mean(owner.predict(X[1200:]) == y[1200:])
    # 597 test rows: two standard errors are four points; pooling is worth far more here.
    assert right > np.mean(forward.predict(X[1200:]) == y[1200:]) + 0.08
    assert owner.rounds_ == 2


def test_a_receiver_of_persons_answers_pools_as_the_owner_did():
    """She may have the answered rows alone: what is pooled goes by answers, and not by rows."""
    pytest.importorskip("torch")
    from labeldp.nn import NetClassifier

    X, y = load_digits(return_X_y=True)
    persons = np.arange(len(y)) // 3
    settings = {"epsilon": 2.0, "trust": "no one", "classes": range(10)}
    net = NetClassifier("mlp", hidden=16, epochs=3, random_state=0)
    owner = LabelPrivateClassifier(net, **settings, random_state=0).fit(X, y, persons=persons)
    for rows in (X, X[owner.release_.rows]):
        receiver = LabelPrivateClassifier(net, **settings).fit_release(rows, owner.release_)
        assert receiver.rounds_ == owner.rounds_ == 2
        np.testing.assert_array_equal(owner.predict_proba(X[:50]), receiver.predict_proba(X[:50]))


def test_beliefs_that_mixup_has_blurred_are_sharpened_in_the_rounds(monkeypatch):
    """With the sharpening left out, what the model says of rows it has not seen is less likely."""
    pytest.importorskip("torch")
    from labeldp.nn import NetClassifier

    X, y = load_digits(return_X_y=True)
    net = NetClassifier("mlp", hidden=32, epochs=20, mixup=1.0, random_state=0)
    assert net.blurs_beliefs
    assert not NetClassifier("mlp").blurs_beliefs
    settings = {"epsilon": 2.0, "stages": 1, "rounds": 2, "classes": range(10), "random_state": 0}

    def loss() -> float:
        model = LabelPrivateClassifier(net, **settings).fit(X[:1200], y[:1200])
        return -float(np.mean(np.log(model.predict_proba(X[1200:])[np.arange(len(y) - 1200), y[1200:]])))

    sharpened = loss()
    monkeypatch.setattr(NetClassifier, "blurs_beliefs", False)
    assert sharpened < loss() - 0.05  # seeded; the difference is 0.2 nats, its standard error 0.007


# ---------------------------------------------------------------------------------------------------------- linear models


def test_a_linear_model_is_overwhelmed_by_many_columns_and_faint_answers():
    sizes = {"n_examples": 8_000, "n_classes": 10}
    for columns in (5, 50, 500):
        little = [overwhelms(epsilon, n_columns=columns, **sizes) for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)]
        assert little == sorted(little, reverse=True)
    assert overwhelms(1.0, n_columns=500, **sizes)
    assert not overwhelms(1.0, n_columns=4, **sizes)
    assert not overwhelms(1.0, n_columns=500, n_examples=8_000, n_classes=2)
    assert not overwhelms(1.0, n_columns=500, n_examples=8_000, n_classes=100)
    for nothing in (0.0, float("inf")):
        assert not overwhelms(nothing, n_columns=500, **sizes)


def _score(model: LabelPrivateClassifier, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    chances = model.predict_proba(X)
    return float(np.mean(chances.argmax(axis=1) == y)), -float(np.mean(np.log(chances[np.arange(len(y)), y])))


def test_a_linear_model_of_faint_answers_is_pooled_and_a_receiver_gets_the_same():
    X, y = load_digits(return_X_y=True)
    settings = {"epsilon": 1.0, "trust": "no one", "classes": range(10)}
    weights = np.where(np.arange(1200) % 5 == 0, 2.0, 1.0)
    for weight in (None, weights):
        owner = LabelPrivateClassifier(**settings, random_state=0).fit(X[:1200], y[:1200], sample_weight=weight)
        receiver = LabelPrivateClassifier(**settings).fit_release(X[:1200], owner.release_, sample_weight=weight)
        np.testing.assert_array_equal(owner.predict_proba(X[1200:]), receiver.predict_proba(X[1200:]))
        plain = LabelPrivateClassifier(**settings, correction="forward", random_state=0).fit(X[:1200], y[:1200])
        (right, loss), (before, worse) = _score(owner, X[1200:], y[1200:]), _score(plain, X[1200:], y[1200:])
        # 597 rows: two standard errors are four points; pooling is worth tens of points, and a nat.
        assert right > before + 0.1
        assert loss < worse - 0.5
    assert owner.correction_ == "forward"
    assert owner.rounds_ == 0


def test_a_receiver_of_persons_answers_pools_linear_models_as_the_owner_did():
    X, y = load_digits(return_X_y=True)
    settings = {"epsilon": 2.0, "trust": "no one", "classes": range(10)}
    ids = np.arange(len(y)) // 3
    owner = LabelPrivateClassifier(**settings, random_state=0).fit(X, y, persons=ids)
    for rows in (X, X[owner.release_.rows]):
        receiver = LabelPrivateClassifier(**settings).fit_release(rows, owner.release_, persons=ids)
        np.testing.assert_array_equal(owner.predict_proba(X[:50]), receiver.predict_proba(X[:50]))


def test_answers_that_neighbourhoods_do_not_explain_are_read_one_by_one():
    """The class is a slope of one column of small numbers, and the clusters follow columns that say nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 6)) * np.array([0.01, 1, 1, 1, 1, 1])
    y = np.digitize(X[:, 0], [-0.005, 0.005])
    release = privatize(y, InformativeResponse(2.0, n_classes=3), rng=0)
    evidence = [Evidence(release.codes, release.channel)]
    likelihood = release.channel.likelihood(release.codes)
    for plain in (SoftmaxRegression(), SoftmaxRegression(l2=0.02)):
        # The same penalty is chosen, or given; the likelihoods are those of the release times a constant of each row.
        read = clone(plain).fit_likelihood(X, likelihood, classes=range(3))
        found = fit_linear(plain, X, evidence, classes=range(3))
        assert found.l2_ == read.l2_
        np.testing.assert_allclose(found.predict_proba(X), read.predict_proba(X), atol=1e-3)  # both end at tol=1e-5


def test_an_l2_that_is_given_is_kept_and_sure_answers_change_nothing():
    X, y = load_digits(return_X_y=True)
    strong = LabelPrivateClassifier(SoftmaxRegression(l2=0.5), epsilon=1.0, classes=range(10), random_state=0).fit(X, y)
    assert strong.estimator_.l2 == strong.estimator_.l2_ == 0.5
    assert SoftmaxRegression().fit(X, y).l2_ == SoftmaxRegression().plain_l2 == 1e-3
    clear = LabelPrivateClassifier(epsilon=float("inf"), classes=range(10), random_state=0).fit(X, y)
    np.testing.assert_allclose(clear.predict_proba(X), SoftmaxRegression().fit(X, y).predict_proba(X), atol=1e-3)


def test_sparse_rows_are_not_clustered():
    X, y = load_digits(return_X_y=True)
    settings = {"epsilon": 1.0, "stages": 1, "classes": range(10), "random_state": 0}
    rows = scipy.sparse.csr_matrix(X)
    # Read one by one, with a penalty that the answers choose.
    found, forward = (LabelPrivateClassifier(**settings, correction=way).fit(rows, y) for way in ("auto", "forward"))
    np.testing.assert_array_equal(found.predict_proba(rows), forward.predict_proba(rows))


def test_rows_that_are_all_the_same_have_one_neighbourhood():
    """Without a warning, which would fail: the variance of such rows, 0, is divided by on the way."""
    release = privatize(np.arange(300) % 3, InformativeResponse(4.0, n_classes=3), rng=0)
    beliefs = pool_answers(np.zeros((300, 200)), [Evidence(release.codes, release.channel)])
    np.testing.assert_allclose(beliefs, np.broadcast_to(beliefs[0], (300, 3)))
