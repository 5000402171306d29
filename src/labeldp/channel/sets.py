r"""Channels whose answers are sets of labels: balanced block response.

>>> arcs = ArcChannel(odds=1.0, size=2, n_classes=5)
>>> arcs.members([0, 3]).sum(axis=1).tolist()  # each answer names two of five labels
[2, 2]
>>> arcs.likelihood([0])[0].max() / arcs.likelihood([0])[0].min()  # 1 + odds
2.0

Mathematics. E = e^epsilon = 1 + odds. A row has public blocks S_0 .. S_{b-1} of labels, every label in exactly d of them. The
answer is one block:

    P(j | y) = (E if y in S_j else 1) / (d E + b - d).

**Privacy.** The normaliser is the same for every label, because every label is in d blocks: so the chances of an answer under
two labels differ by a factor of E, 1 or 1/E. That is pure epsilon, with no one trusted, whatever the blocks are, as long as
they are a function of public things: the prior, the row's position, and public randomness. Nothing here that makes blocks is
given a label. b = K, d = 1 is randomized response.

**What a learner needs** is the set S_j alone, and (b, d) for the constant: the likelihood of label k is E if k is in it, else 1,
over d E + b - d. So with a prior the answer that is released is the set, as bits, behind the number of its shape (b, d);
the blocks that were not drawn are forgotten.

| | blocks | the answer, `codes` | bytes a row |
|---|---|---|---|
| `ArcChannel` | arcs of d labels on a public circle of all K, b = K | the number of the arc | that of a label |
| `BlockChannel` | by the row's prior, balanced | shape and set | 1 + K / 8 |
| `SetChannel` | as it was, but forgotten: what a release of the second carries | shape and set | 1 + K / 8 |

**Arcs.** The circle of a row is a uniform order of the labels, a function of a public seed and of the row's position, so a
release needs neither. An arc has the law of a uniform d-subset that contains the label with p = d E / (d E + K - d) and any
other with q = d ((d-1) E + K - d) / ((K-1) (d E + K - d)), and (1[k in S] - q) / (p - q) is unbiased for the one-hot label,
over the circle and the noise. With d = 1 the circle is the list of labels, and arc j is label j.

**Blocks by a prior.** An answer is worth sum_j f(p(S_j)) / (d E + b - d) nats, with the concave
f(s) = s E eps - (1 + s (E-1)) ln(1 + s (E-1)): blocks should have equal mass. Labels go by falling prior into the d lightest
blocks, ties by public chance; the shape is the one of few with most information (`labeldp.channel.kernels`).

**Integers.** One secret 64-bit word a row. B = ceil(2^64 / (d E + b - d)), A = floor((2^64 - (b - d) B) / d), and the R < d
words left over answer block 0 whatever the label. Then A <= E B, and (A + R) / (B + R) <= A / B: the sampled law keeps
the claim, in exact rational arithmetic (`block_integers`). An epsilon so small that A < B is refused.

Design notes. `FiniteChannel.place` tells a channel which rows of a data set it answers, since blocks go by position, and
`FiniteChannel.released` is what a release keeps of it. A set is made of its code span by span: no n x K array of all rows is
ever needed here.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Array, Bools, Floats, Int32s, Int64s, Ints, Places, UInt8s, Words
from labeldp.channel.finite import FULL_RANGE, FiniteChannel, Rows, log1p_up
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.validate import check_integer

#: The most labels: the number of a cell has 16 bits in the compiled loops.
MOST_CLASSES = 1 << 16
#: Blocks of a row with few labels, and the most labels that count as few.
FEW = 16
#: More cells than this are of no use to a row of at most 65,536 labels at any epsilon that leaves a doubt.
MOST_SHAPES = 255
#: Shapes (b, d) with d > 1 for few labels; with all (b, 1) they come within half a per cent of the best private channel.
OVERLAPPING = (
    *((5, 2), (7, 2), (9, 2), (11, 2), (12, 2), (13, 2), (15, 2), (7, 3), (8, 3), (10, 3), (11, 3), (12, 3), (14, 3)),
    *((16, 3), (9, 4), (11, 4), (13, 4), (15, 4), (11, 5), (12, 5), (13, 5), (16, 5), (13, 6), (15, 7), (16, 7)),
)
#: A smaller shape is preferred to one that is better by less than this share.
SLACK = 0.002

Shape = tuple[int, int]


class Integers(NamedTuple):
    """How many of the 2^64 words answer a block with the label (A), one without it (B), and block 0 whatever it is (R)."""

    inside: int
    outside: int
    rest: int


def block_integers(odds: float, shape: Shape, *, owner: str = "InformativeResponse") -> Integers:
    """Return A, B and R of a shape (b, d), with d A + (b - d) B + R = 2^64, 0 <= R < d and B <= A <= (1 + odds) B, exactly.

    >>> block_integers(1.0, (3, 1))
    Integers(inside=9223372036854775808, outside=4611686018427387904, rest=0)
    """
    b, d = shape
    if odds == 0:  # the answer says nothing: every block has the same words, whatever the label
        return Integers(FULL_RANGE // b, FULL_RANGE // b, FULL_RANGE % b)
    if math.isinf(odds):
        return Integers(FULL_RANGE // d, 0, FULL_RANGE % d)
    norm = d * (1 + Fraction(odds)) + b - d
    outside = -(-FULL_RANGE * norm.denominator // norm.numerator)
    inside = (FULL_RANGE - (b - d) * outside) // d
    if inside < outside:
        fix = "Use 0 for an answer that says nothing, or a larger one."
        got = Described(f"one whose odds are {odds:.3g}")
        raise invalid(owner, "epsilon", f"be 0, or large enough for 64-bit words ({b} blocks)", got=got, fix=fix)
    return Integers(inside, outside, FULL_RANGE - d * inside - (b - d) * outside)


class SetAnswers(FiniteChannel):
    """What channels with sets for answers share: the set of a code, and the two chances of a label inside and outside."""

    _odds: float
    _n_classes: int

    @property
    def odds(self) -> float:
        """e^epsilon - 1: how much likelier an answer with the label is than one without it, less one."""
        return self._odds

    @property
    def n_classes(self) -> int:
        """Number of labels, K."""
        return self._n_classes

    @property
    def outputs_are_labels(self) -> bool:
        """An answer is a set."""
        return False

    @cached_property
    def epsilon(self) -> float:
        """log(1 + odds), rounded up."""
        return float(log1p_up(self._odds)) if self._odds > 0 else 0.0

    def members(self, observed: Any) -> Bools:
        """Return which labels each answer names (n, K). K bytes a row: take a part of the rows where they are many."""
        codes = self._check_observed(observed)
        out = np.empty((len(codes), self._n_classes), np.bool_)
        for low, high in self._spans(len(codes)):
            out[low:high] = self._members(low, high, codes[low:high])
        return out

    @abc.abstractmethod
    def shapes_of(self, observed: Any) -> Int64s:
        """Return b and d of each answer (n, 2): how many blocks its row had, and how many of them every label was in."""

    @abc.abstractmethod
    def _members(self, low: int, high: int, observed: Array) -> Bools: ...

    def chances(self, shapes: Array) -> tuple[Floats, Floats]:
        """Return the chance of an answer with these b and d under a label in it, and under one that is not."""
        b, d = shapes[..., 0].astype(np.float64), shapes[..., 1].astype(np.float64)
        if math.isinf(self._odds):
            return 1.0 / d, np.zeros_like(d)
        norm = d * (1.0 + self._odds) + (b - d)
        return (1.0 + self._odds) / norm, 1.0 / norm

    def _joint(self, low: int, high: int, prior: Floats, observed: Array) -> Floats:
        inside, outside = self.chances(self.take(slice(low, high)).shapes_of(observed))
        members = self._members(low, high, observed)
        answer: Floats = prior * np.where(members, inside[:, None], outside[:, None])
        return answer

    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats:
        raise NotImplementedError  # outputs are not labels: `expected_accuracy` has refused before

    def _unbiased(self, low: int, high: int, losses: Floats, observed: Ints) -> Floats:
        answer: Floats = np.einsum("nk,nk->n", self._unbiased_targets(low, high, observed), losses)
        return answer

    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats:
        raise NotImplementedError  # `_check_invertible` has refused before

    def _check_invertible(self) -> None:
        raise LabelDPError(
            f"{type(self).__name__}.unbiased: blocks that follow a prior have no unbiased estimate of the label. "
            "Use likelihood or posterior (correction='forward' or 'posterior'), or a release without a prior."
        )


# ------------------------------------------------------------------------------------------------ without a prior


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
        return self._rows.count

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
        return self if self._rows.count is None else self._at(Positions(0, self._rows.count, self._rows.listed()))

    def _at(self, positions: Positions) -> ArcChannel:
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._rows = positions
        return part

    def draw(self, codes: Ints, words: Words) -> Int32s:
        """Return the number of an arc for every true label, from the first of its two words."""
        from labeldp.channel import kernels

        out = np.empty(len(codes), np.int32)
        k, d = self._n_classes, self._size
        if math.isinf(self._odds) and d == 1:
            out[:] = codes
            return out
        places, seed = self._rows.span(0, len(codes)), np.uint64(self._seed)
        inside, outside, rest = self.integers
        last = np.uint64(FULL_RANGE - 1 - rest)
        tables = self._tables
        if tables is not None:
            steps = [t * inside for t in range(1, d + 1)] + [d * inside + t * outside for t in range(1, k - d)]
            kernels.draw_few_arcs(codes, words, places, seed, *tables, np.array(steps, np.uint64), last, out)
        else:
            integers = np.array([inside, outside, last], np.uint64)
            kernels.draw_arcs(codes, words, places, seed, self._choices, integers, d, out)
        return out

    def prepare(self) -> None:
        """Make the tables of circles of few labels, once."""
        _ = self._tables

    @cached_property
    def _choices(self) -> Bools:
        """How public numbers become transpositions; with one label to an arc there are none."""
        from labeldp.channel import kernels

        return np.zeros(0, np.bool_) if self._size == 1 else kernels.plan_choices(self._n_classes)

    @cached_property
    def _tables(self) -> tuple[Array, Array] | None:
        """Where each label goes by the first public number of a row and by the second; None where there are more numbers."""
        return tabulate_circles(self._n_classes, mixed=self._size > 1)

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays; odds as text, since JSON has no infinity, and the seed, which has 64 bits."""
        facts = {"kind": "arcs", "n_classes": self._n_classes, "odds": repr(self._odds), "size": self._size}
        return {**facts, "seed": str(self._seed), "first": 0 if self._rows.places is not None else self._rows.first}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored facts; positions that follow each other are for `place` to say."""
        return cls(
            odds=float(header["odds"]),
            size=header["size"],
            n_classes=header["n_classes"],
            seed=int(header["seed"]),
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
        channel = SetChannel(odds=self._odds, n_classes=self._n_classes, shapes=self._as_shapes())
        out = channel.empty_codes(len(codes))
        out[:, 0] = channel.shapes.index((self._n_classes, self._size))
        for low, high in self._spans(len(codes)):
            out[low:high, 1:] = np.packbits(self._members(low, high, codes[low:high]), axis=1, bitorder="little")
        return out, channel

    def _as_shapes(self) -> tuple[Shape, ...]:
        return block_shapes(self._odds, self._n_classes, arc=self._size)

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


class Positions(NamedTuple):
    """Positions of rows in a data set: from `first` on, any number or `count` of them, or as `places` lists them."""

    first: int
    count: int | None
    places: Int64s | None

    @classmethod
    def of(cls, owner: str, first: Any, places: Any) -> Positions:
        """Return checked positions."""
        start = check_integer(owner, "first", first, least=0, most=(1 << 63) - 1)
        if places is None:
            return cls(start, None, None)
        array = np.asarray(places)
        if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
            got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
            raise invalid(owner, "places", "be positions of rows, from 0 on", got=got)
        return cls(0, len(array), array.astype(np.int64, copy=False))

    def take(self, rows: Rows) -> Positions:
        """Return the positions of some rows."""
        if self.places is not None:
            part = self.places[rows]
            return Positions(0, len(part), part)
        if isinstance(rows, slice):
            if self.count is None and rows.stop is None and rows.step in (None, 1) and (rows.start or 0) >= 0:
                return Positions(self.first + (rows.start or 0), None, None)
            low, high, step = rows.indices(self.count if self.count is not None else rows.stop)
            if step == 1:
                return Positions(self.first + low, max(0, high - low), None)
            rows = np.arange(low, high, step)
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        if self.count is not None:
            chosen = np.where(chosen < 0, chosen + self.count, chosen)
        listed = self.first + chosen.astype(np.int64)
        return Positions(0, len(listed), listed)

    def span(self, low: int, high: int) -> Int64s:
        """Return the positions of rows low .. high - 1."""
        if self.places is not None:
            return self.places[low:high]
        return np.arange(self.first + low, self.first + high, dtype=np.int64)

    def listed(self) -> Int64s:
        """Return all positions."""
        return self.span(0, self.count or 0)


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


# --------------------------------------------------------------------------------------------------- with a prior


class SetChannel(SetAnswers, kind="sets"):
    """Answers that are sets, each behind the number of its shape (b, d): what a release of blocks by a prior carries.

    Parameters
    ----------
    odds : float
        e^epsilon - 1.
    n_classes : int
        K.
    shapes : sequence of (b, d)
        The shapes that an answer may name, by number: b blocks, every label in d of them.

    A code is a row of 1 + ceil(K / 8) bytes: the number of the shape, and a bit for each label (little bit order). It says all
    that a learner needs, so one channel serves any number of rows. The blocks that were not drawn are forgotten: `forward`
    and `matrix`, which ask about all answers of a row, are for the `BlockChannel` before the draw.

    Example
    -------
    >>> channel = SetChannel(odds=1.0, n_classes=3, shapes=[(3, 1)])
    >>> channel.likelihood(np.array([[0, 0b001], [0, 0b100]], np.uint8)).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]
    """

    def __init__(self, *, odds: float, n_classes: int, shapes: Any) -> None:
        owner = type(self).__name__
        self._n_classes = check_integer(owner, "n_classes", n_classes, least=2, most=MOST_CLASSES)
        self._odds = check_odds(owner, odds)
        self._shapes = _check_shapes(owner, shapes)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes (b, d) that an answer may name, by number."""
        return self._shapes

    @property
    def n_examples(self) -> int | None:
        """None: a code says all about its row."""
        return None

    @property
    def n_outputs(self) -> int:
        """The most blocks that a row may have."""
        return max(b for b, _ in self._shapes)

    def empty_codes(self, n: int) -> UInt8s:
        """Return room for n answers."""
        return np.zeros((n, 1 + (self._n_classes + 7) // 8), np.uint8)

    def take(self, rows: Rows) -> FiniteChannel:
        """Return the channel itself: a code says all about its row."""
        return self

    def draw(self, codes: Ints, words: Words) -> Any:
        """Refuse: the blocks were forgotten when the answers were released."""
        raise LabelDPError(
            "SetChannel.draw: the blocks of these answers were not kept, so nothing can be drawn from them. "
            "Ask the mechanism for its channel."
        )

    def prepare(self) -> None:
        """Nothing is drawn from it."""

    def header(self) -> dict[str, Any]:
        """All there is; odds as text, since JSON has no infinity."""
        shapes = [list(shape) for shape in self._shapes]
        return {"kind": "sets", "n_classes": self._n_classes, "odds": repr(self._odds), "shapes": shapes}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored facts."""
        return SetChannel(odds=float(header["odds"]), n_classes=header["n_classes"], shapes=header["shapes"])

    def row_arrays(self) -> dict[str, Array]:
        """No rows are shared between examples."""
        return {}

    def example_arrays(self) -> dict[str, Array]:
        """Nothing differs from row to row but the answers."""
        return {}

    def shapes_of(self, observed: Any) -> Int64s:
        """Return b and d of each answer."""
        found: Int64s = np.array(self._shapes, np.int64)[np.asarray(observed)[:, 0]]
        return found

    def possible(self, observed: Any) -> Bools:
        """Return, for each answer, whether some label could have given it: with an infinite epsilon it must name one."""
        codes = self._check_observed(observed)
        if math.isfinite(self._odds):
            return np.ones(len(codes), np.bool_)
        answer: Bools = codes[:, 1:].any(axis=1)
        return answer

    def are_outputs(self, observed: Any) -> Bools:
        """Return which codes are answers: a shape that there is, and labels that exist."""
        codes = np.asarray(observed)
        spare = 8 * (codes.shape[1] - 1) - self._n_classes
        known = codes[:, 0] < len(self._shapes)
        return known & ((codes[:, -1] >> np.uint8(8 - spare)) == 0) if spare else known

    def information(self, prior: Any = None) -> Floats:
        """Refuse: it depends on blocks that were forgotten."""
        raise self._forgotten("information")

    def _check_observed(self, observed: Any) -> Any:
        codes = np.asarray(observed)
        owner, width = type(self).__name__, 1 + (self._n_classes + 7) // 8
        if codes.ndim != 2 or codes.dtype != np.uint8 or codes.shape[1] != width:
            got = Described(f"an array of shape {codes.shape} and dtype {codes.dtype}")
            fix = "Use release.codes: a shape and a set of labels, as bytes, for each row."
            raise invalid(owner, "observed", f"be uint8 of shape (n, {width})", got=got, fix=fix)
        known = self.are_outputs(codes)
        if not known.all():
            got = Described(f"something else in row {int(np.argmin(known))}")
            raise invalid(owner, "observed", "name a shape of the channel and labels that exist", got=got)
        self._check_length("observed", len(codes))
        return codes

    def _members(self, low: int, high: int, observed: Array) -> Bools:
        bits = np.unpackbits(observed[:, 1:], axis=1, count=self._n_classes, bitorder="little")
        return bits.view(np.bool_)

    def _matrix(self, i: int) -> Floats:
        raise self._forgotten("matrix")

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        raise self._forgotten("forward")

    def _forgotten(self, name: str) -> LabelDPError:
        return LabelDPError(
            f"SetChannel.{name}: the blocks that were not drawn were not released. Use likelihood(codes), of which "
            "sum_k p[k] likelihood[k] is the chance of an answer under a model p."
        )


class BlockChannel(SetChannel):
    """Blocks of labels by each row's prior: what `draw` answers from. A release keeps its `SetChannel` alone.

    Parameters
    ----------
    odds : float
        e^epsilon - 1.
    prior : array of shape (R, K)
        Rows of probabilities, checked by the caller.
    index : array of shape (n,), optional
        The row of each example. None: example r has row r, or all have the one row if `shared`.
    shared : bool
        Whether rows of the prior serve many examples: then `explore` of the examples, by public chance, have blocks as if all
        labels were equally likely, since blocks that are always the same never tell the labels within one apart.
    seed, first
        Of public chance; the position of the first example.
    mix, explore : float
        The share of the uniform prior in each row; see `shared`.

    Guarantee
    ---------
    `epsilon` is log(1 + odds), rounded up, whatever the prior: see `labeldp.channel.sets`.
    """

    def __init__(
        self,
        *,
        odds: float,
        prior: Floats,
        index: Int64s | None = None,
        shared: bool = False,
        seed: int = 0,
        first: int = 0,
        mix: float = 0.1,
        explore: float = 0.25,
    ) -> None:
        k = prior.shape[1]
        super().__init__(odds=odds, n_classes=k, shapes=block_shapes(odds, k))
        self._prior, self._index, self._shared = prior, index, shared
        self._seed, self._mix = check_integer("BlockChannel", "seed", seed, least=0, most=FULL_RANGE - 1), mix
        self._explore = math.floor(explore * (FULL_RANGE - 1)) if shared else 0
        everyone = None if shared and index is None else len(prior) if index is None else len(index)
        self._rows = Positions(first, everyone, None)
        _ = self.integers

    @property
    def prior(self) -> Floats:
        """The rows of the prior, as given."""
        return self._prior

    @property
    def n_examples(self) -> int | None:
        """Number of rows it describes; None if one row of the prior serves any number."""
        return self._rows.count

    @cached_property
    def integers(self) -> tuple[Integers, ...]:
        """The sampler's integers of every shape: the whole truth about what `draw` does."""
        return tuple(block_integers(self._odds, shape) for shape in self._shapes)

    def place(self, start: int, count: int) -> BlockChannel:
        """Return the channel whose rows are at positions `start` .. `start + count - 1`."""
        return self._at(Positions(start, count, None), self._index, self._prior)

    def take(self, rows: Rows) -> BlockChannel:
        """Return the channel of a subset of examples (a slice does not copy)."""
        positions = self._rows.take(rows)
        if self._index is not None:
            return self._at(positions, self._index[rows], self._prior)
        return self._at(positions, None, self._prior if self._shared else self._prior[rows])

    def _at(self, positions: Positions, index: Int64s | None, prior: Floats) -> BlockChannel:
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        part._rows, part._index, part._prior = positions, index, prior
        return part

    def released(self) -> FiniteChannel:
        """Return the channel without blocks and prior."""
        return SetChannel(odds=self._odds, n_classes=self._n_classes, shapes=self._shapes)

    def draw(self, codes: Ints, words: Words) -> UInt8s:
        """Return a shape and a set for every true label, from the first of its two words."""
        from labeldp.channel import kernels

        out = self.empty_codes(len(codes))
        table = np.array([[one.inside, one.outside, FULL_RANGE - 1 - one.rest] for one in self.integers], np.uint64)
        loop = kernels.draw_few_blocks if self._n_classes <= FEW else kernels.draw_cells
        loop(codes, words, *self._arguments(0, len(codes)), table, out)
        return out

    def prepare(self) -> None:
        """Settle which shapes suit which priors, once."""
        _ = self._plan

    @cached_property
    def _plan(self) -> tuple[Any, ...]:
        """What the compiled loops need to choose shapes, the same for all rows."""
        return plan_blocks(self._odds, self._n_classes)

    def _arguments(self, low: int, high: int) -> tuple[Any, ...]:
        """Return what the compiled loops take of rows low .. high - 1."""
        if self._index is not None:
            prior, index = self._prior, self._index[low:high]
        elif self._shared:
            prior, index = self._prior, np.zeros(high - low, np.int64)
        else:
            prior, index = self._prior[low:high], np.empty(0, np.int64)
        chance = np.array([self._seed, self._explore], np.uint64)
        return self._rows.span(low, high), prior, index, chance, self._mix, *self._plan

    def _blocks(self, low: int, high: int) -> tuple[Int64s, Bools]:
        """Return the shapes of rows and which labels their blocks name (m, most blocks, K)."""
        from labeldp.channel import kernels

        chosen, numbers = np.empty(high - low, np.int64), np.empty((high - low, self._n_classes), np.int64)
        few = self._n_classes <= FEW
        loop = kernels.show_few_blocks if few else kernels.show_cells
        loop(*self._arguments(low, high), chosen, numbers)
        block = np.arange(self.n_outputs)[None, :, None]
        inside = (numbers[:, None, :] >> block) & 1 == 1 if few else numbers[:, None, :] == block
        return np.array(self._shapes, np.int64)[chosen], inside

    def information(self, prior: Any = None) -> Floats:
        """Return the mutual information of each row's label and answer, in nats.

        Labels follow `prior`; by default the row's own, mixed as the blocks are.
        """
        given = None if prior is None else np.asarray(prior, np.float64)
        n = self.n_examples if self.n_examples is not None else 1 if given is None or given.ndim == 1 else len(given)
        rows = None if given is None else self._check_per_example("prior", given, n)
        out = np.empty(n)
        for low, high in self._spans(n):
            shapes, inside = self._blocks(low, high)
            mass = np.einsum("mbk,mk->mb", inside, self.own_prior(low, high) if rows is None else rows[low:high])
            norm = shapes[:, 1] * (1.0 + self._odds) + shapes[:, 0] - shapes[:, 1]
            there = np.arange(inside.shape[1]) < shapes[:, :1]
            out[low:high] = np.where(there, score_mass(np.minimum(mass, 1.0), self._odds), 0.0).sum(axis=1) / norm
        return out

    def own_prior(self, low: int, high: int) -> Floats:
        """Return the mixed prior of rows low .. high - 1."""
        rows = self._prior[low:high]
        if self._index is not None:
            rows = self._prior[self._index[low:high]]
        elif self._shared:
            rows = np.repeat(self._prior, high - low, axis=0)
        share = rows / rows.sum(axis=1, keepdims=True, dtype=np.float64)
        mixed: Floats = (1.0 - self._mix) * share + self._mix / self._n_classes
        return mixed

    def outputs_of(self, observed: Any) -> Places:
        """Return the number of each answer among its row's blocks, the first of equal ones; -1 where it is none of them."""
        codes = self._check_observed(observed)
        out = np.empty(len(codes), np.intp)
        for low, high in self._spans(len(codes)):
            shapes, inside = self._blocks(low, high)
            same = (inside == self._members(low, high, codes[low:high])[:, None, :]).all(axis=2)
            same &= np.arange(same.shape[1]) < shapes[:, :1]
            same &= (self.shapes_of(codes[low:high]) == shapes).all(axis=1)[:, None]
            out[low:high] = np.where(same.any(axis=1), same.argmax(axis=1), -1)
        return out

    def _spans(self, n: int) -> Any:
        from labeldp.channel.finite import spans

        return spans(n, width=self._n_classes * self.n_outputs)

    def _matrix(self, i: int) -> Floats:
        shapes, inside = self._blocks(i, i + 1)
        law = np.where(inside[0].T, *(chance[0] for chance in self.chances(shapes)))
        return self._merge_equal(shapes, inside, law[None])[0]

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        shapes, inside = self._blocks(low, high)
        mass = np.einsum("mbk,mk->mb", inside, probabilities)
        yes, no = (chance[:, None] for chance in self.chances(shapes))
        law = no * np.maximum(probabilities.sum(axis=1, keepdims=True) - mass, 0.0) + yes * mass
        return self._merge_equal(shapes, inside, law[:, None, :])[:, 0, :]

    def _merge_equal(self, shapes: Int64s, inside: Bools, law: Floats) -> Floats:
        """Return laws (m, any, blocks) in which blocks of equal labels are one answer, the first of them."""
        there = np.arange(inside.shape[1]) < shapes[:, :1]
        if self._n_classes > FEW:  # cells are disjoint: only empty ones are equal
            same = ~inside.any(axis=2) & there
            first = np.where(same, same.argmax(axis=1)[:, None], np.arange(inside.shape[1]))
        else:
            bits = inside @ (1 << np.arange(self._n_classes))
            bits = np.where(there, bits, -1)
            first = (bits[:, :, None] == bits[:, None, :]).argmax(axis=2)
        out = np.zeros_like(law)
        rows = np.arange(len(law))[:, None]
        np.add.at(out.transpose(0, 2, 1), (rows, first), np.where(there[:, None, :], law, 0.0).transpose(0, 2, 1))
        return out


def score_mass(mass: Any, odds: float) -> Floats:
    """Return f(s) = s E eps - (1 + s (E-1)) ln(1 + s (E-1)): the weight times the information of a block of mass s."""
    s = np.asarray(mass, dtype=np.float64)
    answer: Floats = s * (1.0 + odds) * math.log1p(odds) - (1.0 + s * odds) * np.log1p(s * odds)
    return answer


@functools.lru_cache(maxsize=64)
def block_shapes(odds: float, n_classes: int, *, arc: int | None = None) -> tuple[Shape, ...]:
    """Return the shapes that blocks of K labels may have at these odds, cells first, and (K, d) of arcs at the end.

    With few labels b <= 16. With more there are cells alone, up to a few more than the best number for labels without weight,
    1 / r at r = (eps E - E + 1) / (E - 1)^2, since heavier labels want fewer.
    """
    k = n_classes
    if k <= FEW:
        cells = [(b, 1) for b in range(2, k + 1)]
        found = cells + ([] if k == 2 else [(b, d) for b, d in OVERLAPPING if d < b])
        found.sort(key=lambda shape: (shape[0] * shape[1], shape))
    else:
        top = min(k, max(4, math.ceil(1.0 / best_share(odds)) + 1))
        steps = [*range(2, 17), *(round(16 * 2 ** (j / 4)) for j in range(1, 48)), top]
        found = [(b, 1) for b in sorted({b for b in steps if b <= top})]
    size = arc_size(odds, k) if arc is None else arc
    return tuple(dict.fromkeys([*found, (k, size)]))


def best_share(odds: float) -> float:
    """Return r = d / b of the most informative blocks: 1/2 - eps/6 for small epsilon, about (eps - 1) / E for large."""
    if math.isinf(odds):
        return 0.0
    epsilon = math.log1p(odds)
    if epsilon < 1e-3:
        return 0.5 - epsilon / 6
    # (eps E - E + 1) / (E - 1)^2, divided by E^2 above and below so that nothing overflows.
    small = math.exp(-epsilon)
    return max((epsilon - 1.0 + small) * small / (1.0 - small) ** 2, 1e-9)


def arc_size(odds: float, n_classes: int) -> int:
    """Return d in 1 .. K - 1 that maximises d (K - d) / (d E + K - d), the smaller one at a tie: about K / (1 + e^(eps/2)).

    Every f-divergence between the answers of two labels is proportional to that.

    >>> [arc_size(math.expm1(epsilon), 10) for epsilon in (0.5, 1, 2, 3, 4)]
    [4, 4, 3, 2, 1]
    """
    if math.isinf(odds):
        return 1
    d = np.arange(1, n_classes, dtype=np.float64)
    worth = d * (n_classes - d) / (d * odds + n_classes)
    return int(np.argmax(worth)) + 1


@functools.lru_cache(maxsize=64)
def plan_blocks(odds: float, n_classes: int) -> tuple[Any, ...]:
    """Return what the compiled loops choose shapes by: shapes and norms, and then tables (few labels) or the odds."""
    from labeldp.channel import kernels

    shapes = np.array(block_shapes(odds, n_classes), np.int64)
    norms = shapes[:, 1] * (1.0 + odds) + (shapes[:, 0] - shapes[:, 1])
    if n_classes > FEW:
        cells = int((shapes[:, 1] == 1).sum()) if shapes[-1, 1] == 1 else len(shapes) - 1
        return shapes[:cells], norms[:cells], float(odds)
    # Odds of 0 make every block worthless, and any shape as good as another.
    table = score_mass((np.arange(kernels.TABLE + 1) / kernels.TABLE) ** 2, odds)
    choice = np.zeros((kernels.BINS ** min(3, n_classes - 1), kernels.TAILS), np.int64)
    kernels.choose_shapes(n_classes, shapes, norms, table, SLACK, choice)
    return shapes, norms, table, choice


def check_odds(owner: str, odds: Any) -> float:
    """Return odds in [0, inf]."""
    value = float(odds)
    if math.isnan(value) or value < 0:
        raise invalid(owner, "odds", "be >= 0", got=odds)
    return value


def _check_shapes(owner: str, shapes: Any) -> tuple[Shape, ...]:
    """Return shapes as pairs of integers 0 < d < b, no more than a byte can name."""
    pairs = [tuple(pair) for pair in shapes]
    if not 0 < len(pairs) <= MOST_SHAPES or any(len(pair) != 2 for pair in pairs):
        raise invalid(owner, "shapes", f"be 1 to {MOST_SHAPES} pairs (b, d)", got=Described(f"{len(pairs)} entries"))
    found = []
    for b, d in pairs:
        size = check_integer(owner, "shapes", b, least=2, most=MOST_CLASSES)
        found.append((size, check_integer(owner, "shapes", d, least=1, most=size - 1)))
    return tuple(found)
