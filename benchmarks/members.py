"""What more time is worth that goes into more passes, a wider network, or more networks: "fast-cnn" on training images held out.

    python benchmarks/members.py --passes 42 --times 3 --hidden 96

Labels of CIFAR-10 are released once, at one epsilon, with the same questions for all; everything after that is training. Images are
seen at half their side, so that an hour of the real thing is some minutes here. Four ways to spend `times` times the work of one
network: none of it (one network), more passes, a wider network, and as many networks, whose probabilities are averaged. No test
image is read. Labels of the images held out count as public.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
from image_sizes import hold_out, score

from labeldp import InformativeResponse, SensitiveLabels, privatize
from labeldp.nn import NetClassifier
from labeldp.nn.presets import HOURS, Augment

HELD_OUT = 5_000
CLASSES = tuple(range(10))


def main() -> None:
    """Fit each way once, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--passes", type=int, default=42)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default="one,passes,width,networks", help="some of them")
    asked = parser.parse_args()
    X, y, X_held, y_held = hold_out("cifar10", seed=asked.seed, count=HELD_OUT)
    X, X_held = halve(X), halve(X_held)
    boxed = SensitiveLabels(y, classes=CLASSES)
    release = privatize(boxed, InformativeResponse(asked.epsilon), rng=asked.seed)
    likelihood = release.channel.likelihood(release.codes)

    def learn(*, passes: int, hidden: int, seed: int) -> Any:
        training = replace(
            HOURS, epochs=passes, cpu_minutes=0.0, sizes=((1.0, 1.0),), augment=Augment(crop=1 / 16, flip=True)
        )
        network = NetClassifier("fast-cnn", preset=training, hidden=hidden, random_state=seed)
        return network.fit_likelihood(X, likelihood, classes=CLASSES).predict_proba(X_held)

    wider = 8 * round(asked.hidden * math.sqrt(asked.times) / 8)
    ways = {
        "one": [(asked.passes, asked.hidden)],
        "passes": [(asked.passes * asked.times, asked.hidden)],
        "width": [(asked.passes, wider)],
        "networks": [(asked.passes, asked.hidden)] * asked.times,
    }
    print(f"cifar10 at 16 pixels, {len(X)} images, epsilon {asked.epsilon:g}, seed {asked.seed}; {HELD_OUT} held out")
    print("| way | networks | passes | width | right, % | log loss | CPU s |\n|---|---|---|---|---|---|---|")
    for way in asked.ways.split(","):
        begun, total = time.process_time(), np.zeros((len(X_held), len(CLASSES)))
        for number, (passes, hidden) in enumerate(ways[way], start=1):
            total += learn(passes=passes, hidden=hidden, seed=100 * asked.seed + number)
            right, loss = score(total / number, y_held)
            seconds = time.process_time() - begun
            print(f"| {way} | {number} | {passes} | {hidden} | {right:.2f} | {loss:.3f} | {seconds:.0f} |", flush=True)


def halve(images: Any) -> Any:
    """Return images of half the side, the means of squares of four pixels."""
    return images.reshape(len(images), 16, 2, 16, 2, 3).mean(axis=(2, 4)).round().astype(np.uint8)


if __name__ == "__main__":
    main()
