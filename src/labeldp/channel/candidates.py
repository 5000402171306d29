"""`CandidateChannel`: a candidate set per example, uniform within it; what RRTop-k and RRWithPrior produce."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Ints, Words
from labeldp.channel import finite as thresholds
from labeldp.channel.finite import AlignedRows, Rows, log1p_up
from labeldp.channel.labels import Channel, odds_to_keep
from labeldp.errors import Described, invalid
from labeldp.threads import over_spans


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
        from labeldp.channel import kernels

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
        from labeldp.channel import kernels

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
