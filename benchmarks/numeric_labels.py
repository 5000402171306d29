"""Numbers against classes at the door, and the programs behind them: python benchmarks/numeric_labels.py [--rows N] [--json FILE].

Processor time of one process, all threads together, so that a busy machine changes little. Both calls take a plain array and
check it, draw secure noise and return a release: ten million integers of ten classes through `RandomizedResponse`, and as many
floats through `UnbiasedResponse`, whose channel was made before, as a long table would have it. Calls alternate; the least
of each is compared. The programs are solved anew, without the cache of designs.

`--tables` compares `privatize_table` as well: one Parquet file with a label of ten classes and one that is an amount, three other
columns, from the file to the release on disk, one pass to check and one to draw in both.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import labeldp
from labeldp.engines import privatize_table
from labeldp.mechanisms import numbers

ROUNDS = 3
EPSILON = 1.0


def processor_times(*functions: Callable[[], Any]) -> list[float]:
    """Run the functions in turn, several rounds, and return the least processor time of each."""
    spent: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for j, function in enumerate(functions):
            begin = time.process_time()
            function()
            spent[j].append(time.process_time() - begin)
    return [min(times) for times in spent]


def compare_doors(n: int) -> dict[str, float]:
    """Return seconds of both doors, and their ratio."""
    generator = np.random.default_rng(0)
    classes, amounts = generator.integers(0, 10, n), generator.gamma(2.0, 1000.0, n)
    respond = labeldp.RandomizedResponse(EPSILON, n_classes=10)
    answer = labeldp.UnbiasedResponse(EPSILON, bounds=(0, 10_000))
    for mechanism, column in ((respond, classes), (answer, amounts)):
        labeldp.privatize(column[:1000], mechanism)  # compiles, and solves the program
    one, other = processor_times(
        lambda: labeldp.privatize(classes, respond), lambda: labeldp.privatize(amounts, answer)
    )
    return {"rows": n, "classes_seconds": one, "numbers_seconds": other, "ratio": other / one}


def compare_tables(n: int, folder: Path) -> dict[str, float]:
    """Return seconds of both tables, and their ratio."""
    generator = np.random.default_rng(0)
    columns = {"row": np.arange(n), "x": generator.normal(size=n), "z": generator.normal(size=n)}
    labels = {"kind": generator.integers(0, 10, n), "amount": np.round(generator.gamma(2.0, 1000.0, n), 2)}
    places = {name: folder / f"{name}.parquet" for name in labels}
    for name, column in labels.items():
        pq.write_table(pa.table({**columns, name: column}), places[name], row_group_size=1 << 20)
    respond = labeldp.RandomizedResponse(EPSILON, n_classes=10)
    answer = labeldp.UnbiasedResponse(EPSILON, bounds=(0, 10_000))
    labeldp.privatize(labels["amount"][:1000], answer)  # compiles, and solves the program
    labeldp.privatize(labels["kind"][:1000], respond)

    def release(name: str, **options: Any) -> None:
        to = folder / f"{name}-{len(list(folder.iterdir()))}"
        privatize_table(places[name], label=name, to=to, **options)
        shutil.rmtree(to)

    one, other = processor_times(
        lambda: release("kind", mechanism=respond, classes=range(10)), lambda: release("amount", mechanism=answer)
    )
    return {"rows": n, "classes_seconds": one, "numbers_seconds": other, "ratio": other / one}


def time_programs() -> dict[str, float]:
    """Return seconds of one program, for the uniform prior and for a narrow one, the slower of the two."""
    found = {}
    for levels, outputs in ((15, 33), (32, 65), (33, 65), (65, 129)):
        grid = np.linspace(0, 1, levels)
        narrow = np.exp(-0.5 * ((grid - 0.3) / 0.12) ** 2)
        mechanism = labeldp.UnbiasedResponse(EPSILON, bounds=(0, 1), grid=levels, outputs=outputs)
        times = []
        for prior in (np.ones(levels), narrow):
            numbers.solve_unbiased.cache_clear()
            begin = time.process_time()
            mechanism.channel(prior / prior.sum())
            times.append(time.process_time() - begin)
        found[f"{levels} x {outputs}"] = max(times)
    return found


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tables", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {"doors": compare_doors(given.rows)}
    if given.tables:
        with tempfile.TemporaryDirectory() as folder:
            found["tables"] = compare_tables(given.rows, Path(folder))
    found |= {"programs": time_programs(), "machine": platform.machine()}
    for name in ("doors", "tables"):
        if name in found:
            one = found[name]
            seconds = f"classes {one['classes_seconds']:.3f} s, numbers {one['numbers_seconds']:.3f} s"
            print(f"{name}, {one['rows']:,} rows: {seconds}, ratio {one['ratio']:.2f} (processor time)")
    for size, seconds in found["programs"].items():
        print(f"program {size}: {seconds:.2f} s")
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
