"""kill -9 at random moments of `privatize_table`, and what is found afterwards.

    python benchmarks/kill_privatize.py [--rows 1000000] [--kills 50] [--seed 0]

Allowed: no release and no charge, no release and a charge, or a whole release (every checksum right, every row there) and
its charge. Anything else, or a ledger whose chain is broken, ends the script with exit code 1. Moments are uniform over
the time that an undisturbed run takes, and a tenth beyond.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import labeldp
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError

ALLOWED = ("no release, no charge", "no release, charged", "whole release, charged")


def make(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"f{n}": rng.random(rows) for n in range(4)}
    pq.write_table(pa.table({"id": np.arange(rows), **columns, "label": rng.integers(0, 5, rows)}), path)


def run(root: Path, target: str, begun: Any) -> None:
    """The victim."""
    ledger = labeldp.Ledger(root / "ledger.sqlite")
    begun.set()
    privatize_table(root / "table.parquet", label="label", to=root / target, epsilon=1.0, ledger=ledger, row_ids="id")


def start(root: Path, target: str) -> Any:
    """Start a victim from a server that has everything imported and no threads, and wait until it begins."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["labeldp.engines", "labeldp.kernels"])
    begun = context.Event()
    process = context.Process(target=run, args=(root, target, begun))
    process.start()
    begun.wait()
    return process


def found(root: Path, target: str, rows: int, charges: int) -> str:
    """Name what a kill left: the release, and how many charges there are beside those from before."""
    ledger = labeldp.Ledger(root / "ledger.sqlite")
    ledger.verify()
    entries = ledger.entries()
    new = len(entries) - charges
    charged = {0: "no charge", 1: "charged"}.get(new, f"{new} charges")
    if not (root / target).exists():
        return f"no release, {charged}"
    try:
        release = labeldp.load_release(root / target)
    except LabelDPError as error:
        return f"damaged release ({error}), {charged}"
    whole = len(release) == rows and new == 1 and release.ledger_entry == entries[-1].id
    return f"{'whole' if whole else 'wrong'} release, {charged}"


def kill_all(root: Path, *, rows: int, kills: int, seed: int) -> dict[str, Any]:
    make(root / "table.parquet", rows)
    first = start(root, "first")
    begin = time.perf_counter()  # imports are over
    first.join()
    seconds = time.perf_counter() - begin
    assert found(root, "first", rows, 0) == "whole release, charged"
    moments, tally = random.Random(seed), Counter()
    for number in range(kills):
        charges = len(labeldp.Ledger(root / "ledger.sqlite").entries())
        victim = start(root, f"out{number}")
        time.sleep(moments.uniform(0, 1.1 * seconds))
        victim.kill()
        victim.join()
        tally[found(root, f"out{number}", rows, charges)] += 1
    partial = sum(1 for path in root.iterdir() if ".partial-" in path.name)
    visible = {path.name for path in root.iterdir() if not path.name.startswith(".")}
    return {"rows": rows, "kills": kills, "seconds": round(seconds, 2), "tally": dict(tally), "hidden": partial,
            "strangers": sorted(name for name in visible if not name.startswith(("out", "first", "table", "ledger")))}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_all(Path(folder), rows=chosen.rows, kills=chosen.kills, seed=chosen.seed)
    print(json.dumps(result, indent=1))
    if set(result["tally"]) - set(ALLOWED) or result["strangers"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
