"""Noisy counts of bags as evidence about their rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from labeldp.learn.bags import SPREAD, Bags, noise_variance, read_bags
from labeldp.priors import PriorTable


def make_beliefs(n: int = 60, n_classes: int = 3, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(n_classes), size=n)


@pytest.mark.parametrize("variance", [2.0, 30.0, 800.0])
def test_offsets_are_the_likeliest(variance):
    """Against a general solver, bag by bag."""
    beliefs, index = make_beliefs(), np.repeat([0, 1], [20, 40])
    counts = np.array([[12.0, 5.0, 3.0], [2.0, 8.0, 30.0]])
    found = Bags(index=index, counts=counts, variance=variance).move(beliefs)
    for bag, h in enumerate(counts):
        mine = beliefs[index == bag]

        def move(theta, mine=mine):
            joint = mine * np.exp(theta)
            return joint / joint.sum(axis=1, keepdims=True)

        def loss(theta, move=move, h=h):
            away = h - move(theta).sum(axis=0)
            return theta @ theta / (2 * SPREAD**2) + away @ away / (2 * variance)

        best = scipy.optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
        # Damped steps end near the minimum; a hundredth of a belief is far below what the noise of counts allows to tell.
        np.testing.assert_allclose(found[index == bag], move(best.x), atol=0.01)


def test_noise_decides_between_the_model_and_the_counts():
    beliefs, index = make_beliefs(100), np.zeros(100, int)
    counts = np.array([[80.0, 15.0, 5.0]])
    own = beliefs.sum(axis=0)
    gaps = []
    for variance in (1e-2, 1e2, 1e4, 1e8):
        sums = Bags(index=index, counts=counts, variance=variance).move(beliefs).sum(axis=0)
        gaps.append(float(np.abs(sums - counts[0]).max()))
    assert gaps == sorted(gaps)
    assert gaps[0] < 1.0
    assert gaps[-1] == pytest.approx(np.abs(own - counts[0]).max(), abs=0.1)


def test_beliefs_stay_beliefs_under_absurd_counts():
    beliefs = np.array([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    for counts in ([[0.0, 0.0, 1e9]], [[-1e9, 1e9, 0.0]]):
        moved = Bags(index=np.zeros(2, int), counts=np.array(counts), variance=1e-3).move(beliefs)
        np.testing.assert_allclose(moved.sum(axis=1), 1.0, atol=1e-12)
        assert (moved >= 0).all()
        assert moved[0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "index", "epsilon"),
    [
        (np.full((2, 2), 0.5), np.repeat([0, 1], 5), 1.0),  # it says nothing
        (np.tile([0.2, 0.8], (10, 1)), np.arange(10), 1.0),  # a row per example
        (np.array([[0.2, 0.8], [0.6, 0.4]]), np.repeat([0, 1], 5), 0.0),  # it cost nothing: nobody counted
        (np.array([[0.2, 0.8], [0.6, 0.4]]), np.repeat([0, 1], 5), 1e-16),  # rounding
    ],
)
def test_what_is_no_count_of_bags_is_no_evidence(rows, index, epsilon):
    assert read_bags(PriorTable(rows=rows, index=index), epsilon=epsilon) is None


def test_shares_become_counts():
    table = PriorTable(rows=np.array([[0.25, 0.75], [0.5, 0.5]]), index=np.repeat([0, 1], [8, 2]))
    bags = read_bags(table, epsilon=0.5)
    assert bags.counts.tolist() == [[2.0, 6.0], [1.0, 1.0]]
    assert bags.variance == noise_variance(0.5, n_classes=2)


def test_the_variance_is_that_of_discrete_laplace_noise():
    for epsilon, n_classes, rate in ((0.3, 10, 0.15), (0.3, 2, 0.3), (6.0, 5, 3.0)):
        z = np.arange(-2000, 2001)
        law = np.exp(-rate * np.abs(z))
        assert noise_variance(epsilon, n_classes=n_classes) == pytest.approx((law * z**2).sum() / law.sum(), rel=1e-9)
