"""The study of recipes: whether "auto" is as good as the best of the ways that it chooses from, at every size and epsilon.

>>> [case.name for case in Recipes(quick=True).cases()][:2]
['mnist, 2000 rows, one draw, epsilon=1', 'mnist, 2000 rows, two stages, epsilon=1']

Subsets of the training images of MNIST and Fashion-MNIST, the features of the image studies, one network. The ways are those of
`labeldp.learn.recipe`: with no one trusted, one draw of answers or two stages; with a curator, a histogram alone too. A histogram and
answers, each with a part of epsilon, was a way of "auto" once and is measured beside them. A way is asked for by `stages` and `prior`. "auto" is one of its ways, the one that the recipe names, with the
same noise: its number is that of the way, which is not fitted twice.

Two sentences are checked: accuracy does not fall by more than noise when epsilon grows, and "auto" is at most a point below the
best of its ways.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from labeldp.data import load
from labeldp.learn import LabelPrivateClassifier
from labeldp.learn.recipe import CLUSTERS_PER_CLASS, HISTOGRAM, SHARES, recipe
from labeldp.priors import ClusterPrior, Prior, UniformPrior
from labeldp.priors.staged import EVIDENCE, cluster_count
from labeldp.report import Lines, Plot, Series
from studies.images import CLASSES, Images, learn_features, make_network
from studies.study import Measurement, Study, StudyRow

SETS = ("mnist", "fashion-mnist")
SIZES = (2_000, 8_000, 60_000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
AUTO = {"auto, no one": "no one", "auto, curator": "curator"}
ONE, TWO = "one draw", "two stages"
HIST, BOTH = "histogram alone", "histogram and answers"
WAYS = {"auto, no one": (ONE, TWO), "auto, curator": (HIST, BOTH, ONE, TWO)}
#: Larger subsets have fewer seeds: a fit takes a minute, and the spread is small.
SEEDS = {2_000: 3, 8_000: 3, 60_000: 1}
#: What counts as noise between two means, in points: two standard errors of a difference, at least half a point of test images.
LEAST_NOISE = 0.5
#: Steps of the last fit: as many as the others have, in wider layers.
LEAST_STEPS, BATCH = 300, 256


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set, a number of rows, a way and a budget."""

    data: str
    rows: int
    setting: str
    epsilon: float

    @property
    def name(self) -> str:
        """All of it."""
        return f"{self.data}, {self.rows} rows, {self.setting}, epsilon={self.epsilon:g}"

    @property
    def table(self) -> str:
        """The data set and the number of rows."""
        return f"{self.data}, {self.rows} rows"


class Recipes(Study[Case]):
    """Every way at every size and epsilon: a few hours on one core."""

    name: ClassVar[str] = "recipes"
    title: ClassVar[str] = 'Is "auto" as good as the best of its ways?'
    paper: ClassVar[str] = "none: the rule is ours"
    measure: ClassVar[str] = "test accuracy, %"
    needs: ClassVar[str] = "MNIST and Fashion-MNIST; PyTorch"
    default_seeds: ClassVar[int] = 3
    quick_seeds: ClassVar[int] = 1

    @cached_property
    def _images(self) -> dict[str, Images]:
        return {}

    def images(self, data: str) -> Images:
        """Label-free features of a set, fitted on all of its training images, and kept, since they take long."""
        if data not in self._images:
            self._images[data] = self._learn(data)
        return self._images[data]

    def _learn(self, data: str) -> Images:
        raw = load(data, directory=self.directory)
        rows = slice(3_000) if self.quick else slice(None)
        found = self.kept.arrays(f"{data}-features", partial(learn_features, data, raw.X_train[rows], raw.X_test[rows]))
        return Images(found["X"], raw.y_train[rows], found["X_test"], raw.y_test[rows], float(found["seconds"]))

    def cases(self) -> Sequence[Case]:
        """Each way, and "auto" after its ways."""
        sizes, epsilons = (SIZES[:1], (1.0,)) if self.quick else (SIZES, EPSILONS)
        return [
            Case(data=data, rows=rows, setting=setting, epsilon=epsilon)
            for data in (SETS[:1] if self.quick else SETS)
            for rows in sizes
            for epsilon in epsilons
            for setting in (ONE, TWO, HIST, BOTH, *AUTO)
            if rows < max(SIZES) or setting in AUTO  # of all rows, "auto" alone: a fit takes a minute
        ]

    def choose_seeds(self, case: Case, seeds: Sequence[int]) -> Sequence[int]:
        """Return fewer seeds for more rows."""
        return seeds[: SEEDS[case.rows]]

    def run_case(self, case: Case, seed: int) -> Sequence[Measurement]:
        """Fit on a random subset and score on all test images; "auto" is the way that it comes to."""
        if case.setting in AUTO:
            way = replace(case, setting=find_way(case))
            found = self.kept.get(f"{way.name}, seed {seed}", lambda: [asdict(one) for one in self.run_case(way, seed)])
            return [replace(Measurement(**one), setting=case.setting, note=way.setting) for one in found]
        images = self.images(case.data)
        rows = np.arange(len(images.y))
        if case.rows < len(rows):
            rows = np.sort(np.random.default_rng(1000 + seed).permutation(len(rows))[: case.rows])
        model = make_way(case, seed=seed).fit(images.X[rows], images.y[rows])
        right = float(np.mean(model.predict(images.X_test) == images.y_test))
        measured = Measurement(
            table=case.table,
            setting=case.setting,
            epsilon=model.guarantee_.epsilon(),
            trust=model.guarantee_.trust.words,
            value=100.0 * right,
        )
        return [measured]

    def findings(self, rows: Sequence[StudyRow]) -> tuple[str, ...]:
        """Say where "auto" is short of its ways, and where it falls as epsilon grows."""
        return (
            *(sentence for auto in AUTO for sentence in _compare(rows, auto)),
            (
                "Subsets are random, a new one for each seed; features are learned without labels on all training images. The rule was "
                "settled on training images, scored on others that were held out; the limits of pooling (labeldp.learn.pools), and from "
                "where on it needs no curator, were then moved with a look at cells of this table."
            ),
        )

    def plots(self, rows: Sequence[StudyRow]) -> tuple[Plot, ...]:
        """Accuracy of "auto" against epsilon, a line for each trust, a plot for each subset."""
        drawn = []
        for table in dict.fromkeys(row.table for row in rows):
            lines = [[row for row in rows if row.table == table and row.setting == setting] for setting in AUTO]
            series = tuple(
                Series(
                    name=line[0].setting,
                    x=tuple(row.epsilon for row in line),
                    y=tuple(row.mean for row in line),
                    spreads=tuple(row.spread for row in line),
                )
                for line in lines
                if line
            )
            words = "; ".join(f"{row.setting} at {row.epsilon:g}: {row.mean:.1f}%" for line in lines for row in line)
            drawn.append(
                Lines(title=table, series=series, x_title="epsilon", y_title=self.measure, alt=words, x_log=True)
            )
        return tuple(drawn)


def make_way(case: Case, *, seed: int) -> LabelPrivateClassifier:
    """Return the learner of a case; "auto" says whom it trusts, a way its stages and its prior, and nothing else differs."""
    steps = -(-LEAST_STEPS // -(-case.rows // BATCH))
    many = case.rows >= max(SIZES)
    # As in the image studies where rows are many; else the network's own least number of steps.
    network = make_network(seed, mixup=1.0) if many else make_network(seed, mixup=1.0).set_params(epochs=None)
    return LabelPrivateClassifier(
        network,
        epsilon=case.epsilon,
        final_params={"hidden": 512, "epochs": max(12, steps)},
        classes=CLASSES,
        random_state=seed,
        **choose_way(case),
    )


def find_way(case: Case) -> str:
    """Return the way that "auto" comes to."""
    plan = recipe(
        case.epsilon,
        n_examples=case.rows,
        n_classes=len(CLASSES),
        trust=AUTO[case.setting],
        estimator=make_network(0, mixup=1.0),
    )
    if isinstance(plan.prior, UniformPrior):
        return ONE if len(plan.shares) == 1 else TWO
    return HIST


def choose_way(case: Case) -> dict[str, Any]:
    """Return the settings of a way."""
    if case.setting in AUTO:
        return {"trust": AUTO[case.setting]}
    if case.setting in {ONE, TWO}:
        return {"stages": 1 if case.setting == ONE else SHARES, "prior": None}
    return {"stages": 1 if case.setting == BOTH else 0, "prior": make_prior(case)}


def make_prior(case: Case) -> Prior:
    """Return the histogram of a way: as the recipe would make it if it chose this way."""
    sizes = {"n_examples": case.rows, "n_classes": len(CLASSES)}
    if case.setting == HIST:
        return ClusterPrior(n_clusters=max(2, cluster_count(case.epsilon, **sizes)), whole_budget=True, **HISTOGRAM)
    wanted = EVIDENCE * math.log(len(CLASSES)) * CLUSTERS_PER_CLASS * len(CLASSES) / case.rows
    spent = min(wanted, case.epsilon / 2)
    return ClusterPrior(n_clusters=max(2, cluster_count(spent, **sizes)), epsilon=spent, **HISTOGRAM)


def _compare(rows: Sequence[StudyRow], auto: str) -> list[str]:
    """A sentence on each subset: how far "auto" is below its best way at most, and how far it falls at most as epsilon grows."""
    sentences = []
    for table in dict.fromkeys(row.table for row in rows):
        mine = sorted((row for row in rows if row.table == table and row.setting == auto), key=lambda row: row.epsilon)
        if not mine:
            continue
        said = f"{table}, {auto}: " + ", ".join(f"{row.mean:.1f} at {row.epsilon:.3g}" for row in mine) + "."
        gaps = [
            max((way.mean for way in rows if _is_way(way, row, auto)), default=-math.inf) - row.mean for row in mine
        ]
        if any(math.isfinite(gap) for gap in gaps):
            said += f" At most {max(*gaps, 0.0):.1f} points below the best of its ways."
        falls = [(low, high) for low, high in pairwise(mine) if low.mean - high.mean > _noise(low, high)]
        said += "".join(
            f" It falls from {low.mean:.1f} at {low.epsilon:.3g} to {high.mean:.1f}." for low, high in falls
        )
        sentences.append(said if falls else said + " It never falls by more than noise as epsilon grows.")
    return sentences


def _is_way(way: StudyRow, row: StudyRow, auto: str) -> bool:
    return way.table == row.table and way.setting in WAYS[auto] and math.isclose(way.epsilon, row.epsilon, rel_tol=1e-6)


def _noise(low: StudyRow, high: StudyRow) -> float:
    variance = sum(row.spread**2 / row.n_seeds for row in (low, high) if row.n_seeds > 1)
    return max(LEAST_NOISE, 2.0 * math.sqrt(variance))
