"""The order of a race is the order of real numbers: near ties are decided by mpmath's logarithms and by ours alike."""

from __future__ import annotations

import decimal
import math
from collections import Counter

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, kstest

from labeldp.errors import LabelDPError
from labeldp.random import BitStream, NoiseKey
from labeldp.selection.race import RADIUS, draw_order, draw_winner

#: Each statistical test fails by chance with at most this probability.
CHANCE = 1e-6
KEY = NoiseKey.from_seed(14)


class Given:
    """A stream of chosen words."""

    def __init__(self, words):
        self.words = [int(word) for word in words]

    def take(self, count):
        taken, self.words = self.words[:count], self.words[count:]
        assert len(taken) == count
        return np.array(taken, np.uint64)


def true_score(whole, scale, digits, *, size=1):
    """The score of a runner whose V has these 64-bit words and then a half."""
    with mpmath.workdps(120):
        v = sum(mpmath.mpf(int(word)) / mpmath.mpf(2) ** (64 * (j + 1)) for j, word in enumerate(digits))
        v += mpmath.mpf(2) ** (-64 * len(digits) - 1)
        return mpmath.mpf(int(whole)) / mpmath.mpf(scale) + mpmath.log(size) - mpmath.log(-mpmath.log1p(-v))


def rival_words(score, whole, scale, shift):
    """Two words of the V at which a runner of this count has nearly this score: `shift` steps of 2^-128 beside it."""
    with mpmath.workdps(120):
        wait = mpmath.exp(mpmath.mpf(int(whole)) / mpmath.mpf(scale) - score)
        steps = int(mpmath.floor(-mpmath.expm1(-wait) * mpmath.mpf(2) ** 128)) + shift
    return steps >> 64, steps & (2**64 - 1)


def test_near_ties_are_decided_as_mpmath_decides_them():
    """300 pairs whose scores differ by a few 2^-128: floats see a tie or the wrong winner in many of them.

    The twin orders the same runners by the best floats there are, and is wrong in more than a quarter of the pairs.
    """
    generator = np.random.default_rng(3)
    wrong = 0
    for _ in range(300):
        counts = generator.integers(0, 5, 2)
        scale = float(generator.uniform(2.0, 6.0))
        first = [int(word) for word in generator.integers(2**52, 2**63, 3)]
        target = true_score(counts[0], scale, first)
        second = [*rival_words(target, counts[1], scale, int(generator.choice([-2, -1, 1, 2]))), 2**63]
        truth = [target, true_score(counts[1], scale, second)]
        # Words are taken place by place, one more for each runner as long as it is not known who is ahead.
        stream = Given([word for pair in zip(first, second, strict=True) for word in pair])
        ahead = 0 if truth[0] > truth[1] else 1
        assert draw_order(stream, counts, k=2, scale=scale).tolist() == [ahead, 1 - ahead]
        wrong += int(np.argmax([float(one) for one in truth])) != ahead
    assert wrong > 75


def test_equal_first_words_are_parted_by_the_next_ones():
    """Equal counts and equal 64 digits: the smaller V is ahead, and it is the later words that say whose that is."""
    same = 12345678901234567890
    assert draw_order(Given([same, same, 9, 6]), np.array([4, 4]), k=1, scale=1.0).tolist() == [1]
    assert draw_order(Given([same, same, 6, 9]), np.array([4, 4]), k=1, scale=1.0).tolist() == [0]
    assert draw_order(Given([same, same, 6, 6, 9, 6]), np.array([4, 4]), k=1, scale=1.0).tolist() == [1]


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_the_ends_of_the_unit_interval_get_more_digits(word):
    """A word of all zeros says V <= 2^-64, a score of 44 or anything above it; all ones, a score of -4 or below."""
    # Runner 0 has V = 0.(word)(2^63), that is 2^-65 or 1 - 2^-65; runner 1 stands where it is not known who is ahead.
    known = true_score(0, 1.0, (word, 2**63))
    for lead in (-1, 1):
        rival = (
            rival_words(known + lead * mpmath.mpf(10) ** -3, 44, 1.0, 0) if word == 0 else (word, 2**63 + lead * 9**19)
        )
        counts = np.array([0, 44]) if word == 0 else np.array([0, 0])
        truth = true_score(counts[1], 1.0, rival)
        words = [word, rival[0], 2**63, rival[1], *range(20)]
        found = draw_order(Given(words), counts, k=1, scale=1.0).tolist()
        assert found == [1 if truth > known else 0]


def test_the_logarithms_of_numpy_are_a_thousand_times_better_than_they_must_be():
    """2^-40 is allowed for each logarithm; on 4,000 arguments from all over the range the worst is below 2^-50."""
    generator = np.random.default_rng(0)
    near = np.concatenate([generator.uniform(0, 0.5, 2000), np.exp2(-generator.uniform(1, 31, 2000))])
    wait = np.concatenate([-np.log1p(-near), -np.log(near)])
    worst = 0.0
    with mpmath.workdps(30):
        for function, oracle, points in (
            (np.log1p, lambda x: mpmath.log1p(-x), -near),
            (np.log, mpmath.log, near),
            (np.log, mpmath.log, wait),
        ):
            values = function(points)
            for point, value in zip(np.abs(points).tolist(), values.tolist(), strict=True):
                truth = oracle(mpmath.mpf(point))
                worst = max(worst, float(abs(value - truth) / max(abs(truth), mpmath.mpf(2) ** -3)))
    assert worst < 2.0**-50
    assert RADIUS > 70 * 2.0**-40 + 1.5 * 2.0**-34 + 1e-13


def test_the_law_of_one_against_a_bottom_line_is_the_gumbel_distribution():
    """Pr[count at place 0 wins over exp(x)] = 1 / (1 + e^-x), for several sizes of the gap; a wrong scale is seen."""
    bits, runs = BitStream(KEY), 4_000
    for gap, scale in ((0, 1.0), (2, 1.0), (3, 0.7)):
        wins = sum(draw_order(bits, np.array([gap, 0]), k=1, scale=scale)[0] == 0 for _ in range(runs))
        for wrong, seen in ((1.0, False), (1.6, True)):
            chance = 1 / (1 + math.exp(-(gap + (wrong - 1)) / scale))
            misfit = (wins - runs * chance) ** 2 / (runs * chance * (1 - chance))
            assert (chi2.sf(misfit, 1) < CHANCE) == seen


def test_sizes_and_extras_enter_the_weights():
    """Weights size * exp((whole + extra) / scale), here 3 e^(1/2), 1, e^(3/2)."""
    bits, runs = BitStream(KEY.child("sizes")), 4_000
    setting = {"k": 1, "scale": 2.0, "extra": np.array([0.0, -1.0, 2.0]), "sizes": np.array([3, 1, 1])}
    seen = Counter(int(draw_order(bits, np.array([1, 1, 1]), **setting)[0]) for _ in range(runs))
    weights = np.array([3 * math.exp(0.5), 1.0, math.exp(1.5)])
    expected = runs * weights / weights.sum()
    observed = np.array([seen[place] for place in range(3)])
    assert chi2.sf(((observed - expected) ** 2 / expected).sum(), 2) > CHANCE
    flat = runs * np.array([1, 1, 1]) / 3
    assert chi2.sf(((observed - flat) ** 2 / flat).sum(), 2) < CHANCE


def test_a_long_race_is_uniform_among_equals():
    """The winner among 300,000 equals has a uniform place; Kolmogorov's statistic over 400 races."""
    bits = BitStream(KEY.child("long"))
    places = [int(draw_order(bits, np.zeros(20_000, np.int64), k=1, scale=1.0)[0]) / 20_000 for _ in range(400)]
    assert kstest(places, "uniform").pvalue > CHANCE
    assert kstest([place**2 for place in places], "uniform").pvalue < CHANCE


def test_whole_orders_and_absurd_scales_are_orders():
    counts = np.array([5, 3, 3, 0])
    for scale in (1e-320, 1e-300, 1.0, 1e300):
        assert sorted(draw_order(BitStream(KEY), counts, k=4, scale=scale).tolist()) == [0, 1, 2, 3]
    assert draw_order(BitStream(KEY), counts, k=1, scale=1e-320).tolist() == [0]


def test_the_caller_s_decimal_context_does_not_matter():
    counts, same = np.array([4, 4]), 12345678901234567890
    with decimal.localcontext() as context:
        context.prec, context.rounding = 2, decimal.ROUND_UP
        context.traps[decimal.Inexact] = context.traps[decimal.FloatOperation] = True
        assert draw_order(Given([same, same, 9, 6]), counts, k=1, scale=1.0).tolist() == [1]
        assert draw_order(Given([0, 2**63, 9, 6, 5, 4]), counts, k=1, scale=1.0).tolist() == [0]


@pytest.mark.parametrize("noise", ["laplace", "exponential", "gaussian"])
def test_discrete_noise_and_a_public_real_are_added_without_rounding(noise):
    """A score that moves by one moves exactly so, whatever is added to it: floats would round 0.1 + 2^52 away.

    Place 1 has the same noise in both runs (same key). With noise drowned by the counts, one more vote must decide.
    """
    huge = 2**53 - 5
    for extra in (np.array([0.1, 0.2]), np.array([-0.3, 0.1])):
        assert draw_winner(BitStream(KEY), np.array([huge, huge]), noise=noise, scale=1e-3, extra=extra) == 1
        assert draw_winner(BitStream(KEY), np.array([huge + 1, huge]), noise=noise, scale=1e-3, extra=extra) == 0


def test_a_forbidden_place_never_wins_and_equals_go_to_the_first():
    counts = np.array([9, 0, 0])
    for noise in ("gumbel", "exponential", "laplace", "gaussian"):
        extra = np.array([-np.inf, 0.0, 0.0])
        won = {
            draw_winner(BitStream(KEY.child(noise, i)), counts, noise=noise, scale=1.0, extra=extra) for i in range(40)
        }
        assert won == {1, 2}
    assert draw_winner(BitStream(KEY), np.array([3, 3, 3]), noise="laplace", scale=1e-3) == 0


def test_noise_that_would_overflow_a_sum_is_refused():
    """Noise of scale 2^61 is beyond 2^62 with probability e^-2 a draw: among 100 draws but for one key in 10^6."""
    with pytest.raises(LabelDPError, match=r"`noise` must be below 2\^62"):
        draw_winner(BitStream(KEY), np.zeros(100, np.int64), noise="laplace", scale=2.0**61)
