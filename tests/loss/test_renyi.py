"""Conversions from Renyi curves: never below the truth, never above the classical bound, equal to a peer's."""

import math

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given
from hypothesis import strategies as st

from labeldp.errors import LabelDPError
from labeldp.loss import RDP, ZCDP, Gaussian

RHOS = [1e-12, 1e-6, 1e-3, 0.1, 0.5, 2.0, 50.0, 1e5]
DELTAS = [1e-12, 1e-9, 1e-5, 1e-2, 0.3]


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", DELTAS)
def test_zcdp_lies_between_the_gaussian_and_the_classical_bound(rho, delta):
    epsilon = ZCDP(rho=rho).epsilon(delta)
    # The Gaussian of mu = sqrt(2 rho) is rho-zCDP, so no valid conversion goes below its exact epsilon.
    assert Gaussian(mu=math.sqrt(2 * rho)).epsilon(delta) <= epsilon * (1 + 1e-12)  # the root is rounded
    assert epsilon <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-13)  # ulps are added


@pytest.mark.parametrize("rho", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_zcdp_agrees_with_dp_accounting(rho, delta):
    orders = 1 + np.geomspace(1e-3, 1e5, 20_001)
    theirs, _ = compute_epsilon(orders, orders * rho, delta)
    # Their grid has spacing 1e-3 in log(order); a smooth minimum is missed by its square.
    assert ZCDP(rho=rho).epsilon(delta) == pytest.approx(theirs, rel=1e-5)


@given(st.floats(1e-10, 100), st.floats(1e-14, 0.9), st.floats(0, 0.5))
def test_epsilon_meets_its_delta(rho, delta, slack):
    loss = ZCDP(rho=rho, slack=slack)
    epsilon = loss.epsilon(delta)
    assert epsilon == math.inf if delta <= slack else loss.delta(epsilon) <= delta


def test_slack_is_added():
    exact, loose = ZCDP(rho=0.5), ZCDP(rho=0.5, slack=1e-6)
    assert loose.epsilon(1e-6 + (1 - 1e-6) * 1e-5) == pytest.approx(exact.epsilon(1e-5), rel=1e-9)  # same optimum
    assert loose.epsilon(1e-6) == loose.epsilon(1e-7) == math.inf
    assert loose.delta(math.inf) == 1e-6
    assert ZCDP(rho=0.0, slack=0.1).epsilon(0.1) == 0.0
    assert ZCDP(rho=0.0).delta(0.0) == 0.0
    assert ZCDP(rho=math.inf).epsilon(0.9) == math.inf


def test_a_curve_on_a_grid():
    orders = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0)
    loss = RDP(orders=orders, values=tuple(0.1 * order for order in orders))
    at_grid = min(0.1 * a + math.log1p(-1 / a) - (math.log(1e-5) + math.log(a)) / (a - 1) for a in orders)
    assert ZCDP(rho=0.1).epsilon(1e-5) <= loss.epsilon(1e-5) <= at_grid * (1 + 1e-12)  # ulps are added
    assert loss.delta(loss.epsilon(1e-5)) <= 1e-5
    between = np.array([1.2, 3.0, 20.0])
    assert np.all(loss.rdp(between) >= 0.1 * between)
    assert np.all(np.isinf(loss.rdp(np.array([33.0]))))
    unknown = RDP(orders=(2.0, 3.0), values=(1.0, math.inf))
    assert np.isinf(unknown.rdp(np.array([3.0]))).all()
    assert RDP(orders=(2.0,), values=(math.inf,)).epsilon(0.1) == math.inf


@pytest.mark.parametrize(
    ("orders", "values"),
    [
        ((), ()),
        ((1.0,), (1.0,)),
        ((3.0, 2.0), (1.0, 1.0)),
        ((2.0,), (1.0, 2.0)),
        ((2.0,), (-1.0,)),
        ((math.inf,), (1,)),
    ],
)
def test_bad_curves_are_refused(orders, values):
    with pytest.raises(LabelDPError, match="RDP: "):
        RDP(orders=orders, values=values)
