r"""Propose-test-release: name the k leading items exactly, if a private test finds that no user could change them.

>>> found = propose_test_release([90, 88, 3, 2], k=2, epsilon=1.0, delta=1e-6, neighbours="add_remove", rng=1)
>>> found.passed, found.items.tolist()
(True, [0, 1])

References: [TK] Algorithms 4 and 5, Lemma 18, Corollary 19; Dwork & Lei 2009; Thakurta & Smith 2013.

Design notes. Statement. Let q = h_(k) - h_(k+1), g its reach, Z discrete noise and T a whole number with
Pr[Z > T] <= delta_t. The set is released iff

    gaussian: max(g, q) + Z - T > g            laplace: q + Z - T > g.

- If neighbours have the same set, the output is one bit, computed from a number that moves by at most g:
  gaussian RDP(a) = a g^2 / (2 sigma^2); laplace with scale g / epsilon: pure epsilon.
- If their sets differ, q <= g for both (see `_relation`). Each then passes with probability at most Pr[Z > T] <=
  delta_t; set that event aside, and both answer "no" always.

So gaussian is delta_t-approximately (a, a g^2 / (2 sigma^2))-RDP, and laplace is (epsilon, delta_t)-DP. [TK] has g = 1
throughout, which is add_remove: under replace its test passes too often by Pr[Z > T - 1] / Pr[Z > T]. Its sqrt(2
log(1 / delta_t)) sigma in place of T is right but larger than need be.

The noise is discrete, so that on whole counts the test is exact; T is the continuous threshold rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp._loss.rounding import quotient_up
from labeldp._random import BitStream, as_key
from labeldp._samplers import discrete_gaussian, discrete_laplace, variance_above
from labeldp._validate import check_choice, check_integer
from labeldp.errors import invalid
from labeldp.guarantee import Guarantee
from labeldp.selection._budget import approximate, check_budget, check_test_delta, least_noise
from labeldp.selection._noise import gaussian_offset, laplace_offset, laplace_rate
from labeldp.selection._relation import Relation, read_neighbours
from labeldp.selection._result import Selection
from labeldp.selection.histogram import Histogram


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

    `test_delta`: the probability of a false pass; with Gaussian noise half of delta unless given, with Laplace noise it
    is delta itself. *Edge cases*: k equal to the number of candidates is refused, since there is no gap to test.
    """
    owner = "propose_test_release"
    relation = read_neighbours(owner, neighbours)
    check_choice(owner, "noise", noise, ("gaussian", "laplace"))
    budget, slack = check_budget(owner, epsilon, delta)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    most = histogram.counts.size - 1 if histogram.public else None
    k = check_integer(owner, "k", k, least=1, most=most, fix="There is no gap after the last candidate.")
    key = as_key(owner, rng)
    if noise == "laplace":
        if test_delta is not None:
            raise invalid(owner, "test_delta", "be left out with Laplace noise", got=test_delta, fix="It is delta.")
        scale, promise = quotient_up(relation.reach, budget), approximate(budget, slack, **relation.terms())
        passed = laplace_test(BitStream(key), histogram.levels.gap_at(k), relation, scale=scale, test_delta=slack)
    else:
        share = check_test_delta(owner, test_delta, slack, 1)
        sigma = least_sigma(owner, relation, epsilon=budget, delta=slack, test_delta=share)
        promise = gaussian_test_guarantee(relation, sigma=sigma, test_delta=share)
        passed = gaussian_test(BitStream(key), histogram.levels.gap_at(k), relation, sigma=sigma, test_delta=share)
    items = histogram.pick(histogram.top(k) if passed else np.empty(0, np.int64))
    return Selection(items=items, k=k, passed=passed, guarantee=promise, seeded=key.seeded)


@lru_cache(maxsize=256)
def least_sigma(owner: str, relation: Relation, *, epsilon: float, delta: float, test_delta: float) -> float:
    """Return the least sigma of one Gaussian test."""

    def promise(sigma: float) -> Guarantee:
        return gaussian_test_guarantee(relation, sigma=sigma, test_delta=test_delta)

    return least_noise(owner, promise, epsilon=epsilon, delta=delta)


def gaussian_test_guarantee(relation: Relation, *, sigma: float, test_delta: float) -> Guarantee:
    """Return test_delta-approximate zCDP of g^2 / (2 sigma^2)."""
    rho = quotient_up(relation.reach, sigma) ** 2 / 2 * (1 + 2.0**-51)
    return Guarantee.zcdp(rho, slack=test_delta, **relation.terms())


def gaussian_test(bits: BitStream, gap: int, relation: Relation, *, sigma: float, test_delta: float) -> bool:
    """Toss the test's coin with Gaussian noise."""
    offset = gaussian_offset(sigma, test_delta)
    draw = int(discrete_gaussian(bits, variance=variance_above(sigma**2), size=1)[0])
    return max(relation.reach, gap) + draw - offset > relation.reach


def laplace_test(bits: BitStream, gap: int, relation: Relation, *, scale: float, test_delta: float) -> bool:
    """Toss the test's coin with Laplace noise."""
    rate = laplace_rate(scale)
    draw = int(discrete_laplace(bits, rate=rate, size=1)[0])
    return gap + draw - laplace_offset(float(rate), test_delta) > relation.reach
