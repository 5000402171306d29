"""Compiled loops of the peer-to-peer accountant: laws of noisy sums, and profiles of neighbouring laws."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_JIT: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False, "error_model": "numpy"}


@numba.njit(**_JIT)
def convolve_rows(
    kept: Any, starts: Any, flipped: Any, starts_flipped: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Write row r = the law of a sum of two independent counts, given by their nonzero windows."""
    for r in range(out.shape[0]):
        for a in range(starts[r, 0], starts[r, 1]):
            weight = kept[r, a]
            for b in range(starts_flipped[r, 0], starts_flipped[r, 1]):
                out[r, a + b] += weight * flipped[r, b]


@numba.njit(fastmath={"contract"}, **_JIT)
def multiply(left: Any, right: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Add left @ right to out, four rows of `right` at a time.

    Not BLAS: its threads wait for each other, which on a busy machine made this ten times slower.
    """
    inner, width = right.shape
    for r in range(left.shape[0]):
        for x in range(0, inner - inner % 4, 4):
            a, b, c, d = left[r, x], left[r, x + 1], left[r, x + 2], left[r, x + 3]
            for k in range(width):
                out[r, k] += (a * right[x, k] + b * right[x + 1, k]) + (c * right[x + 2, k] + d * right[x + 3, k])
        for x in range(inner - inner % 4, inner):
            for k in range(width):
                out[r, k] += left[r, x] * right[x, k]


@numba.njit(**_JIT)
def add_profiles(laws: Any, factors: Any, weight: Any, slip: Any, least: Any, out: Any) -> None:  # pragma: no cover
    """Add weight * hockey-stick(laws[i + 1] against laws[i]) to out[i, 0, :], and the other way to out[i, 1, :].

    `factors` are e^epsilon, falling. The ratio of neighbouring laws rises with k, so the set {ratio > factor} is a tail
    that grows as the factor falls: one walk from the end serves all factors. Numerators are raised by `slip` and
    denominators lowered, so that the sum bounds the exact one; numerators below `least` are the caller's to add.
    """
    width = laws.shape[1]
    above, below = 1.0 + slip, 1.0 - slip
    for i in range(laws.shape[0] - 1):
        for direction in range(2):
            top, bottom = (i + 1, i) if direction == 0 else (i, i + 1)
            step = -1 if direction == 0 else 1
            k = width - 1 if direction == 0 else 0
            while 0 <= k < width and laws[top, k] < least:
                k += step
            gained, paid = 0.0, 0.0
            for j in range(factors.shape[0]):
                factor = factors[j]
                while 0 <= k < width and laws[top, k] * above > factor * (laws[bottom, k] * below):
                    gained += laws[top, k] * above
                    paid += laws[bottom, k] * below
                    k += step
                excess = gained - factor * paid
                if excess > 0.0:
                    out[i, direction, j] += weight * excess


@numba.njit(**_JIT)
def binomial_rows(
    log_choose: Any, log_success: Any, log_failure: Any, least: Any, out: Any
) -> None:  # pragma: no cover
    """Write out[x, k] = exp(log_choose[k] + k log_success[x] + (m - k) log_failure[x]); 0 below e^least."""
    m = log_choose.shape[0] - 1
    for x in range(out.shape[0]):
        for k in range(m + 1):
            value = log_choose[k]
            if k > 0:
                value += k * log_success[x]
            if k < m:
                value += (m - k) * log_failure[x]
            out[x, k] = np.exp(value) if value > least else 0.0
