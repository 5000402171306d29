"""Ten thousand classes, measured: python benchmarks/many_classes.py [--md FILE] [--rows 200000] [--classes 10000].

Each line is a process of its own. `peak` is the most memory that the process had (ru_maxrss) less what it had after its
imports and its inputs; `as an array` is what an (n, K) array of float64 would take, of which forward loss and EM held
several before rows were made on demand (`labeldp.channel.Evidence`). Features are noise: this is about memory, not accuracy.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["LABELDP_THREADS"] = "1"

import numpy as np

import labeldp
from labeldp.channel import Evidence
from labeldp.learn import SoftmaxRegression
from labeldp.learn.beliefs import ModelBeliefs

EPSILON, COLUMNS, STEPS = 4.0, 32, 10


class Enough(Exception):  # noqa: N818 - it is no error
    """A few steps were taken: memory is what an epoch would need."""


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def make_inputs(n: int, k: int) -> tuple[np.ndarray, labeldp.SensitiveLabels]:
    rng = np.random.default_rng(0)
    labels = labeldp.SensitiveLabels(rng.integers(0, k, n).astype(np.int32), n_classes=k)
    return rng.normal(size=(n, COLUMNS)).astype(np.float32), labels


def make_model(k: int) -> SoftmaxRegression:
    """Return a model with random coefficients: something to believe."""
    model = SoftmaxRegression()
    rng = np.random.default_rng(1)
    model.coef_, model.intercept_ = 0.3 * rng.normal(size=(k, COLUMNS)), np.zeros(k)
    model.classes_, model.n_features_in_ = np.arange(k), COLUMNS
    return model


def release_arcs(n: int, k: int) -> labeldp.Release:
    _, labels = make_inputs(n, k)
    return labeldp.privatize(labels, labeldp.InformativeResponse(EPSILON, n_classes=k), rng=0)


def stored_bytes(release: labeldp.Release) -> int:
    with tempfile.TemporaryDirectory() as folder:
        release.save(Path(folder) / "release")
        return sum(path.stat().st_size for path in (Path(folder) / "release").glob("*.parquet"))


def run_arcs(n: int, k: int) -> str:
    return f"{stored_bytes(release_arcs(n, k)) / n:.2f} bytes a row as Parquet"


def run_blocks(n: int, k: int) -> str:
    X, labels = make_inputs(n, k)
    prior = ModelBeliefs(make_model(k), X, classes=tuple(range(k)), floor=0.02)
    release = labeldp.privatize(labels, labeldp.InformativeResponse(EPSILON), prior=prior, rng=0)
    return f"{stored_bytes(release) / n:.0f} bytes a row as Parquet, {release.codes.nbytes / n:.0f} in memory"


def run_softmax(n: int, k: int) -> str:
    X, _ = make_inputs(n, k)
    release = release_arcs(n, k)
    evidence = Evidence(release.codes, release.channel)
    model = SoftmaxRegression(max_iter=1).fit_likelihood(X, evidence, classes=range(k))
    return f"{model.n_iter_} iteration of L-BFGS, {len(set(model.predict(X).tolist())):,} classes predicted"


def run_network(n: int, k: int) -> str:
    from labeldp.nn import NetClassifier

    X, _ = make_inputs(n, k)
    release = release_arcs(n, k)

    def stop(done: int, _total: int, _loss: float) -> None:
        if done == STEPS:
            raise Enough

    network = NetClassifier("mlp", hidden=32, epochs=100, batch_size=1000, mixup=0.0, progress=stop)
    with contextlib.suppress(Enough):
        network.fit_likelihood(X, Evidence(release.codes, release.channel), classes=range(k))
    return f"{STEPS} steps of {min(n, 1000):,} rows; an epoch has {-(-n // 1000)}"


def work(run: Callable[[int, int], str], n: int, k: int, answers: Any) -> None:
    """Run one line on a few rows, so that what is compiled and imported is there, and then on all of them."""
    import warnings

    warnings.simplefilter("ignore")
    run(200, 300)
    make_inputs(n, k)
    before, start = peak_bytes(), time.process_time()
    told = run(n, k)
    answers.put((peak_bytes() - before, time.process_time() - start, told))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--md", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=10_000)
    options = parser.parse_args()
    n, k = options.rows, options.classes
    tenth = n // 10
    plan = [
        ("release without a prior (arcs)", run_arcs, n),
        ("release with a model's beliefs as prior (blocks)", run_blocks, tenth // 2),
        ("`SoftmaxRegression.fit_likelihood`", run_softmax, tenth),
        ("`NetClassifier.fit_likelihood`", run_network, n),
    ]
    lines = ["| what | rows | as an array | peak | CPU seconds | |", "|---|---|---|---|---|---|"]
    context = multiprocessing.get_context("spawn")
    for name, run, rows in plan:
        answers: Any = context.Queue()
        process = context.Process(target=work, args=(run, rows, k, answers))
        process.start()
        peak, seconds, told = answers.get()
        process.join()
        lines.append(f"| {name} | {rows:,} | {8e-9 * rows * k:.1f} GB | {peak / 1e9:.2f} GB | {seconds:.0f} | {told} |")
        print(lines[-1], flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    head = f"By `python benchmarks/many_classes.py --rows {n} --classes {k}` on {machine}; epsilon {EPSILON:g}."
    text = "\n".join([f"# {k:,} classes, measured", "", head, "", *lines, ""])
    if options.md is not None:
        options.md.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
