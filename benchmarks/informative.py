"""InformativeResponse, measured: python benchmarks/informative.py [--md FILE] [--rows 10000000] [--table ROWS].

Speed is processor time of one thread (LABELDP_THREADS=1 is set here), the best of several rounds that alternate with what is
compared, so that a busy machine hits both alike; a neighbour on the same core still slows all of it down. Information is
exact, against the linear program over all staircase channels, which no epsilon-private channel exceeds. Sizes are bytes of
labels.parquet and channel.parquet together. With --table nothing else is measured: a table of so many labels goes from disk to
disk by `privatize_table`, for labels and for training.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["LABELDP_THREADS"] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import linprog

import labeldp
from labeldp.channel import safe_odds
from labeldp.channel.sets import score_mass
from labeldp.engines import privatize_table
from labeldp.mechanisms import response_worth

ROUNDS = 5
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)


def best_times(*functions: Callable[[], Any]) -> list[float]:
    """Run the functions in turn and return the least processor time of each."""
    best = [math.inf] * len(functions)
    for _ in range(ROUNDS):
        for j, function in enumerate(functions):
            begin = time.process_time()
            function()
            best[j] = min(best[j], time.process_time() - begin)
    return best


def boxed(codes: np.ndarray, n_classes: int) -> labeldp.SensitiveLabels:
    return labeldp.SensitiveLabels(codes, n_classes=n_classes)


def measure_speed(n: int) -> list[str]:
    """Rows a second without a prior beside randomized response, and with a prior."""
    rng = np.random.default_rng(0)
    lines = ["| what | rows | million rows a second | against randomized response |", "|---|---|---|---|"]
    codes = rng.integers(0, 10, n).astype(np.int32)
    labels = boxed(codes, 10)
    plain, sets = labeldp.RandomizedResponse(1.0), labeldp.InformativeResponse(1.0)
    first, second = best_times(lambda: labeldp.privatize(labels, plain), lambda: labeldp.privatize(labels, sets))
    lines.append(f"| randomized response, K = 10 | {n:,} | {n / first / 1e6:.1f} | 1 |")
    lines.append(f"| sets, no prior, K = 10 | {n:,} | {n / second / 1e6:.1f} | {second / first:.2f} times its time |")
    logits = rng.standard_normal((n // 10, 10)) * 2.0
    prior = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float32)
    prior /= prior.sum(axis=1, keepdims=True)
    part = boxed(codes[: n // 10], 10)
    (taken,) = best_times(lambda: labeldp.privatize(part, labeldp.RRWithPrior(1.0), prior=prior))
    lines.append(f"| RRWithPrior, K = 10, epsilon 1 | {n // 10:,} | {n / 10 / taken / 1e6:.1f} | |")
    for k, rows, epsilon, sharpness in ((10, n // 10, 1.0, 2.0), (10, n // 10, 0.5, 2.0), (10, n // 10, 2.0, 2.0),
                                        (10, n // 10, 4.0, 2.0), (100, n // 100, 1.0, 2.0), (1000, n // 1000, 4.0, 2.0)):  # fmt: skip
        logits = rng.standard_normal((rows, k)) * sharpness
        prior = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float32)
        prior /= prior.sum(axis=1, keepdims=True)
        part, mechanism = boxed(rng.integers(0, k, rows).astype(np.int32), k), labeldp.InformativeResponse(epsilon)
        (taken,) = best_times(functools.partial(labeldp.privatize, part, mechanism, prior=prior))
        lines.append(
            f"| sets, a prior for each row, K = {k}, epsilon {epsilon:g} | {rows:,} | {rows / taken / 1e6:.3f} | |"
        )
    return lines


def best_information(prior: np.ndarray, odds: float) -> float:
    k = len(prior)
    patterns = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1
    value = -score_mass(patterns @ prior, odds)
    return float(-linprog(value, A_eq=(1 + odds * patterns).T, b_eq=np.ones(k), bounds=(0, None)).fun)


def priors(k: int) -> list[np.ndarray]:
    """Six shapes by hand and 24 random ones, sharp and flat."""
    rng, ranks = np.random.default_rng(11), np.arange(1, k + 1)
    rows = [np.ones(k), np.r_[0.6, np.full(k - 1, 0.4 / (k - 1))], np.r_[0.9, np.full(k - 1, 0.1 / (k - 1))],
            np.r_[0.5, 0.4, np.full(k - 2, 0.1 / (k - 2))], 1.0 / ranks, 0.6**ranks]  # fmt: skip
    rows += [rng.dirichlet(np.full(k, a)) for a in (0.1, 0.3, 1.0, 3.0) for _ in range(6)]
    return [row / row.sum() for row in rows]


def measure_information() -> list[str]:
    """The share of the linear program's information: worst and mean over priors."""
    lines = ["| K | epsilon | sets, worst | sets, mean | randomized response, worst |", "|---|---|---|---|---|"]
    for k in (8, 10):
        for epsilon in EPSILONS:
            ours, theirs = [], []
            for prior in priors(k):
                mixed = 0.9 * prior + 0.1 / k
                best = best_information(mixed, safe_odds(epsilon))
                ours.append(float(labeldp.InformativeResponse(epsilon).channel(prior[None]).information()[0]) / best)
                theirs.append(response_worth(epsilon, mixed).information / best)
            lines.append(f"| {k} | {epsilon:g} | {min(ours):.4f} | {np.mean(ours):.4f} | {min(theirs):.3f} |")
    return lines


def measure_size(n: int) -> list[str]:
    """Bytes of a release of sets without a prior against one of labels, at K = 10."""
    codes = np.random.default_rng(0).integers(0, 10, n).astype(np.int32)
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for number, mechanism in enumerate((labeldp.RandomizedResponse(1.0), labeldp.InformativeResponse(1.0))):
            place = Path(folder) / str(number)
            labeldp.privatize(boxed(codes, 10), mechanism).save(place)
            sizes.append(sum(path.stat().st_size for path in place.glob("*.parquet")))
    told = f"{n:,} rows of 10 classes, epsilon 1: labels {sizes[0]:,} bytes, sets {sizes[1]:,} bytes: "
    return [told + f"{sizes[1] / sizes[0]:.3f} times as large ({8 * sizes[1] / n:.2f} bits a row)."]


def measure_table(n: int) -> list[str]:
    """Bytes and processor time of a release from disk to disk, by labels and by sets, at K = 10."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        source, rng = Path(folder) / "labels.parquet", np.random.default_rng(0)
        with pq.ParquetWriter(source, pa.schema([("label", pa.int8())])) as writer:
            for low in range(0, n, 1 << 20):
                codes = rng.integers(0, 10, min(1 << 20, n - low), np.int8)
                writer.write_table(pa.table({"label": codes}))
        for purpose in ("labels", "training"):
            to, begin = Path(folder) / purpose, time.process_time()
            privatize_table(source, label="label", to=to, epsilon=1.0, classes=range(10), purpose=purpose)
            taken = time.process_time() - begin
            found[purpose] = sum(path.stat().st_size for path in to.rglob("*.parquet")), taken
            shutil.rmtree(to)
    (size, seconds), (sets, longer) = found["labels"], found["training"]
    return [
        f"{n:,} rows of 10 classes, epsilon 1, `privatize_table` from Parquet to Parquet:", "",
        "| for | bytes | bits a row | processor seconds |", "|---|---|---|---|",
        f"| labels | {size:,} | {8 * size / n:.2f} | {seconds:.0f} |",
        f"| training (sets) | {sets:,} | {8 * sets / n:.2f} | {longer:.0f} |", "",
        f"Sets are {sets / size:.3f} times as large, and take {longer / seconds:.2f} times the processor time.",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--md", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--table", type=int, metavar="ROWS")
    options = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    if options.table is not None:
        told = (
            f"By `python benchmarks/informative.py --table {options.table}` on {machine}; load {load:.0f} as it began."
        )
        write(["# A large table of sets, measured", "", told, "", *measure_table(options.table), ""], options.md)
        return
    lines = [
        "# InformativeResponse, measured", "",
        f"By `python benchmarks/informative.py --rows {options.rows}` on {machine}; load {load:.0f} while it ran.", "",
        "## Speed, processor time of one thread", "", *measure_speed(options.rows), "",
        "## Size of a release without a prior", "", *measure_size(options.rows), "",
        "## Information, as a share of the best epsilon-private channel's", "",
        "30 priors, each mixed with a tenth of the uniform one, as the mechanism does; b <= 16.", "", *measure_information(), "",
    ]  # fmt: skip
    write(lines, options.md)


def write(lines: list[str], path: Path | None) -> None:
    text = "\n".join(lines)
    print(text)
    if path is not None:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
