"""The study `tables`: ordinary classifiers on ordinary tables, and whether their probabilities are true.

It answers: for classifiers that take labels and weights, what do released labels leave of log loss, AUC and calibration, by
posterior weights ("before": what `correction="auto"` once was) and by cross-fitting ("the rule": what it is now),
beside no privacy and beside a constant, and how many plain fits does it cost? Adult, credit default, diabetes readmission in three
classes; 12,000 rows of each to learn from. Columns are raw: categories become columns of 0 and 1, by one of scikit-learn's
transformers that sees no label, numbers stay as they are (scaled for LogisticRegression, whose solver needs it).

>>> Tables.name, len(MEASURES)
('tables', 6)
>>> [release.name for release in RELEASES][:5]
['labels', 'candidate sets', 'two stages', 'optimal response', 'cluster prior']
>>> [release.name for release in RELEASES][5:]
['cluster prior of scaled columns', 'informative answers', 'informative answers, public prior', 'informative answers, cluster prior']

Settings are the classifiers' defaults, with leaves of 20 rows for the forest. The two numbers of the rule that were chosen by labels,
the exponent of its second slope, and the rows by which a prior is held, were chosen on rows of Adult's training part alone; test
parts were not looked at before this.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from labeldp.arrays import Floats, Int64s
from labeldp.data import load
from labeldp.errors import missing_extra
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.mechanisms import InformativeResponse, OptimalResponse, RandomizedResponse, RRWithPrior
from labeldp.priors import ClusterPrior, PublicPrior
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow

EPSILONS = (0.5, 1.0, 2.0, 4.0)
DATA_SETS = ("adult", "credit-default", "diabetes-readmission")
ROWS, TEST_ROWS, PUBLIC_ROWS, QUICK_ROWS = 12_000, 8_000, 2_000, 1_500
LOG_LOSS, AUC, OFFSET, ECE, ACCURACY, COST = (
    "log loss, nats / 100",
    "AUC, %",
    "mean probability minus base rate, points",
    "calibration error (ECE, 15 bins), points",
    "accuracy, %",
    "CPU time in plain fits",
)
MEASURES = (LOG_LOSS, AUC, OFFSET, ECE, ACCURACY, COST)
BEFORE, RULE, FORWARD, OPEN, CONSTANT = "before", "the rule", "forward", "no privacy", "constant"
LEAST_PROBABILITY = 1e-6
SOFTMAX = "built-in softmax"


def make_lightgbm() -> Any:
    """Return LightGBM's classifier, one thread, silent."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, verbose=-1, random_state=0)


def make_xgboost() -> Any:
    """Return XGBoost's classifier, one thread."""
    from xgboost import XGBClassifier

    return XGBClassifier(n_jobs=1, random_state=0)


#: How to make each classifier, by its name in the tables.
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "LightGBM": make_lightgbm,
    "LogisticRegression": lambda: LogisticRegression(max_iter=500),
    SOFTMAX: SoftmaxRegression,
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "RandomForest": lambda: RandomForestClassifier(min_samples_leaf=20, random_state=0),
    "XGBoost": make_xgboost,
}


@dataclass(frozen=True, kw_only=True)
class ReleaseKind:
    """A way to release: its name, what to tell LabelPrivateClassifier, whom it trusts, and where it is run.

    Mechanisms are named here, so that a row means the same whatever the classifier's default is.
    """

    name: str
    make: Callable[[Any], dict[str, Any]]
    trust: str = "no one"
    data_sets: tuple[str, ...] = DATA_SETS
    epsilons: tuple[float, ...] = EPSILONS
    estimators: tuple[str, ...] = tuple(ESTIMATORS)
    #: Whether columns of numbers are scaled for every estimator.
    scaled: bool = False


#: The estimators and budgets of the other kinds of release.
FEW, MIDDLE = ("LightGBM", "LogisticRegression"), (1.0, 2.0)
RELEASES = (
    ReleaseKind(name="labels", make=lambda _: {"mechanism": RandomizedResponse(1.0)}),
    ReleaseKind(
        name="candidate sets",
        make=lambda part: {"prior": PublicPrior(part.public_model), "mechanism": RRWithPrior(1.0)},
        data_sets=("adult", "diabetes-readmission"),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
    ReleaseKind(
        name="two stages",
        make=lambda _: {"stages": 2, "mechanism": RRWithPrior(1.0)},
        data_sets=("adult",),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
    ReleaseKind(
        name="optimal response",
        make=lambda _: {"mechanism": OptimalResponse(1.0)},
        data_sets=("diabetes-readmission",),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
    ReleaseKind(
        name="cluster prior",
        make=lambda _: {"prior": ClusterPrior(), "mechanism": RRWithPrior(1.0)},
        trust="a curator",
        data_sets=("adult",),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
    ReleaseKind(
        name="cluster prior of scaled columns",
        make=lambda _: {"prior": ClusterPrior(), "mechanism": RRWithPrior(1.0)},
        trust="a curator",
        data_sets=("adult",),
        epsilons=MIDDLE,
        estimators=("LightGBM",),
        scaled=True,
    ),
    ReleaseKind(
        name="informative answers",  # of two classes they are randomized response
        make=lambda _: {"mechanism": InformativeResponse(1.0)},
        data_sets=("diabetes-readmission",),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
    ReleaseKind(
        name="informative answers, public prior",
        make=lambda part: {"prior": PublicPrior(part.public_model), "mechanism": InformativeResponse(1.0)},
        data_sets=("adult", "diabetes-readmission"),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
    ReleaseKind(
        name="informative answers, cluster prior",
        make=lambda _: {"prior": ClusterPrior(), "mechanism": InformativeResponse(1.0)},
        trust="a curator",
        data_sets=("adult",),
        epsilons=MIDDLE,
        estimators=FEW,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table, a classifier, a kind of release and a budget."""

    data_set: str
    estimator: str
    release: ReleaseKind
    epsilon: float

    @property
    def scaled(self) -> bool:
        """Whether columns of numbers are scaled: a linear model's solver needs it, and k-means."""
        return self.release.scaled or self.estimator == "LogisticRegression"

    @property
    def name(self) -> str:
        """All four."""
        return f"{self.data_set}, {self.estimator}, {self.release.name}, epsilon {self.epsilon:g}"


class Tables(Study[Case]):
    """Six classifiers, three tables, four budgets, and eight other kinds of release."""

    name: ClassVar[str] = "tables"
    title: ClassVar[str] = "Ordinary classifiers on ordinary tables: are the probabilities true?"
    paper: ClassVar[str] = "none of the papers reports these, so that there is no such column"
    measure: ClassVar[str] = "as each table's name says, on test rows"
    needs: ClassVar[str] = "credit-default, diabetes-readmission; LightGBM and XGBoost"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    @cached_property
    def tables(self) -> dict[str, Prepared]:
        """The tables, as matrices."""
        return {}

    @cached_property
    def open_models(self) -> dict[tuple[str, str, bool, int], tuple[tuple[float, ...], float]]:
        """What was measured without privacy, and the CPU seconds of that plain fit."""
        return {}

    def cases(self) -> Sequence[Case]:
        """Every classifier on every table at every budget, and the other releases."""
        for package in ("lightgbm", "xgboost"):
            if find_spec(package) is None:
                raise missing_extra(package, "boosting", "the study tables")
        return [
            Case(data_set=data_set, estimator=estimator, release=release, epsilon=epsilon)
            for release in RELEASES
            for data_set in release.data_sets
            for estimator in release.estimators
            for epsilon in release.epsilons
        ]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit by both corrections on the same release, and once without privacy."""
        with threadpool_limits(limits=1), warnings.catch_warnings():
            # A plain solver that stops at its limit does so with and without privacy; the figures say what it is worth.
            warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")
            return self._run_case(case, seed)

    @cached_property
    def warm(self) -> bool:
        """Whether loops are compiled, which would count as the CPU time of the first fit: they are, once this was asked."""
        LabelPrivateClassifier(epsilon=1.0, classes=range(2), random_state=0).fit(np.eye(4), [0, 1, 0, 1])
        return True

    def _run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        assert self.warm
        if case.data_set not in self.tables:
            self.tables[case.data_set] = Prepared(case.data_set, quick=self.quick, directory=self.directory)
        part = self.tables[case.data_set].draw(seed, scaled=case.scaled)
        key = (case.data_set, case.estimator, case.scaled, seed)
        if key not in self.open_models:
            model, seconds = time_fit(ESTIMATORS[case.estimator](), part.X, part.y)
            self.open_models[key] = (*score(model.predict_proba(part.X_test), part.y_test), 1.0), seconds
        found, plain = self.open_models[key]
        rows = [(OPEN, math.inf, "everyone", found)]
        rates = np.bincount(part.y, minlength=part.n_classes) / len(part.y)
        guess = score(np.tile(rates, (len(part.y_test), 1)), part.y_test)
        rows.append((CONSTANT, math.inf, "everyone", (*guess, 0.0)))
        ways = ((FORWARD, "forward"),) if case.estimator == SOFTMAX else ((BEFORE, "posterior"), (RULE, "auto"))
        for setting, correction in ways:
            learner = LabelPrivateClassifier(
                clone(ESTIMATORS[case.estimator]()),
                epsilon=case.epsilon,
                correction=correction,
                classes=range(part.n_classes),
                random_state=seed,
                **case.release.make(part),
            )
            model, seconds = time_fit(learner, part.X, part.y)
            measured = (*score(model.predict_proba(part.X_test), part.y_test), seconds / plain)
            rows.append((setting, model.guarantee_.epsilon(), case.release.trust, measured))
        return [
            Measurement(
                table=table_name(case.data_set, measure),
                setting=setting_name(case.estimator, way, case.release.name, case.epsilon),
                epsilon=epsilon,
                trust=trust,
                value=value,
            )
            for way, epsilon, trust, values in rows
            for measure, value in zip(MEASURES, values, strict=True)
        ]

    def arrange_rows(self, rows: Sequence[StudyRow]) -> Sequence[StudyRow]:
        """One table and measure after the other; what stands for all epsilons, once."""
        once: dict[tuple[str, str], StudyRow] = {}
        for row in rows:
            once.setdefault((row.table, row.setting), row)
        order = [table_name(data_set, measure) for data_set in DATA_SETS for measure in MEASURES]
        return sorted(once.values(), key=lambda row: order.index(row.table))

    def facts(self) -> dict[str, Any]:
        """The sizes, and how settings were chosen."""
        return {
            "rows to learn from": QUICK_ROWS if self.quick else ROWS,
            "rows to test on": f"at most {TEST_ROWS}",
            "settings": "defaults; forest with leaves of 20. The rule's exponent and its hold on priors: on Adult's training part.",
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Compare the rule with what was before, in each measure."""
        return (*(compare(rows, data_set) for data_set in DATA_SETS), compare_others(rows), LIMITS)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Log loss against epsilon, one plot per table."""
        return tuple(draw_losses(rows, data_set) for data_set in DATA_SETS)


LIMITS = (
    "Base rates are estimated from the release too: of 12,000 labels by randomized response their standard error is .019 at "
    "epsilon .5 and .010 at 1, whatever the estimator. At epsilon .5 on nearly linear data the built-in softmax is "
    "better than the rule. HistGradientBoosting is dear because scikit-learn (1.9) sorts a column once for each of 254 "
    "quantiles where rows have weights (on credit-default one weighted fit costs six plain ones), and because halves, below "
    "10,000 rows, do not stop early as a plain fit of all rows does. "
    "The cluster prior of raw columns is a prior of census weights, the column with the largest numbers: it says "
    "little, RRWithPrior then answers most rows with its guess, and such answers say nothing; scaled columns mend "
    "that, and informative answers a part of it. Labels were randomized from seeds: nothing here is private."
)


def setting_name(estimator: str, way: str, release: str, epsilon: float) -> str:
    """Return the name of a row; what does not depend on epsilon has none in its name."""
    if way == CONSTANT:
        return CONSTANT
    if way == OPEN:
        return f"{estimator}: {OPEN}"
    return f"{estimator}: {way}, {'' if release == 'labels' else release + ', '}epsilon {epsilon:g}"


def table_name(data_set: str, measure: str) -> str:
    """Return the name of a table of the page."""
    return f"{data_set}: {measure}"


# ------------------------------------------------------------------------------------------------ data and measures


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The rows of one seed, and a model of other rows whose labels are taken as public."""

    X: Floats
    y: Int64s
    X_test: Floats
    y_test: Int64s
    X_public: Floats
    y_public: Int64s
    n_classes: int

    @cached_property
    def public_model(self) -> Any:
        """A forest of the public rows: a prior."""
        return RandomForestClassifier(50, min_samples_leaf=20, random_state=0).fit(self.X_public, self.y_public)


class Prepared:
    """A table as matrices, raw and with scaled numbers, made without a look at a label."""

    def __init__(self, name: str, *, quick: bool, directory: Any) -> None:
        found = load(name, directory=directory)
        names = [column for column in found.feature_names if column not in found.identifiers]
        words = [column for column in names if column in found.categorical]
        numbers = [column for column in names if column not in found.categorical]
        train, test = (table.select(names).to_pandas() for table in (found.X_train, found.X_test))
        train[words], test[words] = train[words].astype(str), test[words].astype(str)
        hot = OneHotEncoder(min_frequency=0.01, handle_unknown="infrequent_if_exist", sparse_output=False)
        self._matrices = {}
        for scaled in (False, True):
            prepare = ColumnTransformer(
                [("n", StandardScaler() if scaled else "passthrough", numbers), ("w", hot, words)]
            )
            self._matrices[scaled] = prepare.fit_transform(train), prepare.transform(test)
        self._y, self._y_test, self._n_classes = found.y_train, found.y_test, found.n_classes
        self._rows = QUICK_ROWS if quick else ROWS

    def training(self, *, scaled: bool) -> tuple[Floats, Int64s]:
        """Return all rows of the training part."""
        return self._matrices[scaled][0], self._y

    def draw(self, seed: int, *, scaled: bool) -> Part:
        """Return the rows of a seed; the test rows are the same for all."""
        order = np.random.default_rng(seed).permutation(len(self._y))
        mine, public = order[: self._rows], order[self._rows : self._rows + PUBLIC_ROWS]
        held = np.random.default_rng(0).permutation(len(self._y_test))[: QUICK_ROWS if self._rows < ROWS else TEST_ROWS]
        X, X_test = self._matrices[scaled]
        return Part(
            X=X[mine],
            y=self._y[mine],
            X_test=X_test[held],
            y_test=self._y_test[held],
            X_public=X[public],
            y_public=self._y[public],
            n_classes=self._n_classes,
        )


def time_fit(model: Any, X: Floats, y: Int64s) -> tuple[Any, float]:
    """Return the fitted model and the CPU seconds of its fit."""
    start = time.process_time()
    model.fit(X, y)
    return model, time.process_time() - start


def score(chances: Floats, y: Int64s) -> tuple[float, ...]:
    """Return the measures of probabilities (n, K), but for the cost.

    The offset is of the second class of two, and of three of the class where it is largest; AUC and ECE of three classes are
    means over one class against the others.
    """
    n_classes = chances.shape[1]
    safe = np.clip(np.asarray(chances, np.float64), LEAST_PROBABILITY, None)
    safe /= safe.sum(axis=1, keepdims=True)
    right = 100.0 * float(np.mean(safe.argmax(axis=1) == y))
    columns = [1] if n_classes == 2 else list(range(n_classes))
    offsets = [float(safe[:, k].mean() - np.mean(y == k)) for k in columns]
    constant = bool((safe == safe[0]).all())
    area = 0.5 if constant else float(np.mean([roc_auc_score(y == k, safe[:, k]) for k in columns]))
    gaps = float(np.mean([calibration_error(safe[:, k], y == k) for k in columns]))
    loss = float(log_loss(y, safe, labels=np.arange(n_classes)))
    return 100 * loss, 100 * area, 100 * max(offsets, key=abs), 100 * gaps, right


def calibration_error(chances: Floats, hits: Any, *, bins: int = 15) -> float:
    """Return the expected calibration error over bins of equal numbers of rows."""
    order = np.argsort(chances, kind="stable")
    gaps = [
        abs(float(hits[one].mean() - chances[one].mean())) * len(one) for one in np.array_split(order, bins) if len(one)
    ]
    return sum(gaps) / len(chances)


# ------------------------------------------------------------------------------------------------ words and plots


def find_mean(rows: Sequence[StudyRow], data_set: str, measure: str, setting: str) -> float | None:
    """Return the mean of a row, or None if it was not run."""
    table = table_name(data_set, measure)
    return next((row.mean for row in rows if row.table == table and row.setting == setting), None)


def pair_up(
    rows: Sequence[StudyRow], data_set: str, measure: str, *, release: str
) -> list[tuple[str, float, float, float]]:
    """Return estimator, epsilon, before and after, wherever both were run."""
    pairs = []
    for estimator in ESTIMATORS:
        for epsilon in EPSILONS:
            settings = [setting_name(estimator, way, release, epsilon) for way in (BEFORE, RULE)]
            before, after = (find_mean(rows, data_set, measure, setting) for setting in settings)
            if before is not None and after is not None:
                pairs.append((estimator, epsilon, before, after))
    return pairs


def compare(rows: Sequence[StudyRow], data_set: str) -> str:
    """Say for one table where the rule is ahead, and its worst offset and cost."""
    losses = pair_up(rows, data_set, LOG_LOSS, release="labels")
    areas = pair_up(rows, data_set, AUC, release="labels")
    if not losses:
        return f"{data_set}: not run."
    ahead = sum(after < before for _, _, before, after in losses)
    above = sum(after > before - 0.1 for _, _, before, after in areas)
    offsets = [abs(after) for _, e, _, after in pair_up(rows, data_set, OFFSET, release="labels") if e >= 1]
    old = [abs(before) for _, e, before, _ in pair_up(rows, data_set, OFFSET, release="labels") if e >= 1]
    costs = pair_up(rows, data_set, COST, release="labels")
    most = max(costs, key=lambda pair: pair[3])
    light = [after for name, _, _, after in costs if name != "HistGradientBoosting"]
    behind = ", ".join(f"{name} at {e:g} ({b:.1f} to {a:.1f})" for name, e, b, a in losses if a >= b) or "nowhere"
    return (
        f"{data_set}: the rule has the smaller log loss in {ahead} of {len(losses)} pairs (behind: {behind}) and an AUC "
        f"no more than .1 points lower in {above} of {len(areas)}; mean probabilities at epsilon >= 1 are off by at most "
        f"{max(offsets):.1f} points (before: {max(old):.1f}); it costs {np.mean([pair[3] for pair in costs]):.1f} plain fits "
        f"on average ({np.mean(light):.1f} without HistGradientBoosting), and {most[3]:.1f} at most ({most[0]} at {most[1]:g}, "
        f"before: {most[2]:.1f})."
    )


def compare_others(rows: Sequence[StudyRow]) -> str:
    """Say the same of the other kinds of release."""
    told = []
    for release in RELEASES[1:]:
        for data_set in release.data_sets:
            losses = pair_up(rows, data_set, LOG_LOSS, release=release.name)
            offsets = [abs(after) for *_, after in pair_up(rows, data_set, OFFSET, release=release.name)]
            if losses:
                listed = "; ".join(f"{name} at {e:g}: {b / 100:.3f} to {a / 100:.3f}" for name, e, b, a in losses)
                told.append(
                    f"{release.name} on {data_set}, log loss {listed} (offset at most {max(offsets):.1f} points)"
                )
    return "Other releases. " + ". ".join(told) + "." if told else "Other releases: not run."


def draw_losses(rows: Sequence[StudyRow], data_set: str) -> Lines:
    """Draw log loss against epsilon, before and after, for each classifier."""
    series = []
    for estimator in ESTIMATORS:
        for way in (BEFORE, RULE, FORWARD):
            found = [
                (epsilon, find_mean(rows, data_set, LOG_LOSS, setting_name(estimator, way, "labels", epsilon)))
                for epsilon in EPSILONS
            ]
            known = [(epsilon, value) for epsilon, value in found if value is not None]
            if known:
                x, y = zip(*known, strict=True)
                series.append(Series(name=f"{estimator}: {way}", x=x, y=y, spreads=tuple(0.0 for _ in x)))
    flat = find_mean(rows, data_set, LOG_LOSS, CONSTANT)
    ends = "; ".join(f"{line.name} from {line.y[0]:.1f} to {line.y[-1]:.1f}" for line in series)
    return Lines(
        title=f"{data_set}: log loss against epsilon",
        series=tuple(series),
        x_title="epsilon",
        y_title=LOG_LOSS,
        alt=f"From epsilon {EPSILONS[0]:g} to {EPSILONS[-1]:g}: {ends}.",
        x_log=True,
        references=() if flat is None else ((CONSTANT, flat),),
    )
