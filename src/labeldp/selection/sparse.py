r"""Top Stable: the sparse vector technique finds a rank with a large gap, and its leading items are released as a set.

>>> top_stable([900, 800, 3, 2], k=3, epsilon=1.0, delta=1e-6, neighbours="add_remove", rng=1).items.tolist()
[0, 1]

References: Carvalho, Wang, Gondara & Miao, "Differentially Private Top-k Selection via Stability on Unknown Domain"
(2020); Dwork & Roth 2014 (AboveThreshold); Lyu, Su & Li 2017 (its many broken variants).

Design notes. Ours follows the idea, a sparse vector test of the gaps, and not the paper's constants. Ranks are visited
k, k - 1, ..., 1, so that the longest stable list wins. With q_j the gap at rank j, g its reach, R discrete Laplace of
scale 2 g / epsilon and Z_j of scale 4 g / epsilon, it stops at the first j with q_j + Z_j > g + T + R and releases
the j leading items.

Statement: (epsilon, delta_t)-DP. Where it stops is epsilon-DP: fix the noise of the ranks visited before j; moving R by
g and Z_j by 2 g turns a run of one data set that stops at j into such a run of its neighbour, at a price of
g epsilon / (2 g) + 2 g epsilon / (4 g) = epsilon. The j leading items of neighbours differ only if q_j <= g for both;
then it stops at j only if Z_j - R > T. With a = e^(-epsilon / (4 g)) the scale of R gives it a^2, and for all
integers t Pr[Z > t] <= a^(t+1) / (1 + a), so

    Pr[Z - R > T] <= a^(T+1) / (1 + a) E[a^R],   E[a^R] = (1 - a^2) / (1 + a^2) (1 / (1 - a^3) + a / (1 - a)).

T is the least whole number at which k times this is at most delta_t. All noise is discrete and exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp._random import BitStream, as_key
from labeldp._samplers import discrete_laplace
from labeldp._validate import check_integer
from labeldp.guarantee import Guarantee
from labeldp.selection._budget import approximate, check_budget, least_noise
from labeldp.selection._noise import laplace_rate
from labeldp.selection._relation import read_neighbours
from labeldp.selection._result import Selection
from labeldp.selection.histogram import Histogram


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
    """Return the j <= k leading items as a set, for the largest j found stable; `.k` is j, 0 where none is."""
    owner = "top_stable"
    relation = read_neighbours(owner, neighbours)
    budget, slack = check_budget(owner, epsilon, delta)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    k = check_integer(owner, "k", k, least=1, most=histogram.counts.size if histogram.public else None)
    number = check_integer(owner, "queries", queries, least=1)
    each, share = _share(budget, slack, number)
    rate = laplace_rate(4 * relation.reach / each)
    key = as_key(owner, rng)
    bits = BitStream(key)
    most = min(k, histogram.counts.size - 1) if histogram.public else k
    gaps = np.zeros(most, np.int64)
    ranks, steep = histogram.levels.gaps(most)
    gaps[ranks - 1] = steep
    threshold = discrete_laplace(bits, rate=2 * rate, size=1) + relation.reach + sparse_offset(float(rate), k, share)
    above = np.flatnonzero(gaps[::-1] + discrete_laplace(bits, rate=rate, size=most) > threshold)
    found = most - int(above[0]) if above.size else 0
    promise = approximate(each, share, **relation.terms())
    items = histogram.pick(histogram.top(found) if found else np.empty(0, np.int64))
    return Selection(items=items, k=found, passed=found > 0, guarantee=promise, seeded=key.seeded)


def sparse_offset(rate: float, ranks: int, chance: float) -> int:
    """Return the least T >= 0 at which the module's bound, `ranks` times, is at most `chance`; rate = epsilon / 4g."""
    a = math.exp(-rate)
    mean = math.expm1(-2 * rate) / -(1 + a * a) * (-1 / math.expm1(-3 * rate) - a / math.expm1(-rate))
    steps = (math.log(ranks / chance) + math.log(mean) - math.log1p(a)) / rate
    # One part in 10^9 covers the rounding of a dozen operations.
    return max(0, math.ceil(steps + abs(steps) * 1e-9) - 1)


@lru_cache(maxsize=256)
def _share(epsilon: float, delta: float, queries: int) -> tuple[float, float]:
    """Return one query's epsilon and delta: all of them, or what composes within the budget, half of delta aside."""
    if queries == 1:
        return epsilon, delta
    share = delta / 2 / queries

    def promise(noise: float) -> Guarantee:
        return approximate(1 / noise, share).times(queries)

    simple = epsilon / queries * (1 - 1e-12)
    return max(simple, 1 / least_noise("top_stable", promise, epsilon=epsilon, delta=delta)), share
