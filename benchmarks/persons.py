"""The person as unit against the label as unit, on a table: python benchmarks/persons.py [--rows N] [--persons P] [--json FILE].

A folder of four Parquet files with ten columns; the rows of a person are scattered over all of them. Each case runs in a process of
its own, and what is compared is its processor time, all threads together, so that a busy machine changes little. The peak of memory
is that of the process; what the plan of persons adds to it is the difference. `memory` is `privatize` on plain arrays, where drawing takes
a tenth of a second and reading ten million ids is nearly all of it. The releases of the engines are compared with each other.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 4
CASES = [(engine, unit) for engine in ("local", "dask", "memory") for unit in ("label", "person")]


def make_rows(n: int, persons: int) -> pa.Table:
    """Every person has a row; the others belong to someone at random."""
    generator = np.random.default_rng(0)
    ids = np.concatenate([np.arange(persons), generator.integers(0, persons, n - persons)])
    generator.shuffle(ids)
    columns = {f"x{place}": generator.normal(size=n).astype(np.float32) for place in range(8)}
    return pa.table({"patient": ids, **columns, "readmitted": generator.integers(0, 2, n).astype(np.int8)})


def run_case(folder: Path, engine: str, unit: str) -> dict[str, Any]:
    """Release the table once, and return seconds, memory and what was released."""
    import labeldp
    from labeldp.engines import privatize_table

    small = {"persons": [0, 0, 1]} if unit == "person" else {}
    labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(1.0, n_classes=2), **small)  # compiles
    if engine == "memory":
        table = pq.read_table(folder, columns=["patient", "readmitted"])
        labels, ids = table["readmitted"].to_numpy(), table["patient"].to_numpy()
        begin, wall = time.process_time(), time.perf_counter()
        given = {"persons": ids} if unit == "person" else {}
        release = labeldp.privatize(labels, labeldp.RandomizedResponse(1.0, n_classes=2), rng=1, **given)
    else:
        options: dict[str, Any] = {"workers": 2} if engine == "dask" else {}
        if unit == "person":
            options["persons"] = "patient"
        target = folder.parent / f"{engine}-{unit}"
        begin, wall = time.process_time(), time.perf_counter()
        privatize_table(
            folder, label="readmitted", to=target, epsilon=1.0, classes=[0, 1], rng=1, engine=engine, **options
        )
    spent, waited = time.process_time() - begin, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if engine != "memory":
        release = labeldp.load_release(target)
    rows = [] if release.rows is None else release.rows[:: max(1, len(release) // 1000)].tolist()
    return {
        "seconds": spent,
        "wall": waited,
        "peak_mb": peak,
        "answers": len(release),
        "sum": int(release.codes.sum(dtype=np.int64)),
        "rows": rows,
    }


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--persons", type=int, default=3_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", nargs=3, help="one case, in this process: folder, engine, unit")
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(run_case(Path(given.case[0]), *given.case[1:])))
        return
    found: dict[str, Any] = {"rows": given.rows, "persons": given.persons, "machine": platform.machine()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "stays"
        folder.mkdir()
        table, step = make_rows(given.rows, given.persons), -(-given.rows // FILES)
        for number in range(FILES):
            pq.write_table(table.slice(number * step, step), folder / f"part-{number}.parquet")
        del table
        for engine, unit in CASES:
            command = [sys.executable, __file__, "--case", str(folder), engine, unit]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[f"{engine} {unit}"] = json.loads(told.splitlines()[-1])
    same = [found[f"{engine} person"] for engine in ("local", "dask", "memory")]
    found["same"] = all((one["sum"], one["rows"]) == (same[0]["sum"], same[0]["rows"]) for one in same)
    for engine in ("local", "dask", "memory"):
        label, person = found[f"{engine} label"], found[f"{engine} person"]
        found[f"{engine} ratio"] = person["seconds"] / label["seconds"]
        print(
            f"{engine}: label {label['seconds']:.2f} s, {label['peak_mb']:.0f} MB; person {person['seconds']:.2f} s, "
            f"{person['peak_mb']:.0f} MB, {person['answers']:,} answers; ratio {found[f'{engine} ratio']:.2f}"
        )
    print(f"the three releases of persons are the same: {found['same']}")
    for one in same:
        del one["rows"]
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
