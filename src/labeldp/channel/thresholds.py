"""Probabilities as integers: what the sampler compares its random words with, rounded so that no claim is exceeded.

>>> half = Fraction(1, 2)
>>> keep_threshold(half, half, least=half, share=half) == HALF_RANGE // 2
True

A word is 64 uniform bits. To keep a label its upper 63 bits are compared with an integer ``h`` in [0, 2^63], so that
"never" and "always" are exact. To redraw uniformly from k labels the word is scaled: each label gets floor(2^64 / k) or
one more of the 2^64 words. To redraw from a general row, the upper 63 bits are looked up in cumulative integer weights
that sum to 2^63 exactly.

The claim of a row is the ratio R = 1 + keep / (redraw base_min). With the integer weights the smallest share is m
(perhaps a little under base_min), and the sampled channel has ratio 1 + h / ((2^63 - h) m). It stays within the claim
iff h / (2^63 - h) <= q, where q = (keep / redraw) (m / base_min): so h = floor(2^63 q / (1 + q)), computed in exact
rational arithmetic.

Design notes. These numbers are made once per row (or per size of a candidate set) and shared by all examples, so exact
arithmetic costs nothing; the compiled loops of `labeldp.kernels` only compare.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from labeldp.arrays import Floats, Ints, Words

HALF_RANGE = 1 << 63
FULL_RANGE = 1 << 64
#: Up to this many classes the thresholds of all sizes cost less than finding out which sizes occur.
_ALL_SIZES = 64


def keep_threshold(keep: Fraction, redraw: Fraction, *, least: Fraction, share: Fraction) -> int:
    """Return h: a label is kept iff the upper 63 bits of its first word are below h.

    `least` is the smallest base probability of the claim, `share` the smallest one that the integer draw realises.
    """
    if redraw == 0:
        return HALF_RANGE
    odds = keep / redraw * min(share / least, Fraction(1))
    return math.floor(HALF_RANGE * odds / (1 + odds))


def uniform_share(size: int) -> Fraction:
    """Return the smallest probability of a label when a scaled 64-bit word picks one of `size`."""
    return Fraction(FULL_RANGE // size, FULL_RANGE)


def least_share(weights: list[int]) -> Fraction:
    """Return the smallest probability that cumulative integer weights realise (zeros are never drawn)."""
    return Fraction(min(w for w in weights if w > 0), HALF_RANGE)


def integer_weights(probabilities: Floats, total: int = HALF_RANGE) -> list[int]:
    """Return integers that sum to `total` in the proportions given; what rounding leaves goes to the largest.

    Zero stays zero and anything positive gets at least 1: a label that can be kept must also be one that others can
    turn into, or its appearance would give it away.
    """
    exact = [Fraction(float(p)) for p in probabilities]
    norm = sum(exact)
    weights = [max(1, math.floor(total * p / norm)) if p else 0 for p in exact]
    weights[int(np.argmax(probabilities))] += total - sum(weights)
    return weights


def cumulative_weights(weights: list[int]) -> Words:
    """Return the cumulative sums; label j is drawn iff the word lies in [c[j - 1], c[j])."""
    sums = np.cumsum(np.array(weights, dtype=np.uint64), dtype=np.uint64)
    return sums


def keep_thresholds(odds: float, sizes: Ints, n_classes: int) -> Words:
    """Return h for every candidate-set size that occurs, for keep = odds / (odds + k) and a uniform base."""
    table = np.zeros(n_classes + 1, np.uint64)
    exact = None if math.isinf(odds) else Fraction(odds)
    occurring = range(1, n_classes + 1) if n_classes <= _ALL_SIZES else np.flatnonzero(np.bincount(sizes)).tolist()
    for size in occurring:
        if exact is None:
            table[size] = HALF_RANGE
            continue
        keep, redraw = exact / (exact + size), Fraction(size) / (exact + size)
        table[size] = keep_threshold(keep, redraw, least=Fraction(1, size), share=uniform_share(size))
    return table
