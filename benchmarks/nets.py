"""A training step of `NetClassifier` beside a plain PyTorch loop, the forward loss beside cross entropy, and full runs' cost.

    python benchmarks/nets.py [--json FILE] [--rounds N] [--paper] [--learn STEPS]

Everything is timed in the same run, in alternating rounds, one thread; the best CPU time of each counts. `--paper` times a
step of the paper's networks and derives the cost of its full runs from it. `--learn STEPS` trains ResNet18 on a part of
CIFAR-10 (LABELDP_DATA names the directory) with randomized labels at epsilon 4 and prints loss and accuracy as it goes.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from labeldp.nn import Augment, NetClassifier, paper_preset
from labeldp.nn.losses import forward_rows
from labeldp.nn.models import build

#: Epochs beyond the first: their cost is that of the steps alone, the first also pays for checks and setting up.
EPOCHS = 3
ALL = Augment(crop=0.125, flip=True, cutout=0.5)


def cpu_seconds(function):
    """CPU seconds of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def best(functions, rounds):
    """The least CPU time of each function, called in turn."""
    times = [math.inf] * len(functions)
    for _ in range(rounds):
        times = [min(old, cpu_seconds(function)) for old, function in zip(times, functions, strict=True)]
    return times


def plain_loop(name, X, y, *, n_classes, batch, augment, epochs=1):
    """The loop as one would write it: the same network, optimizer, schedule, batches and augmentation, data standardised."""
    torch.manual_seed(0)
    network = build(name, n_classes=n_classes, sample_shape=tuple(X.shape[1:]))
    if X.ndim == 4:
        network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-2)
    steps = epochs * -(-len(X) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / (0.1 * steps), (steps - s) / (0.9 * steps))
    )
    network.train()
    for rows in (rows for _ in range(epochs) for rows in torch.randperm(len(X)).split(batch)):
        images = X[rows]
        if augment:
            images = augment(images)
        loss = functional.cross_entropy(network(images), y[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        loss.item()


def step_ratio(name, shape, *, n, batch, augment=None, n_classes=10, rounds=5):
    """CPU milliseconds of a step, ours and plain, their ratio, and what a fit costs besides its steps."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, *shape), dtype=np.float32)
    y = generator.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)
    tensor, labels = torch.from_numpy(X), torch.from_numpy(y)
    if X.ndim == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    one, more = (
        NetClassifier(name, epochs=epochs, batch_size=batch, lr=1e-3, augment=augment) for epochs in (1, 1 + EPOCHS)
    )
    settings = {"n_classes": n_classes, "batch": batch, "augment": augment}
    short, long, plain = best(
        [
            lambda: one.fit(X, y),
            lambda: more.fit(X, y),
            lambda: plain_loop(name, tensor, labels, epochs=EPOCHS, **settings),
        ],
        rounds,
    )
    steps = EPOCHS * -(-n // batch)
    ours = long - short
    facts = {"ours_ms": 1e3 * ours / steps, "plain_ms": 1e3 * plain / steps, "ratio": ours / plain}
    return {**facts, "setup_ms": 1e3 * (short - ours / EPOCHS)}


def loss_ratio(*, n_classes=100, batch=256, repeats=400, rounds=7):
    """CPU microseconds of the forward loss with its gradient, and of cross entropy with autograd's."""
    logits = torch.randn(batch, n_classes)
    codes = torch.randint(n_classes, (batch,))
    likelihood = torch.full((batch, n_classes), 0.005).scatter_(1, codes[:, None], 0.505)

    def forward():
        for _ in range(repeats):
            forward_rows(logits, likelihood)

    def plain():
        for _ in range(repeats):
            leaf = logits.detach().requires_grad_()
            functional.cross_entropy(leaf, codes).backward()

    ours, theirs = (1e6 * seconds / repeats for seconds in best([forward, plain], rounds))
    return {"forward_us": ours, "cross_entropy_us": theirs, "ratio": ours / theirs}


def forward_step_ratio(*, n=5120, n_classes=100, rounds=5):
    """A whole fit with the forward loss beside one with plain labels, the same network and data."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, 640), dtype=np.float32)
    y = np.arange(n) % n_classes
    likelihood = np.full((n, n_classes), 0.005, np.float32)
    likelihood[np.arange(n), y] = 0.505
    model = NetClassifier("mlp", epochs=1)
    ours, plain = best(
        [lambda: model.fit_likelihood(X, likelihood, classes=range(n_classes)), lambda: model.fit(X, y)], rounds
    )
    return {"forward_ms": 1e3 * ours / (n / 256), "plain_ms": 1e3 * plain / (n / 256), "ratio": ours / plain}


def paper_costs():
    """Seconds of a step of each of the paper's networks here, and the hours that its full run would take."""
    rows = {}
    for data, shape, n in (("fashion-mnist", (1, 28, 28), 60_000), ("cifar10", (3, 32, 32), 50_000)):
        preset = paper_preset(data, epsilon=1.0, stages=2)
        batch = 32
        X = np.random.default_rng(0).standard_normal((2 * batch, *shape), dtype=np.float32)
        model = NetClassifier(preset.module, preset=preset.training, epochs=1, batch_size=batch)
        (seconds,) = best([lambda X=X, model=model: model.fit(X, np.arange(len(X)) % 10)], 2)
        per_image = seconds / len(X)
        epochs = preset.training.epochs
        # Stage 1 sees its share of the images, stage 2 all of them; each runs all epochs.
        images = n * epochs * (preset.stages[0] + 1.0)
        rows[data] = {"ms_per_image": 1e3 * per_image, "hours_lp_2st": per_image * images / 3600}
    return rows


def learn(steps, *, batch=64, n=2000, n_test=1000):
    """Train ResNet18 on a part of CIFAR-10 from randomized labels, and say how it goes on images it has not seen."""
    from labeldp.data import load
    from labeldp.mechanisms import RandomizedResponse
    from labeldp.release import privatize

    pictures = load("cifar10")
    X = as_images(pictures.X_train[:n])
    release = privatize(pictures.y_train[:n], RandomizedResponse(epsilon=4.0, n_classes=10), rng=0)
    epochs = max(1, round(steps * batch / n))
    losses = []

    def told(done, total, loss):
        losses.append(loss)
        if done % 10 == 0:
            print(f"step {done}/{total}: loss {np.mean(losses[-10:]):.3f}", flush=True)

    model = NetClassifier("resnet18", epochs=epochs, batch_size=batch, augment="crop,flip", progress=told)
    model.fit_likelihood(X, release.channel.likelihood(release.codes), classes=range(10))
    accuracy = model.score(as_images(pictures.X_test[:n_test]), pictures.y_test[:n_test])
    print(f"accuracy on {n_test} test images: {accuracy:.3f}")


def as_images(rows):
    """Rows of 32 x 32 x 3 as images with the channels first."""
    return np.ascontiguousarray(np.asarray(rows).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--learn", type=int)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.learn:
        learn(chosen.learn)
        return
    results = {
        "mlp, 640 features, batch 256": step_ratio("mlp", (640,), n=5120, batch=256, rounds=chosen.rounds),
        "small-cnn, 28 x 28, batch 128, crop flip cutout": step_ratio(
            "small-cnn", (1, 28, 28), n=512, batch=128, augment=ALL, rounds=chosen.rounds
        ),
        "forward loss, K = 100, batch 256": loss_ratio(),
        "step with the forward loss, K = 100": forward_step_ratio(rounds=chosen.rounds),
    }
    if chosen.paper:
        results.update(paper_costs())
    for name, row in results.items():
        print(name + ": " + ", ".join(f"{key} {value:.3f}" for key, value in row.items()))
    if chosen.json:
        chosen.json.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
