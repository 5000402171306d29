r"""Top k by the exponential mechanism: k rounds of noisy max without replacement, accounted as bounded range (EM-CDP).

>>> found = top_k_exponential([90, 88, 3, 2], k=2, epsilon=2.0, delta=1e-6, neighbours="add_remove", rng=1)
>>> sorted(found.items.tolist())
[0, 1]

References: McSherry & Talwar 2007; Durfee & Rogers 2019 (peeling is one-shot Gumbel noise; bounded range); Dong, Durfee
& Rogers 2020; Cesar & Rogers 2021 (zCDP epsilon^2 / 8 a round).

Design notes. Statement. Peeling draws, k times, one of the items left with probability proportional to exp(h_i / b).
Counts of neighbours change by a range of at most g, so each round has bounded range g / b, and k rounds compose.
One-shot adds one Gumbel(b) to every count and lists the k largest in order: the same law. (Given that i has the largest
noisy count, the others' noise is conditioned only on lying below it, and the order among them is independent of where.)
The order of the items is part of what is released and paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._loss.rounding import quotient_up
from labeldp._random import BitStream, as_key
from labeldp._samplers import uniform_below
from labeldp._validate import check_choice, check_integer
from labeldp.guarantee import Guarantee
from labeldp.selection._budget import check_budget, least_noise
from labeldp.selection._levels import find_levels
from labeldp.selection._noise import gumbel
from labeldp.selection._relation import FLOATING_POINT, Relation, read_neighbours
from labeldp.selection._result import Selection
from labeldp.selection.maximum import public_histogram

Integers = npt.NDArray[np.int64]


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

    *Guarantee*: k rounds of bounded range; with delta = 0 pure epsilon. `method`: "one_shot" or "peeling", the same law
    by different work (a draw per candidate, or per round and distinct count).
    """
    owner = "top_k_exponential"
    check_choice(owner, "method", method, ("one_shot", "peeling"))
    histogram = public_histogram(owner, counts, candidates)
    k = check_integer(owner, "k", k, least=1, most=histogram.counts.size)
    scale = exponential_scale(k=k, epsilon=epsilon, delta=delta, neighbours=neighbours, queries=queries)
    key = as_key(owner, rng)
    draw = one_shot if method == "one_shot" else peel
    items = histogram.pick(draw(BitStream(key), histogram.counts, k, scale=scale))
    promise = exponential_guarantee(k=k, scale=scale, neighbours=neighbours)
    return Selection(items=items, k=k, passed=True, guarantee=promise, seeded=key.seeded)


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
    single = Guarantee.bounded_range(quotient_up(relation.reach, scale), **relation.terms(FLOATING_POINT))
    return single.times(rounds)


def one_shot(bits: BitStream, counts: Integers, k: int, *, scale: float) -> Integers:
    """Return the places of the k largest noisy counts, largest first."""
    scores = counts / scale + gumbel(bits, counts.size)
    lead = np.argpartition(-scores, k - 1)[:k] if k < counts.size else np.arange(counts.size)
    ordered: Integers = lead[np.argsort(-scores[lead])]
    return ordered


def peel(bits: BitStream, counts: Integers, k: int, *, scale: float) -> Integers:
    """Return the places of k items drawn one by one; equal counts share a draw (see `maximum`)."""
    levels = find_levels(counts)
    left = np.diff(levels.ends, prepend=0)
    members: dict[int, Integers] = {}
    chosen = np.empty(k, np.int64)
    for turn in range(k):
        with np.errstate(divide="ignore"):  # an empty level has weight 0
            scores = levels.values / scale + np.log(left) + gumbel(bits, left.size)
        level = int(np.argmax(scores))
        if level not in members:
            members[level] = np.flatnonzero(counts == levels.values[level])
        place = int(uniform_below(bits, np.array([int(left[level])]))[0])
        pool = members[level]
        left[level] -= 1
        chosen[turn] = pool[place]
        pool[place] = pool[left[level]]
    return chosen
