"""What the study `multilabel-pate` runs: cheap teachers, their votes once per set and seed, and every way to answer.

>>> import numpy as np
>>> X, Y = np.array([[0.0], [1.0], [0.1], [0.9]] * 5), np.array([[0, 1], [1, 1], [0, 1], [1, 1]] * 5)
>>> RidgeLabels().fit(X, Y).predict(np.array([[0.0], [1.0]])).tolist()
[[0, 1], [1, 1]]

Design notes. Under label privacy features are public, so that principal components of all train rows cost nothing.
Votes are those of `labeldp.learn.MultiLabelPATE` (same parts, same teachers, same counting), kept in memory so that
each epsilon only draws noise again. An unanswered point counts as an answer without labels where answers are scored,
and is left out where the student learns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from labeldp.arrays import Floats, UInt8s
from labeldp.data import Dataset
from labeldp.learn.pate import set_plan, vote_plan
from labeldp.learn.pate.teachers import collect_votes, fit_labels, vote_for_labels
from labeldp.learn.pate.votes import SetAnswers, answer_labels, answer_stable, count_labels
from labeldp.random import BitStream, NoiseKey

DELTA = 1e-5
N_QUERIES = 100
#: As in the study `first-model`.
COMPONENTS = 50
#: The part of an answer's budget that chooses k where the number of labels is bounded.
CHOICE_SHARE = 0.3


class RidgeLabels(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Least squares on indicators, in closed form: a label is there where its score is over the threshold."""

    def __init__(self, *, alpha: float = 1.0, threshold: float = 0.5) -> None:
        self.alpha = alpha
        self.threshold = threshold

    def fit(self, X: Any, Y: Any) -> RidgeLabels:
        """Fit one linear score per label."""
        self.model_ = Ridge(alpha=self.alpha).fit(X, Y)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the scores, cut to [0, 1]."""
        scores: Floats = np.clip(self.model_.predict(X), 0.0, 1.0)
        return scores

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Return rows of 0 and 1."""
        return (self.predict_proba(X) > self.threshold).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A set, how many teachers share it, and how many labels a row has as its publishers say, rounded up.

    `threshold`: the score over which teachers vote for a label, and the student names one.
    """

    source: str
    n_teachers: int
    typical: int
    threshold: float

    @property
    def name(self) -> str:
        """The set and how it was voted on."""
        return f"{self.source}, votes over {self.threshold:.2g}"

    def model(self) -> RidgeLabels:
        """Return a teacher or the student."""
        return RidgeLabels(threshold=self.threshold)


@dataclass(frozen=True, kw_only=True, eq=False)
class Poll:
    """One seed of a task: the votes on the queries, whole and clipped, and the true labels for scoring alone."""

    task: Task
    seed: int
    counts: npt.NDArray[np.int64]
    clipped: npt.NDArray[np.int64]
    X_queries: Floats
    Y_queries: UInt8s
    X_test: Floats
    Y_test: UInt8s

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return int(self.counts.shape[1])

    @property
    def majority(self) -> UInt8s:
        """What more than half of the teachers vote for: the answers of PATE without noise."""
        return (2 * self.counts > self.task.n_teachers).astype(np.uint8)

    def gaps(self) -> Floats:
        """Return the largest gap of each query's votes, as a share of the teachers."""
        ends = np.full((len(self.counts), 1), self.task.n_teachers), np.zeros((len(self.counts), 1))
        padded = np.sort(np.hstack([ends[0], self.counts, ends[1]]), axis=1)
        shares: Floats = np.diff(padded, axis=1).max(axis=1) / self.task.n_teachers
        return shares


def reduced(data: Dataset) -> tuple[Floats, Floats]:
    """Return principal components of the features, scaled so that a train row has mean square 1. No labels."""
    train, test = data.matrix()
    chosen = PCA(min(COMPONENTS, train.shape[1]), random_state=0).fit(train)
    X_train, X_test = chosen.transform(train), chosen.transform(test)
    size = float(np.sqrt((X_train**2).sum(axis=1).mean()))
    return X_train / size, X_test / size


def polled(task: Task, data: Dataset, features: tuple[Floats, Floats], *, seed: int, n_queries: int) -> Poll:
    """Teach the teachers and let them vote on `n_queries` test rows drawn by the seed; the other test rows score."""
    X_train, X_test = features
    order = np.random.default_rng(seed).permutation(len(X_test))
    queries, rest = order[:n_queries], order[n_queries:]

    def votes(tau: int | None) -> npt.NDArray[np.int64]:
        found = collect_votes(
            partial(vote_for_labels, tau=tau),
            task.model(),
            X_train,
            data.y_train,
            X_test[queries],
            n_teachers=task.n_teachers,
            split=seed,
            n_jobs=None,
            verbose=0,
            store=None,
        )
        return count_labels(found, tau=tau)

    return Poll(
        task=task,
        seed=seed,
        counts=votes(None),
        clipped=votes(task.typical),
        X_queries=X_test[queries],
        Y_queries=data.y_test[queries],
        X_test=X_test[rest],
        Y_test=data.y_test[rest],
    )


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answers of one run and the epsilon they cost at `DELTA`."""

    found: SetAnswers
    epsilon: float


#: (poll, epsilon, key) -> answers
Aggregate = Callable[[Poll, float, NoiseKey], Answered]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to answer."""

    name: str
    answer: Aggregate


def by_stable(poll: Poll, epsilon: float, key: NoiseKey, *, bounded: bool) -> Answered:
    """Answer by StableTopK as in the paper, or with at most twice the typical number of labels."""
    n_queries = len(poll.counts)
    share = CHOICE_SHARE if bounded else 0.5
    plan = set_plan(epsilon=epsilon, delta=DELTA, n_queries=n_queries, choice_share=share)
    most = min(2 * poll.task.typical, poll.n_labels) if bounded else None
    found = answer_stable(poll.counts, plan, n_teachers=poll.task.n_teachers, key=key, most_labels=most)
    return Answered(found=found, epsilon=plan.guarantee.times(n_queries).epsilon(DELTA))


def by_counts(poll: Poll, epsilon: float, key: NoiseKey, *, clip: bool) -> Answered:
    """Answer by a noisy count per label, of whole votes (PATE) or of clipped ones (PATE-tau)."""
    reach = min(2 * poll.task.typical, poll.n_labels) if clip else poll.n_labels
    plan = vote_plan(epsilon=epsilon, delta=DELTA, n_queries=len(poll.counts), squared_reach=reach)
    counts = poll.clipped if clip else poll.counts
    found = answer_labels(counts, plan, n_teachers=poll.task.n_teachers, bits=BitStream(key))
    return Answered(found=found, epsilon=plan.guarantee.epsilon(DELTA))


STABLE = Method(name="StableTopK", answer=partial(by_stable, bounded=False))
BOUNDED = Method(name="StableTopK, bounded", answer=partial(by_stable, bounded=True))
COUNTS = Method(name="PATE", answer=partial(by_counts, clip=False))
CLIPPED = Method(name="PATE-tau", answer=partial(by_counts, clip=True))
METHODS = (STABLE, BOUNDED, COUNTS, CLIPPED)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Percent: micro-F1 of answers and student, and accuracy per label of answers; `answered`: of the queries."""

    answers_f1: float
    answers_accuracy: float
    student_f1: float
    answered: float


def scored(poll: Poll, found: SetAnswers) -> Scores:
    """Score the answers on the queries and the student on the other test rows."""
    given = np.zeros_like(poll.Y_queries)
    given[found.rows] = found.sets
    learned = np.zeros_like(poll.Y_test)
    if found.rows.size:
        learned = fit_labels(poll.task.model(), poll.X_queries[found.rows], found.sets).predict(poll.X_test)
    return Scores(
        answers_f1=micro_f1(given, poll.Y_queries),
        answers_accuracy=accuracy(given, poll.Y_queries),
        student_f1=micro_f1(learned, poll.Y_test),
        answered=100.0 * found.rows.size / len(given),
    )


def micro_f1(found: UInt8s, truth: UInt8s) -> float:
    """Return 2 hits / (labels found + true labels), in percent; 0 where there is none of either."""
    total = int(found.sum(dtype=np.int64) + truth.sum(dtype=np.int64))
    return 200.0 * int((found & truth).sum(dtype=np.int64)) / total if total else 0.0


def accuracy(found: UInt8s, truth: UInt8s) -> float:
    """Return the share of labels, of all rows, that are right, in percent: the paper's accuracy."""
    return 100.0 * float((found == truth).mean())
