r"""Discrete Gaussian noise on integers: its exact privacy profile, and the continuous Gaussian that dominates it.

>>> exact = DiscreteGaussian(variance=14.0, square=1)
>>> through_zcdp = ZCDP(rho=1 / 28)
>>> round(exact.epsilon(1e-5), 4), round(through_zcdp.epsilon(1e-5), 4)
(0.9997, 1.0886)

A statistic is a vector of integers. Independent noise with Pr[z] proportional to e^(-z^2/(2 V)) is added to each entry. One
change of the data moves the statistic by an integer vector D with |D|^2 <= n (`square`). Three bounds hold, and each
answer is the best of them.

**zCDP.** The Renyi divergence of order a is at most a n/(2 V), as for continuous noise (Canonne, Kamath & Steinke).

**Exact sums.** The noise z against z + D has the loss l = (|D|^2 + 2 T)/(2 V), where T is the sum of D_i z_i and its
law is that of the noise. So the pair is a list of losses and masses (`DiscreteLoss`), and the masses are a convolution of
one-dimensional ones. Signs of D_i do not matter, since the noise is symmetric. The worst D has |D|^2 = n exactly: leaving
out a coordinate is post-processing, so a further coordinate of 1 never lowers delta. What is left is the list of ways to
write n as a sum of squares: one for n <= 3, eight for n = 16. None of them is the worst for every epsilon, so all are
summed, and the largest delta counts. What lies beyond 20 standard deviations has probability below 1e-86 and counts as
infinite loss.

**A continuous Gaussian that is worse.** Write V = s^2 + t^2. Draw x from N(c, s^2) for an integer c, and then z from the
discrete Gaussian on the integers with centre x and variance t^2. By Poisson summation

    sum over z of e^(-(z - x)^2/(2 t^2)) = t sqrt(2 pi) (1 + 2 sum over j >= 1 of q^(j^2) cos(2 pi j x)),  q = e^(-2 pi^2 t^2),

which lies within t sqrt(2 pi) (1 +- h), h = 2 sum of q^(j^2). So Pr[z] lies between 1/(1 + h) and 1/(1 - h) times the
density of N(c, V) at z. The discrete Gaussian of centre c has that density divided by a constant w >= 1, the same for
every integer c. In k coordinates, for every set A of outcomes, with G for discrete noise and R for the two steps,

    G_0(A) - e^epsilon G_D(A) <= ((1 + h)/w)^k R_0(A) - e^epsilon ((1 - h)/w)^k R_D(A),

and R is post-processing of N(0, s^2) against N(D, s^2). With g(epsilon, m) the profile of the Gaussian, m = |D|/s,

    delta(epsilon) <= F g(epsilon - K, m),    F = (1 + h)^k,    K = k log((1 + h)/(1 - h)).                           (1)

Coordinates in which D is 0 play no part, so k <= n whatever the dimension. At last F and K become a little more m:

    F g(epsilon - K, m) <= g(epsilon, m (1 + r))   for all epsilon >= 0                                               (2)

if r >= 4 K/m^2 and r >= 2 sqrt(2 pi) c e^(m'^2/8)/m, with c = F - 1 + F K and m' = m (1 + r). Proof. Let
a(u) = epsilon/u - u/2 and b = a(m) - K/m. The derivative of g in m is phi(a(m)); the one in epsilon is between
-Phi(-a(m)) and 0, because g >= 0. So the left side exceeds g(epsilon, m) by at most c Phi(-b), and the right side
exceeds it by the integral of phi(a(u)) from m to m'. For u >= m (1 + r/2), a(u) <= a(m) - m r/4 <= b, and
a(u) >= -m'/2. If b <= 0, phi(a(u)) >= phi(m'/2) there, and the integral is at least (m r/2) phi(m'/2) >= c >= c Phi(-b).
If b > 0, phi(a(u)) >= min(phi(b), phi(m'/2)); Phi(-b) is at most 1/2 and at most sqrt(pi/2) phi(b), so the integral is at
least c Phi(-b) in either case. At negative epsilon both profiles follow from the positive side, since both pairs are
symmetric. So `Gaussian(mu = m (1 + r))` dominates the discrete noise, and takes its place in any composition (adaptive
too). It is a little worse by t^2/(2 V): 1e-3 of mu at a standard deviation of 20, nothing at 1000.

References: Canonne, Kamath & Steinke 2020 (the discrete Gaussian; Proposition 5, its zCDP; Theorem 7, its profile in one
dimension); Zhu, Dong & Wang 2022 (dominating pairs compose); Balle & Wang 2018 (the Gaussian profile); Micciancio & Regev
2007 (sums of Gaussians over a lattice are all alike once t is large: the use of Poisson summation above).

Design notes. The exact sums are used while sqrt(V n) <= REACH and n <= MOST_SQUARE: beyond, they cost more and gain less
than 1% over the dominating Gaussian. Masses and losses are rounded up, which never lowers delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from labeldp.arrays import Float64s
from labeldp.loss.base import DiscreteLoss, Loss
from labeldp.loss.curves import ZCDP, Gaussian
from labeldp.loss.rounding import TINY, UNIT, quotient_up, settle
from labeldp.validate import check_epsilon, check_integer, check_positive

#: Exact sums end here, in units of sqrt(V n) and of n.
REACH, MOST_SQUARE = 30.0, 16
#: Standard deviations kept of each sum.
FAR = 20.0
#: Masses below this count as infinite loss, and deltas below the next are compared with the other bounds.
NO_MASS, OUT_OF_SIGHT = 1e-200, 1e-80
#: A computed root may be short of the true one by its rounding; a square this close to an integer, relatively, is one.
NEARLY = 1 + Fraction(1, 10**12)
#: Beyond this mu the theorem's e^(m^2/8) asks for more smoothing than it is worth.
LARGEST_MEAN = 40.0


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(Loss):
    """Discrete Gaussian noise of one `variance` on integers that one change moves by at most sqrt(`square`) in length.

    `variance` is the parameter V of Pr[z] ~ e^(-z^2/(2 V)), > 0; `square` is an integer >= 0, and 0 costs nothing.
    delta = 0 needs infinite epsilon.
    """

    variance: float
    square: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", check_positive("DiscreteGaussian", "variance", self.variance))
        object.__setattr__(self, "square", check_integer("DiscreteGaussian", "square", self.square, least=0))

    @property
    def kind(self) -> str:
        return "discrete Gaussian"

    @property
    def zcdp(self) -> ZCDP:
        """Its zCDP, rho = n/(2 V)."""
        return ZCDP(rho=quotient_up(float(self.square), 2.0 * self.variance))

    @property
    def gaussian(self) -> Gaussian:
        """The continuous Gaussian loss that dominates it; mu is inf where the noise is too small for the theorem."""
        return Gaussian(mu=dominating_mu(self.variance, self.square))

    @classmethod
    def from_reach(cls, *, variance: Fraction | float, reach: float) -> DiscreteGaussian:
        """Return the loss at an L2 sensitivity `reach` of integers; every rounding is to the safe side.

        The square of an integer vector's length is an integer, so reach^2 is rounded down to one, after adding what the
        root may have lost. A reach in (0, 1), which no change of integers has, counts as 1. The variance is rounded down.
        """
        square = math.floor(Fraction(check_epsilon("DiscreteGaussian", reach, name="reach")) ** 2 * NEARLY)
        exact = Fraction(variance)
        near = float(exact)
        below = near if Fraction(near) <= exact else math.nextafter(near, 0.0)
        return cls(variance=below, square=max(square, 1) if reach > 0 else 0)

    def epsilon(self, delta: float) -> float:
        if self.square == 0:
            return 0.0
        exact = max((pair.epsilon(delta) for pair in self.pairs), default=math.inf)
        if math.isfinite(exact):
            return exact
        return settle(min(loss.epsilon(delta) for loss in self._dominating()), self.delta, delta)

    def delta(self, epsilon: float) -> float:
        if self.square == 0 or math.isinf(epsilon):
            return 0.0
        exact = max((pair.delta(epsilon) for pair in self.pairs), default=1.0)
        # Where the sums hold, they are the truth; near the mass that they left out, they are not.
        if self.pairs and exact > OUT_OF_SIGHT:
            return exact
        return min(exact, *(loss.delta(epsilon) for loss in self._dominating()))

    def profile(self, epsilons: Float64s) -> Float64s:
        if self.square == 0:
            return np.zeros_like(epsilons)
        if self.pairs:
            deltas = np.max([[pair.delta(float(epsilon)) for epsilon in epsilons] for pair in self.pairs], axis=0)
            return np.where(np.isinf(epsilons), 0.0, deltas)
        return self.gaussian.profile(epsilons)

    def atoms(self) -> DiscreteLoss | None:
        return self.pairs[0] if len(self.pairs) == 1 else None

    def rdp(self, orders: Float64s) -> Float64s:
        return self.zcdp.rdp(orders)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "discrete_gaussian", "variance": self.variance, "square": self.square}

    @property
    def pairs(self) -> tuple[DiscreteLoss, ...]:
        """The exact pairs, one for each way to write `square` as a sum of squares; none where they are too long."""
        fits = 0 < self.square <= MOST_SQUARE and self.variance * self.square <= REACH**2
        return sum_pairs(self.variance, self.square) if fits else ()

    @property
    def is_nearly_gaussian(self) -> bool:
        """Whether the Gaussian that dominates it has a mu of at most half a percent more than continuous noise has."""
        return self.gaussian.mu**2 <= 1.01 * self.square / self.variance

    def _dominating(self) -> list[Loss]:
        """The bounds to compare where there are no exact sums; zCDP only where the Gaussian is far from it."""
        return [self.gaussian] if self.is_nearly_gaussian else [self.gaussian, self.zcdp]


def dominating_mu(variance: float, square: int) -> float:
    """Return m (1 + r) of the module, for the t that makes it about least; inf where no t will do."""
    if square == 0:
        return 0.0
    n = float(square)
    ratio = n / variance
    # r is about q k (16/m^2 + 30 e^(m^2/8)/m); with t^2/(2 V) it is least where r = 1/(4 pi^2 V). Any t is valid.
    growth = 16.0 / ratio + 30.0 * math.exp(min(ratio / 8, 600.0)) / math.sqrt(ratio)
    second = max(0.1, (math.log(n) + math.log(growth) + math.log(4 * math.pi**2 * variance)) / (2 * math.pi**2))
    first = (variance - second) * (1 - 4 * UNIT)
    if not first > 0:
        return math.inf
    q = math.exp(-2 * math.pi**2 * second * (1 - 8 * UNIT)) * (1 + 8 * UNIT)
    h = 2 * q / (1 - q)  # at least 2 (q + q^4 + q^9 + ...)
    mean = math.sqrt(n / first) * (1 + 8 * UNIT)
    # Exponents beyond 1 are useless below: cut them, so that nothing overflows.
    shift = n * (math.log1p(h) - math.log1p(-h)) * (1 + 16 * UNIT)
    extra = math.expm1(min(1.0, n * math.log1p(h))) * (1 + 16 * UNIT)
    if shift > 1.0 or mean > LARGEST_MEAN:
        return math.inf
    both = extra + (1.0 + extra) * shift
    rise = max(4 * shift / mean**2, 2 * math.sqrt(2 * math.pi) * both * math.exp((1.1 * mean) ** 2 / 8) / mean)
    rise *= 1 + 64 * UNIT
    return mean * (1 + rise) * (1 + 8 * UNIT) if rise <= 0.1 else math.inf


def least_variance(*, mu: float, reach: float) -> float:
    """Return a variance whose noise, at this L2 sensitivity, is dominated by `Gaussian(mu)`; within a billionth the least."""
    if reach == 0 or math.isinf(mu):
        return 0.0
    square = DiscreteGaussian.from_reach(variance=1.0, reach=reach).square
    low = high = square / mu**2
    while not dominating_mu(high, square) <= mu:
        low, high = high, 2.0 * high
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (low, middle) if dominating_mu(middle, square) <= mu else (middle, high)
    return high


@lru_cache(maxsize=64)
def sum_pairs(variance: float, square: int) -> tuple[DiscreteLoss, ...]:
    """Return the exact pair of each D with |D|^2 = square, but for what lies FAR away."""
    return tuple(sum_pair(variance, shift) for shift in list_shifts(square))


def list_shifts(square: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write `square` as a sum of squares of falling integers.

    >>> list(list_shifts(5))
    [(2, 1), (1, 1, 1, 1, 1)]
    """
    if square == 0:
        yield ()
        return
    top = math.isqrt(square)
    for first in range(top if largest is None else min(top, largest), 0, -1):
        for rest in list_shifts(square - first * first, first):
            yield (first, *rest)


def sum_pair(variance: float, shift: tuple[int, ...]) -> DiscreteLoss:
    """Return losses and masses, rounded up, of the noise against the noise moved by `shift`."""
    one, beyond = noise_masses(variance)
    masses, lost, square = np.ones(1), 0.0, 0
    for step in shift:
        square += step * step
        spread = np.zeros(step * (one.size - 1) + 1)
        spread[::step] = one
        # A sum of m positive products errs by at most m ulps.
        masses = np.convolve(masses, spread) * (1 + 2 * (min(masses.size, spread.size) + 2) * UNIT)
        reach = math.ceil(FAR * math.sqrt(variance * square)) + 2 * square
        extra = max(0, (masses.size // 2) - reach)
        if extra:
            lost += 2.0 * math.fsum(masses[:extra])
            masses = masses[extra:-extra]
        lost += beyond
    half = masses.size // 2
    places = np.arange(-half, half + 1, dtype=np.float64)
    losses = (square + 2.0 * places) / (2.0 * variance)
    # Up, whatever its sign: two roundings.
    losses += np.abs(losses) * 4 * UNIT
    kept = masses > NO_MASS
    lost += NO_MASS * masses.size
    return DiscreteLoss(losses=losses[kept], masses=masses[kept], infinite=max(TINY, lost * (1 + 64 * UNIT)))


def noise_masses(variance: float) -> tuple[Float64s, float]:
    """Return Pr[z] for |z| <= x, rounded up, and a bound on Pr[|z| > x].

    The exponent is at most FAR^2/2 (or a few z^2/(2 V) more) and errs by two ulps of itself. The sum of all weights is
    at least the sum of those kept; beyond them the weights fall at least as fast as e^(-x/V) a step.
    """
    last = math.ceil(FAR * math.sqrt(variance)) + 2
    exponents = np.arange(0, last + 2, dtype=np.float64) ** 2 / (2.0 * variance)
    weights = np.exp(-exponents)
    error = 4 * UNIT * (float(np.max(np.where(weights > 0, exponents, 0.0))) + 4.0)
    total = (1.0 + 2.0 * math.fsum(weights[1:-1])) * (1 - error)
    right = weights[:-1] / total * (1 + error)
    fall = -math.expm1(-(last + 1) / variance)
    beyond = 2.0 * float(weights[-1]) / fall / total * (1 + 2 * error)
    return np.concatenate([right[:0:-1], right]), max(TINY, beyond)
