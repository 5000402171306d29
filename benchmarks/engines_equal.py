"""local == dask == one call in memory, bit for bit, for a seeded run: the labels, and every byte of the files.

    python benchmarks/engines_equal.py [--rows 20000000] [--files 40] [--workers 1,2,3] [--batches 10000,1000000]

Makes the files, releases them by the local engine and by dask with each number of workers, at each batch size, and compares
the SHA-256 of every file (of release.json, all but the time). Then reads the raw labels back and compares the codes with
those of one `privatize` call on all of them. Exit code 1 at the first difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import labeldp
from labeldp.engines import privatize_table
from labeldp.release import SensitiveLabels, load_release, privatize

SEED, EPSILON, CLASSES = 5, 1.0, 10


def make(folder: Path, rows: int, files: int) -> None:
    """A label, an id and two features, in files of equal length, in folders by day."""
    sizes = np.diff(np.linspace(0, rows, files + 1).astype(int))
    start = 0
    for number, size in enumerate(sizes.tolist()):
        rng = np.random.default_rng(number)
        path = folder / f"day={number // 10}" / f"part-{number:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {"id": np.arange(start, start + size), "x": rng.random(size), "y": rng.random(size, dtype=np.float32)}
        label = rng.integers(0, CLASSES, size).astype(np.int8)
        pq.write_table(pa.table({"label": label, **columns}), path, compression="zstd")
        start += size


def digests(directory: Path) -> dict[str, str]:
    found = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.name == "release.json":
            facts = json.loads(data)
            facts.pop("created"), facts.pop("sha256")
            data = json.dumps(facts).encode()
        found[str(path.relative_to(directory))] = hashlib.sha256(data).hexdigest()
    return found


def in_memory(folder: Path) -> Any:
    parts = [pq.ParquetFile(path).read(["label"])["label"].to_numpy() for path in sorted(folder.rglob("*.parquet"))]
    labels = SensitiveLabels(np.concatenate(parts), n_classes=CLASSES)
    return privatize(labels, labeldp.RandomizedResponse(EPSILON, n_classes=CLASSES), rng=SEED).codes


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--files", type=int, default=40)
    options.add_argument("--workers", default="1,2,3")
    options.add_argument("--batches", default="10000,1000000")
    chosen = options.parse_args()
    hows: list[dict[str, Any]] = [{}, *({"engine": "dask", "workers": int(n)} for n in chosen.workers.split(","))]
    with tempfile.TemporaryDirectory() as root:
        source, first = Path(root) / "in", None
        make(source, chosen.rows, chosen.files)
        print(f"{chosen.rows:,} rows in {chosen.files} files")
        for size in (int(n) for n in chosen.batches.split(",")):
            for how in hows:
                to, begin = Path(root) / "out", time.perf_counter()
                privatize_table(source, label="label", to=to, epsilon=EPSILON, rng=SEED, classes=range(CLASSES),
                                batch_rows=size, **how)  # fmt: skip
                seconds, found = time.perf_counter() - begin, digests(to)
                if first is None:
                    first = found
                    same_labels = bool(np.array_equal(load_release(to).codes, in_memory(source)))
                    print(f"codes equal to those of one call in memory: {same_labels}")
                    if not same_labels:
                        raise SystemExit(1)
                shutil.rmtree(to)
                name = f"{how.get('engine', 'local')} {how.get('workers', '')}".strip()
                print(
                    f"{name:<8} batches of {size:>9,}: {len(found)} files, equal: {found == first}, {seconds:.1f} s",
                    flush=True,
                )
                if found != first:
                    raise SystemExit(1)


if __name__ == "__main__":
    main()
