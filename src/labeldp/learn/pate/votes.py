r"""From votes to answers: how much noise they get, what that promises, and the only functions that see votes.

The noise is public and fixed before a vote is counted: `vote_plan` and `set_plan` turn a budget into it. `answer_classes`,
`answer_labels` and `answer_stable` add it; all that leaves them is what a plan has paid for.

>>> import numpy as np
>>> from labeldp.random import BitStream, NoiseKey
>>> plan = vote_plan(epsilon=2.0, delta=1e-5, n_queries=400, n_answers=200, threshold_share=0.2)
>>> plan.guarantee.epsilon(1e-5) <= 2.0, plan.threshold_sigma > plan.sigma
(True, True)
>>> counts = count_classes(np.array([[0, 1], [0, 1], [0, 2]]), n_classes=3)
>>> counts.tolist()
[[3, 0, 0], [0, 2, 1]]
>>> plan = VotePlan(n_queries=2, n_answers=2, sigma=0.01)
>>> answer_classes(counts, plan, level=0.0, bits=BitStream(NoiseKey.from_seed(1))).codes.tolist()
[0, 1]

Guarantee
---------
Neighbours differ in one record, hence in what one teacher was taught, hence in that teacher's
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
paths, so that it bounds the divergence of the whole. (That is why the promise is zCDP and not the exact profile of the noise,
which is 7 to 10% tighter: profiles compose in an order that is fixed beforehand.) What a run happened to spend less is not shown as a guarantee: it
is a number about the votes.

*StableTopK*, for sets of labels. With g = 2 (replace), Gumbel scale b for the choice of how many labels lead and sigma for
the test that no teacher could change them, one answer is delta_t-approximately zCDP with g^2 / (2 b^2) + g^2 / (2 sigma^2).
A share f of it goes to the choice when b = sigma sqrt((1 - f) / f); then one number is left to search for. A choice among c
ranks goes wrong by about b ln c, the test asks for a gap of sigma z or more with z near 5: where few ranks may be chosen
(`most_labels`), f below a half pays.

>>> even = set_plan(epsilon=8.0, delta=1e-5, n_queries=100)
>>> uneven = set_plan(epsilon=8.0, delta=1e-5, n_queries=100, choice_share=0.3)
>>> uneven.sigma < even.sigma < uneven.scale, uneven.guarantee.times(100).epsilon(1e-5) <= 8.0
(True, True)

References: Papernot et al. 2018 (GNMax, Confident-GNMax); Zhu & Wang 2022, Algorithm 2 (where choice and test get half
each) and Example 14; Canonne, Kamath & Steinke 2020 (discrete Gaussian, Theorem 4); Bun & Steinke 2016 (zCDP); Feldman &
Zrnic 2021 (a stopping rule within a fixed Renyi budget costs that budget).

Design notes. Counts are whole and get discrete Gaussian noise by an exact sampler, and the order that Gumbel noise makes
in StableTopK is decided exactly (`labeldp.selection.race`): nothing is assumed of floating point. Ties go to the first
class, which is post-processing. In StableTopK two public candidates are added: one with the vote of every teacher, so that "no label"
is the gap below it, and one with no vote, so that "all labels" is the gap above it. Their counts are constant, so that
gaps move no further than before: each count moves by at most 1 under replacement, a gap by at most 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.accounting import calibrate
from labeldp.arrays import Int64s, UInt8s
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Trust, Unit
from labeldp.loss.rounding import quotient_up, raise_up
from labeldp.random import BitStream, NoiseKey
from labeldp.samplers import discrete_gaussian, variance_above
from labeldp.selection import StablePlan, stable_plan
from labeldp.selection.base import check_budget, check_test_delta, least_noise
from labeldp.selection.race import NOISES
from labeldp.validate import check_choice, check_delta, check_integer, check_positive, check_real

#: What every guarantee of this package stands on.
DISJOINT = "each teacher is a function of its own part; parts are disjoint and drawn without looking at labels"
PUBLIC_POINTS = "the points that teachers vote on are public"
ASSUMPTIONS = (DISJOINT, PUBLIC_POINTS)
#: Squared distance of two votes for one class each.
ONE_CLASS = 2
#: The share of the choice in StableTopK, as the paper has it.
EVEN = 0.5


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
        return raise_up(quotient_up(1, self.sigma) ** 2 * self.squared_reach / 2)

    @property
    def threshold_rho(self) -> float:
        """The zCDP of one confidence test, 1 / (2 s1^2), rounded up; 0 without one."""
        return 0.0 if self.threshold_sigma is None else raise_up(quotient_up(1, self.threshold_sigma) ** 2 / 2)

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

    plan = _solve_noise(
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
def _solve_noise(
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
    check_choice("set_plan", "noise", noise, NOISES)
    if check_share("set_plan", "choice_share", choice_share) == EVEN:
        return stable_plan(
            epsilon=epsilon,
            delta=delta,
            neighbours="replace",
            noise=noise,
            test_delta=test_delta,
            queries=n_queries,
            choices=choices,
        )
    budget, slack = check_budget("set_plan", epsilon, delta)
    number = check_integer("set_plan", "n_queries", n_queries, least=1)
    return _solve_set_noise(
        epsilon=budget,
        delta=slack,
        n_queries=number,
        noise=noise,
        test_delta=check_test_delta("set_plan", test_delta, slack, number),
        choices=choices,
        ratio=math.sqrt((1 - choice_share) / choice_share),
    )


@lru_cache(maxsize=256)
def _solve_set_noise(
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

    return plan(least_noise("set_plan", promise, epsilon=epsilon, delta=delta))


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassAnswers:
    """Which queries were answered (`rows`, rising) and how (`codes`); `n_asked`: how many were asked before the end."""

    rows: Int64s
    codes: Int64s
    n_asked: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SetAnswers:
    """Which queries were answered (`rows`, rising) and with which labels (`sets`, one row of 0 and 1 each)."""

    rows: Int64s
    sets: UInt8s


def count_classes(votes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
    """Return counts (queries, classes) of votes (teachers, queries), each the code of one class."""
    if votes.ndim != 2 or votes.dtype.kind not in "iu" or votes.min() < 0 or votes.max() >= n_classes:
        must = f"be one code in [0, {n_classes}) per teacher and query"
        raise invalid("PATE", "votes", must, got=Described("something else"), kind=PrivacyError)
    n_queries = votes.shape[1]
    cells = np.arange(n_queries) * n_classes + votes
    return np.bincount(cells.reshape(-1), minlength=n_queries * n_classes).reshape(n_queries, n_classes)


def count_labels(votes: npt.NDArray[Any], *, tau: int | None) -> Int64s:
    """Return counts (queries, labels) of votes (teachers, queries, labels) of 0 and 1.

    The clip is checked here, on the votes that are counted: accounting for tau and using more would void the promise.
    """
    if votes.ndim != 3 or votes.dtype.kind not in "iub" or not np.isin(votes, (0, 1)).all():
        must = "be 0 or 1 per teacher, query and label"
        raise invalid("MultiLabelPATE", "votes", must, got=Described("something else"), kind=PrivacyError)
    if tau is not None and votes.sum(axis=2, dtype=np.int64).max() > tau:
        got = Described("a teacher with more")
        raise invalid("MultiLabelPATE", "votes", f"name at most tau = {tau} labels", got=got, kind=PrivacyError)
    counts: Int64s = votes.sum(axis=0, dtype=np.int64)
    return counts


def answer_classes(counts: Int64s, plan: VotePlan, *, level: float, bits: BitStream) -> ClassAnswers:
    """Answer by GNMax; with a confidence test, only where the largest count with its own noise is at least `level`."""
    check_queries(counts, plan)
    rows = np.arange(len(counts))
    if plan.threshold_sigma is not None:
        rows = np.flatnonzero(counts.max(axis=1) + draw_noise(bits, plan.threshold_sigma, (len(counts),)) >= level)
    rows = rows[: plan.n_answers]
    # After the last answer that was paid for nothing is asked any more.
    n_asked = int(rows[-1]) + 1 if rows.size == plan.n_answers else len(counts)
    noisy = counts[rows] + draw_noise(bits, plan.sigma, (rows.size, counts.shape[1]))
    return ClassAnswers(rows=rows, codes=noisy.argmax(axis=1), n_asked=n_asked)


def answer_labels(counts: Int64s, plan: VotePlan, *, n_teachers: int, bits: BitStream) -> SetAnswers:
    """Answer every query with the labels whose noisy count is more than half of the teachers."""
    check_queries(counts, plan)
    noisy = counts + draw_noise(bits, plan.sigma, counts.shape)
    return SetAnswers(rows=np.arange(len(counts)), sets=(2 * noisy > n_teachers).astype(np.uint8))


def answer_stable(
    counts: Int64s, plan: StablePlan, *, n_teachers: int, key: NoiseKey, most_labels: int | None = None
) -> SetAnswers:
    """Answer by StableTopK: the leading labels, none or all among the possibilities; nothing where its test fails.

    `most_labels` is public: sets of more labels are not among the choices.
    """
    # The first rank is the added candidate alone, which is the empty set.
    k_max = None if most_labels is None else most_labels + 1
    sets = np.zeros(counts.shape, np.uint8)
    passed = np.zeros(len(counts), bool)
    for row, votes in enumerate(counts):
        padded = np.concatenate([[n_teachers], votes, [0]])
        found = plan.select(padded, k_max=k_max, rng=key.child(row))
        passed[row] = found.passed
        if found.passed:
            leading = found.items - 1
            sets[row, leading[(leading >= 0) & (leading < votes.size)]] = 1
    rows = np.flatnonzero(passed)
    return SetAnswers(rows=rows, sets=sets[rows])


def draw_noise(bits: BitStream, sigma: float, shape: tuple[int, ...]) -> Int64s:
    """Draw discrete Gaussian noise of at least this sigma."""
    size = int(np.prod(shape))
    return discrete_gaussian(bits, variance=variance_above(sigma**2), size=size).reshape(shape)


def check_queries(counts: Int64s, plan: VotePlan) -> None:
    """Refuse more queries than were paid for."""
    if len(counts) > plan.n_queries:
        must = f"be at most the plan's queries ({plan.n_queries})"
        raise invalid("PATE", "counts", must, got=len(counts), kind=PrivacyError)
