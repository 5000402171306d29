"""Confidence limits against exact binomial tails in high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from labeldp.audit import lower_limit, upper_limit


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
