"""What outputs and sums say of a mean: identities of scores, sensitivity by brute force, noise by summation."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from labeldp.channel import MeanEvidence, MeanTable, NormalLaws
from labeldp.channel.means import distinct_matrices
from labeldp.errors import LabelDPError
from labeldp.learn.ratings import GroupSums
from labeldp.learn.ratings.pairs import PairTable
from labeldp.learn.ratings.private import integer_scores, laplace_variance, number_of_groups
from labeldp.mechanisms import MeanInformation, OptimalResponse, RandomizedResponse, RRWithPrior
from labeldp.release import LabelSums, measure

STARS = (1, 2, 3, 4, 5)
FAMILY = MeanTable.of(NormalLaws(STARS))
PRIORS = np.array([[0.1, 0.1, 0.2, 0.3, 0.3], [0.6, 0.3, 0.1, 0.0, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])


def test_the_family_has_the_means_it_says():
    assert FAMILY.laws @ FAMILY.values == pytest.approx(FAMILY.grid, abs=1e-9)  # bisection ends below 1e-12
    assert FAMILY.laws.sum(axis=1) == pytest.approx(np.ones(len(FAMILY.grid)))
    assert FAMILY.slopes @ FAMILY.values == pytest.approx(np.ones(len(FAMILY.grid)))  # dm / dm


@pytest.mark.parametrize(
    "channel",
    [
        RandomizedResponse(1.0, n_classes=5).channel(),
        RRWithPrior(1.0).channel(PRIORS[[0, 1, 2, 1]]),
        OptimalResponse(2.0, objective=MeanInformation(values=STARS)).channel(PRIORS[[0, 2]], groups=[0, 1, 1, 0]),
    ],
    ids=["one row", "candidate sets", "matrices by group"],
)
def test_scores_average_to_zero_and_information_is_their_variance(channel):
    """For every example and mean: sum_o Pr[o] s(o) = 0 and sum_o Pr[o] s(o)^2 = I, whatever the channel stores."""
    for example in range(4):
        dense = channel.matrix(example)
        outputs = np.arange(dense.shape[1])
        mean, square, stated = np.zeros(len(FAMILY.grid)), np.zeros(len(FAMILY.grid)), None
        for output in outputs:
            told = MeanEvidence.read(np.full(4, output), channel, FAMILY)
            chance, score = FAMILY.laws @ dense[:, output], told.score[told.column[example]]
            mean, square = mean + chance * score, square + chance * score**2
            stated = told.information[told.matrix[example]]
        # Scores reach some 1e2 at the ends of the grid, where laws are nearly a point: rounding of 1e-16 times that.
        assert mean == pytest.approx(np.zeros_like(mean), abs=1e-9)
        assert square == pytest.approx(stated, rel=1e-9)


def test_distinct_matrices_are_found():
    channel = RRWithPrior(1.0).channel(PRIORS[[0, 1, 0, 2]])
    matrix, dense = distinct_matrices(channel, 4)
    assert matrix[0] == matrix[2]
    for example in range(4):
        assert np.array_equal(channel.matrix(example), dense[matrix[example]])


def test_the_common_mean_is_found_through_a_channel_of_two_outputs():
    """Labels of mean 3.7 through a 3|4 split: the score also vanishes at the ends, which must not be taken for the mean."""
    mechanism = OptimalResponse(2.0, objective=MeanInformation(values=STARS, spread=0.3))
    channel = mechanism.channel(FAMILY.law(3.0))
    chances = FAMILY.law(3.7) @ channel.matrix()
    codes = np.repeat(np.arange(len(chances)), np.rint(chances * 10_000).astype(int))
    # Codes in exact proportion: what is left is their rounding (1e-4) and the grid's step of 0.01.
    assert MeanEvidence.read(codes, channel, FAMILY).mean() == pytest.approx(3.7, abs=0.02)


def test_group_sums_are_label_sums_with_indicators():
    rng = np.random.default_rng(0)
    codes, groups = rng.integers(0, 5, 40), rng.integers(0, 6, 40)
    query = GroupSums(scores=[-2, -1, 0, 1, 2], groups=groups, n_groups=7)
    indicators = (groups[:, None] == np.arange(7)).astype(np.int64)
    same = LabelSums(scores=[-2, -1, 0, 1, 2], weights=indicators)
    assert np.array_equal(query.exact(codes, n_classes=5), same.exact(codes, n_classes=5))


def test_group_sums_sensitivity_by_brute_force():
    codes, groups = np.array([0, 4, 2]), np.array([0, 1, 1])
    query = GroupSums(scores=[-2, -1, 0, 1, 2], groups=groups, n_groups=2)
    stated, worst = query.sensitivity(n_classes=5), 0
    for row in range(3):
        for label in range(5):
            for other in range(5):
                one, two = codes.copy(), codes.copy()
                one[row], two[row] = label, other
                worst = max(worst, np.abs(query.exact(one, n_classes=5) - query.exact(two, n_classes=5)).sum())
    assert stated.l1 == worst == 4


@pytest.mark.parametrize("rate", [0.05, 0.25, 1.0])
def test_variance_of_the_noise_by_summation(rate):
    with mpmath.workdps(30):
        weight = lambda z: mpmath.exp(-rate * abs(z))  # noqa: E731
        total = mpmath.nsum(weight, [-mpmath.inf, mpmath.inf])
        exact = mpmath.nsum(lambda z: z * z * weight(z), [-mpmath.inf, mpmath.inf]) / total
    assert laplace_variance(rate) == pytest.approx(float(exact), rel=1e-9)  # cancellation in 1 - e^-rate: 1e-14


def test_measured_group_sums_promise_their_epsilon():
    query = GroupSums(scores=[-1, 1], groups=[0, 0, 1], n_groups=2)
    told = measure([False, True, True], query, epsilon=0.7, rng=0)
    assert told.guarantee.epsilon() == 0.7
    assert "rate 0.35" in told.noise


def test_scores_of_values():
    scores, step, base = integer_scores((0.5, 1.0, 1.5, 2.5))
    assert (base + step * scores).tolist() == [0.5, 1.0, 1.5, 2.5]
    with pytest.raises(LabelDPError, match="grid"):
        integer_scores((1.0, 2.0, math.pi))


def test_finer_groups_with_more_budget():
    counts = [number_of_groups(800_000, 6_000, 3_700, epsilon=e, scores=np.arange(5)) for e in (0.01, 0.3, 1.2, 1e6)]
    assert counts[0] == 1
    assert counts == sorted(counts)
    assert counts[-1] <= 64


def test_features_are_a_function_of_the_pairs():
    rng = np.random.default_rng(1)
    pairs = np.column_stack([rng.integers(0, 90, 2_000), rng.integers(0, 80, 2_000)])
    table = PairTable.of(pairs)
    once, again = table.features(4), PairTable.of(np.vstack([pairs, pairs[:5]])).features(4)
    for one, two in zip(once, again, strict=True):
        # A pair that comes twice is one pair; an iterative solver ends within 1e-9 of itself.
        assert one == pytest.approx(two, abs=1e-7)
        assert np.all(one[:, 0] == 1)
    assert [part.shape[1] for part in table.features(0)] == [1, 1]


def test_features_that_say_nothing_are_zero():
    """Everyone rated everything: counts are constant and all singular values but one are zero."""
    users, items = PairTable.of([(u, i) for u in range(60) for i in range(50)]).features(16)
    assert np.all(users[:, 1:] == 0)
    assert np.all(items[:, 1:] == 0)


@pytest.mark.parametrize(
    "pairs", [[], [(1, 2, 3)], [(1.5, 2)], [("a", None), ("b", "c")], np.zeros((0, 2), int)], ids=str
)
def test_bad_pairs(pairs):
    with pytest.raises(LabelDPError, match="pairs"):
        PairTable.of(pairs)
