"""Numbers in stages: draw, train, believe, draw again; for the owner, who draws, and for a receiver, who replays.

*Stages.* Labels are split without looking at them. In a later stage the model of the earlier ones is a belief about each label:
a normal law around its prediction, as wide as the model was found to be wrong, mixed with a flat one. A channel that is best
for the belief has less variance where the belief is right, and stays unbiased where it is wrong. Predictions are put into
bins, each with one channel. How wrong a model is follows from what was released: fitted on every other row it predicts
the rest, and

    (its error)^2 = mean of (prediction - answer)^2 - mean variance of the answers,

to which one standard error is added, since a belief that is too narrow costs more than one too wide. Everything but the draw is
post-processing. The gain is small, and smaller the smaller epsilon is; the first stage has none (study `numbers`). Hence one
stage by default.

*Weights.* Answers of stages with less variance tell more. With v the expected variance of an answer under its belief and s^2
what the model leaves unexplained, a row has the weight 1 / (v + s^2), where the regressor takes `sample_weight`.

*Evidence.* Least squares on answers uses that their mean is the label, and nothing of how labels are spread. A model that was found
to be wrong by d says more: a label is about normal around its prediction m, of variance d^2, and an answer then has a score and an
information about m (`labeldp.channel.MeanEvidence`). ``correction="evidence"`` fits again, twice, to the pseudo-targets m + score /
information with the information as weight, m the prediction of a model that did not see the row's answer. How much more an answer
tells so, for house values at 2.0 with an error of .6 (100,000 dollars) and epsilon 1:

>>> from labeldp.mechanisms import UnbiasedResponse
>>> mechanism = UnbiasedResponse(1.0, bounds=(0.15, 5.0))
>>> channel, table = mechanism.channel(), MeanTable.of(NormalLaws(mechanism.levels, 0.36))
>>> at = int(table.at(np.array([2.0]))[0])
>>> variance = float(table.laws[at] @ channel.variances[0] + table.variances[at])
>>> told = MeanEvidence.read(np.array([0]), channel, table)
>>> round(float(told.information[0, at]) * variance, 1)
2.1

The variance is that of an answer around the mean, so this is how many rows of plain answers one row is worth. It is no longer
unbiased whatever the labels' law is: on skewed amounts, whose variance grows with their mean, it can lose (docs/tutorials/numbers.md,
which also shows how to compare the two on answers of rows that were held out, for nothing).

Reference: the unbiased channel as a linear program, Ghazi et al. 2023; here in stages, with the model as prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from labeldp.arrays import Floats, Places
from labeldp.channel import MeanEvidence, MeanTable, NormalLaws, NumericChannel, join_channels
from labeldp.learn.corrections import take_rows, takes_weights
from labeldp.mechanisms import NumericMechanism
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.persons import Persons
from labeldp.release.stages import StageDoor, run_stages

#: Predictions are put into this many bins: one channel each.
BINS = 16
#: The flat part of a belief: a model that is sure and wrong still gets answers of finite variance.
FLAT = 0.05
#: A belief is at least this share of the range wide: about a level of the default grid.
NARROWEST = 1 / 32
#: Rounds of pseudo-targets: a third changed next to nothing on two splits of the housing set that the study does not have.
REFITS = 2


@dataclass(frozen=True, kw_only=True)
class NumberStage:
    """One stage as it was run: public facts of its channels and beliefs.

    `spread` is how wide the beliefs were (the standard deviation of a normal law; NaN where there was none), `noise` the mean
    variance of an answer under them.
    """

    number: int
    n_examples: int
    share: float
    spread: float
    n_channels: int
    noise: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """What shapes the release of one stage: its rows, laws of the levels, and which law each row has; None: all alike."""

    rows: Places
    laws: Floats | None
    groups: Places | None
    spread: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """What one stage released: its rows, their answers, and how much each is expected to vary."""

    rows: Places
    release: Release
    noise: Floats


@dataclass
class Training:
    """The state of the loop, and in the end its result."""

    parts: list[Part] = field(default_factory=list)
    stages: list[NumberStage] = field(default_factory=list)
    model: Any = None
    spread: float = math.nan

    #: How many rows there are, answered or not.
    n_rows: int = 0

    @property
    def rows(self) -> npt.NDArray[np.int64] | None:
        """The rows that have an answer, rising; None where all have one."""
        answered = np.sort(np.concatenate([part.rows for part in self.parts])).astype(np.int64)
        return None if len(answered) == self.n_rows else answered

    @property
    def order(self) -> Places:
        """The places of the data set's rows among those of the parts, one part after the other."""
        return np.argsort(np.concatenate([part.rows for part in self.parts]), kind="stable")

    @property
    def codes(self) -> npt.NDArray[Any]:
        """All outputs, in the order of the data set."""
        codes: npt.NDArray[Any] = np.concatenate([part.release.codes for part in self.parts])[self.order]
        return codes

    @property
    def channel(self) -> NumericChannel:
        """The channel of all rows, in the order of the data set."""
        parts = [part.release.channel for part in self.parts]
        whole = join_channels(parts, counts=[len(part.rows) for part in self.parts]).take(self.order)
        assert isinstance(whole, NumericChannel)
        return whole


#: (stage number, rows of the data set, laws, law of each row) -> the release of those rows
Draw = Callable[[int, Places, Floats | None, Places | None], Release]


def train_on_numbers(
    X: Any,
    stage: npt.NDArray[Any],
    draw: Draw,
    estimator: BaseEstimator,
    *,
    levels: Floats,
    prior: Floats | None,
    weights: Floats | None,
    evidence: bool,
) -> Training:
    """Draw and train stage by stage: for the owner, whose `draw` goes through the door, and for a receiver, who replays."""
    count = int(stage.max()) + 1

    def believe(number: int, training: Training) -> Belief:
        return believe_rows(np.flatnonzero(stage == number), training)

    def believe_rows(rows: Places, training: Training) -> Belief:
        if training.model is None:
            return Belief(rows=rows, laws=prior, groups=None, spread=math.nan)
        guess = predict_within(training.model, take_rows(X, rows), (float(levels[0]), float(levels[-1])))
        laws, groups = bin_beliefs(guess, levels, training.spread)
        return Belief(rows=rows, laws=laws, groups=groups, spread=training.spread)

    def release(number: int, belief: Belief) -> Release:
        return draw(number, belief.rows, belief.laws, belief.groups)

    def learn(number: int, training: Training, belief: Belief, outcome: Release) -> Training:
        if outcome.rows is not None:  # of persons some rows were asked: believed anew, as a receiver does
            belief = believe_rows(belief.rows[outcome.rows], training)
        part = Part(rows=belief.rows, release=outcome, noise=_expect_noise(outcome, belief))
        training.parts.append(part)
        rows = np.concatenate([one.rows for one in training.parts])
        features, answers = take_rows(X, rows), np.concatenate([one.release.values for one in training.parts])
        public = None if weights is None else weights[rows]
        fit = partial(_fit, estimator, features, answers)
        half = np.arange(len(rows)) % 2 == 0
        if number + 1 < count or evidence:
            trial = fit(half, _weigh(training, public))
            training.spread = measure_error(trial, features, answers, training.parts, levels, rest=~half)
        training.model = fit(np.ones(len(rows), bool), _weigh(training, public))
        if evidence:
            training.model = _refit_to_evidence(estimator, features, training, levels, half=half, public=public)
        channels = 1 if belief.laws is None or belief.laws.ndim == 1 else len(belief.laws)
        training.stages.append(
            NumberStage(
                number=number + 1,
                n_examples=len(belief.rows),
                share=len(belief.rows) / len(stage),
                spread=belief.spread,
                n_channels=channels,
                noise=float(part.noise.mean()),
            )
        )
        return training

    training = run_stages(count, start=Training(n_rows=len(stage)), believe=believe, release=release, learn=learn)
    total = sum(one.n_examples for one in training.stages)
    training.stages = [replace(one, share=one.n_examples / total) for one in training.stages]
    return training


def draw_numbers(
    labels: SensitiveLabels,
    mechanism: NumericMechanism,
    door: StageDoor[Release],
    *,
    persons: Persons | None,
    weights: Floats | None,
) -> Draw:
    """Return the owner's way to get a stage: through the door, once per label, or once per person and few of her labels.

    Which of a person's rows is asked is up to public chance; rows that are in no fit are asked last.
    """

    def ask(rows: Places) -> dict[str, Any]:
        if persons is None:
            return {}
        score = None if weights is None or weights[rows].all() else (weights[rows] > 0).astype(np.float64)
        return {"persons": persons.take(rows), "persons_score": score}

    def draw(number: int, rows: Places, laws: Floats | None, groups: Places | None) -> Release:
        told = laws if mechanism.uses_prior else None
        by = groups if mechanism.uses_prior else None
        part, asked = labels.take(rows), ask(rows)
        return door.draw(number, lambda key: privatize(part, mechanism, prior=told, groups=by, rng=key, **asked))

    return draw


def bin_beliefs(guess: Floats, levels: Floats, spread: float) -> tuple[Floats, Places]:
    """Return a law of the levels for each bin of predictions that occurs, and the bin of each prediction.

    A normal law around the middle of the bin, as wide as `spread`, and `FLAT` of the uniform one.
    """
    low, width = levels[0], levels[-1] - levels[0]
    bins = np.rint((guess - low) / width * BINS).astype(np.int64)
    there, groups = np.unique(bins, return_inverse=True)
    middle = low + there / BINS * width
    logs = -0.5 * ((levels - middle[:, None]) / max(spread, NARROWEST * width)) ** 2
    laws = np.exp(logs - logs.max(axis=1, keepdims=True))
    laws /= laws.sum(axis=1, keepdims=True)
    mixed: Floats = (1 - FLAT) * laws + FLAT / len(levels)
    return mixed, groups.reshape(-1)


def measure_error(
    model: Any, X: Any, answers: Floats, parts: Sequence[Part], levels: Floats, *, rest: npt.NDArray[np.bool_]
) -> float:
    """Return how far off a model's predictions for the rest of the rows are, as a standard deviation, from answers alone.

    The square is the mean of (prediction - answer)^2 less the variance that an answer has at the prediction, and one
    standard error; between a level of the default grid and the deviation of a flat law.
    """
    bounds = (float(levels[0]), float(levels[-1]))
    rows = np.flatnonzero(rest)
    guess = predict_within(model, take_rows(X, rows), bounds)
    channel = join_channels([part.release.channel for part in parts], counts=[len(part.rows) for part in parts]).take(
        rows
    )
    assert isinstance(channel, NumericChannel)
    # One law per row is a point at the nearest level: the variance there.
    nearest = np.rint((guess - bounds[0]) / (bounds[1] - bounds[0]) * (len(levels) - 1)).astype(np.int64)
    groups = np.zeros(len(rows), np.int64) if channel.index is None else channel.index
    away = (guess - answers[rows]) ** 2 - channel.variances[groups, nearest]
    square = float(away.mean() + away.std() / math.sqrt(max(1, len(away))))
    width = bounds[1] - bounds[0]
    return math.sqrt(min(max(square, (NARROWEST * width) ** 2), width**2 / 12))


def predict_within(model: Any, X: Any, bounds: tuple[float, float]) -> Floats:
    """Return a model's predictions, one per row, within the bounds: the mean of labels lies there."""
    guess: Floats = np.clip(np.asarray(model.predict(X), np.float64).reshape(-1), *bounds)
    return guess


def _expect_noise(outcome: Release, belief: Belief) -> Floats:
    """Return the expected variance of each answer under the belief that its channel was made for."""
    channel = outcome.channel
    assert isinstance(channel, NumericChannel)
    laws = belief.laws
    if laws is not None and laws.ndim == 2 and belief.groups is not None:
        laws = laws[belief.groups]
    return np.broadcast_to(channel.spread(laws), (len(outcome),)).astype(np.float64)


def _weigh(training: Training, public: Floats | None) -> Floats | None:
    """Return the weight of each row so far: public ones, times 1 / (variance of the answer + what the model leaves)."""
    noise = np.concatenate([part.noise for part in training.parts])
    if float(noise.max()) == float(noise.min()) or not math.isfinite(training.spread):
        return public
    own = 1.0 / (noise + training.spread**2)
    own /= own.mean()
    return own if public is None else own * public


def _fit(
    estimator: BaseEstimator, X: Any, answers: Floats, rows: npt.NDArray[np.bool_], weights: Floats | None
) -> BaseEstimator:
    """Return a new estimator, fitted on some rows; those of weight 0 are left out."""
    model = clone(estimator)
    used = np.flatnonzero(rows if weights is None else rows & (weights > 0))
    if weights is None or not takes_weights(model):
        return model.fit(take_rows(X, used), answers[used])
    return model.fit(take_rows(X, used), answers[used], sample_weight=weights[used])


def _refit_to_evidence(
    estimator: BaseEstimator,
    X: Any,
    training: Training,
    levels: Floats,
    *,
    half: npt.NDArray[np.bool_],
    public: Floats | None,
) -> BaseEstimator:
    """Return the model of all pseudo-targets, after `REFITS` rounds from the answers on.

    The prediction that a target is a step from comes from the other half of the rows: a model that had seen the answer would take
    part of its noise for the label.
    """
    channels = [part.release.channel for part in training.parts]
    channel = join_channels(channels, counts=[len(part.rows) for part in training.parts])
    codes = np.concatenate([part.release.codes for part in training.parts])
    told = MeanEvidence.read(codes, channel, MeanTable.of(NormalLaws(levels, training.spread**2)))
    targets, weights = np.concatenate([part.release.values for part in training.parts]), _weigh(training, public)
    bounds = (float(levels[0]), float(levels[-1]))
    for _ in range(REFITS):
        guess = np.empty(len(codes))
        for learned in (half, ~half):
            model = _fit(estimator, X, targets, learned, weights)
            rest = np.flatnonzero(~learned)
            guess[rest] = predict_within(model, take_rows(X, rest), bounds)
        targets, own = told.at_means(guess)
        own /= own.mean()
        weights = own if public is None else own * public
    return _fit(estimator, X, targets, np.ones(len(codes), bool), weights)
