"""Responses in stages: each part's channel is the best one for what the model of the earlier parts expects.

Stages hold disjoint labels, split without a look at them, so that each label is randomized once and all stages together
cost one epsilon. Within a stage, pairs with similar predictions share a channel: `OptimalResponse` for the information about
the mean, under the law that the family has at that mean, averaged over the model's own uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._random import NoiseKey
from labeldp.channel import FiniteChannel, MatrixChannel
from labeldp.learn.ratings._family import RatingFamily
from labeldp.mechanisms import MeanInformation, OptimalResponse
from labeldp.mechanisms._optimal import stacked
from labeldp.release import SensitiveLabels, privatize

Floats = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.intp]
Codes = npt.NDArray[np.unsignedinteger[Any]]
#: (rows released so far, their codes, their channel, the rows to predict) -> mean and spread for those
Believed = Callable[[Rows, Codes, MatrixChannel, Rows], tuple[Floats, Floats]]

#: Predictions are put into bins of the range: a tenth of a star for five stars.
_BINS = 40
#: Before anything is known, the mean may lie a sixth of the range around its middle.
_FIRST_SPREAD = 1 / 6


@dataclass(frozen=True, kw_only=True)
class RatingStage:
    """One stage as it was run: labels, the spread that its channels were made for, how many channels, and information.

    `information` is the mean Fisher information of a label's output about its mean, as expected beforehand.
    """

    number: int
    n_examples: int
    spread: float
    n_channels: int
    information: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """All responses, in the order of the data set."""

    codes: Codes
    channel: MatrixChannel
    stages: tuple[RatingStage, ...]


def respond_in_stages(
    labels: SensitiveLabels,
    stage: npt.NDArray[np.uint8],
    family: RatingFamily,
    believed: Believed | None,
    *,
    epsilon: float,
    key: NoiseKey,
    informed: bool,
) -> Released:
    """Draw every label once; `informed` says that there is something to believe before the first stage (sums)."""
    rows, codes = np.empty(0, np.intp), np.empty(0, np.uint8)
    channel = MatrixChannel(np.full((1, len(family.values), 1), 1.0), index=np.empty(0, np.int64))
    stages: list[RatingStage] = []
    for number in range(int(stage.max()) + 1):
        mine = np.flatnonzero(stage == number)
        if believed is None or (number == 0 and not informed):
            middle = float(family.values[0] + family.values[-1]) / 2
            mean, spread = np.full(len(mine), middle), _FIRST_SPREAD * family.span
        else:
            mean, deviation = believed(rows, codes, channel, mine)
            spread = float(np.sqrt(np.mean(deviation**2)))
        mechanism = OptimalResponse(epsilon, objective=MeanInformation(values=family.values.tolist(), spread=spread))
        bins, laws = binned(mean, family)
        part = privatize(labels.take(mine), mechanism, prior=laws, groups=bins, rng=key.child("stage", number))
        stages.append(_told(number, mechanism, laws, bins, spread))
        rows, codes = np.concatenate([rows, mine]), np.concatenate([codes, part.codes])
        channel = joined([channel, part.channel]) if number else joined([part.channel])
    order = np.argsort(rows, kind="stable")
    return Released(codes=codes[order], channel=channel.take(order), stages=tuple(stages))


def binned(mean: Floats, family: RatingFamily) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the bin of each prediction, and the law at the middle of each bin that occurs."""
    step = family.span / _BINS
    grid = np.clip(mean, family.grid[0], family.grid[-1])
    found, bins = np.unique(np.rint((grid - family.values[0]) / step), return_inverse=True)
    laws = family.laws[family.at(family.values[0] + found * step)]
    return bins.reshape(-1).astype(np.int64), laws


def joined(channels: list[FiniteChannel]) -> MatrixChannel:
    """Return the channel of several parts' examples, one after the other."""
    matrices: list[Floats] = []
    index: list[npt.NDArray[np.integer[Any]]] = []
    for channel in channels:
        if not isinstance(channel, MatrixChannel) or channel.index is None:
            raise TypeError("joined: parts of a staged release have a matrix per group")
        index.append(channel.index + sum(len(part) for part in matrices))
        matrices.append(channel.transition)
    whole = stacked([matrix for part in matrices for matrix in part])
    return MatrixChannel(whole, index=np.concatenate(index))


def _told(
    number: int, mechanism: OptimalResponse, laws: Floats, bins: npt.NDArray[np.int64], spread: float
) -> RatingStage:
    worth = np.asarray([mechanism.design(law).worth for law in laws])
    return RatingStage(
        number=number + 1,
        n_examples=len(bins),
        spread=spread,
        n_channels=len(laws),
        information=float(worth[bins].mean()),
    )
