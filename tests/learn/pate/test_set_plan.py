"""StableTopK on votes with an uneven budget and a bound on labels: the promise holds, the bound is kept."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from labeldp.errors import LabelDPError
from labeldp.learn.pate import MultiLabelPATE, set_plan
from labeldp.learn.pate.votes import answer_stable
from labeldp.random import NoiseKey
from labeldp.selection import StablePlan, stable_plan


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_all_queries_stay_within_the_budget_and_use_it(share: float, noise: str):
    plan = set_plan(epsilon=6.0, delta=1e-5, n_queries=50, noise=noise, choices=12, choice_share=share)
    spent = plan.guarantee.times(50).epsilon(1e-5)
    # The search is by Renyi curves, the guarantee may know a little better; 2% is more than it ever does here.
    assert 0.98 * 6.0 < spent <= 6.0
    # The share is of zCDP g^2 / (2 s^2), so that the noises are in this proportion, to rounding.
    assert (plan.scale / plan.sigma) ** 2 == pytest.approx((1 - share) / share, rel=1e-9)


def test_half_is_the_plan_of_the_selection():
    assert set_plan(epsilon=2.0, delta=1e-5, n_queries=9) == stable_plan(
        epsilon=2.0, delta=1e-5, neighbours="replace", queries=9
    )


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_shares_outside_are_refused(share: float):
    with pytest.raises(LabelDPError, match="choice_share"):
        set_plan(epsilon=2.0, delta=1e-5, n_queries=9, choice_share=share)


def test_a_bound_on_labels_is_kept_and_the_best_gap_within_it_is_found():
    # Noise of 1/100 of a vote: the choice errs with probability far below e^-1000.
    plan = StablePlan(neighbours="replace", scale=0.01, sigma=0.01, test_delta=1e-9)
    counts = np.array([[100, 90, 40, 39, 0], [100, 99, 98, 97, 0], [3, 2, 1, 0, 0]])
    free = answer_stable(counts, plan, n_teachers=100, key=NoiseKey.from_seed(0))
    assert free.sets.sum(axis=1).tolist() == [2, 4, 0]
    bounded = answer_stable(counts, plan, n_teachers=100, key=NoiseKey.from_seed(0), most_labels=1)
    # Within one label: the gap of 10 after the first; no gap above the reach of 2, so no answer; none.
    assert (bounded.rows.tolist(), bounded.sets.sum(axis=1).tolist()) == ([0, 2], [1, 0])


def made(**changes) -> MultiLabelPATE:
    given = {"n_teachers": 60, "epsilon": 60.0, "random_state": 0}
    return MultiLabelPATE(DecisionTreeClassifier(max_depth=2), **(given | changes))


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(1200, 3))
    return X, (X > 0).astype(int), np.random.default_rng(1).normal(size=(12, 3))


def test_learner_keeps_the_bound_and_the_budget():
    model = made(most_labels=1, choice_share=0.3).fit(*rows())
    assert model.answers_.sum(axis=1).max() <= 1
    assert model.guarantee_.epsilon(1e-5) <= 60.0
    assert model.plan_.scale > model.plan_.sigma
    # Without the bound there are answers of two labels or more: three labels are there by halves.
    assert made().fit(*rows()).answers_.sum(axis=1).max() >= 2


@pytest.mark.parametrize(
    "changes",
    [{"most_labels": 0}, {"most_labels": 4}, {"most_labels": 2, "aggregation": "pate"}, {"choice_share": 1.5}],
)
def test_learner_refuses_bad_settings_before_teaching(changes: dict):
    with pytest.raises(LabelDPError, match=next(iter(changes))):
        made(**changes).fit(*rows())
