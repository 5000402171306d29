"""The study `prior-response`: how often a released label is right, against epsilon, with priors from a real model.

A softmax regression is trained on a part of the digits whose labels are taken as public; its predictions are the prior of
all others. Three questions, for randomized response, RRTop-k and RRWithPrior: what the paper's formula promises if labels
follow the prior, what our channel says under the same belief, and what happens to the real labels, exactly and in draws.

    Pr[correct] = E / (E + k - 1) * (prior mass of the k likeliest labels),      E = e^epsilon

with k = K for randomized response and the best k of each example for RRWithPrior.

>>> promised_accuracy(np.array([[0.9, 0.1]]), 0.0, 1), round(promised_accuracy(np.array([[0.5, 0.5]]), 1.0, None), 4)
(0.9, 0.7311)

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Algorithms 1 and 2, Theorem 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from labeldp.arrays import Floats, Int64s
from labeldp.data import load
from labeldp.learn import SoftmaxRegression
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRTopK, RRWithPrior
from labeldp.release import SensitiveLabels, privatize
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Examples whose labels are taken as public, to train the model that gives the prior.
PUBLIC_ROWS = 300
BELIEVED = "labels as the prior has them"
REAL = "the real labels"
#: Each setting with its k; None is the best k of each example.
SETTINGS: tuple[tuple[str, int | None], ...] = (
    ("RR", 10),
    ("RRTop-2", 2),
    ("RRTop-3", 3),
    ("RRTop-5", 5),
    ("RRWithPrior", None),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism at an epsilon, on labels that follow the prior (`table` BELIEVED) or on the real ones (REAL)."""

    table: str
    setting: str
    k: int | None
    epsilon: float

    @property
    def name(self) -> str:
        """What is measured."""
        return f"{self.table}: {self.setting}, epsilon {self.epsilon:g}"


class PriorResponse(Study[Case]):
    """The chance that a released label is right, for three mechanisms and real priors; seconds."""

    name: ClassVar[str] = "prior-response"
    title: ClassVar[str] = "How often is a released label right?"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy, Algorithms 1 "
        "and 2; the value is the formula of Theorem 3, evaluated on our priors"
    )
    measure: ClassVar[str] = "correct labels, %"
    default_seeds: ClassVar[int] = 20
    quick_seeds: ClassVar[int] = 3

    @cached_property
    def digits(self) -> Digits:
        """The digits with their priors."""
        return read_digits()

    def cases(self) -> Sequence[Case]:
        """Every mechanism at every epsilon, first as the prior has it, then on the real labels."""
        return [
            Case(table=table, setting=setting, k=k, epsilon=epsilon)
            for table in (BELIEVED, REAL)
            for epsilon in EPSILONS
            for setting, k in SETTINGS
        ]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Nothing is drawn where labels follow the prior: one seed says it all."""
        return seeds if case.table == REAL else seeds[:1]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Return the share of correct labels, in percent: computed under the prior, or drawn for the real labels."""
        digits = self.digits
        mechanism = make_mechanism(case.k, case.epsilon, digits.prior.shape[1])
        needed = None if isinstance(mechanism, RandomizedResponse) else digits.prior
        if case.table == BELIEVED:
            channel: Any = mechanism.channel() if needed is None else mechanism.channel(needed)
            believed = Measurement(
                table=BELIEVED,
                setting=case.setting,
                epsilon=channel.epsilon,
                trust="no one",
                value=100.0 * float(np.mean(channel.expected_accuracy(digits.prior))),
                paper=100.0 * promised_accuracy(digits.prior, case.epsilon, case.k),
            )
            return [believed]
        release = privatize(digits.labels, mechanism, prior=needed, rng=seed)
        # The expectation of the share is the mean of T[y, y] over the true labels.
        diagonal = release.channel.likelihood(digits.y)[np.arange(len(digits.y)), digits.y]
        drawn = Measurement(
            table=REAL,
            setting=case.setting,
            epsilon=release.guarantee.epsilon(),
            trust=release.guarantee.trust.words,
            value=100.0 * float(np.mean(release.codes == digits.y)),
            expected=100.0 * float(np.mean(diagonal)),
        )
        return [drawn]

    def facts(self) -> dict[str, Any]:
        """How many labels there are, and how good the prior is by itself."""
        return {
            "labels released": len(self.digits.y),
            "labels taken as public for the prior": PUBLIC_ROWS,
            "accuracy of the prior's first guess, %": round(self.digits.first_guess, 2),
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what the mechanisms reach at epsilon 1, and how near the channel is to the paper's formula."""
        worst = max(abs(row.difference or 0.0) for row in rows if row.table == BELIEVED)
        one = {row.setting: row.mean for row in rows if row.table == REAL and abs(row.epsilon - 1.0) < 1e-3}
        return (
            (
                f"At epsilon 1, {one['RR']:.1f}% of the labels of randomized response are right, and "
                f"{one['RRWithPrior']:.1f}% of RRWithPrior's. The prior's own first guess is right for "
                f"{self.digits.first_guess:.1f}%: at small epsilon RRWithPrior releases little more than that guess, which "
                "says nothing about the label."
            ),
            f"Under the prior our channels agree with the paper's formula to {worst:.1e} points.",
            (
                "A right label is not the same as an informative one: a candidate set of one label is often right and carries "
                "no information about its owner, nor for a model that already has the prior."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """The share of correct real labels against epsilon."""
        series = []
        for setting, _ in SETTINGS:
            mine = [row for row in rows if row.table == REAL and row.setting == setting]
            series.append(
                Series(
                    name=setting,
                    x=tuple(row.epsilon for row in mine),
                    y=tuple(row.mean for row in mine),
                    spreads=tuple(row.spread for row in mine),
                )
            )
        ends = "; ".join(f"{line.name} from {line.y[0]:.0f}% to {line.y[-1]:.0f}%" for line in series)
        return (
            Lines(
                title="Correct labels against epsilon, digits",
                series=tuple(series),
                x_title="epsilon",
                y_title="correct labels, %",
                alt=f"From epsilon {EPSILONS[0]:g} to {EPSILONS[-1]:g}: {ends}.",
                x_log=True,
            ),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Digits:
    """The priors and true labels of the examples to release."""

    prior: Floats
    y: Int64s
    labels: SensitiveLabels
    first_guess: float


def read_digits() -> Digits:
    """Train on the first rows, and return the predictions for the others as their priors."""
    data = load("digits")
    X, y = data.X_train, data.y_train
    model = SoftmaxRegression().fit(X[:PUBLIC_ROWS], y[:PUBLIC_ROWS])
    prior, rest = model.predict_proba(X[PUBLIC_ROWS:]).astype(np.float64), y[PUBLIC_ROWS:]
    prior /= prior.sum(axis=1, keepdims=True)  # the model works in single precision
    labels = SensitiveLabels(rest, n_classes=data.n_classes, name="digits")
    return Digits(prior=prior, y=rest, labels=labels, first_guess=100.0 * float(np.mean(prior.argmax(axis=1) == rest)))


def make_mechanism(k: int | None, epsilon: float, n_classes: int) -> Mechanism:
    """Return the mechanism of a setting: all classes, the k likeliest, or the best k of each example."""
    if k is None:
        return RRWithPrior(epsilon)
    return RandomizedResponse(epsilon, n_classes=n_classes) if k == n_classes else RRTopK(epsilon, k=k)


def promised_accuracy(prior: Floats, epsilon: float, k: int | None) -> float:
    """Return the paper's w_k, averaged over examples; k = None takes each example's best. By sorting: an oracle."""
    mass = np.cumsum(-np.sort(-prior, axis=1), axis=1)
    sizes = np.arange(1, prior.shape[1] + 1)
    # E / (E + k - 1) without overflow at large epsilon
    chance = mass / (1.0 + (sizes - 1) * math.exp(-epsilon))
    return float(np.mean(chance.max(axis=1) if k is None else chance[:, k - 1]))
