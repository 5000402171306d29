"""Speed of the core against NumPy, as ratios measured in one run: python benchmarks/core.py [--json FILE].

Every pair is timed alternately, several rounds, and the best of each is compared: the machine's noise hits both alike.
`read` is one pass over the prior by NumPy's sum, the memory-bandwidth limit for anything that must look at all of it.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numba
import numpy as np

import labeldp

ROUNDS = 5


def best_times(*functions: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
    """Run the functions in turn, several rounds, and return the best wall time of each."""
    best = [math.inf] * len(functions)
    for _ in range(rounds):
        for j, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            best[j] = min(best[j], time.perf_counter() - begin)
    return best


def priors(n: int, n_classes: int, sharpness: float, dtype: type) -> np.ndarray:
    """Softmax of normal logits: sharpness 2 is a good model's, 0.4 an early stage's."""
    generator = np.random.default_rng(0)
    rows = np.empty((n, n_classes), dtype)
    step = max(1, 10_000_000 // n_classes)
    for low in range(0, n, step):
        logits = generator.standard_normal((min(step, n - low), n_classes)) * sharpness
        mass = np.exp(logits - logits.max(axis=1, keepdims=True))
        rows[low : low + step] = mass / mass.sum(axis=1, keepdims=True)
    return rows


def numpy_argsort(labels: np.ndarray, prior: np.ndarray, epsilon: float, chunk: int = 8192) -> np.ndarray:
    """RRWithPrior as one would write it in NumPy: sort the labels by prior, cumulate, take the best k, respond."""
    generator = np.random.default_rng()
    n, n_classes = prior.shape
    e = math.exp(epsilon)
    weight = (e / (e + np.arange(n_classes))).astype(prior.dtype)
    out = np.empty(n, np.int64)
    for low in range(0, n, chunk):
        p, y = prior[low : low + chunk], labels[low : low + chunk]
        order = np.argsort(-p, axis=1)
        k = (np.cumsum(np.take_along_axis(p, order, axis=1), axis=1) * weight).argmax(axis=1) + 1
        rank = (order == y[:, None]).argmax(axis=1)
        inside = rank < k
        r = generator.random(len(y)) * np.where(inside, e + k - 1, k)
        keep = inside & (r < e)
        j = np.clip(np.where(inside, r - e, r).astype(np.int64), 0, k - 1 - inside)
        j += inside & (j >= rank)
        drawn = np.take_along_axis(order, np.maximum(j, 0)[:, None], axis=1)[:, 0]
        out[low : low + chunk] = np.where(keep, y, drawn)
    return out


def numpy_sort(labels: np.ndarray, prior: np.ndarray, epsilon: float, chunk: int = 8192) -> np.ndarray:
    """The same with the cheaper sort of values only, and a threshold to find the labels again: NumPy at its best."""
    generator = np.random.default_rng()
    n, n_classes = prior.shape
    e = math.exp(epsilon)
    weight = (1.0 / (e + np.arange(n_classes))).astype(prior.dtype)
    out = np.empty(n, np.int64)
    for low in range(0, n, chunk):
        p, y = prior[low : low + chunk], labels[low : low + chunk]
        ordered = np.sort(p, axis=1)[:, ::-1]
        k = (np.cumsum(ordered, axis=1) * weight).argmax(axis=1)
        mask = p >= np.take_along_axis(ordered, k[:, None], axis=1)
        k = mask.sum(axis=1)
        first, members = np.cumsum(k) - k, np.flatnonzero(mask)
        inside = mask[np.arange(len(y)), y]
        r = generator.random(len(y)) * np.where(inside, e + k - 1, k)
        keep = inside & (r < e)
        j = np.clip(np.where(inside, r - e, r).astype(np.int64), 0, np.maximum(k - 1 - inside, 0))
        drawn = members[first + j] % n_classes
        skip = inside & ~keep & (drawn >= y)
        drawn = np.where(skip, members[np.minimum(first + j + 1, len(members) - 1)] % n_classes, drawn)
        out[low : low + chunk] = np.where(keep, y, drawn)
    return out


def with_prior(n: int, n_classes: int, sharpness: float, dtype: type, *, rounds: int) -> dict[str, Any]:
    """RRWithPrior end to end, secure noise included, against both NumPy forms and one read of the prior."""
    prior = priors(n, n_classes, sharpness, dtype)
    labels = np.random.default_rng(1).integers(0, n_classes, n)
    mechanism = labeldp.RRWithPrior(1.0)

    def ours() -> Any:
        return labeldp.privatize(labels, mechanism, prior=prior)

    release = ours()  # compiles
    times = best_times(
        ours,
        lambda: numpy_sort(labels, prior, 1.0),
        lambda: numpy_argsort(labels, prior, 1.0),
        prior.sum,
        rounds=rounds,
    )
    return {
        "what": "RRWithPrior",
        "n": n,
        "K": n_classes,
        "dtype": np.dtype(dtype).name,
        "mean k": float(release.channel.sizes.mean()),
        "ours ms": times[0] * 1e3,
        "numpy sort": times[1] / times[0],
        "numpy argsort": times[2] / times[0],
        "x read": times[0] / times[3],
        "extra MiB": extra_memory(ours, release),
    }


def plain(n: int, n_classes: int) -> dict[str, Any]:
    """Plain randomized response against drawing as many PCG64 doubles."""
    labels = np.random.default_rng(1).integers(0, n_classes, n)
    mechanism = labeldp.RandomizedResponse(1.0, n_classes=n_classes)
    generator = np.random.default_rng(2)

    def ours() -> Any:
        return labeldp.privatize(labels, mechanism)

    release = ours()
    generator.random(n)
    times = best_times(ours, lambda: generator.random(n))
    return {
        "what": "RandomizedResponse",
        "n": n,
        "K": n_classes,
        "ours ms": times[0] * 1e3,
        "x PCG64 doubles": times[0] / times[1],
        "extra MiB": extra_memory(ours, release),
    }


def extra_memory(call: Callable[[], Any], release: Any) -> float:
    """Peak memory of a call beyond its inputs and its output, in MiB (NumPy reports to tracemalloc)."""
    kept = release.codes.nbytes
    channel = release.channel
    kept += sum(a.nbytes for a in (*channel.row_arrays().values(), *channel.example_arrays().values()))
    kept += getattr(channel, "sizes", np.empty(0)).nbytes
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return (peak - kept) / 2**20


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown, one table per kind."""
    lines: list[str] = []
    for kind in dict.fromkeys(row["what"] for row in rows):
        mine = [row for row in rows if row["what"] == kind]
        heads = [name for name in mine[0] if name != "what"]
        lines += ["", f"**{kind}**", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        lines += ["| " + " | ".join(_cell(row[h]) for h in heads) + " |" for row in mine]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rows = [plain(10_000_000, 2), plain(10_000_000, 10)]
    sizes = ((1_000_000, 10, 7), (1_000_000, 100, 2), (200_000, 1000, 2))
    for (n, n_classes, rounds), sharpness, dtype in product(sizes, (2.0, 0.4), (np.float32, np.float64)):
        rows.append(with_prior(n, n_classes, sharpness, dtype, rounds=rounds))
    print(
        f"{platform.machine()}, {numba.get_num_threads()} threads, NumPy {np.__version__}, labeldp {labeldp.__version__}"
    )
    print(table(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
