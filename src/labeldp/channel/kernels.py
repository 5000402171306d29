"""Compiled loops that draw outputs from a channel: two words per example, nothing shared between examples.

Example r of a batch uses words[r] alone, so the answer does not depend on batches, threads or order. The loops release
the interpreter's lock; `labeldp.threads` runs them side by side on spans of rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# Numba functions are untyped for mypy; the callers in this package state the shapes.
_JIT: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False, "error_model": "numpy"}
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
#: Up to this many labels, comparing with all of them beats a binary search.
_FEW = 16


@numba.njit(inline="always")
def scaled(word: Any, size: Any) -> Any:
    """Return floor(word * size / 2^64) for size < 2^32, without 128-bit integers."""
    low = (word & _LOW) * size
    return ((word >> _HALF) * size + (low >> _HALF)) >> _HALF


@numba.njit(inline="always")
def located(cumulative: Any, word: Any) -> Any:
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


@numba.njit(**_JIT)
def count_members(members: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Write the size of each packed set."""
    for r in range(members.shape[0]):
        total = np.uint32(0)
        for byte in range(members.shape[1]):
            total += np.uint32(ONES[members[r, byte]])
        out[r] = total


@numba.njit(**_JIT)
def draw_uniform(codes: Any, words: Any, keep: Any, size: Any, out: Any) -> None:  # pragma: no cover - compiled
    """One row for all, uniform over all labels: no search."""
    for r in range(codes.shape[0]):
        drawn = scaled(words[r, 1], size)
        out[r] = codes[r] if (words[r, 0] >> _ONE) < keep else np.int32(drawn)


@numba.njit(**_JIT)
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
            out[r] = located(cumulative[row], words[r, 1] >> _ONE)


@numba.njit(**_JIT)
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
            out[r] = nth_member(members[r], np.int64(scaled(words[r, 1], size)))


@numba.njit(**_JIT)
def draw_few_candidates(
    codes: Any, words: Any, members: Any, sizes: Any, keep: Any, out: Any
) -> None:  # pragma: no cover
    """`draw_candidates` for sets of two bytes, without a branch: coins and ranks are random, so branches mispredict."""
    for r in range(codes.shape[0]):
        code = codes[r]
        size = np.uint64(sizes[r])
        low, high = np.int64(members[r, 0]), np.int64(members[r, 1])
        rank = np.int64(scaled(words[r, 1], size))
        before = np.int64(ONES[low])
        second = rank >= before
        byte = high if second else low
        drawn = np.int64(PLACES[byte, rank - (before if second else 0)]) + (8 if second else 0)
        kept = (((low | (high << 8)) >> code) & 1) & np.int64((words[r, 0] >> _ONE) < keep[size])
        out[r] = code if kept else np.int32(drawn)


@numba.njit(**_JIT)
def draw_matrix(codes: Any, words: Any, index: Any, cumulative: Any, out: Any) -> None:  # pragma: no cover - compiled
    """A general channel: look the second word up in the cumulative weights of (group, label)."""
    for r in range(codes.shape[0]):
        out[r] = located(cumulative[index[r], codes[r]], words[r, 1] >> _ONE)
