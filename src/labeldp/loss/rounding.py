"""Rounding to the safe side: a privacy number may be too large by an ulp, never too small.

>>> sum_up([(0.1, 3)]) >= 0.3
True

Design notes: each loss computes in floats with a known relative error, then moves its answer up by more than that
error. Where a closed form gives epsilon(delta), `settle` checks it against delta(epsilon), so that the two functions
of one loss never contradict each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction

#: Half an ulp of 1: the relative error of one correctly rounded operation.
UNIT = 2.0**-53
#: The smallest normal float: what a positive delta that underflows is rounded up to.
TINY = sys.float_info.min


def raise_up(value: float, *, relative: float = 16 * UNIT) -> float:
    """Return `value` >= 0 enlarged by a relative error; 0 and inf stay."""
    return value * (1.0 + relative)


def probability_up(value: float, *, relative: float = 16 * UNIT) -> float:
    """Return a probability rounded up, at most 1."""
    return min(1.0, raise_up(value, relative=relative))


def fraction_up(exact: Fraction) -> float:
    """Return the smallest float >= an exact rational >= 0."""
    try:
        near = float(exact)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def sum_up(terms: Iterable[tuple[float, int]]) -> float:
    """Return the sum of value * count, exact and then rounded up to a float."""
    kept = [(value, count) for value, count in terms if value > 0 and count > 0]
    if any(math.isinf(value) for value, _ in kept):
        return math.inf
    return fraction_up(sum((Fraction(value) * count for value, count in kept), start=Fraction(0)))


def quotient_up(numerator: float, denominator: float) -> float:
    """Return the smallest float >= numerator / denominator, for numerator >= 0 and denominator > 0."""
    if math.isinf(numerator) or math.isinf(denominator):
        return math.inf if math.isinf(numerator) else 0.0
    return fraction_up(Fraction(numerator) / Fraction(denominator))


def root_up(value: float) -> float:
    """Return a float >= the square root of `value`."""
    root = math.sqrt(value)
    return root if math.isinf(root) or Fraction(root) ** 2 >= Fraction(value) else math.nextafter(root, math.inf)


def settle(candidate: float, delta_of: Callable[[float], float], delta: float) -> float:
    """Return the candidate, or the nearest larger float found by doubling steps, whose delta is met.

    A candidate misses by rounding only; where even twice as much and one more does not do, nothing will.
    """
    epsilon = max(0.0, candidate)
    step, most = max(epsilon, 1e-12) * 2 * UNIT, 2 * epsilon + 1.0
    while math.isfinite(epsilon) and delta_of(epsilon) > delta:
        epsilon = epsilon + step if epsilon <= most else math.inf
        step *= 2.0
    return epsilon


def bisect_down(delta_of: Callable[[float], float], delta: float, *, low: float, high: float) -> float:
    """Return the least epsilon in [low, high] that meets delta, from above: `high` must meet it.

    The invariant is delta(high) <= delta; the loop ends when the bracket is one relative 2^-50 wide.
    """
    if delta_of(low) <= delta:
        return low
    while high - low > high * 2.0**-50:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high
