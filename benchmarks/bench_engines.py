"""The engines beside pyarrow's own copy of the same data set, at growing sizes; and what that says of larger ones.

    python benchmarks/bench_engines.py [--sizes 1000000,10000000,100000000] [--repeats 3] [--workers 2] [--write]

A table of four columns (label, id, two features) in four files or more, of at most 2.5 million rows. Each side runs in a fresh process, in turn:

- `copy`: pyarrow alone: read a batch, write it, flush each file; same reader options, row groups and compression as ours;
- `local`: `privatize_table`, everything included: checks, noise, checksums, manifest, flush, rename;
- `dask`: the same by a local cluster, its start and end included.

Wall time starts after the imports of the process and, for `local`, after a first call on a thousand rows, which loads compiled
kernels and has a column of its own (`start s`): it does not grow with the table. Dask's start counts in full. Memory is the largest sum of resident sets
of the process and its children, sampled every 50 ms (dask: of scheduler and all workers). Medians of the repeats.
`--write` puts the tables between the marks `<!-- bench_engines -->` of docs/scale.md and benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
FILE_ROWS, LEAST_FILES, GROUP, BATCH, CLASSES = 2_500_000, 4, 2**18, 2**16, 10
SAMPLING_SECONDS = 0.05
SIDES = ("copy", "local", "dask")
#: Rows of the extrapolation, and cores of a cluster that might do it.
LATER = ((10**9, 2), (10**9, 64), (10**12, 64), (10**12, 1024))


def make(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True)
    most = min(FILE_ROWS, -(-rows // LEAST_FILES))  # a file is a task: one file alone would keep one core busy of two
    for number, start in enumerate(range(0, rows, most)):
        rng, size = np.random.default_rng(number), min(most, rows - start)
        columns = {
            "label": rng.integers(0, CLASSES, size).astype(np.int8),
            "id": np.arange(start, start + size),
            "x": rng.normal(size=size),
            "y": rng.random(size, dtype=np.float32),
        }
        pq.write_table(
            pa.table(columns), folder / f"part-{number:04d}.parquet", compression="zstd", row_group_size=GROUP
        )


def copy(source: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(source.iterdir()):
        with (
            pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file,
            (target / path.name).open("wb") as handle,
        ):
            with pq.ParquetWriter(handle, file.schema_arrow, compression="zstd") as writer:
                pending: list[Any] = []
                for batch in file.iter_batches(batch_size=BATCH):
                    pending.append(batch)
                    if len(pending) * BATCH >= GROUP:
                        writer.write_table(pa.Table.from_batches(pending), row_group_size=GROUP)
                        pending = []
                if pending:
                    writer.write_table(pa.Table.from_batches(pending), row_group_size=GROUP)
            handle.flush()
            os.fsync(handle.fileno())


def child(side: str, source: Path, target: Path, workers: int) -> None:
    """Run one side and print the seconds it took."""
    if side != "copy":
        from labeldp.engines import privatize_table

        how: dict[str, Any] = {"engine": "dask", "workers": workers} if side == "dask" else {}
    start = started() if side == "local" else 0.0
    begin = time.perf_counter()
    if side == "copy":
        copy(source, target)
    else:
        privatize_table(source, label="label", to=target, epsilon=1.0, classes=range(CLASSES), **how)
    print(json.dumps({"seconds": time.perf_counter() - begin, "start": start}))


def started() -> float:
    """Load what a first call loads, and return how long that took."""
    from labeldp.engines import privatize_table

    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "in", 1_000)
        begin = time.perf_counter()
        privatize_table(
            Path(folder) / "in", label="label", to=Path(folder) / "out", epsilon=1.0, classes=range(CLASSES)
        )
        return time.perf_counter() - begin


def measured(side: str, source: Path, target: Path, workers: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", side, str(source), str(target), "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watched, peak, cpu = psutil.Process(process.pid), 0, {}
    while process.poll() is None:
        total = 0
        try:
            for one in [watched, *watched.children(recursive=True)]:
                try:
                    total += one.memory_info().rss
                    spent = one.cpu_times()
                    cpu[one.pid] = spent.user + spent.system
                except psutil.NoSuchProcess:  # noqa: PERF203 - a few processes, twenty times a second
                    continue
        except psutil.NoSuchProcess:
            break
        peak = max(peak, total)
        time.sleep(SAMPLING_SECONDS)
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(process.returncode)
    return {**json.loads(output), "cpu": sum(cpu.values()), "peak": peak / 2**20}


def runs_of(rows: int, root: Path, *, repeats: int, workers: int) -> dict[str, dict[str, float]]:
    source, target = root / "in", root / "out"
    make(source, rows)
    size = sum(path.stat().st_size for path in source.iterdir())
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for repeat in range(repeats):
        for side in SIDES:
            one = measured(side, source, target, workers)
            found[side].append(one)
            load = os.getloadavg()[0]
            figures = (
                f"{one['seconds']:7.2f} s  {one['cpu']:7.2f} s of CPU  peak {one['peak']:5.0f} MiB  load {load:.1f}"
            )
            print(f"{rows:>11,} rows, run {repeat + 1}  {side:<6} {figures}", flush=True)
            shutil.rmtree(target)
    shutil.rmtree(source)
    medians = {side: {name: median(one[name] for one in ones) for name in ones[0]} for side, ones in found.items()}
    medians["copy"]["bytes"] = size
    return medians


def table(results: dict[int, dict[str, dict[str, float]]], workers: int) -> str:
    """The measured figures, in Markdown."""
    head = f"| rows | MB | copy s | local s | dask ({workers} workers) s | local / copy speed | dask / local time | local ns a row | start s | local MiB | dask MiB |"
    lines = [head, "|" + "---|" * 11]
    for rows, found in results.items():
        wall = {side: found[side]["seconds"] for side in SIDES}
        cells = [f"{rows:,}", f"{found['copy']['bytes'] / 1e6:,.0f}", *(f"{wall[side]:.2f}" for side in SIDES)]
        cells += [f"{wall['copy'] / wall['local']:.2f}", f"{wall['dask'] / wall['local']:.2f}"]
        cells += [f"{1e9 * wall['local'] / rows:.0f}", f"{found['local']['start']:.2f}"]
        cells += [f"{found['local']['peak']:.0f}", f"{found['dask']['peak']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(results: dict[int, dict[str, dict[str, float]]]) -> list[str]:
    """What the issue asks for, and what was measured."""
    largest = results[max(results)]
    wall = {side: largest[side]["seconds"] for side in SIDES}
    each = [found["local"]["seconds"] / rows for rows, found in results.items()]
    return [
        f"- memory of the local engine at {max(results):,} rows: {largest['local']['peak']:.0f} MiB (asked for: below 1,024)",
        f"- speed relative to a copy at {max(results):,} rows: {wall['copy'] / wall['local']:.2f} (asked for: 0.6 or more)",
        f"- dask / local wall time at {max(results):,} rows: {wall['dask'] / wall['local']:.2f} (asked for: 1.3 or less)",
        f"- time a row, slowest size / fastest size: {max(each) / min(each):.2f} (asked for: 1.25 or less)",
    ]


def later(results: dict[int, dict[str, dict[str, float]]]) -> str:
    """The extrapolation: CPU time and bytes a row at the largest size, times rows, over cores."""
    rows, found = max(results), results[max(results)]
    cpu, size = found["local"]["cpu"] / rows, found["copy"]["bytes"] / rows
    lines = [
        "| rows | table | CPU hours | cores | wall, if cores are the limit | read and written each, MB/s |",
        "|" + "---|" * 6,
    ]
    for many, cores in LATER:
        seconds = cpu * many / cores
        wall = f"{seconds / 60:,.1f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
        cells = [
            f"{many:.0e}".replace("+", ""),
            f"{size * many / 1e9:,.0f} GB",
            f"{cpu * many / 3600:,.1f}",
            str(cores),
            wall,
        ]
        lines.append("| " + " | ".join([*cells, f"{size * many / seconds / 1e6:,.0f}"]) + " |")
    return "\n".join(lines)


def put(path: Path, text: str) -> None:
    """Replace what stands between the marks of a page."""
    begin, end = "<!-- bench_engines -->", "<!-- end bench_engines -->"
    page = path.read_text(encoding="utf-8")
    if begin not in page:
        page = f"{page.rstrip()}\n\n## The engines\n\n{begin}\n{end}\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page), encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", default="1000000,10000000,100000000")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--write", action="store_true")
    options.add_argument("--child", nargs=3)
    chosen = options.parse_args()
    if chosen.child:
        child(chosen.child[0], Path(chosen.child[1]), Path(chosen.child[2]), chosen.workers)
        return
    results = {}
    for rows in (int(n) for n in chosen.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            results[rows] = runs_of(rows, Path(folder), repeats=chosen.repeats, workers=chosen.workers)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, pyarrow {pa.__version__}, load {os.getloadavg()[0]:.1f} at the end; medians of {chosen.repeats} runs."
    command = f"`python benchmarks/bench_engines.py --sizes {chosen.sizes} --repeats {chosen.repeats}`"
    measured_text = "\n".join([f"{command}, {machine}", "", table(results, chosen.workers), "", *verdicts(results)])
    print(measured_text)
    print(later(results))
    if chosen.write:
        put(ROOT / "benchmarks" / "README.md", measured_text)
        put(ROOT / "docs" / "scale.md", f"{measured_text}\n\n{later(results)}")


if __name__ == "__main__":
    main()
