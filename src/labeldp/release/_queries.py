"""Queries: statistics of labels with a stated sensitivity, for those who trust a curator.

A query is public. It says what it would compute, and how far one replaced label can move the answer; `measure` computes
it, adds exact noise and hands out only the noisy value.

>>> LabelCounts().sensitivity(n_classes=10)
Sensitivity(l1=2.0, l2=1.4142135623730951)
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer
from labeldp.errors import Described, invalid

Integers = npt.NDArray[np.int64]


class Sensitivity(NamedTuple):
    """How far one replaced label can move an integer statistic, in the 1-norm and in the 2-norm."""

    l1: float
    l2: float


class Query(abc.ABC):
    """A statistic of labels: integers, with a stated sensitivity to one replaced label."""

    @abc.abstractmethod
    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """How far one replaced label moves what `exact` returns."""

    @abc.abstractmethod
    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Integers:
        """Compute the statistic from raw codes: only `measure` calls this."""

    def present(self, noisy: Integers, *, n_examples: int, n_classes: int) -> Integers:
        """Turn the noisy statistic into the answer: free post-processing."""
        return noisy


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelCounts(Query):
    """How many labels of each class there are, in each group of examples: an integer matrix (C, K).

    Parameters
    ----------
    groups : integer array of shape (n,), optional
        The public group (a cluster) of each example, 0 .. C-1. Without it all examples are one group.
    n_groups : int, optional
        C, where the largest group may be empty.

    Notes
    -----
    A replaced label moves two counts of one group by 1: sensitivity 2 in the 1-norm, sqrt 2 in the 2-norm. With two
    classes one count per group is measured, at sensitivity 1, and the other follows from the public group size.
    """

    groups: Any = None
    n_groups: int | None = None

    def __post_init__(self) -> None:
        if self.groups is None and self.n_groups not in (None, 1):
            raise invalid("LabelCounts", "groups", f"say which of {self.n_groups} groups each label is in", got=None)
        if self.groups is not None:
            object.__setattr__(self, "groups", check_groups("LabelCounts", self.groups, self.n_groups))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """1 for two classes, else (2, sqrt 2)."""
        return Sensitivity(1.0, 1.0) if n_classes == 2 else Sensitivity(2.0, math.sqrt(2.0))

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Integers:
        """Count; of two classes only the second."""
        groups = self._groups(len(codes))
        size = self._size()
        if n_classes == 2:
            return np.bincount(groups[codes == 1], minlength=size).astype(np.int64)[:, None]
        cells = groups * np.int64(n_classes) + codes
        return np.bincount(cells, minlength=size * n_classes).astype(np.int64).reshape(size, n_classes)

    def present(self, noisy: Integers, *, n_examples: int, n_classes: int) -> Integers:
        """Complete two classes from the public group sizes."""
        if n_classes != 2:
            return noisy
        sizes = np.bincount(self._groups(n_examples), minlength=self._size()).astype(np.int64)
        return np.stack([sizes - noisy[:, 0], noisy[:, 0]], axis=1)

    def _groups(self, n: int) -> npt.NDArray[np.int64]:
        if self.groups is None:
            return np.zeros(n, np.int64)
        if len(self.groups) != n:
            got = Described(f"{len(self.groups)} for {n} labels")
            raise invalid("LabelCounts", "groups", "have one entry per label", got=got)
        groups: npt.NDArray[np.int64] = self.groups
        return groups

    def _size(self) -> int:
        if self.groups is None:
            return 1
        return int(self.n_groups) if self.n_groups is not None else int(self.groups.max()) + 1


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelSums(Query):
    """Sums of integer scores of the labels, weighted by public integers: sum_i weights[i] score[label_i].

    Parameters
    ----------
    scores : integers of shape (K,)
        What each class counts for (a rating less 3, a 0/1 indicator).
    weights : integers of shape (n,) or (n, d), optional
        Public weights (a group indicator, a feature on a fixed-point grid); 1 for all by default.

    Notes
    -----
    A replaced label i moves the sum by weights[i] times a difference of two scores, so by at most
    max_i ||weights[i]|| (max score - min score), in either norm. Scores and weights are public.
    """

    scores: Any
    weights: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", _integers("scores", self.scores, dimensions=(1,)))
        if self.weights is not None:
            object.__setattr__(self, "weights", _integers("weights", self.weights, dimensions=(1, 2)))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """The largest weight times the range of the scores."""
        if len(self.scores) != n_classes:
            got = Described(f"{len(self.scores)} scores for {n_classes} classes")
            raise invalid("LabelSums", "scores", "have one score per class", got=got)
        span = float(int(self.scores.max()) - int(self.scores.min()))
        if self.weights is None:
            return Sensitivity(span, span)
        # Floats before abs: -2^63 has no positive twin among int64.
        rows = np.abs(self.weights.reshape(len(self.weights), -1).astype(np.float64))
        # d + 3 roundings, each below 2^-53 relative; sums below 2^53 are exact in floats.
        up = 1.0 + (rows.shape[1] + 4) * 2.0**-52
        l1, l2 = span * float(rows.sum(axis=1).max()), span * float(np.sqrt((rows**2).sum(axis=1)).max())
        return Sensitivity(l1 if l1 < 2.0**53 else l1 * up, l2 * up)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Integers:
        """Sum in integers."""
        values = self.scores[codes]
        if self.weights is None:
            return np.asarray([values.sum()], np.int64)
        if len(self.weights) != len(codes):
            got = Described(f"{len(self.weights)} for {len(codes)} labels")
            raise invalid("LabelSums", "weights", "have one row per label", got=got)
        reach = float(np.abs(self.scores.astype(np.float64)).max()) * float(
            np.abs(self.weights.astype(np.float64)).max()
        )
        if reach * len(codes) >= 2.0**62:
            got, fix = Described("products that may not"), "Use a coarser grid."
            raise invalid("LabelSums", "weights", "keep the sum within 64 bits", got=got, fix=fix)
        total: Integers = np.atleast_1d(values @ self.weights)
        return total


def check_groups(owner: str, groups: Any, n_groups: int | None) -> npt.NDArray[np.int64]:
    """Return public group numbers as int64, or say what is wrong."""
    array = np.asarray(groups)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(owner, "groups", "be integers, one per label", got=got)
    most = None if n_groups is None else check_integer(owner, "n_groups", n_groups, least=1) - 1
    if int(array.min()) < 0 or (most is not None and int(array.max()) > most):
        got = Described(f"{int(array.min())} .. {int(array.max())}")
        raise invalid(owner, "groups", "be numbered from 0, below n_groups", got=got)
    return array.astype(np.int64, copy=False)


def _integers(name: str, values: Any, *, dimensions: tuple[int, ...]) -> Integers:
    array = np.asarray(values)
    if array.dtype.kind not in "iub" or array.ndim not in dimensions or array.size == 0:
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        fix = "Round real numbers to a fixed-point grid: exact noise needs integers."
        raise invalid("LabelSums", name, "be integers", got=got, fix=fix)
    return array.astype(np.int64, copy=False)
