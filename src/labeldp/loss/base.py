"""What every privacy loss answers, the two with a finite worst case, and the arithmetic that composes losses exactly.

A loss is a frozen value. It holds for a symmetric neighbouring relation: whatever bounds M(D) against M(D') bounds
M(D') against M(D). All of its answers are upper bounds, rounded up.

>>> Pure(worst=1.0).epsilon(0.0), round(Pure(worst=1.0).delta(0.5), 6)
(1.0, 0.287649)
>>> BoundedRange(width=1.0).delta(0.0) < Pure(worst=1.0).delta(0.0)
True
>>> Pure(worst=1.0).to_json()
{'kind': 'pure', 'epsilon': 1.0}

**Losses of finite support** (`DiscreteLoss`). A pair (P, Q) that dominates a mechanism is held as its losses
l = log p/q and its masses under P; mass of infinite loss apart. Then

    delta(epsilon) = infinite + sum over l > epsilon of p (1 - e^(epsilon - l)),

which grows with every mass, and with every mass that moves to a larger loss. In sequence losses add and masses
multiply: a convolution. So these steps are safe:

- an atom between two points of a grid is split over both so that its mass under P and under Q is kept; since delta is
  convex in e^epsilon, linear interpolation between the knots e^(j h) lies above it;
- a profile is replaced by its linear interpolation at those knots (its slopes' changes are the masses);
- mass above the grid counts as infinite, mass below it moves up to the lowest point.

>>> response_power(1.0, 2).losses
array([-2.,  0.,  2.])
>>> round(response_power(1.0, 2).delta(1.0), 6)
0.337835

References: Mironov 2017 (Renyi DP); Bun & Steinke 2016 (zCDP and its approximate form); Kairouz, Oh & Viswanath 2015
(randomized response dominates every pure mechanism; its composition); Durfee & Rogers 2019 and Dong, Durfee & Rogers
2020 (bounded range); Cesar & Rogers 2021 (its zCDP, epsilon^2 / 8); Meiser & Mohammadi 2018 and Koskela, Jalko &
Honkela 2020 (convolution of privacy losses); Doroshenko et al. 2022 (connect the dots); Zhu, Dong & Wang 2022
(dominating pairs compose).

Design notes. `Loss.profile` is None where only a Renyi curve is known; such a loss composes through `rdp`. A loss with
a profile also composes by convolution (`labeldp.loss.compose`). The convolution is direct, not by FFT: its error is
relative to each mass, so that tiny deltas survive.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from labeldp.arrays import Float64s
from labeldp.loss.rounding import TINY, UNIT, bisect_down, probability_up, settle
from labeldp.validate import check_epsilon


class Loss(ABC):
    """The privacy loss of a mechanism: a set of upper bounds on how far two neighbours' outputs differ."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the least known epsilon such that (epsilon, delta)-DP holds; inf if there is none."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the least known delta such that (epsilon, delta)-DP holds."""

    @abstractmethod
    def rdp(self, orders: Float64s) -> Float64s:
        """Return bounds on the Renyi divergence at `orders` > 1, after an event of probability `slack` is set aside."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The words that name this loss to a reader."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, with inf as the string "inf"."""

    @property
    def slack(self) -> float:
        """The probability set aside before `rdp` holds (the delta of approximate RDP)."""
        return 0.0

    @property
    def landmarks(self) -> tuple[float, ...]:
        """Orders at which `rdp` is known best; an optimiser over orders tries them first."""
        return ()

    def profile(self, epsilons: Float64s) -> Float64s | None:
        """Return the exact privacy profile at `epsilons` >= 0, or None where only a Renyi curve is known."""
        return None

    def atoms(self) -> DiscreteLoss | None:
        """Return a dominating pair of finite support if this loss has one."""
        return None

    @property
    def key(self) -> str:
        """A text that orders losses, so that composition has one normal form."""
        return json.dumps(self.to_json(), sort_keys=True)


def to_number(value: float) -> float | str:
    """Return a JSON number, or "inf": strict JSON has no infinity."""
    return "inf" if math.isinf(value) else value


def from_number(value: Any) -> Any:
    """Undo `to_number`; anything else passes through to the check of the field that it fills."""
    return math.inf if value == "inf" else value


#: Points on each side of zero. One direct convolution of such arrays takes some tens of milliseconds.
HALF = 4000
#: Relative rounding of a grid's masses: second differences of a profile at spacing h lose about 1/h^2 ulps of it, and
#: h >= 1e-3 of the losses that matter, so 1e6 * 2^-52 = 2e-10.
GRID_ROUNDING = 1e-9
#: Masses below this are added to the infinite mass: they would turn denormal and slow the product down.
NEGLIGIBLE = 1e-290


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscreteLoss:
    """The losses, in increasing order, their masses under P, and the mass of infinite loss."""

    losses: Float64s
    masses: Float64s
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence at e^epsilon, rounded up."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        above = self.masses[first:] * -np.expm1(epsilon - self.losses[first:])
        return probability_up(self.infinite + float(np.sum(above)), relative=256 * UNIT)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 whose delta is met, from above."""
        top = float(max(self.losses[-1], 0.0))
        if self.delta(top) > delta:
            return math.inf
        return bisect_down(self.delta, delta, low=0.0, high=top)

    def rdp(self, orders: Float64s) -> Float64s:
        """Return the Renyi divergence given that the loss is finite.

        P conditioned on finite loss has masses p/(1 - infinite); its order-a divergence from Q is
        log(sum p/(1 - infinite) * (e^l/(1 - infinite))^(a-1))/(a - 1), so `infinite` is its slack.
        """
        kept = self.masses > 0
        scale = -math.log1p(-self.infinite)
        logs, losses = np.log(self.masses[kept]) + scale, self.losses[kept] + scale
        above = orders - 1.0
        sums = np.array([log_sum(logs + a * losses) for a in above])
        divergence: Float64s = np.maximum(sums, 0.0) / above * (1 + 64 * UNIT) + 64 * UNIT / above
        return divergence


def log_sum(logs: Float64s) -> float:
    """Return the logarithm of the sum of exponentials; scipy's own spends ten times as long on checks."""
    top = float(np.max(logs))
    return top + math.log(float(np.sum(np.exp(logs - top))))


def mirror_pair(losses: Float64s, masses: Float64s, infinite: float) -> DiscreteLoss:
    """Return the symmetric pair with these losses > 0: P(-l) = Q(l) = P(l) e^-l, and the rest at zero."""
    below = masses * np.exp(-losses)
    zero = max(0.0, 1.0 - infinite - math.fsum(masses) - math.fsum(below))
    return DiscreteLoss(
        losses=np.concatenate([-losses[::-1], [0.0], losses]),
        masses=np.concatenate([below[::-1], [zero], masses]),
        infinite=infinite,
    )


def response_power(epsilon: float, count: int) -> DiscreteLoss:
    """Return `count` binary randomized responses composed: losses (2i - count) epsilon, i binomial.

    The logarithm of a binomial mass errs by ulps of log(count!) + count * epsilon; the masses are raised by as much.
    """
    hits = np.arange(count + 1, dtype=np.float64)
    total = math.log1p(math.exp(-epsilon))
    choose = gammaln(count + 1) - gammaln(hits + 1) - gammaln(count - hits + 1)
    logs = choose - count * total - (count - hits) * epsilon
    error = 16 * UNIT * (float(gammaln(count + 1)) + count * (epsilon + 1.0))
    masses, losses = np.exp(logs + error), (2 * hits - count) * epsilon
    kept = masses >= NEGLIGIBLE
    # What is dropped is less than NEGLIGIBLE an atom; it counts as infinite loss.
    dropped = 0.0 if kept.all() else (count + 1) * NEGLIGIBLE
    return DiscreteLoss(losses=losses[kept], masses=masses[kept], infinite=dropped)


def split_on_grid(pair: DiscreteLoss, *, step: float) -> DiscreteLoss:
    """Return the pair with each atom split over the two grid points around it.

    At loss l in [x, x + h] the upper point gets the share (e^-x - e^-l)/(e^-x - e^-(x + h)): P and Q keep their mass.
    """
    lower = np.floor(pair.losses / step)
    share = np.clip(np.expm1(lower * step - pair.losses) / math.expm1(-step), 0.0, 1.0)
    masses = np.zeros(2 * HALF + 1)
    over = lower >= HALF
    index = np.clip(lower[~over].astype(np.int64), -HALF, HALF - 1) + HALF
    share = np.where(lower[~over] < -HALF, 0.0, share[~over])
    np.add.at(masses, index, pair.masses[~over] * (1.0 - share))
    np.add.at(masses, index + 1, pair.masses[~over] * share)
    infinite = pair.infinite + float(np.sum(pair.masses[over]))
    return build_grid_loss(masses * (1 + 64 * UNIT), infinite, step=step)


def pair_from_profile(profile: Callable[[Float64s], Float64s], *, step: float) -> DiscreteLoss:
    """Return the pair whose profile joins the dots of `profile` at the grid's points e^(j h), j >= 0.

    With H the profile as a function of x = e^epsilon, Q's mass at a knot is the change of slope there and P's is x times
    it: p_j = (H_(j+1) - H_j)/(e^h - 1) + (H_(j-1) - H_j)/(1 - e^-h). Past the last knot H stays: that is infinite loss.
    """
    deltas = profile(np.arange(HALF + 1, dtype=np.float64) * step)
    rise = np.append(np.diff(deltas)[1:], 0.0) / math.expm1(step)
    fall = -np.diff(deltas) / -math.expm1(-step)
    positive = np.maximum(rise + fall, 0.0) * (1 + GRID_ROUNDING)
    pair = mirror_pair(np.arange(1, HALF + 1, dtype=np.float64) * step, positive, float(deltas[-1]))
    return build_grid_loss(pair.masses * (1 + 64 * UNIT), pair.infinite, step=step)


def build_grid_loss(masses: Float64s, infinite: float, *, step: float) -> DiscreteLoss:
    """Return masses on the grid, with the negligible ones moved to infinity."""
    dust = masses < NEGLIGIBLE
    moved = float(np.sum(masses[dust])) + (TINY if np.any(masses[dust] > 0) else 0.0)
    losses = np.arange(-HALF, HALF + 1, dtype=np.float64) * step
    return DiscreteLoss(losses=losses, masses=np.where(dust, 0.0, masses), infinite=min(1.0, infinite + moved))


def convolve_pair(one: DiscreteLoss, two: DiscreteLoss, *, step: float) -> DiscreteLoss:
    """Return both on one grid in sequence: losses add, masses multiply."""
    full = np.convolve(one.masses, two.masses)
    middle = full[HALF : 3 * HALF + 1].copy()
    middle[0] += np.sum(full[:HALF])
    # A sum of m positive products errs by at most m ulps; m <= 2 HALF + 1.
    rounding = 1 + (4 * HALF + 8) * UNIT
    over = float(np.sum(full[3 * HALF + 1 :]))
    infinite = one.infinite + two.infinite + over * rounding
    return build_grid_loss(middle * rounding, infinite * (1 + 4 * UNIT), step=step)


def convolve_power(one: DiscreteLoss, count: int, *, step: float) -> DiscreteLoss:
    """Return `count` >= 1 of the same in sequence, by repeated squaring."""
    result: DiscreteLoss | None = None
    while True:
        if count & 1:
            result = one if result is None else convolve_pair(result, one, step=step)
        count >>= 1
        if not count:
            break
        one = convolve_pair(one, one, step=step)
    assert result is not None  # count >= 1 has a highest bit
    return result


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

    def profile(self, epsilons: Float64s) -> Float64s:
        if math.isinf(self.worst):
            return np.ones_like(epsilons)
        gap = np.minimum(epsilons - self.worst, 0.0)
        return np.minimum(1.0, -np.expm1(gap) / (1.0 + math.exp(-self.worst)) * (1 + CLOSED_FORM))

    def atoms(self) -> DiscreteLoss:
        return response_power(self.worst, 1)

    def rdp(self, orders: Float64s) -> Float64s:
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
        divergence: Float64s = np.where(shift <= 1.0, near, far) / (orders - 1.0) * (1 + CLOSED_FORM)
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

    def profile(self, epsilons: Float64s) -> Float64s:
        if math.isinf(self.width):
            return np.ones_like(epsilons)
        if self.width == 0:
            return np.zeros_like(epsilons)
        half = np.expm1(np.minimum(epsilons - self.width, 0.0) / 2)
        return np.minimum(1.0, half**2 / -math.expm1(-self.width) * (1 + CLOSED_FORM))

    def rdp(self, orders: Float64s) -> Float64s:
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
        return np.minimum(np.minimum(curve, self.width), self.width * self.width * (1 + CLOSED_FORM) * orders / 8)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "bounded_range", "epsilon": to_number(self.width)}
