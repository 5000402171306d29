"""Compiled loops that turn a prior into candidate sets, without a sort.

max_k w_k is a fractional program: max over sets S of p(S) / (e^epsilon - 1 + |S|). Dinkelbach's iteration climbs to
it: tau <- p(S) / (odds + |S|), S <- {i : p_i > tau}, with odds = e^epsilon - 1. Each step either shrinks S or stops, and
w is unimodal in k, so it stops at the optimum; the candidate set is {i : p_i > tau}. Any lower bound on the optimum
starts it: both S = all labels and S = {the likeliest} are used.

Where odds is so small that p > p / (odds + 1) fails in floating point (epsilon = 0 in particular), no label passes, and
the likeliest label, the first of them at a tie, is the set.

The kernels check as they go: a row with a negative, a NaN or an infinite entry, or that does not sum to one within the
tolerance, is reported by number and its set is not to be used. Two shapes of one algorithm: few classes work on tiles
of 64 rows, transposed, so that the processor's lanes hold rows; many classes work along the row.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

#: Rows per tile, and the largest K that is worked on in tiles (a set then fits one 64-bit word).
LANES = 64
#: Sums may be reassociated (so that they vectorise); NaN and infinity keep their meaning, since rows are checked here.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_JIT: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": _FAST,
}
_BLOCK = 16


@numba.njit(**_JIT)
def select_tiles(prior: Any, odds: Any, tolerance: Any, members: Any, sizes: Any) -> Any:  # pragma: no cover - compiled
    """Write the candidate sets of rows with at most 64 classes; return the first bad row, or the number of rows."""
    n, n_classes = prior.shape
    kind = prior.dtype
    tile = np.empty((n_classes, LANES), kind)
    most, least, total = np.empty(LANES, kind), np.empty(LANES, kind), np.empty(LANES, kind)
    tau, mass, count = np.empty(LANES, kind), np.empty(LANES, kind), np.empty(LANES, kind)
    first_bad = n
    for begin in range(0, n, LANES):
        rows = min(LANES, n - begin)
        for lane in range(LANES):
            # A short last tile repeats its last row, so that every row goes through the same arithmetic.
            row = begin + min(lane, rows - 1)
            for k in range(n_classes):
                tile[k, lane] = prior[row, k]
        _survey_lanes(tile, most, least, total)
        _climb_lanes(tile, kind.type(odds), most, total, tau, mass, count)
        for lane in range(rows):
            if not (abs(total[lane] - kind.type(1)) <= tolerance) or least[lane] < kind.type(0):
                first_bad = min(first_bad, begin + lane)
        _write_lanes(tile, tau, most, count, members[begin : begin + rows], sizes[begin : begin + rows])
    return first_bad


@numba.njit(inline="always", fastmath=_FAST)
def _survey_lanes(tile: Any, most: Any, least: Any, total: Any) -> None:  # pragma: no cover - compiled
    """Take the largest entry, the smallest and the sum of each lane."""
    for lane in range(LANES):
        most[lane] = tile[0, lane]
        least[lane] = tile[0, lane]
        total[lane] = tile[0, lane]
    for k in range(1, tile.shape[0]):
        for lane in range(LANES):
            value = tile[k, lane]
            most[lane] = value if value > most[lane] else most[lane]
            least[lane] = value if value < least[lane] else least[lane]
            total[lane] += value


@numba.njit(inline="always", fastmath=_FAST)
def _climb_lanes(
    tile: Any, odds: Any, most: Any, total: Any, tau: Any, mass: Any, count: Any
) -> None:  # pragma: no cover - compiled
    """Run Dinkelbach's iteration in all lanes until none moves."""
    zero, one, size = tile.dtype.type(0), tile.dtype.type(1), tile.dtype.type(tile.shape[0])
    for lane in range(LANES):
        alone = most[lane] / (odds + one)
        everyone = total[lane] / (odds + size)
        tau[lane] = alone if alone > everyone else everyone
    moved = 1
    while moved > 0:
        for lane in range(LANES):
            mass[lane] = zero
            count[lane] = zero
        for k in range(tile.shape[0]):
            for lane in range(LANES):
                value = tile[k, lane]
                inside = value > tau[lane]
                mass[lane] += value if inside else zero
                count[lane] += one if inside else zero
        moved = 0
        for lane in range(LANES):
            higher = mass[lane] / (odds + count[lane])
            up = (higher > tau[lane]) & (count[lane] > one)
            tau[lane] = higher if up else tau[lane]
            moved += 1 if up else 0


@numba.njit(inline="always")
def _write_lanes(tile: Any, tau: Any, most: Any, count: Any, members: Any, sizes: Any) -> None:  # pragma: no cover
    """Pack each lane's set into bytes; an empty one becomes the first likeliest label."""
    words = np.zeros(LANES, np.uint64)
    for k in range(tile.shape[0]):
        flag = np.uint64(1) << np.uint64(k)
        for lane in range(LANES):
            words[lane] |= flag if tile[k, lane] > tau[lane] else np.uint64(0)
    for lane in range(members.shape[0]):
        word = words[lane]
        if word == np.uint64(0):
            for k in range(tile.shape[0] - 1, -1, -1):
                word = np.uint64(1) << np.uint64(k) if tile[k, lane] == most[lane] else word
        sizes[lane] = max(np.int64(count[lane]), 1)
        for byte in range(members.shape[1]):
            members[lane, byte] = np.uint8(word & np.uint64(0xFF))
            word >>= np.uint64(8)


@numba.njit(**_JIT)
def select_rows(prior: Any, odds: Any, tolerance: Any, members: Any, sizes: Any) -> Any:  # pragma: no cover - compiled
    """Write the candidate sets of rows with many classes; return the first bad row, or the number of rows.

    One pass over the row takes its sum and the peak of each block. The climb among the peaks alone already ends close
    to the optimum, from below; only blocks whose peak passes that threshold are read again, and the labels that pass
    are copied aside for the rest of the climb.
    """
    n, n_classes = prior.shape
    kind = prior.dtype.type
    zero, one, odds_ = kind(0), kind(1), kind(odds)
    ahead = np.empty(n_classes + 1, prior.dtype)
    label = np.empty(n_classes + 1, np.int32)
    peak = np.empty((n_classes + _BLOCK - 1) // _BLOCK, prior.dtype)
    for row in range(n):
        values = prior[row]
        most, least, total = _survey_row(values, peak)
        if not (abs(total - one) <= tolerance) or least < zero:
            return row
        alone, everyone = most / (odds_ + one), kind(total / (odds_ + kind(n_classes)))
        tau = _climb(peak, alone if alone > everyone else everyone, odds_)
        left = 0
        for block in range(peak.shape[0]):
            if peak[block] > tau:
                for k in range(block * _BLOCK, min(n_classes, (block + 1) * _BLOCK)):
                    ahead[left] = values[k]  # without a branch: the next one overwrites a label that did not pass
                    label[left] = k
                    left += 1 if values[k] > tau else 0
        tau = _climb(ahead[:left], tau, odds_)
        sizes[row] = _write(ahead[:left], label, tau, values, most, members[row])
    return n


@numba.njit(inline="always", fastmath=_FAST)
def _survey_row(values: Any, peak: Any) -> Any:  # pragma: no cover - compiled
    """Return the largest entry, the smallest and the sum of a row, and write the peak of each block.

    The sum is taken in double over blocks: 100,000 equal single-precision terms would drift by 1e-3.
    """
    n_classes = values.shape[0]
    most, least, total = values[0], values[0], 0.0
    for block in range(peak.shape[0]):
        high, low, part = values[block * _BLOCK], values[block * _BLOCK], values.dtype.type(0)
        for k in range(block * _BLOCK, min(n_classes, (block + 1) * _BLOCK)):
            value = values[k]
            part += value
            high = value if value > high else high
            low = value if value < low else low
        total += part
        peak[block] = high
        most = high if high > most else most
        least = low if low < least else least
    return most, least, total


@numba.njit(inline="always", fastmath=_FAST)
def _climb(ahead: Any, tau: Any, odds: Any) -> Any:  # pragma: no cover - compiled
    """Return the threshold at which Dinkelbach's iteration stops; the mass is summed in double, as the row's is."""
    zero, one = ahead.dtype.type(0), ahead.dtype.type(1)
    while True:
        total, count = 0.0, zero
        for j in range(ahead.shape[0]):
            value = ahead[j]
            inside = one if value > tau else zero
            total += value * inside  # a product vectorises where a choice does not
            count += inside
        higher = ahead.dtype.type(total / (odds + count))
        if not (higher > tau and count > one):
            return tau
        tau = higher


@numba.njit(inline="always")
def _write(ahead: Any, label: Any, tau: Any, values: Any, most: Any, bits: Any) -> Any:  # pragma: no cover - compiled
    """Set the bits of the labels above tau, or of the first likeliest label if there is none; return how many."""
    for byte in range(bits.shape[0]):
        bits[byte] = 0
    size = 0
    for j in range(ahead.shape[0]):
        if ahead[j] > tau:
            bits[label[j] >> 3] |= np.uint8(1 << (label[j] & 7))
            size += 1
    if size > 0:
        return size
    for k in range(values.shape[0]):
        if values[k] == most:
            bits[k >> 3] = np.uint8(1 << (k & 7))
            break
    return 1
