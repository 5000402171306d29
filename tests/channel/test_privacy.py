"""The epsilon that a channel states, against the worst log-ratio in exact rational arithmetic; and the sampler's integers.

`worst_ratio` builds the matrix in Fractions from the channel's own floats and tries every pair of labels at every
output. A stated epsilon is never below its logarithm (mpmath, 60 digits), and above it by no more than the roundings of
one formula: 1e-12 of it, or 1e-300 where floats have fewer digits.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labeldp.arrays import Float64s
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel, odds_to_keep, safe_odds
from labeldp.channel import finite as thresholds

Table = list[list[Fraction]]
ROUNDING = 1e-12


def rows_of(keep: float, redraw: float, base: Float64s) -> Table:
    """T in exact arithmetic, with the odds keep : redraw (as floats the two need not sum to one to the last bit)."""
    exact = [Fraction(float(b)) for b in base]
    kept = Fraction(float(keep)) / (Fraction(float(keep)) + Fraction(float(redraw)))
    table = []
    for y, inside in enumerate(b > 0 for b in exact):
        rest = 1 - kept if inside else Fraction(1)
        table.append([rest * b + (kept if inside and o == y else 0) for o, b in enumerate(exact)])
    return table


def worst_ratio(table: Table, labels: list[int] | None = None) -> Fraction | None:
    """The largest T[y, o] / T[z, o]; None if it is infinite."""
    chosen = range(len(table)) if labels is None else labels
    worst = Fraction(1)
    for o in range(len(table[0])):
        column = [table[y][o] for y in chosen]
        if max(column) > 0 and min(column) == 0:
            return None
        if max(column) > 0:
            worst = max(worst, max(column) / min(column))
    return worst


def check_epsilon(stated: float, ratios: list[Fraction | None]) -> None:
    """The statement covers every ratio, and is the logarithm of the largest but for rounding up."""
    finite = [ratio for ratio in ratios if ratio is not None]
    if len(finite) < len(ratios):
        assert stated == math.inf
        return
    worst = max(finite)
    with mpmath.workdps(60):
        exact = mpmath.log1p(mpmath.mpf(worst.numerator - worst.denominator) / worst.denominator)
        assert mpmath.mpf(stated) >= exact
        assert mpmath.mpf(stated) <= exact * (1 + ROUNDING) + mpmath.mpf("1e-300")


def test_epsilon_is_the_worst_log_ratio_of_all_examples(channel: FiniteChannel) -> None:
    if isinstance(channel, Channel):
        tables = [rows_of(k, r, b) for k, r, b in zip(channel.keep, channel.redraw, channel.base, strict=True)]
    else:
        assert isinstance(channel, MatrixChannel)
        tables = [[[Fraction(float(t)) for t in row] for row in matrix] for matrix in channel.transition]
    check_epsilon(channel.epsilon, [worst_ratio(table) for table in tables])


weights = arrays(np.float64, st.integers(2, 7), elements=st.floats(0, 1).map(lambda x: 0.0 if x < 0.1 else x**8))
keeps = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1), st.floats(-18, 0).map(lambda e: 10.0**e))


@given(row=weights.filter(lambda w: w.sum() > 0), keep=keeps)
def test_epsilon_of_any_row_and_no_pair_outside_the_support_is_worse(row: Float64s, keep: float) -> None:
    channel = Channel(keep=keep, base=row / row.sum())
    table = rows_of(channel.keep[0], channel.redraw[0], channel.base[0])
    everything = worst_ratio(table)
    support = np.flatnonzero(channel.base[0]).tolist()
    check_epsilon(channel.epsilon, [everything])
    if len(support) > 1:
        assert everything == worst_ratio(table, support)
    else:
        assert channel.epsilon == 0  # the output is constant


@given(
    rows=arrays(
        np.float64, st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(1, 5)), elements=st.floats(0.01, 1)
    ),
    closeness=st.sampled_from([1.0, 1e-6, 1e-12]),
)
def test_epsilon_of_any_matrix(rows: Float64s, closeness: float) -> None:
    """Rows that are nearly equal are the hard case: log(a) - log(b) would lose its digits."""
    rows = rows[:, :1] * (1 - closeness) + rows * closeness
    transition = rows / rows.sum(axis=2, keepdims=True)
    channel = MatrixChannel(transition, index=np.arange(len(rows)))
    tables = [[[Fraction(float(t)) for t in row] for row in matrix] for matrix in channel.transition]
    assert all(sum(row) == 1 for table in tables for row in table)  # exactly: they are on the grid
    check_epsilon(channel.epsilon, [worst_ratio(table) for table in tables])
    # 2^-52 an entry, and what rounding left goes to the largest
    np.testing.assert_allclose(channel.transition, transition, rtol=0, atol=rows.shape[2] * 2.0**-51)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.01, 0.5, 1.0, 2.0, 8.0, 40.0, 699.0, 700.0, 5000.0, math.inf])
@pytest.mark.parametrize("n_classes", [2, 3, 10, 1000, 100_000])
def test_what_is_built_from_safe_odds_stays_within_epsilon(epsilon: float, n_classes: int) -> None:
    keep, redraw = odds_to_keep(safe_odds(epsilon), n_classes)
    channel = Channel(keep=keep, redraw=redraw, base=np.full(n_classes, 1.0 / n_classes))
    assert channel.epsilon <= epsilon
    if epsilon <= 700:
        assert channel.epsilon == pytest.approx(epsilon, rel=1e-14, abs=4e-15)  # the margin of safe_odds
    members = np.packbits(np.ones((1, n_classes), bool), axis=1, bitorder="little")
    assert CandidateChannel(odds=safe_odds(epsilon), members=members, n_classes=n_classes).epsilon <= epsilon


# What the sampler really does: its integers are a law of their own, and that law must keep the claim exactly.


def claimed_ratio(keep: float, redraw: float, least: float) -> Fraction:
    return 1 + Fraction(float(keep)) / (Fraction(float(redraw)) * Fraction(float(least)))


def sampled_table(h: int, shares: list[Fraction]) -> Table:
    """T of the sampler: kept iff a 63-bit word is below h, else drawn with these shares."""
    kept = Fraction(h, thresholds.HALF_RANGE)
    table = []
    for y, inside in enumerate(s > 0 for s in shares):
        rest = 1 - kept if inside else Fraction(1)
        table.append([rest * s + (kept if inside and o == y else 0) for o, s in enumerate(shares)])
    return table


def scaled_shares(size: int) -> list[Fraction]:
    """How many of the 2^64 words give floor(word * size / 2^64) = j."""
    edges = [-(-j * thresholds.FULL_RANGE // size) for j in range(size + 1)]
    return [Fraction(b - a, thresholds.FULL_RANGE) for a, b in itertools.pairwise(edges)]


@given(row=weights.filter(lambda w: (w > 0).sum() > 1), keep=keeps.filter(lambda k: k < 1))
def test_the_integers_of_a_row_never_exceed_its_claim(row: Float64s, keep: float) -> None:
    channel = Channel(keep=[keep], base=row[None] / row.sum(), index=[0])
    h, _, sums = channel.integers
    assert sums is not None
    steps = np.diff(sums[0].astype(object), prepend=0)
    shares = [Fraction(int(s), thresholds.HALF_RANGE) for s in steps]
    assert sum(shares) == 1
    table = sampled_table(int(h[0]), shares)
    base = channel.base[0]
    ratio = worst_ratio(table)
    assert ratio is not None
    assert ratio <= claimed_ratio(channel.keep[0], channel.redraw[0], base[base > 0].min())
    sampled = np.array(table, dtype=float)
    # A share is a multiple of 2^-63, and keep falls by as much, relatively, as the least share does; the rest is the
    # rounding of the float matrix and of the row's sum, a few 2^-52.
    np.testing.assert_allclose(sampled, channel.matrix(), rtol=0, atol=5e-15 + 2.0**-62 / base[base > 0].min())


@given(odds=st.floats(1e-12, 1e12), size=st.integers(2, 20))
@example(odds=1.5, size=60)
def test_the_integers_of_a_candidate_set_never_exceed_its_odds(odds: float, size: int) -> None:
    h = int(thresholds.keep_thresholds(odds, np.array([size]), size)[size])
    shares = scaled_shares(size)
    assert sum(shares) == 1
    assert min(shares) == thresholds.uniform_share(size)
    ratio = worst_ratio(sampled_table(h, shares))
    assert ratio is not None
    assert ratio <= 1 + Fraction(odds)
    assert float(ratio) == pytest.approx(1 + odds, rel=1e-6)  # h has 63 bits: at 1e12 the complement has 23


@given(row=arrays(np.float64, st.integers(2, 8), elements=st.sampled_from([0.0, 1e-300, 1e-19, 0.1, 0.7, 1.0])))
def test_integer_weights_sum_exactly_and_keep_zero_and_only_zero_at_zero(row: Float64s) -> None:
    if row.sum() == 0:
        row[0] = 1.0
    weights_of_row = thresholds.integer_weights(row)
    assert sum(weights_of_row) == thresholds.HALF_RANGE
    assert [w > 0 for w in weights_of_row] == (row > 0).tolist()


def test_a_threshold_rounded_up_would_exceed_the_claim() -> None:
    """The broken twin of the exactness tests: one step more of keep is caught by the same comparison."""
    for size in (2, 3, 7, 10):
        h = int(thresholds.keep_thresholds(1.5, np.array([size]), size)[size])
        over = worst_ratio(sampled_table(h + 1, scaled_shares(size)))
        assert over is not None
        assert over > 1 + Fraction(1.5)
