r"""How a learner in stages was asked to train: what "auto" stood for, which mechanism answers, and how examples are split.

>>> stage_shares(2, epsilon=1.0)
(0.8, 0.2)

`Settings` are made and checked before anything is charged (`check_settings`), and settled once it is known what the prior says
(`settle_settings`). All of it depends on what a receiver of the release has too, so that owner and receiver train alike.

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (2021).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from labeldp.channel import FiniteChannel, SetAnswers
from labeldp.errors import Described, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit
from labeldp.learn.corrections import (
    CORRECTIONS,
    choose_correction,
    fits_once,
    split_pipeline,
    takes_weights,
)
from labeldp.learn.pools import pools_features
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.mechanisms import InformativeResponse, MeasuringMechanism, Mechanism, RRWithPrior
from labeldp.priors import PriorTable
from labeldp.random import NoiseKey
from labeldp.release.persons import Persons
from labeldp.release.templates import copy_template
from labeldp.validate import check_choice, check_epsilon, check_integer, check_positive

OWNER = "LabelPrivateClassifier"
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
#: Without any released label a round sharpens its own beliefs, to q^1.5; with labels, those of a network that mixup has blurred.
SELF_TEMPERATURE = 1.0 / 1.5
#: The budget of a learner that is told none.
BUDGET = 1.0


class Reader(NamedTuple):
    """A quick estimator beside a long fit: it reads the answers for that one, or it `only_asks` the questions."""

    estimator: BaseEstimator
    only_asks: bool


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
    #: Of a model's beliefs in the rounds where labels were released; None takes them as they are.
    round_temperature: float | None = None
    #: Whether answers that say little are pooled before they are read, and how many rounds there are then.
    pool: bool = False
    pooled_rounds: int = 0
    stage_params: tuple[Mapping[str, Any], ...] = ()
    final_params: Mapping[str, Any] | None = None
    #: What is fitted once in the end, where `estimator` is its quick reader (`labeldp.learn.readers`): on that one's posteriors, or,
    #: where it `only_asks`, on the answers themselves.
    student: BaseEstimator | None = None
    only_asks: bool = False

    @property
    def taker(self) -> BaseEstimator:
        """What takes the user's rows: the student where there is one, whose reader gets features of them, or the estimator."""
        return self.estimator if self.student is None else self.student

    @property
    def last_correction(self) -> str:
        """How the last fit, whose model is kept, reads what was released."""
        return "forward" if self.only_asks else self.correction

    @property
    def ways(self) -> tuple[Mapping[str, Any], ...]:
        """The parameters of the estimator in one fit or another: those of each stage, and those of the last fit on top."""
        given = self.stage_params or ({},)
        return given if not self.final_params else (*given, {**given[-1], **self.final_params})

    def of_student(self) -> Settings:
        """Return the settings of the one fit of a student that reads the answers itself."""
        assert self.student is not None
        return replace(
            self, estimator=self.student, student=None, only_asks=False, correction="forward", rounds=0, pool=False
        )

    def params_of(self, number: int) -> Mapping[str, Any]:
        """Return the parameters for a fit (from 0); the last ones given hold for all that come later."""
        given = self.stage_params
        return given[min(number, len(given) - 1)] if given else {}


def check_settings(
    learner: Any,
    classes: Sequence[Any],
    epsilon: float,
    *,
    silent: bool,
    reader: Reader | None = None,
) -> tuple[Any, Settings]:
    """Return the transformers of the learner's estimator, untrained, and its settings; `silent`: no label is released.

    A `reader` (`labeldp.learn.readers`) runs through the stages and rounds in the estimator's place, and that is then fitted
    once, with `final_params`; one that only asks runs through all stages but the last.

    `epsilon` is the promised one, which a receiver of the release knows to the last bit, and not the one asked for.
    """
    check_choice(OWNER, "correction", learner.correction, CORRECTIONS)
    plain = SoftmaxRegression() if learner.estimator is None else copy_template(OWNER, "estimator", learner.estimator)
    transformer, last = split_pipeline(plain)
    if not hasattr(last, "predict_proba"):
        fix = "Wrap it in CalibratedClassifierCV, or use a classifier that has it."
        raise invalid(OWNER, "estimator", "have `predict_proba`", got=type(last).__name__, fix=fix)
    final = _check_params("final_params", learner.final_params)
    stages = _check_stage_params(learner.stage_params)
    _check_names(last, (*stages, final or {}))
    student = None
    if reader is not None:
        student, last, final = last.set_params(**(final or {})), reader.estimator, None
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
        round_temperature=SELF_TEMPERATURE if getattr(last, "blurs_beliefs", False) else None,
        stage_params=stages,
        final_params=final,
        student=student,
        only_asks=reader is not None and reader.only_asks,
    )
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
    linear = isinstance(settings.estimator, SoftmaxRegression)
    asked = learner.correction == "auto" and correction == ("forward" if linear else "em") and not settings.silent
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
    """Return parameters of the estimator, with untrained copies of the estimators among them."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise invalid(OWNER, name, "hold parameters of the estimator by name", got=Described(type(value).__name__))
    fresh: Mapping[str, Any] = copy_template(OWNER, name, dict(value), safe=False)
    return fresh


def _check_names(estimator: BaseEstimator, given: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a parameter that the estimator does not have, before anything is spent."""
    known = estimator.get_params()
    for params in given:
        for name in params:
            if name not in known:
                fix = f"{type(estimator).__name__} has: {', '.join(sorted(known))}."
                raise invalid(OWNER, "stage_params", "name parameters of the estimator", got=name, fix=fix)


# -------------------------------------------------------------------------------------------------------- the response


def default_response(settings: Settings) -> Mechanism:
    """Return the mechanism where none is given: sets, which teach most, or labels where training wants them."""
    labels = settings.correction in {"none", "unbiased"} or settings.filter_earlier
    return RRWithPrior(1.0) if labels else InformativeResponse(1.0)


def choose_budget(owner: str, epsilon: Any, mechanism: Any) -> float:
    """Return the whole budget of a learner: what its user says, or else what her mechanism promises, or else 1.

    A mechanism that is handed in without a budget beside it is taken as it is. One that promises no finite pure epsilon
    does not say what a learner may spend, so its user has to.
    """
    if epsilon is not None:
        return check_epsilon(owner, epsilon)
    if not isinstance(mechanism, Mechanism):
        return BUDGET
    own = mechanism.guarantee.epsilon()
    if math.isinf(own):
        got = Described(f"none, and {type(mechanism).__name__} promises no pure epsilon")
        raise invalid(owner, "epsilon", "be given", got=got, fix="Use math.inf for no privacy.")
    return own


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


# ------------------------------------------------------------------------------------------------- the split in stages


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
        proper = all(share > 0 for share in shares) and abs(sum(shares) - 1) <= 1e-9  # both false of NaN
        if not (0 < len(shares) <= MOST_STAGES and proper):
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
