"""The exact law of a draw: how many of all words give each answer, counted without drawing them.

A draw is a function of a label and of two 64-bit words (`FiniteChannel.draw`). Every kind of channel compares them with
thresholds, so that the answer changes at a few words only. Those are found by bisection, and the runs between them are
counted: nothing is estimated, and an answer that comes once in 10^18 draws is counted like any other. Statistics cannot
do that: what a draw does where epsilon is large, or classes are many, is too rare for them to be seen.

>>> from labeldp import RandomizedResponse
>>> counts = count_words(RandomizedResponse(1.0, n_classes=3).channel(), label=2)
>>> [answer for answer in sorted(counts)], sum(counts.values()) == PAIRS
([(0,), (1,), (2,)], True)
>>> round(counts[2,] / counts[0,], 6)  # e
2.718282
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from labeldp.channel import FiniteChannel
from labeldp.channel.finite import FULL_RANGE

#: All pairs of words.
PAIRS = FULL_RANGE**2
#: Words between which changes are looked for. A run of fewer than 2^64 / GRID words may be passed over where what comes before it comes
#: again after it; answers that come in one run each never are.
GRID = 1 << 9
#: With more runs than this a draw does not compare words with thresholds, and is not counted.
MOST_RUNS = 1 << 14

#: A released code: one number, or the bytes of a set.
Answer = tuple[int, ...]


class Run(NamedTuple):
    """Words `start` .. `start + length - 1`, which all give the same."""

    start: int
    length: int


def count_words(channel: FiniteChannel, *, label: int, row: int = 0) -> dict[Answer, int] | None:
    """Return how many of the 2^128 pairs of words give each answer to a label; None where runs are too many to be counted.

    `row` is the example, for a channel that has several.
    """

    def draw(firsts: Sequence[int], seconds: Any) -> Any:
        """Return the answers to all pairs (a first word, a second word), one line for each first word."""
        pairs = np.empty((len(firsts), len(seconds), 2), np.uint64)
        pairs[:, :, 0] = np.array(firsts, np.uint64)[:, None]
        pairs[:, :, 1] = seconds
        n = len(firsts) * len(seconds)
        many = channel if channel.n_examples is None else channel.take(np.full(n, row))
        drawn = np.ascontiguousarray(many.draw(np.full(n, label, np.int32), pairs.reshape(n, 2)))
        return drawn.reshape(len(firsts), len(seconds), -1)

    # The second word matters at most where the first lets it: both ends of the first show where.
    second = find_runs(lambda words: list_bytes(draw(ENDS, np.array(words, np.uint64)).swapaxes(0, 1)))
    if second is None:
        return None
    starts = np.array([run.start for run in second], np.uint64)
    first = find_runs(lambda words: list_bytes(draw(words, starts)), grid=max(16, GRID // len(second)))
    if first is None:
        return None
    counts: dict[Answer, int] = {}
    for run, answers in zip(first, draw([run.start for run in first], starts).tolist(), strict=True):
        for answer, other in zip(answers, second, strict=True):
            counts[tuple(answer)] = counts.get(tuple(answer), 0) + run.length * other.length
    return counts


#: The first word of all, and the last.
ENDS = (0, FULL_RANGE - 1)


def list_bytes(lines: Any) -> list[bytes]:
    """Return what each line holds as bytes, which compare quickly."""
    return [line.tobytes() for line in lines]


def find_runs(answer: Callable[[Sequence[int]], list[Any]], *, grid: int = GRID) -> list[Run] | None:
    """Return the runs of words with the same answer, in order; None where there are more than `MOST_RUNS`.

    >>> find_runs(lambda words: [word >= 1000 for word in words])[0]
    Run(start=0, length=1000)
    """
    edges = [j * (FULL_RANGE // grid) for j in range(grid)] + [FULL_RANGE - 1]
    found = answer(edges)
    starts = [0]
    spans = list(zip(edges, edges[1:], found, found[1:], strict=False))
    spans = [span for span in spans if span[2] != span[3]]
    while spans:  # all spans at once: a draw of many words costs what one does
        if len(spans) + len(starts) > MOST_RUNS:
            return None
        middles = [(a + b) // 2 for a, b, _, _ in spans]
        halves = [
            half
            for (a, b, x, y), m, z in zip(spans, middles, answer(middles), strict=True)
            for half in ((a, m, x, z), (m, b, z, y))
            if half[2] != half[3]
        ]
        starts += [b for a, b, _, _ in halves if b - a == 1]
        spans = [half for half in halves if half[1] - half[0] > 1]
    return [Run(low, high - low) for low, high in itertools.pairwise([*sorted(starts), FULL_RANGE])]
