"""What may be asked of labels: a statistic of whole numbers that says how far one replaced label, or one person's, can move it.

>>> LabelCounts().sensitivity(n_classes=10)
Sensitivity(l1=2.0, l2=1.4142135623730951)
>>> LabelSums(scores=[0, 1, 5]).sensitivity(n_classes=3)
Sensitivity(l1=5.0, l2=5.0)

A query is public. It computes nothing by itself: `labeldp.measure` asks it for its sensitivity, charges, and only then for the exact
answer, which gets noise before anyone sees it (`labeldp.release.measurement`). A query of your own derives from `Query`; its
sensitivity is its promise, so derive it in its docstring.

Design notes. Answers are integers, since exact noise is: reals are rounded to a public grid first, in one place (`round_to_integers`),
where what is not finite is refused. Sums stay so far below the end of 64 bits that neither they nor their noise wrap around.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import secrets
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s
from labeldp.channel.finite import hash_parts
from labeldp.errors import Described, invalid
from labeldp.guarantee import Trust, Unit, did_not_see
from labeldp.loss.rounding import fraction_up
from labeldp.release.persons import Persons
from labeldp.validate import check_integer

#: Sums stay below this, whatever the labels: neither they nor their noise come near the end of 64 bits.
MOST_TOTAL = 1 << 62


class Sensitivity(NamedTuple):
    """How far one replaced label can move an integer statistic, in the 1-norm and in the 2-norm."""

    l1: float
    l2: float


class Query(abc.ABC):
    """A statistic of labels: integers, with a stated sensitivity to one replaced label.

    `unit` is the change that the sensitivity speaks of, `trust` whom the noise as `measure` draws it needs, and
    `assumptions` what the statement of the sensitivity stands on, and where the query was handed groups or weights, that
    those did not see the labels.
    """

    unit: Unit = Unit.LABEL
    trust: Trust = Trust.CURATOR
    assumptions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return type(self).__name__

    def check_size(self, n_examples: int) -> None:  # noqa: B027  # a query that fits any number has nothing to refuse
        """Refuse, from public facts and before anything is charged, a query that does not fit so many labels."""

    @abc.abstractmethod
    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """How far one replaced label moves what `exact` returns."""

    @property
    def counts_alike(self) -> bool:
        """Whether all rows count alike, so that a cap on the rows of a person may be chosen from their number alone."""
        return False

    def take(self, rows: Int64s) -> Query:
        """Return the query of some rows: whatever it knows of each row is cut to them. One that knows nothing is itself."""
        if not dataclasses.is_dataclass(self) or any(np.ndim(getattr(self, f.name)) for f in dataclasses.fields(self)):
            fix = "Write its `take(rows)`, or leave out the cap."
            got = Described(type(self).__name__)
            raise invalid("measure", "query", "say what it is of some rows, to cap a person's", got=got, fix=fix)
        return self

    def person_sensitivity(self, persons: Persons, *, n_classes: int) -> Sensitivity:
        """How far all labels of one person, replaced together, move what `exact` returns.

        Her labels are replaced one after the other, and each moves it by at most `sensitivity`: by the triangle inequality it is
        at most her number of rows times that, which is reached where her rows share a cell. A query that knows more of
        each row says less.
        """
        row, most = self.sensitivity(n_classes=n_classes), persons.most_rows
        return Sensitivity(*(math.inf if math.isinf(one) else fraction_up(Fraction(one) * most) for one in row))

    @abc.abstractmethod
    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Compute the statistic from raw codes: only `measure` calls this, after the charge.

        It must not fail in a way that depends on the codes: an error is seen, and no noise covers it.
        """

    def present(self, noisy: Int64s, *, n_examples: int, n_classes: int) -> Int64s:
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

    groups: Any = field(default=None, repr=False)
    n_groups: int | None = None

    def __post_init__(self) -> None:
        if self.groups is None and self.n_groups not in (None, 1):
            raise invalid("LabelCounts", "groups", f"say which of {self.n_groups} groups each label is in", got=None)
        if self.groups is not None:
            object.__setattr__(self, "groups", check_groups("LabelCounts", self.groups, self.n_groups))
            object.__setattr__(self, "assumptions", did_not_see("grouping"))

    def check_size(self, n_examples: int) -> None:
        """One group per label."""
        self._groups(n_examples)

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """1 for two classes, else (2, sqrt 2)."""
        return Sensitivity(1.0, 1.0) if n_classes == 2 else Sensitivity(2.0, math.sqrt(2.0))

    @property
    def counts_alike(self) -> bool:
        """Each row is one."""
        return True

    def person_sensitivity(self, persons: Persons, *, n_classes: int) -> Sensitivity:
        """That of a row times the most rows of anyone, in the 1-norm; in the 2-norm rows in different groups are other counts.

        m_g labels of hers in group g move two counts there by m_g at most: sqrt(2 sum_g m_g^2) in the 2-norm, and the root
        without the 2 where one count per group is measured.
        """
        row, groups = self.sensitivity(n_classes=n_classes), self._groups(len(persons))
        cells, counts = np.unique(persons.codes * np.int64(self._size()) + groups, return_counts=True)
        squares = np.bincount(cells // self._size(), weights=counts.astype(np.float64) ** 2)
        l2 = row.l2 * math.sqrt(float(squares.max(initial=0.0))) * (1.0 + 2.0**-50)
        return Sensitivity(row.l1 * persons.most_rows, l2)

    def take(self, rows: Int64s) -> LabelCounts:
        """Count some rows, in the same groups."""
        return self if self.groups is None else replace(self, groups=self.groups[rows], n_groups=self._size())

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Count; of two classes only the second."""
        groups = self._groups(len(codes))
        size = self._size()
        if n_classes == 2:
            return np.bincount(groups[codes == 1], minlength=size).astype(np.int64)[:, None]
        cells = groups * np.int64(n_classes) + codes
        return np.bincount(cells, minlength=size * n_classes).astype(np.int64).reshape(size, n_classes)

    def present(self, noisy: Int64s, *, n_examples: int, n_classes: int) -> Int64s:
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
    weights: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", _integers("scores", self.scores, dimensions=(1,)))
        if self.weights is not None:
            object.__setattr__(self, "weights", _integers("weights", self.weights, dimensions=(1, 2)))
            object.__setattr__(self, "assumptions", did_not_see("weights"))

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """The largest weight times the range of the scores."""
        span = self._span(n_classes)
        if self.weights is None:
            return Sensitivity(span, span)
        rows, up = self._sizes()
        l1, l2 = span * float(rows.sum(axis=1).max()), span * float(np.sqrt((rows**2).sum(axis=1)).max())
        return Sensitivity(l1 if l1 < 2.0**53 else l1 * up, l2 * up)

    @property
    def counts_alike(self) -> bool:
        """Without weights."""
        return self.weights is None

    def take(self, rows: Int64s) -> LabelSums:
        """Sum over some rows, with their weights."""
        return self if self.weights is None else replace(self, weights=self.weights[rows])

    def person_sensitivity(self, persons: Persons, *, n_classes: int) -> Sensitivity:
        """The largest sum over one person's rows of the sizes of their weights, times the range of the scores.

        Her labels move the sum by sum_i weights[i] (score' - score), of a size of at most the sum of the sizes. Weights that
        keep each person's sum within R, from public things alone, have sensitivity R times the range, however many rows she has.
        """
        span = self._span(n_classes)
        if self.weights is None:
            return super().person_sensitivity(persons, n_classes=n_classes)
        rows, up = self._sizes()
        l1 = span * persons.largest_sum(rows.sum(axis=1))
        l2 = span * persons.largest_sum(np.sqrt((rows**2).sum(axis=1)))
        return Sensitivity(l1 if l1 < 2.0**53 else l1 * up, l2 * up)

    def _span(self, n_classes: int) -> float:
        """Return the range of the scores, rounded up."""
        if len(self.scores) != n_classes:
            got = Described(f"{len(self.scores)} scores for {n_classes} classes")
            raise invalid("LabelSums", "scores", "have one score per class", got=got)
        width = int(self.scores.max()) - int(self.scores.min())
        return float(width) if width < 1 << 53 else math.nextafter(float(width), math.inf)

    def _sizes(self) -> tuple[Floats, float]:
        """Return the absolute weights (n, d) as floats, and the factor by which sums of them are rounded up."""
        # Floats before abs: -2^63 has no positive twin among int64.
        rows = np.abs(self.weights.reshape(len(self.weights), -1).astype(np.float64))
        # d + 3 roundings, each below 2^-53 relative; sums below 2^53 are exact in floats.
        return rows, 1.0 + (rows.shape[1] + 4) * 2.0**-52

    def check_size(self, n_examples: int) -> None:
        """One row of weights per label, and no sum, whatever the labels, beyond 64 bits."""
        if self.weights is not None and len(self.weights) != n_examples:
            got = Described(f"{len(self.weights)} for {n_examples} labels")
            raise invalid("LabelSums", "weights", "have one row per label", got=got)
        heaviest = 1 if self.weights is None else largest_size(self.weights)
        if largest_size(self.scores) * heaviest * n_examples >= MOST_TOTAL:
            got, fix = Described("products that may not"), "Use a coarser grid."
            raise invalid("LabelSums", "weights", "keep the sum within 64 bits", got=got, fix=fix)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Int64s:
        """Sum in integers."""
        self.check_size(len(codes))
        values = self.scores[codes]
        if self.weights is None:
            return np.asarray([values.sum()], np.int64)
        total: Int64s = np.atleast_1d(values @ self.weights)
        return total


def describe_public(value: Any) -> bytes:
    """Return bytes that say what a query is, for the noise of one that draws apart (`labeldp.random.NoiseKey.through`).

    Numbers, text, arrays, and what is made of these: lists, sparse matrices, frozen values. Of anything else nothing is known, and it
    gets bytes of chance: two draws of it never share noise, and a draw that is lost is not made again.

    >>> one, other = LabelCounts(groups=[0, 1]), LabelCounts(groups=[1, 0])
    >>> (
    ...     describe_public(one) == describe_public(LabelCounts(groups=[0, 1])),
    ...     describe_public(one) == describe_public(other),
    ... )
    (True, False)
    """
    if value is None or isinstance(value, (bool, int, float, str, Fraction, np.generic)):
        return hash_parts([type(value).__name__.encode(), repr(value).encode()]).encode()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return hash_parts([value]).encode()
    if isinstance(value, (list, tuple)):
        return hash_parts([type(value).__name__.encode(), *map(describe_public, value)]).encode()
    if dataclasses.is_dataclass(value):
        named = [describe_public(getattr(value, one.name)) for one in dataclasses.fields(value)]
        return hash_parts([type(value).__qualname__.encode(), *named]).encode()
    if hasattr(value, "tocsr"):
        sparse = value.tocsr()
        return describe_public([list(sparse.shape), sparse.data, sparse.indices, sparse.indptr])
    return secrets.token_bytes(32)


def largest_size(values: Any) -> int:
    """Return the largest absolute value among int64, dense or sparse, as a Python integer; 0 if there are none.

    abs(-2^63) is -2^63 in 64 bits: a bound that is taken of absolute values there does not see it.

    >>> largest_size(np.array([3, -(2**63)]))
    9223372036854775808
    """
    if 0 in values.shape:
        return 0
    return max(int(values.max()), -int(values.min()))


def round_to_integers(owner: str, name: str, values: Floats, *, most: int = MOST_TOTAL, down: bool = False) -> Int64s:
    """Return reals as int64, to the nearest or towards zero: the one place where reals become integers to be summed.

    Parameters
    ----------
    owner, name : str
        Who asks, and what the numbers are called, for the message.
    values : float array
        Public numbers, or numbers that were brought within a bound before: the refusal is seen.
    most : int
        The bound; an absolute value of this much or more is refused.
    down : bool
        Whether to cut towards zero, so that no absolute value grows.

    Edge cases
    ----------
    What is not finite is refused: NaN would become -2^63, which no sensitivity accounts for. So is what does not fit.

    >>> round_to_integers("example", "rows", np.array([1.5, -1.5, 2.5]), down=True).tolist()
    [1, -1, 2]
    >>> round_to_integers("example", "rows", np.array([1.0, np.nan]))
    Traceback (most recent call last):
    labeldp.errors.LabelDPError: example: `rows` must be finite and fit in 64 bits, got 1 of 2 entries that are not. ...
    """
    whole = np.trunc(values) if down else np.rint(values)
    # Of NaN no comparison is true.
    if whole.size and not float(np.abs(whole).max()) < most:
        bad = int((~(np.abs(whole) < most)).sum())
        got = Described(f"{bad} of {whole.size} entries that are not")
        fix = "Clean the features, and check what a transform or a network makes of them."
        raise invalid(owner, name, "be finite and fit in 64 bits", got=got, fix=fix)
    return whole.astype(np.int64)


def check_groups(owner: str, groups: Any, n_groups: int | None) -> npt.NDArray[np.int64]:
    """Return public group numbers as int64, or say what is wrong."""
    array = np.asarray(groups)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0:
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(owner, "groups", "be integers, one per label", got=got)
    most = None if n_groups is None else check_integer(owner, "n_groups", n_groups, least=1) - 1
    if int(array.min()) < 0 or int(array.max()) > (MOST_TOTAL if most is None else most):
        got = Described(f"{int(array.min())} .. {int(array.max())}")
        raise invalid(owner, "groups", "be numbered from 0, below n_groups", got=got)
    return array.astype(np.int64, copy=False)


def _integers(name: str, values: Any, *, dimensions: tuple[int, ...]) -> Int64s:
    array = np.asarray(values)
    if array.dtype.kind not in "iub" or array.ndim not in dimensions or array.size == 0:
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        fix = "Round real numbers to a fixed-point grid: exact noise needs integers."
        raise invalid("LabelSums", name, "be integers", got=got, fix=fix)
    if int(array.max()) >= 1 << 63:  # of uint64: as int64 it would be negative
        raise invalid("LabelSums", name, "be below 2^63", got=Described("larger ones"), fix="Use a coarser grid.")
    return array.astype(np.int64, copy=False)
