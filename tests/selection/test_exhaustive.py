"""Every pair of neighbours of small histograms: no selection loses more than it claims; the papers' constants do."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtr

from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.selection import exponential_guarantee, exponential_scale, limited_domain_guarantee, stable_plan
from labeldp.selection.base import ONE_EACH, RELATIONS, approximate_guarantee, gaussian_offset, laplace_offset
from labeldp.selection.exponential import bottom_offset
from labeldp.selection.maximum import noisy_max_guarantee, reach_of_counts, reach_of_gaps
from labeldp.selection.stable import gaussian_test_guarantee, sparse_offset

#: The exact laws are sums of a few hundred floats, each with a relative error of about 1e-14.
SUMMED = 1e-11
ORDERS = (1.1, 1.5, 2.0, 4.0, 16.0, 64.0)
BOTH = pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
STEPS = {"add_remove": (0, 1), "replace": (-1, 0, 1)}


def pairs(neighbours, m, most=3):
    """Each histogram with counts 0..most, and each neighbour; from four candidates on, sorted ones only: laws permute.

    (All but for ties, which go to the smaller index: with two and three candidates every order of ties occurs.) Five
    candidates, which add ranks and no new sizes of gaps, have counts up to 2.
    """
    every = itertools.product(range(most + 1 if m < 5 else min(most, 2) + 1), repeat=m)
    starts = every if m < 4 else (h for h in every if list(h) == sorted(h, reverse=True))
    for h in starts:
        for step in itertools.product(STEPS[neighbours], repeat=m):
            other = tuple(a + b for a, b in zip(h, step, strict=True))
            if min(other) >= 0 and other != h:
                yield h, other


class Laws:
    """Laws of all histograms of a test as rows of one matrix over all outcomes."""

    def __init__(self, law, neighbours, m, most=3):
        both = list(pairs(neighbours, m, most))
        rows = sorted({h for pair in both for h in pair})
        found = [law(h) for h in rows]
        self.outcomes = sorted({outcome for one in found for outcome in one}, key=repr)
        column = {outcome: j for j, outcome in enumerate(self.outcomes)}
        table = np.zeros((len(rows), len(column)))
        for i, one in enumerate(found):
            for outcome, chance in one.items():
                table[i, column[outcome]] = chance
        assert np.allclose(table.sum(axis=1), 1.0, atol=SUMMED)
        place = {h: i for i, h in enumerate(rows)}
        left, right = (np.array([place[pair[side]] for pair in both]) for side in (0, 1))
        self.p = table[np.concatenate([left, right])]
        self.q = table[np.concatenate([right, left])]

    def delta(self, epsilon):
        return float(np.maximum(self.p - math.exp(epsilon) * self.q, 0).sum(axis=1).max())

    def worst_ratio(self):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(self.p) - np.log(self.q)
        return float(np.nanmax(ratio))

    def renyi(self, order, p=None, q=None):
        p, q = (self.p, self.q) if p is None else (p, q)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, np.exp(order * np.log(p) + (1 - order) * np.log(q)), 0.0)
        return float((np.log(terms.sum(axis=1)) / (order - 1)).max())

    def set_aside(self, failure):
        """Both laws with the mass of outcomes that only one of them has moved to the outcome `failure(outcome)`."""
        p, q = self.p.copy(), self.q.copy()
        column = {outcome: j for j, outcome in enumerate(self.outcomes)}
        for j, outcome in enumerate(self.outcomes):
            for mine, other, source in ((p, self.q, self.p), (q, self.p, self.q)):
                alone = (source[:, j] > 0) & (other[:, j] == 0)
                mine[alone, column[failure(outcome)]] += source[alone, j]
                mine[alone, j] = 0.0
        return p, q

    def conditioned(self):
        """Both laws given that the outcome is one that both have, and the largest probability that it is not."""
        common = (self.p > 0) & (self.q > 0)
        p, q = np.where(common, self.p, 0.0), np.where(common, self.q, 0.0)
        lost = 1 - min(p.sum(axis=1).min(), q.sum(axis=1).min())
        return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True), float(lost)


def assert_profile(laws, promise, epsilons):
    for epsilon in epsilons:
        assert laws.delta(epsilon) <= promise.delta(epsilon) + SUMMED


def assert_curve(laws, promise, p=None, q=None):
    claimed = promise.loss.rdp(np.array(ORDERS))
    for order, bound in zip(ORDERS, claimed, strict=True):
        assert laws.renyi(order, p, q) <= bound + SUMMED


def plan_law(exact, plan):
    z = exact.discrete_gaussian(plan.sigma**2)
    offset = gaussian_offset(plan.sigma, plan.test_delta)
    return lambda h: exact.stable(h, scale=plan.scale, reach=plan.relation.reach, law=z, offset=offset)


@BOTH
def test_every_guarantee_names_its_relation_and_its_trust(neighbours):
    promise = stable_plan(epsilon=1.0, delta=1e-6, neighbours=neighbours).guarantee
    assert promise.unit is {"add_remove": Unit.RECORD_ADD_REMOVE, "replace": Unit.RECORD_REPLACE}[neighbours]
    assert promise.trust is Trust.CURATOR
    # Nothing is assumed of floating point: orders are decided exactly, counts get integer noise.
    assert promise.assumptions == (ONE_EACH,)


@BOTH
@pytest.mark.parametrize("m", [2, 3, 4, 5])
@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace", "gaussian"])
def test_large_gap(exact, neighbours, m, noise):
    relation, scale = RELATIONS[neighbours], 1.5
    promise = noisy_max_guarantee(noise, reach_of_gaps(relation, m - 1), scale=scale, relation=relation)
    prior = 0.5 * np.arange(m - 1)  # a regularizer must not matter

    # Beyond 80 the noise has less than 1e-23 of its mass.
    z = None if noise == "gumbel" else exact.discrete_noise(noise, scale, 80)

    @cache
    def law_of_gaps(scores):
        if noise == "gumbel":
            return dict(enumerate(exact.softmax((np.array(scores) + prior) / scale)))
        return dict(enumerate(exact.noisy_argmax(scores, z)))

    laws = Laws(lambda h: law_of_gaps(tuple(exact.gaps(h).tolist())), neighbours, m)
    assert_curve(laws, promise)
    assert_profile(laws, promise, (0.0, 0.5, 1.0, 2.0))
    if noise != "gaussian":
        assert laws.worst_ratio() <= promise.epsilon(0.0) + SUMMED


@BOTH
@pytest.mark.parametrize("noise", ["gumbel", "exponential", "laplace", "gaussian"])
def test_noisy_max_of_counts(exact, neighbours, noise):
    relation, scale, m = RELATIONS[neighbours], 1.5, 4
    promise = noisy_max_guarantee(noise, reach_of_counts(relation, m), scale=scale, relation=relation)

    def law(h):
        if noise == "gumbel":
            return dict(enumerate(exact.softmax(np.array(h) / scale)))
        return dict(enumerate(exact.noisy_argmax(h, exact.discrete_noise(noise, scale, 80))))

    laws = Laws(law, neighbours, m)
    assert_curve(laws, promise)
    assert_profile(laws, promise, (0.0, 0.3, 1.0))


@BOTH
def test_exponential_noise_spends_its_epsilon_and_not_the_range_of_gumbel(exact, neighbours):
    """Its exact worst ratio reaches w / b, and its divergence at order 2 is above what bounded range would promise."""
    relation, scale, m = RELATIONS[neighbours], 1.5, 3
    laws = Laws(
        lambda h: dict(enumerate(exact.noisy_argmax(h, exact.discrete_noise("exponential", scale, 80)))), neighbours, m
    )
    promise = noisy_max_guarantee("exponential", reach_of_counts(relation, m), scale=scale, relation=relation)
    assert promise.epsilon(0.0) * 0.99 < laws.worst_ratio() <= promise.epsilon(0.0) + SUMMED
    claimed = noisy_max_guarantee("gumbel", reach_of_counts(relation, m), scale=scale, relation=relation)
    with pytest.raises(AssertionError):
        assert_curve(laws, claimed)


@BOTH
@pytest.mark.parametrize(("m", "k"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 3), (5, 2)])
def test_propose_test_release_gaussian(exact, neighbours, m, k):
    relation, sigma, chance = RELATIONS[neighbours], 0.8, 0.02
    promise = gaussian_test_guarantee(relation, sigma=sigma, test_delta=chance)
    z, offset = exact.discrete_gaussian(sigma**2), gaussian_offset(sigma, chance)

    def law(h):
        passed = exact.passing(exact.gaps(h)[k - 1], relation.reach, z, offset)
        return {exact.top_set(h, k): passed, None: 1 - passed}

    laws = Laws(law, neighbours, m)
    p, q = laws.set_aside(lambda _: None)
    assert np.abs(p - laws.p).max() <= chance
    assert_curve(laws, promise, p, q)
    assert_profile(laws, promise, (0.0, 0.5, 1.0, 2.0))


@BOTH
@pytest.mark.parametrize("k", [1, 2, 3])
def test_propose_test_release_laplace(exact, neighbours, k):
    relation, epsilon, chance = RELATIONS[neighbours], 1.3, 0.05
    promise = approximate_guarantee(epsilon, chance)
    rate = epsilon / relation.reach
    z, offset = exact.discrete_laplace(rate), laplace_offset(rate, chance)

    def law(h):
        passed = exact.above(z, offset + relation.reach - exact.gaps(h)[k - 1])
        return {exact.top_set(h, k): passed, None: 1 - passed}

    laws = Laws(law, neighbours, 4)
    assert laws.delta(epsilon) <= chance + SUMMED
    assert_profile(laws, promise, (0.0, 0.5, 1.3, 2.0))


@BOTH
@pytest.mark.parametrize("m", [2, 3, 4, 5])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (8.0, 1e-4)])
def test_stable_top_k_adaptive(exact, neighbours, m, epsilon, delta):
    plan = stable_plan(epsilon=epsilon, delta=delta, neighbours=neighbours)
    laws = Laws(plan_law(exact, plan), neighbours, m)
    assert laws.delta(epsilon) <= delta
    p, q = laws.set_aside(lambda outcome: (outcome[0], None))
    assert np.abs(p - laws.p).sum(axis=1).max() <= 2 * plan.test_delta
    assert_curve(laws, plan.guarantee, p, q)
    assert_profile(laws, plan.guarantee, (0.0, epsilon / 2, epsilon))


@BOTH
@pytest.mark.parametrize("k_max", [1, 2, 4])
def test_stable_top_k_on_unknown_candidates(exact, neighbours, k_max):
    """Only items that occur can be named, and ranks beyond them have gap 0: which items occur must not leak."""
    epsilon, delta = 6.0, 1e-3
    plan = stable_plan(epsilon=epsilon, delta=delta, neighbours=neighbours)
    base = plan_law(exact, plan)

    def law(h):
        padded = (*h, *[0] * (k_max + 2))
        chances = exact.softmax(exact.gaps(padded)[:k_max] / plan.scale)
        outcomes = {}
        for (k, leading), chance in base(padded).items():
            if k <= k_max:
                among = chance / exact.softmax(exact.gaps(padded) / plan.scale)[k - 1] * chances[k - 1]
                named = None if leading is None else frozenset(i for i in leading if padded[i] > 0)
                outcomes[k, named] = outcomes.get((k, named), 0.0) + among
        return outcomes

    laws = Laws(law, neighbours, 3)
    assert laws.delta(epsilon) <= delta
    assert_profile(laws, plan.guarantee, (0.0, 3.0))


@BOTH
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-2), (8.0, 1e-3)])
def test_stable_top_k_fixed(exact, neighbours, k, epsilon, delta):
    m = 4
    plan = stable_plan(epsilon=epsilon, delta=delta, neighbours=neighbours, k=k)
    z, offset = exact.discrete_gaussian(plan.sigma**2), gaussian_offset(plan.sigma, plan.test_delta)

    def law(h):
        return exact.fixed(
            h,
            k=k,
            regularizer=exact.near_and_far(plan, k, m - 1) if k == 2 else -0.3 * np.abs(np.arange(1, m) - k),
            scale=plan.scale,
            reach=plan.relation.reach,
            law=z,
            offset=offset,
            refine=plan.refine_scale,
        )

    laws = Laws(law, neighbours, m, most=2)
    assert laws.delta(epsilon) <= delta
    assert_profile(laws, plan.guarantee, (0.0, epsilon / 2, epsilon))


@BOTH
@pytest.mark.parametrize("k", [1, 2, 4])
def test_top_k_exponential(exact, neighbours, k):
    for epsilon, delta in ((1.0, 0.0), (2.0, 1e-3)):
        scale = exponential_scale(k=k, epsilon=epsilon, delta=delta, neighbours=neighbours)
        promise = exponential_guarantee(k=k, scale=scale, neighbours=neighbours)
        assert promise.epsilon(delta) <= epsilon
        laws = Laws(lambda h, b=scale: exact.peeled(np.array(h) / b, k), neighbours, 4, most=2)
        assert laws.worst_ratio() <= promise.epsilon(0.0) + SUMMED
        assert laws.delta(epsilon) <= delta + SUMMED
        assert_curve(laws, promise)


@BOTH
@pytest.mark.parametrize(("k", "k_bar"), [(1, 1), (1, 2), (2, 2), (2, 3)])
def test_limited_domain(exact, neighbours, k, k_bar):
    scale, chance = 0.9, 0.05
    promise = limited_domain_guarantee(k=k, scale=scale, neighbours=neighbours, test_delta=chance)
    reach, offset = RELATIONS[neighbours].reach, bottom_offset(scale, k_bar, chance)
    laws = Laws(
        lambda h: exact.limited(h, k=k, k_bar=k_bar, scale=scale, reach=reach, offset=offset), neighbours, 4, most=3
    )
    p, q, lost = laws.conditioned()
    assert lost <= chance
    assert_curve(laws, promise, p, q)
    assert_profile(laws, promise, (0.0, 0.5, 1.0, 2.0))


@BOTH
@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_stable(exact, neighbours, k):
    epsilon, chance, reach = 3.0, 0.05, RELATIONS[neighbours].reach
    rate = epsilon / 4 / reach
    offset = sparse_offset(rate, k, chance)
    laws = Laws(lambda h: exact.sparse(h, k=k, rate=rate, reach=reach, offset=offset), neighbours, 4)
    assert laws.delta(epsilon) <= chance + SUMMED
    assert_profile(laws, approximate_guarantee(epsilon, chance), (0.0, 1.0, 3.0))


# ------------------------------------------------------------------ constants for add_remove, used where users are replaced


def test_the_papers_algorithm_1_fails_under_replace(exact):
    """Gumbel(2 / epsilon) on gaps: [TK, Proposition 7] says epsilon and epsilon^2 / 8."""
    epsilon = 1.0
    laws = Laws(lambda h: dict(enumerate(exact.softmax(exact.gaps(h) * epsilon / 2))), "replace", 3)
    assert laws.worst_ratio() > 1.2 * epsilon
    assert laws.renyi(2.0) > 2 * 2.0 * epsilon**2 / 8
    # The same law keeps the promise where users are added or removed.
    fine = Laws(lambda h: dict(enumerate(exact.softmax(exact.gaps(h) * epsilon / 2))), "add_remove", 3)
    assert fine.worst_ratio() <= epsilon + SUMMED


def test_the_papers_stability_test_fails_under_replace(exact):
    """Threshold 1: [TK, Algorithm 4] lets a set out that a replaced user changes, more often than delta_t."""
    sigma, chance = 0.5, 1e-4
    offset = sigma * math.sqrt(2 * math.log(1 / chance))

    def law(h):
        passed = float(ndtr((max(1, exact.gaps(h)[0]) - offset - 1) / sigma))  # continuous noise, as in the paper
        return {exact.top_set(h, 1): passed, None: 1 - passed}

    def false_pass(neighbours):
        laws = Laws(law, neighbours, 2)
        p, _ = laws.set_aside(lambda _: None)
        return np.abs(p - laws.p).max()

    assert false_pass("replace") > 10 * chance
    assert false_pass("add_remove") <= chance


def test_the_papers_algorithm_2_fails_under_replace(exact):
    """The whole plan for add_remove, at (epsilon, delta), run where users are replaced."""
    epsilon, delta = 8.0, 1e-4
    plan = stable_plan(epsilon=epsilon, delta=delta, neighbours="add_remove")
    law = plan_law(exact, plan)
    assert Laws(law, "replace", 4).delta(epsilon) > 10 * delta
    assert Laws(law, "add_remove", 4).delta(epsilon) <= delta


def test_the_papers_conversion_is_too_small():
    """[TK, Theorem 11] reads rho + sqrt(2 rho log(1 / delta)): less than the exact epsilon of a Gaussian of that rho."""
    rho, delta = 0.5, 1e-6
    exact_epsilon = Guarantee.gaussian(sigma=1.0, sensitivity=1.0).epsilon(delta)
    assert rho + math.sqrt(2 * rho * math.log(1 / delta)) < exact_epsilon


# ------------------------------------------------------------------------------------------------ offsets of the tests


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.7, 11.0])
@pytest.mark.parametrize("chance", [0.3, 1e-2, 1e-6, 1e-9])
def test_gaussian_offset_keeps_its_probability_and_wastes_little(exact, sigma, chance):
    z = exact.discrete_gaussian(sigma**2)
    offset = gaussian_offset(sigma, chance)
    assert exact.above(z, offset) <= chance
    assert offset == 0 or exact.above(z, offset - 2) > chance


@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("chance", [0.3, 1e-2, 1e-6])
def test_laplace_offset_is_the_least(exact, rate, chance):
    z = exact.discrete_laplace(rate, reach=4000)
    offset = laplace_offset(rate, chance)
    assert exact.above(z, offset) <= chance * (1 + SUMMED)
    assert offset == 0 or exact.above(z, offset - 1) > chance


@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("chance", [1e-2, 1e-6])
def test_sparse_offset_keeps_its_probability(exact, rate, chance):
    z, mass = exact.discrete_laplace(rate, reach=2000)
    r, other = exact.discrete_laplace(2 * rate, reach=2000)
    beyond = np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])

    def excess(offset):
        """Pr[Z - R > offset]."""
        return float((other * beyond[np.clip(offset + r + 1 - z[0], 0, z.size)]).sum())

    offset = sparse_offset(rate, 3, chance)
    assert 3 * excess(offset) <= chance * (1 + SUMMED)
    assert 3 * excess(offset - 1) > chance
