"""Group privacy: exact where it is known to be, and never below the truth of a chain of neighbours."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as peer
from hypothesis import given
from hypothesis import strategies as st

from labeldp import Guarantee
from labeldp.errors import PrivacyError
from labeldp.guarantee import Trust, Unit
from labeldp.loss import (
    RDP,
    ZCDP,
    Beside,
    BoundedRange,
    DiscreteGaussian,
    Gaussian,
    Lump,
    Profile,
    Pure,
    group_loss,
    parallel,
    read_loss,
    sequence,
)

EPSILONS = np.linspace(0.0, 8.0, 81)
ATOMS = [
    Pure(worst=0.3),
    BoundedRange(width=0.4),
    Gaussian(mu=0.2),
    DiscreteGaussian(variance=30.0, square=2),
    ZCDP(rho=0.01),
    ZCDP(rho=0.01, slack=1e-7),
    RDP(orders=(1.5, 2.0, 8.0, 64.0), values=(0.01, 0.015, 0.06, 0.5)),
    Profile(epsilons=(0.0, 0.5), deltas=(math.tanh(0.25), 0.0)),
    Lump(worst=Fraction(1, 3), rho=Fraction(1, 18)),
    parallel([Gaussian(mu=0.2), Pure(worst=0.3)]),
]


def stick(left, right, epsilon):
    """The hockey-stick divergence, both ways, of two laws on the same outcomes."""
    factor = math.exp(epsilon)
    return max(float(np.maximum(left - factor * right, 0).sum()), float(np.maximum(right - factor * left, 0).sum()))


def chain_of_laws(steps, *, floor=0.0, size=61):
    """Two-sided geometric noise on 0 .. size - 1, clipped at the ends, around integers that move by one a step."""
    outcomes = np.arange(size)
    laws = []
    for at in range(steps + 1):
        weight = 0.8 ** np.abs(outcomes - size // 2 + at)
        laws.append((1 - floor) * weight / weight.sum() + floor * (outcomes == at))
    return laws


@pytest.mark.parametrize("floor", [0.0, 1e-3])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_profile_of_several_changes_is_never_below_an_enumerated_chain(size, floor):
    laws = chain_of_laws(size, floor=floor)
    knots = np.linspace(0.0, 1.0, 41)
    one = [max(stick(a, b, e) for a, b in itertools.pairwise(laws)) for e in knots]
    loss = group_loss(Profile(epsilons=tuple(knots), deltas=tuple(np.minimum.accumulate(one))), size)
    for epsilon in EPSILONS:
        assert loss.delta(float(epsilon)) >= stick(laws[0], laws[-1], epsilon)
    if floor == 0.0:  # a finite epsilon stays finite: so many times as large, in knots of 1/40
        assert loss.epsilon(0.0) <= size * 1.0 + 1e-9


def test_the_bound_for_pairs_is_the_formula():
    loss = Profile(epsilons=(0.0, 1.0), deltas=(0.46, 0.01))
    group = group_loss(loss, 3)
    exact = 0.01 * (math.exp(3) - 1) / (math.exp(1) - 1)
    assert exact <= group.delta(3.0) <= exact * (1 + 1e-12)


@pytest.mark.parametrize("size", [2, 3, 7, 40])
def test_a_renyi_curve_of_a_gaussian_becomes_that_of_the_longer_move(size):
    orders = 1 + np.geomspace(1e-3, 4000, 400)
    rho = 0.02
    group = group_loss(RDP(orders=tuple(orders), values=tuple(orders * rho)), size)
    asked = 1 + np.geomspace(0.01, 0.5 * 4000 / size, 30)
    curve, exact = group.rdp(asked), asked * rho * size**2
    assert np.all(curve >= exact)
    # Chords between orders of the grid lie above the curve, by less than a per cent at each of six doublings.
    assert np.all(curve <= exact * 1.06)


@pytest.mark.parametrize("size", [2, 5])
def test_gaussian_noise_agrees_with_a_peer(size):
    mine = group_loss(Gaussian(mu=0.3), size)
    other = peer.from_gaussian_mechanism(1.0, sensitivity=0.3 * size, value_discretization_interval=1e-4)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        assert mine.delta(epsilon) == pytest.approx(other.get_delta_for_epsilon(epsilon), rel=2e-3, abs=1e-9)


@pytest.mark.parametrize("loss", ATOMS, ids=lambda loss: loss.kind)
def test_losses_grow_with_the_group_and_survive_the_disk(loss):
    assert group_loss(loss, 1) == loss
    before = loss.epsilon(1e-5)
    for size in (2, 3, 10):
        group = group_loss(loss, size)
        assert group.epsilon(1e-5) >= before
        assert read_loss(json.loads(json.dumps(group.to_json()))).epsilon(1e-5) == group.epsilon(1e-5)
        before = group.epsilon(1e-5)


@given(st.floats(0.0, 50.0), st.integers(1, 10**6))
def test_products_are_rounded_up(value, size):
    exact = Fraction(value) * size
    assert Fraction(group_loss(Pure(worst=value), size).worst) >= exact
    assert Fraction(group_loss(Gaussian(mu=value), size).mu) >= exact
    assert Fraction(group_loss(ZCDP(rho=value), size).rho) >= exact * size


def test_labels_side_by_side_may_all_be_one_persons():
    # One label in each of two parts: the person meets both, so that the larger of the two is no bound.
    both = parallel([Gaussian(mu=1.0), Pure(worst=1.0)])
    assert isinstance(both, Beside)
    group = group_loss(both, 2)
    for epsilon in (0.5, 1.0, 2.0, 3.0):
        assert group.delta(epsilon) >= sequence([(Gaussian(mu=1.0), 1), (Pure(worst=1.0), 1)]).delta(epsilon)


def test_a_guarantee_knows_both_units_and_never_mixes_them():
    label = Guarantee.pure(0.25, trust=Trust.CURATOR)
    person = label.for_persons(8)
    assert (person.unit, person.epsilon(), person.for_labels().epsilon()) == (Unit.PERSON, 2.0, 0.25)
    assert "all labels of one person replaced" in str(person)
    assert "of one label alone: epsilon = 0.25" in str(person)
    assert "no person has more than 8 of these labels" in person.assumptions
    back = Guarantee.from_json(json.loads(json.dumps(person.to_json())))
    assert back == person
    assert str(back) == str(person)
    for mix in (person.then, person.beside):
        with pytest.raises(PrivacyError, match="for_persons"):
            mix(label)
    with pytest.raises(PrivacyError, match="for_persons"):
        person.for_persons(2)
    twice = person.then(person)
    assert (twice.epsilon(), twice.for_labels().epsilon()) == (4.0, 0.5)
    assert twice == person.times(2)
    assert person.times(2).for_labels().epsilon() == 0.5
