r"""What all selections share: their result, the two neighbouring relations, the search for noise, and levels.

>>> read_neighbours("demo", "replace").reach
2

**How far one user can move what is selected.** One user adds at most 1 to each count, and may add to any number of
them. Let h be the counts, sorted h_(1) >= h_(2) >= ..., and q_j = h_(j) - h_(j+1) the j-th gap. Between neighbours

- add_remove: every count, hence every sorted count, changes by 0 or 1, all in one direction. So counts differ in range
  (largest change less smallest) by at most 1, and a gap, the difference of two sorted counts, by at most 1.
- replace: one user removed, then one added. So counts differ in range by at most 2, a gap by at most 2.

`Relation.reach` is this number g. The changes of all gaps lie in [-g, g]: their range is 2 g. If q_j > g, the j leading
items are the same for every neighbour: under add_remove an item inside falls by 1 or one outside rises by 1, not both;
under replace both may happen, and the distance shrinks by at most 2.

**The least noise that meets a budget** (`least_noise`) is found by way of Renyi curves, about ten evaluations of a
millisecond. `labeldp.accounting.calibrate` does the same for any guarantee, and asks it for its tightest delta. That
may convolve losses, a tenth of a second each; a selection is calibrated once per query, so this one uses the Renyi
curve alone. What it finds meets the budget; the guarantee may then show a little less than was asked for.

>>> noise = least_noise("demo", lambda s: Guarantee.zcdp(1 / s**2), epsilon=1.0, delta=1e-6)
>>> Guarantee.zcdp(1 / noise**2).epsilon(1e-6) <= 1.0
True

**Noise** is exact: what is released is the order of noisy scores, which `labeldp.selection.race` decides as if they were
real numbers, or a comparison of integers with discrete noise (`labeldp.samplers`).

**Levels.** A million candidates have few hundred different counts, and only those matter: with sorted counts, the gap
h_(j) - h_(j+1) is positive only at the end j of a level. Counting (bincount) beats sorting where the largest count is
not much larger than the number of candidates.

>>> levels = find_levels(np.array([7, 2, 2, 9, 2]))
>>> levels.values.tolist(), levels.ends.tolist()
([9, 7, 2], [1, 2, 5])

References: Canonne, Kamath & Steinke 2020 (discrete Laplace and Gaussian); Kairouz, Oh & Viswanath 2015 (what dominates
(epsilon, delta)-DP).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp.arrays import Array, Int64s
from labeldp.errors import PrivacyError, invalid
from labeldp.guarantee import SEEDED, Guarantee, Trust, Unit
from labeldp.loss.curves import delta_from_rdp
from labeldp.samplers import variance_above
from labeldp.validate import check_choice, check_delta, check_positive

#: What every guarantee of this package stands on.
ONE_EACH = "one user adds at most 1 to each count"


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The result of a private selection: the chosen items, how many, whether the test passed, and what it cost.

    Fields
    ------
    items : array
        Names (or indices where the counts have none). A set is listed in an order that says nothing of the counts (that
        of the candidates, or sorted names); an ordered selection in the order in which it was drawn.
    k : int
        How many were proposed; public, also when the test failed.
    passed : bool
        Whether a stability test let a set out; True where there is no test.
    guarantee : Guarantee
        Of this one call.
    seeded : bool
        Reproducible, hence not private.
    proposed : int, optional
        The rank that was tested, where k was fixed beforehand.
    """

    items: Array
    k: int
    passed: bool
    guarantee: Guarantee
    seeded: bool
    proposed: int | None = None

    def __post_init__(self) -> None:
        """Let the promise say that its noise has a seed, whichever function made the selection."""
        if self.seeded:
            object.__setattr__(self, "guarantee", self.guarantee.assuming(SEEDED))

    def __repr__(self) -> str:
        marks = ("" if self.passed else ", test failed") + (", seeded: not private" if self.seeded else "")
        return f"<Selection: k = {self.k}, {np.size(self.items)} items{marks}; {self.guarantee.headline}>"


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A neighbouring relation: its name, the reach g of one change, and the unit its guarantee states."""

    name: str
    reach: int
    unit: Unit

    def terms(self, *assumptions: str) -> dict[str, Any]:
        """Return the arguments that every guarantee here shares."""
        return {"unit": self.unit, "trust": Trust.CURATOR, "assumptions": (ONE_EACH, *assumptions)}


RELATIONS = {
    "add_remove": Relation(name="add_remove", reach=1, unit=Unit.RECORD_ADD_REMOVE),
    "replace": Relation(name="replace", reach=2, unit=Unit.RECORD_REPLACE),
}


def read_neighbours(owner: str, neighbours: Any) -> Relation:
    """Return the relation of this name, "add_remove" or "replace"; anything else is refused in the name of `owner`."""
    known = tuple(RELATIONS)
    return RELATIONS[check_choice(owner, "neighbours", neighbours if isinstance(neighbours, str) else None, known)]


#: Relative width at which the search ends: noise a millionth above the least is no loss.
WIDTH = 1e-6
#: Beyond this the search gives up: noise of 1e12 counts is no answer.
MOST_NOISE = 1e12


def check_budget(owner: str, epsilon: Any, delta: Any, *, least_delta: bool = True) -> tuple[float, float]:
    """Return a finite epsilon > 0 and a delta in [0, 1), or in (0, 1) where the method needs one."""
    budget = check_positive(owner, "epsilon", epsilon)
    slack = check_delta(owner, delta)
    if least_delta and slack == 0:
        fix = "A released set is never pure: give it one, as delta=1e-6 (--delta 1e-6). top_k_exponential is pure."
        raise invalid(owner, "delta", "be > 0", got=delta, fix=fix)
    return budget, slack


def check_test_delta(owner: str, test_delta: Any, delta: float, queries: int) -> float:
    """Return the probability of a false pass: half of one query's share of delta, or what the caller says."""
    if test_delta is None:
        return delta / 2 / queries
    share = check_delta(owner, test_delta, name="test_delta")
    if not 0 < share * queries < delta:
        fix = f"All {queries} tests must leave some of delta = {delta!r} to the noise; half of it is the default."
        raise invalid(owner, "test_delta", "be > 0 and less than delta / queries", got=test_delta, fix=fix)
    return share


def least_noise(owner: str, make: Callable[[float], Guarantee], *, epsilon: float, delta: float) -> float:
    """Return nearly the least noise whose guarantee, made by `make`, is (epsilon, delta)-DP for delta > 0.

    *Guarantee*: the answer was evaluated and meets the budget; it is within `WIDTH` of the least that does. A budget
    that noise of `MOST_NOISE` does not meet raises `PrivacyError`.
    """

    def excess(noise: float) -> float:
        """The logarithm of how far delta, slack aside, is from the budget: > 0 is too much, and nearly linear."""
        loss = make(noise).loss
        reached = delta_from_rdp(loss.rdp, epsilon, slack=loss.slack, landmarks=loss.landmarks)
        if reached > delta:
            return max(math.log((reached - loss.slack) / (delta - loss.slack)), 1e-9) if delta > loss.slack else 1e9
        return min(math.log(max(reached - loss.slack, 1e-300) / (delta - loss.slack)), -1e-300)

    # rho of about (epsilon / 2)^2 / log(1 / delta), so noise of about 2 sqrt(log(1 / delta)) / epsilon.
    high = 2 * math.sqrt(math.log(1 / delta) + 1) / epsilon
    above = excess(high)
    while above > 0:
        high *= 2
        if high > MOST_NOISE:
            must = "be enough for this selection"
            raise invalid(owner, "epsilon and delta", must, got=(epsilon, delta), fix="Raise them.", kind=PrivacyError)
        above = excess(high)
    low = high / 2
    below = excess(low)
    while below <= 0 and low > 1 / MOST_NOISE:
        low, high, above = low / 2, low, below
        below = excess(low)
    return _narrow_bracket(excess, low, high, below, above) if below > 0 else high


def _narrow_bracket(excess: Callable[[float], float], low: float, high: float, below: float, above: float) -> float:
    """Return the upper end of a narrow bracket around the root; `high` always meets the budget.

    Each step tries the secant's point, a quarter of the wanted width above it so that it tends to meet the budget, and
    the middle after a step that has not halved the bracket.
    """
    halved = True
    while high / low > 1 + WIDTH:
        width = high - low
        secant = high - above * width / (above - below) + low * WIDTH / 4
        point = min(max(secant, low + low * WIDTH / 2), high - low * WIDTH / 2) if halved else math.sqrt(low * high)
        value = excess(point)
        low, below, high, above = (point, value, high, above) if value > 0 else (low, below, point, value)
        halved = high - low < width / 2
    return high


def approximate_guarantee(epsilon: float, delta: float, **terms: Any) -> Guarantee:
    """Return (epsilon, delta)-DP as a profile: randomized response that leaks with probability delta dominates it.

    At t <= epsilon its delta is delta + (1 - delta)(E - e^t)/(E + 1) [Kairouz, Oh & Viswanath 2015], linear in e^t, so
    that its two ends say all.
    """
    return Guarantee.profile([0.0, epsilon], [delta + (1 - delta) * math.tanh(epsilon / 2), delta], **terms)


def laplace_offset(rate: float, chance: float) -> int:
    r"""Return the least T >= 0 with Pr[Z > T] <= chance for discrete Laplace Z.

    With a = e^-rate, Pr[Z > T] = a^(T+1) / (1 + a).
    """
    steps = (-math.log(chance) - math.log1p(math.exp(-rate))) / rate
    # One part in 10^12 more than the quotient covers the rounding of four operations.
    return max(0, math.ceil(steps * (1 + 1e-12)) - 1)


@lru_cache(maxsize=1024)
def gaussian_offset(sigma: float, chance: float) -> int:
    r"""Return T = ceil(sigma z), z = Phi^-1(1 - chance): then Pr[Z > T] <= chance for discrete Gaussian Z.

    Let f(x) = exp(-x^2 / (2 sigma^2)). The sum of f over integers beyond T is at most its integral from T, which is
    sigma sqrt(2 pi) Phi(-T / sigma); the sum over all integers is at least the integral over the line, sigma sqrt(2 pi)
    (Poisson summation: the other terms are positive). So Pr[Z > T] <= Phi(-T / sigma) <= chance.
    """
    from scipy.special import ndtri

    # ndtri errs by a few ulps; the variance drawn may be a millionth above sigma^2 (`variance_above`).
    z = -float(ndtri(min(chance, 0.5))) * (1 + 1e-12)
    return math.ceil(math.sqrt(variance_above(sigma**2)) * z * (1 + 1e-12))


#: Counting needs an array as long as the largest count: at most this many times the candidates, and 1 MiB at least.
SPREAD = 2
SMALL = 1 << 17


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """Distinct counts in falling order, and at which rank (from 1) each of them ends."""

    values: Int64s
    ends: Int64s

    def value_at(self, rank: int) -> int:
        """Return the sorted count h_(rank); 0 beyond the last."""
        place = int(np.searchsorted(self.ends, rank))
        return int(self.values[place]) if place < self.values.size else 0

    def gap_at(self, rank: int) -> int:
        """Return h_(rank) - h_(rank + 1)."""
        return self.value_at(rank) - self.value_at(rank + 1)

    def gaps(self, most: int) -> tuple[Int64s, Int64s]:
        """Return the ranks <= `most` with a positive gap, and those gaps. After the last count comes 0."""
        cut = int(np.searchsorted(self.ends, most, side="right"))
        if cut == self.values.size and cut and self.values[-1] == 0:
            cut -= 1  # from 0 to 0 is no drop; all others are
        after = self.values[1 : cut + 1]
        drops = self.values[:cut].copy()
        drops[: after.size] -= after
        return self.ends[:cut], drops


def find_levels(counts: Int64s) -> Levels:
    """Return the levels of nonnegative counts."""
    largest = int(counts.max()) if counts.size else 0
    if largest <= max(SPREAD * counts.size, SMALL):
        sizes = np.bincount(counts)
        values = np.flatnonzero(sizes)[::-1]
        return Levels(values=values, ends=np.cumsum(sizes[values]))
    # Half the bytes sort in half the time.
    ordered = np.sort(counts.astype(np.int32) if largest < 2**31 else counts)
    starts = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    return Levels(values=ordered[starts][::-1].astype(np.int64), ends=ordered.size - starts[::-1])
