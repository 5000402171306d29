"""Confidence limits against exact binomial tails in high precision, and what a claim says about one label replaced."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from labeldp.audit.results import claimed_epsilon, lower_limit, upper_limit
from labeldp.guarantee import Guarantee, Unit


def tail(successes: int, trials: int, share: float) -> mpmath.mpf:
    """Pr[Binomial >= successes], summed term by term."""
    p = mpmath.mpf(share)
    terms = (mpmath.binomial(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(successes, trials + 1))
    return mpmath.fsum(terms)


@pytest.mark.parametrize(("successes", "trials"), [(1, 1), (1, 10), (7, 10), (10, 10), (37, 200)])
@pytest.mark.parametrize("level", [0.05, 1e-6])
def test_lower_limit_inverts_the_tail(successes: int, trials: int, level: float):
    with mpmath.workdps(40):
        limit = float(lower_limit(successes, trials, level=level))
        # The inverse is found to about 1e-12; a share of 1e-9 more must already exceed the level.
        assert tail(successes, trials, limit * (1 - 1e-9)) <= level
        assert tail(successes, trials, min(1.0, limit * (1 + 1e-9))) >= level * (1 - 1e-6)


def test_edges():
    assert lower_limit(0, 10, level=0.05) == 0.0
    assert upper_limit(10, 10, level=0.05) == 1.0
    # 1 - level^(1/n): Pr[no success in n] = (1 - p)^n.
    assert upper_limit(0, 10, level=0.05) == pytest.approx(1 - 0.05**0.1, rel=1e-12)
    limits = lower_limit([1, 5, 9], [10, 10, 10], level=0.05)
    assert np.all(np.diff(limits) > 0)


def test_a_label_replaced_is_one_record_removed_and_one_added():
    assert claimed_epsilon("test", Guarantee.pure(1.0, unit=Unit.RECORD_ADD_REMOVE), 0.0) == 2.0
    assert claimed_epsilon("test", Guarantee.pure(1.0, unit=Unit.RECORD_REPLACE), 0.0) == 1.0
    assert claimed_epsilon("test", Guarantee.pure(1.0), 0.0) == 1.0


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_two_gaussian_steps_cover_the_exact_one(sigma: float):
    """Replacing a record of a sum moves it by two sensitivities at most: the exact epsilon is below the converted one."""
    claim = Guarantee.gaussian(sigma=sigma, sensitivity=1.0, unit=Unit.RECORD_ADD_REMOVE)
    exact = Guarantee.gaussian(sigma=sigma, sensitivity=2.0).epsilon(1e-5)
    converted = claimed_epsilon("test", claim, 1e-5)
    assert converted is not None
    assert exact <= converted < 3 * exact
    assert claimed_epsilon("test", claim, 0.0) == math.inf
