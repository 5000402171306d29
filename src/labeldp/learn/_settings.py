"""What training needs to know, besides data: checked once, the same for the owner of labels and for a receiver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone

from labeldp._validate import check_choice, check_integer, check_positive
from labeldp.errors import Described, invalid
from labeldp.learn._corrections import CORRECTIONS, chosen_correction, split_pipeline
from labeldp.learn._softmax import SoftmaxRegression
from labeldp.learn._stages import TEMPERATURE, interpolated

OWNER = "LabelPrivateClassifier"
#: Rounds after the last stage, where "auto" distils: one to settle, and a last, longer one.
ROUNDS = 2
#: Without any released label a round sharpens its own beliefs, q^1.5 (RECIPES.md).
SELF_TEMPERATURE = 1.0 / 1.5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the walk needs to know, besides data."""

    estimator: BaseEstimator
    correction: str
    temperature: float
    filter_earlier: bool
    classes: tuple[Any, ...]
    distil: bool = False
    rounds: int = 0
    stage_params: tuple[Mapping[str, Any], ...] = ()
    final_params: Mapping[str, Any] | None = None

    @property
    def everyone(self) -> bool:
        """Whether each fit is a fresh one on all examples."""
        return self.correction == "em"


def settings_of(learner: Any, classes: Sequence[Any], epsilon: float, *, silent: bool) -> tuple[Any, Settings]:
    """Return the transformers of the learner's estimator, unfitted, and its settings; `silent`: no label is released.

    `epsilon` is the promised one, which a receiver of the release knows to the last bit, and not the one asked for.
    """
    check_choice(OWNER, "correction", learner.correction, CORRECTIONS)
    plain = SoftmaxRegression() if learner.estimator is None else clone(learner.estimator)
    transformer, last = split_pipeline(plain)
    if not hasattr(last, "predict_proba"):
        fix = "Wrap it in CalibratedClassifierCV, or use a classifier that has it."
        raise invalid(OWNER, "estimator", "have `predict_proba`", got=type(last).__name__, fix=fix)
    distil = _distils(learner, silent=silent)
    correction = chosen_correction(last, "em" if distil and learner.correction == "auto" else learner.correction)
    settings = Settings(
        estimator=last,
        correction=correction,
        temperature=_temperature(learner, epsilon, correction, silent=silent),
        filter_earlier=bool(learner.filter_earlier),
        classes=tuple(classes),
        distil=distil,
        rounds=_rounds(learner, distil=distil),
        stage_params=_stage_params(learner.stage_params),
        final_params=_params("final_params", learner.final_params),
    )
    _try_params(settings)
    return transformer, settings


def _distils(learner: Any, *, silent: bool) -> bool:
    if not isinstance(learner.distil, str):
        if silent and not learner.distil:
            fix = "Where no label is released, the prior's beliefs are all that there is to learn from."
            raise invalid(OWNER, "distil", "be true with stages=0", got=learner.distil, fix=fix)
        return bool(learner.distil)
    check_choice(OWNER, "distil", learner.distil, ("auto",))
    # Compared with text only: stages may be an array.
    wishes = [value for value in (learner.stages, learner.prior) if isinstance(value, str)]
    return silent or "auto" in wishes


def _rounds(learner: Any, *, distil: bool) -> int:
    if isinstance(learner.rounds, str):
        check_choice(OWNER, "rounds", learner.rounds, ("auto",))
        return ROUNDS if distil else 0
    return check_integer(OWNER, "rounds", learner.rounds, least=0, most=1000)


def _temperature(learner: Any, epsilon: float, correction: str, *, silent: bool) -> float:
    """Return the temperature: the paper's for its own loss, none for calibrated beliefs, sharpening where all is belief."""
    if learner.temperature is not None:
        return check_positive(OWNER, "temperature", learner.temperature)
    if silent:
        return SELF_TEMPERATURE
    return 1.0 if correction == "em" else interpolated(TEMPERATURE, epsilon)


def _stage_params(value: Any) -> tuple[Mapping[str, Any], ...]:
    if value is None:
        return ()
    if isinstance(value, Mapping) or not isinstance(value, Sequence):
        got = Described(type(value).__name__)
        raise invalid(OWNER, "stage_params", "be a list of dicts, one per stage", got=got)
    return tuple(_params("stage_params", entry) or {} for entry in value)


def _params(name: str, value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise invalid(OWNER, name, "hold parameters of the estimator by name", got=Described(type(value).__name__))
    return value


def _try_params(settings: Settings) -> None:
    """Refuse a parameter that the estimator does not have, before anything is spent."""
    known = settings.estimator.get_params()
    for params in (*settings.stage_params, settings.final_params or {}):
        for name in params:
            if name not in known:
                fix = f"{type(settings.estimator).__name__} has: {', '.join(sorted(known))}."
                raise invalid(OWNER, "stage_params", "name parameters of the estimator", got=name, fix=fix)
