"""Budget in, noise out; noise in, budget out: the two agree, and what is claimed is never below what was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp.guarantee import Guarantee
from labeldp.selection import (
    exponential_guarantee,
    exponential_scale,
    limited_domain,
    noisy_max,
    propose_test_release,
    stable_plan,
    stable_top_k,
    top_k_exponential,
    top_stable,
)

BUDGETS = pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (8.0, 1e-3)])
BOTH = pytest.mark.parametrize("neighbours", ["add_remove", "replace"])


@BUDGETS
@BOTH
@pytest.mark.parametrize(("k", "queries", "noise"), [(None, 1, "gumbel"), (10, 1, "gumbel"), (None, 50, "gaussian")])
def test_a_plan_meets_its_budget_and_hardly_less(epsilon, delta, neighbours, k, queries, noise):
    choices = 39 if noise == "gaussian" else None
    plan = stable_plan(
        epsilon=epsilon, delta=delta, neighbours=neighbours, k=k, queries=queries, noise=noise, choices=choices
    )
    spent = plan.guarantee.times(queries)
    assert spent.epsilon(delta) <= epsilon
    assert spent.delta(epsilon) <= delta
    # The search ends within a millionth of the noise, and epsilon is at most about quadratic in it.
    assert spent.epsilon(delta) > epsilon * (1 - 1e-4)


def test_replace_takes_twice_the_noise_of_add_remove():
    one, two = (stable_plan(epsilon=1.0, delta=1e-6, neighbours=name) for name in ("add_remove", "replace"))
    # Everything depends on g / s alone; both searches end within a millionth.
    assert two.scale == pytest.approx(2 * one.scale, rel=4e-6)


def test_the_plan_is_the_tables_row_in_zcdp():
    """The statement of `labeldp.selection.stable`: scale and sigma are g / sqrt(rho), the whole approximately rho-zCDP."""
    for neighbours, reach in (("add_remove", 1), ("replace", 2)):
        plan = stable_plan(epsilon=1.0, delta=1e-6, neighbours=neighbours)
        rho = (reach / plan.scale) ** 2
        orders = np.array([1.1, 2.0, 10.0, 100.0])
        curve = plan.guarantee.loss.rdp(orders)
        assert (curve <= rho * orders * (1 + 1e-12)).all()
        assert plan.guarantee.loss.slack == pytest.approx(plan.test_delta, rel=1e-9)
        fixed = stable_plan(epsilon=1.0, delta=1e-6, neighbours=neighbours, k=3)
        assert fixed.refine_rho == pytest.approx((reach / fixed.scale) ** 2, rel=1e-12)
        # eps_r = 2 sqrt(rho / k') with rho the whole, of which the exponential mechanism has half.
        whole = 2 * fixed.refine_rho
        assert fixed.refine_scale(5) == pytest.approx(reach / (2 * math.sqrt(whole / 5)), rel=1e-9)


@BUDGETS
@BOTH
def test_the_exponential_mechanism_meets_its_budget(epsilon, delta, neighbours):
    for k, queries, part in ((1, 1, delta), (5, 3, delta), (5, 3, 0.0)):
        scale = exponential_scale(k=k, epsilon=epsilon, delta=part, neighbours=neighbours, queries=queries)
        assert exponential_guarantee(k=k, scale=scale, neighbours=neighbours, queries=queries).epsilon(part) <= epsilon


@BUDGETS
@BOTH
def test_every_call_meets_its_budget(epsilon, delta, neighbours):
    h, budget = [30, 20, 10, 0], {"epsilon": epsilon, "delta": delta, "neighbours": neighbours}
    found = [
        stable_top_k(h, **budget),
        stable_top_k(h, k=2, noise="laplace", **budget),
        noisy_max(h, noise="gaussian", **budget),
        propose_test_release(h, k=2, **budget),
        propose_test_release(h, k=2, noise="laplace", **budget),
        top_k_exponential(h, k=2, **budget),
        limited_domain(h, k=2, **budget),
        top_stable(h, k=2, **budget),
    ]
    for one in found:
        assert one.guarantee.epsilon(delta) <= epsilon * (1 + 1e-15)
        assert Guarantee.from_json(one.guarantee.to_json()) == one.guarantee


@pytest.mark.parametrize("call", [limited_domain, top_stable, top_k_exponential])
def test_many_queries_meet_the_budget_together(call):
    found = call([30, 20, 10, 0], k=2, epsilon=1.0, delta=1e-6, neighbours="replace", queries=20)
    assert found.guarantee.times(20).epsilon(1e-6) <= 1.0


def test_more_budget_never_means_more_noise():
    scales = [stable_plan(epsilon=e, delta=1e-6, neighbours="replace").scale for e in (0.1, 0.5, 1.0, 4.0, 20.0)]
    assert scales == sorted(scales, reverse=True)
