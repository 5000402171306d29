"""Stated sensitivities against brute force: every small data set, every neighbour, both norms.

A statement must never be below the largest move, and is tight where it says so. The 2-norm of integers is compared
through its square, which is an integer; a stated root may pass it by the one step that keeps it an upper bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.arrays import Int64s
from labeldp.errors import LabelDPError
from labeldp.release import LabelCounts, LabelSums, Query, SensitiveLabels, measure


def neighbours(n: int, n_classes: int) -> Iterator[tuple[Int64s, Int64s]]:
    """All pairs of data sets of n labels that differ in one label."""
    for labels in itertools.product(range(n_classes), repeat=n):
        for i, other in itertools.product(range(n), range(n_classes)):
            changed = list(labels)
            changed[i] = other
            yield np.array(labels), np.array(changed)


def largest_moves(query: Query, n: int, n_classes: int) -> tuple[int, int]:
    """The largest 1-norm and the largest squared 2-norm of a move."""
    l1 = l2_squared = 0
    for one, other in neighbours(n, n_classes):
        move = query.exact(one, n_classes=n_classes) - query.exact(other, n_classes=n_classes)
        l1, l2_squared = max(l1, int(np.abs(move).sum())), max(l2_squared, int((move**2).sum()))
    return l1, l2_squared


def check_tight(query: Query, n: int, n_classes: int) -> None:
    stated = query.sensitivity(n_classes=n_classes)
    l1, l2_squared = largest_moves(query, n, n_classes)
    assert stated.l1 == l1
    assert stated.l2 == pytest.approx(math.sqrt(l2_squared), rel=1e-14, abs=0)  # a few roundings, taken up
    # One-sided up to the rounding of a root that is not a float: sqrt 2 is stated to the nearest.
    assert Fraction(stated.l2) ** 2 >= Fraction(l2_squared) * (1 - Fraction(1, 2**52))


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("groups", [None, [0, 1, 0], [2, 2, 0]])
def test_counts_move_by_what_they_state(n_classes: int, groups: Any) -> None:
    check_tight(LabelCounts(groups=groups), 3, n_classes)


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([0, 1], None),
        ([-2, 0, 5], None),
        ([3, 3, 3], None),
        ([0, 1], [1, -4, 2]),
        ([-1, 0, 2], [[1, -1], [3, 4], [0, 0]]),
        ([True, False], [[1, 1, 1], [0, 2, 0], [-1, -1, 1]]),
    ],
)
def test_sums_move_by_what_they_state(scores: Any, weights: Any) -> None:
    check_tight(LabelSums(scores=scores, weights=weights), 3, len(scores))


@given(
    scores=st.lists(st.integers(-(2**20), 2**20), min_size=2, max_size=3),
    weights=st.lists(st.lists(st.integers(-(2**20), 2**20), min_size=2, max_size=2), min_size=2, max_size=2),
)
def test_no_neighbour_moves_a_sum_further_than_it_states(scores: list[int], weights: list[list[int]]) -> None:
    query = LabelSums(scores=scores, weights=weights)
    stated = query.sensitivity(n_classes=len(scores))
    l1, l2_squared = largest_moves(query, len(weights), len(scores))
    assert Fraction(stated.l1) >= l1
    assert Fraction(stated.l2) ** 2 >= Fraction(l2_squared) * (1 - Fraction(1, 2**52))


def test_the_most_negative_weight_is_not_taken_for_a_small_one() -> None:
    """In int64 the absolute value of -2^63 is -2^63."""
    assert LabelSums(scores=[0, 1], weights=[-(2**63), 1]).sensitivity(n_classes=2).l1 >= 2.0**63


def test_a_query_that_understates_its_sensitivity_would_be_caught() -> None:
    class Half(LabelCounts):
        def sensitivity(self, *, n_classes: int) -> Any:
            whole = super().sensitivity(n_classes=n_classes)
            return type(whole)(whole.l1 / 2, whole.l2 / 2)

    with pytest.raises(AssertionError):
        check_tight(Half(), 3, 3)


def test_counts_are_counts() -> None:
    codes = np.array([0, 2, 2, 1, 0, 0])
    assert LabelCounts().exact(codes, n_classes=4).tolist() == [[3, 1, 2, 0]]
    grouped = LabelCounts(groups=[0, 0, 2, 2, 2, 0], n_groups=4)
    assert grouped.exact(codes, n_classes=3).tolist() == [[2, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]


def test_two_classes_are_one_count_and_the_public_group_sizes() -> None:
    query = LabelCounts(groups=[0, 0, 0, 1], n_groups=3)
    exact = query.exact(np.array([1, 0, 1, 1], np.uint8), n_classes=2)
    assert exact.tolist() == [[2], [1], [0]]
    assert query.present(exact - 5, n_examples=4, n_classes=2).tolist() == [[6, -3], [5, -4], [5, -5]]
    noisy = measure([True, False, True, True], query, epsilon=0.5, rng=1)
    assert noisy.value.sum(axis=1).tolist() == [3, 1, 0]  # the sizes are public and stay exact


def test_sums_are_sums() -> None:
    codes = np.array([0, 2, 1], np.uint8)
    assert LabelSums(scores=[-1, 0, 5]).exact(codes, n_classes=3).tolist() == [4]
    assert LabelSums(scores=[-1, 0, 5], weights=[1, 2, 3]).exact(codes, n_classes=3).tolist() == [9]
    assert LabelSums(scores=[-1, 0, 5], weights=[[1, 0], [0, 2], [3, 3]]).exact(codes, n_classes=3).tolist() == [-1, 10]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: LabelCounts(groups=[0.0, 1.0]),
            r"^LabelCounts: `groups` must be integers, one per label, got .*float64",
        ),
        (
            lambda: LabelCounts(groups=[[0, 1]]),
            r"`groups` must be integers, one per label, got an array of shape \(1, 2\)",
        ),
        (lambda: LabelCounts(groups=[]), r"`groups` must be integers, one per label"),
        (lambda: LabelCounts(groups=[0, -1]), r"`groups` must be numbered from 0, below n_groups, got -1 \.\. 0"),
        (
            lambda: LabelCounts(groups=[0, 3], n_groups=3),
            r"`groups` must be numbered from 0, below n_groups, got 0 \.\. 3",
        ),
        (lambda: LabelCounts(groups=[0], n_groups=0), r"`n_groups` must be an integer >= 1, got 0"),
        (lambda: LabelSums(scores=[0.5, 1.0]), r"^LabelSums: `scores` must be integers, got .* Round real numbers"),
        (lambda: LabelSums(scores=[]), r"`scores` must be integers"),
        (lambda: LabelSums(scores=[[0, 1]]), r"`scores` must be integers"),
        (lambda: LabelSums(scores=[0, 1], weights=[0.5, 0.5]), r"`weights` must be integers"),
        (lambda: LabelSums(scores=[0, 1], weights=np.ones((2, 2, 2), int)), r"`weights` must be integers"),
    ],
)
def test_bad_queries(make: Any, message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        make()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (LabelCounts(groups=[0, 1]), r"^LabelCounts: `groups` must have one entry per label, got 2 for 3 labels"),
        (LabelSums(scores=[0, 1]), r"^LabelSums: `scores` must have one score per class, got 2 scores for 3 classes"),
        (
            LabelSums(scores=[0, 1, 2], weights=[1, 1]),
            r"^LabelSums: `weights` must have one row per label, got 2 for 3",
        ),
    ],
)
def test_queries_that_do_not_fit_the_labels(query: Query, message: str) -> None:
    with pytest.raises(LabelDPError, match=message):
        measure(SensitiveLabels([0, 1, 2], n_classes=3), query, epsilon=1.0)
