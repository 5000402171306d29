r"""Training in stages: draw the labels of one stage, train, and let the model be the prior of the next stage.

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
(`labeldp.learn.pools`). An estimator whose fits are long may have a quick one run through all of this in its place, and is then fitted
once, on the last posteriors; or one run through all stages but the last, and is then fitted once, on the likelihood of all answers
(`labeldp.learn.readers`). Where a curator has counted labels of clusters, the counts are evidence in the E-step too
(`labeldp.learn.bags`), and the first E-step takes the forward model times the square root of the one that was distilled from the
counts: what two models learned from independent noise. EM that starts from the sharp beliefs of one keeps them. Everything here reads what was released
and nothing else: post-processing, free at any number of rounds. Without any evidence at all the beliefs would only repeat
themselves: a round then sharpens them, q = p^(1/temperature). So it does for a network that is trained on mixtures of
examples (mixup), whose beliefs about a single one are flatter than what it knows (`blurs_beliefs`): p^(3/2) stands for p in the
E-step. On held-out training images that took a tenth to a half off the log loss, and points of accuracy where little was said.

References: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021); Dempster,
Laird, Rubin 1977 (EM); Hinton, Vinyals, Dean 2015 (distillation).

Design notes. `Settings` are checked once, by `check_settings`, and are the same for the owner and for a receiver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from labeldp.arrays import Codes, Floats
from labeldp.channel import CandidateChannel, Evidence, FiniteChannel, SetAnswers, join_answers
from labeldp.channel.evidence import LazyRows, join_rows, keep_small
from labeldp.guarantee import Guarantee
from labeldp.learn.bags import Bags, read_bags
from labeldp.learn.beliefs import LEAST_BELIEF, ModelBeliefs, Posteriors
from labeldp.learn.corrections import (
    fit_released,
    fit_soft,
    predict_classes,
    take_rows,
)
from labeldp.learn.crossfit import ROUNDS as ROUNDS_OF_CROSSFIT
from labeldp.learn.crossfit import calibrate_start, fit_crossfit
from labeldp.learn.draws import PRIOR_FLOOR, Answers, Draw, mix_with_uniform
from labeldp.learn.pools import OWN_ANSWER, fit_linear, overwhelms, pool_answers, says_little
from labeldp.learn.settings import Settings
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.priors import PriorTable
from labeldp.release import Release, SensitiveLabels
from labeldp.release.stages import run_stages
from labeldp.validate import code_dtype

#: What a model of counts alone says counts this much less than it is sure of, beside a model of the answers.
COUNTS_TEMPERATURE = 2.0
#: Labels of sets that are looked at in one step.
ENTRIES = 1 << 24


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
    examples: Any = None,
) -> Training:
    """Distil the prior if that is asked for, draw and train stage by stage, and go on for some rounds.

    Parameters
    ----------
    X : array, sparse matrix or table
        The features, one row per example, as the estimator takes them. None where that only asks and there is nothing to ask: one
        stage, or answers that are there already.
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
    examples : array or dataset, optional
        Where `settings` have a student, the same examples as that takes them; X is what its quick reader takes.
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
        nonlocal public
        if outcome.kept is not None:
            # Believed anew for these rows alone, as a receiver does: sums of matrices of other sizes round differently.
            belief = believe_rows(belief.rows[outcome.kept], training)
        if outcome.weights is not None:
            public = public.put(belief.rows, outcome.weights, n=len(table.index))
        training.parts.append(Part(**belief._asdict(), codes=outcome.codes, channel=outcome.channel))
        if late and number == 0:
            _distil(training, X, table, settings, public, rows=belief.rows)
        more = number + 1 < count
        last = settings.correction == "crossfit" or not settings.rounds
        dropped = 0
        if X is not None and (more or not settings.only_asks):
            dropped = _train_stage(training, X, settings, public, final=last and not more)
        if X is not None and settings.correction == "em" and more:
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
        X = None if X is None else take_rows(X, answered)
        table, public = table.take(answered), Weights(public.of(answered))
        examples = None if settings.student is None else take_rows(examples, answered)
    if settings.only_asks:
        training.model, training.rounds = None, 0
        _train_stage(training, examples, settings.of_student(), public, final=False)
        return training
    if late:
        told = ModelBeliefs(training.distilled, X, classes=settings.classes, temperature=COUNTS_TEMPERATURE).kept()
    bags = _run_rounds(training, X, table, settings, public, told=told, number=count + settings.distil)
    if settings.student is not None:
        targets = _find_targets(training, X, settings, bags=bags)
        training.model = public.fit_soft(clone(settings.student), examples, targets, settings.classes)
    elif _starts_warm(training.model):
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


def _run_rounds(
    training: Training, X: Any, table: PriorTable, settings: Settings, public: Weights, *, told: Any, number: int
) -> Bags | None:
    """Go on for the rounds after the last stage, the first of which is fit `number`; return the counts behind the prior, if any."""
    bags = _counted_bags(table, training.parts, settings)
    # Decided by the answers that there are, which a receiver of some rows of persons knows as the owner does.
    training.rounds = settings.pooled_rounds if training.pooled else settings.rounds
    for turn in range(0 if settings.correction == "crossfit" else training.rounds):
        final = turn + 1 == training.rounds
        beside = told if bags is not None and turn == 0 else None
        _fit_posteriors(training, X, settings, public, number=number + turn, bags=bags, told=beside, final=final)
    return bags


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


# ------------------------------------------------------------------------------------------------ one fit of the loop


@dataclass(frozen=True, eq=False)
class Weights:
    """Public weights of all examples, or none: what each fit of the loop needs to know of them."""

    values: Floats | None

    def of(self, rows: npt.NDArray[np.intp]) -> Floats | None:
        """Return the weights of some examples."""
        return None if self.values is None else self.values[rows]

    def put(self, rows: npt.NDArray[np.intp], weights: Floats, *, n: int) -> Weights:
        """Return the same with other weights of some of the n examples."""
        values = np.ones(n) if self.values is None else self.values.copy()
        values[rows] = weights
        return Weights(values)

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
    pooled = _fit_pooled(training, take_rows(X, rows), kept, settings, weights, number=number, final=final)
    training.pooled = pooled is not None
    if training.pooled:
        training.model = pooled
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


def _fit_pooled(
    training: Training,
    X: Any,
    parts: Sequence[Part],
    settings: Settings,
    weights: Floats | None,
    *,
    number: int,
    final: bool,
) -> Any:
    """Return a new estimator, fitted on pooled answers; None where they are read one by one. X are the parts' rows, in order."""
    linear = isinstance(settings.estimator, SoftmaxRegression)
    # Clusters of sparse rows, or of rows that come in batches, would not fit into memory.
    if not settings.pool or (linear and not isinstance(X, np.ndarray)):
        return None
    sizes = {"n_examples": sum(len(part.rows) for part in parts), "n_classes": len(settings.classes)}
    little = partial(overwhelms, n_columns=X.shape[1]) if linear else says_little
    if not little(settings.epsilon, **sizes):
        return None
    estimator = _make_estimator(training, settings, number, final=final)
    evidence = [Evidence(part.codes, part.channel) for part in parts]
    if linear:
        return fit_linear(estimator, X, evidence, classes=settings.classes, weights=weights)
    return fit_soft(estimator, X, pool_answers(X, evidence), settings.classes, weights=weights)


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
    targets = _find_targets(training, X, settings, bags=bags, told=told)
    estimator = _make_estimator(training, settings, number, final=final)
    training.model = public.fit_soft(estimator, X, targets, settings.classes, rows=rows)


def _find_targets(training: Training, X: Any, settings: Settings, *, bags: Bags | None = None, told: Any = None) -> Any:
    """Return the model's posteriors for all examples: an E-step, or without released labels its beliefs, sharpened."""
    parts = training.parts
    sharper = settings.round_temperature if parts else settings.temperature
    beliefs = ModelBeliefs(training.model, X, classes=settings.classes, temperature=sharper).kept()
    if told is not None:
        beliefs = np.maximum(np.asarray(beliefs), LEAST_BELIEF) * np.asarray(told)
    targets = posteriors(beliefs, parts, power=OWN_ANSWER if training.pooled else 1.0) if parts else beliefs
    if bags is not None:  # counts of all labels of all clusters are a whole array, so these are too
        targets = bags.move(np.asarray(targets))
    return targets


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


def _model_prior(model: Any, X: Any, settings: Settings) -> Any:
    """Return the model's beliefs as a prior: an array, or lazy rows where classes are many."""
    sharp = settings.temperature
    return ModelBeliefs(model, X, classes=settings.classes, temperature=sharp, floor=PRIOR_FLOOR).kept()


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
