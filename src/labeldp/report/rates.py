"""How often labels were changed, and how many are expected right: from the channel alone, whatever the number of rows.

>>> import labeldp
>>> release = labeldp.privatize([0, 1, 1, 0], labeldp.RandomizedResponse(1.0, n_classes=2), rng=0)
>>> found = rates(release)
>>> [round(flip, 4) for flip in found.flips], round(found.expected_accuracy, 4), found.expected_under
([0.2689, 0.2689], 0.7311, 'equally likely classes')
>>> [series.name for series in accuracy_against_epsilon(release)]
['randomized response']

No raw label is compared with anything: these are forecasts from public facts. With T_i the channel of example i and p_i
the released belief about its label, a label j is released as another one with probability

    1 - mean_i T_i[j, j]                                          whichever example has it,
    1 - sum_i p_i(j) T_i[j, j] / sum_i p_i(j)                     if labels follow the released prior,

and the released labels are right with probability mean_i sum_j p_i(j) T_i[j, j]; without a prior p_i(j) = 1 / K.

Design notes. A channel with a few rows shared by many examples is asked about its rows, each weighed by how many examples
use it: exact, and as quick for ten million examples as for ten. A candidate set of each example's own, or more rows than
`MOST_CELLS` allows, is asked about evenly spaced examples; `n_asked` then says how many.

What another epsilon would keep is told for three families, as far as a release's public facts reach. Randomized response
needs the number of classes alone. With a released prior, RRWithPrior is built on each of its rows at each epsilon, and rows
weigh as many examples as they have. With a candidate set of each example's own, the sets stay as they are and only the odds
change: the accuracy is then that of a label which is among its candidates, E / (E + k - 1) with E = e^epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labeldp.arrays import Array, Float64s, Int64s
from labeldp.channel import (
    CandidateChannel,
    Channel,
    FiniteChannel,
    MatrixChannel,
    NumericChannel,
    SetAnswers,
    odds_to_keep,
    safe_odds,
)
from labeldp.mechanisms import RandomizedResponse, RRWithPrior
from labeldp.plots import Series
from labeldp.release import Release
from labeldp.release.numbers import say_number
from labeldp.report.words import percent

#: Cells (rows x classes x classes asked about) beyond which evenly spaced examples stand for all.
MOST_CELLS = 20_000_000
#: Answers that are sets, of which as many are looked at.
MOST_ANSWERS = 100_000
#: Pairs of a channel's row and a prior's row that are counted in one array.
MOST_PAIRS = 1 << 23
#: Classes whose rate is computed one by one.
MOST_CLASSES = 200
#: Where the accuracy at other epsilons is told.
EPSILONS = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
#: Rows of a released prior that are asked about, evenly spaced: a thousand give the mean to a few in a thousand.
MOST_PRIOR_ROWS = 1_000


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often the labels of a release were changed, and how many are expected right.

    Attributes
    ----------
    flips : tuple of float or None
        For class j the share of labels j that are released as another one, if any example may have it. None where the
        outputs are not labels.
    prior_flips : tuple of float or None
        The same if labels follow the released prior: an example counts as much as j is likely there. NaN for a class that
        the prior excludes everywhere; None where there is no prior, or the outputs are not labels.
    expected_accuracy : float or None
        The share of released labels that are expected to be the true ones.
    expected_under : str or None
        The belief under which that is so, in words.
    n_asked : int or None
        None where the numbers are exact, else how many evenly spaced examples they are averages of.
    """

    flips: tuple[float, ...] | None
    prior_flips: tuple[float, ...] | None = None
    expected_accuracy: float | None
    expected_under: str | None
    n_asked: int | None = None


def rates(release: Release, *, most_classes: int = MOST_CLASSES) -> Rates:
    """Return how often labels of a release were changed, and how many are expected right.

    Parameters
    ----------
    release : Release
        Its channel and its released prior are read; its labels are not.
    most_classes : int
        Rates are computed for the first so many classes.

    Returns
    -------
    Rates
        Exact where the examples share few rows, else averages over `n_asked` evenly spaced examples. The expected
        accuracy is under the released prior, or under equally likely classes where none was released.
    """
    channel = release.channel
    if not channel.outputs_are_labels:
        return Rates(flips=None, expected_accuracy=None, expected_under=None)
    shown = min(release.n_classes, most_classes)
    most = max(1, MOST_CELLS // (release.n_classes * shown))
    part, weights, asked = representatives(channel, len(release), most=most)
    flips = tuple(1.0 - mean_accuracy(part, weights, np.eye(1, release.n_classes, code)[0]) for code in range(shown))
    if release.prior is None or release.prior_index is None:
        right, under = mean_accuracy(part, weights, None), "equally likely classes"
        return Rates(flips=flips, expected_accuracy=right, expected_under=under, n_asked=asked)
    part, belief, weights, sampled = examples_with_beliefs(release, most=most)
    return Rates(
        flips=flips,
        prior_flips=flips_under_prior(part, belief, weights, shown),
        expected_accuracy=float(np.dot(weights, np.broadcast_to(part.expected_accuracy(belief), weights.shape))),
        expected_under="the released prior",
        n_asked=sampled if asked is None else asked,
    )


class SetFacts(NamedTuple):
    """What answers that are sets say: how many labels one names, on average, at least and at most, and how surely.

    `true_named` is the chance that the true label is among them, averaged over the rows.
    """

    n_classes: int
    mean_named: float
    least_named: int
    most_named: int
    true_named: float

    @property
    def sentence(self) -> str:
        """The facts in words."""
        if self.least_named == self.most_named:
            named = f"Her answer names {self.least_named} of {self.n_classes} classes"
        else:
            named = (
                f"Her answer names {self.mean_named:.1f} of {self.n_classes} classes on average "
                f"({self.least_named} to {self.most_named})"
            )
        return f"{named}; the true one is among them with probability {percent(self.true_named)}."


def set_facts(release: Release, *, most: int = MOST_ANSWERS) -> SetFacts | None:
    """Return what the answers of a release say where they are sets, from evenly spaced rows; None where they are not."""
    channel = release.channel
    if not isinstance(channel, SetAnswers) or channel.outputs_are_labels or not len(release):
        return None
    rows = evenly_spaced(len(release), max(1, min(most, MOST_CELLS // release.n_classes)))
    part = release.take(rows)
    assert isinstance(part.channel, SetAnswers)
    named = part.channel.members(part.codes).sum(axis=1)
    shapes = part.channel.shapes_of(part.codes)
    surely = shapes[:, 1] * part.channel.chances(shapes)[0]
    return SetFacts(release.n_classes, float(named.mean()), int(named.min()), int(named.max()), float(surely.mean()))


class NumberFacts(NamedTuple):
    """What one answer says of a number, for someone who knew the bounds alone: exact, from the channel.

    She thinks all levels equally likely and guesses as well as can be: the middle of what is left possible, weighed by the
    channel. `off_before` and `off_after` are the mean absolute errors of her guess, `hit_before` and `hit_after` how often the
    level itself is guessed right, and `noise` is how far the answer is from the number in the root mean square.
    """

    bounds: tuple[float, float]
    n_levels: int
    noise: float
    off_before: float
    off_after: float
    hit_before: float
    hit_after: float

    @property
    def sentence(self) -> str:
        """The facts in words."""
        return (
            f"Whoever knew nothing but the bounds, and guesses as well as can be, is off by {say_number(self.off_before)} on average "
            f"before she sees the answer, and by {say_number(self.off_after)} after; the nearest of {self.n_levels} levels she names "
            f"{percent(self.hit_before)} of the time before, {percent(self.hit_after)} after."
        )


def number_facts(release: Release) -> NumberFacts | None:
    """Return what an answer of a release says where answers are numbers, averaged over its rows; None where they are not."""
    channel = release.channel
    if not isinstance(channel, NumericChannel) or not len(release):
        return None
    return channel_facts(channel)


def channel_facts(channel: NumericChannel) -> NumberFacts:
    """Return what an answer of a channel says, each group weighed by how many rows have it."""
    groups = len(channel.transition)
    counts = np.ones(1) if channel.index is None else np.bincount(channel.index, minlength=groups)
    weights = counts / counts.sum()
    levels, size = channel.levels, channel.n_classes
    flat = np.full(size, 1.0 / size)
    off = [guess_errors(channel.transition[group] / size, levels) for group in range(groups)]
    hits = channel.transition.max(axis=1).sum(axis=1) / size
    return NumberFacts(
        bounds=channel.bounds,
        n_levels=size,
        noise=math.sqrt(float(np.dot(weights, (channel.variances + channel.bias**2) @ flat))),
        off_before=guess_errors(flat[:, None], levels),
        off_after=float(np.dot(weights, off)),
        hit_before=1.0 / size,
        hit_after=float(np.dot(weights, hits)),
    )


def guess_errors(joint: Array, levels: Array) -> float:
    """Return the least mean absolute error of a guess of the level from the answer, for chances joint[level, answer].

    The best guess is the median of the level given the answer: the first at which half of its weight is reached.

    >>> guess_errors(np.array([[0.5], [0.5]]), np.array([0.0, 10.0]))
    5.0
    >>> guess_errors(np.array([[0.5, 0.0], [0.0, 0.5]]), np.array([0.0, 10.0]))
    0.0
    """
    sums = np.cumsum(joint, axis=0)
    middle = levels[np.argmax(sums >= sums[-1] / 2, axis=0)]
    return float((joint * np.abs(levels[:, None] - middle)).sum())


def examples_with_beliefs(release: Release, *, most: int) -> tuple[FiniteChannel, Array, Float64s, int | None]:
    """Return few examples that stand for all, with the released belief of each, weights, and how many if not exact.

    Examples that share a row of the channel and a row of the prior are alike: each pair that occurs stands once.
    """
    assert release.prior is not None
    assert release.prior_index is not None
    channel, n = release.channel, len(release)
    rows, _, sampled = representatives(channel, n, most=most)
    n_rows = rows.n_examples or 1
    width = len(release.prior)
    index = getattr(channel, "index", None)
    shared = channel.n_examples is None or index is not None  # else every example has its own
    if sampled is None and shared and not isinstance(channel, CandidateChannel) and n_rows * width <= MOST_PAIRS:
        joint = release.prior_index.astype(np.int64) + (0 if index is None else index.astype(np.int64) * width)
        counts = np.bincount(joint, minlength=n_rows * width)
        there = np.flatnonzero(counts)
        part = rows if index is None else rows.take(there // width)
        if there.size <= most:
            return part, release.prior[there % width], counts[there] / n, None
    sample = evenly_spaced(n, most)
    part = channel if channel.n_examples is None else channel.take(sample)
    weights = np.full(sample.size, 1.0 / sample.size)
    return part, release.prior[release.prior_index[sample]], weights, None if sample.size == n else int(sample.size)


def flips_under_prior(channel: FiniteChannel, belief: Array, counts: Float64s, shown: int) -> tuple[float, ...]:
    """Return 1 - sum_i c_i p_i(j) T_i[j, j] / sum_i c_i p_i(j) for the first classes j; NaN for one that cannot occur."""
    found = []
    for code in range(shown):
        alone = np.zeros_like(belief)
        alone[:, code] = 1.0
        kept, weights = channel.expected_accuracy(alone), counts * belief[:, code]
        total = float(weights.sum())
        found.append(1.0 - float(np.dot(weights, kept)) / total if total > 0 else float("nan"))
    return tuple(found)


def representatives(channel: FiniteChannel, n: int, *, most: int) -> tuple[FiniteChannel, Float64s, int | None]:
    """Return a channel of few examples that stands for all, their weights, and how many were asked if not exact."""
    if channel.n_examples is None:
        return channel, np.ones(1), None
    if isinstance(channel, MatrixChannel) and channel.index is not None and len(channel.transition) <= most:
        every = np.arange(len(channel.transition))
        rows: FiniteChannel = MatrixChannel(
            channel.transition, index=every, outputs_are_labels=channel.outputs_are_labels
        )
        return rows, np.bincount(channel.index, minlength=every.size) / n, None
    if isinstance(channel, Channel) and not isinstance(channel, CandidateChannel) and channel.index is not None:
        every = np.arange(len(channel.base))
        if every.size <= most:
            rows = Channel(keep=channel.keep, redraw=channel.redraw, base=channel.base, index=every)
            return rows, np.bincount(channel.index, minlength=every.size) / n, None
    sample = evenly_spaced(n, most)
    weights = np.full(sample.size, 1.0 / sample.size)
    return channel.take(sample), weights, None if sample.size == n else int(sample.size)


def mean_accuracy(channel: FiniteChannel, weights: Float64s, prior: Any) -> float:
    """Return the weighted mean of the expected accuracy under one prior."""
    return float(np.dot(weights, np.broadcast_to(channel.expected_accuracy(prior), weights.shape)))


def evenly_spaced(n: int, most: int) -> Int64s:
    """Return evenly spaced positions, at most `most`: all of them, unless there are more."""
    return np.arange(0, n, max(1, -(-n // max(most, 1))))


def accuracy_against_epsilon(release: Release) -> tuple[Series, ...]:
    """Return what other budgets would keep: the labels expected right, in percent, one line per family.

    The places are `EPSILONS` and the epsilon of the release's own channel, so that the line of its own family passes
    through what was released.
    """
    own = release.channel.epsilon
    # Channels round down: an epsilon of 1 is a hair below it, and needs no place of its own.
    near = any(math.isclose(own, place, rel_tol=1e-6) for place in EPSILONS)
    places = sorted({*EPSILONS, *([own] if 0 < own < math.inf and not near else [])})
    found = [_series("randomized response", places, [_by_randomized_response(release, epsilon) for epsilon in places])]
    if release.prior is not None and release.prior_index is not None:
        values = _by_prior(release, places)
        found.append(_series("randomized response with the released prior", places, values))
    elif isinstance(release.channel, CandidateChannel):
        values = _by_candidate_sets(release.channel, places)
        found.append(_series("within the candidate sets, if the label is in its set", places, values))
    return tuple(found)


def _series(name: str, places: list[float], shares: list[float]) -> Series:
    """Return shares as a line in percent."""
    return Series(name=name, x=tuple(places), y=tuple(100 * share for share in shares))


def _by_randomized_response(release: Release, epsilon: float) -> float:
    """Return E / (E + K - 1), from the channel itself."""
    return float(RandomizedResponse(epsilon, n_classes=release.n_classes).channel().expected_accuracy())


def _by_prior(release: Release, places: list[float]) -> list[float]:
    """Return the expected accuracy of RRWithPrior on the released rows, weighed by their examples."""
    assert release.prior is not None
    assert release.prior_index is not None
    rows = evenly_spaced(len(release.prior), MOST_PRIOR_ROWS)
    weights = np.bincount(release.prior_index, minlength=len(release.prior))[rows].astype(np.float64)
    prior = release.prior[rows]
    shares = []
    for epsilon in places:
        right = RRWithPrior(epsilon).channel(prior).expected_accuracy(prior)
        shares.append(float(np.average(right, weights=weights if weights.sum() else None)))
    return shares


def _by_candidate_sets(channel: CandidateChannel, places: list[float]) -> list[float]:
    """Return the mean of keep + redraw / k over the sizes k of the candidate sets, at each epsilon."""
    counts = np.bincount(channel.sizes)
    sizes = np.flatnonzero(counts)
    found = []
    for epsilon in places:
        keep, redraw = odds_to_keep(safe_odds(epsilon), sizes)
        found.append(float(np.average(keep + redraw / sizes, weights=counts[sizes])))
    return found
