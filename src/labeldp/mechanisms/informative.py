r"""`InformativeResponse`: answer with a set of labels, the question that teaches a learner most.

>>> mechanism = InformativeResponse(1.0, n_classes=10)
>>> mechanism.channel().size  # an answer names four of ten labels
4

RRWithPrior gives the right label as often as can be; at a small epsilon and with a good prior its answer is the prior's own
guess, which says nothing. A learner that trains on the channel's likelihood wants the *information* of an answer instead.
No epsilon-private answer has more than x - 1 - ln x nats about a label, x = epsilon / (1 - e^-epsilon), whatever the prior
and the number of classes (`most_information`). Balanced blocks come within a per cent of the best channel there is
(benchmarks/informative.py); the mathematics, with the proof of privacy, is in `labeldp.channel.sets`.

References: Wang et al. 2016 and Ye, Barg 2018 (subset selection), Kairouz, Oh, Viswanath 2014 (staircase channels).

Design notes. Without a prior all labels are alike, and an arc of a public circle names d of them: a release is then as small as
one of labels. With a prior each row has blocks of its own, and its answer is the set itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Floats
from labeldp.channel import ArcChannel, BlockChannel, LazyRows, SetAnswers, safe_odds
from labeldp.channel.finite import check_row_index
from labeldp.channel.sets import MOST_CLASSES, arc_size, score_mass
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms.response import (
    Mechanism,
    RandomizedResponse,
    check_n_classes,
    check_width,
    is_streamed,
    read_batches,
)
from labeldp.random import over_spans
from labeldp.validate import (
    ROW_SUM_TOLERANCE,
    as_float_matrix,
    bad_row,
    check_epsilon,
    check_integer,
    check_probability_rows,
)

OWNER = "InformativeResponse"
#: The share of the uniform prior in each row: a model that is sure and wrong still learns that it is.
MIX = 0.1
#: Of the rows that share a prior, how many are asked as if there were none.
EXPLORE = 0.25
#: Threads take this many prior entries at a time.
ENTRIES = 1 << 20


@dataclass(frozen=True)
class InformativeResponse(Mechanism):
    r"""Answer with a set of labels: one of b public blocks of the row, every label being in exactly d of them.

        P(block j | label y) = (e^epsilon if y is in block j else 1) / (d e^epsilon + b - d)

    Without a prior the blocks are arcs of d labels on a public circle of all K (b = K), with the law of a uniform d-subset; d
    maximises d (K - d) / (d e^epsilon + K - d). With a prior, mixed with a tenth of the uniform one, labels go by falling
    prior into the d lightest of b blocks, in the shape (b, d) with most information, b <= 16 up to 16 classes and d = 1 for more.

    Parameters
    ----------
    epsilon : float
        The privacy of each label, in [0, inf].
    n_classes : int, optional
        K; if it is left out, the prior or the list of classes that the labels come with says it. At most 65,536.
    seed : int
        Of public chance: circles and ties. It protects nothing and is written into the release. Two releases of the same
        labels learn more with two seeds.

    Guarantee
    ---------
    Pure epsilon when one label is replaced, and no one to trust. The normaliser is the same for every label, since every label is
    in d blocks; so the chances of an answer under two labels differ by a factor of e^epsilon, 1 or e^-epsilon. Blocks are a
    function of prior, position and seed, and never see a label. One secret word a row draws the block; its integers keep the
    claim exactly (`labeldp.channel.sets.block_integers`).

    Assumes
    -------
    The prior did not see this label for free, and the seed was not chosen by looking at labels.

    Edge cases
    ----------
    K = 2 is randomized response, with any prior: the answer is a label. epsilon = 0 answers with a random block, whatever the label. epsilon = inf returns
    every label, also one that the prior thinks impossible. An epsilon above 0 that is too small for 64-bit words (below about
    1e-17) is refused. A prior with all its mass on one label is mixed like any other, and asks whether it is that label.
    Where one row of a prior serves many examples (one for all, or one per group), a quarter of them, by public
    chance, are asked as if all labels were equally likely: blocks that never change cannot tell the labels of one block apart.

    Example
    -------
    >>> mechanism = InformativeResponse(1.0)
    >>> channel = mechanism.channel([[0.6, 0.2, 0.1, 0.1]])
    >>> bool(channel.information()[0] > 0.1), channel.epsilon <= 1.0
    (True, True)
    """

    epsilon: float
    n_classes: int | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __repr__(self) -> str:
        """Leave out a seed that nobody chose: it is public and arranges blocks, and people take it for that of the noise."""
        seed = f", seed={self.seed}" if self.seed else ""
        return f"{type(self).__name__}(epsilon={self.epsilon!r}, n_classes={self.n_classes!r}{seed})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(OWNER, self.epsilon))
        object.__setattr__(self, "seed", check_integer(OWNER, "seed", self.seed, least=0, most=(1 << 64) - 1))
        if self.n_classes is not None:
            object.__setattr__(self, "n_classes", _check_size(self.n_classes))

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon for each label, and no one to trust."""
        return Guarantee.pure(self.epsilon)

    def channel(self, prior: Any = None, *, groups: Any = None, n_classes: int | None = None) -> SetAnswers:
        """Return arcs for all rows, or blocks by the prior of each row.

        A prior in batches is kept whole. `LazyRows` are not: their rows are made to be checked, and again to draw.
        """
        if n_classes is not None and self.n_classes not in (None, n_classes):
            raise invalid(OWNER, "n_classes", f"be {self.n_classes}, as the mechanism says", got=n_classes)
        size = self.n_classes if self.n_classes is not None else n_classes
        odds = safe_odds(self.epsilon)
        if prior is None:
            if groups is not None:
                raise invalid(OWNER, "groups", "be left out without a prior", got=Described("some"))
            return self._arcs(odds, _check_size(size))
        repeated, rows = 0, prior
        if is_streamed(prior):
            if groups is not None:
                raise invalid(OWNER, "groups", "be left out when the prior comes in batches", got=Described("both"))
            if not isinstance(prior, LazyRows):
                rows = np.concatenate(list(read_batches(OWNER, prior, size)))
        else:
            given = np.atleast_2d(np.asarray(prior))
            if groups is None and len(given) > 1 and given.strides[0] == 0:  # one row in memory that stands for all
                repeated, given = len(given), given[:1]
            rows = as_float_matrix(OWNER, "prior", given)
        _check_size(check_width(OWNER, rows.shape[1], size))
        start = 0
        for batch in rows if isinstance(rows, LazyRows) else (rows,):
            _check_rows(batch, start)
            start += len(batch)
        if np.ndim(prior) == 1 and groups is not None and not is_streamed(prior):
            raise invalid(OWNER, "prior", "have a row per group", got=Described("one row"), fix="Leave out `groups`.")
        index = None if groups is None else check_row_index(OWNER, "groups", groups, len(rows))
        if math.isinf(odds) or rows.shape[1] == 2:  # nothing is hidden, or a set is a label: whatever is believed
            return self._arcs(odds, rows.shape[1])
        shared = index is not None or (np.ndim(prior) == 1 and not is_streamed(prior))
        index = np.zeros(repeated, np.int64) if repeated else index
        return BlockChannel(odds=odds, prior=rows, index=index, shared=shared, seed=self.seed, mix=MIX, explore=EXPLORE)

    def _arcs(self, odds: float, n_classes: int) -> ArcChannel:
        return ArcChannel(odds=odds, size=arc_size(odds, n_classes), n_classes=n_classes, seed=self.seed)


def _check_size(n_classes: Any) -> int:
    """Return the number of classes, 2 to 65,536."""
    size = check_n_classes(OWNER, n_classes)
    return check_integer(OWNER, "n_classes", size, least=2, most=MOST_CLASSES, fix="Merge some classes.")


def _check_rows(prior: Floats, start: int = 0) -> None:
    """Refuse a prior with a row that is no probability vector, and name the first one; rows count from `start`."""
    from labeldp.channel import kernels

    bad: list[int] = []
    tolerance = ROW_SUM_TOLERANCE[prior.dtype]

    def work(low: int, high: int) -> None:
        row = kernels.find_bad_row(prior[low:high], tolerance)
        if row < high - low:
            bad.append(low + row)

    over_spans(work, len(prior), step=max(64, ENTRIES // prior.shape[1]))
    if bad:
        raise bad_row(OWNER, "prior", start + min(bad), prior[min(bad)])


# ------------------------------------------------------------------------------------------------- what an answer is worth


class Worth(NamedTuple):
    """What one private answer is worth for learning.

    `information` is the mutual information of label and answer, in nats. `clean_labels` is the number of clean labels that
    one answer equals where the features leave two labels a, b in doubt: the share of the variance of 1[y = a] that the
    answer explains, sum_j (P(j|a) - P(j|b))^2 / (2 (P(j|a) + P(j|b))), which is 1 for the label itself. Pairs are weighed
    as the prior gives them. For uniform d-subsets it is d (K-d) (E-1)^2 / ((K-1) (E+1) (d E + K - d)): what d maximises.
    """

    information: float
    clean_labels: float


def response_worth(epsilon: float, prior: Any) -> Worth:
    """Return what an answer of randomized response is worth, exactly, for labels that follow `prior`.

    >>> response_worth(math.inf, [0.5, 0.5])
    Worth(information=0.6931471805599453, clean_labels=1.0)
    """
    p = _as_prior("response_worth", prior)
    return _weigh_matrix(RandomizedResponse(epsilon, n_classes=len(p)).channel().matrix(), p)


def informative_worth(epsilon: float, prior: Any, *, informed: bool = True, rows: int = 64) -> Worth:
    """Return what an answer of `InformativeResponse` is worth for labels that follow `prior`, on average over public chance.

    With `informed` the mechanism is given the prior, else not. `rows` circles or ties are averaged.

    >>> prior = [0.6, 0.2, 0.1, 0.1]
    >>> informative_worth(1.0, prior).information > 1.15 * response_worth(1.0, prior).information
    True
    """
    p = _as_prior("informative_worth", prior)
    mechanism = InformativeResponse(epsilon)
    count = check_integer("informative_worth", "rows", rows, least=1)
    given = np.repeat(p[None], count, axis=0) if informed else None
    channel = mechanism.channel(given, n_classes=len(p)).place(0, count)
    worths = np.array([_weigh_matrix(channel.matrix(i), p) for i in range(count)])
    return Worth(*(float(mean) for mean in worths.mean(axis=0)))


def answer_worth(mechanism: Mechanism, prior: Any, *, informed: bool = True, rows: int = 16) -> Worth:
    """Return what an answer of any mechanism that asks one label is worth, for labels that follow `prior`.

    As `informative_worth`, which is this of `InformativeResponse`: exact sums over the channel's own matrices, averaged over
    `rows` rows of public chance. Of numbers the prior is over the mechanism's levels.

    >>> one = answer_worth(RandomizedResponse(1.0), [0.5, 0.5])
    >>> one == response_worth(1.0, [0.5, 0.5])
    True
    """
    p = _as_prior("answer_worth", prior)
    count = check_integer("answer_worth", "rows", rows, least=1)
    given = np.repeat(p[None], count, axis=0) if informed and mechanism.uses_prior else None
    size = None if mechanism.takes_numbers else len(p)
    channel = mechanism.channel(given, n_classes=size).place(0, count)
    # A channel of one matrix for all has one answer, however many rows are asked about.
    asked = 1 if channel.n_examples is None else count
    worths = np.array([_weigh_matrix(channel.matrix(i), p) for i in range(asked)])
    return Worth(*(float(mean) for mean in worths.mean(axis=0)))


def subset_worth(epsilon: float, *, n_classes: int, size: int | None = None) -> Worth:
    """Return what an answer that names `size` labels at random is worth under equally likely labels, in closed form.

    Without `size` it is that of `InformativeResponse` without a prior; size 1 is randomized response. A share r = d / K of the
    mass is in every answer, so the information is f(r) / (1 + r (E-1)).

    >>> one, other = subset_worth(1.0, n_classes=10, size=1), response_worth(1.0, [0.1] * 10)
    >>> abs(one.information - other.information) < 1e-12, abs(one.clean_labels - other.clean_labels) < 1e-12
    (True, True)
    """
    k = _check_size(n_classes)
    odds = safe_odds(check_epsilon("subset_worth", epsilon))
    d = arc_size(odds, k) if size is None else check_integer("subset_worth", "size", size, least=1, most=k - 1)
    if math.isinf(odds):
        return Worth(math.log(k / d), (k - d) / (k - 1))
    norm = d * odds + k
    information = float(score_mass(d / k, odds)) * k / norm
    return Worth(max(information, 0.0), d * (k - d) / (k - 1) * (odds / norm) * (odds / (odds + 2.0)))


def most_information(epsilon: float) -> float:
    """Return x - 1 - ln x, x = epsilon / (1 - e^-epsilon): no epsilon-private answer about a label has more nats.

    >>> round(most_information(1.0), 6), most_information(0.0)
    (0.123302, 0.0)
    """
    value = check_epsilon("most_information", epsilon)
    if value < 1e-4:
        return value * value / 8.0  # x = 1 + eps/2 + ..., and x - 1 - ln x = (x - 1)^2 / 2 + ...
    if math.isinf(value):
        return math.inf
    x = value / -math.expm1(-value)
    return x - 1.0 - math.log(x)


def _as_prior(owner: str, prior: Any) -> Floats:
    rows = check_probability_rows(owner, "prior", np.atleast_2d(np.asarray(prior)))
    if len(rows) != 1:
        raise invalid(owner, "prior", "be one row of probabilities", got=Described(f"{len(rows)} rows"))
    row = rows[0].astype(np.float64)
    share: Floats = row / row.sum()
    return share


def _weigh_matrix(matrix: Floats, prior: Floats) -> Worth:
    """Return what an answer of a dense channel T[label, answer] is worth."""
    joint = prior[:, None] * matrix
    law = joint.sum(axis=0)
    there = joint > 0
    ratio = np.divide(matrix, law, out=np.ones_like(matrix), where=there)
    information = float((joint[there] * np.log(ratio[there])).sum())
    explained, weight = 0.0, 0.0
    for label in np.flatnonzero(prior > 0):
        others = prior * (np.arange(len(prior)) != label)
        total = matrix + matrix[label]
        share = np.divide((matrix - matrix[label]) ** 2, 2.0 * total, out=np.zeros_like(matrix), where=total > 0)
        explained += float(prior[label] * (others @ share.sum(axis=1)))
        weight += float(prior[label] * others.sum())
    return Worth(max(information, 0.0), explained / weight if weight > 0 else 0.0)
