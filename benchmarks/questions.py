"""What questions are worth that a quick network chose: "fast-cnn" on training images held out, with them and without.

    python benchmarks/questions.py --minutes 10 --epsilon 2

Both are one call of the library, which is told the same minutes; features and first stage of the quick network are on top, and in
the seconds. No test image is read. Labels of the images held out count as public.
"""

from __future__ import annotations

import argparse
import time

from image_sizes import hold_out, score

from labeldp import LabelPrivateClassifier
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
    X, y, X_held, y_held = hold_out("cifar10", seed=asked.seed, count=HELD_OUT)
    print(
        f"cifar10, {len(X)} images, epsilon {asked.epsilon:g}, {asked.minutes:g} minutes, seed {asked.seed}: {HELD_OUT} training "
        "images held out"
    )
    print("| questions | stages | passes | right, % | log loss | CPU s |\n|---|---|---|---|---|---|")
    for name, stages in WAYS.items():
        begun = time.process_time()
        network = NetClassifier("fast-cnn", cpu_minutes=asked.minutes, augment="shift,flip", random_state=asked.seed)
        model = LabelPrivateClassifier(
            network, epsilon=asked.epsilon, trust="no one", stages=stages, classes=range(10), random_state=asked.seed
        ).fit(X, y)
        right, loss = score(model.predict_proba(X_held), y_held)
        seconds, passes = time.process_time() - begun, model.estimator_.training_.epochs
        print(f"| {name} | {len(model.stages_)} | {passes} | {right:.2f} | {loss:.3f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
