"""What a mechanism is, and the mechanisms that respond at random within a set of labels.

A mechanism is public facts, the channel they imply, and the guarantee that the channel keeps. It never sees a label: it
turns public knowledge (a prior, groups) into a channel, and `labeldp.privatize` draws from that. A mechanism that needs
statistics of the labels first (`MeasuringMechanism`) asks for noisy counts of them, at a price.

>>> best = RRWithPrior(1.0)
>>> best.channel([[0.6, 0.3, 0.1], [0.98, 0.01, 0.01]]).sizes.tolist()
[2, 1]
>>> best.guarantee.epsilon()
1.0

| mechanism | labels that can come out | uses a prior |
|---|---|---|
| `RandomizedResponse` | all K | no |
| `RRTopK` | the k likeliest | to choose them |
| `RRWithPrior` | the k* likeliest, k* the best for this prior | to choose them |

All three respond alike within their set of k labels: with odds = e^epsilon - 1 a label of the set is kept with
probability odds / (odds + k), and otherwise, as for labels outside the set, one of the k is drawn uniformly.

A prior is one row of class probabilities for all examples, a row per group (with `groups`), or a row per example, whole
or in batches (an iterator, or a list of matrices) for data that do not fit in memory.

References: Warner, "Randomized response" (1965); Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential
privacy" (2016); Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep learning with label differential privacy" (2021).

Design notes. A mechanism is a frozen value, so that it can be shown, compared, stored beside its release and charged
before anything is drawn. `guarantee` is a promise; the exact epsilon of the channel is computed from its rows, and
`labeldp.privatize` refuses a channel that exceeds it. Candidate sets are chosen by the compiled loops of
`labeldp.kernels`, without a sort.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from labeldp.arrays import Bools, Floats, Int64s, Ints, Places, UInt8s, UInt32s
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, LazyRows, odds_to_keep, safe_odds
from labeldp.channel.finite import check_row_index
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.random import over_spans
from labeldp.validate import (
    ROW_SUM_TOLERANCE,
    as_float_matrix,
    bad_row,
    check_epsilon,
    check_integer,
    check_probability_rows,
)

if TYPE_CHECKING:
    from typing_extensions import Self

#: (groups, n_groups, epsilon) -> noisy counts of labels, one row per group and one column per class.
NoisyCounts = Callable[[Ints, int, float], Int64s]


class Mechanism(abc.ABC):
    """A way to randomize labels: frozen public fields, `channel` and `guarantee`.

    To write one, make a frozen dataclass with these two members (see docs/extending.md); `labeldp.testing` checks it.
    """

    #: How many distinct rows of a prior `channel` takes; None for any number. A caller with more rounds them first.
    most_priors: ClassVar[int | None] = None
    #: Whether `channel` takes a prior. One that would ignore it refuses it instead, and says so here.
    uses_prior: ClassVar[bool] = True
    #: Whether labels are numbers within public bounds (`labeldp.mechanisms.NumericMechanism`) and not classes.
    takes_numbers: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised to the owner of each label, whatever prior `channel` is given."""

    @abc.abstractmethod
    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> FiniteChannel:
        """Return how labels will be randomized.

        Parameters
        ----------
        prior : array of shape (K,), (C, K) with `groups`, or (n, K); or batches of the last, optional
            What is believed about each label before looking at it.
        groups : array of shape (n,), optional
            The row of `prior` that each example has.
        n_classes : int, optional
            K, where neither the mechanism nor the prior says it.

        Returns
        -------
        FiniteChannel
            A public value: one row that serves any number of examples, or as many rows as the prior has.

        Raises
        ------
        LabelDPError
            If the prior has rows that are not probabilities, or K is not said or said twice.
        """

    def with_epsilon(self, epsilon: float) -> Self:
        """Return the same mechanism at another epsilon: what a budget that is split into parts asks of each part.

        A frozen dataclass with a field `epsilon` needs no more than this default, which replaces that field and checks
        the new value as the constructor does. A mechanism that states its privacy in another way overrides the method;
        its answer must promise `epsilon`, as its `guarantee` is what is charged.

        >>> RRTopK(1.0, k=3).with_epsilon(0.5)
        RRTopK(epsilon=0.5, k=3)
        """
        if not dataclasses.is_dataclass(self) or "epsilon" not in {part.name for part in fields(self) if part.init}:
            got = Described("a mechanism without that field")
            fix = "Give it one, or write its own with_epsilon(epsilon)."
            raise invalid(type(self).__name__, "epsilon", "be a field of the mechanism", got=got, fix=fix)
        return dataclasses.replace(self, epsilon=epsilon)


class MeasuringMechanism(Mechanism):
    """A mechanism whose channel depends on noisy counts of the labels.

    It still sees no label: `measured_channel` is handed a function that answers with noisy counts, at a price.
    `labeldp.privatize` makes that function, charges the whole `guarantee` once before the first count, and refuses to
    draw if the prices and `response_epsilon` add up to more than the guarantee, or if the channel exceeds
    `response_epsilon`.
    """

    @property
    @abc.abstractmethod
    def response_epsilon(self) -> float:
        """The part of the guarantee that is left for the channel."""

    @abc.abstractmethod
    def measured_channel(
        self, count: NoisyCounts, *, groups: Any, n_classes: int, n_examples: int, prior: Any = None
    ) -> FiniteChannel:
        """Return the channel, after checking every public argument and then asking `count` for what it needs.

        Parameters
        ----------
        count : callable
            `NoisyCounts`: (groups, n_groups, epsilon) -> noisy counts (n_groups, K); each call spends its epsilon.
        groups : array of shape (n,)
            The group of each example, found without labels.
        n_classes, n_examples : int
            K, and the number of labels that will be drawn.
        prior : optional
            As for `channel`, for mechanisms that can use one besides the counts.
        """


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Return the label with probability e^epsilon / (e^epsilon + K - 1), any other one with 1 / (e^epsilon + K - 1).

    As a channel: keep = (e^epsilon - 1) / (e^epsilon + K - 1), base uniform.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].
    n_classes : int, optional
        K; if it is left out, the list of classes that the labels come with says it.

    Guarantee
    ---------
    Pure epsilon when one label is replaced, exactly: the two likelihoods of an output differ by a factor of e^epsilon
    at most (Warner 1965; Kairouz, Oh, Viswanath 2016). Each label may be randomized by its owner: no one is trusted.

    Edge cases
    ----------
    epsilon = 0 is uniform over all classes; epsilon = inf returns every label as it is; one class is an error.

    Example
    -------
    >>> RandomizedResponse(1.0, n_classes=2).channel().matrix().round(4).tolist()
    [[0.7311, 0.2689], [0.2689, 0.7311]]
    """

    uses_prior: ClassVar[bool] = False

    epsilon: float
    n_classes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("RandomizedResponse", self.epsilon))
        if self.n_classes is not None:
            object.__setattr__(self, "n_classes", check_n_classes("RandomizedResponse", self.n_classes))

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
        """Return the one row that serves every example; a prior or groups are refused, since they would be ignored."""
        owner = "RandomizedResponse"
        if prior is not None or groups is not None:
            name = "prior" if prior is not None else "groups"
            raise invalid(owner, name, "be left out", got=Described("one"), fix="Use RRWithPrior to use a prior.")
        if n_classes is not None and self.n_classes not in (None, n_classes):
            raise invalid(owner, "n_classes", f"be {self.n_classes}, as the mechanism says", got=n_classes)
        size = check_n_classes(owner, self.n_classes if self.n_classes is not None else n_classes)
        keep, redraw = odds_to_keep(safe_odds(self.epsilon), size)
        return Channel(keep=keep, redraw=redraw, base=np.full(size, 1.0 / size))


class CandidateResponse(Mechanism):
    """Choose candidate labels from the prior, then respond at random within them.

    What `RRTopK` and `RRWithPrior` share. A subclass says which candidates; epsilon is the same whatever they are, as
    long as the choice does not look at the label.
    """

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    @abc.abstractmethod
    def candidates(self, prior: Floats, *, first_row: int = 0) -> CandidateSets:
        """Return the candidate set of each row of the prior.

        `first_row` is the number of the first row in the whole data set: only messages about bad rows use it.
        """

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> Channel:
        """Return the channel: one row for one prior, a row per group, or a candidate set per example."""
        owner = type(self).__name__
        if prior is None:
            prior = self._prior_when_none(n_classes)
        if is_streamed(prior) and groups is not None:
            raise invalid(owner, "groups", "be left out when the prior comes in batches", got=Described("both"))
        if is_streamed(prior) or (np.ndim(prior) == 2 and groups is None):
            return self._channel_per_example(owner, prior, n_classes)
        rows = as_float_matrix(owner, "prior", np.atleast_2d(np.asarray(prior)))
        check_width(owner, rows.shape[1], n_classes)
        if np.ndim(prior) == 1 and groups is not None:
            raise invalid(owner, "prior", "have a row per group", got=Described("one row"), fix="Leave out `groups`.")
        return self._channel_by_rows(rows, groups)

    def _channel_per_example(self, owner: str, prior: Any, n_classes: int | None) -> CandidateChannel:
        pieces: list[CandidateSets] = []
        done, width = 0, 0
        for matrix in read_batches(owner, prior, n_classes):
            pieces.append(self.candidates(matrix, first_row=done))
            done, width = done + len(matrix), matrix.shape[1]
        whole = pieces[0]
        if len(pieces) > 1:
            whole = CandidateSets(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        odds = safe_odds(self.epsilon)
        return CandidateChannel.trusted(odds=odds, members=whole.members, sizes=whole.sizes, n_classes=width)

    def _channel_by_rows(self, rows: Floats, groups: Any) -> Channel:
        sets = self.candidates(rows)
        keep, redraw = odds_to_keep(safe_odds(self.epsilon), sets.sizes)
        base = sets.unpack(rows.shape[1]) / sets.sizes[:, None].astype(np.float64)
        index = None if groups is None else check_row_index(type(self).__name__, "groups", groups, len(rows))
        return Channel(keep=keep, redraw=redraw, base=base, index=index)

    def _prior_when_none(self, n_classes: int | None) -> Floats:
        fix = "Pass prior=, one row of class probabilities for all or one per example."
        raise invalid(type(self).__name__, "prior", "be given", got=None, fix=fix)


@dataclass(frozen=True)
class RRTopK(CandidateResponse):
    """Randomized response within the k likeliest labels of each example's prior; other labels give a random one of them.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].
    k : int
        How many labels can come out.

    Guarantee
    ---------
    Pure epsilon when one label is replaced (Ghazi et al. 2021, Algorithm 1): within the set as for randomized response
    on k classes; a label outside it gives each member 1/k, between the two likelihoods of a member.

    Assumes
    -------
    The prior did not see this label for free: it is public, or its own cost is composed with this one.

    Edge cases
    ----------
    Ties go to the lower label, whatever y is. epsilon = inf keeps the k labels exactly and still redraws the others.
    k = 1 is the constant likeliest label and reveals nothing.

    Example
    -------
    >>> RRTopK(1.0, k=2).channel([0.5, 0.3, 0.2]).base.tolist()
    [[0.5, 0.5, 0.0]]
    """

    epsilon: float
    k: int = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("RRTopK", self.epsilon))
        object.__setattr__(self, "k", check_integer("RRTopK", "k", self.k, least=1))

    def candidates(self, prior: Floats, *, first_row: int = 0) -> CandidateSets:
        """Return the k likeliest labels of each row."""
        check_integer("RRTopK", "k", self.k, least=1, most=prior.shape[1], fix="There are no more classes than that.")
        return top_k_sets(check_probability_rows("RRTopK", "prior", prior, first_row=first_row), k=self.k)


@dataclass(frozen=True)
class RRWithPrior(CandidateResponse):
    """RRTop-k with the k that makes a right answer likeliest, chosen for each example from its prior.

    k* maximises w_k = e^epsilon / (e^epsilon + k - 1) (p_(1) + ... + p_(k)), the probability that the output is the
    label when the label follows the prior.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].

    Guarantee
    ---------
    Pure epsilon when one label is replaced: k* looks at the prior alone, so this is RRTop-k (Ghazi et al. 2021,
    Algorithm 2). No epsilon-private mechanism gives the right label more often under the prior (their Theorem 3; the
    tests solve its linear program).

    Assumes
    -------
    The prior did not see this label for free: it is public, or its own cost is composed with this one.

    Edge cases
    ----------
    w is unimodal in k: w_(k+1) > w_k iff p_(k+1) (e^epsilon + k - 1) > p_(1) + ... + p_(k), and the difference of the two
    sides falls with k. Labels with equal prior enter together, so ties need no breaking for epsilon > 0. epsilon = 0
    gives the constant likeliest label (the first at a tie). epsilon = inf is the identity, also for labels that the
    prior thinks impossible. Without a prior, all labels are taken as equally likely: randomized response.

    Example
    -------
    >>> RRWithPrior(1.0).channel([0.6, 0.3, 0.1]).base.round(3).tolist()
    [[0.5, 0.5, 0.0]]
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon("RRWithPrior", self.epsilon))

    def candidates(self, prior: Floats, *, first_row: int = 0) -> CandidateSets:
        """Return the optimal candidate set of each row."""
        return likeliest_sets("RRWithPrior", prior, odds=safe_odds(self.epsilon), first_row=first_row)

    def _prior_when_none(self, n_classes: int | None) -> Floats:
        size = check_n_classes("RRWithPrior", n_classes)
        return np.full(size, 1.0 / size)


class CandidateSets(NamedTuple):
    """A candidate set per row: packed bits (label j is bit j, little order) and their sizes."""

    members: UInt8s
    sizes: UInt32s

    def unpack(self, n_classes: int) -> Bools:
        """Return the sets as a boolean matrix."""
        return np.unpackbits(self.members, axis=1, count=n_classes, bitorder="little").astype(bool)


#: Threads take this many prior entries at a time (8 MiB of float64).
ENTRIES = 1 << 20


def likeliest_sets(owner: str, prior: Floats, *, odds: float, first_row: int = 0) -> CandidateSets:
    """Return the optimal candidate set of each row of `prior` for RRWithPrior: threads run the compiled loops.

    The loops check the rows as they read them; a row that is not a probability vector raises `LabelDPError` with its
    number in the whole data set, counted from `first_row`.
    """
    from labeldp import kernels

    n, n_classes = prior.shape
    if math.isinf(odds):  # nothing is hidden: every label is kept, also one the prior thinks impossible
        check_probability_rows(owner, "prior", prior, first_row=first_row)
        return all_label_sets(n, n_classes)
    sets = CandidateSets(np.empty((n, (n_classes + 7) // 8), np.uint8), np.empty(n, np.uint32))
    # Beyond 1e30 the set is every label with more than 1e-30 of the mass: no narrower float32 overflow than that.
    select = kernels.select_tiles if n_classes <= kernels.LANES else kernels.select_rows
    bad: list[int] = []

    def work(low: int, high: int) -> None:
        part = slice(low, high)
        row = select(prior[part], min(odds, 1e30), tolerance, sets.members[part], sets.sizes[part])
        if row < high - low:
            bad.append(low + row)

    tolerance = ROW_SUM_TOLERANCE[prior.dtype]
    over_spans(work, n, step=max(kernels.LANES, ENTRIES // n_classes))
    if bad:
        raise bad_row(owner, "prior", first_row + min(bad), prior[min(bad)])
    return sets


def all_label_sets(n: int, n_classes: int) -> CandidateSets:
    """Return n sets of all labels."""
    row = np.packbits(np.ones((1, n_classes), np.uint8), axis=1, bitorder="little")
    return CandidateSets(np.repeat(row, n, axis=0), np.full(n, n_classes, np.uint32))


def top_k_sets(prior: Floats, *, k: int) -> CandidateSets:
    """Return the k likeliest labels of each row; ties go to the lower label, whatever y is."""
    n, n_classes = prior.shape
    members = np.empty((n, (n_classes + 7) // 8), np.uint8)
    step = max(1, ENTRIES // n_classes)
    for low in range(0, n, step):
        rows = prior[low : low + step]
        least = np.partition(rows, n_classes - k, axis=1)[:, n_classes - k, None]
        above = rows > least
        tied = rows == least
        room = k - above.sum(axis=1, keepdims=True)
        inside = above | (tied & (np.cumsum(tied, axis=1) <= room))
        members[low : low + step] = np.packbits(inside, axis=1, bitorder="little")
    return CandidateSets(members, np.full(n, k, np.uint32))


def check_n_classes(owner: str, n_classes: Any) -> int:
    """Return the number of classes, at least two; None and anything else is refused in the name of `owner`."""
    if n_classes is None:
        raise invalid(owner, "n_classes", "be given", got=None, fix="Pass n_classes= or a prior.")
    fix = "With a single class the label says nothing: there is nothing to protect."
    return check_integer(owner, "n_classes", n_classes, least=2, most=(1 << 31) - 1, fix=fix)


def is_streamed(prior: Any) -> bool:
    """Whether a prior comes in batches: an iterator, lazy rows, or a list or tuple of matrices."""
    if isinstance(prior, (Iterator, LazyRows)):
        return True
    return isinstance(prior, (list, tuple)) and len(prior) > 0 and np.ndim(prior[0]) == 2


def read_batches(owner: str, prior: Any, n_classes: int | None) -> Iterator[Floats]:
    """Yield a per-example prior as float matrices of one width and one precision."""
    pieces: Iterable[Any] = prior if is_streamed(prior) else (prior,)
    first: Floats | None = None
    for piece in pieces:
        matrix = as_float_matrix(owner, "prior", piece)
        expected = n_classes if first is None else first.shape[1]
        check_width(owner, matrix.shape[1], expected)
        if first is not None and matrix.dtype != first.dtype:
            got = Described(f"{first.dtype} and then {matrix.dtype}")
            raise invalid(owner, "prior", "have one precision in all batches", got=got)
        first = matrix if first is None else first
        yield matrix
    if first is None:
        raise invalid(owner, "prior", "have at least one batch", got=Described("none"))


def find_distinct_rows(prior: Floats) -> tuple[Floats, Places]:
    """Return the distinct rows of a prior, in lexicographic order, and which of them each example has.

    The answer of `numpy.unique(prior, axis=0, return_inverse=True)`, which compares whole rows and takes many times as
    long as sorting by one column after the other.
    """
    order = np.lexsort(prior.T[::-1])
    ordered = prior[order]
    first = np.ones(len(prior), bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    index = np.empty(len(prior), np.intp)
    index[order] = np.cumsum(first) - 1
    return ordered[first], index


def read_distinct_priors(owner: str, prior: Any, groups: Any, *, most: int) -> tuple[Floats, Any]:
    """Return the distinct rows of a prior, and which of them each example has; None if one serves all.

    For mechanisms that solve a program for each: more than `most` rows are refused.
    """
    if is_streamed(prior):
        prior = np.concatenate([np.asarray(piece) for piece in prior])
    if np.ndim(prior) == 1 and groups is not None:
        raise invalid(owner, "prior", "have a row per group", got=Described("one row"), fix="Leave out `groups`.")
    rows = check_probability_rows(owner, "prior", np.atleast_2d(np.asarray(prior)))
    if np.ndim(prior) == 1:
        return rows, None
    index = np.arange(len(rows)) if groups is None else check_row_index(owner, "groups", groups, len(rows))
    if groups is None:
        rows, index = find_distinct_rows(rows)
    if len(rows) > most:
        fix = "Put similar priors into groups: each distinct prior is a linear program."
        raise invalid(owner, "prior", f"have at most {most:,} distinct rows", got=len(rows), fix=fix)
    return rows, index


def check_width(owner: str, width: int, n_classes: int | None) -> int:
    """Return the number of columns of a prior, which must be the number of classes."""
    check_n_classes(owner, width)
    if n_classes is not None and width != n_classes:
        got = Described(f"{width} columns")
        raise invalid(owner, "prior", f"have {n_classes} columns, one per class", got=got)
    return width
