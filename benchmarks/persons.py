"""The person as unit against the label as unit, on a table: python benchmarks/persons.py [--rows N] [--persons P] [--json FILE].

A folder of four Parquet files with ten columns; the rows of a person are scattered over all of them. Each case runs in a process of
its own, and what is compared is its processor time, all threads together, so that a busy machine changes little. The peak of memory
is that of the process; what the plan of persons adds to it is the difference. The releases of the engines are compared with each other.

`memory` is `privatize` on plain arrays, where drawing takes a tenth of a second and finding out which rows are one person's is nearly
all of the rest. It is measured with three kinds of ids: `near` (whole numbers that lie close together), `far` (whole numbers
of the whole range of 2^31, as patient numbers are) and `text`; each the best of three calls, beside what NumPy and Arrow take, in the
same process, for a part of the work: one random read of memory for each id (`gather`), `dictionary_encode`, and `np.unique`.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 4
ENGINES = ("local", "dask")
CASES = [(engine, unit) for engine in (*ENGINES, "memory") for unit in ("label", "person")]
KINDS = ("near", "far", "text")


def make_rows(n: int, persons: int, *, features: bool = True) -> pa.Table:
    """Every person has a row; the others belong to someone at random. Ids and labels are the same without features."""
    generator = np.random.default_rng(0)
    ids = np.concatenate([np.arange(persons), generator.integers(0, persons, n - persons)])
    generator.shuffle(ids)
    columns = {f"x{place}": generator.normal(size=n).astype(np.float32) for place in range(8)}
    labels = generator.integers(0, 2, n).astype(np.int8)
    return pa.table({"patient": ids, **(columns if features else {}), "readmitted": labels})


def run_case(folder: Path, engine: str, unit: str) -> dict[str, Any]:
    """Release the table once, and return seconds, memory and what was released."""
    import labeldp
    from labeldp.engines import privatize_table

    small = {"persons": [0, 0, 1]} if unit == "person" else {}
    labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(1.0, n_classes=2), **small)  # compiles
    if engine == "memory":
        return run_memory(folder, unit)
    options: dict[str, Any] = {"workers": 2} if engine == "dask" else {}
    if unit == "person":
        options["persons"] = "patient"
    target = folder.parent / f"{engine}-{unit}"
    begin, wall = time.process_time(), time.perf_counter()
    privatize_table(folder, label="readmitted", to=target, epsilon=1.0, classes=[0, 1], rng=1, engine=engine, **options)
    spent, waited = time.process_time() - begin, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    release = labeldp.load_release(target)
    return {"seconds": spent, "wall": waited, "peak_mb": peak, **describe(release)}


def describe(release: Any) -> dict[str, Any]:
    """Return what tells two releases apart."""
    rows = [] if release.rows is None else release.rows[:: max(1, len(release) // 1000)].tolist()
    return {"answers": len(release), "sum": int(release.codes.sum(dtype=np.int64)), "rows": rows}


def run_memory(folder: Path, unit: str) -> dict[str, Any]:
    """Release arrays, for persons with three kinds of ids, and measure parts of the work beside it."""
    import labeldp

    table = pq.read_table(folder, columns=["patient", "readmitted"])
    labels, near = table["readmitted"].to_numpy(), table["patient"].to_numpy()
    mechanism = labeldp.RandomizedResponse(1.0, n_classes=2)
    if unit == "label":
        spent, release = find_best(lambda: labeldp.privatize(labels, mechanism, rng=1))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"seconds": spent, "peak_mb": peak, **describe(release)}
    far = near * 2_654_435_761 % 2**31  # an odd factor: another number for another person
    found: dict[str, Any] = {}
    for kind, ids in (("near", near), ("far", far), ("text", pa.array(far).cast(pa.string()))):
        spent, release = find_best(lambda ids=ids: labeldp.privatize(labels, mechanism, rng=1, persons=ids))
        told = describe(release)
        assert not found or told["rows"] == found["rows"]  # what persons are called does not matter
        found = {**found, **told, kind: spent}
        plain = pa.array(ids) if isinstance(ids, np.ndarray) else ids
        found[f"{kind}: dictionary_encode"], _ = find_best(lambda plain=plain: plain.dictionary_encode())
    memory = np.zeros(int(near.max()) + 1)
    found["near: gather"], _ = find_best(lambda: memory[near])
    found["near: np.unique"], _ = find_best(lambda: np.unique(near), times=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": found["near"], "peak_mb": peak, **found}


def find_best(work: Callable[[], Any], *, times: int = 3) -> tuple[float, Any]:
    """Return the least processor time of several calls, and what the last one gave."""
    best, given = float("inf"), None
    for _ in range(times):
        begin = time.process_time()
        given = work()
        best = min(best, time.process_time() - begin)
    return best, given


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--persons", type=int, default=3_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--only", help="one engine: local, dask or memory; the others' figures in --json stay as they are"
    )
    parser.add_argument("--case", nargs=3, help="one case, in this process: folder, engine, unit")
    given = parser.parse_args()
    if given.case is not None:
        print(json.dumps(run_case(Path(given.case[0]), *given.case[1:])))
        return
    found: dict[str, Any] = {"rows": given.rows, "persons": given.persons, "machine": platform.machine()}
    if given.only is not None and given.json is not None and given.json.exists():
        found = {**json.loads(given.json.read_text(encoding="utf-8")), **found}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "stays"
        folder.mkdir()
        table, step = (
            make_rows(given.rows, given.persons, features=given.only != "memory"),
            -(-given.rows // FILES),
        )
        for number in range(FILES):
            pq.write_table(table.slice(number * step, step), folder / f"part-{number}.parquet")
        del table
        for engine, unit in [case for case in CASES if given.only in (None, case[0])]:
            command = [sys.executable, __file__, "--case", str(folder), engine, unit]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[f"{engine} {unit}"] = json.loads(told.splitlines()[-1])
    same = [found[f"{engine} person"] for engine in (*ENGINES, "memory") if f"{engine} person" in found]
    found["same"] = all(one["sum"] == same[0]["sum"] for one in same)
    found["same"] &= len({tuple(one["rows"]) for one in same if "rows" in one}) == 1
    for engine in dict.fromkeys(name.split()[0] for name in found if name.endswith(" label")):
        label, person = found[f"{engine} label"], found[f"{engine} person"]
        found[f"{engine} ratio"] = person["seconds"] / label["seconds"]
        print(
            f"{engine}: label {label['seconds']:.2f} s, {label['peak_mb']:.0f} MB; person {person['seconds']:.2f} s, "
            f"{person['peak_mb']:.0f} MB, {person['answers']:,} answers; ratio {found[f'{engine} ratio']:.2f}"
        )
    memory = found["memory person"]
    label = found["memory label"]["seconds"]
    for kind in KINDS:
        parts = [f"{name.split(': ')[1]} {memory[name]:.2f} s" for name in memory if name.startswith(f"{kind}: ")]
        found[f"memory ratio, {kind}"] = memory[kind] / label
        print(
            f"memory, ids {kind}: {memory[kind]:.2f} s, ratio {memory[kind] / label:.2f}; beside it {', '.join(parts)}"
        )
    print(f"the releases of persons are the same: {found['same']}")
    for one in same:
        one.pop("rows", None)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
