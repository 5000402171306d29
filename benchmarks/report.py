"""The report of a release with ten million rows: python benchmarks/report.py [--rows N] [--json FILE].

Each kind of release is made once and saved in a temporary folder; then a fresh process writes its report by the command
line, as a user would, so that start-up, checksums and loading count. Wants: under 10 s and under 5 MB. CPU seconds stand
beside wall time, since other work on the machine stretches the latter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import labeldp
from labeldp.data import write_table
from labeldp.engines import privatize_table

ROWS = 10_000_000
CLASSES = 10
LONGEST, LARGEST = 10.0, 5_000_000


def made(folder, n):
    """Yield release directories of n labels: a table's, one with a histogram per group, one with a set per row."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, n).astype(np.int8)
    groups = generator.integers(0, 1_000, n).astype(np.int16)
    table = pa.table({"group": groups, "age": generator.normal(size=n).astype(np.float32), "label": labels})
    write_table([table], table.schema, folder / "table.parquet")
    del table
    settings = {"label": "label", "epsilon": 1.0, "classes": list(range(CLASSES))}
    privatize_table(folder / "table.parquet", to=folder / "plain", **settings)
    yield "a table, randomized response", folder / "plain"
    privatize_table(folder / "table.parquet", to=folder / "grouped", cluster_column="group", **settings)
    yield "a table, a histogram per group", folder / "grouped"
    rows = generator.dirichlet(np.full(CLASSES, 0.5), 1_000).astype(np.float32)
    boxed = labeldp.SensitiveLabels(labels, n_classes=CLASSES)
    labeldp.privatize(boxed, labeldp.RRWithPrior(1.0), prior=rows[groups]).save(folder / "sets")
    yield "labels, a candidate set per row", folder / "sets"


def reported(place, page):
    """Return wall seconds, CPU seconds, peak memory and bytes of one report in a process of its own."""
    command = [sys.executable, "-m", "labeldp", "report", str(place), "--to", str(page)]
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begun
    if status != 0:
        raise SystemExit(f"{command} failed")
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 1024),
        "page_bytes": page.stat().st_size,
    }


def main():
    """Make, report, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, place in made(Path(folder), chosen.rows):
            found[name] = reported(place, Path(folder) / f"{place.name}.html")
            fine = found[name]["seconds"] < LONGEST and found[name]["page_bytes"] < LARGEST
            print(f"{name}: {found[name]}{'' if fine else '  TOO MUCH'}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": chosen.rows, "report": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
