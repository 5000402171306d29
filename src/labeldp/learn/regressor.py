"""`LabelPrivateRegressor`: any scikit-learn regressor, trained on numbers that it never sees.

`fit` releases every label once (`labeldp.UnbiasedResponse`): a number whose mean is the label. A regressor with squared loss
fits the same function to such answers as to labels, only with more noise, so that nothing about it need change:

    E[(f(x) - answer)^2] = E[(f(x) - label)^2] + the variance of the answer, whatever f is.

That holds as well for the error on rows held out, so a penalty or a size that a regressor chooses by cross-validation on the
answers (`RidgeCV`, early stopping) is chosen for the labels.

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

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import RidgeCV
from sklearn.utils.validation import _num_samples, check_is_fitted

from labeldp.arrays import Floats, Places
from labeldp.channel import MeanEvidence, MeanTable, NormalLaws, NumericChannel, join_channels
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Unit
from labeldp.learn.checkpoint import Checkpoint, Journal
from labeldp.learn.classifier import takes_rows_of
from labeldp.learn.corrections import (
    check_answered,
    check_rows,
    remember_columns,
    split_pipeline,
    take_answered,
    take_rows,
    takes_weights,
)
from labeldp.learn.settings import assign_stages, choose_budget, stage_shares
from labeldp.mechanisms import Mechanism, NumericMechanism, UnbiasedResponse
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, SensitiveLabels, privatize
from labeldp.release.budget import Budget, assume_public
from labeldp.release.labels import box_numbers
from labeldp.release.persons import ASSIGNMENT, Persons, check_apart
from labeldp.release.scores import ScoredRegressor
from labeldp.release.stages import StageDoor, run_stages
from labeldp.validate import check_choice, check_probability_rows, check_weights

OWNER = "LabelPrivateRegressor"
#: What a guarantee calls them.
WEIGHTS = "sample weights"
#: Penalties that the default regressor chooses from, by its own leave-one-out error.
PENALTIES = tuple(float(10.0**power) for power in np.arange(-3.0, 6.5, 0.5))
#: Predictions are put into this many bins: one channel each.
BINS = 16
#: The flat part of a belief: a model that is sure and wrong still gets answers of finite variance.
FLAT = 0.05
#: A belief is at least this share of the range wide: about a level of the default grid.
NARROWEST = 1 / 32
#: Rounds of pseudo-targets: a third changed next to nothing on two splits of the housing set that the study does not have.
REFITS = 2


class LabelPrivateRegressor(ScoredRegressor, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Release every number once, with its mean kept, and train any regressor with squared loss on what was released.

    Parameters
    ----------
    estimator : regressor, or a pipeline that ends in one; default ridge regression with a penalty chosen on the answers
        Transformers of a pipeline are fitted on the features alone, which are not secret. The regressor's loss should be
        squared error: others (absolute, quantile) are not unbiased on noisy labels.
    epsilon : float, optional
        The whole budget. Left out, it is the mechanism's own, or 1 without one.
    bounds : (low, high)
        Public bounds of the labels, known without them; needed unless y is boxed, or a mechanism has them.
    stages : int or sequence of shares
        1 releases all labels in one way. In a later stage the model so far says where a label is thought to be, and the
        answer has less variance there. Stages cost `epsilon` in all: every label is in one.
    correction : {"unbiased", "evidence"}
        What the regressor is fitted to: the answers, whose mean is the label; or what they say of the mean of a label that is
        about normal around it, which tells more at small epsilon. The second needs a regressor that takes `sample_weight`.
    prior : array of shape (K,), optional
        Public probabilities of the mechanism's levels, for the first stage; by default all are equally likely.
    mechanism : NumericMechanism, optional
        By default `UnbiasedResponse(epsilon, bounds=bounds)`. Another one is taken at `epsilon`.
    outside : {"clip", "refuse"}
        What is done with a label outside of the bounds (`SensitiveLabels`).
    random_state : int or numpy.random.Generator, optional
        None draws secure noise. Anything else is reproducible and marks the release `seeded`: not private.
    ledger : Ledger, optional
        Charged with the whole guarantee before anything is drawn.
    label_set : str
        The ledger's name for these labels.
    checkpoint : path or Checkpoint, optional
        A directory where every stage is kept before it is used, as for `LabelPrivateClassifier`.

    Notes
    -----
    *Guarantee.*
    Pure epsilon when one label is replaced, and no one to trust: stages are disjoint, and a stage's beliefs are made of what was
    released before. It stands on bounds, prior, features and weights that did not see the labels.

    Attributes
    ----------
    guarantee_, release_, stages_ : what was promised, what was released (`release_.values`), and each stage as it was run
    seeded_ : whether the noise came from a seed, hence is not private
    estimator_, bounds_ : the regressor of the last fit; predictions are brought within the bounds
    n_features_in_, feature_names_in_ : as always

    Examples
    --------
    >>> X = np.linspace(0, 1, 4000)[:, None]
    >>> model = LabelPrivateRegressor(epsilon=2.0, bounds=(0, 100), random_state=0).fit(X, 20 + 60 * X[:, 0])
    >>> model.predict([[0.5]]).round(-1).tolist(), model.guarantee_.epsilon()
    ([50.0], 2.0)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float | None = None,
        bounds: tuple[float, float] | None = None,
        stages: int | Sequence[float] = 1,
        correction: str = "unbiased",
        prior: Any = None,
        mechanism: Mechanism | None = None,
        outside: str = "clip",
        random_state: Any = None,
        ledger: Any = None,
        label_set: str = "labels",
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.bounds = bounds
        self.stages = stages
        self.correction = correction
        self.prior = prior
        self.mechanism = mechanism
        self.outside = outside
        self.random_state = random_state
        self.ledger = ledger
        self.label_set = label_set
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None, persons: Any = None) -> LabelPrivateRegressor:
        """Release y in stages and train; y is not kept.

        Everything that can be refused is refused before the ledger is charged, and nothing is drawn before that.

        Parameters
        ----------
        X : array, sparse matrix or table
            The features, public.
        y : numbers, one per row, or SensitiveLabels with bounds
            What is protected.
        sample_weight : array of shape (n,), optional
            Public weights >= 0 of the rows in every fit. A row of weight 0 is in no fit; its label is released and charged
            all the same. Weights that depend on the raw labels are not public; `guarantee_` says that these do not.
        persons : Persons, or a column of n ids, optional
            Who owns each row, public. Then `epsilon` is what a person spends on all her labels together, and `guarantee_` says
            so. Persons are split into stages; in each, one row of a person is asked (or the few that tell more together), by
            public chance. Rows without an answer are in no fit; label-free transformers see them.
        """
        bounds = self.bounds if self.bounds is not None else getattr(self.mechanism, "bounds", None)
        labels = box_numbers(
            OWNER, y, n_rows=_num_samples(X), bounds=bounds, outside=self.outside, label_set=self.label_set
        )
        key = as_key(OWNER, self.random_state, name="random_state", pieces=self.checkpoint is not None)
        weights = _check_weights(sample_weight, len(labels))
        response = _check_response(self.mechanism, choose_budget(OWNER, self.epsilon, self.mechanism), labels)
        law = _check_prior(self.prior, response)
        shares = stage_shares(self.stages, response.epsilon, owner=OWNER)
        known = None if persons is None else Persons.of(persons, n_rows=len(labels), owner=OWNER)
        given = (*(() if weights is None else (WEIGHTS,)), *(() if law is None else ("prior",)))
        given = given if known is None else (*given, ASSIGNMENT)
        budget = Budget(owner=OWNER, labels=labels, ledger=self.ledger, seeded=key.seeded, given=given, persons=known)
        promise = budget.state(budget.about_unit(response.guarantee))
        transformer, last = self._split_estimator(weights)
        features = self._fit_transformer(transformer, last, X)
        response.channel(law)  # fails here, if it must
        words = self._describe(response, known)
        with self._open_journal(labels, shares, key, weights, known, words) as journal:
            stage = journal.keep_split(
                lambda noise: assign_stages(len(labels), shares, noise.child("split"), owner=OWNER, persons=known)
            )
            assert stage is not None  # there is always a stage
            _check_first_stage(stage, weights)
            if known is not None:
                check_apart(known, [np.flatnonzero(stage == number) for number in range(len(shares))])
            entry = journal.keep_charge(budget, promise, mechanism=words)
            door = StageDoor[Release](
                budget=budget, key=journal.key, epsilon=response.epsilon, keep=journal.keep_release
            )
            draw = _draw_numbers(labels, response, door, persons=known, weights=weights)
            training = train_on_numbers(
                features,
                stage,
                draw,
                last,
                levels=response.levels,
                prior=law,
                weights=weights,
                evidence=self.correction == "evidence",
            )
        release = Release(
            codes=training.codes,
            classes=tuple(response.levels.tolist()),
            channel=training.channel,
            guarantee=promise,
            mechanism=words,
            seeded=key.seeded,
            label_set=str(labels.name),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            ledger_entry=entry,
            stage=(stage if training.rows is None else stage[training.rows]) if len(shares) > 1 else None,
            rows=training.rows,
            n_rows=None if training.rows is None else len(labels),
        )
        return self._keep(training, release, transformer)

    def fit_release(self, X: Any, release: Release, *, sample_weight: Any = None) -> LabelPrivateRegressor:
        """Train from a release of numbers that someone else made; with the owner's parameters, the model is that of her `fit`.

        Needs the release and the features, and no label. `epsilon`, bounds, mechanism and stages are those of the release; the
        owner's `prior` is needed only for the weights of its first stage.
        """
        if not isinstance(release.channel, NumericChannel):
            fix = "Release numbers with UnbiasedResponse; LabelPrivateClassifier learns from classes."
            raise invalid(OWNER, "release", "hold numbers", got=Described("other labels"), fix=fix)
        check_answered(OWNER, X, release)
        if sample_weight is not None:
            sample_weight = release.answered(sample_weight, owner=OWNER, name="sample_weight")
        weights = _check_weights(sample_weight, len(release))
        transformer, last = self._split_estimator(weights)
        # Transformers need no label: they are fitted on the rows without an answer too, if those are given.
        features = take_answered(OWNER, self._fit_transformer(transformer, last, X), release)
        stage = np.zeros(len(release), np.uint8) if release.stage is None else release.stage
        _check_first_stage(stage, weights)
        levels = release.channel.levels
        law = None if self.prior is None else _check_law(self.prior, len(levels))

        def replay(_number: int, rows: Places, _laws: Any, _groups: Any) -> Release:
            return replace(release.take(rows), rows=None, n_rows=None)

        training = train_on_numbers(
            features,
            stage,
            replay,
            last,
            levels=levels,
            prior=law,
            weights=weights,
            evidence=self.correction == "evidence",
        )
        given = () if weights is None else (WEIGHTS,)
        return self._keep(training, replace(release, guarantee=assume_public(release.guarantee, *given)), transformer)

    def predict(self, X: Any) -> Floats:
        """Return the expected label of each row, brought within the bounds."""
        check_is_fitted(self, "estimator_")
        if self._transformer is None:
            features = check_rows(self, X, inner=self.estimator_, reset=False)
        else:
            remember_columns(self, X, reset=False)
            features = self._transformer.transform(X)
        return predict_within(self.estimator_, features, self.bounds_)

    @property
    def transformer_(self) -> Any:
        """The fitted steps before the regressor, which never saw a label; None where there are none."""
        check_is_fitted(self, "estimator_")
        return self._transformer

    def _split_estimator(self, weights: Floats | None) -> tuple[Any, BaseEstimator]:
        plain = _default_regressor() if self.estimator is None else clone(self.estimator)
        transformer, last = split_pipeline(plain, owner=OWNER)
        if not (hasattr(last, "fit") and hasattr(last, "predict")):
            raise invalid(OWNER, "estimator", "be a regressor", got=type(last).__name__)
        check_choice(OWNER, "correction", self.correction, ("unbiased", "evidence"))
        if self.correction == "evidence" and not takes_weights(last):
            fix = 'Use correction="unbiased", or a regressor whose fit takes sample_weight.'
            raise invalid(OWNER, "estimator", "take weights for evidence", got=type(last).__name__, fix=fix)
        if weights is not None and not takes_weights(last):
            fix = "Leave out the weights, or use a regressor whose fit takes sample_weight."
            raise invalid(OWNER, "sample_weight", "be taken by the estimator", got=type(last).__name__, fix=fix)
        return transformer, last

    def _fit_transformer(self, transformer: Any, last: BaseEstimator, X: Any) -> Any:
        """Return the features as the last step wants them; transformers are fitted here and never see a label."""
        if transformer is None:
            return check_rows(self, X, inner=last, reset=True)
        remember_columns(self, X, reset=True)
        return transformer.fit_transform(X)

    def _open_journal(  # noqa: PLR0917  # one caller, above
        self,
        labels: SensitiveLabels,
        shares: tuple[float, ...],
        key: NoiseKey,
        weights: Floats | None,
        persons: Persons | None,
        words: str,
    ) -> Journal:
        """Return the journal of this run."""
        facts = {
            "settings": f"{words}, {shares!r}, prior {_digest(self.prior)}",
            "examples": len(labels),
            "label set": labels.name,
            "seeded": key.seeded,
        }
        if self.correction != "unbiased":
            facts["settings"] = f"{facts['settings']}, {self.correction}"
        if weights is not None:  # models of earlier stages choose channels: with other weights it is another run
            facts["set of sample weights"] = _digest(weights)
        if persons is not None:  # they shape stages and who is asked about what
            facts["assignment of rows to persons"] = persons.digest
        pieces = [f"stage-{number + 1}" for number in range(len(shares))]
        return Journal(self.checkpoint, facts=facts, labels=labels, key=key, pieces=pieces, owner=OWNER)

    def _keep(self, training: Training, release: Release, transformer: Any) -> LabelPrivateRegressor:
        """Keep the result, all of it at once: a fit that fails leaves the last one as it was."""
        assert isinstance(release.channel, NumericChannel)
        self._transformer = transformer
        self.release_ = release
        self.estimator_ = training.model
        self.stages_ = tuple(training.stages)
        self.guarantee_, self.seeded_ = release.guarantee, release.seeded
        self.bounds_ = release.channel.bounds
        return self

    def _describe(self, response: NumericMechanism, persons: Persons | None) -> str:
        whose = "" if persons is None else f" for each of {persons.n_persons:,} persons"
        return f"{OWNER}(stages={self.stages!r}, mechanism={response!r}){whose}"

    def __sklearn_tags__(self) -> Any:
        inner = _default_regressor() if self.estimator is None else self.estimator
        return takes_rows_of(inner, super().__sklearn_tags__())


# ------------------------------------------------------------------------------------------------ the loop over stages


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


def _draw_numbers(
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


# ------------------------------------------------------------------------------------------------ checks


def _default_regressor() -> BaseEstimator:
    return RidgeCV(alphas=PENALTIES)


def _check_response(mechanism: Any, epsilon: float, labels: SensitiveLabels) -> NumericMechanism:
    """Return the mechanism at this epsilon, for these labels, or refuse it before anything is spent."""
    assert labels.bounds is not None
    if mechanism is None:
        return UnbiasedResponse(epsilon, bounds=labels.bounds)
    if not isinstance(mechanism, NumericMechanism):
        fix = "For example UnbiasedResponse(1.0, bounds=(0, 100))."
        raise invalid(OWNER, "mechanism", "be a mechanism for numbers", got=mechanism, fix=fix)
    response = mechanism.with_epsilon(epsilon)
    promise = response.guarantee
    if promise.unit is not Unit.LABEL or not promise.epsilon() <= epsilon:
        raise PrivacyError(
            f"{OWNER}: {response!r} was asked for epsilon = {epsilon!r} for a label and promises {promise.epsilon()!r}. "
            "Nothing was drawn. Fix its `with_epsilon` or its `guarantee`."
        )
    if response.bounds != labels.bounds:
        got = Described(f"{response.bounds} for labels of {labels.bounds}")
        raise invalid(OWNER, "mechanism", "have the bounds of the labels", got=got)
    return response


def _check_prior(prior: Any, mechanism: NumericMechanism) -> Floats | None:
    if prior is None:
        return None
    if not mechanism.uses_prior:
        raise invalid(OWNER, "prior", f"be left out: {type(mechanism).__name__} takes none", got=Described("one"))
    return _check_law(prior, mechanism.n_classes)


def _check_law(prior: Any, size: int) -> Floats:
    rows = check_probability_rows(OWNER, "prior", np.atleast_2d(np.asarray(prior)))
    if rows.shape != (1, size):
        got = Described(f"an array of shape {np.shape(prior)}")
        raise invalid(OWNER, "prior", f"be {size} probabilities, one per level", got=got)
    law: Floats = rows[0]
    return law


def _check_weights(sample_weight: Any, n_rows: int) -> Floats | None:
    return None if sample_weight is None else check_weights(OWNER, "sample_weight", sample_weight, n_rows=n_rows)


def _check_first_stage(stage: npt.NDArray[Any], weights: Floats | None) -> None:
    """Refuse weights that leave the first stage nothing to train on."""
    if weights is not None and not weights[stage == 0].any():
        got = Described("weights of 0 for all rows of the first stage")
        raise invalid(OWNER, "sample_weight", "leave the first stage a row", got=got, fix="Leave those rows out of X.")


def _digest(array: Any) -> str:
    """Return a short text that tells public arrays apart."""
    return "none" if array is None else hashlib.sha256(np.asarray(array, "<f8").tobytes()).hexdigest()
