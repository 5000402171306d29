r"""Noise for selections: Gumbel by 128-bit uniforms, and which noise a noisy maximum may use.

>>> from labeldp._random import BitStream, NoiseKey
>>> gumbel(BitStream(NoiseKey.from_seed(1)), 3).shape
(3,)

References: Durfee & Rogers 2019 (Gumbel noise is the exponential mechanism); Canonne, Kamath & Steinke 2020 (discrete
Laplace and Gaussian).

Design notes. E = -log(1 - V) is exponential for uniform V, and -log E is Gumbel. The right tail of the Gumbel is small
V, so V is built with a relative error of 2^-53 down to 2^-129: two words, of which the second refines the first where
the first is small. The left tail is V near 1, and 1 - V is built the same way from the complement of the words.
Laplace and Gaussian noise on counts is discrete and exact (`labeldp._samplers`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from labeldp._random import BitStream
from labeldp._samplers import discrete_gaussian, discrete_laplace, rate_below, variance_above

Floats = npt.NDArray[np.float64]

NOISES = ("gumbel", "laplace", "gaussian")
#: Draws at a time: 2 MiB of words, whatever the number of candidates.
PIECE = 1 << 17
HALF = np.uint64(1) << np.uint64(63)


def exponential(bits: BitStream, size: int) -> Floats:
    """Draw `size` exponentials of mean 1, all positive and finite."""
    values = np.empty(size)
    for low in range(0, size, PIECE):
        count = min(PIECE, size - low)
        words = bits.take(2 * count).reshape(count, 2)
        upper = words[:, 0] >= HALF
        # The distance to the nearer end of (0, 1): V below a half, 1 - V above.
        folded = np.where(upper[:, None], ~words, words)
        near = np.ldexp(folded[:, 0].astype(np.float64), -64) + np.ldexp(folded[:, 1] + 0.5, -128)
        values[low : low + count] = np.where(upper, -np.log(near), -np.log1p(-near))
    return values


def gumbel(bits: BitStream, size: int) -> Floats:
    """Draw `size` standard Gumbel variables: Pr[G <= x] = exp(-e^-x)."""
    noise: Floats = -np.log(exponential(bits, size))
    return noise


def noisy(bits: BitStream, scores: Floats, *, noise: str, scale: float) -> Floats:
    """Return the scores with noise of this kind and scale (Gumbel and Laplace: the scale; Gaussian: sigma).

    The discrete draws are integers, so whole scores below 2^53 stay whole: the sum is exact.
    """
    if noise == "gumbel":
        return scores + scale * gumbel(bits, scores.size)
    if noise == "laplace":
        return scores + discrete_laplace(bits, rate=laplace_rate(scale), size=scores.size)
    return scores + discrete_gaussian(bits, variance=variance_above(scale**2), size=scores.size)


def laplace_rate(scale: float) -> Fraction:
    """Return a rational rate <= 1 / scale: the quotient is first moved down by an ulp, which covers its rounding."""
    return rate_below(math.nextafter(1 / scale, 0.0))


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
