"""The demo: what label privacy costs and what it buys, on bundled data, in under a minute.

For two data sets, four epsilons and no privacy it trains one linear model on labels released in three ways, and sets test
accuracy beside what anybody could learn about one label from what was released.

>>> EPSILONS
(0.5, 1.0, 2.0, 4.0)

Design notes. The noise is secure, never seeded, so that numbers differ a little from run to run and each release is
private as it stands. Test labels are declared public; training labels are not looked at, except by the row without
privacy. Each cell is a release of its own: publishing several of the same labels adds up their epsilons, and the page says
what all of them together would cost. Linear algebra runs in one thread: the products are small, and on a busy machine two
threads that wait for each other were forty times slower than one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from labeldp._advantage import advantage_bound, best_guess
from labeldp.data import Dataset, load
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.priors import ClusterPrior
from labeldp.priors._cluster import cluster
from labeldp.studies._study import Progress, quiet

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SETS = ("digits", "adult")
REPORT = "labeldp-demo-report.html"
NO_PRIVACY = "no privacy"
#: k-means into more clusters than this takes longer than all the rest of the demo, and gains little on these sets.
MOST_CLUSTERS = 200


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One release and its model: the true total epsilon, whom it trusts, and test accuracy in percent.

    `advantage` and `guess` are shares: the attacker's best advantage, and how right a guess that was 50% right can become.
    """

    dataset: str
    method: str
    epsilon: float
    trust: str
    accuracy: float
    advantage: float
    guess: float


class DemoResult(NamedTuple):
    """What the demo found, and where its report is."""

    rows: tuple[DemoRow, ...]
    html_path: Path


def run_demo(*, progress: Progress | None = None, out_dir: str | os.PathLike[str] | None = None) -> DemoResult:
    """Run the demo and write `labeldp-demo-report.html` into `out_dir` (the current directory unless given).

    An older report of that name is replaced: it is ours. `progress` is called with the share done and what is being done.
    """
    from labeldp.report import write_page
    from labeldp.studies._demo_page import demo_page

    tell = progress or quiet
    rows: list[DemoRow] = []
    for i, name in enumerate(SETS):
        with threadpool_limits(limits=1):
            rows += _rows(load(name), _part_of(tell, i))
    tell(len(SETS) / (len(SETS) + 0.2), "writing the report")
    path = write_page(Path(out_dir or ".") / REPORT, demo_page(rows))
    tell(1.0, "done")
    return DemoResult(tuple(rows), path.resolve())


def _part_of(tell: Progress, position: int) -> Progress:
    """Return the progress of one data set as a part of the whole; the report at the end is the last bit."""
    return lambda share, text: tell((position + share) / (len(SETS) + 0.2), text)


def methods(epsilon: float, n_classes: int, groups: Any) -> dict[str, LabelPrivateClassifier]:
    """Return the three ways to train at one epsilon, all with the forward correction and the same linear model."""

    def private(*, stages: int = 1, prior: ClusterPrior | None = None) -> LabelPrivateClassifier:
        return LabelPrivateClassifier(
            model(), epsilon=epsilon, stages=stages, prior=prior, correction="forward", classes=range(n_classes)
        )

    return {
        "randomized response": private(),
        "two stages": private(stages=2),
        "cluster prior": private(prior=ClusterPrior(groups=groups)),
    }


def model() -> SoftmaxRegression:
    """Return the linear model of the demo."""
    return SoftmaxRegression(max_iter=60, tol=1e-4)


def _rows(data: Dataset, tell: Progress) -> list[DemoRow]:
    X_train, X_test = data.matrix()
    score = _scorer(X_test, data.y_test)
    tell(0.0, f"{data.name}: {NO_PRIVACY}")
    rows = [_row(data.name, NO_PRIVACY, math.inf, "everyone", score(model().fit(X_train, data.y_train)))]
    tell(0.1, f"{data.name}: clusters of the features")
    groups = _groups(X_train)
    steps = [
        (epsilon, *item) for epsilon in EPSILONS for item in methods(epsilon, data.n_classes, groups[epsilon]).items()
    ]
    for i, (epsilon, method, classifier) in enumerate(steps):
        tell(0.2 + 0.8 * i / len(steps), f"{data.name}: {method}, epsilon {epsilon:g}")
        promise = classifier.fit(X_train, data.y_train).guarantee_
        rows.append(_row(data.name, method, promise.epsilon(), promise.trust.words, score(classifier)))
    return rows


def _groups(X: Any) -> dict[float, Any]:
    """Return the clusters for each epsilon, as many as `ClusterPrior` would make, up to `MOST_CLUSTERS`. No labels."""
    counts = {epsilon: min(ClusterPrior().count(epsilon, len(X)), MOST_CLUSTERS) for epsilon in EPSILONS}
    made = {count: cluster(X, n_clusters=count, random_state=0) for count in set(counts.values())}
    return {epsilon: made[count] for epsilon, count in counts.items()}


def _scorer(X_test: Any, y_test: Any) -> Callable[[Any], float]:
    return lambda fitted: 100.0 * float(np.mean(fitted.predict(X_test) == y_test))


def _row(dataset: str, method: str, epsilon: float, trust: str, accuracy: float) -> DemoRow:
    return DemoRow(
        dataset=dataset,
        method=method,
        epsilon=epsilon,
        trust=trust,
        accuracy=accuracy,
        advantage=advantage_bound(epsilon),
        guess=best_guess(epsilon),
    )
