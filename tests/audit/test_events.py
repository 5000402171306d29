"""The choice of an event against every event there is, on small tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labeldp.audit.channel import best_event, log_ratio

SMALL = arrays(np.int64, (2, 3, 4), elements=st.integers(0, 400))


def every_event(counts: np.ndarray, *, delta: float, cells: list[tuple[int, ...]]) -> float:
    """The largest bound over contexts, ordered pairs of labels and these sets of cells."""
    found = [0.0]
    for rows in counts:
        total = rows.sum(axis=1)
        for one, other in itertools.permutations(range(len(rows)), 2):
            for inside in cells:
                a, b = rows[one, list(inside)].sum(), rows[other, list(inside)].sum()
                found.append(float(log_ratio(a, total[one], b, total[other], delta=delta, level=0.05)))
    return max(found)


@given(counts=SMALL, delta=st.sampled_from([0.0, 0.05]))
@settings(max_examples=25)
def test_choice_is_between_the_best_cell_and_the_best_set(counts: np.ndarray, delta: float):
    event = best_event(counts, delta=delta, level=0.05)
    single = [(cell,) for cell in range(4)]
    sets = [s for size in range(1, 5) for s in itertools.combinations(range(4), size)]
    most = every_event(counts, delta=delta, cells=sets)
    assert event.bound <= most + 1e-12  # the same sums in another order
    if delta == 0:
        assert event.bound >= every_event(counts, delta=delta, cells=single) - 1e-12


def test_bound_of_an_event_is_that_of_other_draws():
    counts = np.array([[[90, 10], [10, 90]]])
    event = best_event(counts, delta=0.0, level=0.05)
    judged = event.judged(np.array([[[50, 50], [50, 50]]]), delta=0.0, level=0.05)
    assert event.bound > 1.0
    assert judged.bound == 0.0
    assert (judged.one, judged.other, judged.cells) == (event.one, event.other, event.cells)


@pytest.mark.parametrize("empty", [np.zeros((1, 2, 2), np.int64), np.array([[[5, 5], [0, 0]]])])
def test_tables_with_nothing_in_them_say_nothing(empty: np.ndarray):
    event = best_event(empty, delta=0.0, level=0.05)
    assert max(event.bound, 0.0) == 0.0
    assert event.judged(empty, delta=0.0, level=0.05).bound == 0.0
