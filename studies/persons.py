"""The study `persons`: what it costs to protect all labels of a person together, and which way to do it costs least.

It answers, on the hospital stays of diabetes patients (up to 40 stays of one): what do AUC and log loss become when epsilon is for a
person and not for a label, by answers (no one trusted) and by a curator's sums, and how does the default compare with one row of each
by chance, with equal shares, and with group privacy for whoever has most rows? Then, on simulated tables whose numbers of rows
per person have a Zipf tail: how fast does accuracy fall as the tail grows, and from where on does it pay to cap a person's rows?

>>> Persons.name, EPSILONS
('persons', (0.5, 1.0, 2.0))
>>> [way.name for way in WAYS]
['default', 'one row by chance', 'equal shares', 'group privacy', 'label unit', 'default', 'one row by chance', 'group privacy', 'label unit']

Five defaults of labeldp were chosen after a look at this table: rows by chance and not by information, one stage for up to three
classes, one weight for all rows of a person in sums, columns scaled as persons count, and answers that count by the fourth root of
a person's rows. The looks were at models of 16,000 patients of the train part, drawn by the seeds 0, 1 and 2, on the patients of the
test part, and, for the last one, at models of 12,000 of those patients, tested on the others of them. None of these patients is used here
(`find_fresh`). Of the others each seed learns from 12,000, drawn anew, and tests on all stays of the rest. Models are linear, on scaled
numbers and frequent categories.

Most patients have one stay, where all ways but group privacy are the same. So the answers are compared once more on patients of two stays
or more alone: 3,000 to learn from, and all stays of the others to test on.

*Common random numbers.* The default and "one row by chance" of answers share everything but the weights of training: both learn from one release,
the same rows and the same noise. What differs between them is then the weights, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq
from sklearn.compose import ColumnTransformer
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from labeldp.accounting import analytic_gaussian_sigma
from labeldp.arrays import Floats, Int64s
from labeldp.data import load
from labeldp.learn import LabelPrivateClassifier, PrivateGLM, SoftmaxRegression
from labeldp.mechanisms import InformativeResponse, most_information
from labeldp.release import LabelCounts, SensitiveLabels, measure, privatize
from labeldp.release.persons import Persons as Owners
from labeldp.release.persons import best_cap, choose_rows, compare_ways
from labeldp.report import Lines, Plot, Series
from studies.study import Measurement, Study, StudyRow

EPSILONS = (0.5, 1.0, 2.0)
DELTA = 1e-5
PATIENTS, QUICK_PATIENTS = 12_000, 1_500
#: Of patients with two stays or more.
RETURNED, QUICK_RETURNED = 3_000, 500
#: The patients on whom defaults were chosen: those of the test part, and so many of the train part by each of these seeds.
LOOKED_AT, LOOKED_SEEDS = 16_000, (0, 1, 2)
LEAST_PROBABILITY = 1e-6
AUC, LOG_LOSS = "AUC, %", "log loss, nats / 100"
MEASURES = (AUC, LOG_LOSS)
ANSWERS, SUMS = "answers", "a curator's sums"
DEFAULT, CHANCE, SHARES, GROUP, LABEL = "default", "one row by chance", "equal shares", "group privacy", "label unit"
OPEN, CONSTANT = "no privacy", "constant"
INFORMATION = "information of a person's answers, nats / 1000 (exact)"
TAILS, ROWS_MOST, SIMULATED = (3.5, 2.5, 2.0, 1.7), 200, 8_000
ACCURACY, SHARE = "Zipf tables: accuracy, %", "Zipf tables: mean error of a share of labels, points"
#: Which labels are asked for, and the classes that they have.
TARGETS = {"within 30 days": 2, "three classes": 3}
#: What is said of a target where patients with one stay are left out.
SEVERAL = "patients of two stays or more"


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to learn at an epsilon: `fit(part, epsilon, seed)` returns probabilities of the test rows, epsilon, trust."""

    name: str
    kind: str
    fit: Callable[[Part, float, int], tuple[Floats, float, str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The rows of one seed, who owns them, and the rows to test on."""

    X: Floats
    y: Int64s
    persons: Owners
    X_test: Floats
    y_test: Int64s
    n_classes: int


def learn_answers(**settings: Any) -> Callable[[Part, float, int], tuple[Floats, float, str]]:
    """Return the way of LabelPrivateClassifier, for persons unless `persons` is False."""
    mine = settings.pop("persons", True)

    def fit(part: Part, epsilon: float, seed: int) -> tuple[Floats, float, str]:
        model = LabelPrivateClassifier(epsilon=epsilon, classes=range(part.n_classes), random_state=seed, **settings)
        model.fit(part.X, part.y, **({"persons": part.persons} if mine else {}))
        return model.predict_proba(part.X_test), model.guarantee_.epsilon(), model.guarantee_.trust.words

    return fit


def learn_release(way: str) -> Callable[[Part, float, int], tuple[Floats, float, str]]:
    """Return the way of one release whose answers count alike: that of the default, one row by chance, or one of all rows."""

    def fit(part: Part, epsilon: float, seed: int) -> tuple[Floats, float, str]:
        if way == "one":  # the default's own release: a row of each by chance, and the same noise
            owner = LabelPrivateClassifier(epsilon=epsilon, classes=range(part.n_classes), random_state=seed)
            release = owner.fit(part.X, part.y, persons=part.persons).release_
        else:
            labels = SensitiveLabels(part.y, n_classes=part.n_classes)
            mechanism = InformativeResponse(epsilon, n_classes=part.n_classes)
            release = privatize(labels, mechanism, persons=part.persons, persons_way=way, rng=seed)
        model = LabelPrivateClassifier(random_state=seed).fit_release(part.X, release)
        return model.predict_proba(part.X_test), model.guarantee_.epsilon(), model.guarantee_.trust.words

    return fit


def learn_sums(way: str) -> Callable[[Part, float, int], tuple[Floats, float, str]]:
    """Return the way of PrivateGLM: weighted rows of persons, one row of each, all rows for the most of anyone, or labels."""

    def fit(part: Part, epsilon: float, seed: int) -> tuple[Floats, float, str]:
        rows, spent = np.arange(len(part.y)), epsilon
        if way == CHANCE:
            rows = choose_rows(part.persons, 1, score=np.random.default_rng(seed).random(len(part.y)))
        if way == GROUP:
            spent = shrink_epsilon(epsilon, part.persons.most_rows)
        model = PrivateGLM("multinomial", epsilon=spent, delta=DELTA, classes=range(part.n_classes), random_state=seed)
        model.fit(part.X[rows], part.y[rows], **({"persons": part.persons} if way == DEFAULT else {}))
        return model.predict_proba(part.X_test), epsilon, model.guarantee_.trust.words

    return fit


def shrink_epsilon(epsilon: float, rows: int) -> float:
    """Return the epsilon of one label whose Gaussian noise, at so many times the sensitivity, keeps epsilon.

    >>> round(shrink_epsilon(1.0, 40), 4) < 1 / 20
    True
    """
    wanted = analytic_gaussian_sigma(epsilon=epsilon, delta=DELTA, sensitivity=float(rows))

    def over(log_epsilon: float) -> float:
        return analytic_gaussian_sigma(epsilon=math.exp(log_epsilon), delta=DELTA, sensitivity=1.0) - wanted

    return math.exp(float(brentq(over, math.log(epsilon / rows / 100), math.log(epsilon), xtol=1e-9)))


WAYS = (
    Way(name=DEFAULT, kind=ANSWERS, fit=learn_answers()),
    Way(name=CHANCE, kind=ANSWERS, fit=learn_release("one")),
    Way(name=SHARES, kind=ANSWERS, fit=learn_release("shares")),
    Way(name=GROUP, kind=ANSWERS, fit=learn_release("group")),
    Way(name=LABEL, kind=ANSWERS, fit=learn_answers(persons=False)),
    Way(name=DEFAULT, kind=SUMS, fit=learn_sums(DEFAULT)),
    Way(name=CHANCE, kind=SUMS, fit=learn_sums(CHANCE)),
    Way(name=GROUP, kind=SUMS, fit=learn_sums(GROUP)),
    Way(name=LABEL, kind=SUMS, fit=learn_sums(LABEL)),
)
#: Of the three classes alone: two stages, and in the second rows by chance, or those of most expected information.
STAGED = tuple(
    Way(name=f"two stages, rows by {rows}", kind=ANSWERS, fit=learn_answers(stages=(0.25, 0.75), person_rows=rows))
    for rows in ("chance", "information")
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Something to measure: a target of the stays at an epsilon, or a simulated table with a tail."""

    part: str
    what: str
    epsilon: float = math.inf

    @property
    def name(self) -> str:
        """All of it."""
        return f"{self.part}, {self.what}" + ("" if math.isinf(self.epsilon) else f", epsilon {self.epsilon:g}")


class Persons(Study[Case]):
    """Stays of diabetes patients, two targets, three budgets, nine ways; and simulated tails."""

    name: ClassVar[str] = "persons"
    title: ClassVar[str] = "The person as unit: what does it cost to protect all labels of a person together?"
    paper: ClassVar[str] = "none of the papers reports these, so that there is no such column"
    measure: ClassVar[str] = "as each table's name says; of stays and simulated rows that were held out"
    needs: ClassVar[str] = "diabetes-readmission"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    @cached_property
    def stays(self) -> Stays:
        """The table, as matrices."""
        sizes = (QUICK_PATIENTS, QUICK_RETURNED) if self.quick else (PATIENTS, RETURNED)
        return Stays(directory=self.directory, patients=sizes[0], returned=sizes[1])

    def cases(self) -> Sequence[Case]:
        """Both targets at all budgets, the information of answers, and the tails."""
        assert len(self.stays.fresh)  # missing data is an error here
        found = [Case(part=part, what=t, epsilon=e) for part in ("stays", "several") for t in TARGETS for e in EPSILONS]
        found += [Case(part="information", what=target, epsilon=e) for target in TARGETS for e in EPSILONS]
        return [*found, *(Case(part="zipf", what=f"tail {tail:g}") for tail in TAILS)]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Information is exact: the patients of one seed."""
        return seeds[:1] if case.part == "information" else seeds

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Measure one case on one core."""
        with threadpool_limits(limits=1):
            if case.part in ("stays", "several"):
                return self._learn(case, seed)
            return self._tell(case, seed) if case.part == "information" else simulate(case, seed, quick=self.quick)

    def _learn(self, case: Case, seed: int) -> Sequence[Measurement]:
        several = case.part == "several"
        part = self.stays.draw(case.what, seed, several=several)
        rates = np.bincount(part.y, minlength=part.n_classes) / len(part.y)
        plain = SoftmaxRegression().fit(part.X, part.y).predict_proba(part.X_test)
        rows: list[tuple[str, float, str, Floats]] = [
            (CONSTANT, math.inf, "everyone", np.tile(rates, (len(part.y_test), 1))),
            (OPEN, math.inf, "everyone", plain),
        ]
        if several:
            ways = tuple(way for way in WAYS if way.kind == ANSWERS)
        else:
            ways = WAYS if case.what != "three classes" else (*WAYS[:1], *STAGED, *WAYS[1:])
        for way in ways:
            chances, epsilon, trust = way.fit(part, case.epsilon, seed)
            # What is promised for a label is, for a person, that many times as much.
            rows.append((setting_name(way, case.epsilon), epsilon, trust, chances))
        head = f"{case.what}, {SEVERAL}" if several else case.what
        return [
            Measurement(table=f"{head}: {name}", setting=setting, epsilon=epsilon, trust=trust, value=value)
            for setting, epsilon, trust, chances in rows
            for name, value in zip(MEASURES, score(chances, part.y_test), strict=True)
        ]

    def _tell(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Say what answers have in nats, per person, where the classes have their shares in the table."""
        part = self.stays.draw(case.what, seed)
        rates = np.bincount(part.y, minlength=part.n_classes) / len(part.y)
        mechanism = InformativeResponse(case.epsilon, n_classes=part.n_classes)
        told = compare_ways(part.persons, mechanism, n_classes=part.n_classes, prior=np.atleast_2d(rates))
        names = {"one": f"{DEFAULT}, one answer a person", "shares": SHARES, "group": GROUP}
        told = {way: told[way] for way in names} | {"the bound, for any answers": most_information(case.epsilon)}
        return [
            Measurement(
                table=f"{case.what}: {INFORMATION}",
                setting=f"{names.get(way, way)}, epsilon {case.epsilon:g}",
                epsilon=case.epsilon,
                trust="no one",
                value=1000 * nats,
                expected=1000 * nats,
            )
            for way, nats in told.items()
        ]

    def arrange_rows(self, rows: Sequence[StudyRow]) -> Sequence[StudyRow]:
        """One table after the other; what stands for all epsilons, once."""
        once: dict[tuple[str, str], StudyRow] = {}
        for row in rows:
            once.setdefault((row.table, row.setting), row)
        order = list(dict.fromkeys(row.table for row in rows))
        return sorted(once.values(), key=lambda row: order.index(row.table))

    def facts(self) -> dict[str, Any]:
        """The sizes."""
        return {
            "patients to learn from": QUICK_PATIENTS if self.quick else PATIENTS,
            "patients that no default was chosen on": len(self.stays.fresh),
            "patients of two stays or more to learn from": QUICK_RETURNED if self.quick else RETURNED,
            "such patients that no default was chosen on": int((self.stays.persons.counts[self.stays.fresh] > 1).sum()),
            "delta of a curator's sums": DELTA,
            "settings": "defaults. Five of them were chosen on other patients of this table: rows by chance, one stage for up to "
            "three classes, one weight for all rows of a person in sums, columns scaled as persons count, answers that count by the "
            "fourth root of a person's rows.",
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Compare the ways, and say what tails cost."""
        compared = [compare(rows, target, kind) for target in TARGETS for kind in (ANSWERS, SUMS)]
        compared += [compare(rows, f"{target}, {SEVERAL}", ANSWERS) for target in TARGETS]
        tables = [f"{target}{tail}" for tail in ("", f", {SEVERAL}") for target in TARGETS]
        compared += [tell_difference(rows, table, other) for other in (CHANCE, SHARES) for table in tables]
        return (*compared, tell_information(rows), tell_tails(rows), tell_caps(rows), LIMITS)

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """AUC against epsilon, for both kinds."""
        return tuple(draw_areas(rows, kind) for kind in (ANSWERS, SUMS))


LIMITS = (
    "The label unit at the same epsilon promises less: a patient with m stays has m times its epsilon, up to 40. Test rows are all stays of "
    "other patients, so that whoever has many stays counts more than in training, where each person has about one answer, of a "
    "weight that makes up for a part of it: probabilities are then a little low. Labels were randomized from seeds: nothing here is private."
)


def setting_name(way: Way, epsilon: float) -> str:
    """Return the name of a row."""
    return f"{way.kind}: {way.name}, epsilon {epsilon:g}"


# ------------------------------------------------------------------------------------------------ the stays


class Stays:
    """The stays as matrices, made without a look at a label: scaled numbers, and categories that a twentieth of rows have."""

    def __init__(self, *, directory: Any, patients: int, returned: int) -> None:
        found = load("diabetes-readmission", directory=directory)
        names = [column for column in found.feature_names if column not in found.identifiers]
        words = [column for column in names if column in found.categorical]
        numbers = [column for column in names if column not in found.categorical]
        table = found.X_train.select(names).to_pandas()
        table[words] = table[words].astype(str)
        hot = OneHotEncoder(min_frequency=0.05, handle_unknown="infrequent_if_exist", sparse_output=False)
        self.X = ColumnTransformer([("n", StandardScaler(), numbers), ("w", hot, words)]).fit_transform(table)
        self.y = found.y_train
        self.persons = Owners.of(found.X_train["patient_nbr"].to_numpy())
        self.fresh = find_fresh(self.persons.n_persons)
        self._patients, self._returned = patients, returned

    def draw(self, target: str, seed: int, *, several: bool = False) -> Part:
        """Return all stays of the patients of a seed, and to test on all stays of the other fresh patients.

        `several` leaves those of one stay out, on both sides.
        """
        fresh = self.fresh[self.persons.counts[self.fresh] > 1] if several else self.fresh
        order = np.random.default_rng([seed, 19]).permutation(fresh)
        learn, test = (
            self._find_rows(part) for part in np.split(order, [self._returned if several else self._patients])
        )
        y = (self.y == 2).astype(np.int64) if TARGETS[target] == 2 else self.y
        return Part(
            X=self.X[learn],
            y=y[learn],
            persons=self.persons.take(learn),
            X_test=self.X[test],
            y_test=y[test],
            n_classes=TARGETS[target],
        )

    def _find_rows(self, patients: Int64s) -> Int64s:
        chosen = np.zeros(self.persons.n_persons, bool)
        chosen[patients] = True
        return self.persons.rows_of(chosen)


def find_fresh(n_patients: int) -> Int64s:
    """Return the patients of the train part whom none of the looks drew: the draws of those seeds, made again.

    >>> len(find_fresh(57_000)) < 57_000 - LOOKED_AT
    True
    """
    fresh = np.ones(n_patients, bool)
    for seed in LOOKED_SEEDS:
        fresh[np.random.default_rng(seed).permutation(n_patients)[:LOOKED_AT]] = False
    return np.flatnonzero(fresh)


def score(chances: Floats, y: Int64s) -> tuple[float, float]:
    """Return AUC (of three classes the mean of one against the others) and log loss, times 100."""
    safe = np.clip(np.asarray(chances, np.float64), LEAST_PROBABILITY, None)
    safe /= safe.sum(axis=1, keepdims=True)
    columns = [1] if safe.shape[1] == 2 else list(range(safe.shape[1]))
    constant = bool((safe == safe[0]).all())
    area = 0.5 if constant else float(np.mean([roc_auc_score(y == k, safe[:, k]) for k in columns]))
    return 100 * area, 100 * float(log_loss(y, safe, labels=np.arange(safe.shape[1])))


# ------------------------------------------------------------------------------------------------ simulated tails


def simulate(case: Case, seed: int, *, quick: bool) -> Sequence[Measurement]:
    """Learn from a table whose persons have a Zipf number of rows, and estimate a share of its labels, at epsilon 1 and .1."""
    tail, rng = float(case.what.split()[-1]), np.random.default_rng([seed, 7])
    size = 1_000 if quick else SIMULATED
    counts = rng.zipf(tail, size).clip(max=ROWS_MOST)
    persons = Owners.of(rng.permutation(np.repeat(np.arange(size), counts)))
    X = rng.normal(size=(len(persons) + 20_000, 8))
    y = (X @ np.linspace(-1.0, 1.0, 8) + rng.logistic(size=len(X)) > 0).astype(np.int64)
    train, test = slice(0, len(persons)), slice(len(persons), None)
    part = Part(X=X[train], y=y[train], persons=persons, X_test=X[test], y_test=y[test], n_classes=2)
    where = f"tail {tail:g}"
    rows = []
    for way in WAYS:
        chances, epsilon, trust = way.fit(part, 1.0, seed)
        hits = 100 * float(np.mean(chances.argmax(axis=1) == part.y_test))
        note = "{rows:.1f} rows a person, at most {most:.0f}"
        details = {"rows": len(persons) / size, "most": float(persons.most_rows)}
        rows.append(
            Measurement(
                table=ACCURACY,
                setting=f"{where}: {way.kind}, {way.name}",
                epsilon=epsilon,
                trust=trust,
                value=hits,
                note=note,
                details=details,
            )
        )
    labels = SensitiveLabels(part.y, n_classes=2)
    truth = float(part.y.mean())
    for epsilon in (0.1, 1.0):
        best = best_cap(persons.counts, reach=1.0, epsilon=epsilon)
        for name, cap in (("cap 1", 1), ("best cap", best), ("no cap", persons.most_rows)):
            errors = []
            for draw in range(20):
                found = measure(
                    labels, LabelCounts(), epsilon=epsilon, persons=persons, cap=cap, rng=1000 * seed + draw
                )
                counted = len(labels) if found.rows is None else len(found.rows)
                errors.append(100 * abs(float(found.value[0, 1]) / counted - truth))
            rows.append(
                Measurement(
                    table=SHARE,
                    setting=f"{where}: {name}, epsilon {epsilon:g}",
                    epsilon=epsilon,
                    trust="a curator",
                    value=float(np.mean(errors)),
                    note="cap {cap:.1f}",
                    details={"cap": float(cap)},
                )
            )
    return rows


# ------------------------------------------------------------------------------------------------ words and plots


def find_row(rows: Sequence[StudyRow], table: str, setting: str) -> StudyRow | None:
    """Return a row, if it was measured."""
    return next((row for row in rows if row.table == table and row.setting == setting), None)


def compare(rows: Sequence[StudyRow], target: str, kind: str) -> str:
    """Set the ways beside each other, at each budget."""
    told = []
    names = dict.fromkeys(way.name for way in (*WAYS[:1], *STAGED, *WAYS[1:]) if way.kind == kind)
    for epsilon in EPSILONS:
        parts = []
        for name in names:
            found = [find_row(rows, f"{target}: {m}", f"{kind}: {name}, epsilon {epsilon:g}") for m in MEASURES]
            if found[0] is not None and found[1] is not None:
                parts.append(f"{name} {found[0].mean:.1f} and {found[1].mean:.1f}")
        told.append(f"epsilon {epsilon:g}: {', '.join(parts)}")
    flat = [find_row(rows, f"{target}: {m}", name) for name in (OPEN, CONSTANT) for m in MEASURES]
    ends = ""
    if all(row is not None for row in flat):
        means = [row.mean for row in flat if row is not None]
        ends = f" Without privacy {means[0]:.1f} and {means[1]:.1f}, a constant {means[2]:.1f} and {means[3]:.1f}."
    return f"Readmission, {target}, {kind}, AUC in % and log loss in nats / 100. {'; '.join(told)}.{ends}"


def tell_difference(rows: Sequence[StudyRow], target: str, other: str) -> str:
    """Say how far the default of answers is ahead of another way, seed by seed: the mean difference and its standard error."""
    told = []
    for epsilon in EPSILONS:
        parts = []
        for measure_name in MEASURES:
            pair = [
                find_row(rows, f"{target}: {measure_name}", f"{ANSWERS}: {name}, epsilon {epsilon:g}")
                for name in (DEFAULT, other)
            ]
            if pair[0] is not None and pair[1] is not None:
                gaps = np.subtract(pair[0].values, pair[1].values)
                error = float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
                parts.append(f"{measure_name.split(',')[0]} {np.mean(gaps):+.2f} ({error:.2f})")
        told.append(f"epsilon {epsilon:g}: {', '.join(parts)}")
    return f"{target}, answers: the default less {other}, seed by seed, with the standard error. {'; '.join(told)}."


def tell_information(rows: Sequence[StudyRow]) -> str:
    """Say what a person's answers have in nats."""
    told = []
    for target in TARGETS:
        found = [row for row in rows if row.table == f"{target}: {INFORMATION}"]
        told.append(f"{target}: " + "; ".join(f"{row.setting} {row.mean:.3g}" for row in found))
    return f"Information of a person's answers about her labels, in nats / 1000. {'. '.join(told)}."


def tell_tails(rows: Sequence[StudyRow]) -> str:
    """Say how accuracy falls as the tail grows."""
    told = []
    for tail in TAILS:
        found = [row for row in rows if row.table == ACCURACY and row.setting.startswith(f"tail {tail:g}: ")]
        if found:
            parts = ", ".join(f"{row.setting.split(': ')[1]} {row.mean:.1f}" for row in found)
            told.append(f"tail {tail:g} ({found[0].note}): {parts}")
    return f"Simulated tails at epsilon 1, accuracy in %. {'; '.join(told)}."


def tell_caps(rows: Sequence[StudyRow]) -> str:
    """Say from where on a cap pays: where a share's error with the best cap is below half of that without one."""
    told = []
    for epsilon in (0.1, 1.0):
        for tail in TAILS:
            names = [f"tail {tail:g}: {name}, epsilon {epsilon:g}" for name in ("cap 1", "best cap", "no cap")]
            found = [find_row(rows, SHARE, name) for name in names]
            if all(row is not None for row in found):
                one, best, none = (row.mean for row in found if row is not None)
                note = found[1].note if found[1] is not None else ""
                told.append(f"tail {tail:g} at epsilon {epsilon:g}: {one:.2f} / {best:.2f} ({note}) / {none:.2f}")
    return f"Error of a share of labels in points, with cap 1 / the best cap / no cap. {'; '.join(told)}."


def draw_areas(rows: Sequence[StudyRow], kind: str) -> Lines:
    """Draw AUC against epsilon for readmission within 30 days, a line for each way."""
    target = next(iter(TARGETS))
    series = []
    for way in (one for one in WAYS if one.kind == kind):
        found = [find_row(rows, f"{target}: {AUC}", setting_name(way, epsilon)) for epsilon in EPSILONS]
        known = [row for row in found if row is not None]
        if len(known) == len(EPSILONS):
            series.append(
                Series(
                    name=way.name,
                    x=EPSILONS,
                    y=tuple(row.mean for row in known),
                    spreads=tuple(row.spread for row in known),
                )
            )
    ends = "; ".join(f"{line.name} from {line.y[0]:.1f} to {line.y[-1]:.1f}" for line in series)
    flat = tuple((name, row.mean) for name in (OPEN, CONSTANT) if (row := find_row(rows, f"{target}: {AUC}", name)))
    return Lines(
        title=f"Readmission within 30 days, {kind}: AUC against epsilon",
        series=tuple(series),
        x_title="epsilon of a person (of a label: label unit)",
        y_title="AUC, %",
        alt=f"From epsilon {EPSILONS[0]:g} to {EPSILONS[-1]:g}: {ends}.",
        x_log=True,
        references=flat,
    )
