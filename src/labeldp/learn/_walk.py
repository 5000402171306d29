"""The walk through the stages: draw, train, and let the model be the next stage's prior.

One walk serves the owner of the labels, who draws, and the receiver of a release, who replays what was drawn: both end
with the same model. Labels are touched in one line only, the call of `draw`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing

from labeldp._random import NoiseKey
from labeldp.channel import CandidateChannel, FiniteChannel
from labeldp.errors import LabelDPError
from labeldp.learn._corrections import fit_released
from labeldp.learn._rounds import distilled, params_of, refined
from labeldp.learn._settings import Settings
from labeldp.learn._stages import Stage
from labeldp.mechanisms import Mechanism
from labeldp.priors import PriorTable, model_probabilities, tempered
from labeldp.release import Release, SensitiveLabels, privatize

Floats = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.unsignedinteger[Any]]
#: (stage number, rows of the data set, their prior) -> codes and channel of those rows
Draw = Callable[[int, npt.NDArray[np.intp], Floats], tuple[Codes, FiniteChannel]]

#: (stage number, how to draw it) -> its release, drawn now or kept from before
Kept = Callable[[int, Callable[[], Release]], Release]

#: A prior is mixed with this much of the uniform one, so that it never rules a label out for good.
PRIOR_FLOOR = 0.02


@dataclass(frozen=True, kw_only=True)
class Part:
    """One stage's rows and what was released for them; `known` is the belief that did not come from these labels' model."""

    rows: npt.NDArray[np.intp]
    codes: Codes
    channel: FiniteChannel
    prior: Floats
    known: Floats

    def take(self, keep: npt.NDArray[np.intp]) -> Part:
        """Return some of the examples."""
        channel = self.channel.take(keep)
        pick = (self.rows[keep], self.codes[keep], self.prior[keep], self.known[keep])
        return Part(rows=pick[0], codes=pick[1], channel=channel, prior=pick[2], known=pick[3])


@dataclass
class Walked:
    """Where the walk has come to."""

    parts: list[Part] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    model: Any = None


def walk(X: Any, stage: npt.NDArray[Any] | None, table: PriorTable, draw: Draw, settings: Settings) -> Walked:
    """Distil the prior if that is asked for, draw and train stage by stage, and go on for some rounds.

    Without stages (None) nothing is drawn: the model is made of the prior alone.
    """
    walked = Walked(model=distilled(X, table, settings) if settings.distil else None)
    count = 0 if stage is None else int(stage.max()) + 1
    for number in range(count):
        rows = np.flatnonzero(stage == number)
        known = floored(table.probabilities(rows))
        prior = known if walked.model is None else _model_prior(walked.model, _safe_indexing(X, rows), settings)
        codes, channel = draw(number, rows, prior)
        walked.parts.append(Part(rows=rows, codes=codes, channel=channel, prior=prior, known=known))
        dropped = _train(walked, X, settings, final=number + 1 == count and not settings.rounds)
        walked.stages.append(_report(number, walked.parts[-1], len(table.index), dropped))
    for turn in range(settings.rounds):
        final = turn + 1 == settings.rounds
        number = count + settings.distil + turn
        walked.model = refined(walked.model, X, walked.parts, settings, number=number, final=final)
    if _can_go_on(walked.model):
        walked.model.set_params(warm_start=settings.estimator.warm_start)  # as the user has it
    return walked


def drawn_by(labels: SensitiveLabels, mechanism: Mechanism, key: NoiseKey, *, kept: Kept) -> Draw:
    """Return the owner's way to get a stage: through the door, once per label; `kept` may have it already."""

    def draw(number: int, rows: npt.NDArray[np.intp], prior: Floats) -> tuple[Codes, FiniteChannel]:
        release = kept(
            number, lambda: privatize(labels.take(rows), mechanism, prior=prior, rng=key.child("stage", number))
        )
        return release.codes, release.channel

    return draw


def replayed_from(release: Release) -> Draw:
    """Return the receiver's way to get a stage: out of the release."""

    def draw(_number: int, rows: npt.NDArray[np.intp], _prior: Floats) -> tuple[Codes, FiniteChannel]:
        return release.codes[rows], release.channel.take(rows)

    return draw


def joined(channels: list[FiniteChannel]) -> FiniteChannel:
    """Return the channel of several stages' examples, one after the other."""
    if len(channels) == 1:
        return channels[0]
    sets = [channel for channel in channels if isinstance(channel, CandidateChannel)]
    if len(sets) != len(channels) or len({channel.odds for channel in sets}) > 1:
        raise LabelDPError("LabelPrivateClassifier: a release in stages needs candidate sets at one epsilon.")
    return CandidateChannel.trusted(
        odds=sets[0].odds,
        members=np.concatenate([channel.members for channel in sets]),
        sizes=np.concatenate([channel.sizes for channel in sets]),
        n_classes=sets[0].n_classes,
    )


def floored(prior: Floats) -> Floats:
    """Return the prior mixed with a little of the uniform one."""
    answer: Floats = (1 - PRIOR_FLOOR) * prior + PRIOR_FLOOR / prior.shape[1]
    return answer


def _model_prior(model: Any, X: Any, settings: Settings) -> Floats:
    return floored(tempered(model_probabilities(model, X, settings.classes), settings.temperature))


def _train(walked: Walked, X: Any, settings: Settings, *, final: bool) -> int:
    """Fit on all parts so far, and return how many earlier labels the filter dropped."""
    number = len(walked.parts) - 1 + settings.distil
    if settings.everyone and walked.model is not None:
        walked.model = refined(walked.model, X, walked.parts, settings, number=number, final=final)
        return 0
    earlier = [_filtered(part, walked, X, settings) for part in walked.parts[:-1]]
    kept = [*earlier, walked.parts[-1]]
    rows = np.concatenate([part.rows for part in kept])
    # Forward multiplies what is known apart from this model; a posterior starts from the best belief, the model's.
    beliefs = [part.known if settings.correction == "forward" else part.prior for part in kept]
    walked.model = fit_released(
        _next_estimator(walked.model, settings, number=number, final=final),
        _safe_indexing(X, rows),
        codes=np.concatenate([part.codes for part in kept]),
        channel=joined([part.channel for part in kept]),
        prior=np.concatenate(beliefs),
        # The first fit of EM has no model to believe: it is a posterior under what was known.
        correction="posterior" if settings.everyone else settings.correction,
        classes=settings.classes,
    )
    return sum(len(part.rows) for part in walked.parts) - len(rows)


def _next_estimator(model: Any, settings: Settings, *, number: int, final: bool) -> BaseEstimator:
    """Return a fresh estimator, or last stage's to go on from, where it can start from its own weights."""
    changed = final and settings.final_params is not None
    if model is not None and _can_go_on(model) and not changed:
        return model.set_params(warm_start=True, **params_of(settings, number))
    estimator = clone(settings.estimator).set_params(**params_of(settings, number))
    return estimator.set_params(**(settings.final_params or {})) if final else estimator


def _can_go_on(model: Any) -> bool:
    """Whether a fitted model takes soft targets and starts from its own weights: others' warm starts mean other things."""
    return hasattr(model, "fit_targets") and "warm_start" in model.get_params()


def _filtered(part: Part, walked: Walked, X: Any, settings: Settings) -> Part:
    """Drop labels that the newest model does not rank among its first k, k the mean candidates of the newest stage."""
    newest = walked.parts[-1].channel
    if not settings.filter_earlier or not isinstance(newest, CandidateChannel):
        return part
    allowed = math.ceil(float(np.mean(newest.sizes)))
    scores = model_probabilities(walked.model, _safe_indexing(X, part.rows), settings.classes)
    mine = np.take_along_axis(scores, part.codes[:, None].astype(np.intp), axis=1)
    return part.take(np.flatnonzero((scores > mine).sum(axis=1) < allowed))


def _report(number: int, part: Part, n: int, dropped: int) -> Stage:
    channel = part.channel
    average = float(np.mean(channel.sizes)) if isinstance(channel, CandidateChannel) else float(channel.n_outputs)
    return Stage(
        number=number + 1,
        n_examples=len(part.rows),
        share=len(part.rows) / n,
        average_k=average,
        expected_accuracy=float(np.mean(channel.expected_accuracy(part.prior)))
        if channel.outputs_are_labels
        else math.nan,
        n_dropped=dropped,
    )
