"""Reports on protected and on released labels against the exact ones: errors, and how often 95 % intervals cover.

    PYTHONPATH=src:. python benchmarks/evaluation.py [--repetitions 300] [--rows 10000] [--released 100] [--parts protected,released,sets,sums]

For each data set a model is fitted on rows of its own, and its probabilities of `--rows` other rows are scored: once exactly, and
`--repetitions` times by one noisy measurement at epsilon, `--released` times from labels that were released at epsilon. Rows
and labels stay; only the noise is drawn anew. An interval covers if it holds the exact value of these rows. Of 300 intervals
that cover with 95 %, between 90 % and 98.7 % do with a probability of 99.9 %.

The data sets are found as `labeldp.data.load` finds them (LABELDP_DATA); Adult is bundled, and an absent one is left out.
`sums` measures the other way to build a private report: a noisy sum for each metric, at an equal share of epsilon.
"""

from __future__ import annotations

import argparse
import math
import platform
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import labeldp
from labeldp import LabelSums, RandomizedResponse, RRWithPrior, measure, privatize
from labeldp.data import load
from labeldp.errors import LabelDPError
from labeldp.learn import evaluate
from labeldp.learn.metrics import Scores

DATA = ("adult", "credit-default", "five classes", "five classes, overconfident", "100 classes")
EPSILONS = (0.5, 1.0, 2.0)
SHOWN = (
    "accuracy",
    "majority",
    "balanced_accuracy",
    "auc",
    "log_loss",
    "constant_log_loss",
    "brier",
    "ece",
    "base rates",
    "recalls",
    "class AUCs",
    "calibration",
    "confusion",
    "precision at k",
    "lift at k",
)


def read_problem(name, rows):
    """Probabilities of a model for `rows` rows that it has not seen, and their labels."""
    if "classes" in name:
        rng = np.random.default_rng(7)
        K, d = (100, 30) if name.startswith("100") else (5, 10)
        centres = rng.normal(size=(K, d)) * (0.9 if K == 100 else 0.7)
        rates = rng.dirichlet(np.full(K, 20.0 if K == 100 else 3.0))
        y = rng.choice(K, size=rows + 6000, p=rates)
        X = centres[y] + rng.normal(size=(len(y), d))
        model = LogisticRegression(max_iter=300).fit(X[:6000], y[:6000])
        chances = model.predict_proba(X[6000:])
        if "overconfident" in name:
            chances = chances**4 / (chances**4).sum(axis=1, keepdims=True)
        whole = np.zeros((rows, K))
        whole[:, model.classes_] = chances
        return whole, y[6000:]
    data = load(name)
    X = np.concatenate(data.matrix())
    y = np.concatenate([data.y_train, data.y_test]).astype(int)
    order = np.random.default_rng(0).permutation(len(y))[: rows + 8000]
    X, y = X[order], y[order]
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X[rows:], y[rows:])
    return model.predict_proba(X[:rows]), y[:rows]


def list_figures(found):
    """(group, figure) for everything in a report."""
    for name in SHOWN[:8]:
        yield name, getattr(found, name)
    for group, metrics in (("base rates", found.base_rates), ("recalls", found.recalls), ("class AUCs", found.aucs)):
        yield from ((group, metric) for metric in metrics)
    yield from (("calibration", place.observed) for place in found.calibration)
    yield from (("confusion", cell) for row in found.confusion or () for cell in row)
    yield from (("precision at k", top.precision) for top in found.tops)
    yield from (("lift at k", top.lift) for top in found.tops)


def compare(exact, reports):
    """By group: the root mean square error, how often intervals cover, their mean half width, how many are None."""
    truth = [metric.value for _, metric in list_figures(exact)]
    names = [group for group, _ in list_figures(exact)]
    missing = exact.confusion is not None
    tally = {name: [0.0, 0, 0, 0, 0.0, 1.0] for name in SHOWN}
    covers = {}
    for report in reports:
        figures = list(list_figures(report))
        known = truth
        if missing and report.confusion is None:
            known = [
                v for v, g in zip(truth, names, strict=True) if g not in ("confusion", "precision at k", "lift at k")
            ]
        for at, ((group, metric), value) in enumerate(zip(figures, known, strict=True)):
            if value is None:
                continue
            row = tally[group]
            if metric.value is None:
                row[3] += 1
                continue
            inside = metric.interval[0] - 1e-9 <= value <= metric.interval[1] + 1e-9
            row[0] += (metric.value - value) ** 2
            row[1] += inside
            row[2] += 1
            row[4] += (metric.interval[1] - metric.interval[0]) / 2
            seen = covers.setdefault((group, at), [0, 0])
            seen[0] += inside
            seen[1] += 1
    for (group, _), (inside, total) in covers.items():
        if total >= len(reports) / 2:
            tally[group][5] = min(tally[group][5], inside / total)
    return tally


def protected(chances, y, classes, epsilon, repetitions):
    return [
        evaluate(chances, None, y, classes=classes, epsilon=epsilon, rng=1000 + seed) for seed in range(repetitions)
    ]


def released(chances, y, classes, epsilon, repetitions, *, prior=None):
    """Reports from releases: by randomized response, or in candidate sets of a prior."""
    K = len(classes)
    found = []
    for seed in range(repetitions):
        if prior is None:
            release = privatize(y, RandomizedResponse(epsilon, n_classes=K), rng=1000 + seed)
        else:
            release = privatize(y, RRWithPrior(epsilon), prior=prior, rng=1000 + seed)
        found.append(evaluate(chances, None, release))
    return found


def show(title, exact, reports):
    print(f"\n### {title}\n")
    print("| metric | exact | error (rms) | mean half width | covers | worst figure covers | figures | None |")
    print("|---|---|---|---|---|---|---|---|")
    first = {}
    for group, metric in list_figures(exact):
        first.setdefault(group, metric.value)
    for name, (square, inside, total, none, width, least) in compare(exact, reports).items():
        if not total and not none:
            continue
        value = first.get(name)
        single = sum(group == name for group, _ in list_figures(exact)) == 1
        shown = f"{value:.4f}" if single and value is not None else ""
        if total:
            figures = f"{math.sqrt(square / total):.5f} | {width / total:.5f} | {100 * inside / total:.1f}%"
            worst = f"{100 * least:.1f}%"
        else:
            figures, worst = " |  | ", ""
        print(f"| {name} | {shown} | {figures} | {worst} | {(total + none) // len(reports)} | {none} |", flush=True)


def by_sums(name, chances, y, *, epsilon, repetitions) -> Iterator[str]:
    """The other way, two classes: a sum for each of four metrics and one histogram for the rest, epsilon / 5 each.

    The number of rows of each class is taken as known, which flatters the AUC of this way.
    """
    scores, share = Scores(chances, classes=(0, 1)), epsilon / 5
    zero, one = scores.weights(0), scores.weights(1)
    n, m = scores.n, float((y == 1).sum())
    # What each row adds to n times the metric when its label becomes the second class.
    moves = {
        "accuracy": one[:, 5] - zero[:, 4],
        "auc": one[:, 1] * n**2 / (m * (n - m)),
        "log_loss": one[:, 2] - zero[:, 2],
        "brier": one[:, 3] - zero[:, 3],
    }
    for metric, moved in moves.items():
        grid = np.rint(moved * 2**20).astype(np.int64)
        query, exact = LabelSums(scores=[0, 1], weights=grid), int((grid * y).sum())
        errors = [
            (int(measure(y, query, epsilon=share, rng=10_000 + seed).value[0]) - exact) / 2**20 / n
            for seed in range(repetitions)
        ]
        yield f"| {name} | {metric} | {math.sqrt(np.mean(np.square(errors))):.5f} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--released", type=int, default=100, help="repetitions of released labels, which take longer")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--data", default=",".join(DATA[:3]))
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--parts", default="protected,released,sets,sums")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    parts, epsilons = asked.parts.split(","), [float(e) for e in asked.epsilons.split(",")]
    today = datetime.now(tz=timezone.utc).date()
    print(
        f"labeldp {labeldp.__version__}, {today}, Python {platform.python_version()}, {platform.machine()}; "
        f"{asked.rows:,} rows, {asked.repetitions} repetitions."
    )
    for name in [data for data in DATA if data in asked.data.split(";" if ";" in asked.data else ",")]:
        try:
            chances, y = read_problem(name, asked.rows)
        except LabelDPError as error:
            print(f"\n{name} is left out: {error}")
            continue
        classes = list(range(chances.shape[1]))
        exact = evaluate(chances, None, y, classes=classes, labels_are_public=True)
        print(f"\n## {name}")
        for epsilon in epsilons:
            if "protected" in parts:
                show(
                    f"{name}, protected labels, epsilon {epsilon:g}",
                    exact,
                    protected(chances, y, classes, epsilon, asked.repetitions),
                )
            if "released" in parts:
                show(
                    f"{name}, released by randomized response, epsilon {epsilon:g}",
                    exact,
                    released(chances, y, classes, epsilon, asked.released),
                )
            if "sets" in parts:
                # More classes have more sets of one, of which a report allows half.
                share, words = (0.5, "half the model's belief, half uniform")
                if len(classes) > 2:
                    share, words = (0.25, "a quarter the model's belief, the rest uniform")
                prior = share * chances + (1 - share) / len(classes)
                show(
                    f"{name}, released in candidate sets ({words}), epsilon {epsilon:g}",
                    exact,
                    released(chances, y, classes, epsilon, asked.released, prior=prior),
                )
        if "sums" in parts and len(classes) == 2:
            print(
                "\n### the other way at epsilon 1: a noisy sum for each metric\n\n| data | metric | error (rms) |\n|---|---|---|"
            )
            print("\n".join(by_sums(name, chances, y, epsilon=1.0, repetitions=asked.repetitions)), flush=True)


if __name__ == "__main__":
    main()
