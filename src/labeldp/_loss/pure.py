"""Losses with a finite worst case: pure epsilon, and the smaller one of mechanisms with a bounded range.

>>> Pure(worst=1.0).epsilon(0.0), round(Pure(worst=1.0).delta(0.5), 6)
(1.0, 0.287649)
>>> BoundedRange(width=1.0).delta(0.0) < Pure(worst=1.0).delta(0.0)
True

References: Kairouz, Oh & Viswanath 2015 (randomized response dominates every pure mechanism); Durfee & Rogers 2019 and
Dong, Durfee & Rogers 2020 (bounded range); Cesar & Rogers 2021 (its zCDP, epsilon^2 / 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp._loss.base import Loss, to_number
from labeldp._loss.discrete import DiscreteLoss, response_power
from labeldp._loss.rounding import UNIT, Array, settle
from labeldp._validate import check_epsilon

#: Relative error of the closed forms below: a dozen operations, each within two ulps.
CLOSED_FORM = 32 * UNIT


@dataclass(frozen=True, kw_only=True)
class Pure(Loss):
    """Pure epsilon-DP: no log-ratio exceeds `worst`, written eps here, E = e^eps.

    Binary randomized response dominates every such mechanism: P = (E, 1)/(E + 1), Q = (1, E)/(E + 1).
    Its hockey-stick divergence at e^t, 0 <= t < eps, is E/(E+1) - e^t/(E+1), hence

        delta(t) = (E - e^t)/(E + 1) = (1 - e^(t - eps)) / (1 + e^-eps),
        epsilon(delta) = log(E - delta (E + 1)) = eps + log(1 - delta (1 + e^-eps)),  at least 0.

    Its Renyi divergence, with s = (a - 1) eps and E/(E+1) = (1 + tanh(eps/2))/2, is
    log(cosh s + tanh(eps/2) sinh s)/(a - 1).
    """

    worst: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "worst", check_epsilon("Pure", self.worst, name="worst"))

    @property
    def kind(self) -> str:
        return "pure"

    def epsilon(self, delta: float) -> float:
        if delta == 0 or math.isinf(self.worst):
            return self.worst
        left = 1.0 - delta * (1.0 + math.exp(-self.worst))
        guess = self.worst + math.log(left) if left > 0 else 0.0
        return min(self.worst, settle(guess, self.delta, delta))

    def delta(self, epsilon: float) -> float:
        if math.isinf(self.worst):
            return 1.0
        return float(self.profile(np.array([epsilon]))[0])

    def profile(self, epsilons: Array) -> Array:
        if math.isinf(self.worst):
            return np.ones_like(epsilons)
        gap = np.minimum(epsilons - self.worst, 0.0)
        return np.minimum(1.0, -np.expm1(gap) / (1.0 + math.exp(-self.worst)) * (1 + CLOSED_FORM))

    def atoms(self) -> DiscreteLoss:
        return response_power(self.worst, 1)

    def rdp(self, orders: Array) -> Array:
        """Return the Renyi divergence of binary randomized response.

        For s <= 1: log1p(2 sinh^2(s/2) + tanh(eps/2) sinh s), all terms >= 0, so nothing cancels. For s > 1:
        log p + s + log1p(e^(-eps - 2s)) with p = E/(E+1) >= 1/2, where s outweighs log p.
        """
        if math.isinf(self.worst):
            return np.full_like(orders, np.inf)
        shift = (orders - 1.0) * self.worst
        small = np.minimum(shift, 1.0)
        near = np.log1p(2 * np.sinh(small / 2) ** 2 + math.tanh(self.worst / 2) * np.sinh(small))
        far = shift - math.log1p(math.exp(-self.worst)) + np.log1p(np.exp(-self.worst - 2 * shift))
        divergence: Array = np.where(shift <= 1.0, near, far) / (orders - 1.0) * (1 + CLOSED_FORM)
        return np.minimum(divergence, self.worst)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "pure", "epsilon": to_number(self.worst)}


@dataclass(frozen=True, kw_only=True)
class BoundedRange(Loss):
    """A mechanism whose log-ratios span at most `width` (eps): some t has every log-ratio in [t - eps, t].

    The exponential mechanism and report-noisy-max with Gumbel noise are of this kind. For a given t in [0, eps] the
    worst pair has the two losses t and t - eps; Q sums to one when P(t) = (E - e^t)/(E - 1). Then at e^u

        delta_t(u) = (E - e^t)(1 - e^(u - t))/(E - 1),

    which is largest at e^t = sqrt(E e^u), where it equals

        delta(u) = (e^(eps/2) - e^(u/2))^2/(E - 1) = (1 - e^((u - eps)/2))^2/(1 - e^-eps),
        epsilon(delta) = eps + 2 log(1 - sqrt(delta (1 - e^-eps))).

    The Renyi divergence is the largest over t of log(P(t) e^((a-1)t) + (1 - P(t)) e^((a-1)(t - eps)))/(a - 1), at
    t* = eps + log[(1 - 1/a)(1 - e^(-a eps))/(1 - e^(-(a-1) eps))]. It is at most eps and at most a eps^2/8.
    """

    width: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_epsilon("BoundedRange", self.width, name="width"))

    @property
    def kind(self) -> str:
        return "bounded range"

    def epsilon(self, delta: float) -> float:
        if delta == 0 or self.width == 0 or math.isinf(self.width):
            return self.width
        root = math.sqrt(delta * -math.expm1(-self.width))
        guess = self.width + 2 * math.log1p(-root) if root < 1 else 0.0
        return min(self.width, settle(guess, self.delta, delta))

    def delta(self, epsilon: float) -> float:
        if math.isinf(self.width):
            return 1.0
        return float(self.profile(np.array([epsilon]))[0])

    def profile(self, epsilons: Array) -> Array:
        if math.isinf(self.width):
            return np.ones_like(epsilons)
        if self.width == 0:
            return np.zeros_like(epsilons)
        half = np.expm1(np.minimum(epsilons - self.width, 0.0) / 2)
        return np.minimum(1.0, half**2 / -math.expm1(-self.width) * (1 + CLOSED_FORM))

    def rdp(self, orders: Array) -> Array:
        """Return the curve at t*, plus 16 ulps of eps: the two terms of its logarithm cancel down from that size.

        t* itself may err by its rounding; the function is flat there, so that error counts twice over as a square.
        """
        if self.width == 0 or math.isinf(self.width):
            return np.full_like(orders, self.width)
        above = orders - 1.0
        ratio = -np.expm1(-orders * self.width) / -np.expm1(-above * self.width)
        peak = np.clip(self.width + np.log(above / orders * ratio), 0.0, self.width)
        low = 1.0 - np.expm1(peak - self.width) / math.expm1(-self.width)
        curve = peak + np.log1p(low * np.expm1(-above * self.width)) / above + 16 * UNIT * self.width
        return np.minimum(np.minimum(curve, self.width), self.width**2 * (1 + CLOSED_FORM) * orders / 8)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "bounded_range", "epsilon": to_number(self.width)}
