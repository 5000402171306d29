"""The last table of the study `multilabel-pate`: GNMax beside Confident-GNMax, one class a row, on MNIST.

>>> [method for method, _ in METHODS]
['GNMax', 'Confident-GNMax']

Design notes. Both give at most `N_ANSWERS` answers: GNMax to the first that many queries, Confident-GNMax to those of twice
as many whose largest count passes its test (60% of the teachers, a fifth of the budget: the defaults of
`labeldp.learn.PATE`). Teachers and student are scikit-learn's ridge classifier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import RidgeClassifier

from labeldp.arrays import Floats
from labeldp.data import Dataset, load
from labeldp.learn.pate import VotePlan, vote_plan
from labeldp.learn.pate.teachers import collect_votes, vote_for_class
from labeldp.learn.pate.votes import answer_classes, count_classes
from labeldp.random import BitStream, NoiseKey
from studies.multilabel_pate_cases import DELTA, reduced
from studies.study import StudyRow

SET = "mnist"
N_TEACHERS, N_ANSWERS = 250, 200
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Name, and the part of the budget that pays for confidence tests.
METHODS: tuple[tuple[str, float | None], ...] = (("GNMax", None), ("Confident-GNMax", 0.2))
THRESHOLD = 0.6
TABLES = (f"{SET}, answers given, accuracy", f"{SET}, student, accuracy")
QUICK_TEACHERS = 50


def class_rows(seeds: Sequence[int], directory: str | Path | None, *, quick: bool) -> Iterator[StudyRow]:
    """Return accuracy of answers and student for both methods at every epsilon."""
    data = load(SET, directory=directory)
    features = reduced(data)
    n_teachers = QUICK_TEACHERS if quick else N_TEACHERS
    polls = [_Poll(data, features, seed=seed, n_teachers=n_teachers) for seed in seeds]
    for method, share in METHODS:
        for epsilon in EPSILONS[-2:] if quick else EPSILONS:
            n_queries = N_ANSWERS if share is None else 2 * N_ANSWERS
            plan = vote_plan(
                epsilon=epsilon, delta=DELTA, n_queries=n_queries, n_answers=N_ANSWERS, threshold_share=share
            )
            yield from _rows(polls, method, plan)


def _rows(polls: Sequence[_Poll], method: str, plan: VotePlan) -> Iterator[StudyRow]:
    runs = [poll.run(plan, method) for poll in polls]
    given = float(np.mean([count for _, _, count in runs]))
    for position, table in enumerate(TABLES):
        yield StudyRow(
            table=table,
            setting=method,
            epsilon=plan.guarantee.epsilon(DELTA),
            trust="a curator",
            values=tuple(round(run[position], 3) for run in runs),
            note=f"{given:.0f} answers to at most {plan.n_queries} queries",
        )


class _Poll:
    """The votes of one seed on twice as many test rows as there are answers."""

    def __init__(self, data: Dataset, features: tuple[Floats, Floats], *, seed: int, n_teachers: int) -> None:
        X_train, X_test = features
        order = np.random.default_rng(seed).permutation(len(X_test))
        queries, rest = order[: 2 * N_ANSWERS], order[2 * N_ANSWERS :]
        votes = collect_votes(
            vote_for_class,
            RidgeClassifier(),
            X_train,
            data.y_train,
            X_test[queries],
            n_teachers=n_teachers,
            split=seed,
            n_jobs=None,
            verbose=0,
            store=None,
        )
        self.seed, self.level = seed, THRESHOLD * n_teachers
        self.counts = count_classes(votes, n_classes=data.n_classes)
        self.queries, self.truth = X_test[queries], data.y_test[queries]
        self.X_test, self.y_test = X_test[rest], data.y_test[rest]

    def run(self, plan: VotePlan, method: str) -> tuple[float, float, int]:
        """Return the accuracy of answers, that of the student, in percent, and the number of answers."""
        bits = BitStream(NoiseKey.from_seed(self.seed).child(SET, method))
        found = answer_classes(self.counts[: plan.n_queries], plan, level=self.level, bits=bits)
        if not found.rows.size:
            return 0.0, 0.0, 0
        right = 100.0 * float(np.mean(found.codes == self.truth[found.rows]))
        varied = np.unique(found.codes).size > 1
        student = RidgeClassifier() if varied else DummyClassifier(strategy="most_frequent")
        learned = student.fit(self.queries[found.rows], found.codes).predict(self.X_test)
        return right, 100.0 * float(np.mean(learned == self.y_test)), int(found.rows.size)
