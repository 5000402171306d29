"""How large "fast-cnn" should see images: held-out training images after the same minutes, small at first or whole from the start.

    python benchmarks/image_sizes.py --minutes 5 --data fashion-mnist

Labels are as they are, without noise: what is compared is the network. No test image is read.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np

from labeldp.data import load
from labeldp.nn import NetClassifier, cpu_preset

HELD_OUT = 10_000
#: Shares of the side, each with its share of the steps.
WAYS = {
    "half, three quarters, whole": ((0.5, 0.63), (0.75, 0.31), (1.0, 0.06)),
    "three quarters, whole": ((0.75, 0.8), (1.0, 0.2)),
    "whole": ((1.0, 1.0),),
}


def main() -> None:
    """Fit each way once, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    X, y, X_held, y_held = hold_out(asked.data, seed=asked.seed, count=HELD_OUT)
    print(
        f"{asked.data}, {len(X)} images, {asked.minutes:g} minutes, seed {asked.seed}: {HELD_OUT} training images held out"
    )
    print("| images are shown | passes | right, % | log loss | CPU s |\n|---|---|---|---|---|")
    for name, sizes in WAYS.items():
        begun = time.process_time()
        settings = replace(cpu_preset("fast-cnn"), sizes=sizes)
        network = NetClassifier(
            "fast-cnn", preset=settings, cpu_minutes=asked.minutes, augment="shift,flip", random_state=asked.seed
        ).fit(X, y)
        right, loss = score(network.predict_proba(X_held), y_held)
        seconds = time.process_time() - begun
        print(f"| {name} | {network.training_.epochs} | {right:.2f} | {loss:.3f} | {seconds:.0f} |", flush=True)


def hold_out(data: str, *, seed: int, count: int) -> tuple[Any, Any, Any, Any]:
    """Return training images as bytes and their labels, those to learn from and `count` that are held out; no test image is read."""
    raw = load(data)
    images = np.round(255 * raw.X_train).astype(np.uint8).reshape(len(raw.X_train), *(raw.image_shape or ()))
    labels = np.asarray(raw.y_train)
    order = np.random.default_rng(seed).permutation(len(images))
    train, held = order[:-count], order[-count:]
    return images[train], labels[train], images[held], labels[held]


def score(beliefs: Any, labels: Any) -> tuple[float, float]:
    """Return the share of right answers, in per cent, and the log loss."""
    right = 100 * float(np.mean(beliefs.argmax(axis=1) == labels))
    return right, -float(np.mean(np.log(beliefs[np.arange(len(labels)), labels])))


if __name__ == "__main__":
    main()
