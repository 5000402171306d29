"""The exact samplers against the exact laws, and broken twins that the same test must catch.

The judge is `worst_cell`: the counts of the cells z = -w..w and of both tails are binomial under the exact law
(mpmath, 50 digits); the smallest exact two-sided binomial probability times the number of cells bounds the chance of
a false alarm (Bonferroni). A law passes above `ALARM`, so each judgement errs with probability at most 1e-7 over the
choice of seed, and no test makes more than three (3e-7); once the seed is fixed the answer is too. A twin must fall
below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from labeldp import samplers
from labeldp.arrays import Int64s, Words
from labeldp.errors import LabelDPError
from labeldp.random import BitStream, NoiseKey
from labeldp.samplers import (
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    rate_below,
    uniform_below,
    variance_above,
)

ALARM = 1e-7
DRAWS = 200_000
RATES = [Fraction(1, 50), Fraction(1, 10), Fraction(2, 3), Fraction(1), Fraction(7, 2), rate_below(0.37)]
VARIANCES = [Fraction(1, 5), Fraction(1), Fraction(7, 3), Fraction(100), variance_above(1234.5)]


def stream(seed: int) -> BitStream:
    return BitStream(NoiseKey.from_seed(seed))


def weight_laplace(rate: Fraction) -> Callable[[int], mpmath.mpf]:
    return lambda z: mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator * abs(z))


def weight_gaussian(variance: Fraction) -> Callable[[int], mpmath.mpf]:
    return lambda z: mpmath.exp(-mpmath.mpf(z * z) * variance.denominator / (2 * variance.numerator))


def cell_law(weight: Callable[[int], mpmath.mpf], width: int) -> npt.NDArray[np.float64]:
    """Probabilities of z < -width, -width .. width, z > width; summed until the terms are below 1e-40 of the first."""
    with mpmath.workdps(50):
        weights = [weight(0)]
        while len(weights) <= width + 1 or weights[-1] > mpmath.mpf("1e-40"):
            weights.append(weight(len(weights)))
        total = weights[0] + 2 * mpmath.fsum(weights[1:])
        tail = mpmath.fsum(weights[width + 1 :])
        cells = [tail, *weights[width:0:-1], *weights[: width + 1], tail]
        return np.array([float(cell / total) for cell in cells])


def worst_cell(counts: npt.NDArray[np.int64], law: npt.NDArray[np.float64]) -> float:
    """A bound on the chance that some cell strays this far: smallest two-sided binomial probability times cells."""
    total = int(counts.sum())
    low, high = binom.cdf(counts, total, law), binom.sf(counts - 1, total, law)
    return float(np.min(2 * np.minimum(low, high)) * counts.size)


def judge(draws: Int64s, weight: Callable[[int], mpmath.mpf], deviation: float) -> float:
    width = max(3, min(12, math.ceil(2 * deviation))) if deviation < 10 else math.ceil(2 * deviation)
    clipped = np.clip(draws, -width - 1, width + 1).astype(np.int64)
    return worst_cell(np.bincount(clipped + width + 1, minlength=2 * width + 3), cell_law(weight, width))


def judge_laplace(draws: Int64s, rate: Fraction) -> float:
    return judge(draws, weight_laplace(rate), math.sqrt(2) / float(rate))


def judge_gaussian(draws: Int64s, variance: Fraction) -> float:
    return judge(draws, weight_gaussian(variance), math.sqrt(variance))


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_laplace_has_the_exact_law(rate: Fraction) -> None:
    assert judge_laplace(discrete_laplace(stream(11), rate=rate, size=DRAWS), rate) > ALARM


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_gaussian_has_the_exact_law(variance: Fraction) -> None:
    assert judge_gaussian(discrete_gaussian(stream(12), variance=variance, size=DRAWS), variance) > ALARM


@pytest.mark.parametrize("factor", [Fraction(2, 3), Fraction(3, 2)], ids=str)
def test_a_wrong_scale_is_caught(factor: Fraction) -> None:
    draws = DRAWS // 8  # so wrong a scale shows in far fewer than the exact laws are judged by
    for rate in RATES:
        assert judge_laplace(discrete_laplace(stream(13), rate=rate * factor, size=draws), rate) < ALARM
    for variance in VARIANCES:
        assert judge_gaussian(discrete_gaussian(stream(14), variance=variance * factor, size=draws), variance) < ALARM


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_zero_counted_twice_is_caught(rate: Fraction) -> None:
    """Without the rejection of minus zero, |z| is geometric and zero has twice its share."""
    generator = np.random.default_rng(15)
    magnitudes = generator.geometric(1 - math.exp(-rate), DRAWS) - 1
    assert judge_laplace(magnitudes * generator.choice([-1, 1], DRAWS), rate) < ALARM


def test_rounded_floating_point_noise_is_caught() -> None:
    """Rounding continuous noise gives zero less (Laplace) or spreads more (Gaussian, variance + 1/12)."""
    generator = np.random.default_rng(16)
    rounded = np.rint(generator.laplace(scale=1.0, size=DRAWS)).astype(np.int64)
    assert judge_laplace(rounded, Fraction(1)) < ALARM
    rounded = np.rint(generator.normal(scale=1.0, size=DRAWS)).astype(np.int64)
    assert judge_gaussian(rounded, Fraction(1)) < ALARM


def sign_pairs(draws: Int64s) -> npt.NDArray[np.int64]:
    """How often each of the nine pairs of signs occurs among disjoint neighbours."""
    signs = np.sign(draws).reshape(-1, 2) + 1
    return np.bincount(signs[:, 0] * 3 + signs[:, 1], minlength=9)


def test_neighbours_are_independent_and_signs_fair() -> None:
    rate = Fraction(2, 3)
    zero = math.tanh(float(rate) / 2)
    signs = np.array([(1 - zero) / 2, zero, (1 - zero) / 2])
    law = np.outer(signs, signs).reshape(-1)
    draws = discrete_laplace(stream(17), rate=rate, size=DRAWS)
    assert worst_cell(sign_pairs(draws), law) > ALARM
    assert worst_cell(sign_pairs(np.repeat(draws[::2], 2)), law) < ALARM  # twin: each draw handed out twice
    assert worst_cell(sign_pairs(np.abs(draws)), law) < ALARM  # twin: no signs


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 3), (1, 1), (7, 2), (5 * 2**70, 3 * 2**70)])
def test_bernoulli_exp_has_the_exact_probability(numerator: int, denominator: int) -> None:
    count = 20_000
    tops = np.full(count, numerator, dtype=object)
    heads = bernoulli_exp(stream(18), numerator=tops, denominator=denominator)
    probability = math.exp(-Fraction(numerator, denominator))
    law = np.array([probability, 1 - probability])
    assert worst_cell(np.array([heads.sum(), count - heads.sum()]), law) > ALARM
    twin = bernoulli_exp(stream(19), numerator=tops + denominator, denominator=denominator)  # one factor e too few
    assert worst_cell(np.array([twin.sum(), count - twin.sum()]), law) < ALARM


def test_bernoulli_exp_goes_element_by_element() -> None:
    numerator, denominator = np.array([[0], [1], [4]]), np.array([1, 2, 3, 2**61])
    heads = bernoulli_exp(
        stream(20), numerator=np.tile(numerator[..., None], 4000), denominator=np.tile(denominator[:, None], 4000)
    )
    assert heads.shape == (3, 4, 4000)
    for row, column in np.ndindex(3, 4):
        probability = math.exp(-int(numerator[row, 0]) / int(denominator[column]))
        wins = int(heads[row, column].sum())
        # 12 cells at 1e-8 two-sided each: below 2e-7 in all. A probability of 1 - 2^-60 reads as 1 and must win always.
        assert worst_cell(np.array([wins, 4000 - wins]), np.array([probability, 1 - probability])) > 1e-8


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 64, 100])
def test_uniform_below_is_uniform(bound: int) -> None:
    values = uniform_below(stream(21), np.full(50_000, bound))
    assert values.dtype == np.int64
    assert worst_cell(np.bincount(values, minlength=bound), np.full(bound, 1 / bound)) > ALARM
    if bound > 1:
        shifted = np.maximum(values, 1)  # twin: zero never comes
        assert worst_cell(np.bincount(shifted, minlength=bound), np.full(bound, 1 / bound)) < ALARM


@given(bounds=st.lists(st.integers(1, 2**200), min_size=1, max_size=20))
def test_uniform_below_stays_below_bounds_of_any_size(bounds: list[int]) -> None:
    values = uniform_below(stream(22), np.array(bounds, dtype=object))
    assert all(0 <= int(value) < bound for value, bound in zip(values, bounds, strict=True))


def test_uniform_below_fills_large_bounds_evenly() -> None:
    """A bound of 3 * 2^62 rejects a quarter of the words, one of 3 * 2^126 uses two: eighths of both are even."""
    for bound in (3 * 2**60, 3 * 2**62, 3 * 2**126):
        values = uniform_below(stream(23), np.full(40_000, bound, dtype=object))
        eighths = np.array([int(value) * 8 // bound for value in values])
        assert worst_cell(np.bincount(eighths, minlength=8), np.full(8, 1 / 8)) > ALARM


@pytest.mark.parametrize("rate", [*RATES, Fraction(3, 2**50)], ids=str)
def test_laplace_draws_do_not_depend_on_the_representation(monkeypatch: pytest.MonkeyPatch, rate: Fraction) -> None:
    fast = discrete_laplace(stream(24), rate=rate, size=3000)
    monkeypatch.setattr(samplers, "FITS", 0)  # nothing fits: Python integers throughout
    np.testing.assert_array_equal(discrete_laplace(stream(24), rate=rate, size=3000), fast)


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(10**12), Fraction(10**18, 7)], ids=str)
def test_gaussian_draws_do_not_depend_on_the_representation(
    monkeypatch: pytest.MonkeyPatch, variance: Fraction
) -> None:
    fast = discrete_gaussian(stream(25), variance=variance, size=1000)
    for limit in (0, 1 << 20, 1 << 40):  # all objects; and limits that some draws or products cross on the way
        monkeypatch.setattr(samplers, "FITS", limit)
        np.testing.assert_array_equal(discrete_gaussian(stream(25), variance=variance, size=1000), fast)


@pytest.mark.parametrize("sigma", [10**6, 10**9])
def test_large_gaussians_have_the_normal_law(sigma: int) -> None:
    """At sigma 1e6 the discrete law differs from the normal one by less than 1e-6 a cell (density times half a step).

    With 20,000 draws that shifts a cell's count by less than 0.02, far below its standard deviation of 30 or more.
    """
    draws = discrete_gaussian(stream(26), variance=Fraction(sigma**2), size=20_000)
    edges = np.array([-1.5, -1, -0.5, 0, 0.5, 1, 1.5])
    law = np.diff([0.0, *(0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges), 1.0])
    for factor, passes in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        counts = np.bincount(np.searchsorted(edges, draws / (sigma * factor)), minlength=8)
        assert (worst_cell(counts, law) > ALARM) == passes


class Scripted(BitStream):
    """A stream whose first words are all low, high, low, high, ...: each coin of probability exp(-1) comes up heads."""

    def __init__(self, length: int) -> None:
        super().__init__(NoiseKey.from_seed(27))
        self.length, self.takes = length, 0

    def take(self, count: int) -> Words:
        self.takes += 1
        if self.takes > self.length:
            return super().take(count)
        return np.full(count, 0 if self.takes % 2 else 2**64 - 2**10, np.uint64)


def test_no_tail_is_cut() -> None:
    """The bits that spell a magnitude of about 1000 / rate, an event of probability e^-1000, give it."""
    # The first take makes the offset 0, the second keeps it; then low, high is a third toss that fails: a success.
    draws = discrete_laplace(Scripted(2002), rate=Fraction(1, 10), size=4)
    assert (np.abs(draws) >= 10_000).all()


class TopFirst(BitStream):
    """A stream whose first words are the largest there are, which no bound of 3 divides evenly up to."""

    top_takes = 2  # the first draw and the first draw again

    def take(self, count: int) -> Words:
        words = super().take(count)
        if self.top_takes > 0:
            words[:] = 2**64 - 1
        self.top_takes -= 1
        return words


def test_words_beyond_the_last_full_step_are_drawn_again() -> None:
    """2^64 - 1 = 3 * 5 * 17 * ...: that word would give 3, which is not below 3. Chance would never try it (2^-64)."""
    for bounds in (np.full(300, 3), np.full(300, 3 * 2**62, dtype=object)):
        values = uniform_below(TopFirst(NoiseKey.from_seed(33)), bounds)
        assert (values < bounds).all()
        assert len({int(value) * 3 // int(bounds[0]) for value in values}) == 3  # missing one: 3 (2/3)^300 < 1e-52


def test_reproducible_whatever_came_before_in_other_streams() -> None:
    key = NoiseKey.from_seed(28)
    BitStream(key, stream=2).take(77)
    one = discrete_gaussian(BitStream(key), variance=Fraction(4), size=50)
    np.testing.assert_array_equal(one, discrete_gaussian(BitStream(key), variance=Fraction(4), size=50))


def test_sizes_from_none_to_more_than_a_piece() -> None:
    for size in (0, 1, 2, samplers.PIECE + 1):
        assert discrete_laplace(stream(29), rate=Fraction(1, 2), size=size).shape == (size,)
    assert discrete_gaussian(stream(29), variance=Fraction(3), size=0).dtype == np.int64
    assert uniform_below(stream(29), []).shape == (0,)
    assert bernoulli_exp(stream(29), numerator=[], denominator=1).shape == (0,)


def test_extreme_parameters() -> None:
    assert not discrete_laplace(stream(30), rate=rate_below(1e300), size=1000).any()
    assert not discrete_gaussian(stream(30), variance=variance_above(1e-300), size=1000).any()
    with pytest.raises(LabelDPError, match=r"discrete_laplace: .* must fit in 64 bits, got a draw beyond 2\^63\."):
        discrete_laplace(stream(30), rate=rate_below(1e-30), size=10)


@given(value=st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_rationals_are_on_the_safe_side_and_close(value: float) -> None:
    exact = Fraction(value)
    below, above = rate_below(value), variance_above(value)
    assert 0 < below <= exact <= above
    closeness = Fraction(1, 10**6)  # what both docstrings promise, compared exactly
    assert exact - below < closeness * exact
    assert above - exact < closeness * exact
    if value >= 1 / 16:
        assert max(below.denominator, above.denominator) <= 2**24


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", True, None])
def test_senseless_rates_and_variances_are_refused(value: object) -> None:
    with pytest.raises(LabelDPError, match=r"rate_below: `value` must be"):
        rate_below(value)  # type: ignore[arg-type]
    with pytest.raises(LabelDPError, match=r"variance_above: `value` must be"):
        variance_above(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, Fraction(-1, 2), 0.5, True, "1/2"])
def test_samplers_take_positive_rationals_only(value: object) -> None:
    with pytest.raises(LabelDPError, match=r"`rate` must be a Fraction > 0, got .* rate_below"):
        discrete_laplace(stream(31), rate=value, size=1)  # type: ignore[arg-type]
    with pytest.raises(LabelDPError, match=r"`variance` must be a Fraction > 0, got "):
        discrete_gaussian(stream(31), variance=value, size=1)  # type: ignore[arg-type]


def test_senseless_integers_are_refused() -> None:
    with pytest.raises(LabelDPError, match=r"`size` must be an integer >= 0, got -1"):
        discrete_laplace(stream(32), rate=Fraction(1), size=-1)
    with pytest.raises(LabelDPError, match=r"uniform_below: `bounds` must hold integers >= 1, got 0"):
        uniform_below(stream(32), [3, 0])
    with pytest.raises(LabelDPError, match=r"bernoulli_exp: `numerator` must hold integers >= 0, got dtype float64"):
        bernoulli_exp(stream(32), numerator=[0.5], denominator=1)
    with pytest.raises(LabelDPError, match=r"bernoulli_exp: `denominator` must hold integers >= 1, got dtype bool"):
        bernoulli_exp(stream(32), numerator=1, denominator=[True])
