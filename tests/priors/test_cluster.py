"""ClusterPrior: what it costs, how many clusters it makes, and the law of its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from labeldp import ClusterPrior
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.priors import ArrayExamples
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels, measure
from labeldp.release.measurement import shares

#: Every statistical test below is seeded; its failure probability over seeds would be this.
RARE = 1e-7


@pytest.mark.parametrize(
    ("budget", "n", "clusters", "cost"),
    [
        (1.0, 1000, 10, 0.25),  # 25 / 100
        (1.0, 1000, 100, 0.5),  # 25 / 10 = 2.5, more than half
        (0.1, 1000, 10, 0.05),  # half again
        (8.0, 60_000, 400, 25 / 150),
        (1.0, 60_000, 6, 0.05),  # 25 / 10,000 would drown: a twentieth
        (8.0, 60_000, 6, 0.05),  # of at most 1
        (math.inf, 1000, 10, 0.25),
    ],
)
def test_the_cost_is_25_over_the_cluster_size_between_a_twentieth_and_half(budget, n, clusters, cost):
    prior = ClusterPrior(n_clusters=clusters)
    assert prior.cost(budget, n_examples=n, n_classes=10) == pytest.approx(cost, rel=1e-15)
    groups = np.arange(n) % clusters
    assert ClusterPrior(groups=groups).cost(budget, n_examples=n, n_classes=10) == pytest.approx(cost, rel=1e-15)


def test_a_cost_that_is_given_is_the_cost():
    assert ClusterPrior(epsilon=0.3).cost(1.0, n_examples=1000, n_classes=3) == 0.3
    assert ClusterPrior(epsilon=0.3).promise(1.0, n_examples=1000, n_classes=3) == Guarantee.pure(
        0.3, trust=Trust.CURATOR
    )


@pytest.mark.parametrize(
    ("budget", "n", "clusters"),
    [
        (1.0, 10_000, 200),  # 50 / epsilon = 50 examples each
        (2.0, 10_000, 400),
        (0.1, 10_000, 20),
        (1.0, 1_000_000, 1000),  # at most 1000
        (100.0, 1000, 200),  # a budget above 10 counts as 10: 5 examples each
        (0.001, 1000, 2),  # at least 2
        (10.0, 6, 2),
        (1.0, 1, 1),
    ],
)
def test_the_default_number_of_clusters_is_sized_to_the_budget(budget, n, clusters):
    assert ClusterPrior().count(budget, n) == clusters


def test_a_default_histogram_costs_half_of_a_small_budget():
    assert ClusterPrior().cost(1.0, n_examples=10_000, n_classes=10) == 0.5


def make(prior, X, y, n_classes, *, budget=2.0, seed=0):
    return prior.table(X, SensitiveLabels(y, n_classes=n_classes), budget=budget, key=NoiseKey.from_seed(seed))


def test_clusters_of_the_features_carry_their_labels():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 3000)
    X = np.eye(3)[y] * 10 + generator.standard_normal((3000, 3))
    table = make(ClusterPrior(n_clusters=3), X, y, 3)
    assert table.probabilities().shape == (3000, 3)
    # 1000 labels a cluster and noise of scale 2 / 0.025 = 80: the own class has a share of 0.75 beyond any doubt.
    assert table.probabilities()[np.arange(3000), y].min() > 0.7
    assert table.guarantee.epsilon() == ClusterPrior(n_clusters=3).cost(2.0, n_examples=3000, n_classes=3)
    assert table.guarantee.trust == Trust.CURATOR
    assert table.seeded
    assert "3 clusters" in table.description


def test_clusters_do_not_look_at_labels():
    X = np.random.default_rng(0).standard_normal((300, 2))
    first, second = (make(ClusterPrior(n_clusters=7), X, np.arange(300) % k % 3, 3).index for k in (3, 7))
    assert np.array_equal(first, second)
    assert sorted(set(first.tolist())) == list(range(7))


@pytest.mark.parametrize("epsilon", [None, 0.4])
def test_a_prepared_prior_costs_and_answers_the_same(epsilon):
    X = np.random.default_rng(0).standard_normal((300, 2))
    prior = ClusterPrior(n_clusters=7, epsilon=epsilon)
    ready = prior.prepare(ArrayExamples(X, SensitiveLabels(np.arange(300) % 3, n_classes=3)), budget=2.0)
    facts = {"n_examples": 300, "n_classes": 3}
    assert ready.cost(2.0, **facts) == prior.cost(2.0, **facts)
    first, second = (make(source, X, np.arange(300) % 3, 3) for source in (prior, ready))
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.index, second.index)


def test_groups_are_taken_as_given_and_an_empty_one_is_uniform():
    groups = np.array([0, 0, 3, 3, 3, 1] * 50)
    labels = np.array([0, 0, 1, 1, 1, 2] * 50)
    # Noise of scale 2 / 1.9 moves a count of 50 or more by 25 with probability below e^-23 each.
    table = make(ClusterPrior(groups=groups, epsilon=1.9), None, labels, 3)
    assert np.array_equal(table.index, groups)
    assert table.rows.shape == (4, 3)
    assert table.rows[0, 0] > 0.7
    assert table.rows[3, 1] > 0.7
    assert table.rows[1, 2] > 0.6


def test_noisy_counts_become_shares():
    counts = [[3, 1, 0], [5, -2, 5], [-1, -7, 0], [0, 0, 0]]
    expected = [[0.75, 0.25, 0.0], [0.5, 0.0, 0.5], [1 / 3] * 3, [1 / 3] * 3]
    assert shares(counts).tolist() == expected


def noise_of(monkeypatch, n_classes, *, epsilon, broken=False):
    """The noise in 4000 clusters' counts, seen through the prior's own call of `measure`; `broken` repeats one draw."""
    values = []
    plain = measure

    def watched(labels, query, **options):
        answer = plain(labels, query, **options)
        values.append(answer.value)
        return answer

    monkeypatch.setattr("labeldp.priors.base.measure", watched)
    groups = np.repeat(np.arange(4000), n_classes)
    labels = np.tile(np.arange(n_classes), 4000)
    make(ClusterPrior(groups=groups, epsilon=epsilon), None, labels, n_classes, budget=4.0)
    noise = values[0] - 1  # every class occurs once in each cluster
    return np.repeat(noise[:, :1], n_classes, axis=1) if broken else noise


def law(rate, reach):
    """Pr[z] = tanh(rate / 2) exp(-rate |z|), the discrete Laplace law, with both tails gathered at +-reach."""
    z = np.arange(-reach, reach + 1)
    mass = math.tanh(rate / 2) * np.exp(-rate * np.abs(z))
    mass[[0, -1]] /= 1 - math.exp(-rate)
    return mass


def p_value(draws, rate, reach=4):
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    return scipy.stats.chisquare(counts, law(rate, reach) * len(draws)).pvalue


def test_the_gathered_law_is_a_law():
    assert law(0.5, 4).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("n_classes", "rate"), [(3, 0.5), (2, 1.0)])
def test_each_count_has_discrete_laplace_noise_of_the_right_rate(monkeypatch, n_classes, rate):
    """epsilon 1: half of it for two moved counts, all of it where one count is measured and the other follows."""
    noise = noise_of(monkeypatch, n_classes, epsilon=1.0)
    for column in noise.T:
        assert p_value(column, rate) > RARE
        # The broken twins: the rate of the other case.
        assert p_value(column, rate / 2) < RARE
        assert p_value(column, rate * 2) < RARE


def independence(noise):
    table = np.zeros((5, 5))
    np.add.at(table, tuple(np.clip(noise[:, :2], -2, 2).T + 2), 1)
    return scipy.stats.chi2_contingency(table).pvalue


def test_counts_have_noise_of_their_own(monkeypatch):
    assert independence(noise_of(monkeypatch, 3, epsilon=1.0)) > RARE


def test_one_draw_for_all_counts_is_caught(monkeypatch):
    """The paper's literal dlaplace.rvs(eps / 2, K): K lands in `loc`, and every bin gets the same number."""
    noise = noise_of(monkeypatch, 3, epsilon=1.0, broken=True)
    assert p_value(noise[:, 1], 0.5) > RARE  # each bin alone looks right: only the test above tells
    assert independence(noise) < RARE


def test_two_counts_of_two_classes_add_up_to_the_public_size(monkeypatch):
    assert (noise_of(monkeypatch, 2, epsilon=1.0).sum(axis=1) == 0).all()


@pytest.mark.parametrize(
    ("prior", "budget", "message"),
    [
        (ClusterPrior(epsilon=1.0), 1.0, r"`epsilon` must be in \(0, 1\), got 1.0. The histogram and the response"),
        (ClusterPrior(epsilon=0.0), 1.0, r"`epsilon` must be in \(0, 1\)"),
        (ClusterPrior(epsilon=-1.0), 1.0, "`epsilon` must be >= 0"),
        (ClusterPrior(epsilon=math.inf), math.inf, r"`epsilon` must be in \(0, inf\)"),
        (ClusterPrior(), 0.0, r"`budget` must be > 0, got 0.0. At epsilon 0 no histogram .* UniformPrior"),
        (ClusterPrior(n_clusters=0), 1.0, r"`n_clusters` must be an integer in \[1, 10\]"),
        (ClusterPrior(n_clusters=11), 1.0, r"`n_clusters` must be an integer in \[1, 10\]"),
        (ClusterPrior(groups=[0, 1]), 1.0, "`groups` must have one entry per label, got 2 for 10 labels"),
        (ClusterPrior(groups=[0.5] * 10), 1.0, "`groups` must be integers, one per label"),
        (ClusterPrior(groups=[-1] * 10), 1.0, "`groups` must be numbered from 0"),
        (ClusterPrior(groups=[-1] * 10, epsilon=0.5), 1.0, "`groups` must be numbered from 0"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_spent(prior, budget, message):
    with pytest.raises(LabelDPError, match=f"ClusterPrior: {message}"):
        prior.cost(budget, n_examples=10, n_classes=3)


def test_it_shows_no_array():
    shown = repr(ClusterPrior(groups=np.arange(5)))
    assert shown.startswith("ClusterPrior(n_clusters=None, epsilon=None, n_components=None, full_steps=0, ")
    assert "groups" not in shown
