"""The study `prior-response`: how often a released label is right, against epsilon, with priors from a real model.

A softmax regression is trained on a part of the digits whose labels are taken as public; its predictions are the prior of
all others. Three questions, for randomized response, RRTop-k and RRWithPrior: what the paper's formula promises if labels
follow the prior, what our channel says under the same belief, and what happens to the real labels, exactly and in draws.

    Pr[correct] = E / (E + k - 1) * (prior mass of the k likeliest labels),      E = e^epsilon

with k = K for randomized response and the best k of each example for RRWithPrior.

>>> promised(np.array([[0.9, 0.1]]), 0.0, 1), round(promised(np.array([[0.5, 0.5]]), 1.0, None), 4)
(0.9, 0.7311)

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Algorithms 1 and 2, Theorem 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.data import load
from labeldp.learn import SoftmaxRegression
from labeldp.mechanisms import Mechanism, RandomizedResponse, RRTopK, RRWithPrior
from labeldp.release import SensitiveLabels, privatize
from labeldp.report import Lines, Plot, Series
from studies.facts import Stopwatch
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Examples whose labels are taken as public, to train the model that gives the prior.
PUBLIC_ROWS = 300
BELIEVED = "labels as the prior has them"
REAL = "the real labels"
SETTINGS: tuple[tuple[str, int | None], ...] = (
    ("RR", 10),
    ("RRTop-2", 2),
    ("RRTop-3", 3),
    ("RRTop-5", 5),
    ("RRWithPrior", None),
)


class PriorResponse(Study):
    """The chance that a released label is right, for three mechanisms and real priors."""

    name: ClassVar[str] = "prior-response"
    title: ClassVar[str] = "How often is a released label right?"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy, Algorithms 1 "
        "and 2; the value is the formula of Theorem 3, evaluated on our priors"
    )
    measure: ClassVar[str] = "correct labels, %"
    default_seeds: ClassVar[int] = 20
    quick_seeds: ClassVar[int] = 3

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Release the digits' labels at each epsilon; seconds."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        case = _case()
        believed, real = [], []
        for i, epsilon in enumerate(EPSILONS):
            tell(i / len(EPSILONS), f"epsilon {epsilon:g}")
            for setting, k in SETTINGS:
                believed.append(_believed(case, setting, k, epsilon))
                real.append(_real(case, setting, k, epsilon, numbers))
        tell(1.0, "done")
        facts = watch.facts(
            seeds=numbers, quick=quick, command=f"labeldp study {self.name}{' --quick' if quick else ''}"
        )
        sizes = {"labels released": len(case.y), "labels taken as public for the prior": PUBLIC_ROWS}
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=(*believed, *real),
            findings=_findings(case, believed, real),
            facts={**facts, **sizes, "accuracy of the prior's first guess, %": round(case.first_guess, 2)},
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """The share of correct real labels against epsilon."""
        rows = [row for row in result.rows if row.table == REAL]
        series = []
        for setting, _ in SETTINGS:
            mine = [row for row in rows if row.setting == setting]
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
class _Case:
    """The priors and true labels of the examples to release."""

    prior: Floats
    y: npt.NDArray[np.int64]
    labels: SensitiveLabels
    first_guess: float


def _case() -> _Case:
    data = load("digits")
    X, y = data.X_train, data.y_train
    model = SoftmaxRegression().fit(X[:PUBLIC_ROWS], y[:PUBLIC_ROWS])
    prior, rest = model.predict_proba(X[PUBLIC_ROWS:]).astype(np.float64), y[PUBLIC_ROWS:]
    prior /= prior.sum(axis=1, keepdims=True)  # the model works in single precision
    labels = SensitiveLabels(rest, n_classes=data.n_classes, name="digits")
    return _Case(prior=prior, y=rest, labels=labels, first_guess=100.0 * float(np.mean(prior.argmax(axis=1) == rest)))


def mechanism(k: int | None, epsilon: float, n_classes: int) -> Mechanism:
    """Return the mechanism of a setting: all classes, the k likeliest, or the best k of each example."""
    if k is None:
        return RRWithPrior(epsilon)
    return RandomizedResponse(epsilon, n_classes=n_classes) if k == n_classes else RRTopK(epsilon, k=k)


def promised(prior: Floats, epsilon: float, k: int | None) -> float:
    """Return the paper's w_k, averaged over examples; k = None takes each example's best. By sorting: an oracle."""
    mass = np.cumsum(-np.sort(-prior, axis=1), axis=1)
    sizes = np.arange(1, prior.shape[1] + 1)
    # E / (E + k - 1) without overflow at large epsilon
    chance = mass / (1.0 + (sizes - 1) * math.exp(-epsilon))
    return float(np.mean(chance.max(axis=1) if k is None else chance[:, k - 1]))


def _believed(case: _Case, setting: str, k: int | None, epsilon: float) -> StudyRow:
    channel = _channel(case, k, epsilon)
    return StudyRow(
        table=BELIEVED,
        setting=setting,
        epsilon=channel.epsilon,
        trust="no one",
        values=(100.0 * float(np.mean(channel.expected_accuracy(case.prior))),),
        paper=100.0 * promised(case.prior, epsilon, k),
    )


def _real(case: _Case, setting: str, k: int | None, epsilon: float, seeds: tuple[int, ...]) -> StudyRow:
    """Return the share of correct labels in draws; its expectation is the mean of T[y, y] over true labels."""
    chosen = mechanism(k, epsilon, case.prior.shape[1])
    needed = None if isinstance(chosen, RandomizedResponse) else case.prior
    releases = [privatize(case.labels, chosen, prior=needed, rng=seed) for seed in seeds]
    diagonal = releases[0].channel.likelihood(case.y)[np.arange(len(case.y)), case.y]
    return StudyRow(
        table=REAL,
        setting=setting,
        epsilon=releases[0].guarantee.epsilon(),
        trust=releases[0].guarantee.trust.words,
        values=tuple(100.0 * float(np.mean(release.codes == case.y)) for release in releases),
        expected=100.0 * float(np.mean(diagonal)),
    )


def _channel(case: _Case, k: int | None, epsilon: float) -> Any:
    chosen = mechanism(k, epsilon, case.prior.shape[1])
    return chosen.channel() if isinstance(chosen, RandomizedResponse) else chosen.channel(case.prior)


def _findings(case: _Case, believed: list[StudyRow], real: list[StudyRow]) -> tuple[str, ...]:
    worst = max(abs(row.difference or 0.0) for row in believed)
    one = {row.setting: row.mean for row in real if abs(row.epsilon - 1.0) < 1e-3}
    return (
        (
            f"At epsilon 1, {one['RR']:.1f}% of the labels of randomized response are right, and {one['RRWithPrior']:.1f}% of "
            f"RRWithPrior's. The prior's own first guess is right for {case.first_guess:.1f}%: at small epsilon RRWithPrior "
            "releases little more than that guess, which says nothing about the label."
        ),
        f"Under the prior our channels agree with the paper's formula to {worst:.1e} points.",
        (
            "A right label is not the same as an informative one: a candidate set of one label is often right and carries "
            "no information about its owner, nor for a model that already has the prior."
        ),
    )
