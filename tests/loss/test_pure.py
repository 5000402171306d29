"""Pure and bounded-range losses against 50-digit arithmetic, a numerical supremum and brute force."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from labeldp.loss import ZCDP, BoundedRange, Pure

EPSILONS = [1e-8, 1e-3, 0.1, 1.0, 3.0, 10.0, 50.0]
# The closed forms are raised by 32 half-ulps (4e-15) on purpose; 1e-13 leaves room for the conditioning of the log.
CLOSE = 1e-13


def exact_pure_delta(worst, epsilon):
    with mpmath.workdps(50):
        big = mpmath.e ** mpmath.mpf(worst)
        return max(mpmath.mpf(0), (big - mpmath.e ** mpmath.mpf(epsilon)) / (big + 1))


@pytest.mark.parametrize("worst", EPSILONS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0, 2.0])
def test_pure_delta_is_randomized_responses(worst, share):
    epsilon = worst * share
    claimed, exact = Pure(worst=worst).delta(epsilon), exact_pure_delta(worst, epsilon)
    assert exact <= claimed <= exact * (1 + CLOSE)


@pytest.mark.parametrize("worst", EPSILONS)
@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 10.0, 1e4])
def test_pure_rdp_is_randomized_responses(worst, order):
    with mpmath.workdps(60):
        big, a = mpmath.e ** mpmath.mpf(worst), mpmath.mpf(order)
        exact = mpmath.log((big**a + big ** (1 - a)) / (big + 1)) / (a - 1)
        claimed = float(Pure(worst=worst).rdp(np.array([order]))[0])
        assert exact <= claimed * (1 + 1e-16)
        assert claimed <= exact * (1 + CLOSE)


def test_no_overflow_and_no_privacy():
    assert Pure(worst=5000.0).epsilon(0.1) == pytest.approx(5000 + math.log(0.9), rel=1e-15)  # one rounded log
    nothing = Pure(worst=math.inf)
    assert nothing.delta(10.0) == nothing.delta(math.inf) == 1.0
    assert nothing.epsilon(0.5) == math.inf
    assert BoundedRange(width=math.inf).epsilon(0.5) == math.inf
    assert BoundedRange(width=0.0).epsilon(0.1) == BoundedRange(width=0.0).delta(0.0) == 0.0


@given(st.floats(0, 60), st.floats(0, 0.999), st.sampled_from([Pure, BoundedRange]))
def test_epsilon_meets_its_delta(worst, delta, family):
    loss = Pure(worst=worst) if family is Pure else BoundedRange(width=worst)
    assert loss.delta(loss.epsilon(delta)) <= delta
    assert loss.epsilon(delta) <= loss.epsilon(0.0) == worst
    assert loss.epsilon(delta) <= loss.epsilon(delta / 2)


def bounded_range_curve(t, order, width):
    with mpmath.workdps(60):
        t, a, w = mpmath.mpf(t), mpmath.mpf(order), mpmath.mpf(width)
        share = (mpmath.e**w - mpmath.e**t) / (mpmath.e**w - 1)
        return mpmath.log(share * mpmath.e ** ((a - 1) * t) + (1 - share) * mpmath.e ** ((a - 1) * (t - w))) / (a - 1)


@pytest.mark.parametrize("width", [1e-3, 0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("order", [1.01, 2.0, 30.0, 1e4])
def test_bounded_range_rdp_is_the_supremum(width, order):
    def lower(t):
        return -float(bounded_range_curve(t, order, width))

    found = minimize_scalar(lower, bounds=(0, width), method="bounded", options={"xatol": width * 1e-9})
    # A bounded search can end beside a peak that sits at the edge of the interval: look there too.
    edge = [-lower(width * (1 - 10.0**-k)) for k in range(1, 15)]
    best = max(-found.fun, *edge)
    claimed = float(BoundedRange(width=width).rdp(np.array([order]))[0])
    assert claimed >= best * (1 - 1e-15)  # the oracle is itself rounded to a float
    assert claimed <= best * (1 + 1e-9)
    assert claimed <= float(ZCDP(rho=width**2 / 8).rdp(np.array([order]))[0]) * (1 + CLOSE)


@pytest.mark.parametrize("width", [0.2, 1.0, 6.0])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.95])
def test_bounded_range_delta_is_the_supremum(width, share):
    epsilon = width * share
    t = np.linspace(epsilon, width, 200_001)
    grid = (np.exp(width) - np.exp(t)) * -np.expm1(epsilon - t)
    best = float(np.max(grid)) / math.expm1(width)
    claimed = BoundedRange(width=width).delta(epsilon)
    # A grid of 2e5 points misses a smooth peak by the square of its spacing.
    assert best * (1 - 1e-12) <= claimed <= best * (1 + 1e-8)


def test_bounded_range_holds_for_an_exponential_mechanism():
    scores, moved = np.array([0.0, 0.3, 1.0, -0.4]), np.array([0.5, 0.3, 0.5, 0.1])
    # exp(score) with changes in [-1/2, 1/2]: log-ratios span at most 1.
    p, q = (np.exp(v) / np.exp(v).sum() for v in (scores, moved))
    for epsilon in (0.0, 0.1, 0.3):
        exact = max(np.maximum(p - np.exp(epsilon) * q, 0).sum(), np.maximum(q - np.exp(epsilon) * p, 0).sum())
        assert BoundedRange(width=1.0).delta(epsilon) >= exact
