"""How long ClusterRR takes beside a bincount and plain randomized response, in one run: PYTHONPATH=src python benchmarks/clusters.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import labeldp
from labeldp.mechanisms import ClusterRR, RandomizedResponse
from labeldp.release import SensitiveLabels

N, CLUSTERS, CLASSES, ROUNDS = 10_000_000, 100, 10, 3


def seconds(call: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def main() -> None:
    """Take turns, so that a busy moment of the machine hits both, and compare the best of each."""
    generator = np.random.default_rng(0)
    groups = generator.integers(0, CLUSTERS, N)
    labels = SensitiveLabels(generator.integers(0, CLASSES, N), n_classes=CLASSES)
    raw = generator.integers(0, CLASSES, N)

    def plain() -> None:
        np.bincount(groups * CLASSES + raw, minlength=CLUSTERS * CLASSES)
        labeldp.privatize(labels, RandomizedResponse(1.0))

    def ours() -> None:
        labeldp.privatize(labels, ClusterRR(1.0), groups=groups)

    times = [(seconds(ours), seconds(plain)) for _ in range(ROUNDS + 1)][1:]  # the first compiles
    cluster, base = (min(column) for column in zip(*times, strict=True))
    print(
        f"n = {N:,}, C = {CLUSTERS}, K = {CLASSES}: ClusterRR {cluster:.2f} s, bincount + RR {base:.2f} s, ratio {cluster / base:.2f}"
    )


if __name__ == "__main__":
    main()
