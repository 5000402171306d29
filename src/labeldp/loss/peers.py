r"""The exact privacy profile of the peer-to-peer mechanism, rounded up.

>>> profile = peer_profile(n=100, alpha=0.2, theta=1.0)
>>> profile.epsilon(1e-5) < profile.epsilon(0.0)
True

Each user of a cluster of n flips her label with probability alpha, then reports the noisy label of a uniformly chosen
user of the cluster, and takes part with probability theta. The learner sees who takes part and what they report. Given
the number m of participants, the reports are exchangeable, so their sum is sufficient.

*Laws.* Of n users n1 have a positive label. After the flips the number of positive noisy labels is
X ~ Bin(n1, 1 - alpha) + Bin(n - n1, alpha). Each of m participants reports the noisy label of a uniformly chosen user,
so the number of positive reports given X is Bin(m, X / n). Averaged over X this is law(n1, m), and

    delta(epsilon) = max over n1 and both directions of
                     sum over m of Pr[Bin(n, theta) = m] * hockey-stick_epsilon(law(n1, m), law(n1 + 1, m)).

*Tails.* The laws of X for n1 and n1 + 1 differ in one Bernoulli variable added to a log-concave sum, so their ratio is
monotone; the binomial kernel is totally positive, so the ratio of the laws of the reports is monotone too, and every
hockey-stick is a sum over a tail. *Symmetry.* Exchanging the two classes maps n1 to n - n1, so half of the n1 suffice.
*Participants.* A report dropped at random turns m + 1 reports into m, so delta does not fall as m grows: a value of m
may stand for all below it, back to the grid's last one. What lies above the grid (less than 1e-17) counts as delta.

*Pure end.* All that anyone sees is made from labels that passed randomized response, so delta = 0 at
epsilon_0 = log((1 - alpha) / alpha), by proof and not by floats. Below `FLOOR` only this end is used.

*Rounding.* All terms are positive, so relative errors stay relative. A binomial probability is the exponential of a
sum of logarithms of size at most L = log n! + n max(log n, log 1/alpha): about ten roundings of relative size
u = 2^-53 of numbers of size L. Two of them convolved, one product of matrices and one running sum make
(30 L + 3 n) u < `relative_error`. What is cut off (`CUT`) is so far below `LEAST`, where profiles begin to count, that
it changes no digit there.

References: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022 (Algorithm 2; their Lemma 9 bounds the same quantity); Balle,
Bell, Gascon, Nissim 2019 (the privacy blanket); Feldman, McMillan, Talwar 2021 (hiding among the clones).

Design notes. The checks of alpha, theta and delta at the end serve the mechanism (`labeldp.mechanisms.PeerToPeerRR`)
and its accountant (`labeldp.accounting.peers`) alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp.arrays import Float64s
from labeldp.errors import PrivacyError, invalid
from labeldp.loss.curves import Profile
from labeldp.loss.rounding import UNIT, quotient_up
from labeldp.random import over_spans
from labeldp.validate import check_delta, check_real

#: Values of m that stand for all; the bound is within 1.5 times the full sum where the tests look (tests/accounting/test_peers.py).
GRID = 17
#: The chance of more participants than the grid covers, which is added to delta: far below `FLOOR`.
BEYOND = 1e-17
#: Epsilons at which the profile is computed, and how many of them it keeps.
KNOTS = 1024
KEPT = 200
#: The largest cluster whose exact profile is computed: work grows with the cube of n.
LARGEST_EXACT = 4000
#: No smaller delta than this is certified by floats; below it the pure end speaks.
FLOOR = 1e-13
#: Probabilities of X below this are dropped ...
CUT = 1e-80
#: ... and probabilities of outputs below this are not counted but added to delta, n of them at most.
LEAST = 1e-50
#: Rows per step: their product with the binomials fits a core's cache.
ROWS = 64


def local_epsilon(alpha: float) -> float:
    """Return log((1 - alpha) / alpha), rounded up: what one flipped label reveals to whoever sees it."""
    return 0.0 if alpha == 0.5 else math.log(quotient_up(1.0 - alpha, alpha)) * (1 + 8 * UNIT)


def peer_deltas(epsilons: Float64s, *, n: int, alpha: float, theta: float, grid: int = GRID) -> Float64s:
    """Return an upper bound on delta at each epsilon (>= 0), exact but for rounding and the grid over m."""
    order = np.argsort(-epsilons)
    factors = np.exp(epsilons[order]) * (1 - 4 * UNIT)
    factorials = log_factorials(n)
    pairs = (n + 1) // 2
    sums = laws_of_noisy_sums(n, alpha, rows=pairs + 1, factorials=factorials)
    total = np.zeros((pairs, 2, len(epsilons)))
    slip = 2 * relative_error(n, alpha)
    sizes, weights, beyond = participants(n, theta, grid, factorials)
    for m, weight in zip(sizes, weights, strict=True):
        table = report_table(n, m, factorials)
        over_spans(_make_adder(sums, table, total, factors=factors, weight=weight, slip=slip), pairs, step=ROWS)
    answer = np.empty(len(epsilons))
    answer[order] = np.minimum(1.0, total.max(axis=(0, 1)) * (1 + (grid + 8) * UNIT) + beyond + n * LEAST)
    return answer


def _make_adder(
    sums: Float64s, table: Float64s, total: Float64s, *, factors: Float64s, weight: float, slip: float
) -> Callable[[int, int], None]:
    """Return the work on a span of neighbouring pairs: their laws of reports, and the profiles of those."""
    from labeldp import kernels

    def work(low: int, high: int) -> None:
        rows = sums[low : high + 1]
        first, last = find_window(rows)
        # Reports rise with x: the first row of the table has the lowest of them, the last row the highest.
        low_k, high_k = np.flatnonzero(table[first])[0], np.flatnonzero(table[last - 1])[-1] + 1
        part = np.ascontiguousarray(table[first:last, low_k:high_k])
        reports = np.zeros((len(rows), part.shape[1]))
        kernels.multiply(np.ascontiguousarray(rows[:, first:last]), part, reports)
        kernels.add_profiles(reports, factors, weight, slip, LEAST, total[low:high])

    return work


def participants(n: int, theta: float, grid: int, factorials: Float64s) -> tuple[list[int], list[float], float]:
    """Return values of m, the chance that each stands for (raised), and the chance of more than the last."""
    if theta == 1.0:
        return [n], [1.0], 0.0
    chance = binomial(n, theta, factorials) * (1 + relative_error(n, min(theta, 1 - theta)))
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


def blanket_deltas(epsilons: Float64s, *, n: int, alpha: float, grid: int = 65) -> Float64s:
    """Return a bound on delta of n labels flipped with probability alpha and shuffled, for any n.

    A flip with probability alpha is a fair coin with probability 2 alpha and the truth otherwise. Whoever knows the
    other labels, and is told which of them tossed coins, is left with A + Bern(1 - alpha) against A + Bern(alpha),
    A ~ Bin(C, 1/2), C ~ Bin(n - 1, 2 alpha): this bounds every n1. One more coin is post-processing, so a value of C
    may stand for those above it.
    """
    from labeldp import kernels

    order = np.argsort(-epsilons)
    factors = np.exp(epsilons[order]) * (1 - 4 * UNIT)
    factorials = log_factorials(n)
    chance = binomial(n - 1, min(1.0, 2 * alpha), factorials) * (1 + relative_error(n, alpha))
    under = np.concatenate([[0.0], np.cumsum(chance)])  # under[c] = Pr[C < c]
    first = int(np.flatnonzero(under <= BEYOND)[-1])
    top = int(np.argmax(under >= under[-1] * 0.95))
    coins = sorted({round(c) for c in np.linspace(first, max(first, top - 1), grid)})
    total = np.zeros((1, 2, len(epsilons)))
    for low, high in zip(coins, [*coins[1:], n], strict=True):
        fair = np.concatenate([[0.0], binomial(low, 0.5, factorials), [0.0]])
        pair = np.stack([(1 - alpha) * fair[1:] + alpha * fair[:-1], alpha * fair[1:] + (1 - alpha) * fair[:-1]])
        weight = float(chance[low:high].sum()) * (1 + n * UNIT)
        kernels.add_profiles(pair, factors, weight, 2 * relative_error(n, alpha), LEAST, total)
    answer = np.empty(len(epsilons))
    answer[order] = np.minimum(1.0, total.max(axis=(0, 1)) * (1 + (grid + 8) * UNIT) + under[first] + n * LEAST)
    return answer


@lru_cache(maxsize=64)
def peer_profile(*, n: int, alpha: float, theta: float) -> Profile:
    """Return the profile of one cluster of n users: exact up to `LARGEST_EXACT`, beyond it the shuffled bound."""
    if n > LARGEST_EXACT:
        return shuffled_profile(n=n, alpha=alpha)
    worst = local_epsilon(alpha)
    epsilons = _knots(worst)
    return thin_profile(epsilons, peer_deltas(epsilons, n=n, alpha=alpha, theta=theta), worst)


@lru_cache(maxsize=64)
def shuffled_profile(*, n: int, alpha: float) -> Profile:
    """Return a bound for n flipped labels that are shuffled: the peers' reports are made from those, whatever theta."""
    worst = local_epsilon(alpha)
    epsilons = _knots(worst)
    return thin_profile(epsilons, blanket_deltas(epsilons, n=n, alpha=alpha), worst)


def _knots(worst: float) -> Float64s:
    """Return epsilons from 0 to below the pure end, denser where large clusters end."""
    answer: Float64s = worst * (np.arange(KNOTS) / KNOTS) ** 2
    return answer if worst > 0 else np.zeros(1)


def thin_profile(epsilons: Float64s, deltas: Float64s, worst: float) -> Profile:
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


def relative_error(n: int, alpha: float) -> float:
    """Return a bound on the relative error of a probability (see the module)."""
    size = math.lgamma(n + 1) + n * max(math.log(n + 1), -math.log(alpha))
    return 32 * UNIT * (size + n)


def log_factorials(n: int) -> Float64s:
    """Return log k! for k = 0 .. n, correctly rounded but for the last bit: summed in extended precision."""
    logs = np.log(np.arange(1, n + 1, dtype=np.longdouble))
    return np.asarray(np.concatenate([[0.0], np.cumsum(logs)]), np.float64)


def log_choices(n: int, factorials: Float64s) -> Float64s:
    """Return log (n choose k) for k = 0 .. n."""
    part: Float64s = factorials[: n + 1]
    answer: Float64s = factorials[n] - part - part[::-1]
    return answer


def binomial(n: int, probability: float, factorials: Float64s) -> Float64s:
    """Return the law of Bin(n, probability)."""
    k = np.arange(n + 1)
    if probability in {0.0, 1.0}:
        return np.asarray(k == (n if probability else 0), np.float64)
    logs = log_choices(n, factorials) + k * math.log(probability) + (n - k) * math.log1p(-probability)
    answer: Float64s = np.exp(logs)
    return answer


def laws_of_noisy_sums(n: int, alpha: float, *, rows: int, factorials: Float64s) -> Float64s:
    """Return the law of X for n1 = 0 .. rows - 1 positives among n users, one per row."""
    from labeldp import kernels

    out = np.zeros((rows, n + 1))

    def work(low: int, high: int) -> None:
        kept, flipped = np.zeros((2, high - low, n + 1))
        windows = np.zeros((2, high - low, 2), np.int64)
        for r, positives in enumerate(range(low, high)):
            kept[r, : positives + 1] = binomial(positives, 1.0 - alpha, factorials)
            flipped[r, : n - positives + 1] = binomial(n - positives, alpha, factorials)
            windows[0, r], windows[1, r] = find_window(kept[r : r + 1]), find_window(flipped[r : r + 1])
        kernels.convolve_rows(kept, windows[0], flipped, windows[1], out[low:high])

    over_spans(work, rows, step=ROWS)
    return out


def find_window(laws: Float64s) -> tuple[int, int]:
    """Return [low, high) outside of which no row has a probability of `CUT`."""
    inside = np.flatnonzero((laws > CUT).any(axis=0))
    return int(inside[0]), int(inside[-1]) + 1


def report_table(n: int, m: int, factorials: Float64s) -> Float64s:
    """Return Pr[Bin(m, x / n) = k] for x = 0 .. n and k = 0 .. m."""
    from labeldp import kernels

    out = np.zeros((n + 1, m + 1))
    with np.errstate(divide="ignore"):
        logs = np.log(np.arange(n + 1) / n)
    choices = log_choices(m, factorials)

    def work(low: int, high: int) -> None:
        failures = logs[::-1][low:high]  # log((n - x) / n) is log(x' / n) at x' = n - x
        kernels.binomial_rows(choices, logs[low:high], failures, math.log(CUT), out[low:high])

    over_spans(work, n + 1, step=ROWS)
    return out


def check_alpha(owner: str, alpha: Any) -> float:
    """Return alpha in (0, 1/2]."""
    value = check_real(owner, "alpha", alpha)
    if not 0 < value <= 0.5:
        fix = "It is the chance of a flip: 1/2 says nothing, and 0 would show a label to the peer who asks."
        raise invalid(owner, "alpha", "be in (0, 1/2]", got=alpha, fix=fix)
    return value


def check_theta(owner: str, theta: Any) -> float:
    """Return theta in (0, 1]."""
    value = check_real(owner, "theta", theta)
    if not 0 < value <= 1:
        raise invalid(owner, "theta", "be in (0, 1]", got=theta, fix="Use 1 if everyone takes part.")
    return value


def check_floor(owner: str, delta: Any) -> float:
    """Return a delta that floating point can certify."""
    value = check_delta(owner, delta)
    if 0 < value < FLOOR:
        fix = "Use delta = 0 for the pure guarantee, which needs no floats."
        raise invalid(owner, "delta", f"be 0 or at least {FLOOR:g}", got=delta, fix=fix, kind=PrivacyError)
    return value
