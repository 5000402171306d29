"""Which model the demo uses at which epsilon: python scripts/choose_demo.py [--splits 3] [digits] [adult].

Training rows of the bundled sets alone are read: they are split into parts to train on and to score on, so that the test
rows of the demo stay unseen. For each model and epsilon the call that trusts no one is scored, with plain response beside
it; the model with the least mean log loss is what `CHOSEN` in src/labeldp/demo.py should name, and a star marks what it
names now. The noise is secure, so the last digits move from run to run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import ShuffleSplit
from threadpoolctl import threadpool_limits

from labeldp import demo
from labeldp.data import load
from labeldp.learn.recipe import NO_ONE

CANDIDATES = {"digits": ("pixels", "manifold"), "adult": ("linear", "splines", "boosting")}


def measure(data: Any, model: str, epsilon: float, splits: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield (way, [(accuracy, log loss) of each split]) of one model at one epsilon."""
    rows, _ = demo.prepare(data, model)
    ways = (demo.PLAIN, demo.AUTO[NO_ONE]) if math.isfinite(epsilon) else (demo.NO_PRIVACY,)
    for way in ways:
        found = []
        for train, held_out in splits:
            with mock.patch.dict(demo.CHOSEN[data.name], {epsilon: model}):
                one = demo.make_model(model) if way == demo.NO_PRIVACY else demo.make_classifier(data, way, epsilon)
            likely = one.fit(rows[train], data.y_train[train]).predict_proba(rows[held_out])
            truth = data.y_train[held_out]
            right = 100 * np.mean(likely.argmax(axis=1) == truth)
            found.append((right, log_loss(truth, np.asarray(likely, np.float64), labels=range(data.n_classes))))
        yield way, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(CANDIDATES), help="digits, adult, or both")
    parser.add_argument("--splits", type=int, default=3, help="how many splits of the training rows")
    asked = parser.parse_args()
    print("| data | epsilon | model | way | accuracy, % | log loss |\n|---|---|---|---|---|---|")
    for name in asked.sets:
        data = load(name)
        splits = list(ShuffleSplit(asked.splits, test_size=0.25, random_state=0).split(data.y_train))
        for epsilon in (*demo.EPSILONS, math.inf):
            for model in CANDIDATES[name]:
                with threadpool_limits(limits=1):
                    for way, found in measure(data, model, epsilon, splits):
                        right, loss = np.mean(found, axis=0)
                        star = " *" if demo.CHOSEN[name][epsilon] == model and way != demo.PLAIN else ""
                        cells = (name, f"{epsilon:g}", model + star, way, f"{right:.1f}", f"{loss:.3f}")
                        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
