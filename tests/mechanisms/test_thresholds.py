"""The integers that the sampler compares words with: exact arithmetic says that no claim is exceeded."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from labeldp import kernels
from labeldp.channel import Channel, odds_to_keep, safe_odds
from labeldp.channel import finite as thresholds
from labeldp.channel.finite import FULL_RANGE, HALF_RANGE

DIGITS = 60


def realised_ratio(kept: int, share: Fraction) -> Fraction:
    """Return T[o, o] / T[z, o] = 1 + (h / 2^63) / ((1 - h / 2^63) share), as the sampler draws it."""
    return 1 + Fraction(kept, HALF_RANGE - kept) / share


def log_of(ratio: Fraction) -> mpmath.mpf:
    return mpmath.log(mpmath.mpf(ratio.numerator) / mpmath.mpf(ratio.denominator))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 1.0, 8.0, 30.0, 50.0])
def test_uniform_sets_never_exceed_epsilon(epsilon: float):
    sizes = np.arange(1, 1001)
    table = thresholds.keep_thresholds(safe_odds(epsilon), sizes, 1000)
    with mpmath.workdps(DIGITS):
        claim = mpmath.mpf(epsilon)
        for size in sizes.tolist():
            exact = log_of(realised_ratio(int(table[size]), Fraction(FULL_RANGE // size, FULL_RANGE)))
            assert exact <= claim
            if epsilon <= 8 and size <= 100:
                # A unit of h moves the log-ratio by 2^-63 (odds + k)^2 / (k odds) < 4e-16 there; 1e-9 is asked.
                assert claim - exact <= 1e-9


def test_a_threshold_one_thousandth_too_high_would_be_seen():
    table = thresholds.keep_thresholds(safe_odds(1.0), np.array([10]), 10)
    with mpmath.workdps(DIGITS):
        assert log_of(realised_ratio(int(table[10]) * 1001 // 1000, thresholds.uniform_share(10))) > 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 99_999, (1 << 31) - 1])
def test_scaled_words_are_the_exact_quotient(size: int):
    generator = np.random.default_rng(size)
    words = [0, 1, FULL_RANGE - 1, FULL_RANGE // 2, *generator.integers(0, FULL_RANGE, 300, np.uint64).tolist()]
    # The last word of one label and the first of the next: where counts floor(2^64 / k) or one more come from.
    words += [max(0, -(-FULL_RANGE * j // size) - d) for j in range(min(size, 40)) for d in (0, 1)]
    for word in words:
        assert int(kernels.scale_word(np.uint64(word), np.uint64(size))) == word * size // FULL_RANGE


ROWS = {
    "even": [0.5, 0.5],
    "uneven": [0.7, 0.2, 0.1],
    "thirds and a zero": [1 / 3, 0.0, 1 / 3, 1 / 3],
    "1e-6": [1.0 - 2e-6, 1e-6, 1e-6],
    "1e-18": [1.0 - 1e-18, 1e-18],
    "1e-25": [0.5, 0.5, 1e-25],
    "many": (np.arange(1, 301) / np.arange(1, 301).sum()).tolist(),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("keep", [0.0, 1e-9, 0.3, 0.5, 0.999999])
def test_general_rows_never_exceed_their_claim(name: str, keep: float):
    row = np.array(ROWS[name])
    # Two rows and an index, so that the general sampler is used and not the uniform one.
    channel = Channel(keep=[keep, keep], base=[row, row], index=[0, 1])
    kept, inside, sums = channel.integers
    assert sums is not None
    weights = np.diff(sums[0].astype(object), prepend=0)
    assert int(sums[0][-1]) == HALF_RANGE
    assert np.array_equal(inside[0], row > 0)
    assert np.array_equal(weights > 0, row > 0)  # nothing possible becomes impossible, nor the reverse
    share = Fraction(int(min(w for w in weights if w > 0)), HALF_RANGE)
    claimed = 1 + Fraction(keep) / (Fraction(float(channel.redraw[0])) * Fraction(float(row[row > 0].min())))
    realised = realised_ratio(int(kept[0]), share)
    assert realised <= claimed
    with mpmath.workdps(DIGITS):
        # The float that states epsilon is rounded to nearest; two units in its last place are allowed for that.
        assert log_of(realised) <= mpmath.mpf(channel.epsilon) + 2 * math.ulp(channel.epsilon)
        if row[row > 0].min() >= 1e-6 and 0 < keep < 0.9:
            # Weights are off by 2^-63 at most, 1e-13 of the least one.
            assert log_of(realised) >= mpmath.mpf(channel.epsilon) - 1e-9


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 30.0])
def test_shared_uniform_rows_never_exceed_epsilon(epsilon: float):
    with mpmath.workdps(DIGITS):
        for size in (2, 3, 10, 1000):
            keep, redraw = odds_to_keep(safe_odds(epsilon), size)
            channel = Channel(keep=keep, redraw=redraw, base=np.full(size, 1.0 / size))
            kept, _, sums = channel.integers
            assert sums is None  # one uniform row: no search
            assert log_of(realised_ratio(int(kept[0]), thresholds.uniform_share(size))) <= epsilon


def test_never_and_always_are_exact():
    for size in (1, 2, 1000):
        assert int(thresholds.keep_thresholds(0.0, np.array([size]), 1000)[size]) == 0
        assert int(thresholds.keep_thresholds(math.inf, np.array([size]), 1000)[size]) == HALF_RANGE
