"""Profiles: exact for enumerated mechanisms, never below the truth between knots."""

import math

import numpy as np
import pytest

from labeldp.errors import LabelDPError
from labeldp.loss import Gaussian, Profile, Pure


def stick(p, q, epsilon):
    x = math.exp(epsilon)
    return max(float(np.maximum(p - x * q, 0).sum()), float(np.maximum(q - x * p, 0).sum()))


P = np.array([0.5, 0.3, 0.15, 0.05])
Q = P[::-1]  # a symmetric pair: the profile is the same in both directions


def enumerated():
    knots = sorted({0.0, *(abs(math.log(a / b)) for a, b in zip(P, Q, strict=True))})
    return Profile(epsilons=tuple(knots), deltas=tuple(stick(P, Q, e) for e in knots))


def test_an_enumerated_mechanism_is_exact_everywhere():
    loss = enumerated()
    for epsilon in np.linspace(0, 3, 301):
        exact = stick(P, Q, epsilon)
        assert exact <= loss.delta(epsilon) + 1e-16  # the oracle's own sum is rounded
        assert loss.delta(epsilon) == pytest.approx(exact, abs=1e-14)  # a sum of four rounded terms


def test_its_pair_gives_the_profile_and_the_renyi_divergence_back():
    loss = enumerated()
    pair = loss.atoms()
    for epsilon in np.linspace(0, 2.5, 26):
        assert pair.delta(epsilon) == pytest.approx(stick(P, Q, epsilon), abs=1e-13)  # raised by 256 half-ulps
    for order in (1.5, 2.0, 10.0):
        exact = math.log(np.sum(P**order * Q ** (1 - order))) / (order - 1)
        claimed = float(loss.rdp(np.array([order]))[0])
        assert exact * (1 - 1e-15) <= claimed <= exact + 1e-12  # raised by 64 half-ulps over (order - 1)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01, 0.2, 0.46, 0.9])
def test_epsilon_meets_its_delta(delta):
    loss = enumerated()
    assert loss.delta(loss.epsilon(delta)) <= delta
    assert loss.epsilon(delta) == 0 or stick(P, Q, loss.epsilon(delta) * (1 - 1e-9)) > delta


def test_sparse_knots_bound_a_smooth_profile():
    knots = (0.25, 0.5, 1.0, 2.0, 4.0)  # not even zero: H(0) = 1 and the mirrored knots close the left side
    loss = Profile(epsilons=knots, deltas=tuple(Gaussian(mu=1.0).delta(e) for e in knots))
    for epsilon in np.linspace(0, 6, 61):
        assert loss.delta(epsilon) >= Gaussian(mu=1.0).delta(epsilon) * (1 - 1e-12)  # Gaussian's own rounding up
    assert loss.slack == loss.deltas[-1]
    assert loss.epsilon(loss.slack / 2) == math.inf


def test_pure_as_a_profile():
    e = math.e
    loss = Profile(epsilons=(0.0, 1.0), deltas=((e - 1) / (e + 1), 0.0))
    for delta in (0.0, 1e-3, 0.1, 0.4):
        assert loss.epsilon(delta) == pytest.approx(Pure(worst=1.0).epsilon(delta), rel=1e-12)  # rounded knots


def test_one_knot():
    loss = Profile(epsilons=(0.0,), deltas=(0.1,))
    assert loss.epsilon(0.1) == 0.0
    assert loss.epsilon(0.05) == math.inf
    assert Profile(epsilons=(0.0,), deltas=(1.0,)).epsilon(0.9) == math.inf


@pytest.mark.parametrize(
    ("epsilons", "deltas", "says"),
    [
        ((0.0, 1.0), (0.1, 0.2), "not rise"),
        ((0.0, 1.0, 2.0), (0.5, 0.45, 0.0), "convex"),
        ((1.0, 0.0), (0.1, 0.2), "increasing"),
        ((0.0,), (1.5,), r"in \[0, 1\]"),
        ((0.0,), (math.nan,), r"in \[0, 1\]"),
        ((), (), "at least one"),
        ((math.inf,), (0.0,), "increasing"),
    ],
)
def test_what_is_no_profile_is_refused(epsilons, deltas, says):
    with pytest.raises(LabelDPError, match=says):
        Profile(epsilons=epsilons, deltas=deltas)
