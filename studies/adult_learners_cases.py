"""The learners of the study `adult-learners`, each as a function from epsilon and seed to an estimator.

Nothing here was tuned: every parameter is the learner's default or follows a rule that sees no label. Rows are brought to
norm 1, each by itself, so that the bound that sensitivity needs is 1 and true.

>>> [case.setting for case in CASES if case.unit == "record"]
['output perturbation (record)', 'DP-SGD, linear (record)', 'DP-SGD, network (record)']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from labeldp.learn import (
    LPRRSGD,
    LabelPrivateClassifier,
    LPNormalSGD,
    OutputPerturbation,
    SimplexERM,
    SoftmaxRegression,
    SufficientStatistics,
)
from labeldp.priors import ClusterPrior

DELTA = 1e-5
CLASSES = (0, 1)
#: One hidden layer, no wider than a third of the features.
HIDDEN = (32,)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A learner: its name, what one change of the data is, the delta at which its epsilon is stated, and how to make it."""

    setting: str
    make: Callable[[float, int], Any]
    delta: float = 0.0
    unit: str = "label"

    @property
    def note(self) -> str:
        """The unit and delta in words, and what else the reader must know."""
        kind = f"delta {self.delta:g}" if self.delta else "pure"
        if self.unit == "label":
            return f"one label replaced; {kind}"
        change = "one record replaced" if self.setting.startswith("output") else "one record added or removed"
        return f"{change}; {kind}; the scaling of the features is not covered"


def _response(correction: str, stages: int) -> Callable[[float, int], Any]:
    def make(epsilon: float, seed: int) -> Any:
        return LabelPrivateClassifier(
            SoftmaxRegression(),
            epsilon=epsilon,
            stages=stages,
            correction=correction,
            classes=CLASSES,
            random_state=seed,
        )

    return make


def _made(learner: Callable[..., Any], **settings: Any) -> Callable[[float, int], Any]:
    def make(epsilon: float, seed: int) -> Any:
        return learner(epsilon=epsilon, classes=CLASSES, random_state=seed, **settings)

    return make


def private_sgd(**settings: Any) -> Any:
    """Return a DPSGDClassifier; torch and opacus are an extra, and come with the first of them."""
    from labeldp.nn import DPSGDClassifier

    return DPSGDClassifier(**settings)


def need_opacus() -> None:
    """Raise MissingExtraError at once, rather than after the other learners have run."""
    import_module("labeldp.nn.dpsgd_train")


PLAIN = "randomized response, plain"
CASES = (
    Case(setting=PLAIN, make=_response("none", 1)),
    Case(setting="randomized response, forward", make=_response("forward", 1)),
    Case(setting="two stages, forward", make=_response("forward", 2)),
    Case(setting="LP-RR-SGD", make=_made(LPRRSGD, clip=1.0)),
    Case(setting="LP-RR-SGD, cluster prior", make=_made(LPRRSGD, clip=1.0, prior=ClusterPrior())),
    Case(setting="LP-Normal-SGD", make=_made(LPNormalSGD, clip=1.0, delta=DELTA), delta=DELTA),
    Case(setting="sufficient statistics, pure", make=_made(SufficientStatistics, clip=1.0, delta=0.0)),
    Case(setting="sufficient statistics", make=_made(SufficientStatistics, clip=1.0, delta=DELTA), delta=DELTA),
    Case(
        setting="sufficient statistics, softmax",
        make=_made(SufficientStatistics, clip=1.0, delta=DELTA, head="softmax"),
        delta=DELTA,
    ),
    Case(setting="simplex ERM, pure", make=_made(SimplexERM, clip=1.0, delta=0.0)),
    Case(setting="simplex ERM", make=_made(SimplexERM, clip=1.0, delta=DELTA), delta=DELTA),
    Case(setting="output perturbation", make=_made(OutputPerturbation, clip=1.0, delta=DELTA), delta=DELTA),
    Case(
        setting="output perturbation (record)",
        make=_made(OutputPerturbation, clip=1.0, delta=DELTA, unit="record"),
        delta=DELTA,
        unit="record",
    ),
    Case(setting="DP-SGD, linear (record)", make=_made(private_sgd, delta=DELTA), delta=DELTA, unit="record"),
    Case(
        setting="DP-SGD, network (record)",
        make=_made(private_sgd, delta=DELTA, hidden=HIDDEN),
        delta=DELTA,
        unit="record",
    ),
)
