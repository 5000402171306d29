r"""Report noisy max: the item of the largest count, or the rank of the largest gap (Algorithm 1).

>>> large_gap([90, 88, 3, 2, 0], epsilon=1.0, neighbours="add_remove", rng=1).k
2

References: [TK] Zhu & Wang, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE" (2022),
Algorithm 1, Proposition 7, Theorem 8; McSherry & Talwar 2007; Durfee & Rogers 2019 (bounded range).

Design notes. Statement. Let scores u, u' of neighbours differ by changes of range at most w (see
`labeldp.selection.base`: w = g for counts, w = 2 g for gaps; any public regularizer cancels). Then for all i, j: u'_i -
u'_j >= u_i - u_j - w, and

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
from labeldp.samplers import uniform_below
from labeldp.selection.base import (
    FLOATING_POINT,
    NOISES,
    Relation,
    Selection,
    add_noise,
    check_budget,
    find_levels,
    gumbel,
    least_noise,
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

    Parameters
    ----------
    counts : array, mapping from name to count, or Histogram
        How many users have each candidate.
    epsilon, delta : float
        The budget. Gaussian noise needs delta > 0.
    neighbours : "add_remove" or "replace"
        What one user may do; it decides the noise.
    noise : "gumbel", "laplace" or "gaussian"
        Gumbel noise has the tightest guarantee; the other two are discrete and exact.
    regularizer : sequence, array or callable, optional
        Public r(1), ..., r(n) that is added to the gaps; -inf forbids a rank.
    k_max : int, optional
        Only ranks up to it are chosen; needed where the candidates are not public.
    candidates : sequence, optional
        The public list of candidates, for a mapping.
    rng : None, int or numpy.random.Generator
        As for `labeldp.privatize`.

    Returns
    -------
    Selection
        *Guarantee*: as in the module's notes, with w = 2 g. *Edge cases*: one candidate has no gap and is refused.
    """
    owner = "large_gap"
    relation = read_neighbours(owner, neighbours)
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    n = count_ranks(owner, histogram, k_max)
    scores = read_regularizer(owner, regularizer, n)
    n_open = n if scores is None else int(np.isfinite(scores).sum())
    width = 2 * relation.reach
    scale = find_noise_scale(owner, noise, width=width, choices=n_open, relation=relation, epsilon=epsilon, delta=delta)
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
    """Return the one item whose noisy count is largest, as the only one of `.items`.

    The arguments are those of `large_gap`; candidates must be public, since any of them may be named.
    *Guarantee*: as in the module's notes, with w = g.
    """
    owner = "noisy_max"
    relation = read_neighbours(owner, neighbours)
    histogram = read_public_histogram(owner, counts, candidates)
    n, width = histogram.counts.size, relation.reach
    scale = find_noise_scale(owner, noise, width=width, choices=n, relation=relation, epsilon=epsilon, delta=delta)
    key = as_key(owner, rng)
    scores = add_noise(BitStream(key), histogram.counts.astype(np.float64), noise=noise, scale=scale)
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


def find_noise_scale(
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
    return int(np.argmax(add_noise(bits, scores, noise=noise, scale=scale))) + 1


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


def count_ranks(owner: str, histogram: Histogram, k_max: int | None) -> int:
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


def read_public_histogram(owner: str, counts: Any, candidates: Sequence[Any] | None) -> Histogram:
    """Read counts for a method that may name any candidate, so that their list must be public."""
    histogram = Histogram.of(counts, candidates=candidates, owner=owner)
    if not histogram.public:
        fix = "Which items occur is private: list all that could, or use stable_top_k with k_max, or limited_domain."
        raise invalid(owner, "candidates", "be given for a mapping or a table", got=None, fix=fix)
    return histogram
