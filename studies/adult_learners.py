"""The study `adult-learners`: every convex learner on Adult's income, beside no privacy, randomized response and DP-SGD.

It answers: at epsilon 0.1, 0.5 and 1, what does each way of learning from private labels keep of AUC, log loss and
accuracy, and what would whole-record privacy have kept? The epsilons of different units are not the same promise: rows
of record privacy say so in their name and note. Nothing was tuned: every parameter is the learner's default or follows
a rule that sees no label. Rows are brought to norm 1, each by itself, so that the bound that sensitivity needs is 1 and
true.

>>> AdultLearners.name, len(EPSILONS) * len(MEASURES)
('adult-learners', 9)
>>> [learner.setting for learner in LEARNERS if learner.unit == "record"]
['output perturbation (record)', 'DP-SGD, linear (record)', 'DP-SGD, network (record)']

References: Ghazi et al. 2021, supplement F; Jain & Thakurta 2014; Chaudhuri, Monteleoni, Sarwate 2011; Abadi et al. 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from labeldp.arrays import Floats, Int64s
from labeldp.data import load
from labeldp.errors import missing_extra
from labeldp.learn import (
    LPRRSGD,
    LabelPrivateClassifier,
    LPNormalSGD,
    OutputPerturbation,
    SimplexERM,
    SoftmaxRegression,
    SufficientStatistics,
)
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import ClusterPrior
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow

EPSILONS = (0.1, 0.5, 1.0)
AUC, LOG_LOSS, ACCURACY = "AUC, %", "log loss, nats / 100", "accuracy, %"
MEASURES = (AUC, LOG_LOSS, ACCURACY)
OPEN, PLAIN = "no privacy", "randomized response, plain"
QUICK_ROWS = 4_000
DELTA = 1e-5
CLASSES = (0, 1)
#: One hidden layer, no wider than a third of the features.
HIDDEN = (32,)
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


@dataclass(frozen=True, kw_only=True)
class Learner:
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """A learner at an epsilon; None is logistic regression on the labels themselves."""

    epsilon: float
    learner: Learner | None

    @property
    def name(self) -> str:
        """The budget and the learner."""
        return f"epsilon {self.epsilon:g}: {OPEN if self.learner is None else self.learner.setting}"


class AdultLearners(Study[Case]):
    """Fifteen learners, three budgets, three measures, one data set: some minutes on one core, most of them DP-SGD's."""

    name: ClassVar[str] = "adult-learners"
    title: ClassVar[str] = "Adult income: what each learner keeps at epsilon 0.1, 0.5 and 1"
    paper: ClassVar[str] = "none of the papers reports this data set, so that there is no such column"
    measure: ClassVar[str] = "AUC and accuracy in %, log loss in hundredths of a nat, on the test set"
    needs: ClassVar[str] = "PyTorch and opacus"

    @cached_property
    def adult(self) -> Adult:
        """The features and labels."""
        return read_adult(quick=self.quick, directory=self.directory)

    @cached_property
    def ceiling(self) -> tuple[float, float, float]:
        """The measures of logistic regression on the labels themselves."""
        return score(LogisticRegression(max_iter=1000).fit(self.adult.X_train, self.adult.y_train), self.adult)

    def cases(self) -> Sequence[Case]:
        """Every learner at every epsilon, after the one without privacy."""
        need_opacus()
        return [Case(epsilon=epsilon, learner=learner) for epsilon in EPSILONS for learner in (None, *LEARNERS)]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Without privacy nothing is random."""
        return seeds[:1] if case.learner is None else seeds

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit once, and return the three measures; epsilon is what the fitted guarantee states at the learner's delta."""
        if case.learner is None:
            found, epsilon, trust, setting, note = self.ceiling, math.inf, "everyone", OPEN, ""
        else:
            model = case.learner.make(case.epsilon, seed).fit(self.adult.X_train, self.adult.y_train)
            found, setting, note = score(model, self.adult), case.learner.setting, case.learner.note
            epsilon, trust = model.guarantee_.epsilon(case.learner.delta), model.guarantee_.trust.words
        return [
            Measurement(
                table=table_name(measure, case.epsilon),
                setting=setting,
                epsilon=epsilon,
                trust=trust,
                value=value,
                note=note,
            )
            for measure, value in zip(MEASURES, found, strict=True)
        ]

    def arrange_rows(self, rows: Sequence[StudyRow]) -> Sequence[StudyRow]:
        """One measure after the other, each at all epsilons."""
        tables = [table_name(measure, epsilon) for measure in MEASURES for epsilon in EPSILONS]
        return sorted(rows, key=lambda row: tables.index(row.table))

    def facts(self) -> dict[str, Any]:
        """The size of the data."""
        return {
            "examples to learn from": len(self.adult.y_train),
            "examples to test on": len(self.adult.y_test),
            "features": self.adult.X_train.shape[1],
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say who is best in each unit, and how far from no privacy and from plain randomized response."""
        return (*(_compare(rows, epsilon) for epsilon in EPSILONS), UNITS, CHOSEN)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """AUC and log loss against epsilon, one line per learner."""
        return tuple(_lines(rows, measure) for measure in (AUC, LOG_LOSS))


UNITS = (
    "The units are different promises: under label privacy the features are public and one label is hidden; DP-SGD "
    "hides whether a person is in the data at all. In its unit a replaced label is one record removed and one added, "
    "so that for labels its epsilon is at most twice what is shown, at a delta of (1 + e^epsilon) times. Its rows leave "
    "out what the means and scales of the features reveal, which label privacy need not hide."
)
CHOSEN = (
    "Best is said of the test AUC in the tables, which is a look at the answer. Nothing was tuned: parameters are defaults "
    "or rules that see no label, the same at every epsilon, and rows have "
    "norm 1. Simplex ERM is made for many features of which few matter, and Adult is not of that kind. Test labels are "
    "taken as public, training labels were randomized from seeds: nothing here is private."
)


def table_name(measure: str, epsilon: float) -> str:
    """Return the name of a table: what is measured, at which budget."""
    return f"{measure}, at epsilon {epsilon:g}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Adult:
    """Adult, its rows of norm 1."""

    X_train: Floats
    y_train: Int64s
    X_test: Floats
    y_test: Int64s


def read_adult(*, quick: bool, directory: Any = None) -> Adult:
    """Return the features, each row brought to norm 1 by itself; the quick version has fewer rows."""
    dataset = load("adult", directory=directory)
    train, test = (_scale_rows(part) for part in dataset.matrix())
    rows = slice(QUICK_ROWS) if quick else slice(None)
    return Adult(X_train=train[rows], y_train=dataset.y_train[rows], X_test=test, y_test=dataset.y_test)


def _scale_rows(rows: Any) -> Floats:
    dense: Floats = np.asarray(rows, np.float64)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    scaled: Floats = dense / np.where(norms > 0, norms, 1.0)
    return scaled


def score(model: Any, data: Adult) -> tuple[float, float, float]:
    """Return AUC in %, log loss in hundredths of a nat, and accuracy in % on the test set."""
    second = np.clip(model.predict_proba(data.X_test)[:, 1], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    right = float(np.mean(model.predict(data.X_test) == data.y_test))
    return (
        100.0 * float(roc_auc_score(data.y_test, second)),
        100.0 * float(log_loss(data.y_test, second)),
        100.0 * right,
    )


def _make_response(correction: str, stages: int) -> Callable[[float, int], Any]:
    def make(epsilon: float, seed: int) -> Any:
        return LabelPrivateClassifier(
            SoftmaxRegression(),
            epsilon=epsilon,
            stages=stages,
            mechanism=RRWithPrior(epsilon),
            correction=correction,
            classes=CLASSES,
            random_state=seed,
        )

    return make


def _make_with(learner: Callable[..., Any], **settings: Any) -> Callable[[float, int], Any]:
    def make(epsilon: float, seed: int) -> Any:
        return learner(epsilon=epsilon, classes=CLASSES, random_state=seed, **settings)

    return make


def make_private_sgd(**settings: Any) -> Any:
    """Return a DPSGDClassifier; torch and opacus are an extra, and come with the first of them."""
    from labeldp.nn import DPSGDClassifier

    return DPSGDClassifier(**settings)


def need_opacus() -> None:
    """Raise MissingExtraError at once, rather than after the other learners have run."""
    for package in ("torch", "opacus"):
        if find_spec(package) is None:
            raise missing_extra(package, package, "DPSGDClassifier")


LEARNERS = (
    Learner(setting=PLAIN, make=_make_response("none", 1)),
    Learner(setting="randomized response, forward", make=_make_response("forward", 1)),
    Learner(setting="two stages, forward", make=_make_response("forward", 2)),
    Learner(setting="LP-RR-SGD", make=_make_with(LPRRSGD, clip=1.0)),
    Learner(setting="LP-RR-SGD, cluster prior", make=_make_with(LPRRSGD, clip=1.0, prior=ClusterPrior())),
    Learner(setting="LP-Normal-SGD", make=_make_with(LPNormalSGD, clip=1.0, delta=DELTA), delta=DELTA),
    Learner(setting="sufficient statistics, pure", make=_make_with(SufficientStatistics, clip=1.0, delta=0.0)),
    Learner(setting="sufficient statistics", make=_make_with(SufficientStatistics, clip=1.0, delta=DELTA), delta=DELTA),
    Learner(
        setting="sufficient statistics, softmax",
        make=_make_with(SufficientStatistics, clip=1.0, delta=DELTA, head="softmax"),
        delta=DELTA,
    ),
    Learner(setting="simplex ERM, pure", make=_make_with(SimplexERM, clip=1.0, delta=0.0)),
    Learner(setting="simplex ERM", make=_make_with(SimplexERM, clip=1.0, delta=DELTA), delta=DELTA),
    Learner(setting="output perturbation", make=_make_with(OutputPerturbation, clip=1.0, delta=DELTA), delta=DELTA),
    Learner(
        setting="output perturbation (record)",
        make=_make_with(OutputPerturbation, clip=1.0, delta=DELTA, unit="record"),
        delta=DELTA,
        unit="record",
    ),
    Learner(
        setting="DP-SGD, linear (record)", make=_make_with(make_private_sgd, delta=DELTA), delta=DELTA, unit="record"
    ),
    Learner(
        setting="DP-SGD, network (record)",
        make=_make_with(make_private_sgd, delta=DELTA, hidden=HIDDEN),
        delta=DELTA,
        unit="record",
    ),
)


def _compare(rows: Sequence[StudyRow], epsilon: float) -> str:
    mine = [row for row in rows if row.table == table_name(AUC, epsilon)]
    losses = {row.setting: row for row in rows if row.table == table_name(LOG_LOSS, epsilon)}
    record = {one.setting for one in LEARNERS if one.unit == "record"}
    label = [row for row in mine if row.setting not in record and row.setting != OPEN]
    named = {row.setting: row for row in mine}
    best: dict[str, StudyRow] = {}
    for row in sorted(label, key=lambda row: (row.trust != "no one", row.promise)):
        if row.promise not in best or row.mean > best[row.promise].mean:
            best[row.promise] = row
    whole = max((row for row in mine if row.setting in record), key=lambda row: row.mean)
    chosen = [
        *((f"best that {promise}:", row) for promise, row in best.items()),
        (f"a record, {whole.promise}:", whole),
    ]
    told = [
        f"{name} {row.setting} with AUC {row.mean:.1f}% (sd {row.spread:.1f}) and log loss {losses[row.setting].mean / 100:.3f}"
        for name, row in chosen
    ]
    base = f"plain randomized response {named[PLAIN].mean:.1f}%, no privacy {named[OPEN].mean:.1f}%"
    return f"epsilon {epsilon:g}: " + "; ".join(told) + f"; for scale, {base}."


def _lines(rows: Sequence[StudyRow], measure: str) -> Lines:
    picked = [[row for row in rows if row.table == table_name(measure, epsilon)] for epsilon in EPSILONS]
    series = []
    for setting in DRAWN:
        mine = [next(row for row in table if row.setting == setting) for table in picked]
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
