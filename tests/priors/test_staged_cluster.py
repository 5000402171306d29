"""`StagedClusterPrior`: what it costs, that it counts as often as it says, and that a second look helps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee, Trust
from labeldp.learn import SoftmaxRegression
from labeldp.priors import ArrayExamples, PriorTable, StagedClusterPrior
from labeldp.priors import staged as _staged
from labeldp.priors.staged import cluster_count, equal_parts, fit_shares, half_whiten
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels
from labeldp.release import measurement as _measure

SIZES = {"n_examples": 3000, "n_classes": 3}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Classes that lie along short axes of the features: clusters of the features miss them, a linear model does not."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    X = np.zeros((3000, 6))
    X[np.arange(3000), y] = 3.0
    X[:, :3] += rng.normal(size=(3000, 3))
    X[:, 3:] = 4.0 * rng.normal(size=(3000, 3))
    return X, y


def examples(X, y):
    return ArrayExamples(X, SensitiveLabels(y, n_classes=3))


def table(prior, X, y, *, budget=1.0, seed=0):
    return prior.table(X, SensitiveLabels(y, n_classes=3), budget=budget, key=NoiseKey.from_seed(seed))


@pytest.mark.parametrize(
    ("prior", "spent"),
    [
        (StagedClusterPrior(None), 0.5),
        (StagedClusterPrior(None, epsilon=0.3), 0.3),
        (StagedClusterPrior(None, whole_budget=True), 1.0),
        (StagedClusterPrior(None).alone(), 1.0),
        (StagedClusterPrior(None, epsilon=0.3).alone(), 0.3),
    ],
)
def test_the_cost(prior, spent):
    assert prior.cost(1.0, **SIZES) == spent


@pytest.mark.parametrize(
    ("changes", "budget", "message"),
    [
        ({"epsilon": 1.0}, 1.0, r"`epsilon` must be in \(0, 1\)"),
        ({"epsilon": 0.0}, 1.0, r"`epsilon` must be in \(0, 1\)"),
        ({"histograms": 0}, 1.0, "`histograms` must be an integer"),
        ({}, 0.0, "`budget` must be > 0 and finite"),
        ({}, np.inf, "`budget` must be > 0 and finite"),
    ],
)
def test_bad_settings_are_refused(changes, budget, message):
    with pytest.raises(LabelDPError, match=f"StagedClusterPrior: {message}"):
        StagedClusterPrior(None, **changes).cost(budget, **SIZES)


def test_a_model_that_takes_no_soft_targets_is_refused_before_anything_is_spent(data):
    with pytest.raises(LabelDPError, match="`estimator` must have `fit_targets`"):
        StagedClusterPrior(BaseEstimator()).prepare(examples(*data), budget=1.0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_labels_are_counted_as_often_as_it_says_at_parts_that_add_up(data, monkeypatch, count):
    opened, counts, spent = _measure.codes_of, [], []
    monkeypatch.setattr(_measure, "codes_of", lambda labels: counts.append(len(labels)) or opened(labels))
    plain = StagedClusterPrior._histogram

    def watched(self, groups, labels, epsilon, key):
        spent.append(epsilon)
        return plain(self, groups, labels, epsilon, key)

    monkeypatch.setattr(StagedClusterPrior, "_histogram", watched)
    prior = StagedClusterPrior(SoftmaxRegression(), histograms=count, epsilon=0.7)
    found = table(prior.prepare(examples(*data), budget=1.0), *data)
    assert counts == [3000] * count
    assert sum(map(Fraction, spent)) <= Fraction(0.7)
    assert found.guarantee.epsilon() == 0.7
    assert found.guarantee.trust == Trust.CURATOR
    assert found.seeded
    np.testing.assert_allclose(found.rows.sum(axis=1), 1.0, rtol=1e-9)


def test_a_histogram_that_spends_more_is_caught():
    greedy = PriorTable(rows=np.ones((1, 1)), index=np.zeros(1, int), guarantee=Guarantee.pure(0.6))
    with pytest.raises(PrivacyError, match="more than its part"):
        _staged._promise([greedy], each=0.5, spent=1.0)


@pytest.mark.parametrize("count", range(1, 30))
def test_equal_parts_never_exceed_the_whole(count):
    for spent in (0.1, 0.3, 1.0, 0.7):
        part = equal_parts(spent, count)
        assert Fraction(part) * count <= Fraction(spent)
        assert part > spent / count * (1 - 1e-12)


def test_histograms_have_noise_of_their_own(data):
    """With all noise and no signal, two histograms over the same clusters must not be the same."""
    X, y = data
    drawn, plain = [], StagedClusterPrior._histogram

    class Watching(StagedClusterPrior):
        def _histogram(self, groups, labels, epsilon, key):
            drawn.append(plain(self, np.zeros(len(labels), int), labels, epsilon, key).rows)
            return plain(self, groups, labels, epsilon, key)

    table(Watching(SoftmaxRegression(), epsilon=0.5), X, y)
    assert not np.array_equal(drawn[0], drawn[1])


def test_a_second_look_helps_at_the_same_cost(data):
    X, y = data

    def right(count):
        found = [
            table(StagedClusterPrior(SoftmaxRegression(), histograms=count, epsilon=0.5), X, y, seed=seed)
            for seed in range(3)
        ]
        return np.mean([np.mean(one.rows[one.index].argmax(axis=1) == y) for one in found])

    one, two = right(1), right(2)
    assert two > one + 0.1, (one, two)  # seeded


class Hidden(SoftmaxRegression):
    """Says which features it sees."""

    asked = 0

    def hidden_features(self, X):
        Hidden.asked += 1
        return X[:, :3]


def test_hidden_features_are_used_where_there_are_some(data):
    Hidden.asked = 0
    table(StagedClusterPrior(Hidden(), histograms=3, epsilon=0.5), *data)
    assert Hidden.asked == 2


def test_proportional_fitting_meets_the_shares():
    rng = np.random.default_rng(1)
    beliefs, groups = rng.dirichlet(np.ones(4), size=400), np.arange(400) % 5
    shares = rng.dirichlet(3 * np.ones(4), size=5)
    fitted = fit_shares(beliefs, shares, groups)
    np.testing.assert_allclose(fitted.sum(axis=1), 1.0, rtol=1e-12)
    before, after = (
        max(np.abs(p[groups == g].mean(axis=0) - shares[g]).max() for g in range(5)) for p in (beliefs, fitted)
    )
    assert after < 0.1 * before  # three steps, each of which shrinks the gap
    same = fit_shares(beliefs, np.stack([beliefs[groups == g].mean(axis=0) for g in range(5)]), groups)
    np.testing.assert_allclose(same, beliefs, rtol=1e-9)  # nothing to correct, nothing is changed


def test_half_white_components_have_the_root_of_their_spread():
    rows = np.random.default_rng(2).normal(size=(5000, 3)) * [16.0, 4.0, 1.0]
    white = half_whiten(rows, n_components=2)
    assert white.shape == (5000, 2)
    np.testing.assert_allclose(np.sort(white.std(axis=0)), [2.0, 4.0], rtol=0.05)  # sampling: 1 / sqrt(2 * 5000) = 0.01


def test_more_budget_more_clusters_up_to_a_thousand():
    assert cluster_count(0.5, n_examples=60_000, n_classes=10) == 592
    assert cluster_count(5.0, n_examples=60_000, n_classes=10) == 1000
    assert cluster_count(5.0, n_examples=10, n_classes=10) == 1
