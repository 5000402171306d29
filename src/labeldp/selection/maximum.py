r"""Report noisy max: the item of the largest count, or the rank of the largest gap (Algorithm 1).

>>> large_gap([90, 88, 3, 2, 0], epsilon=1.0, neighbours="add_remove", rng=1).k
2

References: [TK] Zhu & Wang, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE" (2022),
Algorithm 1, Proposition 7, Theorem 8; McSherry & Talwar 2007; Durfee & Rogers 2019 (bounded range).

Design notes. Statement. Let scores u, u' of neighbours differ by changes of range at most w (see `_relation`: w = g for
counts, w = 2 g for gaps; any public regularizer cancels). Then for all i, j: u'_i - u'_j >= u_i - u_j - w, and

- gumbel, scale b: Pr[i] is proportional to exp(u_i / b), so the log-ratios of Pr and Pr' span at most w / b: bounded
  range epsilon = w / b, hence pure epsilon and zCDP epsilon^2 / 8.
- laplace, scale b, discrete: fix all noise but Z_i. If i wins with Z_i on u, it wins with Z_i + w on u' (ties go to the
  smaller index in both). The law of Z_i + w is at most e^(w/b) times that of Z_i: pure epsilon = w / b.
- gaussian, sigma, discrete: the same shift, with Jensen as in [TK, Theorem 8]; the discrete Gaussian moved by an
  integer w has Renyi divergence at most a w^2 / (2 sigma^2). Over n choices, RDP(a) is a w^2 / (2 sigma^2) +
  log(n) / (a - 1).

[TK] states w = 2 for gaps, which is add_remove; PATE replaces a teacher's votes, where w = 4.

Equal scores share one Gumbel draw: the largest of n Gumbels is one Gumbel moved by log n, and which of them it is, is
uniform and independent. So a million zero gaps cost one draw; the law is the same, not an approximation.

Top Stable: the sparse vector technique finds a rank with a large gap, and its leading items are released as a set.

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
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Float64s
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.loss.rounding import quotient_up
from labeldp.random import BitStream, as_key
from labeldp.samplers import discrete_laplace, uniform_below
from labeldp.selection.base import (
    FLOATING_POINT,
    NOISES,
    Relation,
    Selection,
    approximate,
    check_budget,
    find_levels,
    gumbel,
    laplace_rate,
    least_noise,
    noisy,
    read_neighbours,
)
from labeldp.selection.histogram import Histogram
from labeldp.validate import check_choice, check_integer

#: r(1), ..., r(n) as numbers, or a function of the array of ranks 1, ..., n; -inf forbids a rank.
Regularizer = Sequence[float] | npt.NDArray[Any] | Callable[[npt.NDArray[np.int64]], Any]

#: Orders at which the curve of the Gaussian noisy maximum is kept: a fine grid, since log(n) / (a - 1) is steep.
ORDERS = tuple(float(order) for order in 1.0 + np.geomspace(1e-2, 1e6, 241))


def large_gap(
    counts: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: str,
    noise: str = "gumbel",
    regularizer: Regularizer | None = None,
    k_max: int | None = None,
    candidates: Sequence[Any] | None = None,
    rng: Any = None,
) -> Selection:
    """Return a rank k at which the sorted counts fall steeply: `.k`, without any items (Algorithm 1).

    *Guarantee*: as in the module's notes, with w = 2 g. Gaussian noise needs delta > 0. *Edge cases*: one candidate has
    no gap and is refused; unknown candidates need a public `k_max`.
    """
    owner = "large_gap"
    relation = read_neighbours(owner, neighbours)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    n = n_ranks(owner, histogram, k_max)
    scores = read_regularizer(owner, regularizer, n)
    n_open = n if scores is None else int(np.isfinite(scores).sum())
    width = 2 * relation.reach
    scale = noise_scale(owner, noise, width=width, choices=n_open, relation=relation, epsilon=epsilon, delta=delta)
    key = as_key(owner, rng)
    k = choose_rank(BitStream(key), histogram, n, noise=noise, scale=scale, regularizer=scores)
    promise = noisy_max_guarantee(noise, width=width, scale=scale, choices=n_open, relation=relation)
    return Selection(items=np.empty(0, np.int64), k=k, passed=True, guarantee=promise, seeded=key.seeded)


def noisy_max(
    counts: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: str,
    noise: str = "gumbel",
    candidates: Sequence[Any] | None = None,
    rng: Any = None,
) -> Selection:
    """Return the one item whose noisy count is largest. *Guarantee*: the module's notes, with w = g."""
    owner = "noisy_max"
    relation = read_neighbours(owner, neighbours)
    histogram = public_histogram(owner, counts, candidates)
    n, width = histogram.counts.size, relation.reach
    scale = noise_scale(owner, noise, width=width, choices=n, relation=relation, epsilon=epsilon, delta=delta)
    key = as_key(owner, rng)
    scores = noisy(BitStream(key), histogram.counts.astype(np.float64), noise=noise, scale=scale)
    promise = noisy_max_guarantee(noise, width=width, scale=scale, choices=n, relation=relation)
    items = histogram.pick(np.array([int(np.argmax(scores))]))
    return Selection(items=items, k=1, passed=True, guarantee=promise, seeded=key.seeded)


def noisy_max_guarantee(noise: str, *, width: int, scale: float, choices: int, relation: Relation) -> Guarantee:
    """Return what a noisy maximum over `choices` scores whose changes have this range promises."""
    if noise == "gumbel":
        return Guarantee.bounded_range(quotient_up(width, scale), **relation.terms(FLOATING_POINT))
    if noise == "laplace":
        return Guarantee.pure(quotient_up(width, scale), **relation.terms())
    half, spread = quotient_up(width, scale) ** 2 / 2, math.log(max(choices, 1))
    # One part in 10^14 covers the rounding of these five operations.
    values = [(order * half + spread / (order - 1)) * (1 + 1e-14) for order in ORDERS]
    return Guarantee.rdp(ORDERS, values, **relation.terms())


def noise_scale(
    owner: str, noise: str, *, width: int, choices: int, relation: Relation, epsilon: float, delta: float
) -> float:
    """Return the least scale that meets the budget: in closed form where the loss is pure."""
    check_choice(owner, "noise", noise, NOISES)
    budget, slack = check_budget(owner, epsilon, delta, least_delta=noise == "gaussian")
    if noise == "gaussian":
        return _least_sigma(owner, width=width, choices=choices, relation=relation, epsilon=budget, delta=slack)
    # A delta helps a single noisy maximum hardly at all; the guarantee still says what it comes to.
    return quotient_up(width, budget)


@lru_cache(maxsize=256)
def _least_sigma(owner: str, *, width: int, choices: int, relation: Relation, epsilon: float, delta: float) -> float:
    """Return the least sigma of a Gaussian noisy maximum."""

    def promise(sigma: float) -> Guarantee:
        return noisy_max_guarantee("gaussian", width=width, scale=sigma, choices=choices, relation=relation)

    return least_noise(owner, promise, epsilon=epsilon, delta=delta)


def choose_rank(
    bits: BitStream, histogram: Histogram, n: int, *, noise: str, scale: float, regularizer: Float64s | None
) -> int:
    """Return the rank in 1..n with the largest noisy gap."""
    ranks, gaps = histogram.levels.gaps(n)
    if noise == "gumbel" and regularizer is None:
        return _choose_by_levels(bits, ranks, gaps, n, scale)
    scores = np.zeros(n) if regularizer is None else regularizer.copy()
    scores[ranks - 1] += gaps
    return int(np.argmax(noisy(bits, scores, noise=noise, scale=scale))) + 1


def _choose_by_levels(
    bits: BitStream, ranks: npt.NDArray[np.int64], gaps: npt.NDArray[np.int64], n: int, scale: float
) -> int:
    """Return the winning rank: one draw for each distinct gap, among them the zero gaps."""
    flat = n - ranks.size
    levels = find_levels(gaps)
    sizes = np.append(np.diff(levels.ends, prepend=0), flat)
    with np.errstate(divide="ignore"):  # no flat rank has weight 0
        scores = np.append(levels.values, 0) / scale + np.log(sizes) + gumbel(bits, sizes.size)
    level = int(np.argmax(scores))
    chosen = int(uniform_below(bits, sizes[level : level + 1])[0])
    if level < levels.values.size:
        return int(ranks[np.flatnonzero(gaps == levels.values[level])[chosen]])
    # ranks[i] - i - 1 flat ranks lie before the i-th steep one.
    before = int(np.searchsorted(ranks - np.arange(ranks.size) - 1, chosen, side="right"))
    return chosen + 1 + before


def n_ranks(owner: str, histogram: Histogram, k_max: int | None) -> int:
    """Return how many ranks may be chosen, a public number: each but the last, and none beyond `k_max`."""
    if k_max is not None:
        k_max = check_integer(owner, "k_max", k_max, least=1)
    if not histogram.public:
        if k_max is None:
            fix = "Which items occur is private: give a public `k_max`, or the public list `candidates`."
            raise invalid(owner, "k_max", "be given where candidates are not public", got=None, fix=fix)
        return k_max
    if histogram.counts.size < 2:
        raise invalid(owner, "counts", "have at least two candidates", got=Described("one: nothing is to be chosen"))
    most = histogram.counts.size - 1
    return most if k_max is None else min(most, k_max)


def read_regularizer(owner: str, regularizer: Any, n: int) -> Float64s | None:
    """Return r(1), ..., r(n) as floats; NaN and +inf are refused, -inf forbids a rank."""
    if regularizer is None:
        return None
    values = np.asarray(regularizer(np.arange(1, n + 1)) if callable(regularizer) else regularizer)
    if values.shape != (n,) or values.dtype.kind not in "iuf":
        got = Described(f"{values.dtype} of shape {values.shape}")
        raise invalid(owner, "regularizer", f"give one number for each rank 1..{n}", got=got)
    scores = values.astype(np.float64)
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise invalid(owner, "regularizer", "hold numbers or -inf", got=Described("NaN or inf"))
    if not np.isfinite(scores).any():
        raise invalid(owner, "regularizer", "leave a rank to choose", got=Described("only -inf"))
    return scores


def public_histogram(owner: str, counts: Any, candidates: Sequence[Any] | None) -> Histogram:
    """Read counts for a method that may name any candidate, so that their list must be public."""
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    if not histogram.public:
        fix = "Which items occur is private: list all that could, or use stable_top_k with k_max, or limited_domain."
        raise invalid(owner, "candidates", "be given for a mapping or a table", got=None, fix=fix)
    return histogram


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
