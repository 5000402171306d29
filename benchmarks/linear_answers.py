"""What the default linear learner makes of faint answers: PYTHONPATH=src:. python benchmarks/linear_answers.py SET ...

A set is `digits` (scikit-learn's, 1,200 rows to learn from), `diabetes-readmission:ROWS` (three classes), or
`NAME:ROWS=FILE`: image features of the set NAME, as the image studies keep them (an array X of an npz file, a row for each training image).
All rows are training rows; those that are scored were held out of learning, and no test part is looked at.

Ways: *forward* reads answers one by one (`correction="forward"`), *no one* and *curator* are "auto" with that trust, *counts* is a
curator's histogram alone. Accuracy in percent, log loss in nats, means over the seeds. Labels are randomized from seeds: nothing here is
private.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from labeldp.arrays import Floats, Int64s
from labeldp.data import load
from labeldp.learn import LabelPrivateClassifier

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
HELD_OUT = 10_000
WAYS: dict[str, dict[str, Any]] = {
    "forward": {"trust": "no one", "correction": "forward"},
    "no one": {"trust": "no one"},
    "curator": {"trust": "curator"},
    "counts": {"trust": "curator", "stages": 0},
}


def read_set(name: str) -> tuple[Floats, Int64s, int]:
    """Return features and labels of all training rows of a set, and how many of them to learn from."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y, 1_200
    source, _, file = name.partition("=")
    data, _, rows = source.partition(":")
    if not file:
        from studies.tables import Prepared

        matrix, codes = Prepared(data, quick=False, directory=None).training(scaled=False)
        return matrix, codes, int(rows)
    with np.load(file) as arrays:
        features = arrays["X"]
        rows_of = features.mean(axis=1) if features.ndim == 3 else features  # views of an image, averaged
        return rows_of, load(data).y_train, int(rows)


def measure(X: Floats, y: Int64s, rows: int, *, seed: int, epsilon: float, way: str) -> tuple[float, float, float]:
    """Return accuracy, log loss and processor seconds of one fit."""
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    mine, held = np.sort(order[:rows]), order[rows:][-HELD_OUT:]
    model = LabelPrivateClassifier(epsilon=epsilon, classes=range(int(y.max()) + 1), random_state=seed, **WAYS[way])
    start = time.process_time()
    model.fit(X[mine], y[mine])
    seconds = time.process_time() - start
    chances = model.predict_proba(X[held])
    losses = -np.log(np.maximum(chances[np.arange(len(held)), y[held]], 1e-12))
    return 100.0 * float(np.mean(chances.argmax(axis=1) == y[held])), float(losses.mean()), seconds


def main() -> None:
    """Print a table: a row for each set, way and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # that a solver stopped at its limit is seen in the figures
    print("| set | columns | way | epsilon | accuracy | log loss | CPU s |\n|---|---|---|---|---|---|---|")
    for name in asked.sets:
        X, y, rows = read_set(name)
        for way in asked.ways:
            for epsilon in asked.epsilons:
                found = [measure(X, y, rows, seed=seed, epsilon=epsilon, way=way) for seed in range(asked.seeds)]
                right, loss, seconds = np.mean(found, axis=0)
                words = f"{name.partition('=')[0]} | {X.shape[1]} | {way} | {epsilon:g}"
                print(f"| {words} | {right:.1f} | {loss:.3f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
