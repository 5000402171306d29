"""Ordered labels answered in stages, each label once, by the channel that tells most about its mean.

Ratings and counts are learned in the same way when no one is trusted. Labels are divided into stages without a look at them. A
stage's labels are put into bins by what the model so far predicts, and each bin has one channel: `OptimalResponse` for the
information about the mean, under the law that a label has at that mean, averaged over the model's own uncertainty. The model then
learns from all answers so far (`labeldp.channel.MeanEvidence`), and the next stage begins.

>>> from labeldp.channel import CountLaws
>>> from labeldp.random import NoiseKey
>>> from labeldp.release.budget import Budget
>>> labels = SensitiveLabels([0, 1, 0, 2], classes=range(3))
>>> door = StageDoor(budget=Budget(owner="example", labels=labels), key=NoiseKey.from_seed(0), epsilon=1.0)
>>> rare = lambda known, rows: (np.full(len(rows), 0.1), np.full(len(rows), 0.01))
>>> told = respond_in_stages(
...     labels, np.zeros(4, np.uint8), MeanTable.of(CountLaws(2)), rare, door=door, informed=True, owner="example"
... )
>>> told.channel.matrix(0).round(3)[:, :2].tolist()  # rare events: is it zero or not
[[0.731, 0.269], [0.269, 0.731], [0.269, 0.731]]

Guarantee
---------
Pure epsilon for each label and no one to trust: stages are disjoint, and bins and laws are made of earlier answers and public data
alone. `StageDoor` holds each stage to epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Codes, Floats, Int64s, Places
from labeldp.channel import FiniteChannel, MeanTable, join_channels
from labeldp.errors import Described, invalid
from labeldp.mechanisms import MeanInformation, OptimalResponse
from labeldp.random import NoiseKey
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.stages import StageDoor, run_stages

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
class Responded:
    """Responses so far: to which labels (`rows`), what came out (`codes`), through which channel; and each stage."""

    rows: Places
    codes: Codes
    channel: FiniteChannel
    stages: tuple[RatingStage, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What a stage asks about: its labels, the bin of each, and the mechanism at the law of each bin."""

    rows: Places
    bins: Int64s
    laws: Floats
    spread: float
    mechanism: OptimalResponse


#: (responses so far or None, the labels to predict) -> mean and standard deviation of each
Predictor = Callable[[Responded | None, Places], tuple[Floats, Floats]]


def respond_in_stages(
    labels: SensitiveLabels,
    stage: npt.NDArray[np.uint8],
    family: MeanTable,
    predict: Predictor,
    *,
    door: StageDoor[Release],
    informed: bool,
    owner: str,
) -> Responded:
    """Randomize every label once, and return all responses in the order of the data set.

    `informed` says that `predict` knows something before the first stage (sums). Otherwise that stage has one channel,
    for means anywhere about the middle.
    """

    def believe(number: int, known: Responded | None) -> Question:
        rows = np.flatnonzero(stage == number)
        if known is None and not informed:
            middle = float(family.values[0] + family.values[-1]) / 2
            mean, spread = np.full(len(rows), middle), _FIRST_SPREAD * family.span
        else:
            mean, deviation = predict(known, rows)
            spread = float(np.sqrt(np.mean(deviation**2)))
        bins, laws = bin_means(mean, family)
        objective = MeanInformation(values=family.values.tolist(), spread=spread)
        mechanism = OptimalResponse(door.epsilon, objective=objective)
        return Question(rows=rows, bins=bins, laws=laws, spread=spread, mechanism=mechanism)

    def release(number: int, asked: Question) -> Release:
        def respond(key: NoiseKey) -> Release:
            mine = labels.take(asked.rows)
            return privatize(mine, asked.mechanism, prior=asked.laws, groups=asked.bins, rng=key)

        return door.draw(number, respond)

    def learn(number: int, known: Responded | None, asked: Question, part: Release) -> Responded:
        report = _describe_stage(number, asked)
        if known is None:
            return Responded(rows=asked.rows, codes=part.codes, channel=part.channel, stages=(report,))
        return Responded(
            rows=np.concatenate([known.rows, asked.rows]),
            codes=np.concatenate([known.codes, part.codes]),
            channel=join_channels([known.channel, part.channel]),
            stages=(*known.stages, report),
        )

    start: Responded | None = None
    done = run_stages(int(stage.max()) + 1, start=start, believe=believe, release=release, learn=learn)
    if done is None:
        raise invalid(owner, "stages", "hold at least one label", got=Described("none"))
    order = np.argsort(done.rows, kind="stable")
    return Responded(
        rows=done.rows[order], codes=done.codes[order], channel=done.channel.take(order), stages=done.stages
    )


def bin_means(mean: Floats, family: MeanTable) -> tuple[Int64s, Floats]:
    """Return the bin of each prediction, and the law at the middle of each bin that occurs."""
    step = family.span / _BINS
    grid = np.clip(mean, family.grid[0], family.grid[-1])
    found, bins = np.unique(np.rint((grid - family.values[0]) / step), return_inverse=True)
    laws = family.laws[family.at(family.values[0] + found * step)]
    return bins.reshape(-1).astype(np.int64), laws


def _describe_stage(number: int, asked: Question) -> RatingStage:
    information = np.asarray([asked.mechanism.design(law).worth for law in asked.laws])
    return RatingStage(
        number=number + 1,
        n_examples=len(asked.bins),
        spread=asked.spread,
        n_channels=len(asked.laws),
        information=float(information[asked.bins].mean()),
    )
