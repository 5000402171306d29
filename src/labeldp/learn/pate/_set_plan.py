r"""The noise of StableTopK on votes, with the budget divided between the choice of k and the test as one likes.

>>> even = set_plan(epsilon=8.0, delta=1e-5, n_queries=100)
>>> uneven = set_plan(epsilon=8.0, delta=1e-5, n_queries=100, choice_share=0.3)
>>> uneven.sigma < even.sigma < uneven.scale, uneven.guarantee.times(100).epsilon(1e-5) <= 8.0
(True, True)

Reference: Zhu & Wang 2022, Algorithm 2, where both get half.

Design notes. Statement. With g = 2 (replace), Gumbel scale b for the choice and sigma for the test, one answer is
delta_t-approximately zCDP with g^2 / (2 b^2) + g^2 / (2 sigma^2). A share f of it goes to the choice when
b = sigma sqrt((1 - f) / f); then one number is left to search for. A choice among c ranks goes wrong by about b ln c, the
test asks for a gap of sigma z or more with z near 5: where few ranks may be chosen (`most_labels`), f below a half pays.
"""

from __future__ import annotations

import math
from functools import lru_cache

from labeldp._validate import check_choice, check_integer
from labeldp.guarantee import Guarantee
from labeldp.learn.pate._plan import check_share
from labeldp.selection import StablePlan, stable_plan
from labeldp.selection._budget import check_budget, check_test_delta, least_noise
from labeldp.selection._noise import NOISES

OWNER = "set_plan"
#: The paper's.
EVEN = 0.5


def set_plan(
    *,
    epsilon: float,
    delta: float,
    n_queries: int,
    noise: str = "gumbel",
    test_delta: float | None = None,
    choices: int | None = None,
    choice_share: float = EVEN,
) -> StablePlan:
    """Return the plan with the least noise of which `n_queries` answers are (epsilon, delta)-DP for replaced votes.

    `choices`: among how many ranks a Gaussian choice is made; the others do not depend on it.
    """
    check_choice(OWNER, "noise", noise, NOISES)
    if check_share(OWNER, "choice_share", choice_share) == EVEN:
        return stable_plan(
            epsilon=epsilon,
            delta=delta,
            neighbours="replace",
            noise=noise,
            test_delta=test_delta,
            queries=n_queries,
            choices=choices,
        )
    budget, slack = check_budget(OWNER, epsilon, delta)
    number = check_integer(OWNER, "n_queries", n_queries, least=1)
    return _solved(
        epsilon=budget,
        delta=slack,
        n_queries=number,
        noise=noise,
        test_delta=check_test_delta(OWNER, test_delta, slack, number),
        choices=choices,
        ratio=math.sqrt((1 - choice_share) / choice_share),
    )


@lru_cache(maxsize=256)
def _solved(
    *, epsilon: float, delta: float, n_queries: int, noise: str, test_delta: float, choices: int | None, ratio: float
) -> StablePlan:
    """Return the plan for checked arguments; many runs of one budget solve it once."""

    def plan(sigma: float) -> StablePlan:
        return StablePlan(
            neighbours="replace",
            scale=sigma * ratio,
            sigma=sigma,
            test_delta=test_delta,
            noise=noise,
            choices=choices,
        )

    def promise(sigma: float) -> Guarantee:
        return plan(sigma).guarantee.times(n_queries)

    return plan(least_noise(OWNER, promise, epsilon=epsilon, delta=delta))
