"""`ArcChannel`: sets of labels without a prior, as arcs on a public circle. The mathematics is in `labeldp.channel.sets`.

>>> channel = ArcChannel(odds=1.0, size=2, n_classes=5)
>>> float(channel.unbiased_targets([0]).sum().round(9))
1.0

The circle of a row is a uniform order of the labels, made from a public seed and the row's position by
`labeldp.channel.kernels`. So the number of an arc says which labels it names, and a release is as small as one of labels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Array, Bools, Floats, Int32s, Int64s, Ints, UInt8s, Words
from labeldp.channel.finite import FULL_RANGE, FiniteChannel, Rows, join_channels
from labeldp.channel.labels import Channel, odds_to_keep
from labeldp.channel.sets import (
    MOST_CLASSES,
    MOST_SHAPES,
    Integers,
    Positions,
    SetAnswers,
    SetChannel,
    block_integers,
    block_shapes,
    check_odds,
    score_mass,
)
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.validate import check_integer


class ArcChannel(SetAnswers, kind="arcs"):
    """Answer with an arc of `size` labels on the row's public circle of all K labels.

    Parameters
    ----------
    odds : float
        e^epsilon - 1.
    size : int
        d, the labels of an arc, in 1 .. K - 1.
    n_classes : int
        K.
    seed : int
        Of the public circles; two releases of the same labels learn more with two seeds than with one.
    first : int
        The position of the first row.
    places : array of shape (n,), optional
        The position of each row, where they do not follow each other.

    Notes
    -----
    It serves any number of rows from `first` on, until `place` or `take` says how many.

    Guarantee
    ---------
    `epsilon` is log(1 + odds), rounded up: see `labeldp.channel.sets`. The sampler's integers never exceed it.

    Example
    -------
    >>> ArcChannel(odds=1.0, size=1, n_classes=2).matrix().round(4).tolist()  # randomized response
    [[0.6667, 0.3333], [0.3333, 0.6667]]
    """

    def __init__(
        self, *, odds: float, size: int, n_classes: int, seed: int = 0, first: int = 0, places: Any = None
    ) -> None:
        self._n_classes = check_integer("ArcChannel", "n_classes", n_classes, least=2, most=MOST_CLASSES)
        self._size = check_integer("ArcChannel", "size", size, least=1, most=self._n_classes - 1)
        self._odds = check_odds("ArcChannel", odds)
        self._seed = check_integer("ArcChannel", "seed", seed, least=0, most=FULL_RANGE - 1)
        self._rows = Positions.of("ArcChannel", first, places)
        _ = self.integers

    @property
    def size(self) -> int:
        """d: the labels of an arc."""
        return self._size

    @property
    def seed(self) -> int:
        """Of the public circles."""
        return self._seed

    @property
    def n_examples(self) -> int | None:
        """Number of rows it describes; None if it serves any number from its first position on."""
        return self._rows.total

    @property
    def outputs_are_labels(self) -> bool:
        """An arc of one label is that label."""
        return self._size == 1

    @cached_property
    def integers(self) -> Integers:
        """The sampler's integers: the whole truth about what `draw` does."""
        return block_integers(self._odds, (self._n_classes, self._size))

    def place(self, start: int, count: int) -> ArcChannel:
        """Return the channel of the rows at positions `start` .. `start + count - 1`."""
        return self._at(Positions(start, count, None))

    def take(self, rows: Rows) -> ArcChannel:
        """Return the channel of a subset of examples (a slice does not copy)."""
        return self._at(self._rows.take(rows))

    def listed(self) -> FiniteChannel:
        """Return the same channel with the position of every row in an array."""
        return self if self._rows.total is None else self._at(Positions(0, self._rows.total, self._rows.listed()))

    def _at(self, positions: Positions) -> ArcChannel:
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._rows = positions
        return part

    def draw(self, codes: Ints, words: Words) -> Int32s:
        """Return the number of an arc for every true label, from the first of its two words."""
        from labeldp.channel import kernels

        out = np.empty(len(codes), np.int32)
        d = self._size
        if math.isinf(self._odds) and d == 1:
            out[:] = codes
            return out
        seed, (inside, outside, rest) = np.uint64(self._seed), self.integers
        last = np.uint64(FULL_RANGE - 1 - rest)
        tables, guesses = self._tables, self._guesses
        if tables is not None and guesses is not None:
            first, places = self._rows.first, self._rows.places
            listed = np.empty(0, np.int64) if places is None else places
            kernels.draw_few_arcs(codes, words, first, listed, seed, *tables, *guesses, last, out)
        else:
            places, integers = self._rows.span(0, len(codes)), np.array([inside, outside, last], np.uint64)
            kernels.draw_arcs(codes, words, places, seed, self._choices, integers, np.int64(self._n_classes), d, out)
        return out

    def prepare(self) -> None:
        """Make the tables of few labels, once."""
        _ = self._tables, self._guesses

    @cached_property
    def _choices(self) -> Bools:
        """How public numbers become transpositions; with one label to an arc there are none."""
        from labeldp.channel import kernels

        return np.zeros(0, np.bool_) if self._size == 1 else kernels.plan_choices(self._n_classes)

    @cached_property
    def _tables(self) -> tuple[Array, Array] | None:
        """Where each label goes by the first public number of a row and by the second; None where there are more numbers."""
        return tabulate_circles(self._n_classes, mixed=self._size > 1)

    @cached_property
    def _guesses(self) -> tuple[Array, Array] | None:
        """A guess of a word's rank by its upper bits, and the last words of each rank; None where ranks have too few words."""
        from labeldp.channel import kernels

        k, d = self._n_classes, self._size
        inside, outside, _ = self.integers
        if outside < kernels.LEAST_WORDS or self._tables is None:
            return None
        ends = [t * inside for t in range(1, d + 1)] + [d * inside + t * outside for t in range(1, k - d)]
        firsts = np.arange(kernels.GUESSES, dtype=np.uint64) << kernels.GUESS_SHIFT
        guess = np.searchsorted(np.array(ends, np.uint64), firsts, side="right").astype(np.uint8)
        return guess, np.array([*(end - 1 for end in ends), FULL_RANGE - 1], np.uint64)

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays; odds as text, since JSON has no infinity, and the seed of the circles, which has 64 bits."""
        facts = {"kind": "arcs", "n_classes": self._n_classes, "odds": repr(self._odds), "size": self._size}
        return {**facts, "circles": str(self._seed), "first": 0 if self._rows.places is not None else self._rows.first}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored facts; positions that follow each other are for `place` to say."""
        return cls(
            odds=float(header["odds"]),
            size=header["size"],
            n_classes=header["n_classes"],
            seed=int(header["circles"]),
            first=header["first"],
            places=examples.get("place"),
        )

    def row_arrays(self) -> dict[str, Array]:
        """No rows are shared between examples."""
        return {}

    def example_arrays(self) -> dict[str, Array]:
        """The position of each row, where they do not follow each other."""
        return {} if self._rows.places is None else {"place": self._rows.places}

    def shapes_of(self, observed: Any) -> Int64s:
        """All rows have K blocks, of which every label is in `size`."""
        return np.broadcast_to(np.array([self._n_classes, self._size], np.int64), (len(observed), 2))

    def as_sets(self, observed: Any) -> tuple[UInt8s, SetChannel]:
        """Return the same answers as shapes and sets, with their channel: the form in which they join those by a prior."""
        codes = self._check_observed(observed)
        shapes = block_shapes(self._odds, self._n_classes, arc=self._size)
        channel = SetChannel(odds=self._odds, n_classes=self._n_classes, shapes=shapes)
        out = channel.empty_codes(len(codes))
        out[:, 0] = channel.shapes.index((self._n_classes, self._size))
        for low, high in self._spans(len(codes)):
            out[low:high, 1:] = np.packbits(self._members(low, high, codes[low:high]), axis=1, bitorder="little")
        return out, channel

    def information(self, prior: Any = None) -> Floats:
        """Return the mutual information of each row's label and answer, in nats, for labels that follow `prior`."""
        given = np.full(self._n_classes, 1.0 / self._n_classes) if prior is None else np.asarray(prior, np.float64)
        n = self.n_examples if self.n_examples is not None else 1 if given.ndim == 1 else len(given)
        rows = self._check_per_example("prior", given, n)
        norm = self._size * self._odds + self._n_classes
        out = np.empty(n)
        for low, high in self._spans(n):
            out[low:high] = score_mass(self._masses(low, high, rows[low:high]), self._odds).sum(axis=1) / norm
        return out

    def _masses(self, low: int, high: int, probabilities: Floats) -> Floats:
        """Return the mass of each arc (m, K): a window on the circle, the difference of two cumulative sums."""
        around = np.take_along_axis(probabilities, self._circles(low, high), axis=1).astype(np.float64)
        zero = np.zeros((high - low, 1))
        sums = np.cumsum(np.concatenate([zero, around, around[:, : self._size]], axis=1), axis=1)
        mass: Floats = sums[:, self._size : self._size + self._n_classes] - sums[:, : self._n_classes]
        return np.maximum(mass, 0.0)

    def _circles(self, low: int, high: int) -> Int32s:
        """Return the labels in the order of their circle, for a span of rows."""
        from labeldp.channel import kernels

        out = np.empty((high - low, self._n_classes), np.int32)
        if self._size == 1:
            out[:] = np.arange(self._n_classes, dtype=np.int32)
        else:
            kernels.list_circles(self._rows.span(low, high), np.uint64(self._seed), self._choices, out)
        return out

    def _members(self, low: int, high: int, observed: Array) -> Bools:
        from labeldp.channel import kernels

        out = np.empty((high - low, self._n_classes), np.bool_)
        kernels.mark_arcs(observed, self._circles(low, high), self._size, out)
        return out

    def _matrix(self, i: int) -> Floats:
        k, circle = self._n_classes, self._circles(i, i + 1)[0]
        at = np.empty(k, np.int64)
        at[circle] = np.arange(k)
        inside = (at[:, None] - np.arange(k)) % k < self._size
        dense: Floats = np.where(inside, *self.chances(np.array([k, self._size])))
        return dense

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        inside, outside = self.chances(np.array([self._n_classes, self._size]))
        mass = self._masses(low, high, probabilities)
        answer: Floats = inside * mass + outside * np.maximum(probabilities.sum(axis=1, keepdims=True) - mass, 0.0)
        return answer

    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats:
        inside, _ = self.chances(np.array([self._n_classes, 1]))  # an arc of one label is the label with this chance
        answer: Floats = prior.sum(axis=1) * inside
        return answer

    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats:
        p, q = self.inclusion
        answer: Floats = (self._members(low, high, observed) - q) / (p - q)
        return answer

    @property
    def inclusion(self) -> tuple[float, float]:
        """The chance that an answer names the true label, p, and that it names another one, over the circles, q."""
        k, d = self._n_classes, self._size
        inside, outside = (float(one) for one in self.chances(np.array([k, d])))
        return d * inside, d * ((d - 1) * inside + (k - d) * outside) / (k - 1)

    def _check_invertible(self) -> None:
        if self._odds == 0:
            raise LabelDPError(
                "ArcChannel.unbiased: with epsilon = 0 nothing can be estimated from an answer. Use epsilon > 0."
            )


@functools.lru_cache(maxsize=32)
def tabulate_circles(n_classes: int, *, mixed: bool) -> tuple[Array, Array] | None:
    """Return the walks of `kernels.draw_few_arcs`, where two public numbers make a circle (up to ten labels)."""
    from labeldp.channel import kernels

    same = np.arange(n_classes, dtype=np.uint8)[None]
    if not mixed:
        return (same, same) if n_classes <= kernels.FEW else None
    if n_classes > kernels.FEW:
        return None
    sizes, walks = kernels.tabulate_walks(n_classes)
    if len(sizes) > 2:
        return None
    return walks[: int(sizes[0])], walks[int(sizes[0]) :] if len(sizes) == 2 else same


def join_answers(answers: Sequence[tuple[Array, FiniteChannel]]) -> tuple[Array, FiniteChannel]:
    """Return the answers of several groups of examples, one group after the other, and their channel.

    As `join_channels`, for outputs and channels together. Where some groups answered with arcs and others with sets by a prior,
    the arcs are written as sets first: the same answers, with the same likelihoods. So are groups that answered at several
    epsilons, unless all that any group answered are labels (arcs of one label each are): those stay labels.
    """
    parts = list(answers)
    if len({_odds_and_size(channel) for _, channel in parts}) > 1:
        labels = all(channel.outputs_are_labels for _, channel in parts)
        parts = [(codes, _as_labels(channel)) if labels else _as_sets(codes, channel) for codes, channel in parts]
    sets = [channel for _, channel in parts if isinstance(channel, SetChannel)]
    if len(sets) == len(parts) and len({(one.odds, one.shape_odds) for one in sets}) > 1:
        return _join_odds([(codes, channel) for codes, channel in parts if isinstance(channel, SetChannel)])
    channel = join_channels([channel for _, channel in parts], counts=[len(codes) for codes, _ in parts])
    return np.concatenate([codes for codes, _ in parts]), channel


def _odds_and_size(channel: FiniteChannel) -> tuple[float, int] | None:
    """Return what arcs of one kind have in common; None for a channel of another kind."""
    return (channel.odds, channel.size) if isinstance(channel, ArcChannel) else None


def _as_labels(channel: FiniteChannel) -> FiniteChannel:
    """Return arcs of one label as what they are, randomized response; other channels of labels as they come."""
    if not isinstance(channel, ArcChannel):
        return channel
    keep, redraw = odds_to_keep(channel.odds, [channel.n_classes])
    return Channel(keep=keep, redraw=redraw, base=np.full((1, channel.n_classes), 1.0 / channel.n_classes))


def _as_sets(codes: Array, channel: FiniteChannel) -> tuple[Array, FiniteChannel]:
    """Return arcs as the sets that they are; other answers as they come."""
    return channel.as_sets(codes) if isinstance(channel, ArcChannel) else (codes, channel)


def _join_odds(parts: Sequence[tuple[Array, SetChannel]]) -> tuple[Array, FiniteChannel]:
    """Return sets that were drawn at several epsilons as one: shapes are numbered anew, those that occur, with their odds."""
    numbers: dict[tuple[int, int, float], int] = {}
    whole = [codes.copy() for codes, _ in parts]
    for codes, (_, channel) in zip(whole, parts, strict=True):
        each = channel.shape_odds or (channel.odds,) * len(channel.shapes)
        table = np.zeros(256, np.int64)
        for shape in np.unique(codes[:, 0]).tolist():
            table[shape] = numbers.setdefault((*channel.shapes[shape], each[shape]), len(numbers))
        if len(numbers) > MOST_SHAPES:
            got, fix = Described("more"), "Answer fewer rows of a person, or leave the prior out."
            raise invalid("join_answers", "answers", f"have at most {MOST_SHAPES} shapes and odds", got=got, fix=fix)
        codes[:, 0] = table[codes[:, 0]]
    # No answer at all: one shape, of which there is none.
    facts = list(numbers) or [(*parts[0][1].shapes[0], parts[0][1].odds)]
    odds = [one for _, _, one in facts]
    shapes = [(b, d) for b, d, _ in facts]
    joined = SetChannel(odds=max(odds), n_classes=parts[0][1].n_classes, shapes=shapes, shape_odds=odds)
    return np.concatenate(whole), joined
