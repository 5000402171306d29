"""The demo: what label privacy costs and what it buys, on bundled data, in under a minute.

For two data sets, four epsilons and no privacy, `run_demo` trains one linear model on labels released in three ways, and
sets test accuracy beside what anybody could learn about one label from what was released. `demo_table` shows the rows on
a terminal, `demo_page` as a report.

>>> EPSILONS
(0.5, 1.0, 2.0, 4.0)
>>> row = make_row("digits", "randomized response", epsilon=1.0, trust="no one", accuracy=90.0)
>>> round(row.advantage, 3), round(row.guess, 3)
(0.462, 0.731)

Design notes. The noise is secure, never seeded, so that numbers differ a little from run to run and each release is
private as it stands. Test labels are declared public; training labels are not looked at, except by the row without
privacy. Each cell is a release of its own: publishing several of the same labels adds up their epsilons, and the page says
what all of them together would cost. Linear algebra runs in one thread: the products are small, and on a busy machine two
threads that wait for each other were forty times slower than one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table as RichTable
from rich.text import Text
from threadpoolctl import threadpool_limits

from labeldp.data import Dataset, load
from labeldp.guarantee import advantage_bound, best_guess
from labeldp.learn import LabelPrivateClassifier, SoftmaxRegression
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import ClusterPrior
from labeldp.priors.cluster import cluster
from labeldp.report import Facts, Lines, Section, Series, Table, page, write_page
from labeldp.report.page import versions
from labeldp.report.words import percent

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SETS = ("digits", "adult")
REPORT = "labeldp-demo-report.html"
NO_PRIVACY = "no privacy"
#: k-means into more clusters than this takes longer than all the rest of the demo, and gains little on these sets.
MOST_CLUSTERS = 200
PUBLIC_TEST = "Accuracy is on test labels declared public. All columns but the last train on released labels alone."

#: Called with the share done, in [0, 1], and what is being done.
Progress = Callable[[float, str], None]


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
    tell: Progress = progress or (lambda *_: None)
    # The report at the end counts as a fifth of a data set.
    whole = len(SETS) + 0.2
    rows: list[DemoRow] = []
    for done, name in enumerate(SETS):

        def tell_share(share: float, doing: str, before: int = done) -> None:
            tell((before + share) / whole, doing)

        with threadpool_limits(limits=1):
            rows += measure_dataset(load(name), tell_share)
    tell(len(SETS) / whole, "writing the report")
    path = write_page(Path(out_dir or ".") / REPORT, demo_page(rows))
    tell(1.0, "done")
    return DemoResult(tuple(rows), path.resolve())


def measure_dataset(data: Dataset, tell: Progress) -> list[DemoRow]:
    """Return the rows of one data set: without privacy, then each method at each epsilon."""
    X_train, X_test = data.matrix()

    def score(fitted: Any) -> float:
        return 100.0 * float(np.mean(fitted.predict(X_test) == data.y_test))

    tell(0.0, f"{data.name}: {NO_PRIVACY}")
    plain = score(model().fit(X_train, data.y_train))
    rows = [make_row(data.name, NO_PRIVACY, epsilon=math.inf, trust="everyone", accuracy=plain)]
    tell(0.1, f"{data.name}: clusters of the features")
    groups = _cluster_features(X_train)
    steps = [
        (epsilon, *item) for epsilon in EPSILONS for item in methods(epsilon, data.n_classes, groups[epsilon]).items()
    ]
    for i, (epsilon, method, classifier) in enumerate(steps):
        tell(0.2 + 0.8 * i / len(steps), f"{data.name}: {method}, epsilon {epsilon:g}")
        promise = classifier.fit(X_train, data.y_train).guarantee_
        epsilon_spent, trust = promise.epsilon(), promise.trust.words
        rows.append(make_row(data.name, method, epsilon=epsilon_spent, trust=trust, accuracy=score(classifier)))
    return rows


def methods(epsilon: float, n_classes: int, groups: Any) -> dict[str, LabelPrivateClassifier]:
    """Return the three ways to train at one epsilon, all of the same linear model, with the correction that fits what was released."""

    def private(*, stages: int = 1, prior: ClusterPrior | None = None) -> LabelPrivateClassifier:
        paper: dict[str, Any] = {"stages": stages, "prior": prior, "mechanism": RRWithPrior(epsilon)}
        return LabelPrivateClassifier(model(), epsilon=epsilon, classes=range(n_classes), **paper)

    return {
        "randomized response": private(),
        "two stages": private(stages=2),
        "cluster prior": private(prior=ClusterPrior(groups=groups)),
    }


def model() -> SoftmaxRegression:
    """Return the linear model of the demo."""
    return SoftmaxRegression(max_iter=200, tol=1e-4)


def _cluster_features(X: Any) -> dict[float, Any]:
    """Return the clusters for each epsilon, as many as `ClusterPrior` would make, up to `MOST_CLUSTERS`. No labels."""
    counts = {epsilon: min(ClusterPrior().count(epsilon, len(X)), MOST_CLUSTERS) for epsilon in EPSILONS}
    made = {count: cluster(X, n_clusters=count, random_state=0) for count in set(counts.values())}
    return {epsilon: made[count] for epsilon, count in counts.items()}


def make_row(dataset: str, method: str, *, epsilon: float, trust: str, accuracy: float) -> DemoRow:
    """Return a row with what its epsilon lets an attacker do, rounded up."""
    return DemoRow(
        dataset=dataset,
        method=method,
        epsilon=epsilon,
        trust=trust,
        accuracy=accuracy,
        advantage=advantage_bound(epsilon),
        guess=best_guess(epsilon),
    )


def demo_table(rows: Sequence[DemoRow]) -> RichTable:
    """Return the demo as one table for a terminal of 80 columns: a row per method, a column per epsilon."""
    epsilons = _epsilons(rows)
    table = RichTable(
        title="Test accuracy (%) of a linear model, by how its labels were released",
        title_justify="left",
        caption=PUBLIC_TEST,
        caption_justify="left",
        header_style="bold",
    )
    table.add_column("total epsilon")
    table.add_column("trusts")
    for epsilon in epsilons:
        table.add_column("none" if math.isinf(epsilon) else f"{epsilon:g}", justify="right")
    for dataset in dict.fromkeys(row.dataset for row in rows):
        table.add_row(Text(dataset, style="bold"), *[""] * (len(epsilons) + 1))
        for method, cells in _accuracy_cells(rows, dataset, epsilons).items():
            table.add_row(method, cells[0], *cells[1:])
        table.add_section()
    table.add_row(Text("one label, at most", style="bold"), *[""] * (len(epsilons) + 1))
    table.add_row("attacker's advantage", "", *(percent(advantage_bound(epsilon), up=True) for epsilon in epsilons))
    table.add_row("a 50% guess becomes", "", *(percent(best_guess(epsilon), up=True) for epsilon in epsilons))
    return table


def _epsilons(rows: Sequence[DemoRow]) -> list[float]:
    """Return the epsilons that occur, in order."""
    return sorted({_round_epsilon(row.epsilon) for row in rows})


def _round_epsilon(epsilon: float) -> float:
    """Return the epsilon that was asked for; a composed guarantee may carry one that is a rounding below it."""
    return epsilon if math.isinf(epsilon) else round(epsilon, 6)


def _accuracy_cells(rows: Sequence[DemoRow], dataset: str, epsilons: Sequence[float]) -> dict[str, list[str]]:
    """Return trust and accuracies for each method; the accuracy without privacy stands in every row's last cell."""
    mine = [row for row in rows if row.dataset == dataset]
    open_row = next(row for row in mine if row.method == NO_PRIVACY)
    answer: dict[str, list[str]] = {}
    for method in dict.fromkeys(row.method for row in mine if row.method != NO_PRIVACY):
        found = {_round_epsilon(row.epsilon): row for row in mine if row.method == method}
        cells = [f"{found[e].accuracy:.1f}" if e in found else "" for e in epsilons if not math.isinf(e)]
        answer[method] = [next(iter(found.values())).trust, *cells, f"{open_row.accuracy:.1f}"]
    return answer


def demo_page(rows: Sequence[DemoRow]) -> str:
    """Return the report of the demo."""
    lead = (
        "One linear model, two data sets, three ways to release the training labels, and what anybody could learn about "
        "one label."
    )
    parts = [_promise_section(rows)]
    parts += [_dataset_section(rows, dataset) for dataset in dict.fromkeys(row.dataset for row in rows)]
    parts += [_reading_section(rows), _versions_section()]
    return page("What does label privacy cost, and what does it buy?", sections=parts, lead=lead)


def _promise_section(rows: Sequence[DemoRow]) -> Section:
    epsilons = _epsilons(rows)
    table = Table(
        caption="What a neighbour could learn about one label",
        columns=("total epsilon", "attacker's best advantage, at most", "a guess that was 50% right becomes, at most"),
        rows=tuple(
            (
                "no privacy" if math.isinf(e) else f"{e:g}",
                percent(advantage_bound(e), up=True),
                percent(best_guess(e), up=True),
            )
            for e in epsilons
        ),
        numeric=(1, 2),
    )
    finite = tuple(epsilon for epsilon in epsilons if not math.isinf(epsilon))
    guesses = tuple(100 * best_guess(epsilon) for epsilon in finite)
    plot = Lines(
        title="How right a 50% guess can become",
        series=(Series(name="at most", x=finite, y=guesses),),
        x_title="total epsilon",
        y_title="right, %",
        alt="; ".join(f"{g:.0f}% at epsilon {e:g}" for e, g in zip(finite, guesses, strict=True)),
        x_log=True,
        references=(("before the release", 50.0), ("no privacy", 100.0)),
    )
    words = (
        "Suppose a neighbour knows everything about you and all other labels, and hesitates between two values of yours. "
        "Whatever she computes from what was released, her guess can improve by no more than this. The features are not "
        "protected: if they tell your label to anyone, label privacy does not change that."
    )
    return Section(title="What it buys", blocks=(words, table, plot))


def _dataset_section(rows: Sequence[DemoRow], dataset: str) -> Section:
    data = load(dataset)
    mine = [row for row in rows if row.dataset == dataset]
    open_row = next(row for row in mine if row.method == NO_PRIVACY)
    series = []
    for method in dict.fromkeys(row.method for row in mine if row.method != NO_PRIVACY):
        found = [row for row in mine if row.method == method]
        x, y = tuple(_round_epsilon(row.epsilon) for row in found), tuple(row.accuracy for row in found)
        series.append(Series(name=f"{method} (trusts {found[0].trust})", x=x, y=y))
    counts = np.bincount(data.y_test)
    commonest = 100.0 * float(counts.max() / counts.sum())
    plot = Lines(
        title=f"{dataset}: test accuracy against epsilon",
        series=tuple(series),
        x_title="total epsilon",
        y_title="test accuracy, %",
        alt="; ".join(f"{s.name} from {s.y[0]:.0f}% to {s.y[-1]:.0f}%" for s in series),
        x_log=True,
        references=((NO_PRIVACY, open_row.accuracy), ("always the commonest class", commonest)),
    )
    epsilons = _epsilons(rows)
    names = tuple("no privacy" if math.isinf(e) else f"epsilon {e:g}" for e in epsilons)
    table = Table(
        caption=f"{dataset}: test accuracy, %",
        columns=("labels released by", "trusts", *names),
        rows=tuple((method, *cells) for method, cells in _accuracy_cells(rows, dataset, epsilons).items()),
        numeric=tuple(range(2, 2 + len(names))),
    )
    error = 100 * math.sqrt(0.25 / len(data.y_test))
    words = (
        f"{len(data.y_train):,} training labels of {data.n_classes} classes; protected: {data.sensitive_label}. "
        f"{len(data.y_test):,} test labels, declared public: chance alone moves an accuracy by up to {error:.1f} points "
        f"(one standard error). {data.citation}"
    )
    return Section(title=f"What it costs: {dataset}", blocks=(words, plot, table))


def _reading_section(rows: Sequence[DemoRow]) -> Section:
    dataset = rows[0].dataset
    spent = sum(_round_epsilon(row.epsilon) for row in rows if row.dataset == dataset and not math.isinf(row.epsilon))
    return Section(
        title="How to read it",
        blocks=(
            (
                "Randomized response: each label is kept or replaced at random, which its owner could do before anyone sees "
                "it. Two stages: most labels are released so; a model trained on them says which labels are likely for the "
                "rest, which are then randomized among the likely ones only. Neither needs a trusted party; whoever holds the "
                "data from which a release was made has seen its labels."
            ),
            (
                "Cluster prior: the features are clustered, a curator who sees the labels publishes a noisy histogram per "
                "cluster, and the labels are then randomized among the likely ones with the rest of the budget. At the same "
                "epsilon this is a weaker promise, because the curator must be trusted."
            ),
            "All three are trained with a correction that knows how the labels were randomized.",
            (
                "The noise was secure and unseeded: run it again and the numbers move a little. Each cell is one release and is "
                f"private as stated. All releases of one data set together would cost epsilon {spent:g}, since they protect "
                "the same labels; and the row without privacy protects nothing. Bundled data are public anyway: on your own, "
                "choose one release."
            ),
        ),
    )


def _versions_section() -> Section:
    pairs = (("command", "labeldp demo"), *versions().items())
    return Section(title="How it was made", blocks=(Facts(pairs=pairs),))
