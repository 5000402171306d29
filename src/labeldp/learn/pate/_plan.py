r"""How much noise the votes get, and what that promises: all of it public, fixed before a vote is counted.

>>> plan = vote_plan(epsilon=2.0, delta=1e-5, n_queries=400, n_answers=200, threshold_share=0.2)
>>> plan.guarantee.epsilon(1e-5) <= 2.0, plan.threshold_sigma > plan.sigma
(True, True)

References: Papernot et al. 2018 (GNMax, Confident-GNMax); Canonne, Kamath & Steinke 2020 (discrete Gaussian, Theorem 4);
Bun & Steinke 2016 (zCDP); Feldman & Zrnic 2021 (a stopping rule within a fixed Renyi budget costs that budget).

Design notes. Statement. Neighbours differ in one record, hence in what one teacher was taught, hence in that teacher's
votes: one voter is REPLACED, however her votes change. Let D^2 be the largest squared distance of her two vote vectors.

- one class each: she leaves one class and joins another, D^2 = 2;
- any of m labels: D^2 = m; at most tau labels each: D^2 = min(2 tau, m).

The discrete Gaussian of variance s^2 on whole counts has Renyi divergence at most a D^2 / (2 s^2) at every order a, as
the continuous one. Every answer is a function of such noisy counts:

- GNMax, the class of the largest noisy count: a / s^2 an answer;
- a noisy count per label against half of the teachers: a D^2 / (2 s^2) an answer;
- the confidence test: the LARGEST count moves by at most 1, and noise is added to it alone: a / (2 s1^2) a query, paid
  whether it passes or not. (With noise on every count and then the maximum the bound would be another.)

How many queries pass depends on the data, so at most `n_answers` are answered and the promise is made for that many:
T a / (2 s1^2) + A a / s^2. On every path the executed steps cost at most that. At a fixed order, by induction from the
last step backwards, the expectation of the likelihood ratio's power is at most the exponential of the largest sum over
paths, so that it bounds the divergence of the whole. What a run happened to spend less is not shown as a guarantee: it
is a number about the votes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from labeldp._loss.rounding import quotient_up, up
from labeldp._validate import check_delta, check_integer, check_positive, check_real
from labeldp.accounting import calibrate
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee, Trust, Unit

#: What every guarantee of this package stands on.
DISJOINT = "each teacher is a function of its own part; parts are disjoint and drawn without looking at labels"
PUBLIC_POINTS = "the points that teachers vote on are public"
ASSUMPTIONS = (DISJOINT, PUBLIC_POINTS)
#: Squared distance of two votes for one class each.
ONE_CLASS = 2


@dataclass(frozen=True, kw_only=True)
class VotePlan:
    """Noise of a run. `sigma`: on the counts of an answer; `threshold_sigma`: on the largest count, if it is tested.

    `n_queries`: how many points are asked about at most, `n_answers`: how many of them are answered at most.
    `squared_reach`: D^2, how far one teacher moves the counts.
    """

    n_queries: int
    n_answers: int
    sigma: float
    threshold_sigma: float | None = None
    squared_reach: int = ONE_CLASS
    unit: Unit = Unit.LABEL
    assumptions: Sequence[str] = field(default=ASSUMPTIONS)

    def __post_init__(self) -> None:
        check_integer("VotePlan", "n_queries", self.n_queries, least=1)
        check_integer("VotePlan", "n_answers", self.n_answers, least=1, most=self.n_queries)
        check_positive("VotePlan", "sigma", self.sigma)
        check_integer("VotePlan", "squared_reach", self.squared_reach, least=1)
        if self.threshold_sigma is not None:
            check_positive("VotePlan", "threshold_sigma", self.threshold_sigma)
        elif self.n_answers != self.n_queries:
            fix = "Without a test every query is answered."
            raise invalid("VotePlan", "n_answers", f"be n_queries ({self.n_queries})", got=self.n_answers, fix=fix)

    @property
    def answer_rho(self) -> float:
        """The zCDP of one answer, D^2 / (2 s^2), rounded up."""
        return up(quotient_up(1, self.sigma) ** 2 * self.squared_reach / 2)

    @property
    def threshold_rho(self) -> float:
        """The zCDP of one confidence test, 1 / (2 s1^2), rounded up; 0 without one."""
        return 0.0 if self.threshold_sigma is None else up(quotient_up(1, self.threshold_sigma) ** 2 / 2)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the whole run promises, however many queries are answered."""

        def part(rho: float, count: int, name: str) -> Guarantee:
            one = Guarantee.zcdp(rho, unit=self.unit, trust=Trust.CURATOR, assumptions=self.assumptions)
            return one.times(count).named(f"{count} {name}")

        answers = part(self.answer_rho, self.n_answers, "answers")
        if self.threshold_sigma is None:
            return Guarantee.in_sequence([answers])
        return Guarantee.in_sequence([part(self.threshold_rho, self.n_queries, "confidence tests"), answers])


def vote_plan(
    *,
    epsilon: float,
    delta: float,
    n_queries: int,
    n_answers: int | None = None,
    threshold_share: float | None = None,
    squared_reach: int = ONE_CLASS,
    unit: Unit = Unit.LABEL,
    assumptions: Sequence[str] = ASSUMPTIONS,
) -> VotePlan:
    """Return the plan with the least noise whose whole run is (epsilon, delta)-DP: budget in, noise out.

    `threshold_share`: the part of the budget, in zCDP, that goes to confidence tests; None for no tests. With rho in
    all and a share f, s1 = sqrt(T / (2 f rho)) and s = sqrt(A D^2 / (2 (1 - f) rho)): one number to search for.
    """
    owner = "vote_plan"
    budget, slack = check_positive(owner, "epsilon", epsilon), check_delta(owner, delta)
    if slack == 0:
        raise invalid(owner, "delta", "be > 0", got=delta, fix="Gaussian noise is never pure.")
    queries = check_integer(owner, "n_queries", n_queries, least=1)
    answers = queries if n_answers is None else check_integer(owner, "n_answers", n_answers, least=1, most=queries)
    share = 0.0 if threshold_share is None else check_share(owner, "threshold_share", threshold_share)

    plan = _solved(
        epsilon=budget,
        delta=slack,
        n_queries=queries,
        n_answers=answers,
        share=share,
        squared_reach=check_integer(owner, "squared_reach", squared_reach, least=1),
    )
    # Neither the unit nor the assumptions change a number.
    return replace(plan, unit=unit, assumptions=tuple(assumptions))


@lru_cache(maxsize=256)
def _solved(
    *, epsilon: float, delta: float, n_queries: int, n_answers: int, share: float, squared_reach: int
) -> VotePlan:
    """Return the plan for checked arguments; many runs of one budget solve it once. A share of 0 is no test."""

    def plan(noise: float) -> VotePlan:
        return VotePlan(
            n_queries=n_queries,
            n_answers=n_answers,
            sigma=noise * math.sqrt(n_answers * squared_reach / (2 * (1 - share))),
            threshold_sigma=noise * math.sqrt(n_queries / (2 * share)) if share else None,
            squared_reach=squared_reach,
        )

    # rho = 1 / noise^2: from 1e-12 to 1e12, beyond which no budget is worth the name.
    return plan(calibrate(lambda noise: plan(noise).guarantee, epsilon=epsilon, delta=delta, low=1e-6, high=1e6))


def check_share(owner: str, name: str, value: float) -> float:
    """Return a share strictly between 0 and 1."""
    share = check_real(owner, name, value)
    if not 0 < share < 1:
        raise invalid(owner, name, "be in (0, 1)", got=value)
    return share
