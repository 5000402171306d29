"""How fast and how small `privatize_table` is, beside pyarrow alone reading and rewriting the same file.

    python benchmarks/bench_table.py [--rows 10000000] [--columns 20] [--repeats 3] [--mode uniform]
    python benchmarks/bench_table.py --rows 2000000 --before FOLDER    # a CSV, beside another version's sources

Both sides run in fresh processes, in turn, in one run of this script: same file, same batches, same row groups, same
compression (zstd, Parquet's defaults else), and both flush what they wrote to the disk. `copy` is the plain loop: read a
batch, write it. `overlapped` gives pyarrow the reading thread that our engine has, which no user's loop has by itself.
With `--before` the table is a CSV, and the other side is `privatize_table` of the sources in that folder (git archive).
Peak memory is the largest resident set that psutil sees in the child, sampled every 50 ms.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

BATCH = 2**16
GROUP = 2**18
CLASSES = 10
SAMPLING_SECONDS = 0.05


def make(path: Path, rows: int, columns: int) -> None:
    """A table like an advertiser's: an id, floats, small integers, a text column and a label of ten classes."""
    rng = np.random.default_rng(0)
    schema = batch_of(rng, 0, 1, columns).schema
    new = pa_csv.CSVWriter if path.suffix == ".csv" else functools.partial(pq.ParquetWriter, compression="zstd")
    with new(path, schema) as writer:
        for start in range(0, rows, GROUP):
            writer.write_batch(batch_of(rng, start, min(GROUP, rows - start), columns))


def batch_of(rng: np.random.Generator, start: int, size: int, columns: int) -> pa.RecordBatch:
    names = {"id": pa.array(np.arange(start, start + size))}
    for number in range(columns - 4):
        kinds = (
            lambda: rng.random(size),
            lambda: rng.random(size, dtype=np.float32),
            lambda: rng.integers(0, 1000, size),
        )
        names[f"f{number}"] = pa.array(kinds[number % 3]())
    names["site"] = pa.array([f"site-{n}" for n in range(50)]).take(pa.array(rng.integers(0, 50, size)))
    names["group"] = pa.array(rng.integers(0, 100, size).astype(np.int32))
    names["label"] = pa.array(rng.integers(0, CLASSES, size).astype(np.int8))
    return pa.record_batch(names)


def copy(source: Path, target: Path, *, overlapped: bool) -> None:
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=2**20)
    batches = file.iter_batches(batch_size=BATCH)
    if overlapped:
        from labeldp.engines.engine import prefetch

        batches = prefetch(batches, depth=2)
    with target.open("wb") as handle:
        with pq.ParquetWriter(handle, file.schema_arrow, compression="zstd") as writer:
            pending = []
            for batch in batches:
                pending.append(batch)
                if len(pending) * BATCH >= GROUP:
                    writer.write_table(pa.Table.from_batches(pending), row_group_size=GROUP)
                    pending = []
            if pending:
                writer.write_table(pa.Table.from_batches(pending), row_group_size=GROUP)
        handle.flush()
        os.fsync(handle.fileno())


def privatize(source: Path, target: Path, mode: str) -> None:
    from labeldp.engines import privatize_table

    options = {"uniform": {}, "groups": {"cluster_column": "group"}, "kmeans": {"n_clusters": 20}}[mode]
    privatize_table(source, label="label", to=target, epsilon=1.0, classes=range(CLASSES), **options)


def child(what: str, source: Path, target: Path) -> None:
    """Run one side and print the seconds it took, imports left out."""
    if what.startswith("privatize"):
        import labeldp.engines  # noqa: F401 - so that the clock starts after it, as it does after pyarrow's
    begin, before = time.perf_counter(), time.process_time()
    if what.startswith("privatize"):
        privatize(source, target, what.split("-")[1])
    else:
        copy(source, target, overlapped=what == "overlapped")
    seconds, used = time.perf_counter() - begin, time.process_time() - before
    print(json.dumps({"seconds": seconds, "cpu": used}))


def measured(what: str, source: Path, target: Path, *, sources: Path | None = None) -> dict[str, float]:
    environment = os.environ if sources is None else {**os.environ, "PYTHONPATH": str(sources)}
    side, _, _ = what.partition(" ")
    process = subprocess.Popen(
        [sys.executable, __file__, "--child", side, str(source), str(target)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    watched, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(SAMPLING_SECONDS)
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(process.returncode)
    return {**json.loads(output), "peak_mib": peak / 2**20}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--columns", type=int, default=20)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--mode", choices=["uniform", "groups", "kmeans"], default="uniform")
    options.add_argument("--overlapped", action="store_true", help="measure pyarrow with a reading thread as well")
    options.add_argument("--before", type=Path, help="the sources of another version; the table is then a CSV")
    options.add_argument("--child", nargs=3)
    chosen = options.parse_args()
    if chosen.child:
        child(chosen.child[0], Path(chosen.child[1]), Path(chosen.child[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = root / ("table.csv" if chosen.before else "table.parquet")
        make(source, chosen.rows, chosen.columns)
        print(
            f"{chosen.rows:,} rows x {chosen.columns} columns, {source.stat().st_size / 1e6:,.0f} MB, mode {chosen.mode}"
        )
        ours = f"privatize-{chosen.mode}"
        sides = ("copy", "overlapped", ours) if chosen.overlapped else ("copy", ours)
        if chosen.before:
            sides = (f"{ours} before", ours)
        wall: dict[str, list[float]] = {side: [] for side in sides}
        cpu: dict[str, list[float]] = {side: [] for side in sides}
        for repeat in range(chosen.repeats):
            for side in sides:
                target = root / "out"
                result = measured(side, source, target, sources=chosen.before if side.endswith("before") else None)
                wall[side].append(result["seconds"])
                cpu[side].append(result["cpu"])
                figures = (
                    f"{result['seconds']:7.2f} s  {result['cpu']:7.2f} s of CPU  peak {result['peak_mib']:5.0f} MiB"
                )
                print(f"run {repeat + 1}  {side:<18} {figures}  load {os.getloadavg()[0]:.1f}", flush=True)
                subprocess.run(["rm", "-rf", str(target)], check=True)
        for side in sides[:-1]:
            for name, times in (("wall", wall), ("CPU", cpu)):
                print(f"speed relative to {side}, {name}: {median(times[side]) / median(times[ours]):.2f}")


if __name__ == "__main__":
    main()
