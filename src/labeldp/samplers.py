r"""Exact integer noise: discrete Laplace, exponential and Gaussian without a single floating-point number in the draw.

Floating-point Laplace noise leaks through the gaps between floats (Mironov 2012). Here every decision compares a
uniform integer with an integer, so the law of the output is the stated one, not an approximation of it.

>>> from labeldp.random import BitStream, NoiseKey
>>> bits = BitStream(NoiseKey.from_seed(1))
>>> discrete_laplace(bits, rate=rate_below(0.5), size=6).dtype
dtype('int64')
>>> rate_below(0.1) <= 0.1, variance_above(2.5)
(True, Fraction(5, 2))

References: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Algorithms 1 to 3;
von Neumann, "Various techniques used in connection with random digits" (1951); Mironov, "On significance of the least
significant bits for differential privacy" (2012); Jin, McMurtry, Rubinstein, Ohrimenko, "Are we there yet? Timing and
floating-point attacks on differential privacy systems" (2022).

Design notes. One algorithm serves two representations: int64 arrays where every intermediate is known to stay below
`FITS`, and object arrays of Python integers elsewhere. The choice is made from bounds on the numbers at hand just
before they are multiplied. It never changes which words are taken nor what is decided, so it cannot change the law; a
rare large draw makes its piece slower, not wrong. No loop has a cap, so no tail is cut. How long a call takes depends
on the noise, as with any rejection sampler: time whole releases only, never single draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Array, Bools
from labeldp.errors import Described, invalid
from labeldp.random import BitStream
from labeldp.validate import check_integer, check_positive

WORD_BITS = 64
#: Numbers below this are handled as int64: a sum of two of them does not overflow.
FITS = 1 << 62
LARGEST_INT64 = (1 << 63) - 1
#: Proposals at a time. Working arrays of 1 MiB; measured 1.4 to 1.6 times as fast as 2^15, where calls cost.
PIECE = 1 << 17
#: Bits kept of a rate or variance: rounding moves it by less than 2^-20 < 1e-6 of itself.
KEPT_BITS = 21


def rate_below(value: float) -> Fraction:
    """Return a rational in (value (1 - 1e-6), value]: less rate is more noise, so rounding never costs privacy.

    The denominator is the smallest power of two that gives `KEPT_BITS` significant bits (2^24 for 0.1), and 1 for
    integers. Every float is a rational, so the rounding itself is exact.
    """
    exact = Fraction(check_positive("rate_below", "value", value, fix="For no noise, skip the draw."))
    scale = _binary_scale(exact)
    return Fraction(math.floor(exact * scale), scale)


def variance_above(value: float) -> Fraction:
    """Return a rational in [value, value (1 + 1e-6)): more variance is more noise, so rounding never costs privacy."""
    exact = Fraction(check_positive("variance_above", "value", value))
    scale = _binary_scale(exact)
    return Fraction(math.ceil(exact * scale), scale)


def discrete_laplace(bits: BitStream, *, rate: Fraction, size: int) -> npt.NDArray[np.int64]:
    r"""Draw `size` integers with ``Pr[z] = (e^rate - 1) / (e^rate + 1) * exp(-rate |z|)``.

    Algorithm 2. With rate = s/t, let X be the integer U + t V, where U is uniform on {0..t-1} and kept with
    probability exp(-U/t), and V counts successes of probability exp(-1) before a failure. Then
    Pr[X = x] is proportional to exp(-(x mod t)/t) exp(-floor(x/t)) = exp(-x/t). The s values of x with floor(x/s) = y
    have total weight proportional to exp(-y s/t). A fair sign doubles the weight of zero; rejecting "minus zero"
    repairs that.
    """
    size = check_integer("discrete_laplace", "size", size, least=0)
    rate = _check_rational("discrete_laplace", "rate", rate)
    return _collect("discrete_laplace", lambda count: _laplace_proposals(bits, rate, count), size)


def discrete_exponential(bits: BitStream, *, rate: Fraction, size: int) -> npt.NDArray[np.int64]:
    r"""Draw `size` integers z >= 0 with ``Pr[z] = (1 - e^-rate) exp(-rate z)``: the magnitudes of Algorithm 2, without a sign."""
    size = check_integer("discrete_exponential", "size", size, least=0)
    rate = _check_rational("discrete_exponential", "rate", rate)
    return _collect("discrete_exponential", lambda count: _exponential_proposals(bits, rate, count), size)


def discrete_gaussian(bits: BitStream, *, variance: Fraction, size: int) -> npt.NDArray[np.int64]:
    r"""Draw `size` integers with ``Pr[z]`` proportional to ``exp(-z^2 / (2 variance))``.

    Algorithm 3. Propose z from the discrete Laplace law of rate 1/t, t = floor(sigma) + 1, and keep it with
    probability exp(-(|z| - sigma^2/t)^2 / (2 sigma^2)). The exponents add up to
    -|z|/t - z^2/(2 sigma^2) + |z|/t - sigma^2/(2 t^2): the Gaussian's, but for a constant. The variance of the law
    is at most `variance`, and nearly equal to it from 1 on.
    """
    size = check_integer("discrete_gaussian", "size", size, least=0)
    variance = _check_rational("discrete_gaussian", "variance", variance)
    return _collect("discrete_gaussian", lambda count: _gaussian_proposals(bits, variance, count), size)


def bernoulli_exp(bits: BitStream, *, numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> Bools:
    """Toss coins with ``Pr[True] = exp(-numerator / denominator)``, element by element, for integers of any size.

    Algorithm 1. exp(-g) = exp(-1)^floor(g) * exp(-(g - floor(g))): True if all those coins are.
    """
    top = _check_integers("bernoulli_exp", "numerator", numerator, least=0)
    bottom = _check_integers("bernoulli_exp", "denominator", denominator, least=1)
    top, bottom = np.broadcast_arrays(top, bottom)
    return _bernoulli_exp(bits, top.reshape(-1), bottom.reshape(-1)).reshape(top.shape)


def uniform_below(bits: BitStream, bounds: npt.ArrayLike) -> Array:
    """Draw a uniform integer in [0, bound) for each bound; int64 where the bounds are below 2^62, else objects."""
    array = _check_integers("uniform_below", "bounds", bounds, least=1)
    if not array.size:
        return array
    return _uniform(bits, array.reshape(-1), array.size).reshape(array.shape)


def _exponential_proposals(bits: BitStream, rate: Fraction, count: int) -> Array:
    """The magnitudes of those of `count` runs of Algorithm 2 that are accepted: about 63 percent."""
    split, unit = rate.numerator, rate.denominator
    offsets = _uniform(bits, unit, count)
    offsets = offsets[_von_neumann(bits, offsets, unit, count)]
    magnitudes: Array = _product(_geometric(bits, offsets.size), unit) + offsets
    return _exact(magnitudes, split) // split if split > 1 else magnitudes


def _laplace_proposals(bits: BitStream, rate: Fraction, count: int) -> Array:
    """Magnitudes with a fair sign, less the minus zeros."""
    magnitudes = _exponential_proposals(bits, rate, count)
    negative = _fair_coins(bits, magnitudes.size)
    kept: Bools = ~(negative & (magnitudes == 0))
    signed: Array = np.where(negative, -magnitudes, magnitudes)
    return signed[kept]


def _gaussian_proposals(bits: BitStream, variance: Fraction, count: int) -> Array:
    """Those of `count` runs of Algorithm 3 that are accepted.

    With variance a/b the exponent (|z| - a/(b t))^2 b / (2 a) is (|z| b t - a)^2 / (2 a b t^2): integers over integers.
    """
    top, bottom = variance.numerator, variance.denominator
    scale = math.isqrt(top // bottom) + 1
    draws = discrete_laplace(bits, rate=Fraction(1, scale), size=count)
    magnitudes = np.abs(draws)
    # Every intermediate (|z| b t, its distance from a, the square) is below this; at least 1 so that b t counts too.
    reach = (max(_largest(magnitudes), 1) * bottom * scale + top) ** 2
    distances = _exact(magnitudes, reach) * (bottom * scale) - top
    return draws[_bernoulli_exp(bits, distances * distances, 2 * top * bottom * scale**2)]


def _bernoulli_exp(bits: BitStream, numerator: Array, denominator: Array | int) -> Bools:
    """`bernoulli_exp` on checked flat arrays; one denominator for all may be an int."""
    largest = _largest(denominator)
    numerator = _exact(numerator, largest)
    heads = _von_neumann(bits, _exact(numerator % denominator, largest), denominator, numerator.size)
    wholes = numerator // denominator
    alive = np.flatnonzero(heads & (wholes > 0))
    left = wholes[alive]
    while alive.size:
        won = _von_neumann(bits, 1, 1, alive.size)
        heads[alive[~won]] = False
        alive, left = alive[won], left[won] - 1
        unfinished = left > 0
        alive, left = alive[unfinished], left[unfinished]
    return heads


def _von_neumann(bits: BitStream, numerator: Array | int, denominator: Array | int, count: int) -> Bools:
    """Coins of probability exp(-g) for g = numerator / denominator in [0, 1].

    Toss coins of probability g/1, g/2, g/3, ... until tails at toss K. Pr[K > k] = g^k / k!, so
    Pr[K odd] = sum over k of (-g)^k / k! = exp(-g).
    """
    odd = np.ones(count, bool)
    active = np.arange(count)
    toss = 1
    while active.size:
        heads = _coins(bits, numerator, _product(denominator, toss), active.size)
        active, numerator, denominator = active[heads], _pick(numerator, heads), _pick(denominator, heads)
        odd[active] ^= True
        toss += 1
    return odd


def _geometric(bits: BitStream, count: int) -> npt.NDArray[np.int64]:
    """How many coins of probability exp(-1) come up heads before the first tails."""
    totals = np.zeros(count, np.int64)
    active = np.arange(count)
    while active.size:
        active = active[_von_neumann(bits, 1, 1, active.size)]
        totals[active] += 1
    return totals


def _coins(bits: BitStream, numerator: Array | int, denominator: Array | int, count: int) -> Bools:
    """Coins of probability numerator / denominator <= 1: the first `numerator` of `denominator` equal steps win."""
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator == denominator:
        return np.ones(count, bool)
    words, step = _stepped_words(bits, denominator, count)
    if not isinstance(numerator, int):
        numerator = numerator.astype(words.dtype, copy=False)
    return np.asarray(words < step * numerator, bool)


def _uniform(bits: BitStream, bound: Array | int, count: int) -> Array:
    """Uniform integers below each bound."""
    words, step = _stepped_words(bits, bound, count)
    values: Array = words // step
    return _exact(values, _largest(bound))


def _stepped_words(bits: BitStream, bound: Array | int, count: int) -> tuple[Array, Any]:
    """Words uniform on [0, step * bound), with step = floor((2^64 - 1) / bound): words beyond are drawn again.

    A word is thrown away with probability about bound / 2^64, where cutting words to the bound's bit length would
    throw away up to half. Bounds of more than 64 bits take as many words as they need.
    """
    largest = _largest(bound)
    n_words = -(-largest.bit_length() // WORD_BITS)
    kind: npt.DTypeLike = np.uint64 if largest < FITS else object
    # [()] turns an array without axes into its number, so one bound for all stays one number.
    bounds = np.asarray(bound, dtype=kind)[()]
    step = np.asarray((1 << WORD_BITS * n_words) - 1, dtype=kind)[()] // bounds
    limit = step * bounds
    words = _raw_words(bits, n_words, count, kind)
    again = np.flatnonzero(words >= limit)
    while again.size:
        words[again] = _raw_words(bits, n_words, again.size, kind)
        again = again[words[again] >= (limit if isinstance(bound, int) else limit[again])]
    return words, step


def _raw_words(bits: BitStream, n_words: int, count: int, kind: npt.DTypeLike) -> Array:
    """Uniform integers of 64 `n_words` bits, the first word on top."""
    words = bits.take(count * n_words).reshape(count, n_words)
    values: Array = words[:, 0].astype(kind, copy=False)
    for column in range(1, n_words):
        values = (values << WORD_BITS) | words[:, column].astype(object)
    return values


def _fair_coins(bits: BitStream, count: int) -> Bools:
    """Fair coins, 64 to a word."""
    words = bits.take(-(-count // WORD_BITS))
    return np.unpackbits(words.view(np.uint8), count=count).view(np.bool_)


def _collect(owner: str, propose: Callable[[int], Array], size: int) -> npt.NDArray[np.int64]:
    """Propose until `size` values are accepted; they are independent, so dropping the surplus changes nothing."""
    values = np.empty(size, np.int64)
    done = 0
    while done < size:
        accepted = propose(min(PIECE, 2 * (size - done) + 8))[: size - done]
        if accepted.dtype == object and accepted.size and _largest(np.abs(accepted)) > LARGEST_INT64:
            got = Described("a draw beyond 2^63")
            raise invalid(owner, "size of the noise", "fit in 64 bits", got=got, fix="Use less noise or coarser units.")
        values[done : done + accepted.size] = accepted
        done += accepted.size
    return values


def _exact(values: Array, largest: int) -> Array:
    """`values` as int64 if they and `largest` are below `FITS`, else as Python integers."""
    return values.astype(np.int64 if max(largest, _largest(values)) < FITS else object, copy=False)


def _product(values: Any, factor: int) -> Any:
    """Nonnegative ``values * factor``, exactly: Python integers unless the largest product fits."""
    if isinstance(values, int):
        return values * factor
    largest = _largest(values) * max(factor, 1)
    return _exact(values, max(largest, factor)) * factor


def _largest(values: Array | int) -> int:
    """The largest of nonnegative integers; 0 if there are none."""
    if isinstance(values, int):
        return values
    return int(values.max()) if values.size else 0


def _pick(values: Any, mask: Bools) -> Any:
    """The masked part of an array; a number stands for all elements and stays."""
    return values if isinstance(values, int) else values[mask]


def _binary_scale(value: Fraction) -> int:
    """The least power of two that brings `value` to at least 2^(KEPT_BITS - 1)."""
    # value >= 2^(lead - 1), from the bit lengths of both parts.
    lead = value.numerator.bit_length() - value.denominator.bit_length()
    exponent = max(KEPT_BITS - 1 - lead, 0)
    return 1 << (exponent if value * (1 << exponent) >= 1 << (KEPT_BITS - 1) else exponent + 1)


def _check_rational(owner: str, name: str, value: Any) -> Fraction:
    """Return a Fraction > 0; a float is refused, since only the caller knows which way to round it."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        fix = "Round a float to the safe side with rate_below or variance_above."
        raise invalid(owner, name, "be a Fraction > 0", got=value, fix=fix)
    return Fraction(value)


def _check_integers(owner: str, name: str, values: npt.ArrayLike, *, least: int) -> Array:
    """Return an array of integers >= least in the representation that fits."""
    array = np.asarray(values)
    whole = array.dtype.kind in "iu" or all(type(value) is int for value in array.flat)
    if not whole:
        raise invalid(owner, name, f"hold integers >= {least}", got=Described(f"dtype {array.dtype}"))
    if array.size and array.min() < least:
        raise invalid(owner, name, f"hold integers >= {least}", got=int(array.min()))
    return _exact(array, 0)
