"""The exact law of every draw, counted over all 2^128 pairs of words, and what happens when a draw leaves its outputs.

Drawing cannot show what is rare: a draw that leaves its outputs once in e^9 times passes statistics more often than not. `count_words`
counts it; arcs are also compared with their definition in Python's integers, word by word at every edge.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import labeldp
from labeldp.channel import ArcChannel, Channel, FiniteChannel
from labeldp.channel.finite import FULL_RANGE
from labeldp.errors import PrivacyError
from labeldp.random import NoiseKey
from labeldp.release.door import draw_codes
from labeldp.testing.suite import judge_words
from labeldp.testing.words import PAIRS, count_words, find_runs

#: Few labels and many, on both sides of the limits of the quick loops, each at epsilons where arcs have one label and several.
CLASSES = (2, 3, 10, 11, 16, 17, 20, 150)
EPSILONS = (0.01, 0.5, 1.0, 3.0, 8.0, 8.5, 9.0, 12.0, 20.0, 43.0, 50.0)


class OneLabelRunsOff(ArcChannel):
    """The old fault: with one label to an arc, what wraps around the circle was left below 0."""

    def draw(self, codes: Any, words: Any) -> Any:
        right = super().draw(codes, words)
        return np.where(right > codes, right - self.n_classes, right).astype(np.int32)


def arc_in_integers(channel: ArcChannel, place: int, word: int) -> int:
    """The number of the arc that a word gives, by its definition: at the label's place, less the rank of the word."""
    inside, outside, rest = channel.integers
    size, k = channel.size, channel.n_classes
    if word >= FULL_RANGE - rest:
        return 0
    rank = word // inside if word < size * inside else size + (word - size * inside) // outside
    return (place - rank) % k


def place_of(channel: ArcChannel, label: int) -> int:
    """Where a label stands on the circle: it is the first of that arc, so in it and not in the next."""
    k = channel.n_classes
    named = channel.take(np.zeros(k, np.int64)).members(np.arange(k))[:, label]
    return int(np.flatnonzero(named & ~np.roll(named, -1))[0])


@pytest.mark.parametrize("n_classes", CLASSES)
def test_arcs_are_drawn_as_defined_at_every_edge(n_classes: int) -> None:
    """At the first and last words of every rank; sizes that an epsilon would not choose are drawn as well."""
    for epsilon in EPSILONS:
        sizes = {1, 2, math.ceil(n_classes / (math.exp(epsilon) + 1)), n_classes - 1}
        for size in sorted(one for one in sizes if one < n_classes):
            channel = ArcChannel(odds=math.expm1(epsilon), size=size, n_classes=n_classes, seed=5).place(3, 1)
            inside, outside, rest = channel.integers
            ranks = sorted({0, 1, size - 1, size, size + 1, n_classes - 1} & set(range(n_classes)))
            starts = [min(r, size) * inside + max(r - size, 0) * outside for r in ranks]
            edges = {w for s in [*starts, FULL_RANGE - rest, FULL_RANGE] for w in (s - 1, s, s + 1)}
            words = sorted(w for w in edges if 0 <= w < FULL_RANGE)
            pairs = np.array([[w, 0] for w in words], np.uint64)
            for label in sorted({0, 1, n_classes // 2, n_classes - 1}):
                many = channel.take(np.zeros(len(words), np.int64))
                drawn = many.draw(np.full(len(words), label, np.int32), pairs).tolist()
                place = place_of(channel, label)
                assert drawn == [arc_in_integers(channel, place, w) for w in words], (epsilon, size, label)


@pytest.mark.parametrize("n_classes", CLASSES)
def test_arcs_promise_what_all_words_together_keep(n_classes: int) -> None:
    for epsilon in EPSILONS:
        channel = labeldp.InformativeResponse(epsilon).channel(n_classes=n_classes).place(0, 1)
        labels = sorted({0, 1, n_classes // 2, n_classes - 1})
        laws = {label: count_words(channel, label=label) for label in labels}
        assert list(judge_words(channel, laws, epsilon, f"epsilon {epsilon}")) == []


def test_an_answer_below_zero_is_seen() -> None:
    """The broken twin: statistics of 2,000 draws at epsilon 9 pass it more often than not."""
    for n_classes, epsilon in ((2, 9.0), (20, 4.0), (3, 30.0)):
        channel = OneLabelRunsOff(odds=math.expm1(epsilon), size=1, n_classes=n_classes).place(0, 1)
        laws = {label: count_words(channel, label=label) for label in range(n_classes)}
        assert list(judge_words(channel, laws, epsilon, "here")) == [
            "here: an answer is none that a release could hold"
        ]


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (1.0 + 1e-6, True)])
def test_a_little_more_than_promised_is_seen(factor: float, wrong: bool) -> None:
    """No number of draws shows a millionth."""
    channel = labeldp.RandomizedResponse(factor, n_classes=4).channel()
    laws = {label: count_words(channel, label=label) for label in range(4)}
    assert bool(list(judge_words(channel, laws, 1.0, "here"))) is wrong


def test_every_kind_of_channel_is_counted_as_its_matrix_states(channel: FiniteChannel) -> None:
    row = 0 if channel.n_examples is None else 2
    for label in range(channel.n_classes):
        counts = count_words(channel, label=label, row=row)
        assert counts is not None
        assert sum(counts.values()) == PAIRS
        shares = np.zeros(channel.n_outputs)
        for (answer,), count in counts.items():
            shares[answer] = float(Fraction(count, PAIRS))
        np.testing.assert_allclose(shares, channel.matrix(row)[label], rtol=0, atol=1e-12)  # floats of the matrix


def test_runs_against_all_words_of_a_small_range() -> None:
    """A function of the upper bits, looked at word by word: the same runs."""
    table = np.random.default_rng(1).integers(0, 3, 256).tolist()
    runs = find_runs(lambda words: [table[word >> 56] for word in words])
    assert runs is not None
    told = [table[run.start >> 56] for run in runs]
    starts = [0] + [i << 56 for i in range(1, 256) if table[i] != table[i - 1]]
    assert [run.start for run in runs] == starts
    assert all(a != b for a, b in itertools.pairwise(told))


def test_the_door_keeps_an_answer_that_is_none() -> None:
    """-1 in one byte is 255, and says that the label was above 0."""
    broken = OneLabelRunsOff(odds=math.expm1(3.0), size=1, n_classes=3)
    codes = np.zeros(5000, np.int32) + 1
    with pytest.raises(PrivacyError, match="none of its 3 outputs; nothing is released"):
        draw_codes(codes, broken, NoiseKey.from_seed(1), start=0)


def test_the_door_keeps_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "draw", lambda _, codes, __: np.full(len(codes), 259, np.int32))
    with pytest.raises(PrivacyError, match="nothing is released"):
        draw_codes(np.zeros(5, np.int32), Channel(keep=0.5, base=[0.5, 0.5]), NoiseKey.from_seed(1), start=0)
