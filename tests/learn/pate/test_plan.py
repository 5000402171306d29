"""Accounting: hand-derived sums, a peer's accountant, and an exact audit that noise of half the size does not pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.stats import binom

from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.learn.pate import VotePlan, vote_plan
from labeldp.learn.pate.multiclass import restate_unit
from labeldp.samplers import variance_above
from labeldp.selection import stable_plan

ORDERS = np.array([1.5, 2.0, 8.0, 64.0, 1000.0])
BUDGETS = pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-3)])
#: Claims are rounded up by at most a few dozen ulps.
ROUNDED_UP = 1e-13


def near_above(claimed, derived) -> bool:
    """Whether a claim is at least what was derived by hand, and larger by no more than its rounding."""
    claimed, derived = np.asarray(claimed), np.asarray(derived)
    # The hand-derived number has rounding errors of its own, of either sign: an ulp or two.
    return bool((claimed >= derived * (1 - 4e-16)).all() and (claimed <= derived * (1 + ROUNDED_UP)).all())


@pytest.mark.parametrize("sigma", [0.7, 5.0, 40.0])
def test_gnmax_costs_order_over_variance_an_answer(sigma: float):
    plan = VotePlan(n_queries=30, n_answers=30, sigma=sigma)
    assert near_above(plan.guarantee.loss.rdp(ORDERS), 30 * ORDERS / sigma**2)


def test_confident_gnmax_costs_half_of_it_per_query_on_the_maximum_and_the_whole_per_answer():
    plan = VotePlan(n_queries=90, n_answers=20, sigma=6.0, threshold_sigma=15.0)
    derived = 90 * ORDERS / (2 * 15.0**2) + 20 * ORDERS / 6.0**2
    assert near_above(plan.guarantee.loss.rdp(ORDERS), derived)


@pytest.mark.parametrize("squared_reach", [1, 6, 14])
def test_a_count_per_label_costs_half_the_squared_distance(squared_reach: int):
    plan = VotePlan(n_queries=7, n_answers=7, sigma=3.0, squared_reach=squared_reach)
    assert near_above(plan.guarantee.loss.rdp(ORDERS), 7 * ORDERS * squared_reach / (2 * 9.0))


@BUDGETS
@pytest.mark.parametrize("share", [None, 0.2, 0.9])
def test_a_plan_meets_its_budget_and_hardly_less(epsilon: float, delta: float, share: float | None):
    answers = None if share is None else 40
    plan = vote_plan(epsilon=epsilon, delta=delta, n_queries=100, n_answers=answers, threshold_share=share)
    assert plan.guarantee.epsilon(delta) <= epsilon
    assert plan.guarantee.delta(epsilon) <= delta
    # The search ends within 1e-12 of the noise; epsilon is at most about quadratic in it.
    assert plan.guarantee.epsilon(delta) > epsilon * (1 - 1e-9)


@BUDGETS
def test_a_peers_accountant_agrees(epsilon: float, delta: float):
    """dp-accounting under its add-remove relation, where an event of noise multiplier z is RDP a / (2 z^2)."""
    plan = vote_plan(epsilon=epsilon, delta=delta, n_queries=60, n_answers=25, threshold_share=0.3)
    peer = RdpAccountant()
    peer.compose(SelfComposedDpEvent(GaussianDpEvent(plan.threshold_sigma), 60))
    peer.compose(SelfComposedDpEvent(GaussianDpEvent(plan.sigma / math.sqrt(2)), 25))
    theirs = peer.get_epsilon(delta)
    # Theirs is the best over a fixed grid of orders, ours over all: ours is at most theirs. At epsilon 0.1 the best
    # order lies beyond their grid's fine part, and 5 percent is what that costs.
    assert plan.guarantee.epsilon(delta) <= theirs * (1 + 1e-9)
    assert theirs <= 1.05 * epsilon
    # The exact Gaussian profile is below every Renyi bound: what is claimed is no less than it.
    mu = math.sqrt(60 / plan.threshold_sigma**2 + 25 * 2 / plan.sigma**2)
    assert plan.guarantee.epsilon(delta) >= Guarantee.gaussian(sigma=1.0, sensitivity=mu).epsilon(delta)


# An exact audit: all T queries have the same votes, so that the number of one outcome says all, and it is binomial.


def discrete_pmf(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """The law of the noise that `sigma` stands for, cut 12 deviations out (mass below 1e-30)."""
    variance = float(variance_above(sigma**2))
    z = np.arange(-math.ceil(12 * sigma) - 2, math.ceil(12 * sigma) + 3)
    weights = np.exp(-(z**2) / (2 * variance))
    return z, weights / weights.sum()


def chance_first_wins(lead: int, sigma: float) -> float:
    """Pr[n_0 + Z_0 >= n_1 + Z_1] for n_0 - n_1 = lead: the first class also wins ties."""
    z, p = discrete_pmf(sigma)
    tail = np.append(np.cumsum(p[::-1])[::-1], 0.0)  # tail[i] = Pr[Z >= z[i]]
    places = np.clip(z - lead - z[0], 0, z.size)
    return float(p @ tail[places])


def chance_pass(margin: int, sigma: float) -> float:
    """Pr[largest + Z >= level] for largest - level = margin."""
    z, p = discrete_pmf(sigma)
    return float(p[z >= -margin].sum())


def exact_epsilon(p: float, q: float, n: int, delta: float) -> float:
    """The least epsilon of n coins of chance p against n of chance q, in both directions, by bisection."""
    k = np.arange(n + 1)
    one, two = binom.pmf(k, n, p), binom.pmf(k, n, q)

    def reached(epsilon: float) -> float:
        e = math.exp(epsilon)
        return max(np.maximum(one - e * two, 0).sum(), np.maximum(two - e * one, 0).sum())

    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) > delta else (low, middle)
    return low


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_answers_lose_no_more_than_claimed_and_half_the_noise_does(epsilon: float):
    plan = vote_plan(epsilon=epsilon, delta=1e-5, n_queries=300)

    def audited(sigma: float) -> float:
        # One voter moves from the second class to the first: the lead moves by 2, here across a tie.
        return exact_epsilon(chance_first_wins(-1, sigma), chance_first_wins(1, sigma), 300, 1e-5)

    assert audited(plan.sigma) <= epsilon
    assert audited(plan.sigma / 2) > epsilon


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_confidence_tests_lose_no_more_than_claimed_and_half_the_noise_does(epsilon: float):
    # Nearly all of the budget to the tests, so that they alone should nearly spend it.
    plan = vote_plan(epsilon=epsilon, delta=1e-5, n_queries=300, n_answers=1, threshold_share=0.99)

    def audited(sigma: float) -> float:
        return exact_epsilon(chance_pass(0, sigma), chance_pass(-1, sigma), 300, 1e-5)

    assert audited(plan.threshold_sigma) <= epsilon
    assert audited(plan.threshold_sigma / 2) > epsilon


def test_multi_label_queries_add_up_for_replaced_teachers():
    one = stable_plan(epsilon=3.0, delta=1e-6, neighbours="replace", queries=50)
    whole = restate_unit(one.guarantee.times(50), Unit.LABEL)
    assert whole.unit is Unit.LABEL
    assert all(part.unit is Unit.LABEL for _, part in whole.parts)
    # Replace: gaps move by 2, so rho = 2^2 / s^2 a query in all; the Gumbel part's curve lies below its rho.
    assert (whole.loss.rdp(ORDERS) <= 50 * ORDERS * 4 / one.scale**2 * (1 + ROUNDED_UP)).all()
    # T delta_t, of which composition may claim 1 - (1 - delta_t)^T: equal to 1e-7 relative at these sizes.
    assert whole.loss.slack == pytest.approx(50 * one.test_delta, rel=1e-6)
    assert whole.epsilon(1e-6) <= 3.0


def test_the_promise_names_its_unit_trust_and_parts():
    plan = VotePlan(n_queries=9, n_answers=4, sigma=5.0, threshold_sigma=9.0, unit=Unit.RECORD_REPLACE)
    promise = plan.guarantee
    assert promise.unit is Unit.RECORD_REPLACE
    assert promise.trust is Trust.CURATOR
    assert [name for name, _ in promise.parts] == ["9 confidence tests", "4 answers"]
    assert any("disjoint" in text for text in promise.assumptions)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"n_queries": 0}, "n_queries"),
        ({"n_answers": 11}, "n_answers"),
        ({"n_answers": 5}, "n_answers"),  # without a test every query is answered
        ({"threshold_share": 1.0}, "threshold_share"),
        ({"threshold_share": math.nan}, "threshold_share"),
    ],
)
def test_bad_budgets_are_refused(settings: dict[str, float], complaint: str):
    with pytest.raises(LabelDPError, match=f"`{complaint}` must"):
        vote_plan(**{"epsilon": 1.0, "delta": 1e-5, "n_queries": 10, **settings})
