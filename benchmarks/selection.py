"""Private selection against numpy.sort, and the memory of ten million pairs: python benchmarks/selection.py [--json FILE].

Calls are timed alternately and the best of each is compared: the machine's noise hits both alike. CPU time is given
beside wall time, since other work on the machine stretches the latter. `first` is the first call of a budget, which
also solves for the noise; later calls of the same budget (PATE makes thousands) find it solved.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
import tracemalloc
from pathlib import Path

import numpy as np

from labeldp.selection import Histogram, limited_domain, stable_top_k, top_k_exponential, top_stable

ROUNDS = 15
CANDIDATES = 1_280_000
PAIRS = 10_000_000
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "replace"}


def timed(function):
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def best_times(functions, rounds=ROUNDS):
    """The best wall and CPU time of each function, called in turn."""
    best = [(math.inf, math.inf)] * len(functions)
    for _ in range(rounds):
        for j, function in enumerate(functions):
            best[j] = tuple(min(pair) for pair in zip(best[j], timed(function), strict=True))
    return best


def histograms():
    """Counts of 1.28 million places: few visits (they repeat), heavy tails, and all different (the worst case)."""
    generator = np.random.default_rng(0)
    return {
        "visits (zipf 1.6)": generator.zipf(1.6, CANDIDATES).clip(max=100_000),
        "poisson 3": generator.poisson(3.0, CANDIDATES),
        "spread to 10^9": generator.integers(0, 10**9, CANDIDATES),
    }


def against_sort(rows):
    """stable_top_k against numpy.sort on the same counts."""
    for name, counts in histograms().items():
        first = timed(lambda h=counts: stable_top_k(h, **{**BUDGET, "epsilon": 1.0 + 1e-9 * h[0]}))
        sort, ours = best_times([lambda h=counts: np.sort(h), lambda h=counts: stable_top_k(h, **BUDGET)])
        rows[f"stable_top_k, {name}"] = {
            "sort_ms": round(1e3 * sort[0], 2),
            "stable_top_k_ms": round(1e3 * ours[0], 2),
            "ratio": round(ours[0] / sort[0], 2),
            "ratio_cpu": round(ours[1] / sort[1], 2),
            "first_ms": round(1e3 * first[0], 1),
        }


def baselines(rows):
    """The other methods on the same counts, k = 50."""
    counts = histograms()["visits (zipf 1.6)"]
    calls = {
        "stable_top_k, k = 50": lambda: stable_top_k(counts, k=50, **BUDGET),
        "top_k_exponential, one_shot": lambda: top_k_exponential(counts, k=50, **BUDGET),
        "top_k_exponential, peeling": lambda: top_k_exponential(counts, k=50, method="peeling", **BUDGET),
        "limited_domain": lambda: limited_domain(counts, k=50, **BUDGET),
        "top_stable": lambda: top_stable(counts, k=50, **BUDGET),
    }
    for name, best in zip(calls, best_times(list(calls.values()), rounds=4), strict=True):
        rows[name] = {"ms": round(1e3 * best[0], 2)}


def pairs(rows):
    """Ten million pairs of 100,000 users and 1.28 million items: time, and memory beyond the two columns."""
    generator = np.random.default_rng(0)
    users = generator.integers(0, 100_000, PAIRS)
    items = generator.zipf(1.6, PAIRS).clip(max=CANDIDATES)
    wall, _ = timed(lambda: Histogram.from_pairs(users, items))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    histogram = Histogram.from_pairs(users, items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = stable_top_k(histogram, k_max=1000, **BUDGET)
    rows["10 million pairs"] = {
        "seconds": round(wall, 2),
        "columns_mb": round((users.nbytes + items.nbytes) / 1e6),
        "peak_beyond_columns_mb": round(peak / 1e6),
        "process_peak_mb": round(before / 1e3),
        "k_found": found.k,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = {}
    for part in (against_sort, baselines, pairs):
        part(rows)
    for name, row in rows.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
