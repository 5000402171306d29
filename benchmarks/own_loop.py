"""A training step with `release.dataset` and `ForwardLoss` beside the loop that one would write by hand, in processor time.

    python benchmarks/own_loop.py [--json FILE] [--rounds N]

By hand: the likelihoods of all rows as a tensor in a `TensorDataset`, the plain formula, autograd. Ours: `release.dataset(X)` and
`ForwardLoss()`, with every check on. The same network, batches, loader and optimizer, one thread, one process. Short passes take
turns, in one order and then in the other, and the median over rounds of the ratio within a round counts: what else runs on
the machine makes both slower.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from labeldp import InformativeResponse, SensitiveLabels, privatize
from labeldp.nn import ForwardLoss
from labeldp.nn.models import build

CASES = (
    # name of the network, shape of an example, examples, classes, batch
    ("mlp", (64,), 4096, 10, 256),
    ("mlp", (512,), 4096, 100, 256),
    ("small-cnn", (3, 32, 32), 256, 10, 128),
)


def plain_formula(logits, likelihood):
    """The forward loss as a textbook has it."""
    return -(logits.softmax(1) * likelihood).sum(1).log().mean()


def train_epoch(name, shape, n_classes, loader, loss):
    """One pass over the data by a new network; returns the processor seconds of the pass."""
    torch.manual_seed(0)
    network = build(name, n_classes=n_classes, sample_shape=shape).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    start = time.process_time()
    for x, evidence in loader:
        value = loss(network(x), evidence)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
    return time.process_time() - start


def compare(name, shape, n, n_classes, batch, *, rounds):
    """Least milliseconds of a step by hand and ours, the median ratio and its quartiles; features as a tensor and as an array."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, *shape), dtype=np.float32)
    labels = SensitiveLabels(rng.integers(0, n_classes, n), classes=range(n_classes))
    release = privatize(labels, InformativeResponse(1.0), rng=0)
    likelihood = torch.from_numpy(release.channel.likelihood(release.codes)).float()
    by_hand = DataLoader(TensorDataset(torch.from_numpy(X), likelihood), batch_size=batch, shuffle=True)
    ours = DataLoader(release.dataset(torch.from_numpy(X)), batch_size=batch, shuffle=True)
    of_array = DataLoader(release.dataset(X), batch_size=batch, shuffle=True)
    ways = {"by hand": (by_hand, plain_formula), "ours": (ours, ForwardLoss()), "array": (of_array, ForwardLoss())}
    taken = {way: [] for way in ways}
    for number in range(-1, rounds):  # the first round warms up
        for way in sorted(ways, reverse=bool(number % 2)):
            seconds = train_epoch(name, shape, n_classes, *ways[way])
            if number >= 0:
                taken[way].append(1000 * seconds / len(by_hand))
    ratios = [np.array(taken[way]) / np.array(taken["by hand"]) for way in ("ours", "array")]
    return {
        "network": name,
        "shape": list(shape),
        "classes": n_classes,
        "batch": batch,
        "by_hand_ms": round(min(taken["by hand"]), 3),
        "ours_ms": round(min(taken["ours"]), 3),
        "ratio": round(float(np.median(ratios[0])), 3),
        "quartiles": np.quantile(ratios[0], [0.25, 0.75]).round(3).tolist(),
        "ratio_of_array": round(float(np.median(ratios[1])), 3),
    }


def main():
    """Print a line per case, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=41)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compare(*case, rounds=chosen.rounds) for case in CASES]
    for row in rows:
        print(json.dumps(row))
    if chosen.json is not None:
        facts = {"command": f"python benchmarks/own_loop.py --rounds {chosen.rounds}", "torch": torch.__version__}
        chosen.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
