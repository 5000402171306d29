"""What a channel draws, against the matrix that it states.

The judge is `least_probability`: for every true label the count of every output is binomial under the stated row; the
smallest exact two-sided probability, times the number of cells (Bonferroni), bounds the chance of a false alarm. A
draw passes above `ALARM` = 1e-8, and there are 18 judgements: all of them together err with probability below 2e-7
over the choice of seed, and the seed is fixed. The broken twins must fall below the same line.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from labeldp import kernels
from labeldp.arrays import Float64s, Words
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel
from labeldp.channel import finite as thresholds
from labeldp.random import NoiseKey

ALARM = 1e-8
DRAWS = 60_000
Drawn = npt.NDArray[np.int32]


def least_probability(drawn: Drawn, row: Float64s) -> float:
    """The chance, at most, that counts of this row's law look as odd as these."""
    counts = np.bincount(drawn, minlength=len(row))
    row = np.clip(row, 0.0, 1.0)  # a diagonal may pass 1 by a rounding
    both_sides = 2 * np.minimum(binom.cdf(counts, len(drawn), row), binom.sf(counts - 1, len(drawn), row))
    return float(min(1.0, both_sides.min() * len(row)))


def draws_of(channel: FiniteChannel, example: int, label: int, seed: int, count: int = DRAWS) -> Drawn:
    """Many draws of one example's channel for one label: the example is repeated, the words are not."""
    many = channel.take(np.full(count, example)) if channel.n_examples is not None else channel
    words = NoiseKey.from_seed(seed).words(start=0, count=count)
    return many.draw(np.full(count, label, np.int32), words)


def test_frequencies_match_the_matrix_for_every_kind(channel: FiniteChannel) -> None:
    examples = [0] if channel.n_examples is None else [0, 1, 2, 3]
    cases = [(i, y) for i in examples for y in range(channel.n_classes)]
    worst = min(least_probability(draws_of(channel, i, y, seed=1000 * i + y), channel.matrix(i)[y]) for i, y in cases)
    assert worst * len(cases) > ALARM


@pytest.mark.parametrize("keep", [0.32, 0.28])
def test_a_row_that_keeps_a_little_more_or_less_is_caught(keep: float) -> None:
    stated = Channel(keep=0.3, base=[0.2, 0.5, 0.3])
    broken = Channel(keep=keep, base=[0.2, 0.5, 0.3])
    worst = min(least_probability(draws_of(broken, 0, y, seed=y), stated.matrix()[y]) for y in range(3))
    assert worst < ALARM


def test_redrawing_from_all_labels_outside_the_set_is_caught() -> None:
    """The known bug: a label outside the candidates drawn from all K labels, itself among them."""
    members = np.packbits([[1, 1, 0, 0]], axis=1, bitorder="little")
    stated = CandidateChannel(odds=1.0, members=members, n_classes=4)
    everything = Channel(keep=0.0, base=np.full(4, 0.25))
    assert least_probability(draws_of(everything, 0, 3, seed=1), stated.matrix(0)[3]) < ALARM
    assert least_probability(draws_of(stated, 0, 3, seed=1), stated.matrix(0)[3]) > ALARM


def test_words_shared_between_examples_are_caught() -> None:
    """With one word for all examples the output of a label is constant: no law has such counts."""
    coin = Channel(keep=0.5, base=[0.5, 0.5])
    words = np.repeat(NoiseKey.from_seed(3).words(start=0, count=1), DRAWS, axis=0)
    assert least_probability(coin.draw(np.zeros(DRAWS, np.int32), words), coin.matrix()[0]) < ALARM


def test_an_example_depends_on_its_own_words_alone(channel: FiniteChannel) -> None:
    n = channel.n_examples or 37
    codes = (np.arange(n) % channel.n_classes).astype(np.int32)
    words = NoiseKey.from_seed(4).words(start=0, count=n)
    whole = channel.draw(codes, words)
    assert whole.dtype == np.int32
    assert whole.min() >= 0
    assert whole.max() < channel.n_outputs
    for low, high in [(0, 1), (1, 8), (8, n)]:
        part = channel.take(slice(low, high)).draw(codes[low:high], words[low:high])
        np.testing.assert_array_equal(part, whole[low:high])
    order = np.random.default_rng(5).permutation(n)
    np.testing.assert_array_equal(channel.take(order).draw(codes[order], words[order]), whole[order])


def edge_words(h: int) -> Words:
    """First words on both sides of the threshold h on their upper 63 bits; the lowest bit decides nothing."""
    sides = [2 * (h - 1), 2 * (h - 1) + 1, 2 * h, 2 * h + 1]
    return np.array([[side, 0] for side in sides], np.uint64)


@pytest.mark.parametrize("kind", ["uniform", "rows", "candidates"])
def test_a_label_is_kept_below_the_threshold_and_not_at_it(kind: str) -> None:
    channel: Channel
    if kind == "candidates":
        members = np.packbits(np.ones((4, 3), bool), axis=1, bitorder="little")
        channel = CandidateChannel(odds=1.0, members=members, n_classes=3)
        h = int(channel.keep_by_size[3])
    else:
        base = np.full(3, 1 / 3) if kind == "uniform" else np.array([0.25, 0.5, 0.25])
        channel = Channel(keep=0.25, base=base)
        h = int(channel.integers[0][0])
    drawn = channel.draw(np.full(4, 2, np.int32), edge_words(h))
    assert drawn.tolist() == [2, 2, 0, 0]  # a second word of zero redraws label 0


def test_scaled_words_are_exact_integer_division() -> None:
    """floor(word * K / 2^64) without 128-bit integers, at the edges of every label and at random words."""
    for size in (2, 3, 7, 1000, 99_999):
        edges = [-(-j * thresholds.FULL_RANGE // size) for j in range(0, size, max(1, size // 50))]
        seconds = [w for e in edges for w in (e - 1, e) if w >= 0] + [thresholds.FULL_RANGE - 1]
        words = np.array([[2**64 - 1, w] for w in seconds], np.uint64)
        drawn = Channel(keep=0.0, base=np.full(size, 1 / size)).draw(np.zeros(len(words), np.int32), words)
        assert drawn.tolist() == [w * size >> 64 for w in seconds]


def test_the_nth_member_of_a_set_is_found_across_bytes() -> None:
    sets = np.random.default_rng(6).random((200, 37)) < 0.4
    sets[:, 5] = True
    channel = CandidateChannel(odds=0.0, members=np.packbits(sets, axis=1, bitorder="little"), n_classes=sets.shape[1])
    words = NoiseKey.from_seed(7).words(start=0, count=200)
    expected = [np.flatnonzero(s)[int(w) * int(s.sum()) >> 64] for s, w in zip(sets, words[:, 1].tolist(), strict=True)]
    assert channel.draw(np.zeros(200, np.int32), words).tolist() == expected


def test_an_output_of_probability_zero_is_never_drawn() -> None:
    """At both ends of the words and at their edges, where an off-by-one would show."""
    holes = MatrixChannel([[0.0, 0.5, 0.0, 0.5, 0.0], [0.5, 0.0, 0.5, 0.0, 0.0]])
    seconds = [0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    words = np.array([[0, w] for w in seconds], np.uint64)
    assert set(holes.draw(np.zeros(6, np.int32), words).tolist()) == {1, 3}
    assert set(holes.draw(np.ones(6, np.int32), words).tolist()) == {0, 2}
    row = Channel(keep=[0.0], base=[[0.0, 0.5, 0.0, 0.5, 0.0]], index=np.zeros(6, int))
    assert set(row.draw(np.zeros(6, np.int32), words).tolist()) == {1, 3}


@pytest.mark.parametrize("n_classes", [9, 10, 15, 16])
def test_the_loop_for_few_candidates_draws_what_the_general_one_draws(n_classes):
    """Two bytes of candidates have a loop of their own, for speed."""
    rng = np.random.default_rng(n_classes)
    sets = rng.random((20_000, n_classes)) < rng.random((20_000, 1))
    sets[np.arange(len(sets)), rng.integers(0, n_classes, len(sets))] = True
    channel = CandidateChannel(odds=1.7, members=np.packbits(sets, axis=1, bitorder="little"), n_classes=n_classes)
    codes = rng.integers(0, n_classes, len(sets)).astype(np.int32)
    words = NoiseKey.from_seed(n_classes).words(start=0, count=len(sets))
    general = np.empty(len(sets), np.int32)
    kernels.draw_candidates(codes, words, channel.members, channel.sizes, channel.keep_by_size, general)
    np.testing.assert_array_equal(channel.draw(codes, words), general)
