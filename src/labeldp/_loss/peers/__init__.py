r"""The exact privacy profile of the peer-to-peer mechanism, rounded up.

>>> profile = peer_profile(n=100, alpha=0.2, theta=1.0)
>>> profile.epsilon(1e-5) < profile.epsilon(0.0)
True

Each user of a cluster of n flips her label with probability alpha, then reports the noisy label of a uniformly chosen
user of the cluster, and takes part with probability theta. The learner sees who takes part and what they report. Given
the number m of participants, the reports are exchangeable, so their sum is sufficient: see `_laws` for its law.

    delta(epsilon) = max over n1 and both directions of
                     sum over m of Pr[Bin(n, theta) = m] * hockey-stick_epsilon(law(n1, m), law(n1 + 1, m)).

*Tails.* The laws of X for n1 and n1 + 1 differ in one Bernoulli variable added to a log-concave sum, so their ratio is
monotone; the binomial kernel is totally positive, so the ratio of the laws of the reports is monotone too, and every
hockey-stick is a sum over a tail. *Symmetry.* Exchanging the two classes maps n1 to n - n1, so half of the n1 suffice.
*Participants.* A report dropped at random turns m + 1 reports into m, so delta does not fall as m grows: a value of m
may stand for all below it, back to the grid's last one. What lies above the grid (less than 1e-17) counts as delta.

*Pure end.* All that anyone sees is made from labels that passed randomized response, so delta = 0 at
epsilon_0 = log((1 - alpha) / alpha), by proof and not by floats. Below `FLOOR` only this end is used.

References: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022 (Algorithm 2; their Lemma 9 bounds the same quantity); Balle,
Bell, Gascon, Nissim 2019 (the privacy blanket); Feldman, McMillan, Talwar 2021 (hiding among the clones).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from labeldp._loss.peers import _laws as laws
from labeldp._loss.peers._checks import FLOOR, check_alpha, check_floor, check_theta
from labeldp._loss.profile import Profile
from labeldp._loss.rounding import UNIT, Array, quotient_up
from labeldp._threads import over_spans

__all__ = [
    "FLOOR",
    "LARGEST_EXACT",
    "blanket_deltas",
    "check_alpha",
    "check_floor",
    "check_theta",
    "local_epsilon",
    "peer_deltas",
    "peer_profile",
    "shuffled_profile",
]

#: Values of m that stand for all; the bound is within 1.5 times the full sum where the tests look (tests/accounting/test_peers.py).
GRID = 17
#: The chance of more participants than the grid covers, which is added to delta: far below `FLOOR`.
BEYOND = 1e-17
#: Epsilons at which the profile is computed, and how many of them it keeps.
KNOTS = 1024
KEPT = 200
#: The largest cluster whose exact profile is computed: work grows with the cube of n.
LARGEST_EXACT = 4000


def local_epsilon(alpha: float) -> float:
    """Return log((1 - alpha) / alpha), rounded up: what one flipped label reveals to whoever sees it."""
    return 0.0 if alpha == 0.5 else math.log(quotient_up(1.0 - alpha, alpha)) * (1 + 8 * UNIT)


def peer_deltas(epsilons: Array, *, n: int, alpha: float, theta: float, grid: int = GRID) -> Array:
    """Return an upper bound on delta at each epsilon (>= 0), exact but for rounding and the grid over m."""
    order = np.argsort(-epsilons)
    factors = np.exp(epsilons[order]) * (1 - 4 * UNIT)
    factorials = laws.log_factorials(n)
    pairs = (n + 1) // 2
    sums = laws.noisy_sums(n, alpha, rows=pairs + 1, factorials=factorials)
    total = np.zeros((pairs, 2, len(epsilons)))
    slip = 2 * laws.relative_error(n, alpha)
    sizes, weights, beyond = participants(n, theta, grid, factorials)
    for m, weight in zip(sizes, weights, strict=True):
        table = laws.report_table(n, m, factorials)
        over_spans(_adder(sums, table, total, factors=factors, weight=weight, slip=slip), pairs, step=laws.ROWS)
    answer = np.empty(len(epsilons))
    answer[order] = np.minimum(1.0, total.max(axis=(0, 1)) * (1 + (grid + 8) * UNIT) + beyond + n * laws.LEAST)
    return answer


def _adder(
    sums: Array, table: Array, total: Array, *, factors: Array, weight: float, slip: float
) -> Callable[[int, int], None]:
    """Return the work on a span of neighbouring pairs: their laws of reports, and the profiles of those."""
    from labeldp._loss.peers import _kernels as kernels

    def work(low: int, high: int) -> None:
        rows = sums[low : high + 1]
        first, last = laws.window(rows)
        # Reports rise with x: the first row of the table has the lowest of them, the last row the highest.
        low_k, high_k = np.flatnonzero(table[first])[0], np.flatnonzero(table[last - 1])[-1] + 1
        part = np.ascontiguousarray(table[first:last, low_k:high_k])
        reports = np.zeros((len(rows), part.shape[1]))
        kernels.multiply(np.ascontiguousarray(rows[:, first:last]), part, reports)
        kernels.add_profiles(reports, factors, weight, slip, laws.LEAST, total[low:high])

    return work


def participants(n: int, theta: float, grid: int, factorials: Array) -> tuple[list[int], list[float], float]:
    """Return values of m, the chance that each stands for (raised), and the chance of more than the last."""
    if theta == 1.0:
        return [n], [1.0], 0.0
    chance = laws.binomial(n, theta, factorials) * (1 + laws.relative_error(n, min(theta, 1 - theta)))
    above = np.append(np.cumsum(chance[::-1])[::-1][1:], 0.0)
    last = int(np.argmax(above <= BEYOND))
    spread = math.sqrt(n * theta * (1 - theta))
    first = min(max(0, math.floor(n * theta - 1.5 * spread)), last)
    sizes = sorted({round(m) for m in np.linspace(first, last, grid)})
    edges = [-1, *sizes]
    weights = [
        float(chance[low + 1 : high + 1].sum()) * (1 + n * UNIT) for low, high in zip(edges, sizes, strict=False)
    ]
    kept = [(m, w) for m, w in zip(sizes, weights, strict=True) if m > 0]
    return [m for m, _ in kept], [w for _, w in kept], float(above[last])


def blanket_deltas(epsilons: Array, *, n: int, alpha: float, grid: int = 65) -> Array:
    """Return a bound on delta of n labels flipped with probability alpha and shuffled, for any n.

    A flip with probability alpha is a fair coin with probability 2 alpha and the truth otherwise. Whoever knows the
    other labels, and is told which of them tossed coins, is left with A + Bern(1 - alpha) against A + Bern(alpha),
    A ~ Bin(C, 1/2), C ~ Bin(n - 1, 2 alpha): this bounds every n1. One more coin is post-processing, so a value of C
    may stand for those above it.
    """
    from labeldp._loss.peers import _kernels as kernels

    order = np.argsort(-epsilons)
    factors = np.exp(epsilons[order]) * (1 - 4 * UNIT)
    factorials = laws.log_factorials(n)
    chance = laws.binomial(n - 1, min(1.0, 2 * alpha), factorials) * (1 + laws.relative_error(n, alpha))
    under = np.concatenate([[0.0], np.cumsum(chance)])  # under[c] = Pr[C < c]
    first = int(np.flatnonzero(under <= BEYOND)[-1])
    top = int(np.argmax(under >= under[-1] * 0.95))
    coins = sorted({round(c) for c in np.linspace(first, max(first, top - 1), grid)})
    total = np.zeros((1, 2, len(epsilons)))
    for low, high in zip(coins, [*coins[1:], n], strict=True):
        fair = np.concatenate([[0.0], laws.binomial(low, 0.5, factorials), [0.0]])
        pair = np.stack([(1 - alpha) * fair[1:] + alpha * fair[:-1], alpha * fair[1:] + (1 - alpha) * fair[:-1]])
        weight = float(chance[low:high].sum()) * (1 + n * UNIT)
        kernels.add_profiles(pair, factors, weight, 2 * laws.relative_error(n, alpha), laws.LEAST, total)
    answer = np.empty(len(epsilons))
    answer[order] = np.minimum(1.0, total.max(axis=(0, 1)) * (1 + (grid + 8) * UNIT) + under[first] + n * laws.LEAST)
    return answer


@lru_cache(maxsize=64)
def peer_profile(*, n: int, alpha: float, theta: float) -> Profile:
    """Return the profile of one cluster of n users: exact up to `LARGEST_EXACT`, beyond it the shuffled bound."""
    if n > LARGEST_EXACT:
        return shuffled_profile(n=n, alpha=alpha)
    worst = local_epsilon(alpha)
    epsilons = _knots(worst)
    return thinned(epsilons, peer_deltas(epsilons, n=n, alpha=alpha, theta=theta), worst)


@lru_cache(maxsize=64)
def shuffled_profile(*, n: int, alpha: float) -> Profile:
    """Return a bound for n flipped labels that are shuffled: the peers' reports are made from those, whatever theta."""
    worst = local_epsilon(alpha)
    epsilons = _knots(worst)
    return thinned(epsilons, blanket_deltas(epsilons, n=n, alpha=alpha), worst)


def _knots(worst: float) -> Array:
    """Return epsilons from 0 to below the pure end, denser where large clusters end."""
    answer: Array = worst * (np.arange(KNOTS) / KNOTS) ** 2
    return answer if worst > 0 else np.zeros(1)


def thinned(epsilons: Array, deltas: Array, worst: float) -> Profile:
    """Return a profile of about `KEPT` knots down to `FLOOR`, ended by the pure (worst, 0).

    Knots lie evenly in sqrt(log 1 / delta), nearly linear in epsilon for a Gaussian tail: between two of them a line
    in e^epsilon is above the truth by less than a percent of delta.
    """
    if worst == 0.0:
        return Profile(epsilons=(0.0,), deltas=(0.0,))
    falling = np.minimum.accumulate(np.maximum(deltas, FLOOR))
    last = int(np.argmin(falling))
    height = np.sqrt(-np.log(falling[: last + 1]))
    wanted = np.searchsorted(height, np.linspace(height[0], height[-1], KEPT))
    chosen = np.unique(np.concatenate([[0], np.minimum(wanted, last)]))
    return Profile(epsilons=(*epsilons[chosen].tolist(), worst), deltas=(*falling[chosen].tolist(), 0.0))
