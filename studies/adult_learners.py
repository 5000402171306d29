"""The study `adult-learners`: every convex learner on Adult's income, beside no privacy, randomized response and DP-SGD.

It answers: at epsilon 0.1, 0.5 and 1, what does each way of learning from private labels keep of AUC, log loss and
accuracy, and what would whole-record privacy have kept? The epsilons of different units are not the same promise: rows
of record privacy say so in their name and note.

>>> AdultLearners.name, len(EPSILONS) * len(MEASURES)
('adult-learners', 9)

References: Ghazi et al. 2021, supplement F; Jain & Thakurta 2014; Chaudhuri, Monteleoni, Sarwate 2011; Abadi et al. 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from labeldp.arrays import Floats
from labeldp.data import load
from labeldp.report import Lines, Plot, Series
from studies.adult_learners_cases import CASES, PLAIN, Case, need_opacus
from studies.facts import Stopwatch
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

EPSILONS = (0.1, 0.5, 1.0)
AUC, LOG_LOSS, ACCURACY = "AUC, %", "log loss, nats / 100", "accuracy, %"
MEASURES = (AUC, LOG_LOSS, ACCURACY)
OPEN = "no privacy"
QUICK_ROWS = 4_000
#: The lines of the plots: more than these few could not be told apart. The tables have all.
DRAWN = (
    PLAIN,
    "randomized response, forward",
    "LP-RR-SGD",
    "LP-Normal-SGD",
    "sufficient statistics",
    "output perturbation",
    "output perturbation (record)",
    "DP-SGD, linear (record)",
)
#: Log loss is taken of probabilities no smaller than this: a single certain mistake would be infinite.
LEAST_PROBABILITY = 1e-6


class AdultLearners(Study):
    """Sixteen learners, three budgets, three measures, one data set."""

    name: ClassVar[str] = "adult-learners"
    title: ClassVar[str] = "Adult income: what each learner keeps at epsilon 0.1, 0.5 and 1"
    paper: ClassVar[str] = "none of the papers reports this data set, so that there is no such column"
    measure: ClassVar[str] = "AUC and accuracy in %, log loss in hundredths of a nat, on the test set"

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Fit every learner at every epsilon with every seed: some minutes on one core, most of them DP-SGD's."""
        need_opacus()
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        data = adult(quick=quick, directory=directory)
        scores: dict[tuple[float, str], Scored] = {}
        for i, epsilon in enumerate(EPSILONS):
            for j, case in enumerate(CASES):
                tell((i + j / len(CASES)) / len(EPSILONS), f"epsilon {epsilon:g}: {case.setting}")
                scores[epsilon, case.setting] = scored(case, data, epsilon, numbers)
        tell(1.0, "done")
        rows = tuple(_rows(scores, without_privacy(data)))
        command = f"labeldp study {self.name}{' --quick' if quick else ''}"
        facts = {
            **watch.facts(seeds=numbers, quick=quick, command=command),
            "examples to learn from": len(data.y_train),
            "examples to test on": len(data.y_test),
            "features": data.X_train.shape[1],
        }
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=rows,
            findings=findings(rows),
            facts=facts,
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """AUC and log loss against epsilon, one line per learner."""
        return tuple(_lines(result, measure) for measure in (AUC, LOG_LOSS))


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Adult, its rows of norm 1."""

    X_train: Floats
    y_train: npt.NDArray[np.int64]
    X_test: Floats
    y_test: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The measures of one setting, a tuple of three per seed, and what its guarantee says."""

    case: Case
    epsilon: float
    trust: str
    measures: tuple[tuple[float, float, float], ...]


def adult(*, quick: bool, directory: str | Path | None) -> Data:
    """Return the features, each row brought to norm 1 by itself; the quick version has fewer rows."""
    dataset = load("adult", directory=directory)
    train, test = (_unit(part) for part in dataset.matrix())
    rows = slice(QUICK_ROWS) if quick else slice(None)
    return Data(X_train=train[rows], y_train=dataset.y_train[rows], X_test=test, y_test=dataset.y_test)


def _unit(rows: Any) -> Floats:
    dense: Floats = np.asarray(rows, np.float64)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    scaled: Floats = dense / np.where(norms > 0, norms, 1.0)
    return scaled


def scored(case: Case, data: Data, epsilon: float, seeds: tuple[int, ...]) -> Scored:
    """Fit with each seed; the epsilon is the largest that the fitted guarantees state at the case's delta."""
    fitted = [case.make(epsilon, seed).fit(data.X_train, data.y_train) for seed in seeds]
    promises = [model.guarantee_ for model in fitted]
    return Scored(
        case=case,
        epsilon=max(promise.epsilon(case.delta) for promise in promises),
        trust=promises[0].trust.words,
        measures=tuple(measured(model, data) for model in fitted),
    )


def measured(model: Any, data: Data) -> tuple[float, float, float]:
    """Return AUC in %, log loss in hundredths of a nat, and accuracy in % on the test set."""
    second = np.clip(model.predict_proba(data.X_test)[:, 1], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    right = float(np.mean(model.predict(data.X_test) == data.y_test))
    return (
        100.0 * float(roc_auc_score(data.y_test, second)),
        100.0 * float(log_loss(data.y_test, second)),
        100.0 * right,
    )


def without_privacy(data: Data) -> tuple[float, float, float]:
    """Return the measures of logistic regression on the labels themselves."""
    return measured(LogisticRegression(max_iter=1000).fit(data.X_train, data.y_train), data)


def table_name(measure: str, epsilon: float) -> str:
    """Return the name of a table: what is measured, at which budget."""
    return f"{measure}, at epsilon {epsilon:g}"


def _rows(scores: dict[tuple[float, str], Scored], best: tuple[float, float, float]) -> list[StudyRow]:
    rows = []
    for i, measure in enumerate(MEASURES):
        for epsilon in EPSILONS:
            table = table_name(measure, epsilon)
            open_row = StudyRow(table=table, setting=OPEN, epsilon=math.inf, trust="everyone", values=(best[i],))
            rows.append(open_row)
            for case in CASES:
                one = scores[epsilon, case.setting]
                rows.append(
                    StudyRow(
                        table=table,
                        setting=case.setting,
                        epsilon=one.epsilon,
                        trust=one.trust,
                        values=tuple(measures[i] for measures in one.measures),
                        note=case.note,
                    )
                )
    return rows


def findings(rows: tuple[StudyRow, ...]) -> tuple[str, ...]:
    """Say, from the rows, who is best in each unit and how far from no privacy and from plain randomized response."""
    return (
        *(_at(rows, epsilon) for epsilon in EPSILONS),
        (
            "The units are different promises: under label privacy the features are public and one label is hidden; DP-SGD "
            "hides whether a person is in the data at all. In its unit a replaced label is one record removed and one added, "
            "so that for labels its epsilon is at most twice what is shown, at a delta of (1 + e^epsilon) times. Its rows leave "
            "out what the means and scales of the features reveal, which label privacy need not hide."
        ),
        (
            "Best is said of the test AUC in the tables, which is a look at the answer. Nothing was tuned: parameters are defaults or rules that see no label, the same at every epsilon, and rows have "
            "norm 1. Simplex ERM is made for many features of which few matter, and Adult is not of that kind. Test labels are "
            "taken as public, training labels were randomized from seeds: nothing here is private."
        ),
    )


def _at(rows: tuple[StudyRow, ...], epsilon: float) -> str:
    mine = [row for row in rows if row.table == table_name(AUC, epsilon)]
    losses = {row.setting: row for row in rows if row.table == table_name(LOG_LOSS, epsilon)}
    record = {case.setting for case in CASES if case.unit == "record"}
    label = [row for row in mine if row.setting not in record and row.setting != OPEN]
    named = {row.setting: row for row in mine}
    best = max(label, key=lambda row: row.mean)
    alone = max((row for row in label if row.trust == "no one"), key=lambda row: row.mean)
    whole = max((row for row in mine if row.setting in record), key=lambda row: row.mean)
    told = [
        f"{name} {row.setting} with AUC {row.mean:.1f}% (sd {row.spread:.1f}) and log loss {losses[row.setting].mean / 100:.3f}"
        for name, row in (
            ("best label-private", best),
            ("best that trusts no one", alone),
            ("best of record privacy", whole),
        )
    ]
    base = f"plain randomized response {named[PLAIN].mean:.1f}%, no privacy {named[OPEN].mean:.1f}%"
    return f"epsilon {epsilon:g}: " + "; ".join(told) + f"; for scale, {base}."


def _lines(result: StudyResult, measure: str) -> Lines:
    picked = [[row for row in result.rows if row.table == table_name(measure, epsilon)] for epsilon in EPSILONS]
    series = []
    for setting in DRAWN:
        mine = [next(row for row in rows if row.setting == setting) for rows in picked]
        series.append(
            Series(
                name=setting,
                x=EPSILONS,
                y=tuple(row.mean for row in mine),
                spreads=tuple(row.spread for row in mine),
            )
        )
    best = next(row for row in picked[0] if row.setting == OPEN).mean
    ends = "; ".join(f"{line.name} from {line.y[0]:.1f} to {line.y[-1]:.1f}" for line in series)
    return Lines(
        title=f"Adult: {measure} against epsilon",
        series=tuple(series),
        x_title="epsilon (of the unit that the name says; label where none is said)",
        y_title=measure,
        alt=f"From epsilon {EPSILONS[0]:g} to {EPSILONS[-1]:g}: {ends}. Without privacy {best:.1f}.",
        x_log=True,
        references=((OPEN, best),),
    )
