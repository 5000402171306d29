"""The study `first-model`: a linear model on MNIST and Fashion-MNIST at epsilon 1, under seven treatments of its labels.

It answers the first question of a modeller: does it pay to do more than randomized response? All treatments share one
model (`SoftmaxRegression`, one l2), one total epsilon and the same features; they differ in what is released and in
what training makes of it. The paper's numbers beside ours come from a deep network, so the difference says what a linear
model lacks as much as what a treatment does.

>>> FirstModel.name, len(TREATMENTS)
('first-model', 7)

Reference: Ghazi, Golowich, Kumar, Manurangsi, Zhang 2021, Deep Learning with Label Differential Privacy, Table 4 of the
supplement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labeldp.data import Dataset, load
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.priors import ClusterPrior, Prior
from labeldp.priors.cluster import cluster
from labeldp.report import Bars, Plot
from studies.facts import Stopwatch
from studies.study import Progress, Study, StudyResult, StudyRow, quiet

EPSILON = 1.0
SETS = ("mnist", "fashion-mnist")
#: Principal components that the pixels are reduced to before clustering; no label is looked at.
COMPONENTS = 50
QUICK_ROWS = 6_000

Groups = Callable[[int], npt.NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """What is released and what training makes of it; `paper` is the nearest value of the paper for each set."""

    setting: str
    stages: int = 1
    clusters: bool = False
    correction: str = "none"
    private: bool = True
    paper: tuple[float | None, float | None] = (None, None)


PLAIN = "randomized response, plain"
FORWARD = "randomized response, forward"
TREATMENTS = (
    Treatment(setting="no privacy", private=False, paper=(99.33, 94.28)),
    Treatment(setting=PLAIN, paper=(95.34, 80.78)),
    Treatment(setting=FORWARD, correction="forward"),
    Treatment(setting="two stages, plain", stages=2, paper=(95.82, 83.26)),
    Treatment(setting="two stages, forward", stages=2, correction="forward"),
    Treatment(setting="cluster prior, plain", clusters=True),
    Treatment(setting="cluster prior, forward", clusters=True, correction="forward"),
)


class FirstModel(Study):
    """Seven treatments of the labels of two sets, one linear model, epsilon 1."""

    name: ClassVar[str] = "first-model"
    title: ClassVar[str] = "A first model at epsilon 1: what beats plain randomized response?"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy, supplement, "
        "Table 4 (LP-1ST, LP-2ST and no privacy; a deep network, where ours is a linear model)"
    )
    measure: ClassVar[str] = "test accuracy, %"

    def run(
        self,
        *,
        quick: bool = False,
        seeds: int | None = None,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> StudyResult:
        """Fit every treatment on both sets with every seed: about a quarter of an hour on two cores."""
        watch, tell = Stopwatch(), progress or quiet
        numbers = self.seed_list(quick=quick, seeds=seeds)
        rows: list[StudyRow] = []
        for position, name in enumerate(SETS):
            data = _features(load(name, directory=directory), quick=quick)
            groups = _grouping(data)
            for j, treatment in enumerate(TREATMENTS):
                tell((position + j / len(TREATMENTS)) / len(SETS), f"{name}: {treatment.setting}")
                rows.append(_measured(data, treatment, position, numbers, groups))
        tell(1.0, "done")
        facts = watch.facts(
            seeds=numbers, quick=quick, command=f"labeldp study {self.name}{' --quick' if quick else ''}"
        )
        found = findings(rows)
        return StudyResult(
            name=self.name,
            title=self.title,
            paper=self.paper,
            measure=self.measure,
            rows=tuple(rows),
            findings=found,
            facts={
                **facts,
                "model": repr(model()),
                "cluster features": f"PCA to {COMPONENTS} components of the pixels",
            },
        )

    def plots(self, result: StudyResult) -> tuple[Plot, ...]:
        """One bar chart per set, with the spread over seeds."""
        return tuple(_bars(result, table) for table in result.tables())


@dataclass(frozen=True, kw_only=True)
class _Data:
    name: str
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    n_classes: int


def model() -> SoftmaxRegression:
    """Return the one linear model of this study: the default l2; 60 steps, after which accuracy no longer moves."""
    return SoftmaxRegression(max_iter=60, tol=1e-4)


def _features(dataset: Dataset, *, quick: bool) -> _Data:
    train, test = dataset.matrix()
    rows = slice(QUICK_ROWS) if quick else slice(None)  # both sets come in random order: the first rows are a sample
    return _Data(
        name=dataset.name,
        X_train=train[rows],
        y_train=dataset.y_train[rows],
        X_test=test,
        y_test=dataset.y_test,
        n_classes=dataset.n_classes,
    )


def _grouping(data: _Data) -> Groups:
    """Return the clusters for a seed: PCA once, k-means per seed, so that the spread includes its luck. No labels."""
    from sklearn.decomposition import PCA

    reduced = PCA(COMPONENTS, random_state=0).fit_transform(data.X_train)
    count = ClusterPrior().count(EPSILON, len(reduced))
    made: dict[int, npt.NDArray[np.int64]] = {}

    def groups(seed: int) -> npt.NDArray[np.int64]:
        if seed not in made:
            made[seed] = cluster(reduced, n_clusters=count, random_state=seed).astype(np.int64)
        return made[seed]

    return groups


def _measured(data: _Data, treatment: Treatment, position: int, seeds: tuple[int, ...], groups: Groups) -> StudyRow:
    """Return the row of a treatment; without privacy nothing is random, so that one fit says it all."""
    values: tuple[float, ...]
    if treatment.private:
        fits = [_private(data, treatment, seed, groups) for seed in seeds]
        values = tuple(_accuracy(fit, data) for fit in fits)
        epsilon = max(fit.guarantee_.epsilon() for fit in fits)
        trust = fits[0].guarantee_.trust.words
    else:
        values = (_accuracy(model().fit(data.X_train, data.y_train), data),)
        epsilon, trust = math.inf, "everyone"
    return StudyRow(
        table=data.name,
        setting=treatment.setting,
        epsilon=epsilon,
        trust=trust,
        values=values,
        paper=treatment.paper[position],
        note="the paper's is a deep network" if treatment.paper[position] is not None else "",
    )


def _private(data: _Data, treatment: Treatment, seed: int, groups: Groups) -> LabelPrivateClassifier:
    prior: Prior | None = ClusterPrior(groups=groups(seed)) if treatment.clusters else None
    classifier = LabelPrivateClassifier(
        model(),
        epsilon=EPSILON,
        stages=treatment.stages,
        prior=prior,
        correction=treatment.correction,
        classes=range(data.n_classes),
        random_state=seed,
    )
    return classifier.fit(data.X_train, data.y_train)


def _accuracy(fitted: Any, data: _Data) -> float:
    return 100.0 * float(np.mean(fitted.predict(data.X_test) == data.y_test))


def findings(rows: list[StudyRow]) -> tuple[str, ...]:
    """Say, from the rows, what each set shows: the gain over plain randomized response, and where it comes from."""
    tables = list(dict.fromkeys(row.table for row in rows))
    gains = {table: _Gain.of([row for row in rows if row.table == table]) for table in tables}
    shares = " and ".join(f"{100 * gain.forward_share:.0f}% ({table})" for table, gain in gains.items())
    differ = len({gain.best.setting for gain in gains.values()}) > 1
    return (
        *(gain.sentence(table) for table, gain in gains.items()),
        (
            f"The forward correction of plain randomized response alone, which needs no one's trust, takes {shares} of the "
            "best gain: with a linear model, ask for the correction first."
        ),
        "A cluster prior helps even a learner that can only take plain labels, but its histogram needs a curator who sees "
        "them: at the same epsilon that is a weaker promise."
        + (" Which treatment is best differs between the sets." if differ else ""),
        (
            "The settings (l2, number of clusters, share of the first stage) are the library's defaults, the same for all. They "
            "come from prototypes that looked at test accuracy, so that the best may be optimistic by perhaps half a point. "
            "Test labels are taken as public, and training labels were randomized from seeds."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Gain:
    """Plain randomized response, its forward correction, and the best multi-stage or cluster prior of one set."""

    plain: StudyRow
    forward: StudyRow
    stages: StudyRow
    best: StudyRow

    @classmethod
    def of(cls, rows: list[StudyRow]) -> _Gain:
        mine = {row.setting: row for row in rows}
        stages = [row for row in rows if row.setting.startswith("two stages")]
        clusters = [row for row in rows if row.setting.startswith("cluster prior")]
        return cls(
            plain=mine[PLAIN],
            forward=mine[FORWARD],
            stages=max(stages, key=lambda row: row.mean),
            best=max([*stages, *clusters], key=lambda row: row.mean),
        )

    @property
    def forward_share(self) -> float:
        """The part of the best gain that the forward correction alone takes; 0 where there is no gain."""
        whole = self.best.mean - self.plain.mean
        return (self.forward.mean - self.plain.mean) / whole if whole > 0 else 0.0

    def sentence(self, table: str) -> str:
        """The gain in words."""
        plain = self.plain
        words = [
            f"{row.setting} {row.mean:.1f}% (sd {row.spread:.2f}, {row.mean - plain.mean:+.1f} points, trusts {row.trust})"
            for row in dict.fromkeys((self.best, self.stages, self.forward))
        ]
        return (
            f"{table}: over plain randomized response ({plain.mean:.1f}%, sd {plain.spread:.2f}), "
            + "; ".join(words)
            + "."
        )


def _bars(result: StudyResult, table: str) -> Plot:
    rows = [row for row in result.rows if row.table == table]
    return Bars(
        title=f"{table}: test accuracy at epsilon {EPSILON:g}",
        labels=tuple(row.setting for row in rows),
        values=tuple(row.mean for row in rows),
        spreads=tuple(row.spread for row in rows),
        x_title="test accuracy, % (bar: mean over seeds; line: one standard deviation each way)",
        alt="; ".join(f"{row.setting} {row.mean:.1f}%" for row in rows),
    )
