"""What exact noise costs in DP-SGD, beside the gradients: python benchmarks/dpsgd.py [--json FILE].

One step on batches of 512 records: the gradients of all records by opacus, cutting and adding them up in whole units,
and discrete Gaussian noise at deviation 1024. CPU time of one thread, the best of several rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import torch

from labeldp.nn.dpsgd import AHEAD, LEAST_UNITS, count_in_units, import_opacus
from labeldp.random import BitStream, NoiseKey
from labeldp.samplers import discrete_gaussian

ROUNDS = 7
BATCH = 512
#: Widths of all layers, features first.
NETWORKS = {
    "20 features, logistic": (20, 1),
    "100 features, 10 classes": (100, 10),
    "100 features, 32 hidden, 10 classes": (100, 32, 10),
    "784 features, 10 classes": (784, 10),
    "784 features, 64 hidden, 10 classes": (784, 64, 10),
}


def best_time(function):
    """The least CPU time of several calls."""
    best = math.inf
    for _ in range(ROUNDS):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def measure(widths):
    """Milliseconds of a step's parts for a network of these widths."""
    generator = torch.Generator().manual_seed(0)
    layers = [torch.nn.Linear(narrow, wide) for narrow, wide in pairwise(widths)]
    network = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.ReLU())][:-1])
    sampled = import_opacus().GradSampleModule(network, loss_reduction="sum")
    rows = torch.randn(BATCH, widths[0], generator=generator)
    size = sum(part.numel() for part in network.parameters())
    bits, variance = BitStream(NoiseKey.from_seed(0)), Fraction(LEAST_UNITS**2)

    def gradients():
        sampled.zero_grad()
        for part in network.parameters():
            part.grad_sample = None
        sampled(rows).square().sum().backward()

    best = best_time(gradients)
    parts = [part.grad_sample.flatten(start_dim=1).numpy() for part in network.parameters()]
    cut = best_time(lambda: count_in_units(parts, bound=1.0, units=LEAST_UNITS))
    steps = -(-AHEAD // size)
    noise = best_time(lambda: discrete_gaussian(bits, variance=variance, size=steps * size)) / steps
    return {
        "parameters": size,
        "gradients_ms": round(1e3 * best, 2),
        "cut_and_sum_ms": round(1e3 * cut, 2),
        "noise_ms": round(1e3 * noise, 2),
        "share": round((cut + noise) / best, 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # opacus hooks modules whose input needs no gradient
    rows = {name: measure(widths) for name, widths in NETWORKS.items()}
    for name, row in rows.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
