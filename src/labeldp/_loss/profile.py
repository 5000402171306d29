"""An exact privacy profile, known at finitely many epsilons: the loss of an enumerated mechanism.

>>> from math import e
>>> response = Profile(epsilons=(0.0, 1.0), deltas=((e - 1) / (e + 1), 0.0))
>>> round(response.epsilon(0.0), 9), round(response.delta(0.5), 6)
(1.0, 0.287649)

References: Zhu, Dong & Wang 2022 (Proposition 10: from a profile to a dominating pair); Balle, Barthe & Gaboardi 2018.

Design notes. As a function of x = e^epsilon the profile H is convex, falls from H(0) = 1, and for a symmetric relation
H(1/x) = 1 - 1/x + H(x)/x. So the lower convex hull of the known points and their mirror images is a bound wherever the
known points are bounds; it is exact for a mechanism whose log-ratios are all among the knots. Past the last knot H
keeps its last value. The changes of the hull's slope are the masses of a dominating pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from labeldp._loss.base import Loss
from labeldp._loss.discrete import DiscreteLoss, mirrored
from labeldp._loss.rounding import UNIT, Array, settle
from labeldp._validate import check_real
from labeldp.errors import Described, invalid

#: e^700 is still a float; a larger epsilon is no privacy to speak of.
LARGEST = 700.0
#: How far a knot may lie above the hull of the others: rounding of a sum over a million outcomes, with room to spare.
CONVEX_WITHIN = 1e-9


@dataclass(frozen=True, kw_only=True)
class Profile(Loss):
    """delta at each of `epsilons` (>= 0, increasing)."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        epsilons = tuple(check_real("Profile", "epsilons", value) for value in self.epsilons)
        deltas = tuple(check_real("Profile", "deltas", value) for value in self.deltas)
        check_knots(epsilons, deltas)
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "deltas", deltas)
        points, heights = hull(self)
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

    def profile(self, epsilons: Array) -> Array:
        points, heights = hull(self)
        line = np.interp(np.exp(np.minimum(epsilons, LARGEST)), points, heights)
        return np.where(epsilons >= self.epsilons[-1], self.deltas[-1], np.minimum(1.0, line * (1 + 64 * UNIT)))

    def epsilon(self, delta: float) -> float:
        points, heights = hull(self)
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
        return pair_of(self)

    def rdp(self, orders: Array) -> Array:
        return pair_of(self).rdp(orders) if self.slack < 1 else np.full_like(orders, np.inf)

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
def hull(loss: Profile) -> tuple[Array, Array]:
    """Return the lower convex hull of (0, 1), the mirrored knots and the knots, as x and H."""
    x = np.exp(loss.epsilons)
    h = np.asarray(loss.deltas)
    keep = x > 1
    points = [0.0, *(1 / x[keep])[::-1], *x]
    heights = [1.0, *(1 - 1 / x[keep] + h[keep] / x[keep])[::-1], *h]
    chain: list[tuple[float, float]] = []
    for point in zip(points, heights, strict=True):
        while len(chain) > 1 and _above(chain[-2], chain[-1], point):
            chain.pop()
        chain.append((float(point[0]), float(point[1])))
    corners = np.array(chain)
    return corners[:, 0], corners[:, 1]


def _above(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle point lies on or above the line between the others."""
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])


@lru_cache(maxsize=32)
def pair_of(loss: Profile) -> DiscreteLoss:
    """Return the dominating pair: at each corner x > 1, mass x * (change of slope) under P."""
    points, heights = hull(loss)
    slopes = np.append(np.diff(heights) / np.diff(points), 0.0)
    right = points[1:] > 1
    masses = (points[1:] * np.diff(slopes))[right]
    raised = np.maximum(masses, 0.0) * (1 + 64 * UNIT)
    return mirrored(np.log(points[1:][right]), raised, loss.deltas[-1])
