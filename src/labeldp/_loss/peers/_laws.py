r"""Laws of the counts of one cluster of peers, with a bound on how far floats may have moved them.

Of n users n1 have a positive label. After each label is flipped with probability alpha, the number of positive noisy
labels is X ~ Bin(n1, 1 - alpha) + Bin(n - n1, alpha). Each of m participants reports the noisy label of a uniformly
chosen user, so the number of positive reports given X is Bin(m, X / n).

Design notes. All terms are positive, so relative errors stay relative. A binomial probability is the exponential of a
sum of logarithms of size at most L = log n! + n max(log n, log 1/alpha): about ten roundings of relative size
u = 2^-53 of numbers of size L. Two of them convolved, one product of matrices and one running sum make
(30 L + 3 n) u < `relative_error`. What is cut off (`CUT`) is so far below `LEAST`, where profiles begin to count, that
it changes no digit there.
"""

from __future__ import annotations

import math

import numpy as np

from labeldp._loss.rounding import UNIT, Array
from labeldp._threads import over_spans

#: Probabilities of X below this are dropped ...
CUT = 1e-80
#: ... and probabilities of outputs below this are not counted but added to delta, n of them at most.
LEAST = 1e-50
#: Rows per step: their product with the binomials fits a core's cache.
ROWS = 64


def relative_error(n: int, alpha: float) -> float:
    """Return a bound on the relative error of a probability (see the module)."""
    size = math.lgamma(n + 1) + n * max(math.log(n + 1), -math.log(alpha))
    return 32 * UNIT * (size + n)


def log_factorials(n: int) -> Array:
    """Return log k! for k = 0 .. n, correctly rounded but for the last bit: summed in extended precision."""
    logs = np.log(np.arange(1, n + 1, dtype=np.longdouble))
    return np.asarray(np.concatenate([[0.0], np.cumsum(logs)]), np.float64)


def log_choices(n: int, factorials: Array) -> Array:
    """Return log (n choose k) for k = 0 .. n."""
    part: Array = factorials[: n + 1]
    answer: Array = factorials[n] - part - part[::-1]
    return answer


def binomial(n: int, probability: float, factorials: Array) -> Array:
    """Return the law of Bin(n, probability)."""
    k = np.arange(n + 1)
    if probability in {0.0, 1.0}:
        return np.asarray(k == (n if probability else 0), np.float64)
    logs = log_choices(n, factorials) + k * math.log(probability) + (n - k) * math.log1p(-probability)
    answer: Array = np.exp(logs)
    return answer


def noisy_sums(n: int, alpha: float, *, rows: int, factorials: Array) -> Array:
    """Return the law of X for n1 = 0 .. rows - 1 positives among n users, one per row."""
    from labeldp._loss.peers import _kernels as kernels  # compiled code loads only where it is used

    out = np.zeros((rows, n + 1))

    def work(low: int, high: int) -> None:
        kept, flipped = np.zeros((2, high - low, n + 1))
        windows = np.zeros((2, high - low, 2), np.int64)
        for r, positives in enumerate(range(low, high)):
            kept[r, : positives + 1] = binomial(positives, 1.0 - alpha, factorials)
            flipped[r, : n - positives + 1] = binomial(n - positives, alpha, factorials)
            windows[0, r], windows[1, r] = window(kept[r : r + 1]), window(flipped[r : r + 1])
        kernels.convolve_rows(kept, windows[0], flipped, windows[1], out[low:high])

    over_spans(work, rows, step=ROWS)
    return out


def window(laws: Array) -> tuple[int, int]:
    """Return [low, high) outside of which no row has a probability of `CUT`."""
    inside = np.flatnonzero((laws > CUT).any(axis=0))
    return int(inside[0]), int(inside[-1]) + 1


def report_table(n: int, m: int, factorials: Array) -> Array:
    """Return Pr[Bin(m, x / n) = k] for x = 0 .. n and k = 0 .. m."""
    from labeldp._loss.peers import _kernels as kernels

    out = np.zeros((n + 1, m + 1))
    with np.errstate(divide="ignore"):
        logs = np.log(np.arange(n + 1) / n)
    choices = log_choices(m, factorials)

    def work(low: int, high: int) -> None:
        failures = logs[::-1][low:high]  # log((n - x) / n) is log(x' / n) at x' = n - x
        kernels.binomial_rows(choices, logs[low:high], failures, math.log(CUT), out[low:high])

    over_spans(work, n + 1, step=ROWS)
    return out
