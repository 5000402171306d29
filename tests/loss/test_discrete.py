"""Discrete Gaussian noise: the exact profile against 50-digit sums and a peer, and the Gaussian that dominates it."""

import itertools
import json
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
from labeldp.loss import ZCDP, Beside, DiscreteGaussian, Gaussian, Pure, parallel, read_loss, sequence
from labeldp.loss.discrete import least_variance

# Masses are raised by about 1e-12 of themselves on purpose (an exponent of 200 errs by 200 ulps), and so is delta.
WITHIN = 1e-11


def noise_law(variance, *, far=16):
    """The masses of the noise, in the working precision of mpmath."""
    v = mpmath.mpf(variance)
    last = int(far * math.sqrt(variance)) + 3
    weights = {z: mpmath.exp(-mpmath.mpf(z * z) / (2 * v)) for z in range(-last, last + 1)}
    total = mpmath.fsum(weights.values())
    return {z: w / total for z, w in weights.items()}


def exact_delta(epsilon, variance, shift):
    """The hockey-stick divergence summed over all outcomes in the plane or on the line."""
    with mpmath.workdps(50):
        law = noise_law(variance)
        square = sum(d * d for d in shift)
        sums = []
        for point in itertools.product(law, repeat=len(shift)):
            moved = sum(d * z for d, z in zip(shift, point, strict=True))
            loss = mpmath.mpf(square + 2 * moved) / (2 * mpmath.mpf(variance))
            if loss > epsilon:
                mass = mpmath.fprod(law[z] for z in point)
                sums.append(mass * (1 - mpmath.exp(epsilon - loss)))
        return mpmath.fsum(sums)


@pytest.mark.parametrize("variance", [0.04, 0.5, 1.1, 13.9, 400.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_delta_in_one_dimension_is_exact_from_above(variance, epsilon):
    claimed, exact = DiscreteGaussian(variance=variance, square=1).delta(epsilon), exact_delta(epsilon, variance, (1,))
    assert exact <= claimed <= exact * (1 + WITHIN) + mpmath.mpf(10) ** -80


@pytest.mark.parametrize(("variance", "epsilon"), [(0.3, 0.5), (1.0, 4.0), (2.0, 1.0)])
def test_delta_is_the_worst_over_all_shifts(variance, epsilon):
    """Every way to write 2, 4 and 5 in up to two squares; four and five ones are summed in their own test."""
    assert DiscreteGaussian(variance=variance, square=2).delta(epsilon) == pytest.approx(
        float(exact_delta(epsilon, variance, (1, 1))), rel=WITHIN
    )
    for square, shift in ((4, (2,)), (5, (2, 1)), (8, (2, 2)), (16, (4,))):
        assert DiscreteGaussian(variance=variance, square=square).delta(epsilon) >= exact_delta(
            epsilon, variance, shift
        )
    # A shorter shift never costs more: a coordinate of 1 can be added to it.
    deltas = [DiscreteGaussian(variance=variance, square=square).delta(epsilon) for square in range(1, 17)]
    assert deltas == sorted(deltas)


def test_no_shift_is_the_worst_for_every_epsilon():
    """Why all ways to write `square` are summed: at 4, (2,) wins at epsilon 1 and (1, 1, 1, 1) at epsilon .1."""
    loss = DiscreteGaussian(variance=1.0, square=4)
    straight = [exact_delta(epsilon, 1.0, (2,)) for epsilon in (0.1, 1.0)]
    assert loss.delta(0.1) > float(straight[0]) * 1.03
    assert loss.delta(1.0) == pytest.approx(float(straight[1]), rel=WITHIN)


@pytest.mark.parametrize("sigma", [0.8, 3.0, 12.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_a_peer_agrees(sigma, delta):
    peer = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(sigma=sigma, sensitivity=1)
    ours = DiscreteGaussian(variance=sigma**2, square=1).epsilon(delta)
    # Theirs cuts the noise where e^-55 of it is left, and searches in floats.
    assert peer.get_delta_for_epsilon(ours) == pytest.approx(delta, rel=1e-6)


@settings(max_examples=60)
@given(st.floats(0.02, 1e4), st.integers(1, 40), st.floats(1e-60, 0.9))
def test_epsilon_meets_its_delta_and_beats_zcdp(variance, square, delta):
    loss = DiscreteGaussian(variance=variance, square=square)
    epsilon = loss.epsilon(delta)
    assert loss.delta(epsilon) <= delta
    assert epsilon <= ZCDP(rho=square / (2 * variance)).epsilon(delta) * (1 + 1e-9)


@settings(max_examples=60)
@given(st.floats(1.0, 50.0), st.integers(1, 16), st.floats(0.0, 5.0))
def test_the_gaussian_that_dominates_it_does(variance, square, scale):
    """The theorem of the module, against the exact sums, from epsilon 0 to where delta is 1e-60."""
    loss = DiscreteGaussian(variance=variance, square=square)
    epsilon = scale * (square / variance + 3 * math.sqrt(square / variance))
    exact = loss.delta(epsilon)
    assert loss.pairs
    assert exact < 1e-60 or exact <= loss.gaussian.delta(epsilon) * (1 + WITHIN)


def test_one_step_of_the_theorem_at_a_time():
    """Randomising continuous noise to the integers gives the discrete law within the factors of Poisson summation."""
    with mpmath.workdps(30):
        first, second = mpmath.mpf(2), mpmath.mpf("0.4")
        law = noise_law(2.4)
        theta = 2 * mpmath.nsum(lambda j: mpmath.exp(-2 * mpmath.pi**2 * second * j**2), [1, mpmath.inf])
        assert theta < 1e-3

        def weight(z, x):
            return mpmath.exp(-((z - x) ** 2) / (2 * second))

        def mass(z):
            def integrand(x):
                total = mpmath.fsum(weight(other, x) for other in range(int(x) - 9, int(x) + 10))
                return mpmath.npdf(x, 0, mpmath.sqrt(first)) * weight(z, x) / total

            return mpmath.quad(integrand, mpmath.linspace(-12, 12, 25))

        ratios = [law[z] / mass(z) for z in (0, 1, 3, 5)]
        assert all(1 - 2 * theta <= ratio <= 1 + 2 * theta for ratio in ratios)
        assert max(abs(ratio - 1) for ratio in ratios) > theta / 1e4  # the factor is really there


def test_without_the_smoothing_the_theorem_would_be_false():
    """The broken twin: the continuous Gaussian of the same variance does not dominate."""
    loss = DiscreteGaussian(variance=2.25, square=1)
    assert loss.epsilon(1e-5) > Gaussian(mu=1 / 1.5).epsilon(1e-5) * 1.01
    assert loss.epsilon(1e-5) < loss.gaussian.epsilon(1e-5)


@pytest.mark.parametrize("sigma", [20.0, 100.0, 1e4])
def test_noise_of_twenty_and_more_is_gaussian_noise(sigma):
    for square in (1, 2, 300, 10**12):
        mu = math.sqrt(square) / sigma
        if mu < 5:
            # t^2 is at most 5 here (n up to 1e12), so mu rises by t^2/(2 sigma^2) and a hair.
            assert DiscreteGaussian(variance=sigma**2, square=square).gaussian.mu <= mu * (1 + 3 / sigma**2)


def test_composition():
    loss = DiscreteGaussian(variance=900.0, square=2)
    many = sequence([(loss, 50)])
    mu = math.sqrt(50 * 2 / 900)
    assert Gaussian(mu=mu).epsilon(1e-6) <= many.epsilon(1e-6) <= Gaussian(mu=mu * 1.001).epsilon(1e-6)
    assert many.epsilon(1e-6) < 0.94 * ZCDP(rho=50 * 2 / 1800).epsilon(1e-6)
    assert many.delta(many.epsilon(1e-6)) <= 1e-6
    assert (
        sequence([(loss, 20), (loss, 30)])
        == many
        == sequence([(many, 1), (DiscreteGaussian(variance=1.0, square=0), 9)])
    )
    # With other kinds: no worse than each alone, added.
    mixed = sequence([(loss, 1), (Pure(worst=0.1), 2), (ZCDP(rho=0.01), 1)])
    assert mixed.delta(mixed.epsilon(1e-6)) <= 1e-6
    assert mixed.epsilon(1e-6) < 0.2 + loss.epsilon(5e-7) + ZCDP(rho=0.01).epsilon(5e-7)


def test_composition_of_little_noise_is_convolved_exactly():
    """Two draws on one count are a draw in the plane with shift (1, 1): enumeration knows its delta."""
    one = DiscreteGaussian(variance=1.0, square=1)
    exact = DiscreteGaussian(variance=1.0, square=2)
    for epsilon in (0.5, 2.0, 6.0):
        both = sequence([(one, 2)]).delta(epsilon)
        # The grid of 4000 points rounds losses up by a 2000th of what they reach.
        assert exact.delta(epsilon) * (1 - 1e-9) <= both <= exact.delta(epsilon) * 1.02
    # Several shifts: the worst of each part, convolved.
    two = sequence([(DiscreteGaussian(variance=4.0, square=4), 1), (one, 1)])
    assert two.delta(two.epsilon(1e-5)) <= 1e-5
    assert two.epsilon(1e-5) <= sequence([(ZCDP(rho=0.5), 1), (ZCDP(rho=0.5), 1)]).epsilon(1e-5)


def test_many_different_parts_do_not_take_long():
    """Nine different small noises are not convolved: the sums of Renyi curves and of mu^2 answer."""
    parts = [(DiscreteGaussian(variance=20.0 + k, square=1), 1) for k in range(200)]
    whole = sequence(parts)
    rho = sum(1 / (2 * (20.0 + k)) for k in range(200))
    assert whole.epsilon(1e-5) <= ZCDP(rho=rho).epsilon(1e-5) * (1 + 1e-9)


def test_parallel():
    small, large = (DiscreteGaussian(variance=4.0, square=n) for n in (1, 2))
    assert parallel([small, large]) == large
    other = DiscreteGaussian(variance=3.0, square=1)
    both = parallel([small, other])
    assert isinstance(both, Beside)
    assert both.epsilon(1e-5) == max(small.epsilon(1e-5), other.epsilon(1e-5))


def test_edges():
    free = DiscreteGaussian(variance=1.0, square=0)
    assert free.epsilon(0.0) == free.delta(0.0) == 0.0
    assert free.profile(np.array([0.0, 1.0])).tolist() == [0.0, 0.0]
    loss = DiscreteGaussian(variance=1.0, square=1)
    assert loss.epsilon(0.0) == math.inf
    assert loss.delta(math.inf) == 0.0
    assert 0 < loss.delta(60.0) < 1e-80  # beyond the sums zCDP answers, and never 0
    assert DiscreteGaussian(variance=1e-9, square=1).delta(1.0) == pytest.approx(1.0)
    assert math.isinf(DiscreteGaussian(variance=0.2, square=1).gaussian.mu)
    assert np.allclose(loss.rdp(np.array([3.0])), 1.5, rtol=1e-14)  # a / (2 V), raised by ulps
    assert read_loss(json.loads(json.dumps(loss.to_json()))) == loss
    with pytest.raises(LabelDPError, match="`variance` must be"):
        DiscreteGaussian(variance=0.0, square=1)
    with pytest.raises(LabelDPError, match="`square` must be"):
        read_loss({"kind": "discrete_gaussian", "variance": 1.0, "square": 0.5})


@pytest.mark.parametrize(
    ("sensitivity", "square"),
    [(0.0, 0), (0.5, 1), (1.0, 1), (math.sqrt(3), 3), (math.sqrt(5), 5), (1.9, 3), (1e6, 10**12)],
)
def test_the_square_of_a_length_is_an_integer(sensitivity, square):
    """The float sqrt(3) is below the root: its square must not be taken for 2."""
    loss = Guarantee.discrete_gaussian(variance=4.0, sensitivity=sensitivity).loss
    assert loss == DiscreteGaussian(variance=4.0, square=square) or square == 10**12
    assert abs(loss.square - square) <= 1e-11 * square


@pytest.mark.parametrize("reach", [1.0, math.sqrt(2), 1000.0])
@pytest.mark.parametrize("mu", [0.01, 0.5, 4.0])
def test_least_variance(reach, mu):
    variance = least_variance(mu=mu, reach=reach)
    assert DiscreteGaussian.from_reach(variance=variance, reach=reach).gaussian.mu <= mu
    assert DiscreteGaussian.from_reach(variance=variance * (1 - 1e-8), reach=reach).gaussian.mu > mu
    assert least_variance(mu=mu, reach=0.0) == least_variance(mu=math.inf, reach=1.0) == 0.0
