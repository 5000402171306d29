r"""`Evidence`: what released answers say of the labels, a few rows at a time, so that many classes fit into memory.

>>> from labeldp.channel import ArcChannel, Evidence
>>> channel = ArcChannel(odds=1.0, size=3, n_classes=10_000)
>>> evidence = Evidence(np.zeros(1_000_000, np.uint16), channel)
>>> evidence.shape, evidence.make(slice(5, 7)).shape  # 80 GB as an array, and two rows of it
((1000000, 10000), (2, 10000))

Learners need L[i, k] = Pr[what was released of row i | its label is k], and targets and priors of the same shape (n, K). With
10 classes that is a small array. With 10,000 classes and 200,000 rows it is 16 GB, while the answers it is made of take 400 kB (arcs)
or 250 MB (sets). So whoever can work on some rows at a time is given `LazyRows`, which makes those rows and forgets
them: `SoftmaxRegression` and `NetClassifier` (`fit_likelihood`, `fit_targets`), `InformativeResponse` (its prior), EM.

| | rows are made of | by |
|---|---|---|
| `Evidence` | released answers and their channel | `channel.take(rows).likelihood(codes[rows])` |
| beliefs of a model, posteriors (`labeldp.learn.beliefs`) | features, a fitted model, evidence | prediction and Bayes' rule |

**Privacy.** Evidence holds what a release holds, codes and channel, and no label: all that is made of it is post-processing.

Design notes. `x.make(rows)` is an array, and `x[rows]` is lazy again, with nothing made. NumPy may ask for all of it
(`np.asarray`), which is refused where the machine has not so much memory. What is small is made once and kept
(`keep_small`): then nothing is lazy, and nothing is slower than it was.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from labeldp.arrays import Array, Floats, Places
from labeldp.channel.finite import FiniteChannel, Rows, spans
from labeldp.errors import Described, LabelDPError, invalid

#: Up to this many entries (128 MiB of float64) an (n, K) array is made whole, once: making rows again and again costs more.
SMALL = 1 << 24


class LazyRows(abc.ABC):
    """An (n, K) array of floats of which some rows at a time are made; a subclass sets `shape` and says how."""

    shape: tuple[int, int]
    ndim = 2

    @abc.abstractmethod
    def make(self, rows: Rows) -> Floats:
        """Return some rows as a new array, in the order of `rows`: a slice or an array of row numbers."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> LazyRows:
        """Return some of the rows, lazy again."""
        return _SomeRows(self, np.arange(len(self))[rows])

    def __iter__(self) -> Iterator[Floats]:
        """Yield all rows, in batches that are small enough for a temporary array."""
        return (self.make(slice(low, high)) for low, high in spans(len(self), width=self.shape[1]))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Return all rows at once, for code that knows arrays only; refused where they cannot be in memory."""
        check_memory(type(self).__name__, n_rows=len(self), n_classes=self.shape[1])
        whole = np.empty(self.shape)
        for low, high in spans(len(self), width=self.shape[1]):
            whole[low:high] = self.make(slice(low, high))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.shape[0]} rows of {self.shape[1]} classes, made when asked for>"


class Evidence(LazyRows):
    """Pr[what was released of row i | label k], from released `codes` and the `channel` that gave them.

    >>> from labeldp import InformativeResponse, SensitiveLabels, privatize
    >>> labels = SensitiveLabels([0, 3, 2], classes=range(4))
    >>> release = privatize(labels, InformativeResponse(1.0))
    >>> evidence = Evidence(release.codes, release.channel)
    >>> bool((evidence.make([2, 0]) == release.channel.likelihood(release.codes)[[2, 0]]).all())
    True
    """

    def __init__(self, codes: Array, channel: FiniteChannel) -> None:
        if channel.n_examples not in (None, len(codes)):
            got = Described(f"{len(codes)} for a channel of {channel.n_examples} examples")
            raise invalid("Evidence", "codes", "have one entry for each example of the channel", got=got)
        self.codes, self.channel = codes, channel
        self.shape = (len(codes), channel.n_classes)

    def make(self, rows: Rows) -> Floats:
        """Return the likelihoods of some rows."""
        chosen = self._choose(rows)
        return self.channel.take(chosen).likelihood(self.codes[chosen])

    def _choose(self, rows: Rows) -> Rows:
        """Return rows as a channel takes them: one that serves any number of rows has no end."""
        return slice(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)


class UnbiasedTargets(Evidence):
    """Signed targets of released `codes`, rows of sum one: over the noise of row i, their mean is one at its label, and else 0.

    >>> from labeldp.channel import ArcChannel
    >>> targets = UnbiasedTargets(np.array([0, 2]), ArcChannel(odds=1.0, size=1, n_classes=3))
    >>> targets.make([1]).round(9).tolist()
    [[-1.0, -1.0, 3.0]]
    """

    def make(self, rows: Rows) -> Floats:
        """Return the targets of some rows; a channel that has no inverse refuses."""
        chosen = self._choose(rows)
        return self.channel.take(chosen).unbiased_targets(self.codes[chosen])


class _SomeRows(LazyRows):
    """Some rows of another source."""

    def __init__(self, source: LazyRows, rows: Places) -> None:
        self._source, self._rows = source, rows
        self.shape = (len(rows), source.shape[1])

    def make(self, rows: Rows) -> Floats:
        return self._source.make(self._rows[rows])

    def __getitem__(self, rows: Rows) -> LazyRows:
        return _SomeRows(self._source, self._rows[rows])


class _JoinedRows(LazyRows):
    """The rows of several sources, one after the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])
        self.shape = (int(self._ends[-1]), parts[0].shape[1])

    def make(self, rows: Rows) -> Floats:
        wanted = np.arange(len(self))[rows]
        owner = np.searchsorted(self._ends, wanted, side="right")
        out = np.empty((len(wanted), self.shape[1]))
        for number, part in enumerate(self._parts):
            mine = np.flatnonzero(owner == number)
            if len(mine):
                start = int(self._ends[number]) - len(part)
                out[mine] = make_rows(part, wanted[mine] - start)
        return out


def make_rows(matrix: Any, rows: Rows) -> Floats:
    """Return some rows of an array or of lazy rows, as an array."""
    if isinstance(matrix, LazyRows):
        return matrix.make(rows)
    chosen: Floats = matrix[rows]
    return chosen


def join_rows(parts: Sequence[Any]) -> Any:
    """Return the rows of several arrays or lazy rows, one after the other; an array if all of them are."""
    if any(isinstance(part, LazyRows) for part in parts):
        return parts[0] if len(parts) == 1 else _JoinedRows(parts)
    return np.concatenate(parts)


def is_small(rows: LazyRows) -> bool:
    """Whether all rows make a small array (`SMALL`)."""
    return len(rows) * rows.shape[1] <= SMALL


def keep_small(rows: LazyRows) -> Any:
    """Return an array of all rows where that is small, and else the lazy rows as they are."""
    return rows.make(slice(None)) if is_small(rows) else rows


def is_flat(prior: Any) -> bool:
    """Whether a prior, array or lazy rows, says of every row that all labels are equally likely; lazy rows never count as such."""
    if isinstance(prior, LazyRows) or not len(prior):
        return False
    rows = prior[:1] if prior.strides[0] == 0 else prior
    return bool((rows == rows[0, 0]).all())


def check_memory(owner: str, *, n_rows: int, n_classes: int, arrays: int = 1) -> None:
    """Refuse (n, K) arrays of float64 that are larger than the memory of this machine, with an estimate."""
    need, have = 8.0 * n_rows * n_classes * arrays, _measure_memory()
    if have is not None and need > have:
        what = f"{arrays} arrays" if arrays > 1 else "an array"
        raise LabelDPError(
            f"{owner}: {n_rows:,} rows of {n_classes:,} classes as {what} of numbers need {need / 1e9:,.1f} GB, and this machine "
            f"has {have / 1e9:,.1f} GB. Use SoftmaxRegression or NetClassifier with correction='forward' or 'em', which take a few "
            "rows at a time, or fewer rows."
        )


def _measure_memory() -> float | None:
    """Return the bytes of memory of this machine, where the system says so."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None
