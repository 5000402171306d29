"""The exact privacy loss of Gaussian noise.

>>> round(Gaussian(mu=1.0).epsilon(1e-5), 6)
4.377178

References: Balle & Wang 2018 (Theorem 8, the exact profile); Dong, Roth & Su 2022 (mu-GDP; composition adds mu^2).

Design notes. With z1 = epsilon/mu - mu/2, z2 = epsilon/mu + mu/2, phi the normal density and R(z) = Phi(-z)/phi(z) the
Mills ratio, e^epsilon phi(z2) = phi(z1), so

    delta = Phi(-z1) - e^epsilon Phi(-z2) = phi(z1) (R(z1) - R(z2)).

R = sqrt(pi/2) erfcx(z/sqrt 2) neither under- nor overflows for z >= 0. For small mu the difference cancels; it is then
the integral of 1 - z R(z) = -R'(z) over [z1, z2], by Gauss-Legendre. All errors stay below 1e-12 (tested against
50-digit arithmetic), and the result is raised by that much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtr

from labeldp._loss.base import Loss, to_number
from labeldp._loss.rounding import TINY, UNIT, Array, bisect_down, settle
from labeldp._validate import check_epsilon

#: phi(z1) loses z1^2 ulps and 1 - z R(z) about z^2 of them; z < 39 before delta underflows: 2 * 39^2 * 2^-52 = 7e-13.
ROUNDING = 1e-12
#: Beyond this z1 the density is below the smallest normal float.
FARTHEST = 37.5
#: Below this mu the difference of Mills ratios is integrated: 24 nodes are exact to the ulp on so short an interval.
SMALL = 0.5
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Loss):
    """N(0, 1) against N(mu, 1): Gaussian noise with mu = sensitivity / sigma."""

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_epsilon("Gaussian", self.mu, name="mu"))

    @property
    def kind(self) -> str:
        return "Gaussian"

    def delta(self, epsilon: float) -> float:
        return float(self.profile(np.array([epsilon], dtype=np.float64))[0])

    def profile(self, epsilons: Array) -> Array:
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

    def rdp(self, orders: Array) -> Array:
        return orders * (self.mu**2 / 2 * (1 + 8 * UNIT))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "gaussian", "mu": to_number(self.mu)}


def exact_delta(low: Array, mu: float) -> Array:
    """Return phi(z1) (R(z1) - R(z1 + mu)) for z1 = `low`, by whichever form does not cancel."""
    density = np.exp(-(low**2) / 2) / math.sqrt(2 * math.pi)
    if mu < SMALL:
        points = low[:, None] + mu * (1 + NODES) / 2
        slopes = 1.0 - points * mills(points)
        return density * (slopes @ WEIGHTS) * (mu / 2)
    left = ndtr(-low) - density * mills(low + mu)
    right = density * (mills(np.maximum(low, 0.0)) - mills(low + mu))
    chosen: Array = np.where(low < 0, left, right)
    return chosen


def mills(z: Array) -> Array:
    """Return Phi(-z)/phi(z)."""
    ratio: Array = math.sqrt(math.pi / 2) * erfcx(z / math.sqrt(2))
    return ratio
