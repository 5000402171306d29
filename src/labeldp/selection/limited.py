r"""Limited Domain: ordered top k over a domain that is not known, by noise on the leading items and on a bottom line.

>>> votes = {"ham": 900, "egg": 800, "tea": 2}
>>> limited_domain(votes, k=2, k_bar=5, epsilon=2.0, delta=1e-6, neighbours="add_remove", rng=1).items.tolist()
['ham', 'egg']

Reference: Durfee & Rogers, "Practical Differentially Private Top-k Selection with Pay-what-you-get Composition" (2019).

Design notes. Statement. Let A be the items of positive count among the k_bar largest, b the Gumbel scale, g the
reach of a count, T = b log(k_bar / delta_t) and h_bottom = h_(k_bar + 1) + g + T. Add Gumbel(b) to the counts of A and
to h_bottom, and list the items above the noisy bottom, largest first, at most k. This is delta_t-approximately RDP with

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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp._loss.rounding import quotient_up
from labeldp._random import BitStream, as_key
from labeldp._validate import check_integer
from labeldp.guarantee import Guarantee
from labeldp.selection._budget import check_budget, check_test_delta, least_noise
from labeldp.selection._noise import gumbel
from labeldp.selection._relation import FLOATING_POINT, read_neighbours
from labeldp.selection._result import Selection
from labeldp.selection.histogram import Histogram
from labeldp.selection.maximum import ORDERS

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
    """Return at most k items in order; `.passed` says whether there are k. `k_bar` is public, 10 k unless given."""
    owner = "limited_domain"
    relation = read_neighbours(owner, neighbours)
    budget, slack = check_budget(owner, epsilon, delta)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    k = check_integer(owner, "k", k, least=1, most=histogram.counts.size if histogram.public else None)
    spread = check_integer(owner, "k_bar", DEFAULT_SPREAD * k if k_bar is None else k_bar, least=k)
    number = check_integer(owner, "queries", queries, least=1)
    share = check_test_delta(owner, test_delta, slack, number)
    scale = _solved(k=k, epsilon=budget, delta=slack, neighbours=neighbours, test_delta=share, queries=number)
    key = as_key(owner, rng)
    bits = BitStream(key)
    lead = histogram.top(spread)
    lead = lead[histogram.counts[lead] > 0]
    bottom = histogram.levels.value_at(spread + 1) + relation.reach + bottom_offset(scale, spread, share)
    noise = gumbel(bits, lead.size + 1)
    scores = histogram.counts[lead] / scale + noise[:-1]
    above = np.flatnonzero(scores > bottom / scale + noise[-1])
    chosen = above[np.argsort(-scores[above])][:k]
    promise = limited_domain_guarantee(k=k, scale=scale, neighbours=neighbours, test_delta=share)
    items = histogram.pick(lead[chosen])
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
    return Guarantee.rdp(ORDERS, values.tolist(), slack=test_delta, **relation.terms(FLOATING_POINT))


@lru_cache(maxsize=256)
def _solved(*, k: int, epsilon: float, delta: float, neighbours: str, test_delta: float, queries: int) -> float:
    """Return the least Gumbel scale for checked arguments."""

    def promise(scale: float) -> Guarantee:
        one = limited_domain_guarantee(k=k, scale=scale, neighbours=neighbours, test_delta=test_delta)
        return one.times(queries)

    return least_noise("limited_domain", promise, epsilon=epsilon, delta=delta)
