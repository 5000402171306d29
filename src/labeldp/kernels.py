"""The compiled loops of the core: candidate sets, draws, the peers' accountant, patch features and whole gradients.

Everything here is plain loops over arrays, compiled by numba, called by the chapter that owns the mathematics. The
loops release the interpreter's lock, so that `labeldp.random.over_spans` runs them side by side on spans of rows.

>>> bin_edges(23, 4).tolist()
[[0, 6], [5, 12], [11, 18], [17, 23]]

**Candidate sets, without a sort** (`select_tiles`, `select_rows`; used by `labeldp.mechanisms.response`). The best set
of RRWithPrior solves a fractional program: max over sets S of p(S) / (e^epsilon - 1 + |S|). Dinkelbach's iteration
climbs to it: tau <- p(S) / (odds + |S|), S <- {i : p_i > tau}, with odds = e^epsilon - 1. Each step either shrinks S or
stops, and the objective is unimodal in the size of the set, so it stops at the optimum; the candidate set is
{i : p_i > tau}. Any lower bound on the optimum starts it: both S = all labels and S = {the likeliest} are used. Where
odds is so small that p > p / (odds + 1) fails in floating point (epsilon = 0 in particular), no label passes, and the
likeliest label, the first of them at a tie, is the set. The loops check as they go: a row with a negative, a NaN or an
infinite entry, or that does not sum to one within the tolerance, is reported by number and its set is not to be used.
Two shapes of one algorithm: few classes work on tiles of 64 rows, transposed, so that the processor's lanes hold rows;
many classes work along the row.

**Draws from a channel** (`draw_*`; used by `labeldp.channel`). Two 64-bit words per example: one decides whether the
label is kept, one draws. Example r of a batch uses words[r] alone, so the answer does not depend on batches, threads or
order. The thresholds come from `labeldp.channel.finite`.

**What answers say of means** (`linearise`; used by `labeldp.channel.means`): one scoring step from each mean, by table.

**The peers' accountant** (`convolve_rows`, `multiply`, `add_profiles`, `binomial_rows`; used by `labeldp.loss.peers`):
laws of noisy sums, and the privacy profiles of neighbouring laws.

**Patch features** (`pool_rectified`, `bin_edges`; used by `labeldp.features`): responses are rectified, both signs, and
pooled in one pass.

**Gradients in whole units** (`add_squares`, `add_whole_squares`, `add_wholes`; used by `labeldp.nn.dpsgd`): a product and
its rounding are the same IEEE operations in the loop that measures a row and in the one that adds it up.

**Hashes of rows** (`hash_texts`, `read_floats`, `add_hashes`, `close_hashes`; used by `labeldp.accounting.sketches`): keyed,
for telling rows apart, not for hiding them from whoever knows the key.

Design notes. Numba functions are untyped for mypy: the callers state the shapes. Compiled code is kept (`compile_loop`) in
$NUMBA_CACHE_DIR, else beside this file, else in the user's cache directory, so that it is compiled once and not once a
process. Where none of them can be written (a read-only install, a container with a user of no name) the loops are compiled
anew in every process, which costs seconds and changes nothing else: a `NoCacheWarning` says so.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from labeldp.errors import NoCacheWarning

#: What every loop of the core is compiled with.
_JIT: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
#: Sums may be reassociated (so that they vectorise); NaN and infinity keep their meaning, since rows are checked here.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
#: Rows per tile, and the largest K that is worked on in tiles (a set then fits one 64-bit word).
LANES = 64
#: Entries per block of a long row: blocks whose largest entry does not pass the threshold are not read again.
_BLOCK = 16


def compile_loop(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a loop with numba, and keeps the result on disk where there is a place for it.

    Without a place numba refuses to define the function at all. Then the function is compiled in memory, and a
    `NoCacheWarning` says once how to name a place.
    """

    def compiled(function: Any) -> Any:
        if _has_place():
            try:
                return numba.njit(cache=True, **options)(function)
            except RuntimeError:  # numba found nothing that it can write
                pass
        warnings.warn(
            "labeldp: no folder can be written for compiled code, so every process compiles anew, which takes seconds. "
            "Set NUMBA_CACHE_DIR to a folder that you alone can write.",
            NoCacheWarning,
            stacklevel=1,  # this line: it is shown once, and not once a loop
        )
        return numba.njit(**options)(function)

    return compiled


def _has_place() -> bool:
    """Whether numba may look for a folder.

    Without a home (no HOME, a user that the system does not know) its last resort is a folder called `~` in the current
    directory. What it finds there it would run, so it must not look.
    """
    if os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")).is_absolute():  # noqa: PTH111 - Path.home raises
        return True
    named = os.environ.get("NUMBA_CACHE_DIR")
    for place in (named, Path(__file__).parent):
        with contextlib.suppress(OSError):
            if place:
                Path(place).mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=place):  # the one sure way to know
                    return True
    return False


@compile_loop(fastmath=_FAST, **_JIT)
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


@numba.njit(fastmath=_FAST)
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


@numba.njit(fastmath=_FAST)
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


@compile_loop(fastmath=_FAST, **_JIT)
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
        sizes[row] = _write_row(ahead[:left], label, tau, values, most, members[row])
    return n


@numba.njit(fastmath=_FAST)
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


@numba.njit(fastmath=_FAST)
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
def _write_row(
    ahead: Any, label: Any, tau: Any, values: Any, most: Any, bits: Any
) -> Any:  # pragma: no cover - compiled
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


_ONE = np.uint64(1)
_ELEVEN, _FIFTY_SIX = np.uint64(11), np.uint64(56)
#: 53 bits of a word, times this, are a number in [0, 1).
_UNIT = 2.0**-53
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
#: Up to this many labels, comparing with all of them beats a binary search.
_FEW = 16


@numba.njit(inline="always")
def scale_word(word: Any, size: Any) -> Any:
    """Return floor(word * size / 2^64) for size < 2^32, without 128-bit integers."""
    low = (word & _LOW) * size
    return ((word >> _HALF) * size + (low >> _HALF)) >> _HALF


@numba.njit(inline="always")
def find_interval(cumulative: Any, word: Any) -> Any:
    """Return the first j with word < cumulative[j] (a binary search)."""
    low, high = 0, cumulative.shape[0] - 1
    while low < high:
        middle = (low + high) >> 1
        if word < cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def _byte_tables() -> tuple[Any, Any]:
    """Return the number of set bits of each byte, and the position of each byte's r-th set bit."""
    ones = np.zeros(256, np.uint8)
    places = np.zeros((256, 8), np.uint8)
    for byte in range(256):
        found = [bit for bit in range(8) if byte >> bit & 1]
        ones[byte] = len(found)
        places[byte, : len(found)] = found
    return ones, places


ONES, PLACES = _byte_tables()


@numba.njit(inline="always")
def nth_member(bits: Any, rank: Any) -> Any:
    """Return the position of the rank-th set bit (rank from 0), counting from the lowest bit of the first byte."""
    for byte in range(bits.shape[0]):
        count = np.int64(ONES[bits[byte]])
        if rank < count:
            return byte * 8 + np.int64(PLACES[bits[byte], rank])
        rank -= count
    return -1


@compile_loop(**_JIT)
def count_members(members: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the size of each packed set."""
    for r in range(members.shape[0]):
        total = np.uint32(0)
        for byte in range(members.shape[1]):
            total += np.uint32(ONES[members[r, byte]])
        out[r] = total


@compile_loop(**_JIT)
def draw_uniform(codes: Any, words: Any, keep: Any, size: Any, out: Any) -> None:  # pragma: no cover - compiled
    """One row for all, uniform over all labels: no search."""
    for r in range(codes.shape[0]):
        drawn = scale_word(words[r, 1], size)
        out[r] = codes[r] if (words[r, 0] >> _ONE) < keep else np.int32(drawn)


@compile_loop(**_JIT)
def draw_rows(
    codes: Any, words: Any, index: Any, keep: Any, inside: Any, cumulative: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """A row per group: keep, or look the second word up in the row's cumulative weights."""
    few = cumulative.shape[1] <= _FEW
    for r in range(codes.shape[0]):
        row = index[r]
        code = codes[r]
        if inside[row, code] and (words[r, 0] >> _ONE) < keep[row]:
            out[r] = code
        elif few:
            word, label = words[r, 1] >> _ONE, np.int32(0)
            for j in range(cumulative.shape[1] - 1):  # without a branch to mispredict, unlike a search
                label += np.int32(word >= cumulative[row, j])
            out[r] = label
        else:
            out[r] = find_interval(cumulative[row], words[r, 1] >> _ONE)


@compile_loop(**_JIT)
def draw_candidates(
    codes: Any, words: Any, members: Any, sizes: Any, keep: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """A candidate set per example: keep a member, or pick one of the set."""
    for r in range(codes.shape[0]):
        code = codes[r]
        size = np.uint64(sizes[r])
        inside = (members[r, code >> 3] >> (code & 7)) & 1
        if inside and (words[r, 0] >> _ONE) < keep[size]:
            out[r] = code
        else:
            out[r] = nth_member(members[r], np.int64(scale_word(words[r, 1], size)))


@compile_loop(**_JIT)
def draw_few_candidates(
    codes: Any, words: Any, members: Any, sizes: Any, keep: Any, out: Any
) -> None:  # pragma: no cover
    """`draw_candidates` for sets of two bytes, without a branch: coins and ranks are random, so branches mispredict."""
    for r in range(codes.shape[0]):
        code = codes[r]
        size = np.uint64(sizes[r])
        low, high = np.int64(members[r, 0]), np.int64(members[r, 1])
        rank = np.int64(scale_word(words[r, 1], size))
        before = np.int64(ONES[low])
        second = rank >= before
        byte = high if second else low
        drawn = np.int64(PLACES[byte, rank - (before if second else 0)]) + (8 if second else 0)
        kept = (((low | (high << 8)) >> code) & 1) & np.int64((words[r, 0] >> _ONE) < keep[size])
        out[r] = code if kept else np.int32(drawn)


@compile_loop(**_JIT)
def draw_matrix(codes: Any, words: Any, index: Any, cumulative: Any, out: Any) -> None:  # pragma: no cover - compiled
    """A general channel: look the second word up in the cumulative weights of (group, label)."""
    for r in range(codes.shape[0]):
        out[r] = find_interval(cumulative[index[r], codes[r]], words[r, 1] >> _ONE)


@compile_loop(**_JIT)
def draw_numbers(  # pragma: no cover - compiled
    numbers: Any, words: Any, index: Any, low: float, step: float, cumulative: Any, guide: Any, out: Any
) -> None:
    """Numbers on an even grid: the first word rounds one without bias, the second is looked up in its level's weights.

    With t = (number - low) / step, the level is floor(t), or with probability t - floor(t) the next one. `guide` holds, for
    each level and the upper 8 bits of a word, the first output that the word can be.
    """
    last = cumulative.shape[1] - 1
    for r in range(numbers.shape[0]):
        place = (numbers[r] - low) / step
        level = max(0, min(int(place), last - 1))
        if np.float64(words[r, 0] >> _ELEVEN) * _UNIT < place - level:
            level += 1
        out[r] = find_guided(cumulative[index[r], level], guide[index[r], level], words[r, 1])


@compile_loop(**_JIT)
def draw_levels(codes: Any, words: Any, index: Any, cumulative: Any, guide: Any, out: Any) -> None:  # pragma: no cover
    """The same for numbers that are levels, given as codes."""
    for r in range(codes.shape[0]):
        out[r] = find_guided(cumulative[index[r], codes[r]], guide[index[r], codes[r]], words[r, 1])


@numba.njit(inline="always")
def find_guided(cumulative: Any, guide: Any, word: Any) -> Any:
    """Return the first j with word / 2 < cumulative[j], from the j that the word's upper 8 bits allow on."""
    j = np.int64(guide[word >> _FIFTY_SIX])
    while (word >> _ONE) >= cumulative[j]:
        j += 1
    return j


@compile_loop(**_JIT)
def convolve_rows(
    kept: Any, starts: Any, flipped: Any, starts_flipped: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Write row r = the law of a sum of two independent counts, given by their nonzero windows."""
    for r in range(out.shape[0]):
        for a in range(starts[r, 0], starts[r, 1]):
            weight = kept[r, a]
            for b in range(starts_flipped[r, 0], starts_flipped[r, 1]):
                out[r, a + b] += weight * flipped[r, b]


@compile_loop(fastmath={"contract"}, **_JIT)
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


@compile_loop(**_JIT)
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


@compile_loop(**_JIT)
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


@compile_loop(fastmath={"reassoc"}, **_JIT)
def add_squares(values: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Add to out[i] the sum of squares of row i."""
    for i in range(values.shape[0]):
        total = 0.0
        for j in range(values.shape[1]):
            value = np.float64(values[i, j])
            total += value * value
        out[i] += total


@compile_loop(fastmath={"reassoc"}, **_JIT)
def add_whole_squares(values: Any, factors: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Add to out[i] the sum of squares of row i times factors[i], rounded to whole numbers: exact below 2^53."""
    for i in range(values.shape[0]):
        total = 0.0
        factor = factors[i]
        for j in range(values.shape[1]):
            whole = np.float64(np.rint(values[i, j] * factor))
            total += whole * whole
        out[i] += total


@compile_loop(**_JIT)
def add_wholes(values: Any, factors: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Add to out[j] column j of the same whole numbers; rows with a factor of 0 are not read."""
    for i in range(values.shape[0]):
        factor = factors[i]
        if factor == 0:
            continue
        for j in range(values.shape[1]):
            out[j] += np.float64(np.rint(values[i, j] * factor))


_SHIFT = np.uint64(29)
_EIGHT = np.uint64(8)


@compile_loop(**_JIT)
def scramble(word: Any, tag: Any, seeds: Any) -> Any:  # pragma: no cover - compiled
    """Mix a word and its kind under four secret words, of which the last three are odd."""
    mixed = (word + seeds[0]) ^ (np.uint64(tag) * seeds[3])
    mixed = (mixed ^ (mixed >> _HALF)) * seeds[1]
    mixed = (mixed ^ (mixed >> _SHIFT)) * seeds[2]
    return mixed ^ (mixed >> _HALF)


@compile_loop(**_JIT)
def hash_texts(data: Any, offsets: Any, seeds: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write out[i] = a keyed hash of the bytes offsets[i] .. offsets[i + 1], eight at a time, and of their number."""
    for r in range(out.shape[0]):
        first, last = offsets[r], offsets[r + 1]
        mixed = np.uint64(last - first) * seeds[3] + seeds[0]
        at = first
        while at < last:
            word = np.uint64(0)
            for place in range(min(8, last - at)):
                word |= np.uint64(data[at + place]) << (np.uint64(place) * _EIGHT)
            mixed = (mixed ^ word) * seeds[1]
            mixed = (mixed ^ (mixed >> _HALF)) * seeds[2]
            mixed ^= mixed >> _SHIFT
            at += 8
        out[r] = mixed


@compile_loop(**_JIT)
def read_floats(values: Any, bits: Any, words: Any, tags: Any) -> None:  # pragma: no cover - compiled
    """Write whole numbers as such (tag 1), others by their bits (tag 2); NaN is missing (tag 0)."""
    for r in range(values.shape[0]):
        value = values[r]
        if np.isnan(value):
            words[r], tags[r] = np.uint64(0), 0
        elif -9.2e18 < value < 9.2e18 and value == np.floor(value):
            words[r], tags[r] = np.uint64(np.int64(value)), 1
        else:
            words[r], tags[r] = bits[r], 2


@compile_loop(**_JIT)
def add_hashes(words: Any, tags: Any, seeds: Any, rows: Any) -> Any:  # pragma: no cover - compiled
    """Add to rows[i] the hash of value i of a column; return the sum of all of them, modulo 2^64."""
    total = np.uint64(0)
    for r in range(words.shape[0]):
        mixed = scramble(words[r], tags[r], seeds)
        rows[r] += mixed
        total += mixed
    return total


@compile_loop(**_JIT)
def close_hashes(rows: Any, seeds: Any, limit: Any, kept: Any, totals: Any) -> Any:  # pragma: no cover - compiled
    """Finish the hashes of rows: add two sums of them to `totals`, write those up to `limit` to `kept`, return how many."""
    count, first, second = 0, totals[0], totals[1]
    for r in range(rows.shape[0]):
        mixed = scramble(rows[r], 8, seeds)
        first += mixed
        second += scramble(mixed, 9, seeds)
        if mixed <= limit:
            kept[count] = mixed
            count += 1
    totals[0], totals[1] = first, second
    return count


def bin_edges(length: int, bins: int) -> npt.NDArray[np.int64]:
    """Return [first, last + 1) of each pooling bin: equal shares of the length, rounded outwards so that none is empty."""
    at = np.arange(bins, dtype=np.int64)
    return np.stack([at * length // bins, -(-(at + 1) * length // bins)], axis=1)


@compile_loop(nogil=True, fastmath=True)
def pool_rectified(
    responses: npt.NDArray[np.float32],
    threshold: np.float32,
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    out: npt.NDArray[np.float32],
) -> None:
    """Add to out (n, bins, bins, 2, M) the means over each bin of max(z - t, 0) and max(-z - t, 0).

    `responses` is (n, height, width, M). Rows are summed over the column bins first, so that a response is read once.
    """
    n, height, width, filters = responses.shape
    bins = rows.shape[0]
    line = np.empty((bins, 2, filters), np.float32)
    for image in range(n):
        for r in range(height):
            line[:] = 0.0
            for c in range(width):
                for b in range(bins):
                    if columns[b, 0] <= c < columns[b, 1]:
                        for m in range(filters):
                            z = responses[image, r, c, m]
                            line[b, 0, m] += max(z - threshold, np.float32(0.0))
                            line[b, 1, m] += max(-z - threshold, np.float32(0.0))
            for a in range(bins):
                if rows[a, 0] <= r < rows[a, 1]:
                    for b in range(bins):
                        size = (rows[a, 1] - rows[a, 0]) * (columns[b, 1] - columns[b, 0])
                        share = np.float32(1.0) / np.float32(size)
                        for m in range(filters):
                            out[image, a, b, 0, m] += line[b, 0, m] * share
                            out[image, a, b, 1, m] += line[b, 1, m] * share


@compile_loop(nogil=True, boundscheck=False, fastmath={"reassoc", "contract", "nsz"})
def linearise(  # pragma: no cover - compiled
    mean: Any,
    column: Any,
    matrix: Any,
    score: Any,
    information: Any,
    low: float,
    step: float,
    least: float,
    target: Any,
    weight: Any,
) -> None:
    """Write the pseudo-target m + score / information and its weight at the grid point m nearest each current mean.

    A column below zero marks an example whose label was not released: weight zero.
    """
    last = score.shape[1] - 1
    for e in range(len(mean)):
        if column[e] < 0:
            target[e], weight[e] = 0.0, 0.0
            continue
        g = min(max(int(np.floor((mean[e] - low) / step + 0.5)), 0), last)
        known = information[matrix[e], g] + least
        target[e] = low + g * step + score[column[e], g] / known
        weight[e] = known
