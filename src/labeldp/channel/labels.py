"""`Channel`: keep a label or redraw it from a public distribution; a few rows and an index from examples to rows.

`CandidateChannel`: a candidate set per example, uniform within it; what RRTop-k and RRWithPrior produce.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Ints, Words
from labeldp.channel import finite as formulas
from labeldp.channel import finite as thresholds
from labeldp.channel.finite import AlignedRows, FiniteChannel, Rows, check_row_index, log1p_up
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.random import over_spans
from labeldp.validate import check_probability_rows


class Channel(FiniteChannel):
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
        self._keep = _per_row("keep", keep, len(rows))
        self._redraw = 1.0 - self._keep if redraw is None else _per_row("redraw", redraw, len(rows))
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
        return float(formulas.epsilon(rows).max())

    def take(self, rows: Rows) -> Channel:
        """Return the channel of a subset of examples (a slice does not copy)."""
        if self._index is None:
            return self
        part = object.__new__(Channel)  # the rows were checked when this channel was made
        part.__dict__.update(self.__dict__)
        part._index = self._index[rows]
        return part

    def draw(self, codes: Ints, words: Words) -> npt.NDArray[np.int32]:
        """Return an output for every true label, from two words per example."""
        from labeldp import kernels

        out = np.empty(len(codes), np.int32)
        keep, inside, sums = self._integers
        if sums is None:
            kernels.draw_uniform(codes, words, keep[0], np.uint64(self.n_classes), out)
        else:
            index = np.zeros(len(codes), np.int64) if self._index is None else self._index
            kernels.draw_rows(codes, words, index, keep, inside, sums, out)
        return out

    def prepare(self) -> None:
        """Make the thresholds of all rows, once."""
        _ = self._integers

    @cached_property
    def _integers(self) -> tuple[Words, npt.NDArray[np.bool_], Words | None]:
        """Thresholds for keeping, the support, and cumulative weights (None: one uniform row, no search needed)."""
        uniform = self._index is None and bool(np.all(self._base == self._base[0, 0]))
        keep = np.empty(len(self._base), np.uint64)
        sums = np.empty(self._base.shape, np.uint64)
        for r, row in enumerate(self._base):
            share = thresholds.uniform_share(self.n_classes)
            if not uniform:
                weights = thresholds.integer_weights(row)
                sums[r] = thresholds.cumulative(weights)
                share = thresholds.least_share(weights)
            least = Fraction(float(row[row > 0].min()))
            kept, redrawn = Fraction(float(self._keep[r])), Fraction(float(self._redraw[r]))
            keep[r] = thresholds.keep_threshold(kept, redrawn, least=least, share=share)
        return keep, self._base > 0, None if uniform else sums

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays."""
        return {"kind": "rows", "n_classes": self.n_classes}

    def row_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The rows."""
        return {"keep": self._keep, "redraw": self._redraw, "base": self._base}

    def example_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The row of each example, if they differ."""
        return {} if self._index is None else {"row": self._index}

    def _aligned(self, low: int, high: int) -> AlignedRows:
        if self._index is None:
            return AlignedRows(self._keep[:, None], self._redraw[:, None], self._base)
        at = self._index[low:high]
        return AlignedRows(self._keep[at, None], self._redraw[at, None], self._base[at])

    def _matrix(self, i: int) -> Floats:
        return formulas.matrix(self._aligned(i, i + 1))

    def _unbiased(self, low: int, high: int, losses: Floats, observed: Ints) -> Floats:
        return formulas.unbiased(self._aligned(low, high), losses, observed)

    def _unbiased_targets(self, low: int, high: int, observed: Ints) -> Floats:
        return formulas.unbiased_targets(self._aligned(low, high), observed)

    def _forward(self, low: int, high: int, probabilities: Floats) -> Floats:
        return formulas.forward(self._aligned(low, high), probabilities)

    def _joint(self, low: int, high: int, prior: Floats, observed: Ints) -> Floats:
        return formulas.joint(self._aligned(low, high), prior, observed)

    def _accuracy(self, low: int, high: int, prior: Floats) -> Floats:
        return formulas.accuracy(self._aligned(low, high), prior)

    def _check_invertible(self) -> None:
        if np.any(self.keep == 0):
            raise LabelDPError(
                "Channel.unbiased: a row never keeps its label (epsilon = 0), so nothing can be estimated from it. "
                "Use epsilon > 0."
            )


def _per_row(name: str, value: Any, n_rows: int) -> Floats:
    """Return one probability per row."""
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    if array.shape != (n_rows,):
        got = Described(f"{array.size} for {n_rows} rows")
        raise invalid("Channel", name, "have one value per row of `base`", got=got)
    if not np.all((array >= 0) & (array <= 1)):
        raise invalid("Channel", name, "be in [0, 1]", got=array)
    return array


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


class CandidateChannel(Channel):
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
    def trusted(
        cls, *, odds: float, members: npt.NDArray[np.uint8], sizes: npt.NDArray[np.uint32], n_classes: int
    ) -> CandidateChannel:
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
    def members(self) -> npt.NDArray[np.uint8]:
        """The candidate sets, as packed bits."""
        return self._members

    @cached_property
    def sizes(self) -> npt.NDArray[np.uint32]:
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
        return self._aligned(0, self.n_examples).base

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
        if "_keep_by_size" in self.__dict__:
            part.__dict__["_keep_by_size"] = self._keep_by_size
        return part

    def draw(self, codes: Ints, words: Words) -> npt.NDArray[np.int32]:
        """Return an output for every true label, from two words per example."""
        from labeldp import kernels

        out = np.empty(len(codes), np.int32)
        draw = kernels.draw_few_candidates if self._members.shape[1] == 2 else kernels.draw_candidates
        draw(codes, words, self._members, self.sizes, self._keep_by_size, out)
        return out

    def prepare(self) -> None:
        """Make the thresholds of all sizes, once."""
        _ = self._keep_by_size

    @cached_property
    def _keep_by_size(self) -> Words:
        return thresholds.by_size(self._odds, self.sizes, self._n_classes)

    def header(self) -> dict[str, Any]:
        """The few facts that are not arrays; odds as text, since JSON has no infinity."""
        return {"kind": "candidates", "n_classes": self._n_classes, "odds": repr(self._odds)}

    def row_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """No rows are shared between examples."""
        return {}

    def example_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The candidate sets."""
        return {"candidates": self._members}

    def _aligned(self, low: int, high: int) -> AlignedRows:
        sizes = self.sizes[low:high, None]
        keep, redraw = odds_to_keep(self._odds, sizes)
        inside = np.unpackbits(self._members[low:high], axis=1, count=self._n_classes, bitorder="little")
        return AlignedRows(keep, redraw, inside / sizes.astype(np.float64))


def _check_members(members: npt.NDArray[Any], n_classes: int) -> None:
    """Refuse bits of the wrong shape, or for labels that do not exist."""
    width = (n_classes + 7) // 8
    if members.dtype != np.uint8 or members.ndim != 2 or members.shape[1] != width:
        got = Described(f"{members.dtype} of shape {members.shape}")
        raise invalid("CandidateChannel", "members", f"be uint8 of shape (n, {width})", got=got)
    spare = 8 * width - n_classes
    if spare and np.any(members[:, -1] >> np.uint8(8 - spare)):
        raise invalid("CandidateChannel", "members", "name only labels that exist", got=Described("a spare bit set"))
