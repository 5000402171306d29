r"""Channels whose answers are sets of labels: balanced block response.

>>> from labeldp.channel import ArcChannel
>>> arcs = ArcChannel(odds=1.0, size=2, n_classes=5)
>>> arcs.members([0, 3]).sum(axis=1).tolist()  # each answer names two of five labels
[2, 2]
>>> float(arcs.likelihood([0]).max() / arcs.likelihood([0]).min())  # 1 + odds
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

from labeldp.arrays import Array, Bools, Floats, Int64s, Ints, UInt8s, Words
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
    def take(self, rows: Rows) -> SetAnswers:
        """Return the channel of a subset of examples, in the order of `rows`."""

    @abc.abstractmethod
    def shapes_of(self, observed: Any) -> Array:
        """Return b and d of each answer (n, 2): how many blocks its row had, and how many of them every label was in.

        Where answers were drawn at several epsilons, the odds of each stand in a third column.
        """

    @abc.abstractmethod
    def _members(self, low: int, high: int, observed: Array) -> Bools: ...

    def chances(self, shapes: Array) -> tuple[Floats, Floats]:
        """Return the chance of an answer with these b and d under a label in it, and under one that is not."""
        b, d = shapes[..., 0].astype(np.float64), shapes[..., 1].astype(np.float64)
        if math.isinf(self._odds):
            return 1.0 / d, np.zeros_like(d)
        odds = self._odds if shapes.shape[-1] == 2 else shapes[..., 2]
        norm = d * (1.0 + odds) + (b - d)
        return (1.0 + odds) / norm, 1.0 / norm

    def _joint(self, low: int, high: int, prior: Floats, observed: Array) -> Floats:
        inside, outside = self.chances(self.take(slice(low, high)).shapes_of(observed))
        members = self._members(low, high, observed)
        answer: Floats = prior * np.where(members, inside[:, None], outside[:, None])
        return answer

    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats:
        return np.full(high - low, np.nan)  # outputs are not labels: `expected_accuracy` has refused before

    def _unbiased(self, low: int, high: int, losses: Floats, observed: Ints) -> Floats:
        answer: Floats = np.einsum("nk,nk->n", self._unbiased_targets(low, high, observed), losses)
        return answer

    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats:
        return np.full((high - low, self._n_classes), np.nan)  # `_check_invertible` has refused before

    def _check_invertible(self) -> None:
        raise LabelDPError(
            f"{type(self).__name__}.unbiased: blocks that follow a prior have no unbiased estimate of the label. "
            "Use likelihood or posterior (correction='forward' or 'posterior'), or a release without a prior."
        )


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
    shape_odds : sequence of floats, optional
        The odds of each shape, where answers were drawn at several epsilons; the largest is `odds`.

    Notes
    -----
    A code is a row of 1 + ceil(K / 8) bytes: the number of the shape, and a bit for each label (little bit order). It says all
    that a learner needs, so one channel serves any number of rows. The blocks that were not drawn are forgotten: `forward`
    and `matrix`, which ask about all answers of a row, are for the `BlockChannel` before the draw.

    Example
    -------
    >>> channel = SetChannel(odds=1.0, n_classes=3, shapes=[(3, 1)])
    >>> channel.likelihood(np.array([[0, 0b001], [0, 0b100]], np.uint8)).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]
    """

    def __init__(self, *, odds: float, n_classes: int, shapes: Any, shape_odds: Any = None) -> None:
        owner = type(self).__name__
        self._n_classes = check_integer(owner, "n_classes", n_classes, least=2, most=MOST_CLASSES)
        self._odds = check_odds(owner, odds)
        self._shapes = _check_shapes(owner, shapes)
        self._shape_odds = None if shape_odds is None else tuple(check_odds(owner, one) for one in shape_odds)
        if self._shape_odds is not None and (
            len(self._shape_odds) != len(self._shapes) or max(self._shape_odds) != self._odds or math.isinf(self._odds)
        ):
            got = Described(f"{len(self._shape_odds)} for {len(self._shapes)} shapes")
            raise invalid(owner, "shape_odds", "be finite, one for each shape, the largest of them `odds`", got=got)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes (b, d) that an answer may name, by number."""
        return self._shapes

    @property
    def shape_odds(self) -> tuple[float, ...] | None:
        """The odds of each shape, where answers were drawn at several epsilons."""
        return self._shape_odds

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

    def take(self, rows: Rows) -> SetAnswers:
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
        facts = {"kind": "sets", "n_classes": self._n_classes, "odds": repr(self._odds), "shapes": shapes}
        return facts if self._shape_odds is None else {**facts, "shape_odds": [repr(one) for one in self._shape_odds]}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored facts."""
        several = header.get("shape_odds")
        return SetChannel(
            odds=float(header["odds"]),
            n_classes=header["n_classes"],
            shapes=header["shapes"],
            shape_odds=None if several is None else [float(one) for one in several],
        )

    def row_arrays(self) -> dict[str, Array]:
        """No rows are shared between examples."""
        return {}

    def example_arrays(self) -> dict[str, Array]:
        """Nothing differs from row to row but the answers."""
        return {}

    def shapes_of(self, observed: Any) -> Array:
        """Return b and d of each answer, and its odds where they differ."""
        named = np.asarray(observed)[:, 0]
        facts: Array = np.array(self._shapes, np.int64)
        if self._shape_odds is not None:
            facts = np.column_stack([facts.astype(np.float64), self._shape_odds])
        found: Array = facts[named]
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


class Positions(NamedTuple):
    """Positions of rows in a data set: from `first` on, any number or `total` of them, or as `places` lists them."""

    first: int
    total: int | None
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
            if self.total is None and rows.stop is None and rows.step in (None, 1) and (rows.start or 0) >= 0:
                return Positions(self.first + (rows.start or 0), None, None)
            low, high, step = rows.indices(self.total if self.total is not None else rows.stop)
            if step == 1:
                return Positions(self.first + low, max(0, high - low), None)
            rows = np.arange(low, high, step)
        chosen = np.asarray(rows)
        if chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        if self.total is not None:
            chosen = np.where(chosen < 0, chosen + self.total, chosen)
        listed = self.first + chosen.astype(np.int64)
        return Positions(0, len(listed), listed)

    def span(self, low: int, high: int) -> Int64s:
        """Return the positions of rows low .. high - 1."""
        if self.places is not None:
            return self.places[low:high]
        return np.arange(self.first + low, self.first + high, dtype=np.int64)

    def listed(self) -> Int64s:
        """Return all positions."""
        return self.span(0, self.total or 0)


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
