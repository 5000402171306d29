"""What questions are worth that a quick network chose: "fast-cnn" on training images held out, with them and without.

    python benchmarks/questions.py --minutes 10 --epsilon 2

Both are one call of the library, which is told the same minutes; features and first stage of the quick network are on top, and in
the seconds. No test image is read. Labels of the images held out count as public.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from labeldp import LabelPrivateClassifier
from labeldp.data import load
from labeldp.nn import NetClassifier

HELD_OUT = 5_000
#: Who wants one stage gets questions without a prior.
WAYS = {"chosen by a quick network": "auto", "the same for all": 1}


def main() -> None:
    """Fit each way once, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    raw = load("cifar10")
    images = np.round(255 * raw.X_train).astype(np.uint8).reshape(len(raw.X_train), *(raw.image_shape or ()))
    labels = np.asarray(raw.y_train)
    order = np.random.default_rng(asked.seed).permutation(len(images))
    train, held = order[:-HELD_OUT], order[-HELD_OUT:]
    print(
        f"cifar10, {len(train)} images, epsilon {asked.epsilon:g}, {asked.minutes:g} minutes, seed {asked.seed}: {HELD_OUT} training "
        "images held out"
    )
    print("| questions | stages | passes | right, % | log loss | CPU s |\n|---|---|---|---|---|---|")
    for name, stages in WAYS.items():
        begun = time.process_time()
        network = NetClassifier("fast-cnn", cpu_minutes=asked.minutes, augment="shift,flip", random_state=asked.seed)
        model = LabelPrivateClassifier(
            network, epsilon=asked.epsilon, trust="no one", stages=stages, classes=range(10), random_state=asked.seed
        ).fit(images[train], labels[train])
        beliefs = model.predict_proba(images[held])
        right = 100 * np.mean(beliefs.argmax(axis=1) == labels[held])
        loss = -np.mean(np.log(beliefs[np.arange(len(held)), labels[held]]))
        seconds, passes = time.process_time() - begun, model.estimator_.training_.epochs
        print(f"| {name} | {len(model.stages_)} | {passes} | {right:.2f} | {loss:.3f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
