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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from labeldp.arrays import Int64s
from labeldp.data import Dataset, load
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import ClusterPrior, cluster_features
from labeldp.report import Bars, Plot
from studies.study import Measurement, Study, StudyRow, list_tables

EPSILON = 1.0
SETS = ("mnist", "fashion-mnist")
#: Principal components that the pixels are reduced to before clustering; no label is looked at.
COMPONENTS = 50
QUICK_ROWS = 6_000


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
    Treatment(setting="cluster prior, auto", clusters=True, correction="auto"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A treatment of the labels of a set."""

    images: Images
    treatment: Treatment

    @property
    def name(self) -> str:
        """The set and the treatment."""
        return f"{self.images.name}: {self.treatment.setting}"

    @property
    def paper(self) -> float | None:
        """The paper's value for this set."""
        return self.treatment.paper[SETS.index(self.images.name)]


class FirstModel(Study[Case]):
    """Seven treatments of the labels of two sets, one linear model, epsilon 1: a quarter of an hour on two cores."""

    name: ClassVar[str] = "first-model"
    title: ClassVar[str] = "A first model at epsilon 1: what beats plain randomized response?"
    paper: ClassVar[str] = (
        "Ghazi, Golowich, Kumar, Manurangsi and Zhang (2021), Deep Learning with Label Differential Privacy, supplement, "
        "Table 4 (LP-1ST, LP-2ST and no privacy; a deep network, where ours is a linear model)"
    )
    measure: ClassVar[str] = "test accuracy, %"
    needs: ClassVar[str] = "MNIST and Fashion-MNIST"

    def cases(self) -> Sequence[Case]:
        """Every treatment of both sets."""
        sets = [read_images(name, self.directory, quick=self.quick) for name in SETS]
        return [Case(images=images, treatment=treatment) for images in sets for treatment in TREATMENTS]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Without privacy nothing is random, so that one fit says it all."""
        return seeds if case.treatment.private else seeds[:1]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit once, and return the test accuracy with what the fitted model promises."""
        images, treatment = case.images, case.treatment
        epsilon, trust = math.inf, "everyone"
        if treatment.private:
            fitted: Any = fit_private(images, treatment, seed)
            epsilon, trust = fitted.guarantee_.epsilon(), fitted.guarantee_.trust.words
        else:
            fitted = make_model().fit(images.X_train, images.y_train)
        measured = Measurement(
            table=images.name,
            setting=treatment.setting,
            epsilon=epsilon,
            trust=trust,
            value=100.0 * float(np.mean(fitted.predict(images.X_test) == images.y_test)),
            paper=case.paper,
            note="the paper's is a deep network" if case.paper is not None else "",
        )
        return [measured]

    def facts(self) -> dict[str, Any]:
        """The model and the features."""
        return {
            "model": repr(make_model()),
            "cluster features": f"PCA to {COMPONENTS} components of the pixels",
        }

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say what each set shows: the gain over plain randomized response, and where it comes from."""
        gains = {table: Gain.of([row for row in rows if row.table == table]) for table in list_tables(rows)}
        shares = " and ".join(f"{100 * gain.forward_share:.0f}% ({table})" for table, gain in gains.items())
        differ = len({gain.curator.setting for gain in gains.values()}) > 1
        return (
            *(gain.sentence(table) for table, gain in gains.items()),
            (
                f"The forward correction of plain randomized response alone takes {shares} of the best gain that trusts no one: "
                "with a linear model, ask for the correction first."
            ),
            "A cluster prior helps even a learner that can only take plain labels, but its histogram needs a curator who sees "
            "them: at the same epsilon that is a weaker promise."
            + (" Which of her treatments is best differs between the sets." if differ else ""),
            (
                "The settings (l2, number of clusters, share of the first stage) are the library's defaults, the same for all. They "
                "come from prototypes that looked at test accuracy, so that the best may be optimistic by perhaps half a point. "
                "Test labels are taken as public, and training labels were randomized from seeds."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """One bar chart per set, with the spread over seeds."""
        return tuple(
            draw_bars([row for row in rows if row.table == table], f"{table}: test accuracy at epsilon {EPSILON:g}")
            for table in list_tables(rows)
        )


def draw_bars(rows: Sequence[StudyRow], title: str) -> Plot:
    """Return the means of rows of test accuracy as bars."""
    return Bars(
        title=title,
        labels=tuple(row.setting for row in rows),
        values=tuple(row.mean for row in rows),
        spreads=tuple(row.spread for row in rows),
        x_title="test accuracy, % (bar: mean over seeds; line: one standard deviation each way)",
        alt="; ".join(f"{row.setting} {row.mean:.1f}%" for row in rows),
    )


def make_model() -> SoftmaxRegression:
    """Return the one linear model of this study: the default l2; 60 steps, after which accuracy no longer moves."""
    # Pixels have one unit; the penalty is in it, as it was when the results were made.
    return SoftmaxRegression(max_iter=60, tol=1e-4, standardise=False)


def fit_private(images: Images, treatment: Treatment, seed: int) -> LabelPrivateClassifier:
    """Fit the model on labels that a treatment released."""
    return LabelPrivateClassifier(
        make_model(),
        epsilon=EPSILON,
        stages=treatment.stages,
        prior=ClusterPrior(groups=images.groups(seed)) if treatment.clusters else None,
        mechanism=RRWithPrior(EPSILON),
        correction=treatment.correction,
        classes=range(images.n_classes),
        random_state=seed,
    ).fit(images.X_train, images.y_train)


@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """Pixels and labels of a set; `reduced` and `groups` are made without labels when first asked for."""

    name: str
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    n_classes: int
    found: dict[Any, Any] = field(default_factory=dict, repr=False)

    def groups(self, seed: int) -> Int64s:
        """Return the clusters for a seed: PCA once, k-means per seed, so that the spread includes its luck."""
        from sklearn.decomposition import PCA

        if "reduced" not in self.found:
            self.found["reduced"] = PCA(COMPONENTS, random_state=0).fit_transform(self.X_train)
        if seed not in self.found:
            reduced = self.found["reduced"]
            count = ClusterPrior().count(EPSILON, len(reduced))
            self.found[seed] = cluster_features(reduced, n_clusters=count, random_state=seed).groups
        answer: Int64s = self.found[seed]
        return answer


def read_images(name: str, directory: Any, *, quick: bool) -> Images:
    """Return a set; both come in random order, so that the first rows are a sample for a quick run."""
    dataset: Dataset = load(name, directory=directory)
    train, test = dataset.matrix()
    rows = slice(QUICK_ROWS) if quick else slice(None)
    return Images(
        name=dataset.name,
        X_train=train[rows],
        y_train=dataset.y_train[rows],
        X_test=test,
        y_test=dataset.y_test,
        n_classes=dataset.n_classes,
    )


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Plain randomized response, its forward correction, the best that trusts no one, and the best with a curator."""

    plain: StudyRow
    forward: StudyRow
    alone: StudyRow
    curator: StudyRow

    @classmethod
    def of(cls, rows: list[StudyRow]) -> Gain:
        mine = {row.setting: row for row in rows}
        private = [row for row in rows if math.isfinite(row.epsilon)]
        return cls(
            plain=mine[PLAIN],
            forward=mine[FORWARD],
            alone=max((row for row in private if row.promise == mine[PLAIN].promise), key=lambda row: row.mean),
            curator=max((row for row in private if row.trust != "no one"), key=lambda row: row.mean),
        )

    @property
    def forward_share(self) -> float:
        """The part of the best gain of the same promise that the forward correction takes; 0 where there is no gain."""
        whole = self.alone.mean - self.plain.mean
        return (self.forward.mean - self.plain.mean) / whole if whole > 0 else 0.0

    def sentence(self, table: str) -> str:
        """The gain in words, within one promise; a curator's row stands beside it as another."""
        plain, curator = self.plain, self.curator
        words = [
            f"{row.setting} {row.mean:.1f}% (sd {row.spread:.2f}, {row.mean - plain.mean:+.1f} points)"
            for row in dict.fromkeys((self.alone, self.forward))
        ]
        return (
            f"{table}: over plain randomized response ({plain.mean:.1f}%, sd {plain.spread:.2f}), each {plain.promise}: "
            + "; ".join(words)
            + f". Another promise, {curator.promise}: {curator.setting} {curator.mean:.1f}% (sd {curator.spread:.2f})."
        )
