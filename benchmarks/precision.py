"""A training step of "fast-cnn" in bfloat16 against one in float32, and what networks trained in either know.

    python benchmarks/precision.py [--rounds N] [--learn SEEDS --images N --passes N --hidden N]

One thread, processor time, everything that a fit does in a step. Each round takes a step in float32 and one in bfloat16 at each
side, so that what else the machine does meets both; the ratio is that of a round, and its median and quartiles are printed. A
run is the steps of a preset for images in colour, at the sides and in the shares that it has for 32 pixels.

`--learn` fits both on the same images of CIFAR-10 (LABELDP_DATA names the directory) with the same first weights and order, for
each seed 0, 1, ..., and scores them on training images held out; no test image is read. What bfloat16 learned is scored in both.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from image_sizes import hold_out, score

from labeldp.nn import NetClassifier
from labeldp.nn.fast_cnn import NARROW, SPEEDS, count_operations
from labeldp.nn.inputs import ArrayInputs
from labeldp.nn.models import build, place_network
from labeldp.nn.presets import GROWING, MINUTES, Augment
from labeldp.nn.training import Evidence, Task, compute_in, multiplies_bfloat16, start_run, take_step

SIDE, CLASSES = 32, 10
SIDES = tuple(round(SIDE * side) for side, _ in GROWING)
#: Steps of each that are not counted: the first ones ask the system for memory, and oneDNN plans what it does.
WARM_UP = 2
HELD_OUT = 5_000


def main() -> None:
    """Print the table of steps, or with `--learn` that of networks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--learn", type=int, default=0, help="so many seeds")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, instructions for bfloat16: {'yes' if multiplies_bfloat16() else 'no'}")
    if asked.learn:
        learn(asked)
    else:
        compare_steps(asked.rounds)


def compare_steps(rounds: int) -> None:
    """Take steps in turn, and print how long they took."""
    width, batch = NARROW, MINUTES.batch_size
    print(f"width {width}, batches of {batch}, {rounds} rounds; medians (quartiles)\n")
    print(
        "| pixels | float32, ms | bfloat16, ms | ratio | GFLOP/s in float32 | in bfloat16 |\n|---|---|---|---|---|---|"
    )
    takers = {(side, precision): make_taker(side, precision) for side in SIDES for precision in SPEEDS}
    for take in takers.values():
        for _ in range(WARM_UP):
            take()
    found: dict[Any, list[float]] = {key: [] for key in takers}
    for _ in range(rounds):
        for key, take in takers.items():
            found[key].append(take())
    times: dict[Any, Any] = {key: np.array(each) for key, each in found.items()}
    work: dict[Any, float] = {
        side: batch * count_operations((3, side, side), n_classes=CLASSES, width=width) for side in SIDES
    }
    shares = {side: share for side, (_, share) in zip(SIDES, GROWING, strict=True)}
    for precision in SPEEDS:
        times["a run", precision] = sum(share * times[side, precision] for side, share in shares.items())
    work["a run"] = sum(share * work[side] for side, share in shares.items())
    for name, operations in work.items():
        plain, other = (times[name, precision] for precision in SPEEDS)
        low, middle, high = np.quantile(plain / other, (0.25, 0.5, 0.75))
        speeds = [operations / np.median(each) / 1e9 for each in (plain, other)]
        line = f"| {name} | {1e3 * np.median(plain):.0f} | {1e3 * np.median(other):.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) "
        print(f"{line}| {speeds[0]:.0f} | {speeds[1]:.0f} |", flush=True)


def make_taker(side: int, precision: str) -> Any:
    """Return a function that takes a step on images of this side and returns the seconds of the processor that it took."""
    n = MINUTES.batch_size
    training = replace(MINUTES, precision=precision, sizes=((1.0, 1.0),), augment=Augment(crop=1 / 16, flip=True))
    generator = np.random.default_rng(0)
    X = generator.integers(0, 256, (n, 3, side, side), dtype=np.uint8)
    evidence = Evidence(kind="plain", values=torch.from_numpy(generator.integers(0, CLASSES, n)), n_classes=CLASSES)
    task = Task(inputs=ArrayInputs.of(X), evidence=evidence, training=training)
    torch.manual_seed(0)
    shape, device = (3, side, side), torch.device("cpu")
    network = build("fast-cnn", n_classes=CLASSES, sample_shape=shape, hidden=NARROW)
    run = start_run(place_network(network, sample_shape=shape, device=device), training)
    run.module.train()

    def take() -> float:
        begun = time.process_time()
        take_step(run, task, torch.randperm(n), keep=1.0, part=0.5, number=0)
        return time.process_time() - begun

    return take


def learn(asked: argparse.Namespace) -> None:
    """Fit in both for each seed, and print what they know of images held out."""
    X, y, X_held, y_held = hold_out("cifar10", seed=0, count=HELD_OUT)
    X, y = X[: asked.images], y[: asked.images]
    print(f"cifar10, {len(X)} images, {asked.passes} passes, width {asked.hidden}; {HELD_OUT} held out\n")
    print("| seed | trained in | predicts in | right, % | log loss | CPU s of the fit |\n|---|---|---|---|---|---|")
    for seed in range(asked.learn):
        for precision in SPEEDS:
            begun = time.process_time()
            network = NetClassifier(
                "fast-cnn",
                epochs=asked.passes,
                hidden=asked.hidden,
                augment="shift,flip",
                precision=precision,
                random_state=seed,
            ).fit(X, y)
            seconds = time.process_time() - begun
            for answers in ("float32",) if precision == "float32" else SPEEDS:
                with compute_in(answers, torch.device("cpu")):
                    right, loss = score(network.predict_proba(X_held), y_held)
                print(f"| {seed} | {precision} | {answers} | {right:.2f} | {loss:.3f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
