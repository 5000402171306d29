"""Mechanisms for numbers: private to the bit, unbiased to 1e-12, and the best there is by an enumeration of all patterns."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.optimize import linprog

import labeldp
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError
from labeldp.mechanisms import BinnedResponse, LaplaceResponse, NumericMechanism, RandomizedResponse, UnbiasedResponse
from labeldp.mechanisms.numbers import MIX, candidate_answers
from labeldp.testing import check_mechanism

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0)
BOUNDS = (0.15, 5.0)


def kinds(epsilon: float) -> list[NumericMechanism]:
    """Every kind at one epsilon, with bounds that are no round numbers, and counts."""
    return [
        UnbiasedResponse(epsilon, bounds=BOUNDS, grid=9, outputs=17),
        UnbiasedResponse(epsilon, bounds=(0, 4), grid="integers"),
        LaplaceResponse(epsilon, bounds=BOUNDS, grid=9),
        BinnedResponse(epsilon, bounds=BOUNDS),
    ]


def priors(mechanism: NumericMechanism) -> list[np.ndarray | None]:
    """No prior, a narrow one, one with all mass on one level, a steep one."""
    size = mechanism.n_classes
    if not mechanism.uses_prior:
        return [None]
    place = np.arange(size)
    narrow = np.exp(-0.5 * ((place - 0.3 * size) / (0.1 * size)) ** 2)
    return [None, narrow / narrow.sum(), np.eye(size)[0], 0.5**place / (0.5**place).sum()]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_exact_epsilon_and_mean_by_enumeration(epsilon: float):
    # Entries are k 2^-52: ratios of integers, compared with e^epsilon to 60 digits. Means are summed as fractions.
    with mpmath.workdps(60):
        limit = mpmath.exp(mpmath.mpf(epsilon))
        for mechanism in kinds(epsilon):
            for prior in priors(mechanism):
                channel = mechanism.channel(prior)
                assert channel.epsilon <= epsilon
                weights = channel.transition[0] * 2.0**52
                assert (weights == np.round(weights)).all()
                assert (weights.sum(axis=1) == 2.0**52).all()
                for column in weights.T[weights.max(axis=0) > 0].astype(np.int64):
                    assert mpmath.mpf(int(column.max())) / int(column.min()) <= limit
                values = [Fraction(value) for value in channel.values[0].tolist()]
                there = np.abs(channel.values[0][weights.max(axis=0) > 0]).max()
                for level, row in zip(channel.levels.tolist(), channel.transition[0].tolist(), strict=True):
                    mean = sum(Fraction(chance) * value for chance, value in zip(row, values, strict=True))
                    assert abs(mean - Fraction(level)) <= Fraction(1e-12) * Fraction(float(there))


def test_unbiased_to_1e_12_in_units_of_the_bounds():
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        channel = UnbiasedResponse(epsilon, bounds=BOUNDS).channel()
        assert np.abs(channel.bias).max() <= 1e-12


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_optimal_by_all_patterns(epsilon: float, size: int):
    # Every private channel is a mixture of columns in {e^-epsilon, 1}^K; all 2^K of them with every candidate answer.
    prior = np.arange(1.0, size + 1)
    prior /= prior.sum()
    mixed = (1 - MIX) * prior + MIX / size
    levels = np.linspace(-1, 1, size)
    answers = candidate_answers(epsilon, 9, size)
    patterns = np.array(list(product((math.exp(-epsilon), 1.0), repeat=size)))
    rows, report = np.repeat(patterns, len(answers), axis=0), np.tile(answers, len(patterns))
    cost = ((report[:, None] - levels) ** 2 * rows) @ mixed
    conditions = np.vstack([rows.T, (rows * report[:, None]).T])
    best = linprog(cost, A_eq=conditions, b_eq=np.concatenate([np.ones(size), levels]), method="highs")
    channel = UnbiasedResponse(epsilon, bounds=(-1, 1), grid=size, outputs=9).channel(prior)
    assert best.status == 0
    assert channel.spread(mixed) == pytest.approx(best.fun, rel=1e-8)


def test_two_levels_are_randomized_response():
    # With two levels there is one private unbiased answer of least variance: +- coth(epsilon / 2).
    channel = UnbiasedResponse(1.0, bounds=(-1, 1), grid=2).channel()
    assert channel.spread() == pytest.approx(1 / math.tanh(0.5) ** 2 - 1, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_no_baseline_beats_it(epsilon: float):
    best, noise = UnbiasedResponse(epsilon, bounds=(0, 1)).channel(), LaplaceResponse(epsilon, bounds=(0, 1)).channel()
    bins = BinnedResponse(epsilon, bounds=(0, 1), bins=33).channel()
    assert best.spread() <= noise.spread()
    assert best.spread() <= bins.spread()


def test_a_narrow_prior_has_less_variance_where_it_is_right():
    mechanism = UnbiasedResponse(4.0, bounds=(0, 1))
    narrow = np.exp(-0.5 * ((mechanism.levels - 0.3) / 0.1) ** 2)
    narrow /= narrow.sum()
    assert mechanism.channel(narrow).spread(narrow) < 0.75 * mechanism.channel().spread(narrow)


@pytest.mark.parametrize(
    "mechanism",
    [
        UnbiasedResponse(1.0, bounds=(-1, 3), grid=4, outputs=9),
        UnbiasedResponse(math.inf, bounds=(0, 3), grid="integers"),
        LaplaceResponse(2.0, bounds=(0, 1), grid=4),
        BinnedResponse(0.5, bounds=(0, 1), bins=4),
    ],
    ids=str,
)
def test_conforms(mechanism: NumericMechanism):
    check_mechanism(mechanism)


def test_epsilon_without_privacy_shows_the_levels():
    release = labeldp.privatize([0, 3, 1], UnbiasedResponse(math.inf, bounds=(0, 3), grid="integers"))
    assert release.values.tolist() == [0.0, 3.0, 1.0]
    assert math.isinf(release.channel.epsilon)


def test_groups_and_distinct_priors_share_programs():
    mechanism = UnbiasedResponse(1.0, bounds=(0, 1), grid=3, outputs=9)
    laws = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    groups = np.array([0, 1, 1, 0])
    by_group, by_row = mechanism.channel(laws, groups=groups), mechanism.channel(laws[groups])
    for example in range(4):
        assert (by_group.matrix(example) == by_row.matrix(example)).all()
    assert len(by_row.transition) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: UnbiasedResponse(0.0, bounds=(0, 1)), "be > 0"),
        (lambda: UnbiasedResponse(5e-324, bounds=(0, 1)), "be at least 1e-100"),
        (lambda: LaplaceResponse(1e-310, bounds=(0, 1)), "be at least 1e-100"),
        (lambda: BinnedResponse(1e-300, bounds=(0, 1)), "be at least 1e-100"),
        (lambda: UnbiasedResponse(10**400, bounds=(0, 1)), "a number that a float holds, got a whole number"),
        (lambda: UnbiasedResponse(1.0, bounds=(1, 0)), "rise"),
        (lambda: UnbiasedResponse(1.0, bounds=(1, 1)), "rise"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, math.inf)), "be finite"),
        (lambda: UnbiasedResponse(1.0, bounds=(math.nan, 1)), "be finite"),
        (lambda: UnbiasedResponse(1.0, bounds="01"), "low, high"),
        (lambda: UnbiasedResponse(1.0, bounds=5), "low, high"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1, 2)), "low, high"),
        (lambda: UnbiasedResponse(1.0, bounds=("0", "1")), "be a number"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1e200)), "told apart"),
        (lambda: UnbiasedResponse(1.0, bounds=(1e9, 1e9 + 1)), "told apart"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1), grid=1), "integer in"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1), grid=1000), "integer in"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1), grid="whole"), "one of 'integers'"),
        (lambda: UnbiasedResponse(1.0, bounds=(0.5, 3), grid="integers"), "whole bounds"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1000), grid="integers"), "whole bounds"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1), outputs=1), "integer in"),
        (lambda: BinnedResponse(1.0, bounds=(0, 1), bins=1), "integer in"),
        (lambda: LaplaceResponse(1.0, bounds=(0, 1)).channel(np.full(33, 1 / 33)), "be left out"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1)).channel(np.full(5, 0.2)), "have 33 columns"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1)).channel(n_classes=3), "be 33"),
        (lambda: UnbiasedResponse(1.0, bounds=(0, 1)).channel(groups=[0]), "without a prior"),
    ],
)
def test_refusals(make, words: str):
    with pytest.raises(LabelDPError, match=words):
        make()


def test_the_wrong_kind_of_labels_is_refused_before_anything_is_drawn(tmp_path):
    ledger = labeldp.Ledger(tmp_path / "ledger.db")
    classes = labeldp.SensitiveLabels(["a", "b"], classes=["a", "b"])
    amounts = labeldp.SensitiveLabels([1.0, 2.0], bounds=(0, 3))
    with pytest.raises(LabelDPError, match="be numbers, got 2 classes"):
        labeldp.privatize(classes, UnbiasedResponse(1.0, bounds=(0, 3)), ledger=ledger)
    with pytest.raises(LabelDPError, match="have classes here, got numbers"):
        labeldp.privatize(amounts, RandomizedResponse(1.0), ledger=ledger)
    with pytest.raises(LabelDPError, match="be those of the mechanism"):
        labeldp.privatize(amounts, UnbiasedResponse(1.0, bounds=(0, 4)), ledger=ledger)
    with pytest.raises(LabelDPError, match="have classes here"):
        labeldp.measure(amounts, labeldp.LabelCounts(), epsilon=1.0, ledger=ledger)
    mechanism = UnbiasedResponse(1.0, bounds=(0, 1), grid=2)
    with pytest.raises(LabelDPError, match="be one for classes"):
        labeldp.LabelPrivateClassifier(mechanism=mechanism, ledger=ledger).fit(np.eye(4), [0, 1, 0, 1])
    table = tmp_path / "people.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3, 4], "y": [0, 1, 0, 1]}), table)
    with pytest.raises(LabelDPError, match="`classes` must be left out for labels that are numbers"):
        privatize_table(table, label="y", to=tmp_path / "out", mechanism=mechanism, classes=[0, 1], ledger=ledger)
    assert len(list(ledger.entries())) == 0
