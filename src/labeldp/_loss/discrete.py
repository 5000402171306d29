"""Privacy losses of finite support: what convolution composes, with every rounding on the pessimistic side.

>>> response_power(1.0, 2).losses
array([-2.,  0.,  2.])
>>> round(response_power(1.0, 2).delta(1.0), 6)
0.337835

References: Kairouz, Oh & Viswanath 2015 (composition of randomized response); Meiser & Mohammadi 2018 and Koskela,
Jalko & Honkela 2020 (convolution of privacy losses); Doroshenko et al. 2022 (connect the dots); Zhu, Dong & Wang 2022
(dominating pairs compose).

Design notes. A pair (P, Q) is held as its losses l = log p/q and its masses under P; mass of infinite loss apart. Then
delta(epsilon) = infinite + sum over l > epsilon of p (1 - e^(epsilon - l)), which grows with every mass, and with
every mass that moves to a larger loss. So these steps are safe:

- an atom between two points of a grid is split over both so that its mass under P and under Q is kept; since
  delta is convex in e^epsilon, linear interpolation between the knots e^(j h) lies above it;
- a profile is replaced by its linear interpolation at those knots (its slopes' changes are the masses);
- mass above the grid counts as infinite, mass below it moves up to the lowest point.

The convolution is direct, not by FFT: its error is relative to each mass, so that tiny deltas survive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from labeldp._loss.rounding import TINY, UNIT, Array, bisect_down, probability_up

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

    losses: Array
    masses: Array
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

    def rdp(self, orders: Array) -> Array:
        """Return the Renyi divergence given that the loss is finite.

        P conditioned on finite loss has masses p/(1 - infinite); its order-a divergence from Q is
        log(sum p/(1 - infinite) * (e^l/(1 - infinite))^(a-1))/(a - 1), so `infinite` is its slack.
        """
        kept = self.masses > 0
        scale = -math.log1p(-self.infinite)
        logs, losses = np.log(self.masses[kept]) + scale, self.losses[kept] + scale
        above = orders - 1.0
        sums = np.array([log_sum(logs + a * losses) for a in above])
        divergence: Array = np.maximum(sums, 0.0) / above * (1 + 64 * UNIT) + 64 * UNIT / above
        return divergence


def log_sum(logs: Array) -> float:
    """Return the logarithm of the sum of exponentials; scipy's own spends ten times as long on checks."""
    top = float(np.max(logs))
    return top + math.log(float(np.sum(np.exp(logs - top))))


def mirrored(losses: Array, masses: Array, infinite: float) -> DiscreteLoss:
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


def on_grid(pair: DiscreteLoss, *, step: float) -> DiscreteLoss:
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
    return grid_loss(masses * (1 + 64 * UNIT), infinite, step=step)


def from_profile(profile: Callable[[Array], Array], *, step: float) -> DiscreteLoss:
    """Return the pair whose profile joins the dots of `profile` at the grid's points e^(j h), j >= 0.

    With H the profile as a function of x = e^epsilon, Q's mass at a knot is the change of slope there and P's is x times
    it: p_j = (H_(j+1) - H_j)/(e^h - 1) + (H_(j-1) - H_j)/(1 - e^-h). Past the last knot H stays: that is infinite loss.
    """
    deltas = profile(np.arange(HALF + 1, dtype=np.float64) * step)
    rise = np.append(np.diff(deltas)[1:], 0.0) / math.expm1(step)
    fall = -np.diff(deltas) / -math.expm1(-step)
    positive = np.maximum(rise + fall, 0.0) * (1 + GRID_ROUNDING)
    pair = mirrored(np.arange(1, HALF + 1, dtype=np.float64) * step, positive, float(deltas[-1]))
    return grid_loss(pair.masses * (1 + 64 * UNIT), pair.infinite, step=step)


def grid_loss(masses: Array, infinite: float, *, step: float) -> DiscreteLoss:
    """Return masses on the grid, with the negligible ones moved to infinity."""
    dust = masses < NEGLIGIBLE
    moved = float(np.sum(masses[dust])) + (TINY if np.any(masses[dust] > 0) else 0.0)
    losses = np.arange(-HALF, HALF + 1, dtype=np.float64) * step
    return DiscreteLoss(losses=losses, masses=np.where(dust, 0.0, masses), infinite=min(1.0, infinite + moved))


def product(one: DiscreteLoss, two: DiscreteLoss, *, step: float) -> DiscreteLoss:
    """Return both on one grid in sequence: losses add, masses multiply."""
    full = np.convolve(one.masses, two.masses)
    middle = full[HALF : 3 * HALF + 1].copy()
    middle[0] += np.sum(full[:HALF])
    # A sum of m positive products errs by at most m ulps; m <= 2 HALF + 1.
    rounding = 1 + (4 * HALF + 8) * UNIT
    over = float(np.sum(full[3 * HALF + 1 :]))
    infinite = one.infinite + two.infinite + over * rounding
    return grid_loss(middle * rounding, infinite * (1 + 4 * UNIT), step=step)


def power(one: DiscreteLoss, count: int, *, step: float) -> DiscreteLoss:
    """Return `count` >= 1 of the same in sequence, by repeated squaring."""
    result: DiscreteLoss | None = None
    while True:
        if count & 1:
            result = one if result is None else product(result, one, step=step)
        count >>= 1
        if not count:
            break
        one = product(one, one, step=step)
    assert result is not None  # count >= 1 has a highest bit
    return result
