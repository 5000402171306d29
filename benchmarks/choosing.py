"""Choosing by raw labels and by released ones: PYTHONPATH=src:. python benchmarks/choosing.py > benchmarks/results/choosing.md.

*The attack* is that of tests/attacks/test_choosing.py, 1,000 tries each (100 by raw labels): two candidates differ in one prediction, and the
choice between them names a victim's label. *The regret* is what choosing by released labels costs: six candidates, trained on
one release of 6,000 labels, one chosen; how far is it behind the best of the six, as public test labels tell? A choice at
random is the yardstick. Test labels are taken as public, training labels are randomized from seeds.

Takes about fifteen minutes of one core. `attack` or `regret` makes one part; `--quick` makes small versions, to see that it runs.
The data sets are found as `labeldp.data.load` finds them (LABELDP_DATA); Adult is bundled, and an absent one is left out.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
from tests.attacks import test_choosing as attack

import labeldp
from labeldp.data import load
from labeldp.errors import LabelDPError
from labeldp.guarantee import best_guess
from labeldp.learn import LabelPrivateClassifier, PrivateSearchCV, SoftmaxRegression

ROWS, FOLDS = 6000, 3
DATA = ("adult", "credit-default")
EPSILONS = (1.0, 2.0)

CANDIDATES = {
    "softmax, l2 1e-4": SoftmaxRegression(l2=1e-4),
    "softmax, l2 1e-2": SoftmaxRegression(l2=1e-2),
    "softmax, l2 1": SoftmaxRegression(l2=1.0),
    "a tree of depth 4": DecisionTreeClassifier(max_depth=4, random_state=0),
    "a tree of depth 12": DecisionTreeClassifier(max_depth=12, random_state=0),
    "Gaussian naive Bayes": GaussianNB(),
}

Row = tuple[Any, ...]


def attacks(tries: int, jobs: int) -> Iterator[Row]:
    """How often the victim's label is named, by each way to choose; raw labels name it always, so they get fewer tries."""
    tools = (attack.by_score, attack.by_cross_validation, attack.by_grid_search, attack.by_calibration)
    ways = [(epsilon, way) for epsilon in (attack.EPSILON, 1.0) for way in attack.WAYS]
    with ProcessPoolExecutor(jobs) as pool:
        raw = [pool.submit(try_tool, tool, math.ceil(tries / 10)) for tool in tools]
        private = [pool.submit(try_search, way, epsilon, tries) for epsilon, way in ways]
        yield from (found.result() for found in raw + private)


def try_tool(tool: Callable[[Any], int], tries: int) -> Row:
    """Attack a tool of scikit-learn."""
    warnings.simplefilter("ignore")  # raw labels are read here on purpose
    secrets = np.random.default_rng(0).integers(0, 2, tries)
    right = sum(tool(attack.labels_with(int(secret))) == secret for secret in secrets)
    name = f"scikit-learn, {tool.__name__.replace('_', ' ')}"
    return name, attack.EPSILON, f"{right:,} of {tries:,}", f"{100 * best_guess(attack.EPSILON):.1f}%"


def try_search(way: str, epsilon: float, tries: int) -> Row:
    """Attack the search of the house."""
    right = attack.right_guesses(tries, epsilon=epsilon, **attack.WAYS[way])
    return f"PrivateSearchCV, {way}", epsilon, f"{right:,} of {tries:,}", f"{100 * best_guess(epsilon):.1f}%"


def read_problem(name: str, rows: int) -> tuple[Any, Any, Any, Any]:
    """Return features and labels to learn from, some rows of them, and those to test on."""
    dataset = load(name)
    X, X_test = dataset.matrix()
    chosen = np.random.default_rng(0).permutation(len(X))[:rows]
    return X[chosen], dataset.y_train[chosen], X_test, dataset.y_test


def find_regret(problem: tuple[Any, Any, Any, Any], *, epsilon: float, seed: int) -> dict[str, Any]:
    """Return the choices of one release by both scores, and what they and all candidates have on the test labels."""
    X, y, X_test, y_test = problem
    classes = np.unique(y_test).tolist()
    grid = {"estimator": list(CANDIDATES.values())}
    base = LabelPrivateClassifier(SoftmaxRegression())
    search = PrivateSearchCV(base, grid, epsilon=epsilon, cv=FOLDS, refit=False, classes=classes, random_state=seed)
    chosen = {"likelihood": search.fit(X, y).best_index_}
    release = search.release_
    chosen["accuracy"] = search.set_params(scoring="accuracy").fit_release(X, release).best_index_
    models = [LabelPrivateClassifier(estimator).fit_release(X, release) for estimator in CANDIDATES.values()]
    chances = [model.predict_proba(X_test) for model in models]
    losses = np.array([log_loss(y_test, found, labels=classes) for found in chances])
    rights = np.array([float((np.asarray(classes)[found.argmax(axis=1)] == y_test).mean()) for found in chances])
    return {"chosen": chosen, "loss": losses, "accuracy": rights}


def regrets(seeds: int, rows: int) -> Iterator[Row]:
    """Mean regret over seeds, in accuracy and in log loss, of both scores and of a choice at random."""
    for name in DATA:
        try:
            problem = read_problem(name, rows)
        except LabelDPError:
            yield name, "absent"
            continue
        for epsilon in EPSILONS:
            found = [find_regret(problem, epsilon=epsilon, seed=seed) for seed in range(seeds)]
            yield (
                name,
                epsilon,
                *_summarise(found, "loss", "likelihood", sign=-1),
                *_summarise(found, "accuracy", "accuracy", sign=1),
            )


def _summarise(found: list[dict[str, Any]], measure: str, score: str, *, sign: int) -> Iterator[str]:
    """Yield the best candidate's value, the mean and largest regret of the choice, and that of a choice at random."""
    best = np.array([(sign * one[measure]).max() for one in found])
    chosen = np.array([sign * one[measure][one["chosen"][score]] for one in found])
    middle = np.array([(sign * one[measure]).mean() for one in found])
    yield f"{sign * best.mean():.3f}"
    yield f"{(best - chosen).mean():.3f} (at most {(best - chosen).max():.3f})"
    yield f"{(best - middle).mean():.3f}"


def show(title: str, heads: Row, rows: Iterator[Row]) -> None:
    """Print a table, row by row as it is found."""
    print(f"\n## {title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["attack", "regret"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="processes for the attack")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # raw labels are read here on purpose
    print("# Choosing in figures\n\n`PYTHONPATH=src:. python benchmarks/choosing.py`,", end=" ")
    print(
        f"{time.strftime('%Y-%m-%d')}, labeldp {labeldp.__version__}, Python {platform.python_version()}, {platform.machine()}."
    )
    if options.part != "regret":
        heads = ("chosen by", "epsilon", "label named", "allowed")
        show(
            "The attack: a victim's label from the choice", heads, attacks(20 if options.quick else 1000, options.jobs)
        )
    if options.part != "attack":
        heads = ("data", "epsilon", "best log loss", "regret by likelihood", "at random")
        heads += ("best accuracy", "regret by accuracy", "at random")
        seeds, rows = (1, 1500) if options.quick else (10, ROWS)
        show(
            f"The regret: 1 of {len(CANDIDATES)} candidates, {rows:,} labels, {seeds} seeds",
            heads,
            regrets(seeds, rows),
        )


if __name__ == "__main__":
    main()
