"""Channels whose outputs are labels: keep a label, or redraw it from a public distribution.

>>> import numpy as np
>>> response = Channel(keep=0.5, base=[0.25, 0.25, 0.5])
>>> response.unbiased([[1.0, 0.0, 0.0]], [0]).tolist()
[1.75]
>>> members = np.packbits([[1, 1, 0]], axis=1, bitorder="little")
>>> CandidateChannel(odds=1.0, members=members, n_classes=3).matrix().round(3).tolist()
[[0.667, 0.333, 0.0], [0.333, 0.667, 0.0], [0.5, 0.5, 0.0]]

Mathematics. With probability `keep` a label is returned as it is; otherwise it is redrawn from `base`. Labels outside
S = {o : base[o] > 0} are always redrawn:

    T[y, o] = keep 1[o = y, y in S] + (1 - keep 1[y in S]) base[o].

Every answer follows in O(K) per example, without inverting a matrix (`AlignedRows` has the formulas and derives them).

`Channel` stores a few rows (keep, base) and an index from examples to rows: one row for all, or one per group.
`CandidateChannel` stores a set of labels per example, as bits; its rows are uniform within the set, and keep follows
from the set's size, so that a million examples of a thousand classes take 125 MB instead of 8 GB.

Design notes. `redraw` = 1 - keep is stored beside keep, since the subtraction loses all digits where keep is close to
one. Epsilon is computed from the rows and rounded up; `safe_odds` makes rows whose epsilon, so computed, does not
exceed what a mechanism promised. The integers that the sampler compares with never exceed the rows' epsilon either
(`labeldp.channel.finite`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Array, Bools, Floats, Int32s, Ints, UInt8s, UInt32s, Words
from labeldp.channel.finite import (
    FiniteChannel,
    Rows,
    check_row_index,
    cumulative_weights,
    integer_weights,
    keep_threshold,
    keep_thresholds,
    least_share,
    log1p_up,
    uniform_share,
)
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.random import over_spans
from labeldp.validate import check_probability_rows


class Channel(FiniteChannel, kind="rows"):
    """Keep a label with probability `keep`, otherwise redraw it from the public distribution `base`.

    T[y, o] = Pr[observed = o | true = y] = keep 1[o = y, y in S] + (1 - keep 1[y in S]) base[o],
    S = {o : base[o] > 0}. Labels outside S are always redrawn.

    Parameters
    ----------
    keep : float or array of shape (R,)
        Probability of keeping a label of S, per row.
    base : array of shape (K,) or (R, K)
        What is drawn otherwise, per row.
    index : array of shape (n,), optional
        The row of each example. Without it there must be one row, and it serves any number of examples.
    redraw : array of shape (R,), optional
        1 - keep, where the caller knows it more accurately than the subtraction (keep close to one).

    Guarantee
    ---------
    `epsilon` is computed from the rows: max over o in S of log(1 + keep / (redraw base[o])), 0 where S has one label.
    The sampler's integers never exceed it (see `labeldp.channel.finite`).

    Example
    -------
    >>> coin = Channel(keep=0.5, base=[0.5, 0.5])
    >>> coin.matrix().tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    >>> round(coin.epsilon, 6)  # log 3
    1.098612
    >>> coin.posterior([0.9, 0.1], [1]).round(3).tolist()
    [[0.75, 0.25]]
    """

    def __init__(self, *, keep: Any, base: Any, index: Any = None, redraw: Any = None) -> None:
        rows = check_probability_rows("Channel", "base", np.atleast_2d(np.asarray(base))).astype(np.float64)
        sums = rows.sum(axis=1, keepdims=True)
        # Rows that were rounded in float32 are made to sum to one; those that do already keep their exact values.
        self._base = np.where(np.abs(sums - 1.0) > 1e-12, rows / sums, rows)
        self._keep = _check_row_values("keep", keep, len(rows))
        self._redraw = 1.0 - self._keep if redraw is None else _check_row_values("redraw", redraw, len(rows))
        if np.any(np.abs(self._keep + self._redraw - 1.0) > 1e-12):  # roundings of a number and its complement
            raise invalid("Channel", "redraw", "be 1 - keep", got=Described("another value"))
        if index is None and len(rows) != 1:
            raise invalid("Channel", "index", f"say which of the {len(rows)} rows each example has", got=None)
        self._index = None if index is None else check_row_index("Channel", "index", index, len(rows))

    @property
    def keep(self) -> Floats:
        """Probability of keeping a label of the support, per row."""
        return self._keep

    @property
    def redraw(self) -> Floats:
        """1 - keep, accurate also where keep is close to one."""
        return self._redraw

    @property
    def base(self) -> Floats:
        """What a label is redrawn from: a row of K probabilities per row."""
        return self._base

    @property
    def index(self) -> Ints | None:
        """The row of each example; None if one row serves all."""
        return self._index

    @property
    def n_classes(self) -> int:
        """Number of labels, K."""
        return int(self._base.shape[1])

    @property
    def n_examples(self) -> int | None:
        """Number of examples it describes; None if one row serves any number."""
        return None if self._index is None else len(self._index)

    @cached_property
    def epsilon(self) -> float:
        """The exact pure epsilon of the worst row, computed from the rows."""
        rows = AlignedRows(self._keep[:, None], self._redraw[:, None], self._base)
        return float(rows.epsilon().max())

    def take(self, rows: Rows) -> Channel:
        """Return the channel of a subset of examples (a slice does not copy)."""
        if self._index is None:
            return self
        part = object.__new__(Channel)  # the rows were checked when this channel was made
        part.__dict__.update(self.__dict__)
        part._index = self._index[rows]
        return part

    def draw(self, codes: Ints, words: Words) -> Int32s:
        """Return an output for every true label, from two words per example."""
        from labeldp import kernels

        out = np.empty(len(codes), np.int32)
        keep, support, sums = self.integers
        if sums is None:
            kernels.draw_uniform(codes, words, keep[0], np.uint64(self.n_classes), out)
        else:
            index = np.zeros(len(codes), np.int64) if self._index is None else self._index
            kernels.draw_rows(codes, words, index, keep, support, sums, out)
        return out

    def prepare(self) -> None:
        """Make the thresholds of all rows, once."""
        _ = self.integers

    @cached_property
    def integers(self) -> RowIntegers:
        """The sampler's integers of every row: the whole truth about what `draw` does."""
        uniform = self._index is None and bool(np.all(self._base == self._base[0, 0]))
        keep = np.empty(len(self._base), np.uint64)
        sums = np.empty(self._base.shape, np.uint64)
        for r, row in enumerate(self._base):
            share = uniform_share(self.n_classes)
            if not uniform:
                weights = integer_weights(row)
                sums[r] = cumulative_weights(weights)
                share = least_share(weights)
            least = Fraction(float(row[row > 0].min()))
            kept, redrawn = Fraction(float(self._keep[r])), Fraction(float(self._redraw[r]))
            keep[r] = keep_threshold(kept, redrawn, least=least, share=share)
        return RowIntegers(keep, self._base > 0, None if uniform else sums)

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays."""
        return {"kind": "rows", "n_classes": self.n_classes}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored rows."""
        return Channel(keep=rows["keep"], redraw=rows["redraw"], base=rows["base"], index=examples.get("row"))

    def row_arrays(self) -> dict[str, Array]:
        """The rows."""
        return {"keep": self._keep, "redraw": self._redraw, "base": self._base}

    def example_arrays(self) -> dict[str, Array]:
        """The row of each example, if they differ."""
        return {} if self._index is None else {"row": self._index}

    def _align(self, low: int, high: int) -> AlignedRows:
        if self._index is None:
            return AlignedRows(self._keep[:, None], self._redraw[:, None], self._base)
        at = self._index[low:high]
        return AlignedRows(self._keep[at, None], self._redraw[at, None], self._base[at])

    def _matrix(self, i: int) -> Floats:
        return self._align(i, i + 1).matrix()

    def _unbiased(self, low: int, high: int, losses: Floats, observed: Ints) -> Floats:
        return self._align(low, high).unbiased(losses, observed)

    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats:
        return self._align(low, high).unbiased_targets(observed)

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        return self._align(low, high).forward(probabilities)

    def _joint(self, low: int, high: int, prior: Floats, observed: Ints) -> Floats:
        return self._align(low, high).joint(prior, observed)

    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats:
        return self._align(low, high).accuracy(prior)

    def _check_invertible(self) -> None:
        if np.any(self.keep == 0):
            raise LabelDPError(
                "Channel.unbiased: a row never keeps its label (epsilon = 0), so nothing can be estimated from it. "
                "Use epsilon > 0."
            )


class CandidateChannel(Channel, kind="candidates"):
    """Randomized response within a candidate set of each example's own.

    With a set of k labels, keep = odds / (odds + k) and base is uniform over the set, so that a kept label is
    1 + odds = e^epsilon times likelier than any other member, whatever k is. Sets are stored as packed bits, n K / 8
    bytes: a 32nd of the float32 prior that they come from.

    Parameters
    ----------
    odds : float
        e^epsilon - 1.
    members : uint8 array of shape (n, ceil(K / 8))
        Bit j (little bit order) says whether label j is a candidate.
    n_classes : int
        K.

    Example
    -------
    >>> sets = np.packbits([[1, 1, 0], [0, 1, 0]], axis=1, bitorder="little")
    >>> channel = CandidateChannel(odds=1.0, members=sets, n_classes=3)
    >>> channel.matrix(0).round(3).tolist()
    [[0.667, 0.333, 0.0], [0.333, 0.667, 0.0], [0.5, 0.5, 0.0]]
    >>> channel.sizes.tolist(), round(channel.epsilon, 6)
    ([2, 1], 0.693147)
    """

    def __init__(self, *, odds: float, members: Any, n_classes: int) -> None:
        self._odds = float(odds)
        self._members = np.asarray(members)
        self._n_classes = int(n_classes)
        if math.isnan(self._odds) or self._odds < 0:
            raise invalid("CandidateChannel", "odds", "be >= 0", got=odds)
        _check_members(self._members, self._n_classes)
        if np.any(self.sizes == 0):
            got = Described(f"none in row {int(np.argmin(self.sizes))}")
            raise invalid("CandidateChannel", "members", "have a candidate in each row", got=got)

    @classmethod
    def trusted(cls, *, odds: float, members: UInt8s, sizes: UInt32s, n_classes: int) -> CandidateChannel:
        """Return a channel from sets that the caller has just made: they are not checked or counted again."""
        channel = object.__new__(cls)
        channel._odds, channel._members, channel._n_classes = float(odds), members, int(n_classes)
        channel.__dict__["sizes"] = sizes
        return channel

    @property
    def odds(self) -> float:
        """e^epsilon - 1: how much likelier than another candidate a kept label is, less one."""
        return self._odds

    @property
    def members(self) -> UInt8s:
        """The candidate sets, as packed bits."""
        return self._members

    @cached_property
    def sizes(self) -> UInt32s:
        """Number of candidates of each example, k."""
        from labeldp import kernels

        out = np.empty(len(self._members), np.uint32)
        over_spans(
            lambda low, high: kernels.count_members(self._members[low:high], out[low:high]), len(out), step=1 << 18
        )
        return out

    @property
    def keep(self) -> Floats:
        """Probability of keeping a candidate, per example."""
        return odds_to_keep(self._odds, self.sizes)[0]

    @property
    def redraw(self) -> Floats:
        """1 - keep, per example."""
        return odds_to_keep(self._odds, self.sizes)[1]

    @property
    def base(self) -> Floats:
        """The dense (n, K) base, made anew at each call: 8 K bytes an example, to look at rather than to train with."""
        return self._align(0, self.n_examples).base

    @property
    def index(self) -> Ints:
        """Each example has a row of its own."""
        return np.arange(self.n_examples)

    @property
    def n_classes(self) -> int:
        """Number of labels, K."""
        return self._n_classes

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self._members)

    @cached_property
    def epsilon(self) -> float:
        """log(1 + odds), rounded up, if any set has two members (see `odds_to_keep`), else 0: outputs are constant."""
        return float(log1p_up(self._odds)) if self._odds > 0 and np.any(self.sizes >= 2) else 0.0

    def take(self, rows: Rows) -> CandidateChannel:
        """Return the channel of a subset of examples (a slice does not copy)."""
        part = CandidateChannel.trusted(
            odds=self._odds, members=self._members[rows], sizes=self.sizes[rows], n_classes=self._n_classes
        )
        if "keep_by_size" in self.__dict__:
            part.__dict__["keep_by_size"] = self.keep_by_size
        return part

    def draw(self, codes: Ints, words: Words) -> Int32s:
        """Return an output for every true label, from two words per example."""
        from labeldp import kernels

        out = np.empty(len(codes), np.int32)
        draw = kernels.draw_few_candidates if self._members.shape[1] == 2 else kernels.draw_candidates
        draw(codes, words, self._members, self.sizes, self.keep_by_size, out)
        return out

    def prepare(self) -> None:
        """Make the thresholds of all sizes, once."""
        _ = self.keep_by_size

    @cached_property
    def keep_by_size(self) -> Words:
        """The threshold for keeping a label, by the size of its candidate set: what `draw` compares words with."""
        return keep_thresholds(self._odds, self.sizes, self._n_classes)

    def possible(self, observed: Any) -> Bools:
        """Return, for each example, whether its output is in its candidate set."""
        codes = self._check_observed(observed)
        bits = self._members[np.arange(len(codes)), codes >> 3]
        answer: Bools = (bits >> (codes & 7).astype(np.uint8) & 1).astype(np.bool_)
        return answer

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays; odds as text, since JSON has no infinity."""
        return {"kind": "candidates", "n_classes": self._n_classes, "odds": repr(self._odds)}

    @classmethod
    def from_arrays(
        cls, header: Mapping[str, Any], *, rows: Mapping[str, Array], examples: Mapping[str, Array]
    ) -> FiniteChannel:
        """Return the channel of stored candidate sets."""
        return CandidateChannel(
            odds=float(header["odds"]), members=examples["candidates"], n_classes=header["n_classes"]
        )

    def row_arrays(self) -> dict[str, Array]:
        """No rows are shared between examples."""
        return {}

    def example_arrays(self) -> dict[str, Array]:
        """The candidate sets."""
        return {"candidates": self._members}

    def _align(self, low: int, high: int) -> AlignedRows:
        sizes = self.sizes[low:high, None]
        keep, redraw = odds_to_keep(self._odds, sizes)
        inside = np.unpackbits(self._members[low:high], axis=1, count=self._n_classes, bitorder="little")
        return AlignedRows(keep, redraw, inside / sizes.astype(np.float64))


class AlignedRows(NamedTuple):
    """Rows of a channel aligned with examples: row r describes example r, or one row describes all of them.

    `keep` and `redraw` have shape (m, 1) or (1, 1), `base` has shape (m, K) or (1, K). The methods are the mathematics
    of a channel, the same for every way of storing one; m is the length of a span.
    """

    keep: Floats
    redraw: Floats
    base: Floats

    @property
    def support(self) -> Bools:
        """Which labels can come out."""
        return self.base > 0

    def matrix(self) -> Floats:
        """Return T of the first row as a dense K x K matrix."""
        inside = self.support[0].astype(float)
        kept = float(self.keep[0, 0]) * inside
        # 1 - keep is taken from `redraw`, which is accurate when keep is close to one.
        rest = np.where(inside > 0, float(self.redraw[0, 0]), 1.0)
        answer: Floats = np.diag(kept) + rest[:, None] * self.base[0][None, :]
        return answer

    def unbiased(self, losses: Floats, observed: Ints) -> Floats:
        """Return (loss[o] - redraw sum_j base[j] loss[j]) / keep.

        For y in S its expectation over o ~ T[y, .] is
        (keep loss[y] + redraw sum base loss - redraw sum base loss) / keep = loss[y].
        """
        at_observed = np.take_along_axis(losses, observed[:, None], axis=1)[:, 0]
        redrawn = np.einsum("mk,mk->m", np.broadcast_to(self.base, losses.shape), losses)
        answer: Floats = (at_observed - self.redraw[:, 0] * redrawn) / self.keep[:, 0]
        return answer

    def unbiased_targets(self, observed: Ints) -> Floats:
        """Return (1[y = o] - redraw base[y]) / keep: the weights of `unbiased`, which sum to one."""
        answer: Floats = np.broadcast_to(
            -self.redraw * self.base / self.keep, (len(observed), self.base.shape[1])
        ).copy()
        answer[np.arange(len(observed)), observed] += np.broadcast_to(1.0 / self.keep[:, 0], len(observed))
        return answer

    def forward(self, probabilities: Floats) -> Floats:
        """Return the law of the output when the label follows `probabilities`: p T, in O(K).

        (p T)[o] = keep p[o] 1[o in S] + (1 - keep p(S)) base[o].
        """
        kept = self.keep * np.where(self.support, probabilities, 0.0)
        total = probabilities.sum(axis=1, keepdims=True)
        answer: Floats = kept + (total - kept.sum(axis=1, keepdims=True)) * self.base
        return answer

    def joint(self, prior: Floats, observed: Ints) -> Floats:
        """Return prior[y] T[y, o] for every label y: Bayes' rule before it is normalised."""
        at = observed[:, None]
        base_at = np.take_along_axis(np.broadcast_to(self.base, (len(observed), self.base.shape[1])), at, axis=1)
        answer: Floats = prior * np.where(self.support, self.redraw, 1.0) * base_at
        kept = self.keep * np.take_along_axis(prior, at, axis=1) * (base_at > 0)
        np.put_along_axis(answer, at, np.take_along_axis(answer, at, axis=1) + kept, axis=1)
        return answer

    def accuracy(self, prior: Floats) -> Floats:
        """Return Pr[o = y] for y ~ prior: keep p(S) + redraw sum_y p[y] base[y]."""
        inside = np.where(self.support, prior, 0.0).sum(axis=1)
        redrawn = np.einsum("mk,mk->m", np.broadcast_to(self.base, prior.shape), prior)
        answer: Floats = self.keep[:, 0] * inside + self.redraw[:, 0] * redrawn
        return answer

    def epsilon(self) -> Floats:
        """Return the exact pure epsilon of each row, rounded up.

        The largest log-ratio over y, z, o is log(T[o, o] / T[z, o]) = log(1 + keep / (redraw base[o])) at the least likely
        member o of S, for z in S. A label z outside S has T[z, o] = base[o] >= redraw base[o], so its pairs never
        exceed this. With one member, or keep = 0, the output says nothing: 0.
        """
        support = self.support
        least = np.where(support, self.base, np.inf).min(axis=1)
        keep = self.keep[:, 0]
        with np.errstate(divide="ignore"):
            answer = log1p_up(keep / (self.redraw[:, 0] * least))
        answer[(support.sum(axis=1) < 2) | (keep == 0)] = 0.0
        return answer


class RowIntegers(NamedTuple):
    """What `Channel.draw` compares words with: thresholds for keeping (R,), supports (R, K), cumulative weights (R, K).

    `sums` is None for one uniform row, where a scaled word picks the label and nothing is searched.
    """

    keep: Words
    support: Bools
    sums: Words | None


def safe_odds(epsilon: float) -> float:
    """Return e^epsilon - 1, a hair low, so that what is built from it stays within epsilon after rounding.

    The margins (2^-50 of epsilon, 2^-48 of the odds) are several times what the formulas round, up, when epsilon is
    computed back from the channel; they cost less than 1e-14 (1 + epsilon). Beyond epsilon = 700, where e^epsilon nears
    the largest float, less is kept than would be allowed.

    >>> math.log1p(safe_odds(1.0)) <= 1.0, round(math.log1p(safe_odds(1.0)), 12)
    (True, 1.0)
    """
    if math.isinf(epsilon):
        return math.inf
    return math.expm1(min(epsilon, 700.0) * (1.0 - 2.0**-50)) * (1.0 - 2.0**-48)


def odds_to_keep(odds: float, sizes: Any) -> tuple[Floats, Floats]:
    """Return keep = odds / (odds + k) and redraw = k / (odds + k) for redrawing uniformly from k labels.

    Then a kept label is 1 + keep / (redraw / k) = 1 + odds times likelier than another, whatever k is.
    """
    k = np.asarray(sizes, dtype=np.float64)
    if math.isinf(odds):
        return np.ones_like(k), np.zeros_like(k)
    return odds / (odds + k), k / (odds + k)


def _check_row_values(name: str, value: Any, n_rows: int) -> Floats:
    """Return one probability per row."""
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    if array.shape != (n_rows,):
        got = Described(f"{array.size} for {n_rows} rows")
        raise invalid("Channel", name, "have one value per row of `base`", got=got)
    if not np.all((array >= 0) & (array <= 1)):
        raise invalid("Channel", name, "be in [0, 1]", got=array)
    return array


def _check_members(members: Array, n_classes: int) -> None:
    """Refuse bits of the wrong shape, or for labels that do not exist."""
    width = (n_classes + 7) // 8
    if members.dtype != np.uint8 or members.ndim != 2 or members.shape[1] != width:
        got = Described(f"{members.dtype} of shape {members.shape}")
        raise invalid("CandidateChannel", "members", f"be uint8 of shape (n, {width})", got=got)
    spare = 8 * width - n_classes
    if spare and np.any(members[:, -1] >> np.uint8(8 - spare)):
        raise invalid("CandidateChannel", "members", "name only labels that exist", got=Described("a spare bit set"))
