"""Words about a promise: guesses and beliefs against brute force, and the same sentences for pages and commands."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.guarantee import Guarantee, Trust, best_guess
from labeldp.report.words import (
    as_sentence,
    cost,
    cost_text,
    from_whom,
    in_words,
    largest_belief,
    odds_in_words,
    promise_rows,
    right_guesses,
)

#: Sums of some hundred doubles of size 1, in another order.
CLOSE = 1e-12


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.3, 0.0), (1.0, 1e-5), (2.0, 0.1), (math.inf, 0.0)])
@pytest.mark.parametrize("prior", [0.01, 0.3, 0.5, 0.8])
def test_right_guesses_are_the_best_of_all_tests(prior, epsilon, delta):
    """A fine walk along the edge of the region of rates finds no better test, and one as good."""
    E = math.exp(min(epsilon, 700.0))
    f = np.linspace(0, 1, 20_001)
    t = np.minimum(np.minimum(E * f + delta, 1 - (1 - f - delta) / E), 1.0)
    best = float((prior * t + (1 - prior) * (1 - f)).max())
    found = right_guesses(prior, epsilon, delta)
    assert found >= best - CLOSE
    assert found == pytest.approx(best, abs=2e-4 * min(E, 20.0))  # the walk's step times the slope of the edge


def test_beliefs_follow_bayes():
    for prior in (0.01, 0.5, 0.9):
        E = math.exp(1.3)
        assert largest_belief(prior, 1.3) == pytest.approx(prior * E / (prior * E + 1 - prior), rel=1e-14)
    assert largest_belief(0.5, 1.3) == pytest.approx(best_guess(1.3), rel=1e-14)
    for epsilon in (1.0, 746.0, 1e9, math.inf):  # before: ZeroDivisionError from the second on, and no report
        assert largest_belief(0.0, epsilon) == 0.0
        assert largest_belief(1.0, epsilon) == 1.0


def test_a_cost_is_pure_where_it_can_be_and_at_a_delta_elsewhere():
    assert cost(Guarantee.pure(1.0)) == (1.0, 0.0)
    epsilon, delta = cost(Guarantee.gaussian(sigma=4.0, sensitivity=1.0))
    assert (delta, epsilon) == (1e-5, Guarantee.gaussian(sigma=4.0, sensitivity=1.0).epsilon(1e-5))
    assert cost_text(epsilon, delta).endswith(" at delta 1e-05")
    assert float(cost_text(epsilon)) >= epsilon  # rounded up
    assert cost(Guarantee.pure(math.inf)) == (math.inf, 0.0)


def test_the_ends_are_said_plainly():
    assert as_sentence(in_words(0.0)) == "Nothing about a label can be learned from the release."
    assert "nothing is hidden" in in_words(math.inf)
    assert "more than 1e300" in odds_in_words(800.0)
    assert "at delta = 0.01" in odds_in_words(1.0, 0.01)


@pytest.mark.parametrize(
    ("trust", "said"),
    [
        (
            Trust.NO_ONE,
            "could have randomized it before anyone else saw it. Whoever holds the file from which it was made has",
        ),
        (Trust.CURATOR, "The curator who made it has seen the labels and must be trusted"),
        (Trust.PEERS, "Where each peer ran her own part, her label was flipped before anyone else saw it"),
        (Trust.PEERS | Trust.CURATOR, "A curator has seen labels too"),
    ],
)
def test_whom_a_promise_trusts_is_said(trust, said):
    assert said in from_whom(Guarantee.pure(1.0, trust=trust))


def test_a_release_does_not_say_that_labels_were_randomized_before_anyone_saw_them():
    """It was made from a file, and knows nothing of who can read it."""
    assert "was randomized" not in from_whom(Guarantee.pure(1.0))
    assert "were randomized" not in from_whom(Guarantee.pure(1.0))


def test_rows_end_with_parts_and_assumptions():
    promise = Guarantee.pure(1.0).named("counts").then(Guarantee.pure(0.5).named("labels")).assuming("it does not rain")
    rows = promise_rows(promise)
    assert [name for name, _ in rows] == [
        "promise",
        "in words",
        "advantage",
        "from whom",
        "made of",
        "made of",
        "assumes",
    ]
    assert rows[-1] == ("assumes", "it does not rain")
