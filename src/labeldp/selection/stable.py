r"""Sets that are released exactly, after a private test that no user could change them.

Three ways: choose k where the counts fall steeply and test the k leading items (`stable_top_k`), test a k that is
public (`propose_test_release`), or test one rank after another until one is stable (`top_stable`).

>>> found = stable_top_k([90, 88, 3, 2, 0], epsilon=1.0, delta=1e-6, neighbours="add_remove", rng=2)
>>> found.k, found.passed, found.items.tolist()
(2, True, [0, 1])
>>> found.guarantee.epsilon(1e-6) <= 1.0
True
>>> found = propose_test_release([90, 88, 3, 2], k=2, epsilon=1.0, delta=1e-6, neighbours="add_remove", rng=1)
>>> found.passed, found.items.tolist()
(True, [0, 1])
>>> top_stable([900, 800, 3, 2], k=3, epsilon=1.0, delta=1e-6, neighbours="add_remove", rng=1).items.tolist()
[0, 1]

**StableTopK** ([TK] Algorithms 2 and 3, Theorems 11 and 12). With g the reach of a gap (1 for add_remove, 2 for
replace) and noise s:

- choose: noisy max over the gaps, Gumbel scale s: bounded range 2 g / s, so zCDP g^2 / (2 s^2);
- test: Gaussian propose-test-release, sigma = s: delta_t-approximate zCDP g^2 / (2 s^2);
- refine (fixed k only): exponential mechanism of r rounds inside zCDP g^2 / s^2, r known after the test:
  each round has bounded range sqrt(8 g^2 / (s^2 r)).

They compose in sequence: delta_t-approximate rho-zCDP with rho = g^2 / s^2 (adaptive k) or 2 g^2 / s^2 (fixed k). The
guarantee keeps the parts, whose Renyi curves add up to less than that. [TK] states s = 1 / sqrt(rho), g = 1, which is
add_remove; its rho + sqrt(2 rho log(1 / delta)) is not a valid conversion, and is not used.

Utility: if the gap at the chosen k is at least g + 2 T + 1 (`StablePlan.sure_gap`), T = ceil(s z), the test fails only if
Z < -T, so with probability at most delta_t. At g + 2 T it also fails for Z = -T, which may be more: 1.14e-3 for 1e-3 at
sigma = 10.

**Which ranks a fixed k prefers.** Any stable set helps: from j < k items k - j are still to be drawn; a set of j > k is
cut down by min(k, j - k) rounds among j items instead of k rounds among all. Beyond 2 k no round is saved, but the draws
are among the j leading items, where a failed test draws among all. So no rank is worse than a failed test, nearer ones are
better, and the prior over ranks has both. With b the scale and d = |j - k|, let

    p(j) ~ exp(-d S / (k b)), S = `StablePlan.sure_gap`: ranks up to k / 2 or so away;    q(j) ~ 1 / (1 + d): all others;
    r(j) = b ln(p(j) + q(j)).

With Gumbel noise rank j is drawn in proportion to (p(j) + q(j)) exp(gap / b). So before the gaps are looked at it has at
least half of what p alone, or q alone, would give it: both are had for about b ln 2 of the gap. p was the default before,
without a rank beyond 2 k: with 200 items at 700 of 15,000 and k = 50 it had nothing to find. r is a function of j, k and
the noise, and the ranks are as many as the public candidates: r cancels from the difference of neighbours' scores, and the
guarantee is the one above, whatever r and the number of ranks.

**Propose-test-release** ([TK] Algorithms 4 and 5, Lemma 18, Corollary 19; Dwork & Lei 2009). Let q = h_(k) - h_(k+1), g
its reach, Z discrete noise and T a whole number with Pr[Z > T] <= delta_t. The set is released iff

    gaussian: max(g, q) + Z - T > g            laplace: q + Z - T > g.

- If neighbours have the same set, the output is one bit, computed from a number that moves by at most g: gaussian
  RDP(a) = a g^2 / (2 sigma^2); laplace with scale g / epsilon: pure epsilon.
- If their sets differ, q <= g for both (see `labeldp.selection.base`). Each then passes with probability at most Pr[Z >
  T] <= delta_t; set that event aside, and both answer "no" always.

So gaussian is delta_t-approximately (a, a g^2 / (2 sigma^2))-RDP, and laplace is (epsilon, delta_t)-DP. [TK] has g = 1
throughout, which is add_remove: under replace its test passes too often by Pr[Z > T - 1] / Pr[Z > T]. Its sqrt(2
log(1 / delta_t)) sigma in place of T is right but larger than need be.

The noise is discrete, so that on whole counts the test is exact; T is the continuous threshold rounded up.

**Top Stable** (the sparse vector technique). Ours follows the idea of Carvalho et al., a sparse vector test of the
gaps, and not the paper's constants. Ranks are visited k, k - 1, ..., 1, so that the longest stable list wins. With q_j
the gap at rank j, g its reach, R discrete Laplace of scale 2 g / epsilon and Z_j of scale 4 g / epsilon, it stops at
the first j with q_j + Z_j > g + T + R and releases the j leading items.

Statement: (epsilon, delta_t)-DP. Where it stops is epsilon-DP: fix the noise of the ranks visited before j; moving R by
g and Z_j by 2 g turns a run of one data set that stops at j into such a run of its neighbour, at a price of
g epsilon / (2 g) + 2 g epsilon / (4 g) = epsilon. The j leading items of neighbours differ only if q_j <= g for both;
then it stops at j only if Z_j - R > T. With a = e^(-epsilon / (4 g)) the scale of R gives it a^2, and for all
integers t Pr[Z > t] <= a^(t+1) / (1 + a), so

    Pr[Z - R > T] <= a^(T+1) / (1 + a) E[a^R],   E[a^R] = (1 - a^2) / (1 + a^2) (1 / (1 - a^3) + a / (1 - a)).

T is the least whole number at which k times this is at most delta_t. All noise is discrete and exact.

References: [TK] Zhu & Wang, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE" (2022);
Dwork & Lei 2009, Thakurta & Smith 2013 (propose-test-release); Carvalho, Wang, Gondara & Miao, "Differentially Private
Top-k Selection via Stability on Unknown Domain" (2020); Dwork & Roth 2014 (AboveThreshold); Lyu, Su & Li 2017 (its many
broken variants).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from labeldp.arrays import Float64s, Int64s
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee
from labeldp.loss.rounding import quotient_up
from labeldp.random import BitStream, as_key
from labeldp.samplers import discrete_gaussian, discrete_laplace, variance_above
from labeldp.selection.base import (
    Relation,
    Selection,
    approximate_guarantee,
    check_budget,
    check_test_delta,
    gaussian_offset,
    laplace_offset,
    least_noise,
    read_neighbours,
)
from labeldp.selection.exponential import DEFAULT_SPREAD, draw_one_shot
from labeldp.selection.histogram import Histogram
from labeldp.selection.maximum import (
    Regularizer,
    choose_rank,
    count_ranks,
    noisy_max_guarantee,
    reach_of_gaps,
    read_regularizer,
)
from labeldp.selection.race import NOISES, laplace_rate
from labeldp.validate import check_choice, check_delta, check_integer, check_positive


def stable_top_k(
    counts: Any,
    *,
    epsilon: float,
    delta: float,
    neighbours: str,
    k: int | None = None,
    regularizer: Regularizer | float | None = None,
    rng: Any = None,
    noise: str = "gumbel",
    test_delta: float | None = None,
    queries: int = 1,
    k_max: int | None = None,
    candidates: Sequence[Any] | None = None,
    fallback: bool = True,
) -> Selection:
    """Return the leading items, as many as the data suggest (k=None, Algorithm 2) or k of them (Algorithm 3).

    Parameters
    ----------
    counts : array, mapping from name to count, or Histogram
        How many users have each candidate.
    epsilon, delta : float
        The budget of all `queries` together; delta > 0.
    neighbours : "add_remove" or "replace"
        What one user may do; it decides the noise.
    k : int, optional
        How many items to return; chosen by the data if left out.
    regularizer : sequence, array, callable or float, optional
        Public r(1), ..., r(n) added to the gaps, or a function of the ranks; with a fixed k also one number, the weight
        of -|j - k|. Left out with a fixed k, ranks near k come first and no rank is out of reach (the module's notes).
    rng : None, int or numpy.random.Generator
        As for `labeldp.privatize`.
    noise : "gumbel", "exponential", "laplace" or "gaussian"
        The noise that chooses k.
    test_delta : float, optional
        The probability of a false pass, half of a query's share of delta unless given.
    queries : int
        That many calls together stay within the budget; the guarantee is of one.
    k_max : int, optional
        Only ranks up to it are chosen; needed where the candidates are not public. Left out with a fixed k: all ranks
        (10 k where the candidates are not public), and 2 k with a regularizer of your own or Gaussian noise.
    candidates : sequence, optional
        The public list of candidates, for a mapping.
    fallback : bool
        Whether a fixed k is filled up, or reached after a failed test, by the exponential mechanism; it needs public
        candidates.

    Returns
    -------
    Selection
        *Guarantee*: as in the module's notes. *Edge cases*: one candidate, k above the candidates, fractional or
        negative counts are refused; ties and zero gaps are fine.

    >>> sold = {"ham": 700, "egg": 650, "tea": 1}
    >>> stable_top_k(sold, epsilon=1.0, delta=1e-6, neighbours="replace", k_max=2, rng=3).items
    array(['egg', 'ham'], dtype='<U3')
    """
    owner = "stable_top_k"
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    if k is not None and k_max is None:
        k = check_integer(owner, "k", k, least=1)
        k_max = _farthest_rank(k, public=histogram.public, plain=regularizer is None and noise != "gaussian")
    choices = count_ranks(owner, histogram, k_max)
    plan = stable_plan(
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        k=k,
        noise=noise,
        test_delta=test_delta,
        queries=queries,
        choices=choices if noise == "gaussian" else None,
    )
    return plan.select(histogram, regularizer=regularizer, k_max=k_max, fallback=fallback, rng=rng)


def _farthest_rank(k: int, *, public: bool, plain: bool) -> int | None:
    """Return the default of k_max for a fixed k, from public numbers alone; None is every rank.

    `plain`: the default regularizer, which has its own say about far ranks, and a noise whose cost does not grow with
    the ranks to choose from. Without it the choice ends at 2 k, beyond which a proposal saves no round.
    """
    if not plain:
        return 2 * k
    return None if public else DEFAULT_SPREAD * k


@dataclass(frozen=True, kw_only=True)
class StablePlan:
    """The noise of StableTopK, all of it public, and what it promises: noise in, budget out.

    Fields
    ------
    neighbours : "add_remove" or "replace"
        What one user may do.
    scale : float
        Of the noise that chooses k (Gumbel, exponential or Laplace scale, Gaussian sigma).
    sigma, test_delta : float
        The noise of the stability test, and the probability of a false pass.
    noise : "gumbel", "exponential", "laplace" or "gaussian"
        The noise that chooses k.
    k, refine_rho : int, float
        A fixed k, and the zCDP of the exponential mechanism that reaches it after the test.
    choices : int, optional
        Over how many ranks a Gaussian choice is made at most; the others do not depend on it.
    """

    neighbours: str
    scale: float
    sigma: float
    test_delta: float
    noise: str = "gumbel"
    k: int | None = None
    refine_rho: float = 0.0
    choices: int | None = None

    def __post_init__(self) -> None:
        owner = "StablePlan"
        read_neighbours(owner, self.neighbours)
        check_choice(owner, "noise", self.noise, NOISES)
        check_positive(owner, "scale", self.scale)
        check_positive(owner, "sigma", self.sigma)
        if check_delta(owner, self.test_delta, name="test_delta") == 0:
            raise invalid(owner, "test_delta", "be > 0", got=self.test_delta)
        if self.k is not None:
            check_integer(owner, "k", self.k, least=1)
            check_positive(owner, "refine_rho", self.refine_rho)
        if self.noise == "gaussian":
            check_integer(owner, "choices", self.choices, least=1, fix="The Gaussian noisy max depends on it.")

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return read_neighbours("StablePlan", self.neighbours)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What one call promises."""
        relation = self.relation
        reach = reach_of_gaps(relation, self.choices or 1)
        choose = noisy_max_guarantee(self.noise, reach, scale=self.scale, relation=relation)
        test = gaussian_test_guarantee(relation, sigma=self.sigma, test_delta=self.test_delta)
        parts = [choose.named("choice of k"), test.named("stability test")]
        if self.k is not None:
            refine = Guarantee.zcdp(self.refine_rho, **relation.terms())
            parts.append(refine.named("exponential mechanism"))
        return Guarantee.in_sequence(parts)

    @property
    def sure_gap(self) -> int:
        """A gap at which the test passes with probability at least 1 - test_delta."""
        return self.relation.reach + 2 * gaussian_offset(self.sigma, self.test_delta) + 1

    def pass_chance(self, gap: int) -> float:
        """Return the probability that the test passes at this gap, Pr[Z > T + g - max(g, gap)], with Z taken as continuous.

        >>> plan = StablePlan(neighbours="add_remove", scale=10.0, sigma=10.0, test_delta=1e-6)
        >>> round(plan.pass_chance(plan.sure_gap), 3), plan.pass_chance(0) < 1e-6
        (1.0, True)
        """
        from scipy.special import ndtr

        reach = self.relation.reach
        # Half a step: Z > t for whole numbers is Z > t + 1/2 for the continuous one.
        least = gaussian_offset(self.sigma, self.test_delta) + reach - max(reach, gap) + 0.5
        return float(ndtr(-least / self.sigma))

    def select(
        self,
        counts: Any,
        *,
        regularizer: Regularizer | float | None = None,
        k_max: int | None = None,
        candidates: Sequence[Any] | None = None,
        fallback: bool = True,
        rng: Any = None,
    ) -> Selection:
        """Run the plan once. The arguments are those of `stable_top_k`."""
        owner = "stable_top_k"
        histogram = Histogram.of(counts, candidates=candidates, owner=owner)
        self._check(owner, histogram, fallback)
        n = count_ranks(owner, histogram, k_max)
        if self.choices is not None and n > self.choices:
            raise invalid(owner, "k_max", f"be at most the plan's choices ({self.choices})", got=n)
        scores = read_regularizer(owner, self._regularizer(regularizer), n)
        key = as_key(owner, rng).claim(owner)
        bits = BitStream(key)
        proposed = choose_rank(bits, histogram, n, noise=self.noise, scale=self.scale, regularizer=scores)
        gap = histogram.levels.gap_at(proposed)
        passed = run_gaussian_test(bits, gap, self.relation, sigma=self.sigma, test_delta=self.test_delta)
        places = histogram.top(proposed) if passed else np.empty(0, np.int64)
        if self.k is not None:
            places = self._refine(bits, histogram, places, proposed if passed else 0, fallback=fallback)
        return Selection(
            items=histogram.pick(places),
            k=proposed if self.k is None else self.k,
            proposed=proposed,
            passed=passed,
            guarantee=histogram.state(self.guarantee, regularizer=_is_list(regularizer)),
            seeded=key.seeded,
        )

    def _check(self, owner: str, histogram: Histogram, fallback: bool) -> None:  # noqa: FBT001
        """Refuse a fixed k that the candidates cannot fill."""
        if self.k is None:
            return
        if histogram.public:
            check_integer(owner, "k", self.k, least=1, most=histogram.counts.size)
        elif fallback:
            fix = "List the public `candidates`, or use fallback=False and take fewer than k."
            raise invalid(owner, "fallback", "be False where candidates are not public", got=fallback, fix=fix)

    def _regularizer(self, regularizer: Regularizer | float | None) -> Any:
        """Return r: what the caller says, -weight |j - k| for a weight, and near and far ranks of a fixed k if nothing."""
        if self.k is None:
            return regularizer
        if regularizer is None:
            return self._near_and_far
        if not isinstance(regularizer, (int, float)):
            return regularizer
        if not (math.isfinite(regularizer) and regularizer >= 0):
            raise invalid("stable_top_k", "regularizer", "be a weight >= 0", got=regularizer)
        centre, weight = self.k, float(regularizer)
        return lambda ranks: -weight * np.abs(ranks - centre)

    def _near_and_far(self, ranks: Int64s) -> Float64s:
        """Return scale ln(p(j) + q(j)) for the two distributions over ranks of the module's notes."""
        away = np.abs(ranks - (self.k or 0)).astype(np.float64)
        near, far = -self.sure_gap / ((self.k or 1) * self.scale) * away, -np.log1p(away)
        both: Float64s = np.logaddexp(near - np.logaddexp.reduce(near), far - np.logaddexp.reduce(far))
        return self.scale * both

    def _refine(
        self, bits: BitStream, histogram: Histogram, stable: Int64s, proposed: int, *, fallback: bool
    ) -> Int64s:
        """Return k places from a stable set of `proposed`: fill it up, or shrink it in whichever way is shorter."""
        k = self.k or 0
        if proposed < k:
            if not fallback:
                return stable
            rest = np.setdiff1d(np.arange(histogram.counts.size), stable, assume_unique=True)
            found = self._draw_rounds(bits, histogram.counts[rest], k - proposed)
            return np.sort(np.concatenate([stable, rest[found]]))
        # A false pass (probability test_delta) beyond the items that occur may leave fewer than it proposed.
        if proposed == k or stable.size <= k:
            return stable
        if k <= proposed - k:
            return np.sort(stable[self._draw_rounds(bits, histogram.counts[stable], k)])
        return np.delete(stable, self._draw_rounds(bits, -histogram.counts[stable], stable.size - k))

    def _draw_rounds(self, bits: BitStream, counts: Int64s, rounds: int) -> Int64s:
        """Return places drawn by the exponential mechanism in `rounds` rounds within refine_rho."""
        return draw_one_shot(bits, counts, rounds, scale=self.refine_scale(rounds))

    def refine_scale(self, rounds: int) -> float:
        """Return the Gumbel scale b with rounds * (g / b)^2 / 8 <= refine_rho; one part in 10^12 covers rounding."""
        return self.relation.reach * math.sqrt(rounds / (8 * self.refine_rho)) * (1 + 1e-12)


def _is_list(regularizer: Regularizer | float | None) -> bool:
    """Whether the regularizer has a say of its own about each rank; a weight is a setting like any other."""
    return regularizer is not None and not isinstance(regularizer, (int, float))


def stable_plan(
    *,
    epsilon: float,
    delta: float,
    neighbours: str,
    k: int | None = None,
    noise: str = "gumbel",
    test_delta: float | None = None,
    queries: int = 1,
    choices: int | None = None,
) -> StablePlan:
    """Return the plan with the least noise of which `queries` calls are (epsilon, delta)-DP: budget in, noise out.

    >>> plan = stable_plan(epsilon=2.0, delta=1e-6, neighbours="replace", queries=600)
    >>> plan.guarantee.times(600).epsilon(1e-6) <= 2.0
    True
    """
    owner = "stable_plan"
    read_neighbours(owner, neighbours)
    check_choice(owner, "noise", noise, NOISES)
    budget, slack = check_budget(owner, epsilon, delta)
    number = check_integer(owner, "queries", queries, least=1)
    share = check_test_delta(owner, test_delta, slack, number)
    if k is not None:
        k = check_integer(owner, "k", k, least=1)
    if noise == "gaussian":
        choices = check_integer(owner, "choices", choices, least=1, fix="The Gaussian noisy max depends on it.")
    return _solve_plan(
        epsilon=budget,
        delta=slack,
        neighbours=neighbours,
        k=k,
        noise=noise,
        test_delta=share,
        queries=number,
        choices=choices,
    )


@lru_cache(maxsize=256)
def _solve_plan(
    *,
    epsilon: float,
    delta: float,
    neighbours: str,
    k: int | None,
    noise: str,
    test_delta: float,
    queries: int,
    choices: int | None,
) -> StablePlan:
    """Return the plan for checked arguments; a thousand queries of one budget solve it once."""
    reach = read_neighbours("stable_plan", neighbours).reach

    def plan(scale: float) -> StablePlan:
        rho = quotient_up(reach, scale) ** 2 if k is not None else 0.0
        return StablePlan(
            neighbours=neighbours,
            scale=scale,
            sigma=scale,
            test_delta=test_delta,
            noise=noise,
            k=k,
            refine_rho=rho,
            choices=choices,
        )

    def promise(scale: float) -> Guarantee:
        return plan(scale).guarantee.times(queries)

    return plan(least_noise("stable_plan", promise, epsilon=epsilon, delta=delta))


def propose_test_release(
    counts: Any,
    *,
    k: int,
    epsilon: float,
    delta: float,
    neighbours: str,
    noise: str = "gaussian",
    test_delta: float | None = None,
    candidates: Sequence[Any] | None = None,
    rng: Any = None,
) -> Selection:
    """Return the k leading items as a set, or nothing with `.passed` False. k must be public.

    The arguments are those of `stable_top_k`. `test_delta`: the probability of a false pass; with Gaussian noise half of delta unless given, with Laplace noise it
    is delta itself. *Edge cases*: k equal to the number of candidates is refused, since there is no gap to test.
    """
    owner = "propose_test_release"
    relation = read_neighbours(owner, neighbours)
    check_choice(owner, "noise", noise, ("gaussian", "laplace"))
    budget, slack = check_budget(owner, epsilon, delta)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    most = histogram.counts.size - 1 if histogram.public else None
    k = check_integer(owner, "k", k, least=1, most=most, fix="There is no gap after the last candidate.")
    key = as_key(owner, rng).claim(owner)
    if noise == "laplace":
        if test_delta is not None:
            raise invalid(owner, "test_delta", "be left out with Laplace noise", got=test_delta, fix="It is delta.")
        scale, promise = quotient_up(relation.reach, budget), approximate_guarantee(budget, slack, **relation.terms())
        passed = run_laplace_test(BitStream(key), histogram.levels.gap_at(k), relation, scale=scale, test_delta=slack)
    else:
        share = check_test_delta(owner, test_delta, slack, 1)
        sigma = _least_sigma(owner, relation, epsilon=budget, delta=slack, test_delta=share)
        promise = gaussian_test_guarantee(relation, sigma=sigma, test_delta=share)
        passed = run_gaussian_test(BitStream(key), histogram.levels.gap_at(k), relation, sigma=sigma, test_delta=share)
    items = histogram.pick(histogram.top(k) if passed else np.empty(0, np.int64))
    promise = histogram.state(promise)
    return Selection(items=items, k=k, passed=passed, guarantee=promise, seeded=key.seeded)


def releasable_gap(
    *,
    epsilon: float,
    delta: float,
    neighbours: str,
    noise: str = "gaussian",
    failure: float = 1e-3,
    queries: int = 1,
) -> int:
    """Return a gap at which `propose_test_release` lets the set out with probability 1 - failure ([TK] Theorem 20).

    A test of a gap q fails with probability Pr[Z <= g + T - q]; the noise is symmetric, so q = g + T + m fails with Pr[Z >
    m - 1] <= failure where m - 1 is the noise's own offset for `failure`. `queries` such tests share the budget: Laplace
    tests by their epsilon and delta, Gaussian ones by their Renyi curves.

    The theorem prints 1 + (ln(1 / delta) + ln(1 / failure)) / epsilon for Laplace and four times the second term for
    Gaussian noise, whose factor comes from a loose calibration. With a calibration that is not, Gaussian noise needs not
    quite twice the gap for one query, and the smaller one from a few queries on.

    >>> [
    ...     releasable_gap(epsilon=0.5, delta=1e-6, neighbours="add_remove", noise=noise)
    ...     for noise in ("laplace", "gaussian")
    ... ]
    [40, 74]
    >>> many = {"epsilon": 0.5, "delta": 1e-6, "neighbours": "add_remove", "queries": 100}
    >>> releasable_gap(noise="gaussian", **many) < releasable_gap(noise="laplace", **many)
    True
    """
    owner = "releasable_gap"
    relation = read_neighbours(owner, neighbours)
    check_choice(owner, "noise", noise, ("gaussian", "laplace"))
    budget, slack = check_budget(owner, epsilon, delta)
    number = check_integer(owner, "queries", queries, least=1)
    if check_delta(owner, failure, name="failure") == 0:
        raise invalid(owner, "failure", "be > 0", got=failure, fix="No gap is let out for sure.")
    if noise == "laplace":
        each, share = _share_of_budget(budget, slack, number)
        rate = float(laplace_rate(quotient_up(relation.reach, each)))
        return relation.reach + laplace_offset(rate, share) + laplace_offset(rate, failure) + 1
    share = check_test_delta(owner, None, slack, number)
    sigma = _least_sigma(owner, relation, epsilon=budget, delta=slack, test_delta=share, queries=number)
    return relation.reach + gaussian_offset(sigma, share) + gaussian_offset(sigma, failure) + 1


@lru_cache(maxsize=256)
def _least_sigma(
    owner: str, relation: Relation, *, epsilon: float, delta: float, test_delta: float, queries: int = 1
) -> float:
    """Return the least sigma of that many Gaussian tests."""

    def promise(sigma: float) -> Guarantee:
        return gaussian_test_guarantee(relation, sigma=sigma, test_delta=test_delta).times(queries)

    return least_noise(owner, promise, epsilon=epsilon, delta=delta)


def gaussian_test_guarantee(relation: Relation, *, sigma: float, test_delta: float) -> Guarantee:
    """Return test_delta-approximate zCDP of g^2 / (2 sigma^2)."""
    root = quotient_up(relation.reach, sigma)
    rho = root * root / 2 * (1 + 2.0**-51)  # infinite where sigma is next to 0, which a power would refuse
    return Guarantee.zcdp(rho, slack=test_delta, **relation.terms())


def run_gaussian_test(bits: BitStream, gap: int, relation: Relation, *, sigma: float, test_delta: float) -> bool:
    """Return whether a set with this gap passes the test with Gaussian noise: max(g, gap) + Z - T > g."""
    offset = gaussian_offset(sigma, test_delta)
    draw = int(discrete_gaussian(bits, variance=variance_above(sigma**2), size=1)[0])
    return max(relation.reach, gap) + draw - offset > relation.reach


def run_laplace_test(bits: BitStream, gap: int, relation: Relation, *, scale: float, test_delta: float) -> bool:
    """Return whether a set with this gap passes the test with Laplace noise: gap + Z - T > g."""
    rate = laplace_rate(scale)
    draw = int(discrete_laplace(bits, rate=rate, size=1)[0])
    return gap + draw - laplace_offset(float(rate), test_delta) > relation.reach


def top_stable(
    counts: Any,
    *,
    k: int,
    epsilon: float,
    delta: float,
    neighbours: str,
    queries: int = 1,
    candidates: Sequence[Any] | None = None,
    rng: Any = None,
) -> Selection:
    """Return the j <= k leading items as a set, for the largest j found stable; `.k` is j, 0 where none is.

    The arguments are those of `stable_top_k`, with a public k. *Guarantee*: (epsilon, delta) of each of `queries`
    calls, as in the module's notes.
    """
    owner = "top_stable"
    relation = read_neighbours(owner, neighbours)
    budget, slack = check_budget(owner, epsilon, delta)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    k = check_integer(owner, "k", k, least=1, most=histogram.counts.size if histogram.public else None)
    number = check_integer(owner, "queries", queries, least=1)
    each, share = _share_of_budget(budget, slack, number)
    rate = laplace_rate(4 * relation.reach / each)
    key = as_key(owner, rng).claim(owner)
    bits = BitStream(key)
    most = min(k, histogram.counts.size - 1) if histogram.public else k
    gaps = np.zeros(most, np.int64)
    ranks, steep = histogram.levels.gaps(most)
    gaps[ranks - 1] = steep
    threshold = discrete_laplace(bits, rate=2 * rate, size=1) + relation.reach + sparse_offset(float(rate), k, share)
    above = np.flatnonzero(gaps[::-1] + discrete_laplace(bits, rate=rate, size=most) > threshold)
    found = most - int(above[0]) if above.size else 0
    promise = approximate_guarantee(each, share, **relation.terms())
    items = histogram.pick(histogram.top(found) if found else np.empty(0, np.int64))
    promise = histogram.state(promise)
    return Selection(items=items, k=found, passed=found > 0, guarantee=promise, seeded=key.seeded)


def sparse_offset(rate: float, ranks: int, chance: float) -> int:
    """Return the least T >= 0 at which the module's bound, `ranks` times, is at most `chance`; rate = epsilon / 4g."""
    a = math.exp(-rate)
    mean = math.expm1(-2 * rate) / -(1 + a * a) * (-1 / math.expm1(-3 * rate) - a / math.expm1(-rate))
    steps = (math.log(ranks / chance) + math.log(mean) - math.log1p(a)) / rate
    # One part in 10^9 covers the rounding of a dozen operations.
    return max(0, math.ceil(steps + abs(steps) * 1e-9) - 1)


@lru_cache(maxsize=256)
def _share_of_budget(epsilon: float, delta: float, queries: int) -> tuple[float, float]:
    """Return one query's epsilon and delta: all of them, or what composes within the budget, half of delta aside."""
    if queries == 1:
        return epsilon, delta
    share = delta / 2 / queries

    def promise(noise: float) -> Guarantee:
        return approximate_guarantee(1 / noise, share).times(queries)

    simple = epsilon / queries * (1 - 1e-12)
    return max(simple, 1 / least_noise("top_stable", promise, epsilon=epsilon, delta=delta)), share
