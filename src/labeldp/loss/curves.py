"""Losses known by a curve: Gaussian noise, zCDP, Renyi curves, and exact privacy profiles.

>>> round(Gaussian(mu=1.0).epsilon(1e-5), 6)
4.377178
>>> round(ZCDP(rho=0.5).epsilon(1e-5), 4), round(0.5 + 2 * (0.5 * 11.5129) ** 0.5, 4)
(4.7284, 5.2985)
>>> from math import e
>>> response = Profile(epsilons=(0.0, 1.0), deltas=((e - 1) / (e + 1), 0.0))
>>> round(response.epsilon(0.0), 9), round(response.delta(0.5), 6)
(1.0, 0.287649)

**Gaussian noise**, exactly. With z1 = epsilon/mu - mu/2, z2 = epsilon/mu + mu/2, phi the normal density and
R(z) = Phi(-z)/phi(z) the Mills ratio, e^epsilon phi(z2) = phi(z1), so

    delta = Phi(-z1) - e^epsilon Phi(-z2) = phi(z1) (R(z1) - R(z2)).

R = sqrt(pi/2) erfcx(z/sqrt 2) neither under- nor overflows for z >= 0. For small mu the difference cancels; it is then
the integral of 1 - z R(z) = -R'(z) over [z1, z2], by Gauss-Legendre. All errors stay below 1e-12 (tested against
50-digit arithmetic), and the result is raised by that much.

**Renyi curves.** Let D be the Renyi divergence at order a > 1 and Z the privacy loss. For t > 0

    delta(epsilon) = E[(1 - e^(epsilon - Z))+] <= c e^((a-1)(D - epsilon)),  c = max over u of (1 - e^-u)/e^((a-1)u),

since E[e^((a-1) Z)] = e^((a-1) D). The maximum is at e^-u = 1 - 1/a, where c = (1/a)(1 - 1/a)^(a-1). So

    log delta = (a - 1)(D - epsilon + log(1 - 1/a)) - log a,
    epsilon   = D + log(1 - 1/a) - (log delta + log a)/(a - 1).

Every order gives a valid bound, so the optimiser over orders decides how tight the answer is, never whether it holds.
Approximate losses: if D holds after an event of probability `slack`, delta in all is slack + (1 - slack) delta.

**Profiles** known at finitely many epsilons: the loss of an enumerated mechanism. As a function of x = e^epsilon the
profile H is convex, falls from H(0) = 1, and for a symmetric relation H(1/x) = 1 - 1/x + H(x)/x. So the lower convex
hull of the known points and their mirror images is a bound wherever the known points are bounds; it is exact for a
mechanism whose log-ratios are all among the knots. Past the last knot H keeps its last value. The changes of the hull's
slope are the masses of a dominating pair.

References: Balle & Wang 2018 (Theorem 8, the Gaussian profile); Dong, Roth & Su 2022 (mu-GDP; composition adds mu^2);
Mironov 2017; Bun & Steinke 2016; Canonne, Kamath & Steinke 2020 (Proposition 12 and Corollary 13, the conversion from
Renyi curves); Balle et al. 2020 (the same, by hypothesis testing); Zhu, Dong & Wang 2022 (Proposition 10: from a
profile to a dominating pair); Balle, Barthe & Gaboardi 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr

from labeldp.arrays import Float64s
from labeldp.errors import Described, invalid
from labeldp.loss.base import DiscreteLoss, Loss, mirror_pair, to_number
from labeldp.loss.rounding import TINY, UNIT, bisect_down, probability_up, settle
from labeldp.validate import check_delta, check_epsilon, check_real

#: phi(z1) loses z1^2 ulps and 1 - z R(z) about z^2 of them; z < 39 before delta underflows: 2 * 39^2 * 2^-52 = 7e-13.
ROUNDING = 1e-12
#: Beyond this z1 the density is below the smallest normal float.
FARTHEST = 37.5
#: Below this mu the difference of Mills ratios is integrated: 24 nodes are exact to the ulp on so short an interval.
SMALL = 0.5
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Loss):
    """N(0, 1) against N(mu, 1): Gaussian noise with mu = sensitivity / sigma.

    The profile is exact but for rounding up; `epsilon` inverts it by bisection from a bound that always holds. mu = 0
    costs nothing, mu = inf is no privacy, and delta = 0 needs infinite epsilon.
    """

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_epsilon("Gaussian", self.mu, name="mu"))

    @property
    def kind(self) -> str:
        return "Gaussian"

    def delta(self, epsilon: float) -> float:
        return float(self.profile(np.array([epsilon], dtype=np.float64))[0])

    def profile(self, epsilons: Float64s) -> Float64s:
        if self.mu == 0:
            return np.zeros_like(epsilons)
        if math.isinf(self.mu):
            return np.ones_like(epsilons)
        with np.errstate(over="ignore"):
            low = epsilons / self.mu - self.mu / 2
        near = low < FARTHEST
        deltas = np.full_like(epsilons, TINY)
        deltas[near] = np.maximum(TINY, exact_delta(low[near], self.mu) * (1 + ROUNDING))
        # At infinite epsilon nothing is left over.
        return np.where(np.isinf(epsilons), 0.0, np.minimum(deltas, 1.0))

    def epsilon(self, delta: float) -> float:
        if self.mu == 0:
            return 0.0
        if math.isinf(self.mu) or delta <= TINY:
            return math.inf
        # rho + 2 sqrt(rho log(1/delta)) at rho = mu^2/2 meets delta; one ulp more covers its rounding.
        high = self.mu**2 / 2 + self.mu * math.sqrt(-2 * math.log(delta))
        return bisect_down(self.delta, delta, low=0.0, high=settle(high, self.delta, delta))

    def rdp(self, orders: Float64s) -> Float64s:
        return orders * (self.mu**2 / 2 * (1 + 8 * UNIT))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "gaussian", "mu": to_number(self.mu)}


def exact_delta(low: Float64s, mu: float) -> Float64s:
    """Return phi(z1) (R(z1) - R(z1 + mu)) for z1 = `low`, by whichever form does not cancel."""
    density = np.exp(-(low**2) / 2) / math.sqrt(2 * math.pi)
    if mu < SMALL:
        points = low[:, None] + mu * (1 + NODES) / 2
        slopes = 1.0 - points * mills(points)
        return density * (slopes @ WEIGHTS) * (mu / 2)
    left = ndtr(-low) - density * mills(low + mu)
    right = density * (mills(np.maximum(low, 0.0)) - mills(low + mu))
    chosen: Float64s = np.where(low < 0, left, right)
    return chosen


def mills(z: Float64s) -> Float64s:
    """Return Phi(-z)/phi(z)."""
    ratio: Float64s = math.sqrt(math.pi / 2) * erfcx(z / math.sqrt(2))
    return ratio


#: Orders tried first: from where a huge loss has its optimum to where a tiny one has.
ORDERS = 1.0 + np.geomspace(1e-7, 1e11, 181)
#: Each round looks at this many orders between the neighbours of the best one.
ZOOM, ROUNDS = 33, 5


def least_over_orders(bound: Callable[[Float64s], Float64s], landmarks: tuple[float, ...]) -> float:
    """Return the smallest bound found: a grid of orders and landmarks, then a zoom around the best.

    `bound` gives a valid bound at each order, so stopping early is loose, never wrong.
    """
    orders = np.unique(np.concatenate([ORDERS, np.asarray(landmarks, dtype=np.float64)]))
    best = math.inf
    for _ in range(ROUNDS):
        values = bound(orders)
        place = int(np.argmin(values))
        best = min(best, float(values[place]))
        low, high = orders[max(place - 1, 0)], orders[min(place + 1, orders.size - 1)]
        if not math.isfinite(best) or high <= low:
            break
        orders = 1.0 + np.geomspace(low - 1.0, high - 1.0, ZOOM)
    return best


def epsilon_from_rdp(
    curve: Callable[[Float64s], Float64s], delta: float, *, slack: float = 0.0, landmarks: tuple[float, ...] = ()
) -> float:
    """Return the least epsilon over orders at which (epsilon, delta)-DP follows from the curve.

    `curve` gives the Renyi divergence at an array of orders, after an event of probability `slack` was set aside.
    A delta that `slack` uses up gives inf, unless the curve is zero.
    """
    rest = (delta - slack) / (1.0 - slack) * (1 - 8 * UNIT) if slack < 1 else 0.0
    if rest <= 0:
        nothing = delta >= slack and bool(np.all(curve(ORDERS) == 0))
        return 0.0 if nothing else math.inf

    def bound(orders: Float64s) -> Float64s:
        divergence, gain = curve(orders), np.log1p(-1.0 / orders)
        tail = (math.log(rest) + np.log(orders)) / (orders - 1.0)
        # The three terms may cancel: add the rounding of the largest.
        value: Float64s = divergence + gain - tail + 8 * UNIT * (divergence - gain + np.abs(tail))
        return value

    return max(0.0, least_over_orders(bound, landmarks))


def delta_from_rdp(
    curve: Callable[[Float64s], Float64s], epsilon: float, *, slack: float = 0.0, landmarks: tuple[float, ...] = ()
) -> float:
    """Return the least delta over orders at which (epsilon, delta)-DP follows from the curve, `slack` included."""
    values = curve(ORDERS)
    if np.all(np.isinf(values)):
        return 1.0
    if math.isinf(epsilon) or np.all(values == 0):
        return slack

    # A smaller epsilon has no smaller delta: nothing overflows below this one.
    reached = min(epsilon, 1e200)

    def bound(orders: Float64s) -> Float64s:
        divergence, gain, above = curve(orders), np.log1p(-1.0 / orders), orders - 1.0
        error = 8 * UNIT * (above * (divergence + reached - gain) + np.log(orders))
        value: Float64s = above * (divergence - reached + gain) - np.log(orders) + error
        return value

    log_delta = min(0.0, least_over_orders(bound, landmarks))
    rest = max(TINY, math.exp(log_delta))
    return probability_up(slack + (1.0 - slack) * rest)


@dataclass(frozen=True, kw_only=True)
class ZCDP(Loss):
    """Zero-concentrated DP: the Renyi divergence at order a is at most a * rho, after probability `slack`.

    Since log(1 - 1/a) - log(a)/(a - 1) <= 0, the order 1 + sqrt(log(1/delta)/rho), always tried, gives at most the
    classical rho + 2 sqrt(rho log(1/delta)).
    """

    rho: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_epsilon("ZCDP", self.rho, name="rho"))
        object.__setattr__(self, "slack", check_delta("ZCDP", self.slack, name="slack"))

    @property
    def kind(self) -> str:
        return "zCDP"

    def rdp(self, orders: Float64s) -> Float64s:
        return orders * self.rho * (1 + 2 * UNIT)

    def epsilon(self, delta: float) -> float:
        if math.isinf(self.rho):
            return math.inf
        classical = self._order(delta)
        guess = epsilon_from_rdp(self.rdp, delta, slack=self.slack, landmarks=classical)
        return settle(guess, self.delta, delta)

    def delta(self, epsilon: float) -> float:
        above = (epsilon - self.rho) / (2 * self.rho) if 0 < self.rho < math.inf else 1.0
        landmarks = (1.0 + above,) if 1e-7 < above < 1e11 else ()
        return delta_from_rdp(self.rdp, epsilon, slack=self.slack, landmarks=landmarks)

    def _order(self, delta: float) -> tuple[float, ...]:
        """The order of the classical conversion."""
        rest = (delta - self.slack) / (1.0 - self.slack)
        return (1.0 + math.sqrt(-math.log(rest) / self.rho),) if rest > 0 and self.rho > 0 else ()

    def to_json(self) -> dict[str, Any]:
        return {"kind": "zcdp", "rho": to_number(self.rho), "slack": self.slack}


@dataclass(frozen=True, kw_only=True)
class RDP(Loss):
    """A Renyi curve known at some orders, after probability `slack`.

    (a - 1) D_a is convex in a (it is a cumulant generating function) and 0 at a = 1, so between two known orders the
    straight line of (a - 1) D_a is a bound too. Beyond the last known order there is none.
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]
    slack: float = 0.0

    def __post_init__(self) -> None:
        orders = tuple(check_real("RDP", "orders", order) for order in self.orders)
        values = tuple(check_epsilon("RDP", value, name="values") for value in self.values)
        if not orders or any(not 1 < order < math.inf for order in orders) or sorted(set(orders)) != list(orders):
            fix = "An infinite order is a pure epsilon: use Guarantee.pure."
            raise invalid("RDP", "orders", "be finite, > 1 and increasing", got=orders, fix=fix)
        if len(orders) != len(values):
            got = Described(f"{len(values)} values for {len(orders)} orders")
            raise invalid("RDP", "values", "have one entry per order", got=got)
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "slack", check_delta("RDP", self.slack, name="slack"))

    @property
    def kind(self) -> str:
        return "RDP"

    @property
    def landmarks(self) -> tuple[float, ...]:
        return self.orders

    def rdp(self, orders: Float64s) -> Float64s:
        finite = [(o, v) for o, v in zip(self.orders, self.values, strict=True) if v < math.inf]
        known = np.array([1.0, *(order for order, _ in finite)])
        moments = np.array([0.0, *((order - 1.0) * value for order, value in finite)])
        line = np.interp(orders, known, moments) / (orders - 1.0) * (1 + 16 * UNIT)
        return np.where(orders > known[-1], np.inf, line)

    def epsilon(self, delta: float) -> float:
        guess = epsilon_from_rdp(self.rdp, delta, slack=self.slack, landmarks=self.orders)
        return settle(guess, self.delta, delta)

    def delta(self, epsilon: float) -> float:
        return delta_from_rdp(self.rdp, epsilon, slack=self.slack, landmarks=self.orders)

    def to_json(self) -> dict[str, Any]:
        values = [to_number(value) for value in self.values]
        return {"kind": "rdp", "orders": list(self.orders), "values": values, "slack": self.slack}


#: e^700 is still a float; a larger epsilon is no privacy to speak of.
LARGEST = 700.0
#: How far a knot may lie above the hull of the others: rounding of a sum over a million outcomes, with room to spare.
CONVEX_WITHIN = 1e-9


@dataclass(frozen=True, kw_only=True)
class Profile(Loss):
    """A privacy profile: delta at each of `epsilons` (>= 0, increasing), worst over both directions.

    Between the knots the lower convex hull of the knots and their mirror images is used (see the module). Knots that no
    profile can pass through, because they rise or are not convex in e^epsilon, are refused.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        epsilons = tuple(check_real("Profile", "epsilons", value) for value in self.epsilons)
        deltas = tuple(check_real("Profile", "deltas", value) for value in self.deltas)
        check_knots(epsilons, deltas)
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "deltas", deltas)
        points, heights = convex_hull(self)
        above = np.asarray(deltas) - np.interp(np.exp(epsilons), points, heights)
        if float(np.max(above)) > CONVEX_WITHIN:
            worst = int(np.argmax(above))
            got = Described(f"deltas[{worst}] = {deltas[worst]!r}, {above[worst]:.2g} too high for its neighbours")
            raise invalid("Profile", "deltas", "be convex in e^epsilon", got=got)

    @property
    def kind(self) -> str:
        return "exact profile"

    @property
    def slack(self) -> float:
        return self.deltas[-1]

    def delta(self, epsilon: float) -> float:
        return float(self.profile(np.array([epsilon], dtype=np.float64))[0])

    def profile(self, epsilons: Float64s) -> Float64s:
        points, heights = convex_hull(self)
        line = np.interp(np.exp(np.minimum(epsilons, LARGEST)), points, heights)
        return np.where(epsilons >= self.epsilons[-1], self.deltas[-1], np.minimum(1.0, line * (1 + 64 * UNIT)))

    def epsilon(self, delta: float) -> float:
        points, heights = convex_hull(self)
        if delta < heights[-1]:
            return math.inf
        first = int(np.argmax(heights <= delta))
        if first == 0 or points[first] <= 1:
            return 0.0
        drop = (heights[first - 1] - delta) / (heights[first - 1] - heights[first])
        crossing = points[first - 1] + drop * (points[first] - points[first - 1])
        guess = settle(math.log(crossing) if crossing > 1 else 0.0, self.delta, delta)
        return min(guess, self.epsilons[-1])

    def atoms(self) -> DiscreteLoss:
        return dominating_pair(self)

    def rdp(self, orders: Float64s) -> Float64s:
        return dominating_pair(self).rdp(orders) if self.slack < 1 else np.full_like(orders, np.inf)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "profile", "epsilons": list(self.epsilons), "deltas": list(self.deltas)}


def check_knots(epsilons: tuple[float, ...], deltas: tuple[float, ...]) -> None:
    """Refuse knots that no privacy profile passes through."""
    if not epsilons or len(epsilons) != len(deltas):
        got = Described(f"{len(epsilons)} epsilons and {len(deltas)} deltas")
        raise invalid("Profile", "deltas", "have one entry per epsilon, at least one", got=got)
    if not all(0 <= value <= LARGEST for value in epsilons) or sorted(set(epsilons)) != list(epsilons):
        raise invalid("Profile", "epsilons", f"be increasing and in [0, {LARGEST:g}]", got=epsilons)
    if not all(0 <= value <= 1 for value in deltas):
        raise invalid("Profile", "deltas", "be in [0, 1]", got=deltas)
    if any(later > earlier for earlier, later in pairwise(deltas)):
        raise invalid("Profile", "deltas", "not rise as epsilon grows", got=deltas, fix="Take the running minimum.")


@lru_cache(maxsize=32)
def convex_hull(loss: Profile) -> tuple[Float64s, Float64s]:
    """Return the lower convex hull of (0, 1), the mirrored knots and the knots, as x and H."""
    return hull_of_knots(loss.epsilons, loss.deltas)


def hull_of_knots(epsilons: Any, deltas: Any) -> tuple[Float64s, Float64s]:
    """Return the hull of knots at rising epsilons >= 0: below it no profile is known, above it none need be."""
    x = np.exp(epsilons)
    h = np.asarray(deltas)
    keep = x > 1
    points = [0.0, *(1 / x[keep])[::-1], *x]
    heights = [1.0, *(1 - 1 / x[keep] + h[keep] / x[keep])[::-1], *h]
    chain: list[tuple[float, float]] = []
    for point in zip(points, heights, strict=True):
        while len(chain) > 1 and _lies_above(chain[-2], chain[-1], point):
            chain.pop()
        chain.append((float(point[0]), float(point[1])))
    corners = np.array(chain)
    return corners[:, 0], corners[:, 1]


def _lies_above(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle point lies on or above the line between the others."""
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])


@lru_cache(maxsize=32)
def dominating_pair(loss: Profile) -> DiscreteLoss:
    """Return the dominating pair: at each corner x > 1, mass x * (change of slope) under P."""
    points, heights = convex_hull(loss)
    slopes = np.append(np.diff(heights) / np.diff(points), 0.0)
    right = points[1:] > 1
    masses = (points[1:] * np.diff(slopes))[right]
    raised = np.maximum(masses, 0.0) * (1 + 64 * UNIT)
    return mirror_pair(np.log(points[1:][right]), raised, loss.deltas[-1])
