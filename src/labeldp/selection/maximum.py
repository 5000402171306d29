r"""Report noisy max: the item of the largest count, or the rank of the largest gap (Algorithm 1).

>>> large_gap([90, 88, 3, 2, 0], epsilon=1.0, neighbours="add_remove", rng=1).k
2

References: [TK] Zhu & Wang, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE" (2022),
Algorithm 1, Proposition 7, Theorem 8; McSherry & Talwar 2007; Durfee & Rogers 2019 (bounded range); Ding, Kifer,
Steinke, Wang, Xiao & Zhang 2021 and McKenna & Sheldon 2020 (exponential noise, permute and flip).

Design notes. Statement. Let scores u, u' of neighbours differ by changes of range at most w (see
`labeldp.selection.base`: w = g for counts, w = 2 g for gaps; any public regularizer cancels). Then for all i, j: u'_i -
u'_j >= u_i - u_j - w, and

- gumbel, scale b: Pr[i] is proportional to exp(u_i / b), so the log-ratios of Pr and Pr' span at most w / b: bounded
  range epsilon = w / b, hence pure epsilon and zCDP epsilon^2 / 8.
- laplace, scale b, discrete: fix all noise but Z_i. If i wins with Z_i on u, it wins with Z_i + w on u' (ties go to the
  smaller index in both). The law of Z_i + w is at most e^(w/b) times that of Z_i: pure epsilon = w / b.
- exponential, scale b, discrete (Z >= 0): the same shift, and the law of Z_i at z + w is exactly e^(-w/b) times that at z:
  pure epsilon = w / b as with Laplace noise, of which this is the half that is of use. The one item it returns is better
  than Gumbel's in expectation at the same pure epsilon (McKenna & Sheldon 2020); but its range is not bounded by epsilon,
  so that its zCDP is epsilon^2 / 2, four times Gumbel's, and Gumbel noise wins as soon as selections compose.
- gaussian, sigma, discrete: two bounds hold, and the smaller one is taken at every order a.

  *By the winner.* The same shift, with Jensen as in [TK, Theorem 8]; the discrete Gaussian moved by an integer w has
  Renyi divergence at most a w^2 / (2 sigma^2). Over n choices, RDP(a) is a w^2 / (2 sigma^2) + log(n) / (a - 1).

  *By the vector.* Who wins is a function of the n noisy scores, and these are a Gaussian mechanism: if scores move by
  the vector d, RDP(a) is a |d|^2 / (2 sigma^2), each coordinate by the line above and their sum by independence. A gap
  moves by at most g, so |d|^2 <= n g^2 for gaps. A count moves by at most 1, so |d|^2 <= n for counts. A number added to
  all scores alike changes nobody's place; when m of n counts rise by one (add_remove), lowering all by one leaves n - m
  that fall by one, so that the smaller of m and n - m counts: |d|^2 <= n / 2.

  The first pays log(n) / (a - 1) whatever sigma is, in every query; the second has no such price and grows with n. With
  many queries of large sigma the orders that matter are small, and the second is far below the first: 600 queries among
  39 labels at sigma = 50, and tests at 60, cost epsilon 20.5 instead of 71 at delta = 1e-6 (add_remove), 51 instead of
  143 (replace).

[TK] states w = 2 for gaps, which is add_remove; PATE replaces a teacher's votes, where w = 4. Its epsilon of 3.6 for the
setting above (its Table 2, delta_t = 1e-9) does not follow from its own Corollary 9: 600 times 2 a / sigma^2 +
log(n) / (a - 1), composed with its tests, is that 71.

Equal scores share one Gumbel draw: the largest of n Gumbels is one Gumbel moved by log n, and which of them it is, is
uniform and independent. So a million zero gaps cost one draw; the law is the same, not an approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    Relation,
    Selection,
    check_budget,
    find_levels,
    least_noise,
    read_neighbours,
)
from labeldp.selection.histogram import LARGEST_COUNT, Histogram
from labeldp.selection.race import NOISES, draw_order, draw_winner
from labeldp.validate import check_choice, check_integer

#: r(1), ..., r(n) as numbers, or a function of the array of ranks 1, ..., n; -inf forbids a rank.
Regularizer = Sequence[float] | npt.NDArray[Any] | Callable[[npt.NDArray[np.int64]], Any]

#: Orders at which the curve of the Gaussian noisy maximum is kept: a fine grid, since log(n) / (a - 1) is steep.
ORDERS = tuple(float(order) for order in 1.0 + np.geomspace(1e-2, 1e6, 241))


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far one user moves scores: the range of the changes, the sum of their squares, and among how many scores."""

    width: int
    squared: int
    choices: int


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
    noise : "gumbel", "exponential", "laplace" or "gaussian"
        Gumbel noise has the tightest guarantee where selections compose, exponential noise the best single answer at a
        pure epsilon; the other three are discrete.
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
    reach = reach_of_gaps(relation, n if scores is None else int(np.isfinite(scores).sum()))
    scale = find_noise_scale(owner, noise, reach, relation=relation, epsilon=epsilon, delta=delta)
    key = as_key(owner, rng).claim(owner)
    k = choose_rank(BitStream(key), histogram, n, noise=noise, scale=scale, regularizer=scores)
    promise = noisy_max_guarantee(noise, reach, scale=scale, relation=relation)
    promise = histogram.state(promise, regularizer=regularizer is not None)
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
    reach = reach_of_counts(relation, histogram.counts.size)
    scale = find_noise_scale(owner, noise, reach, relation=relation, epsilon=epsilon, delta=delta)
    key = as_key(owner, rng).claim(owner)
    winner = draw_winner(BitStream(key), histogram.counts, noise=noise, scale=scale)
    promise = noisy_max_guarantee(noise, reach, scale=scale, relation=relation)
    items = histogram.pick(np.array([winner]))
    return Selection(items=items, k=1, passed=True, guarantee=histogram.state(promise), seeded=key.seeded)


def reach_of_gaps(relation: Relation, choices: int) -> Reach:
    """Return how far one user moves that many gaps: each by g up or down."""
    return Reach(width=2 * relation.reach, squared=choices * relation.reach**2, choices=choices)


def reach_of_counts(relation: Relation, choices: int) -> Reach:
    """Return how far one user moves that many counts, up to a number added to all of them: each by one at most."""
    squared = choices // 2 if relation.name == "add_remove" else choices
    return Reach(width=relation.reach, squared=squared, choices=choices)


def noisy_max_guarantee(noise: str, reach: Reach, *, scale: float, relation: Relation) -> Guarantee:
    """Return what a noisy maximum over scores that move by no more than `reach` promises: see the module's notes."""
    width = reach.width
    if noise == "gumbel":
        return Guarantee.bounded_range(quotient_up(width, scale), **relation.terms())
    if noise in ("laplace", "exponential"):
        return Guarantee.pure(quotient_up(width, scale), **relation.terms())
    half, spread = quotient_up(1, scale) ** 2 / 2, math.log(max(reach.choices, 1))
    winner = [order * half * width**2 + spread / (order - 1) for order in ORDERS]
    vector = [order * half * reach.squared for order in ORDERS]
    # One part in 10^14 covers the rounding of these operations.
    values = [min(pair) * (1 + 1e-14) for pair in zip(winner, vector, strict=True)]
    return Guarantee.rdp(ORDERS, values, **relation.terms())


def find_noise_scale(
    owner: str, noise: str, reach: Reach, *, relation: Relation, epsilon: float, delta: float
) -> float:
    """Return the least scale that meets the budget: in closed form where the loss is pure."""
    check_choice(owner, "noise", noise, NOISES)
    budget, slack = check_budget(owner, epsilon, delta, least_delta=noise == "gaussian")
    if noise == "gaussian":
        return _least_sigma(owner, reach, relation=relation, epsilon=budget, delta=slack)
    # A delta helps a single noisy maximum hardly at all; the guarantee still says what it comes to.
    return quotient_up(reach.width, budget)


@lru_cache(maxsize=256)
def _least_sigma(owner: str, reach: Reach, *, relation: Relation, epsilon: float, delta: float) -> float:
    """Return the least sigma of a Gaussian noisy maximum."""

    def promise(sigma: float) -> Guarantee:
        return noisy_max_guarantee("gaussian", reach, scale=sigma, relation=relation)

    return least_noise(owner, promise, epsilon=epsilon, delta=delta)


def choose_rank(
    bits: BitStream, histogram: Histogram, n: int, *, noise: str, scale: float, regularizer: Float64s | None
) -> int:
    """Return the rank in 1..n with the largest noisy gap."""
    ranks, gaps = histogram.levels.gaps(n)
    if noise == "gumbel" and regularizer is None:
        return _choose_by_levels(bits, ranks, gaps, n, scale)
    whole = np.zeros(n, np.int64)
    whole[ranks - 1] = gaps
    return draw_winner(bits, whole, noise=noise, scale=scale, extra=regularizer) + 1


def _choose_by_levels(
    bits: BitStream, ranks: npt.NDArray[np.int64], gaps: npt.NDArray[np.int64], n: int, scale: float
) -> int:
    """Return the winning rank: one draw for each distinct gap, among them the zero gaps."""
    flat = n - ranks.size
    levels = find_levels(gaps)
    sizes = np.diff(levels.ends, prepend=0)
    values = levels.values
    if flat:
        values, sizes = np.append(values, 0), np.append(sizes, flat)
    level = int(draw_order(bits, values, k=1, scale=scale, sizes=sizes)[0])
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
    if not (np.isneginf(scores) | (np.abs(scores) < LARGEST_COUNT)).all():
        raise invalid(
            owner, "regularizer", "hold numbers below 2^53 or -inf", got=Described("NaN, inf or a larger one")
        )
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
