"""Numbers on a grid: bounds, rounding, counts that stay exact, and what a box says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import LabelDPError
from labeldp.mechanisms import RandomizedResponse, UnbiasedResponse
from labeldp.mechanisms.numbers import check_bounds
from labeldp.release import privatize
from labeldp.release.grid import MOST_STEPS, box_on_grid
from labeldp.release.labels import SensitiveLabels, codes_of


@given(
    low=st.floats(min_value=-1e6, max_value=1e6),
    width=st.floats(min_value=1e-2, max_value=1e6),
    values=st.lists(st.floats(min_value=-1e7, max_value=1e7), min_size=1, max_size=20),
)
def test_a_number_moves_by_half_a_step_at_most_and_codes_never_leave_the_range(
    low: float, width: float, values: list[float]
):
    bounds = check_bounds("test", (low, low + width))
    box = box_on_grid("test", values, n_rows=len(values), bounds=bounds, label_set="labels")
    codes = codes_of(box.labels).astype(np.int64)
    assert codes.min() >= 0
    assert codes.max() <= box.scores[-1] <= MOST_STEPS
    back = box.low + box.step * box.scores[codes]
    clipped = np.clip(values, *bounds)
    # Half a step, and the rounding of numbers of size 1e6.
    assert np.abs(back - clipped).max() <= box.step / 2 * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("high", [1, 2, 3, 7, 100, 4095])
def test_counts_are_exact(high: int):
    counts = np.arange(high + 1)
    box = box_on_grid("test", counts, n_rows=high + 1, bounds=(0.0, float(high)), label_set="labels")
    codes = codes_of(box.labels).astype(int)
    steps = int(box.scores[-1])
    assert steps % high == 0
    assert all(
        Fraction(int(code), steps) == Fraction(count, high) for code, count in zip(codes, counts.tolist(), strict=True)
    )


def test_a_box_of_classes_that_are_numbers_keeps_its_codes():
    boxed = SensitiveLabels([0.5, 2.0, 9.0], classes=[0.5, 2.0, 9.0], name="stays")
    box = box_on_grid("test", boxed, n_rows=3, bounds=(0.0, 4.0), label_set="other")
    assert box.labels.name == "stays"
    np.testing.assert_allclose(box.low + box.step * box.scores, [0.5, 2.0, 4.0])
    assert (box.labels.beside, box.labels.bounds) == (("features",), (0.0, 4.0))
    with pytest.raises(LabelDPError, match="`classes of y` must be numbers, got text in class 0"):
        box_on_grid("test", SensitiveLabels(["a", "b"] * 2), n_rows=4, bounds=(0.0, 1.0), label_set="labels")


def test_labels_are_copied_on_their_way_in():
    values = np.array([0.0, 1.0])
    box = box_on_grid("test", values, n_rows=2, bounds=(0.0, 1.0), label_set="labels")
    values[:] = 1.0
    assert codes_of(box.labels).tolist() == [0, MOST_STEPS]


def test_a_box_of_numbers_keeps_name_rows_bounds_and_what_it_does_outside():
    boxed = SensitiveLabels([0, 3, 9], bounds=(0, 4), name="stays", row_ids=["a", "b", "c"])
    box = box_on_grid("test", boxed, n_rows=3, bounds=(0.0, 4.0), label_set="other", beside=["exposures"])
    assert repr(box.labels) == "<SensitiveLabels 'stays': 3 numbers in [0, 4], contents hidden>"
    assert (box.labels.fingerprint(), box.labels.outside) == (boxed.fingerprint(), "clip")
    assert box.labels.beside == ("features", "exposures")
    np.testing.assert_array_equal(box.low + box.step * box.scores[codes_of(box.labels)], [0.0, 3.0, 4.0])
    inside = SensitiveLabels([0, 3, 4], bounds=(0, 4), outside="refuse")
    assert box_on_grid("test", inside, n_rows=3, bounds=(0.0, 4.0), label_set="other").labels.outside == "refuse"
    with pytest.raises(LabelDPError, match=r"got \[0, 4\] for a mechanism of \[0, 5\]"):
        box_on_grid("test", boxed, n_rows=3, bounds=(0.0, 5.0), label_set="other")
    with pytest.raises(LabelDPError, match="3 for 2 rows"):
        box_on_grid("test", boxed, n_rows=2, bounds=(0.0, 4.0), label_set="other")


def test_numbers_on_a_grid_are_not_taken_for_the_levels_of_a_mechanism():
    """Their codes go to 65,536 and a channel's levels to 33: the draw would read beyond its tables."""
    box = box_on_grid("test", [0.0, 1.0, 7.0], n_rows=3, bounds=(0.0, 2.0), label_set="claims")
    with pytest.raises(LabelDPError, match="must be numbers"):
        privatize(box.labels, UnbiasedResponse(1.0, bounds=(0, 2)), rng=0)


def test_counts_on_a_grid_of_their_own_are_classes_that_say_what_was_clipped():
    box = box_on_grid("test", [0.0, 1.0, 7.0], n_rows=3, bounds=(0.0, 2.0), label_set="claims", steps=2)
    release = privatize(box.labels, RandomizedResponse(float("inf"), n_classes=3))
    assert release.codes.tolist() == [0, 1, 2]
    assert "clipped" in str(release.guarantee)
