"""Attacks on private selection and on the votes of PATE.

Where an attack is a frequency, keys are fixed: a run is repeatable, and the docstring says how likely another key would
fail.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.errors import LabelDPError, PrivacyError
from labeldp.random import NoiseKey
from labeldp.selection import (
    Histogram,
    large_gap,
    limited_domain,
    noisy_max,
    propose_test_release,
    stable_plan,
    stable_top_k,
    top_k_exponential,
    top_stable,
)

TRIES = 2_000
KEY = NoiseKey.from_seed(1414)


def guess_right(epsilon, counts, more, call):
    """How often "the last item won" tells the second data set from the first, in `TRIES` runs of each."""
    wins = [
        sum(call(h, epsilon, KEY.child(which, i)) == len(counts) - 1 for i in range(TRIES))
        for which, h in enumerate((counts, more))
    ]
    return 0.5 + (wins[1] - wins[0]) / (2 * TRIES)


def top_one_of(h, epsilon, key):
    return int(top_k_exponential(h, k=1, epsilon=epsilon, neighbours="add_remove", rng=key).items[0])


def float_noisy_max(h, epsilon, key):
    """The broken twin: Gumbel noise added in floating point, as it was done before."""
    words = key.words(start=0, count=len(h))[:, 0]
    noise = -np.log(-np.log((words + 0.5) * 2.0**-64))
    return int(np.argmax(np.array(h) / (1 / epsilon) + noise))


def test_counts_so_large_that_floats_round_the_noise_away():
    """One user more or less, counts near 2^53, epsilon = 2.1, add_remove.

    The guarantee is a bounded range, which allows a guess to be right with probability e^(e/2) / (1 + e^(e/2)) = 74.1%.
    Before: 89.1% (count / scale + noise was rounded to multiples of 4, so that noise hardly counted and one vote more
    weighed like two). Now: 69.1%, the exact value being 1/2 + (1/(1 + e^-2.1) - 1/2) / 2 = 69.5%. The share of 2 * 2,000
    runs has a standard error of at most 0.8%: the test fails by chance with probability below 1e-6 (5.5 of them).
    """
    epsilon, large = 2.1, 2**53 - 2
    allowed = 1 / (1 + math.exp(-epsilon / 2))
    seen = guess_right(epsilon, [large, large], [large, large + 1], top_one_of)
    assert seen <= allowed
    assert seen == pytest.approx(0.25 + 0.5 / (1 + math.exp(-epsilon)), abs=0.044)
    assert guess_right(epsilon, [large, large], [large, large + 1], float_noisy_max) > allowed + 0.1


ONE = {"epsilon": 1.0, "delta": 1e-3, "neighbours": "replace"}
CALLS = {
    "noisy_max": lambda h, key: noisy_max(h, rng=key, **ONE),
    "large_gap": lambda h, key: large_gap(h, rng=key, **ONE),
    "stable_top_k": lambda h, key: stable_top_k(h, rng=key, **ONE),
    "plan.select": lambda h, key: stable_plan(**ONE).select(h, rng=key),
    "propose_test_release": lambda h, key: propose_test_release(h, k=1, rng=key, **ONE),
    "top_stable": lambda h, key: top_stable(h, k=1, rng=key, **ONE),
    "top_k_exponential": lambda h, key: top_k_exponential(h, k=1, rng=key, **ONE),
    "limited_domain": lambda h, key: limited_domain(h, k=1, rng=key, **ONE),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_key_makes_one_selection(name):
    """Two releases with one operating-system key: the same noise twice, so that the difference is the data's own.

    Before, every call here was served twice, and a noisy maximum at epsilon = 1 of counts that differ by one vote gave
    two orders under one noise. Now the second is refused; a call of another name draws noise of its own.
    """
    key = NoiseKey.from_os()
    CALLS[name]([50, 30, 2], key)
    with pytest.raises(PrivacyError, match="NoiseKey"):
        CALLS[name]([50, 31, 2], key)


def test_an_error_does_not_name_what_was_counted():
    """Which items occur is private, and a log keeps errors: an item that is not on the list is not named.

    Before, the exception said "got 'HIV+'".
    """
    with pytest.raises(LabelDPError, match="list every item that is counted") as caught:
        noisy_max({"HIV+": 1, "flu": 200}, candidates=["flu", "cold"], **ONE)
    assert "HIV" not in str(caught.value)


@pytest.mark.parametrize("read", [dict, lambda: Histogram.from_pairs(np.array([], int), np.array([], int))])
def test_no_user_at_all_is_answered_like_one_user(read):
    """Nobody and one user are neighbours, so that an error for the one and an answer for the other tells them apart.

    Before, an empty mapping or table was refused and {"a": 1} was answered.
    """
    counts = read()
    for h in (counts, {"a": 1}):
        found = stable_top_k(h, k_max=3, rng=1, **ONE)
        assert (found.passed, found.items.size) == (False, 0)
    assert limited_domain(counts, k=1, rng=1, **ONE).items.size == 0
    assert top_stable(counts, k=1, rng=1, **ONE).items.size == 0
    assert propose_test_release(counts, k=1, rng=1, **ONE).items.size == 0


def test_what_is_handed_in_beside_the_counts_is_an_assumption():
    """A regularizer that was made from the counts names the leading rank whatever the noise: 50 of 50 times.

    Nothing can stop that. Before, the guarantee did not say that it stands on the regularizer; now it does, and the same
    for a list of candidates.
    """
    counts = np.array([40, 39, 38, 2, 1])
    told = 1e6 * (np.arange(1, 5) == 3)  # "there are three leaders", read off the counts
    found = [large_gap(counts, regularizer=told, rng=KEY.child(i), **ONE) for i in range(50)]
    assert all(one.k == 3 for one in found)
    assert any("regularizer" in text for text in found[0].guarantee.assumptions)
    assert any("regularizer" in text for text in stable_top_k(counts, regularizer=told, **ONE).guarantee.assumptions)
    listed = top_k_exponential({"a": 5, "b": 2}, k=1, candidates=["a", "b", "c"], **ONE)
    assert any("list of candidates" in text for text in listed.guarantee.assumptions)
    # Counts alone, or a weight, are settings like any other.
    plain = stable_top_k(counts, k=2, regularizer=0.5, **ONE).guarantee.assumptions
    assert not any("regularizer" in text or "list" in text for text in plain)
