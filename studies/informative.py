"""The study `informative`: what an answer teaches, exactly, and what that does to models.

*Information.* A label follows a prior over ten classes, whose first guess is right 10% (no prior), 30%, 60% or 90% of the time. How
many nats does a private answer carry about it? Computed from the channels, nothing is drawn. 100% is the best that any
epsilon-private channel can do: a linear program over the 1,024 staircase columns (Kairouz, Oh, Viswanath 2014),

    maximise sum_S theta_S f(p(S))   so that   sum_S theta_S (1 + (E - 1) 1[y in S]) = 1 for each label y,

with f of `labeldp.channel.sets`. No prior and no number of classes allows more than x - 1 - ln x nats, x = epsilon / (1 - 1/E).

*Models.* The same softmax regression learns from the answers by their likelihood, in one draw, or in two stages in which the
first model is the prior of the second. First on rows whose P(y | x) is known, so that the excess loss, the mean of
KL(P(. | x) || model), has no noise of test labels; then on scikit-learn's digits.

>>> prior = np.array([0.6, 0.2, 0.1, 0.1])
>>> best_information(prior, 1.0) <= most_information(1.0)
True
>>> round(channel_information(RandomizedResponse(1.0, n_classes=4).channel().matrix(), prior), 4)
0.0893
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linprog

from labeldp.arrays import Floats, Int64s
from labeldp.channel import safe_odds
from labeldp.channel.sets import score_mass
from labeldp.cli.plan import falling_prior
from labeldp.data import load
from labeldp.learn import SoftmaxRegression
from labeldp.mechanisms import (
    ClusterRR,
    InformativeResponse,
    Mechanism,
    OptimalResponse,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
    most_information,
)
from labeldp.release import SensitiveLabels, privatize
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow

N_CLASSES = 10
EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
#: How often the prior's first guess is right; 1 / K is no prior.
PRIORS = (0.1, 0.3, 0.6, 0.9)
RESPONSE, TOP_TWO, WITH_PRIOR = "randomized response", "RRTop-2", "RRWithPrior"
OPTIMAL, CLUSTER = "OptimalResponse (most accurate label)", "ClusterRR (shares known)"
BLIND, SETS, BEST = "sets, without the prior", "sets", "the best there is"
MECHANISMS = (RESPONSE, TOP_TWO, WITH_PRIOR, OPTIMAL, CLUSTER, BLIND, SETS, BEST)
#: Public chance (circles, ties) is averaged over this many rows.
CHANCES = 64

LOSS = "softmax regression: excess loss, thousandths of a nat"
DIGITS = "digits: accuracy, %"
TRAIN_EPSILONS = (0.5, 1.0, 2.0, 4.0)
#: 1,400 digits teach little below, and three splits of them are enough.
DIGIT_EPSILONS, DIGIT_SEEDS = (1.0, 2.0, 4.0), 3
ONE_RR, TWO_RR = "randomized response", "RRWithPrior, two stages"
ONE_SETS, TWO_SETS = "sets", "sets, two stages"
#: Each way to train: its mechanism, and the share of the rows that are answered without a prior; 1 is one draw.
WAYS: dict[str, tuple[Callable[[float], Mechanism], float]] = {
    ONE_RR: (RRWithPrior, 1.0),
    TWO_RR: (RRWithPrior, 0.65),  # the split of the paper at epsilon 2
    ONE_SETS: (InformativeResponse, 1.0),
    TWO_SETS: (InformativeResponse, 0.25),
}
CLEAN = "no privacy"
DIGIT_WAYS = (ONE_RR, ONE_SETS, TWO_SETS)
ROWS, FEATURES, TEST_ROWS = 60_000, 20, 10_000
TEST_DIGITS = 397
#: Of the softmax regression, the same for all ways and never tuned.
L2 = 1e-3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism, or a way to train, at an epsilon; `accuracy` is that of the prior, where one is given."""

    table: str
    setting: str
    epsilon: float
    accuracy: float | None = None

    @property
    def name(self) -> str:
        """What is measured."""
        return f"{self.table}: {self.setting}, epsilon {self.epsilon:g}"


class Informative(Study[Case]):
    """Information of answers, exact, and the models that learn from them; some minutes of one processor."""

    name: ClassVar[str] = "informative"
    title: ClassVar[str] = "What makes an answer useful?"
    paper: ClassVar[str] = (
        "none: balanced blocks are labeldp's own; the optimum is that of Kairouz, Oh and Viswanath (2014)"
    )
    measure: ClassVar[str] = "as each table says"
    default_seeds: ClassVar[int] = 5

    @cached_property
    def digits(self) -> tuple[Floats, Int64s]:
        """Features and labels of all digits."""
        data = load("digits")
        return np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])

    @property
    def n_rows(self) -> int:
        """Rows of the simulation."""
        return 4_000 if self.quick else ROWS

    def cases(self) -> Sequence[Case]:
        """All mechanisms on all priors, then all ways to train."""
        exact = [
            Case(table=name_prior(accuracy), setting=setting, epsilon=epsilon, accuracy=accuracy)
            for accuracy in PRIORS
            for epsilon in EPSILONS
            for setting in MECHANISMS
        ]
        trained = [
            Case(table=table, setting=setting, epsilon=epsilon)
            for table, ways, epsilons in ((LOSS, tuple(WAYS), TRAIN_EPSILONS), (DIGITS, DIGIT_WAYS, DIGIT_EPSILONS))
            for epsilon, settings in [*((one, ways) for one in epsilons), (math.inf, (CLEAN,))]
            for setting in settings
        ]
        return [*exact, *trained]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Information is exact: one seed says it all."""
        return seeds[:1] if case.accuracy is not None else seeds[:DIGIT_SEEDS] if case.table == DIGITS else seeds

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Return the information of an answer, or what a model that learned from answers is worth."""
        if case.accuracy is not None:
            return [measure_information(case)]
        X, truth, test, score = self._simulate(seed) if case.table == LOSS else self._split(seed)
        likelihood = None if case.setting == CLEAN else answer(case, X, truth, rng=1000 + seed)
        model = learn(X, truth, likelihood)
        value = score(model.predict_proba(test))
        return [Measurement(table=case.table, setting=case.setting, epsilon=case.epsilon, trust="no one", value=value)]

    def _simulate(self, seed: int) -> tuple[Floats, Int64s, Floats, Any]:
        """Return rows, their labels, test rows, and the excess loss of probabilities for those."""
        rng = np.random.default_rng(seed)
        weights = 2.4 * rng.normal(size=(FEATURES, N_CLASSES)) / math.sqrt(FEATURES)
        X, test = (rng.normal(size=(n, FEATURES)) for n in (self.n_rows, TEST_ROWS))
        law, truth = softmax_rows(X @ weights), softmax_rows(test @ weights)
        labels = (rng.random(len(X))[:, None] > np.cumsum(law, axis=1)[:, :-1]).sum(axis=1)

        def excess(predicted: Floats) -> float:
            return 1000.0 * float((truth * (np.log(truth) - np.log(predicted.astype(np.float64)))).sum(axis=1).mean())

        return X, labels.astype(np.int64), test, excess

    def _split(self, seed: int) -> tuple[Floats, Int64s, Floats, Any]:
        """Return digits to learn from, their labels, digits to test on, and the accuracy there."""
        X, y = self.digits
        order = np.random.default_rng(seed).permutation(len(X))
        there, apart = order[TEST_DIGITS:], order[:TEST_DIGITS]

        def accuracy(predicted: Floats) -> float:
            return 100.0 * float((predicted.argmax(axis=1) == y[apart]).mean())

        return X[there], y[there].astype(np.int64), X[apart], accuracy

    def facts(self) -> dict[str, Any]:
        """The sizes behind the tables."""
        return {
            "classes": N_CLASSES,
            "rows and features of the simulation": [self.n_rows, FEATURES],
            "digits to learn from, and to test on": [len(self.digits[0]) - TEST_DIGITS, TEST_DIGITS],
            "l2 of every softmax regression": L2,
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say how near to the best each mechanism comes, and what models gain."""
        exact = [row for row in rows if row.table not in (LOSS, DIGITS)]
        ends = {name: [row.mean for row in exact if row.setting == name] for name in MECHANISMS}
        silent = [row for row in exact if row.setting == WITH_PRIOR and row.mean < 0.1]
        told = "; ".join(
            f"up to epsilon {max(row.epsilon for row in silent if row.table == table):g} with {table.partition(': ')[2]}"
            for table in dict.fromkeys(row.table for row in silent)
        )
        gains = [
            100 * (1 - find(rows, LOSS, TWO_SETS, e).mean / find(rows, LOSS, ONE_RR, e).mean) for e in TRAIN_EPSILONS
        ]
        stages = [
            100 * (1 - find(rows, LOSS, TWO_SETS, e).mean / find(rows, LOSS, ONE_SETS, e).mean) for e in TRAIN_EPSILONS
        ]
        digits = [find(rows, DIGITS, ONE_SETS, e).mean - find(rows, DIGITS, ONE_RR, e).mean for e in DIGIT_EPSILONS]
        return (
            (
                f"Sets chosen by the prior carry {min(ends[SETS]):.1f} to {max(ends[SETS]):.1f}% of the information of the best "
                f"private channel; randomized response {min(ends[RESPONSE]):.0f} to {max(ends[RESPONSE]):.0f}%, RRWithPrior "
                f"{min(ends[WITH_PRIOR]):.0f} to {max(ends[WITH_PRIOR]):.0f}%."
            ),
            (
                f"The label of RRWithPrior is the prior's own guess and carries nothing {told}. That is the most accurate label, "
                "and of no use to whoever has the prior already."
            ),
            (
                f"Softmax regression from sets in two stages has {min(gains):.0f} to {max(gains):.0f}% less excess loss than from "
                f"randomized response. The second stage alone is worth {min(stages):.0f} to {max(stages):.0f}%."
            ),
            (
                "On the digits, one draw of sets against one of randomized response is worth "
                + ", ".join(f"{gain:+.1f}" for gain in digits)
                + " points at epsilon "
                + ", ".join(f"{one:g}" for one in DIGIT_EPSILONS)
                + "."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Information against epsilon for each prior, and the models."""
        drawn: list[Plot] = [
            draw_lines(rows, name_prior(accuracy), MECHANISMS[:-1], EPSILONS, "% of the best channel's information")
            for accuracy in PRIORS
        ]
        drawn.append(draw_lines(rows, LOSS, tuple(WAYS), TRAIN_EPSILONS, "excess loss, thousandths of a nat"))
        drawn.append(draw_lines(rows, DIGITS, DIGIT_WAYS, DIGIT_EPSILONS, "accuracy, %"))
        return tuple(drawn)


def name_prior(accuracy: float) -> str:
    """Return the table of a prior."""
    told = "no prior" if accuracy * N_CLASSES <= 1.0 else f"a prior that is right {accuracy:.0%} of the time"
    return f"information, % of the best private channel's: {told}"


def find(rows: Sequence[StudyRow], table: str, setting: str, epsilon: float) -> StudyRow:
    """Return one row."""
    return next(row for row in rows if (row.table, row.setting, row.epsilon) == (table, setting, epsilon))


def draw_lines(
    rows: Sequence[StudyRow], table: str, settings: Sequence[str], epsilons: Sequence[float], y_title: str
) -> Lines:
    """Return one line for each setting of a table."""
    series = []
    for setting in settings:
        mine = [find(rows, table, setting, epsilon) for epsilon in epsilons]
        spreads = tuple(row.spread for row in mine) if mine[0].n_seeds > 1 else ()
        series.append(Series(name=setting, x=tuple(epsilons), y=tuple(row.mean for row in mine), spreads=spreads))
    ends = "; ".join(f"{line.name} from {line.y[0]:.0f} to {line.y[-1]:.0f}" for line in series)
    alt = f"From epsilon {epsilons[0]:g} to {epsilons[-1]:g}: {ends}."
    return Lines(title=table, series=tuple(series), x_title="epsilon", y_title=y_title, alt=alt, x_log=True)


# ---------------------------------------------------------------------------------------------------------- information


def measure_information(case: Case) -> Measurement:
    """Return the information of an answer, as a share of the best channel's."""
    assert case.accuracy is not None
    prior = falling_prior(max(case.accuracy, 1.0 / N_CLASSES), N_CLASSES)
    best = best_information(prior, case.epsilon)
    nats = best if case.setting == BEST else information(case.setting, prior, case.epsilon)
    share = 100.0 * nats / most_information(case.epsilon)
    note = f"{nats:.4f} nats, {share:.1f}% of x - 1 - ln x"
    return Measurement(
        table=case.table,
        setting=case.setting,
        epsilon=case.epsilon,
        trust="a curator" if case.setting == CLUSTER else "no one",
        value=100.0 * nats / best,
        note=note,
    )


def information(setting: str, prior: Floats, epsilon: float) -> float:
    """Return the nats that an answer of a mechanism has about a label that follows the prior."""
    if setting in (BLIND, SETS):
        given = np.repeat(prior[None], CHANCES, axis=0) if setting == SETS else None
        channel: Any = InformativeResponse(epsilon).channel(given, n_classes=N_CLASSES).place(0, CHANCES)
        return float(channel.information(prior).mean())
    mechanism: Mechanism = {
        RESPONSE: RandomizedResponse(epsilon, n_classes=N_CLASSES),
        TOP_TWO: RRTopK(epsilon, k=2),
        WITH_PRIOR: RRWithPrior(epsilon),
        OPTIMAL: OptimalResponse(epsilon),
        CLUSTER: ClusterRR(epsilon, split=0.0),
    }[setting]
    made: Any = mechanism.channel() if setting == RESPONSE else mechanism.channel(prior)
    return channel_information(made.matrix(), prior)


def channel_information(matrix: Floats, prior: Floats) -> float:
    """Return the mutual information of label and answer of a dense channel T[label, answer], in nats."""
    joint = prior[:, None] * matrix
    law = np.broadcast_to(joint.sum(axis=0), joint.shape)
    there = joint > 0
    return max(0.0, float((joint[there] * np.log(np.broadcast_to(matrix, joint.shape)[there] / law[there])).sum()))


def best_information(prior: Floats, epsilon: float) -> float:
    """Return the most nats that any epsilon-private answer has: the linear program over all staircase columns."""
    odds, k = safe_odds(epsilon), len(prior)
    patterns = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1
    value = score_mass(np.minimum(patterns @ prior, 1.0), odds)
    return float(-linprog(-value, A_eq=(1 + odds * patterns).T, b_eq=np.ones(k), bounds=(0, None)).fun)


# --------------------------------------------------------------------------------------------------------------- models


def answer(case: Case, X: Floats, y: Int64s, *, rng: int) -> Floats:
    """Return the likelihood of every label after one draw, or after two stages, the second with the first's model as prior."""
    make, first_share = WAYS[case.setting]
    mechanism: Mechanism = make(case.epsilon)
    cut = round(first_share * len(X))
    first = draw(mechanism, y[:cut], None, rng=rng)
    if cut == len(X):
        return first
    prior = learn(X[:cut], y[:cut], first).predict_proba(X[cut:]).astype(np.float64)
    prior /= prior.sum(axis=1, keepdims=True)
    return np.concatenate([first, draw(mechanism, y[cut:], prior, rng=rng, start=cut)])


def draw(mechanism: Mechanism, y: Int64s, prior: Any, *, rng: int, start: int = 0) -> Floats:
    """Privatize labels and return their likelihood; without a prior RRWithPrior is randomized response."""
    if prior is None and isinstance(mechanism, RRWithPrior):
        mechanism = RandomizedResponse(mechanism.epsilon, n_classes=N_CLASSES)
    release = privatize(SensitiveLabels(y, n_classes=N_CLASSES), mechanism, prior=prior, rng=rng, start=start)
    likelihood: Floats = release.channel.likelihood(release.codes)
    return likelihood


def learn(X: Floats, y: Int64s, likelihood: Floats | None) -> SoftmaxRegression:
    """Fit the forward loss, or on the labels themselves where there is no privacy."""
    known = np.eye(N_CLASSES)[y] if likelihood is None else likelihood
    return SoftmaxRegression(l2=L2).fit_likelihood(X, known, classes=range(N_CLASSES))


def softmax_rows(logits: Floats) -> Floats:
    """Return probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    share: Floats = powers / powers.sum(axis=1, keepdims=True)
    return share
