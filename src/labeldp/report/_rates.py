"""How often labels were changed, and how many are expected right: from the channel alone, whatever the number of rows.

>>> import labeldp
>>> release = labeldp.privatize([0, 1, 1, 0], labeldp.RandomizedResponse(1.0, n_classes=2), rng=0)
>>> found = rates(release)
>>> [round(flip, 4) for flip in found.flips], round(found.expected_accuracy, 4), found.expected_under
([0.2689, 0.2689], 0.7311, 'equally likely classes')

Design notes. A channel with a few rows shared by many examples is asked about its rows, each weighed by how many
examples use it: exact, and as quick for ten million examples as for ten. A candidate set of each example's own, or more
rows than `MOST_CELLS` allows, is asked about evenly spaced examples; `n_asked` then says how many. No raw label is
compared with anything: these are forecasts from public facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel
from labeldp.release import Release

Floats = npt.NDArray[np.float64]

#: Cells (rows x classes x classes asked about) beyond which evenly spaced examples stand for all.
MOST_CELLS = 20_000_000
#: Pairs of a channel's row and a prior's row that are counted in one array.
MOST_PAIRS = 1 << 23
#: Classes whose rate is computed one by one.
MOST_CLASSES = 200


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Of a release: `flips[j]` is the share of labels j released as another one, if any example may have it.

    `prior_flips[j]` is the same if labels follow the released prior: an example counts as much as j is likely there.
    None where there is no prior; both are None where outputs are not labels. `n_asked` is None where the numbers are
    exact, else how many examples were asked.
    """

    flips: tuple[float, ...] | None
    prior_flips: tuple[float, ...] | None = None
    expected_accuracy: float | None
    expected_under: str | None
    n_asked: int | None = None


def rates(release: Release, *, most_classes: int = MOST_CLASSES) -> Rates:
    """Return the rates of the first classes, and the expected accuracy under the released prior (or none)."""
    channel = release.channel
    if not channel.outputs_are_labels:
        return Rates(flips=None, expected_accuracy=None, expected_under=None)
    shown = min(release.n_classes, most_classes)
    most = max(1, MOST_CELLS // (release.n_classes * shown))
    part, weights, asked = representatives(channel, len(release), most=most)
    flips = tuple(1.0 - averaged(part, weights, np.eye(1, release.n_classes, code)[0]) for code in range(shown))
    if release.prior is None or release.prior_index is None:
        right, under = averaged(part, weights, None), "equally likely classes"
        return Rates(flips=flips, expected_accuracy=right, expected_under=under, n_asked=asked)
    part, belief, weights, sampled = believed(release, most=most)
    return Rates(
        flips=flips,
        prior_flips=under_prior(part, belief, weights, shown),
        expected_accuracy=float(np.dot(weights, np.broadcast_to(part.expected_accuracy(belief), weights.shape))),
        expected_under="the released prior",
        n_asked=sampled if asked is None else asked,
    )


def believed(release: Release, *, most: int) -> tuple[FiniteChannel, npt.NDArray[Any], Floats, int | None]:
    """Return few examples that stand for all, with the released belief of each, weights, and how many if not exact.

    Examples that share a row of the channel and a row of the prior are alike: each pair that occurs stands once.
    """
    assert release.prior is not None
    assert release.prior_index is not None
    channel, n = release.channel, len(release)
    rows, _, sampled = representatives(channel, n, most=most)
    n_rows = rows.n_examples or 1
    width = len(release.prior)
    if sampled is None and not isinstance(channel, CandidateChannel) and n_rows * width <= MOST_PAIRS:
        index = getattr(channel, "index", None)
        joint = release.prior_index.astype(np.int64) + (0 if index is None else index.astype(np.int64) * width)
        counts = np.bincount(joint, minlength=n_rows * width)
        there = np.flatnonzero(counts)
        part = rows if index is None else rows.take(there // width)
        if there.size <= most:
            return part, release.prior[there % width], counts[there] / n, None
    sample = spread(n, most)
    part = channel if channel.n_examples is None else channel.take(sample)
    weights = np.full(sample.size, 1.0 / sample.size)
    return part, release.prior[release.prior_index[sample]], weights, None if sample.size == n else int(sample.size)


def under_prior(channel: FiniteChannel, belief: npt.NDArray[Any], counts: Floats, shown: int) -> tuple[float, ...]:
    """Return 1 - sum_i c_i p_i(j) T_i[j, j] / sum_i c_i p_i(j) for the first classes j; NaN for one that cannot occur."""
    found = []
    for code in range(shown):
        alone = np.zeros_like(belief)
        alone[:, code] = 1.0
        kept, weights = channel.expected_accuracy(alone), counts * belief[:, code]
        total = float(weights.sum())
        found.append(1.0 - float(np.dot(weights, kept)) / total if total > 0 else float("nan"))
    return tuple(found)


def representatives(channel: FiniteChannel, n: int, *, most: int) -> tuple[FiniteChannel, Floats, int | None]:
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
    sample = spread(n, most)
    weights = np.full(sample.size, 1.0 / sample.size)
    return channel.take(sample), weights, None if sample.size == n else int(sample.size)


def averaged(channel: FiniteChannel, weights: Floats, prior: Any) -> float:
    """Return the weighted mean of the expected accuracy under one prior."""
    return float(np.dot(weights, np.broadcast_to(channel.expected_accuracy(prior), weights.shape)))


def spread(n: int, most: int) -> npt.NDArray[np.int64]:
    """Return evenly spaced positions, at most `most`: all of them, unless there are more."""
    return np.arange(0, n, max(1, -(-n // max(most, 1))))
