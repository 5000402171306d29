"""Two versions of labeldp side by side in one run: python benchmarks/versions.py OTHER_CLONE [--rounds N] [--json FILE].

Each version has a process of its own, which makes its data once and then runs a case whenever it is asked. The two are
asked in turn, round after round, so that whatever else the machine does falls on both. CPU seconds are compared, not wall
time: the median over the rounds of this version divided by that of the other; below 1 this one is faster. Only public
names are called, so that versions with another inside can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def cases(folder):
    """Return each case by name: a function to time, and one that cleans up after it."""
    import shutil

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import labeldp
    from labeldp.engines import privatize_table
    from labeldp.learn import SoftmaxRegression
    from labeldp.selection import stable_top_k

    rng = np.random.default_rng(0)

    def prior(n, k):
        rows = rng.random((n, k), dtype=np.float32) ** 4
        return rows / rows.sum(axis=1, keepdims=True)

    many, some, few = 10_000_000, 2_000_000, 300_000
    two = labeldp.SensitiveLabels(rng.integers(0, 2, many), n_classes=2)
    ten = labeldp.SensitiveLabels(rng.integers(0, 10, some), n_classes=10)
    hundred = labeldp.SensitiveLabels(rng.integers(0, 100, few), n_classes=100)
    p10, p100 = prior(some, 10), prior(few, 100)
    groups = rng.integers(0, 1000, some)
    counts = rng.zipf(1.3, 1_000_000).clip(max=100_000)
    X = rng.normal(size=(20_000, 50))
    y = (X @ rng.normal(size=(50, 10))).argmax(axis=1)
    table = folder / "table.parquet"
    pq.write_table(pa.table({"a": rng.normal(size=some), "b": groups, "label": rng.integers(0, 10, some)}), table)
    release = labeldp.privatize(ten, labeldp.RRWithPrior(1.0), prior=p10)

    def save_and_load():
        release.save(folder / "saved")
        labeldp.load_release(folder / "saved")

    def of_table(**options):
        privatize_table(table, label="label", to=folder / "out", epsilon=1.0, classes=list(range(10)), **options)

    def remove():
        for name in ("saved", "out"):
            shutil.rmtree(folder / name, ignore_errors=True)

    return remove, {
        "RandomizedResponse, K=2, 10M": lambda: labeldp.privatize(two, labeldp.RandomizedResponse(1.0)),
        "RRWithPrior, K=10, 2M": lambda: labeldp.privatize(ten, labeldp.RRWithPrior(1.0), prior=p10),
        "RRWithPrior, K=100, 300k": lambda: labeldp.privatize(hundred, labeldp.RRWithPrior(1.0), prior=p100),
        "ClusterRR, 1000 clusters, 2M": lambda: labeldp.privatize(ten, labeldp.ClusterRR(1.0), groups=groups),
        "stable_top_k, 1M items": lambda: stable_top_k(
            counts, k_max=20, epsilon=1.0, delta=1e-6, neighbours="add_remove"
        ),
        "save and load, 2M": save_and_load,
        "privatize_table, 2M": of_table,
        "privatize_table by groups, 2M": lambda: of_table(cluster_column="b"),
        "SoftmaxRegression, 20k x 50, K=10": lambda: SoftmaxRegression().fit(X, y),
        "LabelPrivateClassifier, 2 stages": lambda: labeldp.LabelPrivateClassifier(
            epsilon=2.0, stages=2, classes=range(10), random_state=0
        ).fit(X, y),
    }


def serve():
    """Run cases that are asked for on standard input, and answer each with its CPU seconds."""
    with tempfile.TemporaryDirectory() as name:
        remove, known = cases(Path(name))
        for run in known.values():  # compile, import and warm up
            run()
            remove()
        print(json.dumps(list(known)), flush=True)
        for line in sys.stdin:
            begun = time.process_time()
            known[line.rstrip("\n")]()
            print(time.process_time() - begun, flush=True)
            remove()


def start(root):
    """Start the process of one version."""
    cache = root / ".cache" / "versions-numba"
    env = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1", "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="the root of another clone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return
    if chosen.other is None:
        parser.error("name the root of another clone")
    ours, theirs = start(HERE), start(chosen.other.resolve())
    names = json.loads(ours.stdout.readline())
    theirs.stdout.readline()  # the same names, once its data is made
    spent = {name: ([], []) for name in names}
    for turn in range(chosen.rounds):
        for name in names:
            sides = [(0, ours), (1, theirs)]
            for number, side in sides if turn % 2 else reversed(sides):
                side.stdin.write(name + "\n")
                side.stdin.flush()
                spent[name][number].append(float(side.stdout.readline()))
    found = {}
    for name, (mine, other) in spent.items():
        a, b = statistics.median(mine), statistics.median(other)
        found[name] = {"this, CPU s": round(a, 4), "other, CPU s": round(b, 4), "ratio": round(a / b, 3)}
        print(f"{name:36} {a:8.3f} {b:8.3f}   {a / b:.3f}", flush=True)
    for side in (ours, theirs):
        side.stdin.close()
        side.wait()
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
