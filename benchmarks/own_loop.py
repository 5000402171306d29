"""A training step with `release.dataset` and `ForwardLoss` beside the loop that one would write by hand, in processor time.

    python benchmarks/own_loop.py [--json FILE] [--rounds N]

By hand: the likelihoods of all rows as a tensor in a `TensorDataset`, the plain formula, autograd. Ours: `release.dataset(X)` and
`ForwardLoss()`, with every check on. The same network, batches, loader and optimizer, one thread, one process; passes alternate,
and the least processor time of each counts, since whatever else runs on the machine only adds to it.
"""

from __future__ import annotations

import argparse
import json
import math
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
    ("mlp", (64,), 8192, 10, 256),
    ("mlp", (512,), 8192, 100, 256),
    ("small-cnn", (3, 32, 32), 1024, 10, 128),
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
    """Milliseconds of a step by hand and ours, and their ratio; and what the loss alone takes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, *shape), dtype=np.float32)
    labels = SensitiveLabels(rng.integers(0, n_classes, n), classes=range(n_classes))
    release = privatize(labels, InformativeResponse(1.0), rng=0)
    likelihood = torch.from_numpy(release.channel.likelihood(release.codes)).float()
    by_hand = DataLoader(TensorDataset(torch.from_numpy(X), likelihood), batch_size=batch, shuffle=True)
    ours = DataLoader(release.dataset(torch.from_numpy(X)), batch_size=batch, shuffle=True)
    of_array = DataLoader(release.dataset(X), batch_size=batch, shuffle=True)
    ways = {"by hand": (by_hand, plain_formula), "ours": (ours, ForwardLoss()), "array": (of_array, ForwardLoss())}
    least = dict.fromkeys(ways, math.inf)
    for number in range(rounds + 1):  # the first round warms up
        for way, (loader, loss) in ways.items():
            seconds = train_epoch(name, shape, n_classes, loader, loss)
            least[way] = min(least[way], seconds) if number else math.inf
    steps = len(by_hand)
    return {
        "network": name,
        "shape": list(shape),
        "classes": n_classes,
        "batch": batch,
        "by_hand_ms": round(1000 * least["by hand"] / steps, 3),
        "ours_ms": round(1000 * least["ours"] / steps, 3),
        "ratio": round(least["ours"] / least["by hand"], 3),
        "ratio_of_array": round(least["array"] / least["by hand"], 3),
    }


def main():
    """Print a line per case, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
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
