"""Renyi losses: zCDP, a curve on a grid of orders, and their conversion to epsilon and delta.

>>> round(ZCDP(rho=0.5).epsilon(1e-5), 4), round(0.5 + 2 * (0.5 * 11.5129) ** 0.5, 4)
(4.7284, 5.2985)

References: Mironov 2017; Bun & Steinke 2016; Canonne, Kamath & Steinke 2020 (Proposition 12 and Corollary 13, the
conversion); Balle et al. 2020 (the same, by hypothesis testing).

Design notes. Let D be the Renyi divergence at order a > 1 and Z the privacy loss. For t > 0

    delta(epsilon) = E[(1 - e^(epsilon - Z))+] <= c e^((a-1)(D - epsilon)),  c = max over u of (1 - e^-u)/e^((a-1)u),

since E[e^((a-1) Z)] = e^((a-1) D). The maximum is at e^-u = 1 - 1/a, where c = (1/a)(1 - 1/a)^(a-1). So

    log delta = (a - 1)(D - epsilon + log(1 - 1/a)) - log a,
    epsilon   = D + log(1 - 1/a) - (log delta + log a)/(a - 1).

Every order gives a valid bound, so the optimiser over orders decides how tight the answer is, never whether it holds.
Approximate losses: if D holds after an event of probability `slack`, delta in all is slack + (1 - slack) delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp._loss.base import Loss, to_number
from labeldp._loss.rounding import TINY, UNIT, Array, probability_up, settle
from labeldp._validate import check_delta, check_epsilon, check_real
from labeldp.errors import Described, invalid

#: Orders tried first: from where a huge loss has its optimum to where a tiny one has.
ORDERS = 1.0 + np.geomspace(1e-7, 1e11, 181)
#: Each round looks at this many orders between the neighbours of the best one.
ZOOM, ROUNDS = 33, 5


def least_over_orders(bound: Callable[[Array], Array], landmarks: tuple[float, ...]) -> float:
    """Return the smallest bound found: a grid of orders and landmarks, then a zoom around the best."""
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
    curve: Callable[[Array], Array], delta: float, *, slack: float = 0.0, landmarks: tuple[float, ...] = ()
) -> float:
    """Return the least epsilon over orders at which (epsilon, delta)-DP follows from the curve."""
    rest = (delta - slack) / (1.0 - slack) * (1 - 8 * UNIT) if slack < 1 else 0.0
    if rest <= 0:
        nothing = delta >= slack and bool(np.all(curve(ORDERS) == 0))
        return 0.0 if nothing else math.inf

    def bound(orders: Array) -> Array:
        divergence, gain = curve(orders), np.log1p(-1.0 / orders)
        tail = (math.log(rest) + np.log(orders)) / (orders - 1.0)
        # The three terms may cancel: add the rounding of the largest.
        value: Array = divergence + gain - tail + 8 * UNIT * (divergence - gain + np.abs(tail))
        return value

    return max(0.0, least_over_orders(bound, landmarks))


def delta_from_rdp(
    curve: Callable[[Array], Array], epsilon: float, *, slack: float = 0.0, landmarks: tuple[float, ...] = ()
) -> float:
    """Return the least delta over orders at which (epsilon, delta)-DP follows from the curve."""
    values = curve(ORDERS)
    if np.all(np.isinf(values)):
        return 1.0
    if math.isinf(epsilon) or np.all(values == 0):
        return slack

    # A smaller epsilon has no smaller delta: nothing overflows below this one.
    reached = min(epsilon, 1e200)

    def bound(orders: Array) -> Array:
        divergence, gain, above = curve(orders), np.log1p(-1.0 / orders), orders - 1.0
        error = 8 * UNIT * (above * (divergence + reached - gain) + np.log(orders))
        value: Array = above * (divergence - reached + gain) - np.log(orders) + error
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

    def rdp(self, orders: Array) -> Array:
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

    def rdp(self, orders: Array) -> Array:
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
