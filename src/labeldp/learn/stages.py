r"""Training in stages: draw the labels of one stage, train, and let the model be the prior of the next stage.

>>> from labeldp.learn.stages import stage_shares
>>> stage_shares(2, epsilon=1.0)
(0.8, 0.2)

The examples are split into stages without looking at labels. Each label is drawn in one stage only, so the stages compose
in parallel: epsilon in all (Ghazi et al. 2021, Algorithm 3). `train_in_stages` serves the owner of the labels, who draws,
and the receiver of a release, who replays what was drawn: both end with the same model. The loop itself is
`labeldp.release.stages.run_stages`; labels are touched in one line only, the call of `draw`.

*Forward first, EM after.* Let L_i[y] = Pr[what was released of i | y], and p_i the model's probabilities. Under "em" a stage ends
with a fresh fit that maximises sum_i log sum_y p_i[y] L_i[y] over all that was released so far (estimators with
`fit_likelihood`; others start from posteriors under what the stage believed). Then come fresh fits on the targets

    q_i[y] = p_i[y] L_i[y] / sum_k p_i[k] L_i[k],

the E-step of EM for the labels, the fit being its M-step, which maximises a lower bound of the same sum: one before the next stage, and
`rounds` of them after the last. Where all answers together say little, "auto" pools them in neighbourhoods first, instead
(`labeldp.learn.pools`). Where a curator has counted labels of clusters, the counts are evidence in the E-step too
(`labeldp.learn.bags`), and the first E-step takes the forward model times the square root of the one that was distilled from the
counts: what two models learned from independent noise. EM that starts from the sharp beliefs of one keeps them. Everything here reads what was released
and nothing else: post-processing, free at any number of rounds. Without any evidence at all the beliefs would only repeat
themselves: a round then sharpens them, q = p^(1/temperature).

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021); Dempster,
Laird, Rubin 1977 (EM); Hinton, Vinyals, Dean 2015 (distillation).

Design notes. `Settings` are checked once, by `check_settings`, and are the same for the owner and for a receiver.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from labeldp.arrays import Codes, Floats
from labeldp.channel import CandidateChannel, Evidence, FiniteChannel, SetAnswers, join_answers
from labeldp.channel.evidence import LazyRows, is_flat, join_rows, keep_small
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.learn.bags import Bags, read_bags
from labeldp.learn.beliefs import LEAST_BELIEF, ModelBeliefs, Posteriors, mix_uniform
from labeldp.learn.corrections import (
    CORRECTIONS,
    choose_correction,
    fit_released,
    fit_soft,
    fits_once,
    predict_classes,
    split_pipeline,
    take_rows,
    takes_weights,
)
from labeldp.learn.crossfit import ROUNDS as ROUNDS_OF_CROSSFIT
from labeldp.learn.crossfit import calibrate_start, fit_crossfit
from labeldp.learn.pools import OWN_ANSWER, pool_answers, pools_features, says_little
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.mechanisms import InformativeResponse, MeasuringMechanism, Mechanism, RRWithPrior
from labeldp.priors import PriorTable
from labeldp.random import NoiseKey
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.persons import Persons, best_answers, check_apart, check_person_mechanism, information_of
from labeldp.release.stages import StageDoor, run_stages
from labeldp.validate import check_choice, check_integer, check_positive, code_dtype

OWNER = "LabelPrivateClassifier"
#: A prior is mixed with this much of the uniform one, so that it never rules a label out for good.
PRIOR_FLOOR = 0.02
#: Share of the first stage and temperature of its model's prior, at these epsilons. The values are ours. The paper gives one
#: share, 65% at epsilon 2 (Ghazi et al. 2021, supplement D), and says that a little above 50% and temperatures of at most 1 do
#: well (E).
PAPER_EPSILONS = (1.0, 2.0, 4.0, 8.0)
FIRST_SHARE = (0.8, 0.7, 0.6, 0.6)
TEMPERATURE = (0.6, 0.5, 0.5, 0.5)
#: More than anyone found useful (the paper stops at four); the number of a stage fits in a byte.
MOST_STAGES = 100
#: Rounds after the last stage, where "auto" has any: some to settle, and a last, longer one. Where little is known, EM is slow: 3
#: rounds were a point or two short of 6 at epsilon 0.5 on images. Self-training has nothing new to find, and of pooled answers
#: all is known.
ROUNDS, SHORT_ROUNDS = 6, 2
#: The same where a fit is long (`fits_once`), and EM is asked for, or a prior that is given calls for it.
LONG_ROUNDS = 1
#: What a model of counts alone says counts this much less than it is sure of, beside a model of the answers.
COUNTS_TEMPERATURE = 2.0
#: Labels of sets that are looked at in one step.
ENTRIES = 1 << 24
#: Without any released label a round sharpens its own beliefs, to q^1.5.
SELF_TEMPERATURE = 1.0 / 1.5


class Answers(NamedTuple):
    """What a stage released: outputs and their channel; `kept` are the places of its rows that were asked, None for all."""

    codes: Codes
    channel: FiniteChannel
    kept: npt.NDArray[np.int64] | None = None


#: (stage number, rows of the data set, their prior) -> the answers of those rows
Draw = Callable[[int, npt.NDArray[np.intp], Any], Answers]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage as it was run: `share` of the examples, mean candidates, and the expected accuracy of its labels.

    `expected_accuracy` is under the prior that the stage used, so it is known without looking at a label. Where answers are
    sets, it is the chance that the true label is among those named, and `average_k` is how many are. For other outputs
    that are not labels it is NaN, and `average_k` is the number of outputs.
    """

    number: int
    n_examples: int
    share: float
    average_k: float
    expected_accuracy: float
    n_dropped: int = 0


class Belief(NamedTuple):
    """What shapes the release of one stage: its rows of the data set, and their prior."""

    rows: npt.NDArray[np.intp]
    prior: Any


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one stage released: its rows of the data set, their outputs, and the channel that made them.

    `prior` is the belief that the channel was made with.
    """

    rows: npt.NDArray[np.intp]
    codes: Codes
    channel: FiniteChannel
    prior: Any

    def take(self, keep: npt.NDArray[np.intp]) -> Part:
        """Return some of the examples."""
        return Part(
            rows=self.rows[keep],
            codes=self.codes[keep],
            channel=self.channel.take(keep),
            prior=self.prior[keep],
        )


@dataclass
class Training:
    """The state of the loop, and in the end its result: what each stage released, its report, and the newest model."""

    parts: list[Part] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    model: Any = None
    #: Fits so far.
    fits: int = 0
    #: Whether the answers were pooled for the newest stage.
    pooled: bool = False
    #: Rounds after the last stage.
    rounds: int = 0
    #: What the prior was distilled into, if it was.
    distilled: Any = None
    #: The rows that have an answer, rising, where some have none; the rows of parts are then places among these.
    rows: npt.NDArray[np.intp] | None = None


def train_in_stages(
    X: Any,
    stage: npt.NDArray[Any] | None,
    table: PriorTable,
    draw: Draw,
    settings: Settings,
    *,
    weights: Floats | None = None,
    of_persons: bool = False,
) -> Training:
    """Distil the prior if that is asked for, draw and train stage by stage, and go on for some rounds.

    Parameters
    ----------
    X : array, sparse matrix or table
        The features, one row per example, as the estimator takes them.
    stage : array of shape (n,), or None
        The stage of each example, from 0. Without stages nothing is drawn: the model is made of the prior alone.
    table : PriorTable
        What is believed before the first stage.
    draw : function
        Gives the outputs of a stage: `draw_labels` for the owner, `replay_release` for a receiver.
    settings : Settings
        How to train.
    weights : array of shape (n,), optional
        Public weights of the examples in training. One of weight 0 is drawn like all others, and is in no fit.
    of_persons : bool
        Whether a stage answers some rows of its persons only, so that a receiver knows of no others. The model is then made
        of answered rows alone, and a prior is distilled on those of the first stage, once they are known: the owner, who has
        all rows, and a receiver, who has the answered ones, end with the same model.
    """
    public = Weights(weights)
    count = 0 if stage is None else int(stage.max()) + 1
    late = of_persons and settings.distil and count > 0

    def believe_rows(rows: npt.NDArray[np.intp], training: Training) -> Belief:
        if training.model is None:
            return Belief(rows, mix_with_uniform(table.probabilities(rows)))
        return Belief(rows, _model_prior(training.model, take_rows(X, rows), settings))

    def believe(number: int, training: Training) -> Belief:
        return believe_rows(np.flatnonzero(stage == number), training)

    def release(number: int, belief: Belief) -> Answers:
        return draw(number, belief.rows, belief.prior)

    def learn(number: int, training: Training, belief: Belief, outcome: Answers) -> Training:
        if outcome.kept is not None:
            # Believed anew for these rows alone, as a receiver does: sums of matrices of other sizes round differently.
            belief = believe_rows(belief.rows[outcome.kept], training)
        training.parts.append(Part(**belief._asdict(), codes=outcome.codes, channel=outcome.channel))
        if late and number == 0:
            _distil(training, X, table, settings, public, rows=belief.rows)
        last = settings.correction == "crossfit" or not settings.rounds
        dropped = _train_stage(training, X, settings, public, final=number + 1 == count and last)
        if settings.correction == "em" and number + 1 < count:
            rows = np.sort(np.concatenate([part.rows for part in training.parts]))
            _fit_posteriors(training, X, settings, public, number=number + settings.distil, rows=rows)
        training.stages.append(_report_stage(number, training.parts[-1], len(table.index), dropped))
        return training

    start, told = Training(), None
    if settings.distil and not late:
        _distil(start, X, table, settings, public)
        told = ModelBeliefs(start.model, X, classes=settings.classes, temperature=COUNTS_TEMPERATURE).kept()
    training = run_stages(count, start=start, believe=believe, release=release, learn=learn)
    answered = _keep_answered(training, len(table.index))
    if answered is not None:
        X, table, public = take_rows(X, answered), table.take(answered), Weights(public.of(answered))
    if late:
        told = ModelBeliefs(training.distilled, X, classes=settings.classes, temperature=COUNTS_TEMPERATURE).kept()
    bags = _counted_bags(table, training.parts, settings)
    # Decided by the answers that there are, which a receiver of some rows of persons knows as the owner does.
    training.rounds = settings.pooled_rounds if training.pooled else settings.rounds
    for turn in range(0 if settings.correction == "crossfit" else training.rounds):
        final = turn + 1 == training.rounds
        number = count + settings.distil + turn
        beside = told if bags is not None and turn == 0 else None
        _fit_posteriors(training, X, settings, public, number=number, bags=bags, told=beside, final=final)
    if _starts_warm(training.model):
        training.model.set_params(warm_start=settings.estimator.warm_start)  # as the user has it
    return training


def _distil(
    training: Training,
    X: Any,
    table: PriorTable,
    settings: Settings,
    public: Weights,
    *,
    rows: npt.NDArray[np.intp] | None = None,
) -> None:
    """Fit the estimator on the prior's own beliefs about all examples, or about some `rows`."""
    if rows is not None:
        X, public, table = take_rows(X, rows), Weights(public.of(rows)), table.take(rows)
    training.model = public.fit_soft(_make_estimator(training, settings, 0), X, table.probabilities(), settings.classes)
    training.distilled = training.model


def _keep_answered(training: Training, n: int) -> npt.NDArray[np.intp] | None:
    """Count the rows of parts among those that have an answer, and return these; None where nothing is left out."""
    total = sum(len(part.rows) for part in training.parts)
    if not training.parts or total == n:
        return None
    answered = np.sort(np.concatenate([part.rows for part in training.parts]))
    training.parts = [replace(part, rows=np.searchsorted(answered, part.rows)) for part in training.parts]
    training.stages = [replace(stage, share=stage.n_examples / total) for stage in training.stages]
    training.rows = answered
    return answered


@dataclass(frozen=True, kw_only=True, eq=False)
class Owners:
    """Who owns each row, where all labels of a person are protected together, and which rows have no weight in training."""

    persons: Persons
    weights: Floats | None = None
    #: Whether the row of most expected information is asked, and not one by public chance.
    informed: bool = False

    def ask(self, mechanism: Mechanism, rows: npt.NDArray[np.intp], told: Any, prior: Any) -> dict[str, Any]:
        """Return what the door is told of the persons of some rows: their ids, and, if `informed`, how much each row's answer teaches.

        That is the expected information of the answer under what is believed of the row (`expect_information`), a function of
        public things and of answers of other persons. Rows that are in no fit are asked last.
        """
        score = expect_information(mechanism, told, prior) if self.informed else None
        if self.weights is not None and not self.weights[rows].all():
            score = np.zeros(len(rows)) if score is None else score
            score = np.where(self.weights[rows] > 0, score, -1.0)
        return {"persons": self.persons.take(rows), "persons_score": score}

    def count_answers(self, mechanism: Mechanism, n_classes: int) -> int:
        """Return how many rows of a person are asked at most, where nothing is known of labels."""
        epsilon = check_person_mechanism(mechanism)
        return best_answers(epsilon, information_of(mechanism, n_classes=n_classes), most=self.persons.most_rows)

    def check_mechanism(self, mechanism: Mechanism, n_classes: int) -> None:
        """Refuse, before anything is charged, a mechanism that cannot answer for persons: a rehearsal without a label.

        Where persons answer several rows, it answers at several epsilons, in stages with different priors; all of it becomes one
        release. Made-up labels, always the first class, go through the same doors.
        """
        most = self.count_answers(mechanism, n_classes)
        if most == 1:
            return
        codes = np.repeat(np.arange(most), np.arange(1, most + 1))
        made_up = SensitiveLabels(np.zeros(len(codes), np.int64), n_classes=n_classes)
        flat = np.full((len(codes), n_classes), 1.0 / n_classes)
        tilted = mix_with_uniform(np.tile(np.eye(n_classes)[0], (len(codes), 1)))
        try:
            told = [prior if mechanism.uses_prior else None for prior in (flat, tilted)]
            tried = [privatize(made_up, mechanism, prior=prior, persons=codes, rng=0) for prior in told]
            join_answers([(release.codes, release.channel) for release in tried])
        except LabelDPError as error:
            got = Described(
                f"{type(mechanism).__name__}, whose answers at several epsilons are not one release ({error})"
            )
            fix = f"At this epsilon {most} rows of a person are asked. Use InformativeResponse or RandomizedResponse, or a smaller epsilon."
            raise invalid(OWNER, "mechanism", "answer for persons", got=got, fix=fix) from None

    def check_stages(self, stage: npt.NDArray[Any] | None) -> None:
        """Refuse stages that split a person: they would not compose in parallel."""
        if stage is not None:
            check_apart(self.persons, [np.flatnonzero(stage == number) for number in range(int(stage.max()) + 1)])


def expect_information(mechanism: Mechanism, told: Any, prior: Any) -> Floats | None:
    """Return the nats that an answer about each row is expected to have, for labels that follow `prior` (n, K).

    `told` is what the mechanism is told of the rows, the prior, or nothing. Channels that answer with sets know the exact
    number; of others the entropy of the belief stands for it, which they rise with. None where all rows are believed alike.

    >>> sure, torn = [0.9, 0.1], [0.5, 0.5]
    >>> nats = expect_information(InformativeResponse(1.0), np.array([sure, torn]), np.array([sure, torn]))
    >>> bool(nats[0] < nats[1])
    True
    """
    if isinstance(prior, LazyRows) or is_flat(prior) or bool((prior == prior[0]).all()):
        return None
    size = prior.shape[1]
    channel = mechanism.channel(told, n_classes=size).place(0, len(prior))
    if hasattr(channel, "information"):
        nats: Floats = channel.information(prior)
        return nats
    entropy: Floats = -(prior * np.log(np.maximum(prior, np.finfo(np.float64).tiny))).sum(axis=1)
    return entropy


def draw_labels(
    labels: SensitiveLabels, mechanism: Mechanism, door: StageDoor[Release], *, owners: Owners | None = None
) -> Draw:
    """Return the owner's way to get a stage: through the door, once per label, or once per person and few of her labels.

    A mechanism that takes no prior (`Mechanism.uses_prior`) is given none. One that takes few distinct priors
    (`Mechanism.most_priors`) gets rounded ones: which channel a label goes through may be any function of what is public.
    `InformativeResponse` is not told that nothing is known: without a prior its answers are as small as labels. But where
    persons answer several rows, at several epsilons, it is: answers are sets then in all stages, and join.
    """
    several = owners is not None and owners.count_answers(mechanism, labels.n_classes) > 1

    def draw(number: int, rows: npt.NDArray[np.intp], prior: Any) -> Answers:
        told = round_priors(prior, most=mechanism.most_priors) if mechanism.uses_prior else None
        if isinstance(mechanism, InformativeResponse) and is_flat(prior) and not several:
            told = None
        asked = {} if owners is None else owners.ask(mechanism, rows, told, prior)
        release = door.draw(number, lambda key: privatize(labels.take(rows), mechanism, prior=told, rng=key, **asked))
        # Which rows were asked is the release's word: a run that goes on may believe a little differently than when it drew.
        return Answers(release.codes, release.channel, release.rows)

    return draw


def replay_release(release: Release) -> Draw:
    """Return the receiver's way to get a stage: out of the release."""

    def draw(_number: int, rows: npt.NDArray[np.intp], _prior: Any) -> Answers:
        return Answers(release.codes[rows], release.channel.take(rows))

    return draw


# ------------------------------------------------------------------------------------------------ one fit of the loop


@dataclass(frozen=True, eq=False)
class Weights:
    """Public weights of all examples, or none: what each fit of the loop needs to know of them."""

    values: Floats | None

    def of(self, rows: npt.NDArray[np.intp]) -> Floats | None:
        """Return the weights of some examples."""
        return None if self.values is None else self.values[rows]

    def keep(self, part: Part) -> Part:
        """Return those examples of a part that have a weight."""
        if self.values is None or bool((self.values[part.rows] > 0).all()):
            return part
        return part.take(np.flatnonzero(self.values[part.rows] > 0))

    def fit_soft(
        self,
        estimator: BaseEstimator,
        X: Any,
        targets: Any,
        classes: Sequence[Any],
        *,
        rows: npt.NDArray[np.intp] | None = None,
    ) -> Any:
        """Return the estimator, fitted on soft targets of all examples (or of `rows`) that have a weight."""
        if rows is None and (self.values is None or bool((self.values > 0).all())):
            return fit_soft(estimator, X, targets, classes, weights=self.values)
        kept = np.arange(len(targets)) if rows is None else rows
        kept = kept if self.values is None else kept[self.values[kept] > 0]
        return fit_soft(estimator, take_rows(X, kept), targets[kept], classes, weights=self.of(kept))


def _train_stage(training: Training, X: Any, settings: Settings, public: Weights, *, final: bool) -> int:
    """Fit on all parts so far, and return how many earlier labels the filter dropped."""
    number = len(training.parts) - 1 + settings.distil
    earlier = [_drop_unlikely(part, training, X, settings) for part in training.parts[:-1]]
    dropped = sum(len(part.rows) for part in training.parts[:-1]) - sum(len(part.rows) for part in earlier)
    kept = [part for part in map(public.keep, (*earlier, training.parts[-1])) if len(part.rows)]
    if not kept:  # the filter left what has no weight: the model stays
        return dropped
    rows = np.concatenate([part.rows for part in kept])
    weights = public.of(rows)
    if settings.correction == "crossfit":
        training.model = _fit_crossfit(kept, take_rows(X, rows), settings, weights, number=number, final=final)
        return dropped
    training.pooled = settings.pool and says_little(
        settings.epsilon, n_examples=len(rows), n_classes=len(settings.classes)
    )
    if training.pooled:
        estimator = _make_estimator(training, settings, number, final=final)
        mine = take_rows(X, rows)
        beliefs = pool_answers(mine, [Evidence(part.codes, part.channel) for part in kept])
        training.model = fit_soft(estimator, mine, beliefs, settings.classes, weights=weights)
        return dropped
    correction = settings.correction
    if correction == "em":
        correction = "forward" if hasattr(settings.estimator, "fit_likelihood") else "posterior"
        estimator = _make_estimator(training, settings, number, final=final)
    else:
        estimator = _next_estimator(training.model, settings, number=number, final=final)
    codes, channel = _join_parts(kept)
    training.model = fit_released(
        estimator,
        take_rows(X, rows),
        codes=codes,
        channel=channel,
        prior=join_rows([part.prior for part in kept]),
        correction=correction,
        classes=settings.classes,
        weights=weights,
    )
    return dropped


def _fit_crossfit(
    parts: Sequence[Part], X: Any, settings: Settings, weights: Floats | None, *, number: int, final: bool
) -> Any:
    """Return a new estimator, cross-fitted on what some parts released; X are their rows, one part after the other.

    Priors of stages are of different kinds (nothing, a histogram, a model, sharpened), so each part calibrates its own.
    """
    likelihoods = [part.channel.likelihood(part.codes) for part in parts]
    priors = [np.asarray(part.prior) for part in parts]  # crossfit needs whole arrays: `check_whole_arrays`
    told = any(bool((prior != prior[0]).any()) for prior in priors)
    ends = np.cumsum([len(part.rows) for part in parts])[:-1]
    shares = [None] * len(parts) if weights is None else np.split(weights, ends)
    starts = [
        calibrate_start(likely, prior, weights=share)
        for likely, prior, share in zip(likelihoods, priors, shares, strict=True)
        if told
    ]
    labels = all(part.channel.outputs_are_labels for part in parts)
    return fit_crossfit(
        _next_estimator(None, settings, number=number, final=final),
        X,
        np.concatenate(likelihoods),
        classes=settings.classes,
        start=np.concatenate(starts) if starts else None,
        codes=np.concatenate([part.codes for part in parts]).astype(np.intp) if labels else None,
        rounds=ROUNDS_OF_CROSSFIT + (settings.rounds if final else 0),
        weights=weights,
    )


def _counted_bags(table: PriorTable, parts: Sequence[Part], settings: Settings) -> Bags | None:
    """Return the counts behind a prior: they cost what the answers leave of the whole epsilon, as a receiver can tell too."""
    if not parts or settings.correction != "em":
        return None
    return read_bags(table, epsilon=settings.epsilon - max(part.channel.epsilon for part in parts))


def _fit_posteriors(
    training: Training,
    X: Any,
    settings: Settings,
    public: Weights,
    *,
    number: int,
    bags: Bags | None = None,
    told: Any = None,
    rows: npt.NDArray[np.intp] | None = None,
    final: bool = False,
) -> None:
    """Fit a new estimator on the model's posteriors for all examples, or for some `rows`; `number` counts stages and rounds."""
    parts = training.parts
    sharper = None if parts else settings.temperature
    beliefs = ModelBeliefs(training.model, X, classes=settings.classes, temperature=sharper).kept()
    if told is not None:
        beliefs = np.maximum(np.asarray(beliefs), LEAST_BELIEF) * np.asarray(told)
    targets = posteriors(beliefs, parts, power=OWN_ANSWER if training.pooled else 1.0) if parts else beliefs
    if bags is not None:  # counts of all labels of all clusters are a whole array, so these are too
        targets = bags.move(np.asarray(targets))
    estimator = _make_estimator(training, settings, number, final=final)
    training.model = public.fit_soft(estimator, X, targets, settings.classes, rows=rows)


def posteriors(beliefs: Any, parts: Sequence[Part], *, power: float = 1.0) -> Any:
    """Return q of the module: beliefs (n, K) times the likelihood of what each part's rows released, normalised."""
    evidence = [(part.rows, Evidence(part.codes, part.channel)) for part in parts]
    return keep_small(Posteriors(beliefs, evidence, power=power))


def _make_estimator(training: Training, settings: Settings, number: int, *, final: bool = False) -> BaseEstimator:
    """Return an unfitted estimator with the parameters of stage or round `number`.

    A whole-number `random_state` is moved on from fit to fit: a fresh start that repeats the last one's accidents would
    learn the last one's mistakes by heart.
    """
    estimator = clone(settings.estimator)
    seed = estimator.get_params(deep=False).get("random_state")
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        estimator.set_params(random_state=int(seed) + training.fits)
    training.fits += 1
    estimator.set_params(**settings.params_of(number))
    if final and settings.final_params:
        estimator.set_params(**settings.final_params)
    return estimator


def _next_estimator(model: Any, settings: Settings, *, number: int, final: bool) -> BaseEstimator:
    """Return a new estimator, or last stage's to go on from, where it can start from its own weights."""
    changed = final and settings.final_params is not None
    if model is not None and _starts_warm(model) and not changed:
        return model.set_params(warm_start=True, **settings.params_of(number))
    estimator = clone(settings.estimator).set_params(**settings.params_of(number))
    return estimator.set_params(**(settings.final_params or {})) if final else estimator


def _starts_warm(model: Any) -> bool:
    """Whether a fitted model takes soft targets and starts from its own weights: others' warm starts mean other things."""
    return hasattr(model, "fit_targets") and "warm_start" in model.get_params()


def _drop_unlikely(part: Part, training: Training, X: Any, settings: Settings) -> Part:
    """Drop labels that the newest model does not rank among its first k, k the mean candidates of the newest stage."""
    newest = training.parts[-1].channel
    if not settings.filter_earlier or not isinstance(newest, CandidateChannel):
        return part
    allowed = math.ceil(float(np.mean(newest.sizes)))
    scores = predict_classes(training.model, take_rows(X, part.rows), settings.classes)
    mine = np.take_along_axis(scores, part.codes[:, None].astype(np.intp), axis=1)
    return part.take(np.flatnonzero((scores > mine).sum(axis=1) < allowed))


def _report_stage(number: int, part: Part, n: int, dropped: int) -> Stage:
    """Return what is said of a stage: public facts of its channel and its prior."""
    channel = part.channel
    average = float(np.mean(channel.sizes)) if isinstance(channel, CandidateChannel) else float(channel.n_outputs)
    accuracy = _expect_accuracy(channel, part.prior) if channel.outputs_are_labels else math.nan
    if isinstance(channel, SetAnswers):
        shapes = channel.shapes_of(part.codes)
        average = sum(_count_named(part.take(span)) for span in _spans_of(part)) / len(part.rows)
        accuracy = float(np.mean(shapes[:, 1] * channel.chances(shapes)[0]))
    return Stage(
        number=number + 1,
        n_examples=len(part.rows),
        share=len(part.rows) / n,
        average_k=average,
        expected_accuracy=accuracy,
        n_dropped=dropped,
    )


def _spans_of(part: Part) -> Iterator[npt.NDArray[np.intp]]:
    """Yield the places of a part's examples, few enough at a time that a byte for each label of each is no matter."""
    step = max(1, ENTRIES // part.channel.n_classes)
    for low in range(0, len(part.rows), step):
        yield np.arange(low, min(low + step, len(part.rows)))


def _count_named(part: Part) -> int:
    assert isinstance(part.channel, SetAnswers)
    return int(part.channel.members(part.codes).sum())


def _expect_accuracy(channel: FiniteChannel, prior: Any) -> float:
    """Return the mean over rows of the chance that a label is released as it is."""
    if not isinstance(prior, LazyRows):
        return float(np.mean(channel.expected_accuracy(prior)))
    sums, start = 0.0, 0
    for batch in prior:
        part = channel.take(slice(start, start + len(batch)))
        sums, start = sums + float(np.sum(part.expected_accuracy(batch))), start + len(batch)
    return sums / start


# ------------------------------------------------------------------------------------------------ priors of a stage


def mix_with_uniform(prior: Floats) -> Floats:
    """Return the prior mixed with a little of the uniform one (`PRIOR_FLOOR`)."""
    return mix_uniform(prior, PRIOR_FLOOR)


def _model_prior(model: Any, X: Any, settings: Settings) -> Any:
    """Return the model's beliefs as a prior: an array, or lazy rows where classes are many."""
    sharp = settings.temperature
    return ModelBeliefs(model, X, classes=settings.classes, temperature=sharp, floor=PRIOR_FLOOR).kept()


def round_priors(prior: Floats, *, most: int | None) -> Floats:
    """Return the rows rounded so that at most `most` distinct ones are left; as they are, if they are few or `most` is None.

    Rows are rounded to multiples of 1/64, then of 1/32 and so on until few enough are left, and are divided by their
    sums. The last resort is the mean row for all.

    >>> round_priors(np.array([[0.51, 0.49], [0.52, 0.48], [0.9, 0.1]]), most=2).round(3).tolist()
    [[0.516, 0.484], [0.516, 0.484], [0.906, 0.094]]
    """
    if most is None or len(np.unique(prior, axis=0)) <= most:
        return prior
    for steps in (64, 32, 16, 8, 4, 2):
        rounded = np.round(prior * steps)
        rounded[rounded.sum(axis=1) == 0] = 1.0  # many classes, all of them unlikely
        rounded /= rounded.sum(axis=1, keepdims=True)
        if len(np.unique(rounded, axis=0)) <= most:
            return rounded
    mean: Floats = np.broadcast_to(prior.mean(axis=0), prior.shape).copy()
    return mean


# ------------------------------------------------------------------------------------------------ the response


def default_response(settings: Settings) -> Mechanism:
    """Return the mechanism where none is given: sets, which teach most, or labels where training takes them as they are."""
    labels = settings.correction in {"none", "unbiased"} or settings.filter_earlier
    return RRWithPrior(1.0) if labels else InformativeResponse(1.0)


def check_response(mechanism: Mechanism, *, epsilon: float, n_classes: int, correction: str) -> Mechanism:
    """Return the mechanism at what the budget leaves for it, or refuse it before anything is spent.

    Refused are a mechanism that asks for counts of labels itself, one that promises less than pure `epsilon` for a label,
    one that cannot take these classes, and one whose outputs are not labels where training takes labels as they are.
    """
    if not isinstance(mechanism, Mechanism):
        raise invalid(OWNER, "mechanism", "be a mechanism", got=mechanism, fix="For example RRTopK(1.0, k=3).")
    if mechanism.takes_numbers:
        fix = "LabelPrivateRegressor learns from numbers."
        raise invalid(OWNER, "mechanism", "be one for classes", got=type(mechanism).__name__, fix=fix)
    if isinstance(mechanism, MeasuringMechanism):
        fix = "Use privatize(y, mechanism, groups=...) and train with fit_release; or ClusterPrior with RRWithPrior."
        got = type(mechanism).__name__
        raise invalid(OWNER, "mechanism", "not count labels by groups of its own", got=got, fix=fix)
    response = mechanism.with_epsilon(epsilon)
    promise = response.guarantee
    if promise.unit is not Unit.LABEL or not promise.epsilon() <= epsilon:
        raise PrivacyError(
            f"{OWNER}: {response!r} was asked for epsilon = {epsilon!r} for a label and promises {promise.epsilon()!r} "
            f"({promise.unit.value}). Nothing was drawn. Fix its `with_epsilon` or its `guarantee`."
        )
    channel = sample_channel(response, n_classes=n_classes)  # fails here, if it must, for these classes
    if correction == "none" and not channel.outputs_are_labels:
        got = Described(f"outputs of {type(mechanism).__name__}, which are not labels")
        fix = 'Use a correction that reads the channel ("forward", "posterior"), or an estimator that can take one.'
        raise invalid(OWNER, "correction", 'be another than "none"', got=got, fix=fix)
    return response


def sample_channel(response: Mechanism, *, n_classes: int) -> FiniteChannel:
    """Return the channel of labels of which nothing is known: of the kind that all stages have."""
    prior = np.full(n_classes, 1.0 / n_classes) if response.uses_prior else None
    return response.channel(prior, n_classes=n_classes)


def state_response(promise: Guarantee, response: Mechanism) -> Guarantee:
    """Return the promise of a whole run with the trust that its response needs added; a budget knows epsilon alone."""
    return replace(promise, trust=promise.trust | response.guarantee.trust)


# ------------------------------------------------------------------------------------------------ one release of all


def assemble_release(
    training: Training,
    stage: npt.NDArray[np.uint8] | None,
    table: PriorTable,
    labels: SensitiveLabels,
    *,
    seeded: bool,
    guarantee: Guarantee,
    mechanism: str,
) -> Release:
    """Return the release of all stages, in the order of the data set; without stages, that of the prior alone."""
    channel: FiniteChannel
    if stage is None:
        codes, channel = _guess_labels(table)
    else:
        order = np.argsort(np.concatenate([part.rows for part in training.parts]), kind="stable")
        joined, whole = _join_parts(training.parts)
        codes, channel = joined[order], whole.take(order)
    n, rows = len(table.index), training.rows
    if rows is not None and stage is not None:
        stage, table = stage[rows], table.take(rows)
    return Release(
        codes=codes,
        classes=labels.classes,
        channel=channel,
        guarantee=guarantee,
        mechanism=mechanism,
        seeded=seeded or table.seeded,
        label_set=str(labels.name),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        stage=stage,
        prior=None if table.says_nothing else table.rows,
        prior_index=None if table.says_nothing else table.index,
        rows=None if rows is None else rows.astype(np.int64),
        n_rows=None if rows is None else n,
    )


def _join_parts(parts: Sequence[Part]) -> tuple[Codes, FiniteChannel]:
    """Return the outputs of several stages' examples, one stage after the other, and their channel."""
    return join_answers([(part.codes, part.channel) for part in parts])


def _guess_labels(table: PriorTable) -> tuple[npt.NDArray[np.unsignedinteger], CandidateChannel]:
    """Return the prior's likeliest label of each example, and the channel of one candidate: it says nothing of the label."""
    best = table.rows.argmax(axis=1)[table.index]
    n_classes = table.rows.shape[1]
    alone = np.eye(n_classes, dtype=np.uint8)
    members = np.packbits(alone, axis=1, bitorder="little")[best]
    return best.astype(code_dtype(n_classes)), CandidateChannel(odds=0.0, members=members, n_classes=n_classes)


def is_silent(release: Release) -> bool:
    """Whether a release holds no label's answer: one candidate for each, and odds that favour none."""
    channel = release.channel
    return (
        isinstance(channel, CandidateChannel)
        and channel.odds == 0
        and release.prior is not None
        and bool((channel.sizes == 1).all())
    )


def read_prior(release: Release) -> PriorTable:
    """Return the belief that a release carries, or the uniform one."""
    if release.prior is not None and release.prior_index is not None:
        return PriorTable(rows=release.prior, index=release.prior_index)
    uniform = np.full((1, release.n_classes), 1.0 / release.n_classes)
    return PriorTable(rows=uniform, index=np.zeros(len(release), np.int64))


# ------------------------------------------------------------------------------------------------ the split in stages


def stage_shares(stages: Any, epsilon: float, *, owner: str = OWNER) -> tuple[float, ...]:
    """Return the share of each stage: as given, or our first share for this epsilon and equal parts of the rest.

    >>> stage_shares(1, 1.0), stage_shares(2, 1.0), stage_shares((0.5, 0.3, 0.2), 1.0)
    ((1.0,), (0.8, 0.2), (0.5, 0.3, 0.2))
    """
    if isinstance(stages, (list, tuple, np.ndarray)):
        try:
            shares = tuple(float(s) for s in stages)
        except (TypeError, ValueError):  # what was given may be quoted: it may be labels
            raise invalid(owner, "stages", "be shares", got=stages, fix="For example (0.7, 0.3).") from None
        # Shares are typed by hand: decimals round.
        if not 0 < len(shares) <= MOST_STAGES or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            need, fix = f"be at most {MOST_STAGES} shares > 0 that sum to 1", "For example (0.7, 0.3)."
            raise invalid(owner, "stages", need, got=stages, fix=fix)
        return shares
    fix = "A number, or the stages' shares."
    count = check_integer(owner, "stages", stages, least=1, most=MOST_STAGES, fix=fix)
    if count == 1:
        return (1.0,)
    first = round(interpolate_default(FIRST_SHARE, epsilon), 6)
    return (first, *([round((1.0 - first) / (count - 1), 6)] * (count - 1)))


def interpolate_default(values: tuple[float, ...], epsilon: float) -> float:
    """Return a default between the epsilons of `PAPER_EPSILONS`; constant outside them."""
    return float(np.interp(epsilon, PAPER_EPSILONS, values))


def assign_stages(
    n: int, shares: tuple[float, ...], key: NoiseKey, *, owner: str = OWNER, persons: Persons | None = None
) -> npt.NDArray[np.uint8]:
    """Return the stage of each example: a random split with these shares, made without looking at labels.

    With `persons` it is they who are split: all rows of a person are in her stage, so that stages compose in parallel.
    """
    if persons is not None:
        return assign_stages(persons.n_persons, shares, key, owner=owner)[persons.codes]
    ends = np.round(np.cumsum(shares) * n).astype(int)
    ends[-1] = n
    sizes = np.diff(np.concatenate([[0], ends]))
    if np.any(sizes < 1):
        got = Described(f"{n} examples for {len(shares)} stages")
        raise invalid(owner, "stages", "leave each stage an example", got=got)
    # Sorting by independent 64-bit words is a uniform random permutation (ties have probability below n^2 / 2^64).
    order = np.argsort(key.words(start=0, count=n)[:, 0], kind="stable")
    stage = np.empty(n, np.uint8)
    stage[order] = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
    return stage


# ------------------------------------------------------------------------------------------------ settings


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the loop needs to know besides data; what "auto" stood for is decided. Made by `check_settings`."""

    estimator: BaseEstimator
    correction: str
    epsilon: float
    silent: bool
    temperature: float
    filter_earlier: bool
    classes: tuple[Any, ...]
    distil: bool = False
    rounds: int = 0
    #: Whether answers that say little are pooled before they are read, and how many rounds there are then.
    pool: bool = False
    pooled_rounds: int = 0
    stage_params: tuple[Mapping[str, Any], ...] = ()
    final_params: Mapping[str, Any] | None = None

    def params_of(self, number: int) -> Mapping[str, Any]:
        """Return the parameters for a fit (from 0); the last ones given hold for all that come later."""
        given = self.stage_params
        return given[min(number, len(given) - 1)] if given else {}


def check_settings(learner: Any, classes: Sequence[Any], epsilon: float, *, silent: bool) -> tuple[Any, Settings]:
    """Return the transformers of the learner's estimator, unfitted, and its settings; `silent`: no label is released.

    `epsilon` is the promised one, which a receiver of the release knows to the last bit, and not the one asked for.
    """
    check_choice(OWNER, "correction", learner.correction, CORRECTIONS)
    plain = SoftmaxRegression() if learner.estimator is None else clone(learner.estimator)
    transformer, last = split_pipeline(plain)
    if not hasattr(last, "predict_proba"):
        fix = "Wrap it in CalibratedClassifierCV, or use a classifier that has it."
        raise invalid(OWNER, "estimator", "have `predict_proba`", got=type(last).__name__, fix=fix)
    distil = _decide_distil(learner, silent=silent)
    correction = _decide_correction(learner, last, silent=silent)
    settings = Settings(
        estimator=last,
        correction=correction,
        epsilon=epsilon,
        silent=silent,
        temperature=_decide_temperature(learner, epsilon, correction, silent=silent, sets=True),
        filter_earlier=bool(learner.filter_earlier),
        classes=tuple(classes),
        distil=distil,
        rounds=_decide_rounds(learner, last, correction=correction, short=silent),
        stage_params=_check_stage_params(learner.stage_params),
        final_params=_check_params("final_params", learner.final_params),
    )
    _check_names(settings)
    return transformer, settings


def settle_settings(settings: Settings, learner: Any, table: PriorTable, *, sets: bool) -> Settings:
    """Return the settings once it is known what the prior says, and whether answers are `sets` of labels.

    Where channels were chosen by a prior, "auto" is em for an estimator with `fit_likelihood` if answers are sets, and else
    crossfit, which starts from the prior's beliefs: labels that a prior has chosen may say nothing, so that the likelihood
    alone does not determine a model. Forward that was asked for is kept, with a warning. Under em, beliefs about groups are
    distilled into the estimator: it tells the examples of a group apart.

    All of it depends on what a receiver has too: the release, and the learner's own settings.
    """
    correction, distil = settings.correction, settings.distil
    if not table.says_nothing and not settings.silent:
        if learner.correction == "auto" and hasattr(settings.estimator, "fit_likelihood"):
            correction = "em" if sets else "crossfit"
        elif correction == "forward":
            warnings.warn(
                f"{OWNER}: correction='forward' reads the likelihood alone, and a channel that a prior has chosen leaves much to "
                "that prior, which is then not learned. Use correction='auto', which reads it too.",
                UserWarning,
                stacklevel=3,
            )
        grouped = sets and correction == "em" and 1 < len(table.rows) < len(table.index)
        if isinstance(learner.distil, str) and grouped and hasattr(settings.estimator, "fit_targets"):
            distil = True
    temperature = _decide_temperature(learner, settings.epsilon, correction, silent=settings.silent, sets=sets)
    asked = learner.correction == "auto" and correction == "em" and not settings.silent
    pool = asked and sets and pools_features(settings.estimator) and hasattr(settings.estimator, "fit_targets")
    counts = [
        _decide_rounds(learner, settings.estimator, correction=correction, short=short) for short in (False, True)
    ]
    return replace(
        settings,
        correction=correction,
        distil=distil,
        rounds=counts[1] if settings.silent else counts[0],
        temperature=temperature,
        pool=pool,
        pooled_rounds=counts[1],
    )


def are_sets(channel: FiniteChannel) -> bool:
    """Whether a channel answers with sets of labels, each row with its own: such answers say something under any prior."""
    return isinstance(channel, SetAnswers)


def _decide_correction(learner: Any, last: BaseEstimator, *, silent: bool) -> str:
    """Return the correction; where a prior is all there is, "auto" is "em" for estimators that take soft targets or weights."""
    asked = learner.correction
    if asked == "auto" and silent:
        soft = hasattr(last, "fit_targets") or takes_weights(last)
        return "em" if soft else "crossfit"
    correction = choose_correction(last, asked)
    if correction == "crossfit" and not (hasattr(last, "fit_targets") or takes_weights(last)):
        warnings.warn(
            f"{OWNER}: {type(last).__name__} takes no sample_weight, so it is fitted on labels drawn from the posteriors, "
            "which adds noise. An estimator with sample_weight, or SoftmaxRegression, learns more from the same release.",
            UserWarning,
            stacklevel=4,
        )
    return correction


def _decide_distil(learner: Any, *, silent: bool) -> bool:
    if not isinstance(learner.distil, str):
        if silent and not learner.distil:
            fix = "Where no label is released, the prior's beliefs are all that there is to learn from."
            raise invalid(OWNER, "distil", "be true with stages=0", got=learner.distil, fix=fix)
        return bool(learner.distil)
    check_choice(OWNER, "distil", learner.distil, ("auto",))
    return silent


def _decide_rounds(learner: Any, last: BaseEstimator, *, correction: str, short: bool) -> int:
    if isinstance(learner.rounds, str):
        check_choice(OWNER, "rounds", learner.rounds, ("auto",))
        if correction == "em" and fits_once(last):
            return LONG_ROUNDS
        return (SHORT_ROUNDS if short else ROUNDS) if correction == "em" else 0
    return check_integer(OWNER, "rounds", learner.rounds, least=0, most=1000)


def _decide_temperature(learner: Any, epsilon: float, correction: str, *, silent: bool, sets: bool) -> float:
    """Return the temperature: ours for the paper's labels, none for calibrated beliefs, sharpening where all is belief."""
    if learner.temperature is not None:
        return check_positive(OWNER, "temperature", learner.temperature)
    if silent:
        return SELF_TEMPERATURE
    return 1.0 if sets or correction in {"em", "crossfit"} else interpolate_default(TEMPERATURE, epsilon)


def _check_stage_params(value: Any) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if isinstance(value, Mapping) or not isinstance(value, Sequence):
        got = Described(type(value).__name__)
        raise invalid(OWNER, "stage_params", "be a list of dicts, one per stage", got=got)
    return tuple(_check_params("stage_params", entry) or {} for entry in value)


def _check_params(name: str, value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise invalid(OWNER, name, "hold parameters of the estimator by name", got=Described(type(value).__name__))
    return value


def _check_names(settings: Settings) -> None:
    """Refuse a parameter that the estimator does not have, before anything is spent."""
    known = settings.estimator.get_params()
    for params in (*settings.stage_params, settings.final_params or {}):
        for name in params:
            if name not in known:
                fix = f"{type(settings.estimator).__name__} has: {', '.join(sorted(known))}."
                raise invalid(OWNER, "stage_params", "name parameters of the estimator", got=name, fix=fix)
