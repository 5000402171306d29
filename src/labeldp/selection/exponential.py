r"""Items in order, by the exponential mechanism: top k of a public list, or of a domain that is not known.

>>> found = top_k_exponential([90, 88, 3, 2], k=2, epsilon=2.0, delta=1e-6, neighbours="add_remove", rng=1)
>>> sorted(found.items.tolist())
[0, 1]
>>> votes = {"ham": 900, "egg": 800, "tea": 2}
>>> limited_domain(votes, k=2, k_bar=5, epsilon=2.0, delta=1e-6, neighbours="add_remove", rng=1).items.tolist()
['ham', 'egg']

**Top k by peeling**: k rounds of noisy max without replacement. Peeling draws, k times, one of the items left with
probability proportional to exp(h_i / b). Counts of neighbours change by a range of at most g, so each round has bounded
range g / b (zCDP (g / b)^2 / 8), and k rounds compose. One-shot adds one Gumbel(b) to every count and lists the k
largest in order: the same law. (Given that i has the largest noisy count, the others' noise is conditioned only on
lying below it, and the order among them is independent of where.) The order of the items is part of what is released
and paid for.

**Limited domain**: noise on the leading items and on a bottom line. Let A be the items of positive count among the
k_bar largest, b the Gumbel scale, g the reach of a count, T = b log(k_bar / delta_t) and h_bottom = h_(k_bar + 1) + g +
T. Add Gumbel(b) to the counts of A and to h_bottom, and list the items above the noisy bottom, largest first, at most
k. This is delta_t-approximately RDP with

    D_a = k BR_a(g / b) + k log(1 + delta_t) - log(1 - delta_t) a / (a - 1),

BR_a the curve of bounded range. Proof (ours; the paper states (epsilon, delta) by composition theorems). Let A, A'
belong to neighbours. An item in A but not in A' has h_i <= h'_i + 1 and h'_i <= h'_(k_bar+1) <= h_(k_bar+1) + 1 where
at most one of the two steps is needed under add_remove: h_i <= h_(k_bar+1) + g, so h_i <= h_bottom - T; the same the
other way round. At most k_bar items of A are such; call them bad, B the sum of their weights e^(h_i / b) and w that of
the bottom: B <= delta_t w. The noisy order is a race: the next one is drawn in proportion to its weight. So a bad one
is listed with probability at most B / w <= delta_t: this event is set aside. Let N be the same race among the common
items and the bottom. An outcome o without bad items has at most k draws, each with denominator W + B in place of N's
W >= w, hence N(o) (1 + delta_t)^-k <= M(o) <= N(o). With P = M given no bad item, P(o) <= N(o) / (1 - delta_t) and
P'(o) >= N'(o) (1 + delta_t)^-k, so D_a(P, P') exceeds D_a(N, N') by at most the two small terms. N and N' are k rounds
of an exponential mechanism over one list, whose scores (bottom included) change by a range of at most g.

References: McSherry & Talwar 2007; Durfee & Rogers, "Practical Differentially Private Top-k Selection with
Pay-what-you-get Composition" (2019; peeling is one-shot Gumbel noise, bounded range, the limited domain); Dong, Durfee
& Rogers 2020; Cesar & Rogers 2021 (zCDP epsilon^2 / 8 a round).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp.arrays import Int64s
from labeldp.guarantee import Guarantee
from labeldp.loss.rounding import quotient_up
from labeldp.random import BitStream, as_key
from labeldp.samplers import uniform_below
from labeldp.selection.base import (
    Relation,
    Selection,
    check_budget,
    check_test_delta,
    find_levels,
    least_noise,
    read_neighbours,
)
from labeldp.selection.histogram import Histogram
from labeldp.selection.maximum import ORDERS, read_public_histogram
from labeldp.selection.race import draw_order
from labeldp.validate import check_choice, check_integer


def top_k_exponential(
    counts: Any,
    *,
    k: int,
    epsilon: float,
    delta: float = 0.0,
    neighbours: str,
    method: str = "one_shot",
    queries: int = 1,
    candidates: Sequence[Any] | None = None,
    rng: Any = None,
) -> Selection:
    """Return k items in the order drawn; `queries` such calls together stay within the budget.

    `counts`, `epsilon`, `delta`, `neighbours`, `candidates` and `rng` are as for `labeldp.selection.stable_top_k`.
    `method`: "one_shot" or "peeling", the same law by different work (a draw per candidate, or per round and distinct
    count). *Guarantee*: k rounds of bounded range; with delta = 0 pure epsilon.
    """
    owner = "top_k_exponential"
    check_choice(owner, "method", method, ("one_shot", "peeling"))
    histogram = read_public_histogram(owner, counts, candidates)
    k = check_integer(owner, "k", k, least=1, most=histogram.counts.size)
    scale = exponential_scale(k=k, epsilon=epsilon, delta=delta, neighbours=neighbours, queries=queries)
    key = as_key(owner, rng).claim(owner)
    draw = draw_one_shot if method == "one_shot" else draw_by_peeling
    items = histogram.pick(draw(BitStream(key), histogram.counts, k, scale=scale))
    promise = exponential_guarantee(k=k, scale=scale, neighbours=neighbours)
    return Selection(items=items, k=k, passed=True, guarantee=histogram.state(promise), seeded=key.seeded)


def exponential_scale(*, k: int, epsilon: float, neighbours: str, delta: float = 0.0, queries: int = 1) -> float:
    """Return the Gumbel scale with which `queries` top-k calls meet the budget: budget in, noise out."""
    owner = "exponential_scale"
    relation = read_neighbours(owner, neighbours)
    budget, slack = check_budget(owner, epsilon, delta, least_delta=False)
    rounds = check_integer(owner, "k", k, least=1) * check_integer(owner, "queries", queries, least=1)
    return _least_scale(relation, rounds=rounds, epsilon=budget, delta=slack)


@lru_cache(maxsize=256)
def _least_scale(relation: Relation, *, rounds: int, epsilon: float, delta: float) -> float:
    """Return the least scale for checked arguments: the better of the pure sum and the Renyi curves."""
    # Each of the rounds costs a float rounded up; a few ulps more noise keep their exact sum within the budget.
    pure = quotient_up(float(relation.reach * rounds), epsilon) * (1 + 2.0**-50)

    def promise(scale: float) -> Guarantee:
        return rounds_guarantee(relation, scale=scale, rounds=rounds)

    if delta == 0:
        return pure
    return min(pure, least_noise("exponential_scale", promise, epsilon=epsilon, delta=delta))


def exponential_guarantee(*, k: int, scale: float, neighbours: str, queries: int = 1) -> Guarantee:
    """Return what `queries` top-k calls at this Gumbel scale promise: noise in, budget out."""
    relation = read_neighbours("exponential_guarantee", neighbours)
    return rounds_guarantee(relation, scale=scale, rounds=k * queries)


def rounds_guarantee(relation: Relation, *, scale: float, rounds: int) -> Guarantee:
    """Return bounded range g / scale, `rounds` times."""
    single = Guarantee.bounded_range(quotient_up(relation.reach, scale), **relation.terms())
    return single.times(rounds)


def draw_one_shot(bits: BitStream, counts: Int64s, k: int, *, scale: float) -> Int64s:
    """Return the places of the k largest noisy counts, largest first."""
    return draw_order(bits, counts, k=k, scale=scale)


def draw_by_peeling(bits: BitStream, counts: Int64s, k: int, *, scale: float) -> Int64s:
    """Return the places of k items drawn one by one; equal counts share a draw (see `labeldp.selection.maximum`)."""
    levels = find_levels(counts)
    left = np.diff(levels.ends, prepend=0)
    members: dict[int, Int64s] = {}
    chosen = np.empty(k, np.int64)
    for turn in range(k):
        stocked = np.flatnonzero(left)
        won = draw_order(bits, levels.values[stocked], k=1, scale=scale, sizes=left[stocked])
        level = int(stocked[won[0]])
        if level not in members:
            members[level] = np.flatnonzero(counts == levels.values[level])
        place = int(uniform_below(bits, np.array([int(left[level])]))[0])
        pool = members[level]
        left[level] -= 1
        chosen[turn] = pool[place]
        pool[place] = pool[left[level]]
    return chosen


#: How many leading items take part where the caller does not say: ten times as many as are wanted.
DEFAULT_SPREAD = 10


def limited_domain(
    counts: Any,
    *,
    k: int,
    epsilon: float,
    delta: float,
    neighbours: str,
    k_bar: int | None = None,
    test_delta: float | None = None,
    queries: int = 1,
    candidates: Sequence[Any] | None = None,
    rng: Any = None,
) -> Selection:
    """Return at most k items in order, of a domain that need not be known; `.passed` says whether there are k.

    The arguments are those of `labeldp.selection.stable_top_k`, and `k_bar`: how many of the leading items may be named
    at all, public, 10 k unless given. *Guarantee*: the approximate Renyi curve of the module's notes.
    """
    owner = "limited_domain"
    relation = read_neighbours(owner, neighbours)
    budget, slack = check_budget(owner, epsilon, delta)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    k = check_integer(owner, "k", k, least=1, most=histogram.counts.size if histogram.public else None)
    spread = check_integer(owner, "k_bar", DEFAULT_SPREAD * k if k_bar is None else k_bar, least=k)
    number = check_integer(owner, "queries", queries, least=1)
    share = check_test_delta(owner, test_delta, slack, number)
    scale = limited_domain_scale(
        k=k, epsilon=budget, delta=slack, neighbours=neighbours, test_delta=share, queries=number
    )
    key = as_key(owner, rng).claim(owner)
    bits = BitStream(key)
    lead = histogram.top(spread)
    lead = lead[histogram.counts[lead] > 0]
    # The bottom line is the last runner: its whole part is private, its offset public, and no float sum rounds them.
    line = histogram.levels.value_at(spread + 1) + relation.reach
    extra = np.append(np.zeros(lead.size), bottom_offset(scale, spread, share))
    order = draw_order(bits, np.append(histogram.counts[lead], line), k=min(k, lead.size + 1), scale=scale, extra=extra)
    stop = np.flatnonzero(order == lead.size)
    chosen = order[: stop[0]] if stop.size else order
    promise = limited_domain_guarantee(k=k, scale=scale, neighbours=neighbours, test_delta=share)
    items = histogram.pick(lead[chosen])
    promise = histogram.state(promise)
    return Selection(items=items, k=k, passed=chosen.size == k, guarantee=promise, seeded=key.seeded)


def bottom_offset(scale: float, k_bar: int, test_delta: float) -> float:
    """Return T = scale log(k_bar / test_delta), one part in 10^12 above it."""
    return scale * math.log(k_bar / test_delta) * (1 + 1e-12)


def limited_domain_guarantee(*, k: int, scale: float, neighbours: str, test_delta: float) -> Guarantee:
    """Return the approximate Renyi curve of the module's notes: noise in, budget out."""
    relation = read_neighbours("limited_domain_guarantee", neighbours)
    orders = np.array(ORDERS)
    rounds = Guarantee.bounded_range(quotient_up(relation.reach, scale)).loss.rdp(orders) * k
    extra = k * math.log1p(test_delta) - math.log1p(-test_delta) * orders / (orders - 1)
    # One part in 10^14 covers the rounding of these operations.
    values = (rounds + extra) * (1 + 1e-14)
    return Guarantee.rdp(ORDERS, values.tolist(), slack=test_delta, **relation.terms())


@lru_cache(maxsize=256)
def limited_domain_scale(
    *, k: int, epsilon: float, delta: float, neighbours: str, test_delta: float, queries: int
) -> float:
    """Return the least Gumbel scale for checked arguments."""

    def promise(scale: float) -> Guarantee:
        one = limited_domain_guarantee(k=k, scale=scale, neighbours=neighbours, test_delta=test_delta)
        return one.times(queries)

    return least_noise("limited_domain", promise, epsilon=epsilon, delta=delta)
