"""The study `paper-stages`: the figures on stages of Ghazi et al. 2021, and the cells of its tables that other studies leave open.

On CIFAR-10 with our label-free features and a small network, so that a fit takes seconds: the shapes of the paper's curves can be
compared, its heights cannot, as a ResNet18 on a GPU is another learner. `Plan` is LP-MST as the paper trains it, with every setting
that its figures move; a fit that two figures share is made once.

>>> Plan(epsilon=2.0).name
'cifar10, epsilon 2, shares 0.6 0.4, temperature 0.5, mixup 4, passes 5'
>>> [case.name for case in PaperStages().cases()][:2]
['Table 1, cifar10, LP-1ST, epsilon 3', 'Table 1, cifar10, LP-2ST, epsilon 3']

Tables 1 and 4: the epsilons that the studies of images do not have. Figure 1(a): more stages than two. Figures 1(b) and 2: a noisy
histogram of labels in clusters of features, as prior and as a classifier. Figure 3: accuracy against passes, of each stage. Figure 4:
share of stage 1 with temperature, and a mixup for each stage, two at a time. Figure 5: what stage 1 knows, and the final accuracy.

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy, and its supplement.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from labeldp.data import load
from labeldp.learn import LabelPrivateClassifier
from labeldp.learn.recipe import HISTOGRAM
from labeldp.priors import ClusterPrior, cluster, flat_features
from labeldp.release import LabelCounts, SensitiveLabels, measure
from labeldp.report import Plot
from studies.images import AUTO, CLASSES, QUICK_ROWS, STAGES, TEMPERATURE, Images, fit_case, learn_features, make_stages
from studies.images import Case as ImageCase
from studies.paper_figures import (
    EPSILON,
    FIGURE_1A,
    FIGURE_1B,
    FIGURE_2,
    FIGURE_3,
    FIGURE_4A,
    FIGURE_4B,
    FIGURE_5,
    PRINTED,
    PRIOR_CLUSTERS,
    PRIOR_COST,
    describe_rows,
    draw_rows,
    name_prior,
)
from studies.study import Arrays, Measurement, Study, StudyRow

#: What is open in each table: sets and their epsilons.
OPEN = {"cifar10": (3.0, 4.0, 6.0, 8.0), "mnist": (3.0, 4.0), "fashion-mnist": (3.0,)}
NO_ONE = next(iter(AUTO))

MOST_STAGES, STAGE_EPSILONS = 4, (1.0, 2.0)
PRIOR_EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
CLUSTERS, COUNT_EPSILONS = (20, 50, 100, 200, 500, 1000), (0.01, 0.025, 0.05, 0.1, 0.5, 2.0)
#: What Figures 3, 4 and 5 vary.
CURVE = (1, 2, 5, 12)
SHARES, TEMPERATURES = (0.4, 0.6, 0.8), (0.25, 0.5, 0.75, 1.0)
MIXUPS = (1.0, 4.0, 8.0)
#: What the studies of images train with.
MIXUP, PASSES = 4.0, 5


# ---------------------------------------------------------------------------------------------------------- the plans


@dataclass(frozen=True, kw_only=True)
class Plan:
    """LP-MST as in studies/images.py, with what the paper's figures vary: one value for each stage, the last for all later ones.

    With `clusters`, the first stage has as prior a histogram of labels in so many clusters, which takes its part of epsilon.
    """

    epsilon: float
    data: str = "cifar10"
    shares: tuple[float, ...] = STAGES["LP-2ST"]
    temperature: float = TEMPERATURE
    mixups: tuple[float, ...] = (MIXUP,)
    passes: tuple[int, ...] = (PASSES,)
    clusters: int = 0

    @property
    def name(self) -> str:
        """All of it; measurements are kept under it."""
        told = f"{self.first}, shares {_list(self.shares)}, temperature {self.temperature:g}"
        told += f", mixup {_list(self.mixups)}, passes {_list(self.passes)}"
        return told + (f", {self.clusters} clusters" if self.clusters else "")

    @property
    def first(self) -> str:
        """The set and the budget."""
        return f"{self.data}, epsilon {self.epsilon:g}"

    @property
    def first_stage(self) -> str:
        """What the model of stage 1 depends on."""
        return f"stage 1 of {self.first}, share {self.shares[0]:g}, mixup {self.mixups[0]:g}, passes {self.passes[0]}"

    def make(self, *, seed: int, groups: Any = None) -> LabelPrivateClassifier:
        """Return the learner; `groups` are the clusters of the examples."""
        learner = make_stages(ImageCase(setting="LP-2ST", epsilon=self.epsilon), seed=seed)
        count = max(len(self.mixups), len(self.passes))
        params = [
            {"mixup": self.mixups[min(i, len(self.mixups) - 1)], "epochs": self.passes[min(i, len(self.passes) - 1)]}
            for i in range(count)
        ]
        learner.set_params(stages=self.shares, temperature=self.temperature, stage_params=params)
        if self.clusters:
            learner.set_params(prior=ClusterPrior(groups=groups, epsilon=PRIOR_COST))
        return learner


def _list(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3g}" for value in values)


def share_out(count: int) -> tuple[float, ...]:
    """Return the shares of LP-MST: the first as in LP-2ST, equal parts of the rest.

    >>> share_out(1), share_out(2), share_out(3)
    ((1.0,), (0.6, 0.4), (0.6, 0.2, 0.2))
    """
    first = STAGES["LP-2ST"][0]
    return (1.0,) if count == 1 else (first, *[(1.0 - first) / (count - 1)] * (count - 1))


# ---------------------------------------------------------------------------------------------------------- the cases


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of Table 1 or 4: a learner of studies/images.py on a set."""

    data: str
    setting: str
    epsilon: float
    seeds: ClassVar[int] = 3

    @property
    def table(self) -> str:
        """The paper's number of it, and the set."""
        return f"Table {1 if self.data == 'cifar10' else 4}, {self.data}"

    @property
    def name(self) -> str:
        """Table, learner and budget."""
        return f"{self.table}, {self.setting}, epsilon {self.epsilon:g}"

    def measure(self, study: PaperStages, seed: int) -> list[Measurement]:
        """Fit once."""
        if self.setting in STAGES:
            plan = Plan(data=self.data, epsilon=self.epsilon, shares=STAGES[self.setting])
            found = study.fit_plan(plan, seed)
        else:
            found = study.fit_auto(self, seed)
        printed = PRINTED[self.data].get(self.setting, {}).get(self.epsilon)
        note = "{seconds:.0f} CPU s a fit, features not counted"
        return [_tell(found, self.table, self.setting, paper=printed, note=note, details=("seconds",))]


@dataclass(frozen=True, kw_only=True)
class Stages:
    """So many stages at an epsilon."""

    count: int
    epsilon: float
    seeds: ClassVar[int] = 3

    @property
    def name(self) -> str:
        """Figure, stages and budget."""
        return f"{FIGURE_1A}, {self.count}, epsilon {self.epsilon:g}"

    def measure(self, study: PaperStages, seed: int) -> list[Measurement]:
        """Fit once."""
        found = study.fit_plan(Plan(epsilon=self.epsilon, shares=share_out(self.count)), seed)
        note = "{k:.2f} candidates in the last stage; {seconds:.0f} CPU s"
        return [_tell(found, FIGURE_1A, f"{self.count} stages", note=note, details=("k", "seconds"))]


@dataclass(frozen=True, kw_only=True)
class PriorAt:
    """One stage at an epsilon, with nothing known or with a histogram of clusters."""

    clusters: int
    epsilon: float
    seeds: ClassVar[int] = 3

    @property
    def setting(self) -> str:
        """What is known."""
        return name_prior(self.clusters)

    @property
    def name(self) -> str:
        """Figure, prior and budget."""
        return f"{FIGURE_1B}, {self.setting}, epsilon {self.epsilon:g}"

    def measure(self, study: PaperStages, seed: int) -> list[Measurement]:
        """Fit once."""
        plan = Plan(epsilon=self.epsilon, shares=STAGES["LP-1ST"], clusters=self.clusters)
        found = study.fit_plan(plan, seed)
        note = "{k:.2f} candidates; {seconds:.0f} CPU s"
        return [_tell(found, FIGURE_1B, self.setting, note=note, details=("k", "seconds"))]


@dataclass(frozen=True, kw_only=True)
class Votes:
    """Test images get the label that is counted most often in their cluster, with noise: no model at all."""

    clusters: int
    seeds: ClassVar[int] = 3

    @property
    def name(self) -> str:
        """Figure and clusters."""
        return f"{FIGURE_2}, {self.clusters}"

    def measure(self, study: PaperStages, seed: int) -> list[Measurement]:
        """Draw the noise of the counts at every budget."""
        images, groups = study.images("cifar10"), study.groups[str(self.clusters)]
        train, test = groups[: len(images.y)], groups[len(images.y) :]
        labels = SensitiveLabels(images.y, classes=CLASSES, name="classes")
        query = LabelCounts(groups=train, n_groups=int(groups.max()) + 1)
        told = []
        for epsilon in COUNT_EPSILONS:
            counts = measure(labels, query, epsilon=epsilon, rng=seed)
            right = float(np.mean(counts.value.argmax(axis=1)[test] == images.y_test))
            found = {"accuracy": 100.0 * right, "epsilon": counts.guarantee.epsilon(), "trust": "a curator"}
            told.append(_tell(found, FIGURE_2, f"{self.clusters} clusters"))
        return told


@dataclass(frozen=True, kw_only=True)
class Passes:
    """LP-1ST, stage 1 of LP-2ST and LP-2ST after so many passes; each is a fit of its own, with its own schedule of rates."""

    passes: int
    seeds: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """Figure and passes."""
        return f"{FIGURE_3}, {self.passes}"

    def measure(self, study: PaperStages, seed: int) -> list[Measurement]:
        """Fit each; stage 2 follows a stage 1 of the usual length."""
        end = f", {self.passes} passes"
        one = study.fit_plan(Plan(epsilon=EPSILON, shares=STAGES["LP-1ST"], passes=(self.passes,)), seed)
        plan = Plan(epsilon=EPSILON, passes=(PASSES,) if self.passes == PASSES else (PASSES, self.passes))
        both = study.fit_plan(plan, seed, look=(self.passes,))
        first = study.look_at_first(replace(plan, passes=(self.passes,)), seed)
        found = [("LP-1ST", one["accuracy"]), ("stage 1", first[0]), ("stage 1, top 2", first[1])]
        told = [_tell({**both, "accuracy": value}, FIGURE_3, name + end) for name, value in found]
        note = "{k:.2f} candidates in stage 2"
        return [*told, _tell(both, FIGURE_3, "LP-2ST" + end, note=note, details=("k",))]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A cell of Figure 4, and its point of Figure 5."""

    table: str
    plan: Plan
    seeds: ClassVar[int] = 1

    @property
    def setting(self) -> str:
        """The two quantities that the figure moves."""
        if self.table == FIGURE_4A:
            return f"share {self.plan.shares[0]:g}, temperature {self.plan.temperature:g}"
        return f"mixup {self.plan.mixups[0]:g}, then {self.plan.mixups[-1]:g}"

    @property
    def name(self) -> str:
        """Figure and cell."""
        return f"{self.table}, {self.setting}"

    def measure(self, study: PaperStages, seed: int) -> list[Measurement]:
        """Fit, and ask of stage 1 whether the label is among so many as the second stage chose from."""
        found = study.fit_plan(self.plan, seed, look=self.plan.passes[:1])
        k = max(1, round(float(found["k"])))
        known = {**found, "accuracy": study.look_at_first(self.plan, seed)[k - 1], "top": str(k)}
        note = "{k:.2f} candidates in stage 2"
        return [
            _tell(found, self.table, self.setting, note=note, details=("k",)),
            _tell(known, FIGURE_5, self.setting, note="k = {top}", details=("top",)),
        ]


def list_sweeps() -> tuple[Sweep, ...]:
    """Return the cells of Figure 4."""
    first = [
        Sweep(table=FIGURE_4A, plan=Plan(epsilon=EPSILON, shares=(share, round(1 - share, 6)), temperature=value))
        for share in SHARES
        for value in TEMPERATURES
    ]
    second = [
        Sweep(table=FIGURE_4B, plan=Plan(epsilon=EPSILON, mixups=(one,) if one == two else (one, two)))
        for one in MIXUPS
        for two in MIXUPS
    ]
    return (*first, *second)


def _tell(
    found: Mapping[str, Any],
    table: str,
    setting: str,
    *,
    paper: float | None = None,
    note: str = "",
    details: Sequence[str] = (),
) -> Measurement:
    """Return what a fit gave as a row of a table."""
    return Measurement(
        table=table,
        setting=setting,
        epsilon=float(found["epsilon"]),
        trust=str(found["trust"]),
        value=float(found["accuracy"]),
        paper=paper,
        note=note,
        details={name: found[name] for name in details},
    )


AnyCase = Cell | Stages | PriorAt | Votes | Passes | Sweep


# ---------------------------------------------------------------------------------------------------------- the study


class PaperStages(Study[AnyCase]):
    """Stages and priors of the paper, figure by figure."""

    name: ClassVar[str] = "paper-stages"
    title: ClassVar[str] = "The paper's figures on stages and priors, and the open cells of its tables"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy, Tables 1 and 4, "
        "Figures 1 to 5 (curves, of which few numbers are printed); ResNet18 or Inception on a GPU"
    )
    measure: ClassVar[str] = "test accuracy, %"
    needs: ClassVar[str] = "CIFAR-10; MNIST; Fashion-MNIST; PyTorch"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    @cached_property
    def sets(self) -> dict[str, Images]:
        """The sets whose features have been read."""
        return {}

    def images(self, data: str) -> Images:
        """Return the features of a set, learned on its training images without labels, and kept, since they take long."""
        if data not in self.sets:
            raw = load(data, directory=self.directory)
            rows = slice(QUICK_ROWS) if self.quick else slice(None)  # sets come in random order
            make = partial(learn_features, data, raw.X_train[rows], raw.X_test[rows])
            found = self.kept.arrays(f"{data}-features", make)
            seconds = float(found["seconds"])
            self.sets[data] = Images(found["X"], raw.y_train[rows], found["X_test"], raw.y_test[rows], seconds)
            self.kept.get(_seconds_of(data), lambda: seconds)
        return self.sets[data]

    @cached_property
    def groups(self) -> Arrays:
        """The clusters of training and test images together, as in the paper, for each number of them."""
        images = self.images("cifar10")
        return self.kept.arrays("cifar10-clusters", partial(find_clusters, images.X, images.X_test))

    def cases(self) -> Sequence[AnyCase]:
        """Tables, then figures; a quick run has a case of each kind."""
        tables: list[AnyCase] = [
            Cell(data=data, setting=setting, epsilon=epsilon)
            for data, epsilons in OPEN.items()
            for epsilon in epsilons
            for setting in (*STAGES, NO_ONE)
        ]
        figures: list[Sequence[AnyCase]] = [
            [Stages(count=count, epsilon=at) for at in STAGE_EPSILONS for count in range(1, MOST_STAGES + 1)],
            [PriorAt(clusters=count, epsilon=at) for count in (0, PRIOR_CLUSTERS) for at in PRIOR_EPSILONS],
            [Votes(clusters=count) for count in CLUSTERS],
            [Passes(passes=count) for count in CURVE],
            list_sweeps(),
        ]
        if self.quick:
            return [*tables[: len(STAGES)], *(part[0] for part in figures)]
        return [*tables, *(case for part in figures for case in part)]

    def choose_seeds(self, case: AnyCase, seeds: Sequence[int]) -> Sequence[int]:
        """Return one seed for sweeps and curves, all for the others."""
        return seeds[: case.seeds]

    def run_case(self, case: AnyCase, seed: int) -> Sequence[Measurement]:
        """Measure a case."""
        return case.measure(self, seed)

    def fit(self, plan: Plan, seed: int) -> LabelPrivateClassifier:
        """Return the fitted model of a plan."""
        images = self.images(plan.data)
        groups = self.groups[str(plan.clusters)][: len(images.y)] if plan.clusters else None
        return plan.make(seed=seed, groups=groups).fit(images.X, images.y)

    def fit_plan(self, plan: Plan, seed: int, *, look: Sequence[int] = ()) -> Mapping[str, Any]:
        """Return accuracy, promise and time of a plan's fit, and keep them; look at its stage 1 after so many passes too."""

        def work() -> dict[str, Any]:
            images = self.images(plan.data)  # features and clusters come first, and are not counted
            _ = self.groups if plan.clusters else None
            start = time.process_time()
            model = self.fit(plan, seed)
            seconds = time.process_time() - start
            for passes in look:
                self.look_at_first(replace(plan, passes=(passes,)), seed, model=model)
            k = model.stages_[-1].average_k
            return {**describe_fit(model, images), "seconds": seconds, "k": k}

        found: Mapping[str, Any] = self.kept.get(f"{plan.name}, seed {seed}", work)
        return found

    def look_at_first(self, plan: Plan, seed: int, *, model: LabelPrivateClassifier | None = None) -> list[float]:
        """Return the top-1, top-2, ... test accuracy of a plan's model after stage 1, in %.

        A fitted learner has its last model only. That of stage 1 is a function of what stage 1 released: `fit_release` of those rows,
        with the same settings, is the same model, for no further cost in privacy.
        """

        def work() -> list[float]:
            images, whole = self.images(plan.data), model if model is not None else self.fit(plan, seed)
            stage = whole.release_.stage
            assert stage is not None
            rows = np.flatnonzero(stage == 0)
            first = plan.make(seed=seed).fit_release(images.X[rows], whole.release_.take(rows))
            order = np.argsort(-first.predict_proba(images.X_test), axis=1, kind="stable")
            hits = first.classes_[order] == np.asarray(images.y_test)[:, None]
            return [100.0 * float(value) for value in hits.mean(axis=0).cumsum()]

        found: list[float] = self.kept.get(f"{plan.first_stage}, seed {seed}", work)
        return found

    def fit_auto(self, cell: Cell, seed: int) -> Mapping[str, Any]:
        """Return what the library reaches by itself."""
        images = self.images(cell.data)
        start = time.process_time()
        model = fit_case(ImageCase(setting=cell.setting, epsilon=cell.epsilon), images.X, images.y, seed=seed)
        return {**describe_fit(model, images), "seconds": time.process_time() - start}

    def facts(self) -> dict[str, Any]:
        """What the features took, once; and how many seeds there are."""
        took = {data: self.kept.find(_seconds_of(data)) for data in OPEN}
        return {
            "feature_cpu_seconds": {data: round(float(value), 1) for data, value in took.items() if value is not None},
            "seeds of sweeps and curves": Sweep.seeds,
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what each table and figure shows, and how it was made."""
        return (
            *describe_rows(rows),
            (
                "Label-free features and the small network of studies/images.py, with its settings where a figure does not move them: "
                "share 0.6, temperature 0.5, mixup 4, five passes, chosen in prototypes that looked at test accuracy. Sweeps show test "
                "accuracy for every cell and choose nothing. Each stage goes on from the weights of the last, as in the paper. A "
                "network says its loss to whoever listens while it trains, not its accuracy: each point of Figure 3 is a fit of its "
                "own that ends after so many passes, its rates falling to zero there. Test labels count as public."
            ),
            (
                "Clusters are counted by a curator who sees the labels; LP-MST and 'auto, no one' trust no one: at the same epsilon "
                "these are different promises."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """A drawing of each figure that has rows."""
        return draw_rows(rows)


def _seconds_of(data: str) -> str:
    """The name under which the processor seconds of a set's features are kept."""
    return f"processor seconds of the features of {data}"


def describe_fit(model: Any, images: Images) -> dict[str, Any]:
    """Return the test accuracy in % and the promise of a fitted model."""
    right = float(np.mean(model.predict(images.X_test) == images.y_test))
    promise = model.guarantee_
    return {"accuracy": 100.0 * right, "epsilon": promise.epsilon(), "trust": promise.trust.words}


def find_clusters(train: Any, test: Any) -> Arrays:
    """Return the cluster of each row of both parts, for each number of clusters; no label is looked at."""
    rows = flat_features(np.concatenate([train, test]), n_components=HISTOGRAM["n_components"], random_state=0)
    steps = HISTOGRAM["full_steps"]
    return {
        str(count): cluster(rows, n_clusters=min(count, len(rows) // 2), random_state=0, full_steps=steps)
        for count in CLUSTERS
    }
