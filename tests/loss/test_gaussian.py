"""The exact Gaussian profile against 60-digit arithmetic, always from above."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeldp.loss import Gaussian

# The claim is raised by 1e-12 on purpose (gaussian.ROUNDING), and the computation errs by less than that.
WITHIN = 2.5e-12


def exact_delta(mu, epsilon):
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.e**e * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.05, 0.3, 0.4999, 0.5, 1.0, 3.0, 12.0, 40.0])
@pytest.mark.parametrize("z", [-20.0, -3.0, -0.5, 0.0, 0.5, 3.0, 8.0, 20.0, 35.0])
def test_delta_is_exact_from_above(mu, z):
    epsilon = max(0.0, mu * (z + mu / 2))
    claimed, exact = Gaussian(mu=mu).delta(epsilon), exact_delta(mu, epsilon)
    assert exact <= claimed <= exact * (1 + WITHIN)


@pytest.mark.parametrize("mu", [1e-4, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-9, 1e-5, 0.01])
def test_epsilon_ends_on_the_safe_side(mu, delta):
    epsilon = Gaussian(mu=mu).epsilon(delta)
    assert exact_delta(mu, epsilon) <= delta
    # A millionth less epsilon no longer does, unless there is none to take away.
    assert epsilon == 0 or exact_delta(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-3)


@given(st.floats(1e-8, 1e3), st.floats(1e-200, 0.99))
def test_epsilon_meets_its_delta(mu, delta):
    loss = Gaussian(mu=mu)
    assert loss.delta(loss.epsilon(delta)) <= delta


def test_edges():
    assert Gaussian(mu=0.0).epsilon(0.0) == Gaussian(mu=0.0).delta(0.0) == 0.0
    assert Gaussian(mu=math.inf).epsilon(0.5) == math.inf
    assert Gaussian(mu=math.inf).delta(1e9) == 1.0
    assert Gaussian(mu=1.0).epsilon(0.0) == math.inf
    assert Gaussian(mu=1.0).delta(math.inf) == 0.0
    assert 0 < Gaussian(mu=1e-300).delta(1.0) < 1e-300  # a positive delta never rounds to zero
    assert np.allclose(Gaussian(mu=2.0).rdp(np.array([3.0])), 6.0, rtol=1e-14)  # a mu^2/2, raised by ulps


def test_a_profile_that_rounds_down_is_caught():
    """The broken twin: the naive difference of two normal tails loses the small mu."""
    naive = 0.5 * math.erfc((1e-3 / 1e-6 - 5e-7) / math.sqrt(2))
    assert naive == 0.0 < Gaussian(mu=1e-6).delta(1e-3)
