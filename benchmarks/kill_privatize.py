"""Kills, SIGTERM and Ctrl-C at random moments of `labeldp privatize`, and what is found afterwards.

    python benchmarks/kill_privatize.py [--rows 50000] [--kills 300] [--lanes 4] [--seed 0] [--write]

Every victim is the command itself. A third of them is killed (SIGKILL), a third gets SIGTERM, a third Ctrl-C; every third
has its key sealed with a passphrase. Moments are uniform over the time that an undisturbed run takes, and a tenth beyond.
Afterwards there must be

- no release and no charge, no release and a charge, or a whole release (every checksum right, every row there) and its charge;
- of a sealed job that was stopped after it began, a folder of mode 0700 with a key of mode 0600; SIGTERM and Ctrl-C name it and
  `--resume`, and end with 143 and 130. Every other such folder is taken up by `--resume`, to a whole release and one charge;
- of other jobs, after SIGTERM or Ctrl-C nothing, and after a kill what `labeldp privatize --discard TARGET` removes;
- a ledger whose chain holds, and in the end not one hidden name.

Anything else ends the script with exit code 1. `--write` puts the figures into benchmarks/results/kill_privatize.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import labeldp
from labeldp.cli import main as run_command
from labeldp.errors import LabelDPError

ALLOWED = ("no release, no charge", "no release, charged", "whole release, charged")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: What a victim has imported when it begins, so that moments fall into its work.
PRELOADED = [
    "labeldp.engines",
    "labeldp.kernels",
    "labeldp.cli",
    "labeldp.accounting",
    "rich.progress",
    "typer.rich_utils",
]
RESULTS = Path(__file__).resolve().parent / "results" / "kill_privatize.json"


def make(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"f{n}": rng.random(rows) for n in range(4)}
    pq.write_table(pa.table({"id": np.arange(rows), **columns, "label": rng.integers(0, 5, rows)}), path)


def victim(arguments: list[str], log: Path, begun: Any) -> None:
    """Be the command, with what it says in a file."""
    with log.open("ab") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)
    sys.argv = ["labeldp", *arguments]
    begun.set()
    run_command()


def start(arguments: list[str], log: Path) -> Any:
    """Start a victim from a server that has everything imported and no threads, and wait until it begins."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    begun = context.Event()
    process = context.Process(target=victim, args=(arguments, log, begun))
    process.start()
    begun.wait()
    return process


def finish(arguments: list[str], log: Path) -> int:
    process = start(arguments, log)
    process.join()
    return int(process.exitcode)


class Ground:
    """A folder with a table and a ledger, and what has happened there."""

    def __init__(self, root: Path, rows: int) -> None:
        self.root, self.rows, self.log = root, rows, root / "log"
        self.tally: Counter[str] = Counter()
        self.faults: list[str] = []
        make(root / "table.parquet", rows)
        (root / "phrase").write_text("correct horse battery")

    def arguments(self, target: str, *, sealed: bool) -> list[str]:
        made = ["privatize", str(self.root / "table.parquet"), "--label", "label", "--epsilon", "1", "--row-ids", "id"]
        made += ["--to", str(self.root / target), "--ledger", str(self.root / "ledger.sqlite")]
        return [*made, "--passphrase-file", str(self.root / "phrase")] if sealed else made

    def charges(self) -> int:
        return len(labeldp.Ledger(self.root / "ledger.sqlite").entries())

    def hidden(self, target: str = "") -> list[Path]:
        return sorted(
            path for path in self.root.iterdir() if path.name.startswith(f".{target}") and ".partial-" in path.name
        )

    def found(self, target: str, charges: int) -> str:
        """Name what there is: the release, and how many charges beside those from before."""
        ledger = labeldp.Ledger(self.root / "ledger.sqlite")
        entries = ledger.entries()
        new = len(entries) - charges
        charged = {0: "no charge", 1: "charged"}.get(new, f"{new} charges")
        if not (self.root / target).exists():
            return f"no release, {charged}"
        try:
            release = labeldp.load_release(self.root / target)
        except LabelDPError as error:
            return f"damaged release ({error}), {charged}"
        whole = len(release) == self.rows and new == 1 and release.ledger_entry == entries[-1].id
        return f"{'whole' if whole else 'wrong'} release, {charged}"

    def check(self, fact: bool, fault: str) -> None:  # noqa: FBT001 - an assertion that is counted
        if not fact:
            self.faults.append(fault)

    def hit(self, number: int, *, seconds: float) -> None:
        """One victim, and what is left of it."""
        how, sealed, target = SIGNALS[number % 3], number // 3 % 3 == 0, f"out{number}"
        charges, said = self.charges(), self.log.stat().st_size if self.log.exists() else 0
        process = start(self.arguments(target, sealed=sealed), self.log)
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, how)
        process.join()
        state = self.found(target, charges)
        self.tally[state] += 1
        self.check(state in ALLOWED, f"{target}: {state}")
        words = self.log.read_bytes()[said:].decode()
        left = self.hidden(f"{target}.")
        self.tally[f"{how.name}, exit {process.exitcode}"] += 1
        self.check(process.exitcode in (0, -how, 128 + how), f"{target}: exit code {process.exitcode}")
        self.check("Traceback" not in words, f"{target}: a traceback")
        if how != signal.SIGKILL and process.exitcode == 128 + how:
            self.check(
                not left or (sealed and "--resume" in words), f"{target}: {how.name} left {left} and said {words}"
            )
        for place in left:
            self.check(place.stat().st_mode & 0o777 == 0o700, f"{place.name}: open to others")
            key = place / "key.json"
            self.check(not key.exists() or key.stat().st_mode & 0o777 == 0o600, f"{place.name}: a key open to others")
        if left:
            self.tally["left a folder"] += 1
            self.clear(target, left[0], sealed=sealed, charges=charges, resume=number % 2 == 0)

    def clear(self, target: str, place: Path, *, sealed: bool, charges: int, resume: bool) -> None:
        """Take up every other sealed job that can be, and throw the rest away."""
        if resume and sealed and (place / "job.json").exists():
            code = finish([*self.arguments(target, sealed=True), "--resume", str(place)], self.log)
            state = self.found(target, charges)
            self.check(code == 0 and state == "whole release, charged", f"{target}: resumed with {code}: {state}")
            self.tally["resumed"] += 1
        else:
            code = finish(["privatize", "--discard", str(self.root / target)], self.log)
            self.check(code == 0, f"{target}: --discard ended with {code}")
            self.tally["discarded"] += 1
        self.check(not self.hidden(f"{target}."), f"{target}: still hidden names")


def kill_all(root: Path, *, rows: int, kills: int, seed: int) -> dict[str, Any]:
    ground, seconds = Ground(root, rows), {}
    for sealed in (False, True):
        begin = time.perf_counter()
        code = finish(ground.arguments(f"first-{sealed}", sealed=sealed), ground.log)
        seconds[sealed] = time.perf_counter() - begin
        ground.check(code == 0, f"the undisturbed run ended with {code}")
    moments = random.Random(seed)
    for number in range(kills):
        ground.hit(number, seconds=moments.uniform(0, 1.1 * seconds[number // 3 % 3 == 0]))
    labeldp.Ledger(root / "ledger.sqlite").verify()
    ground.check(not ground.hidden(), f"left: {ground.hidden()}")
    known = ("out", "first", "table", "ledger", "phrase", "log")
    strangers = sorted(path.name for path in root.iterdir() if not path.name.startswith((*known, ".ledger")))
    ground.check(not strangers, f"strangers: {strangers}")
    facts = {
        "rows": rows,
        "kills": kills,
        "seed": seed,
        "seconds": {"plain": round(seconds[False], 2), "sealed": round(seconds[True], 2)},
    }
    return {**facts, "tally": dict(sorted(ground.tally.items())), "faults": ground.faults}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=50_000)
    options.add_argument("--kills", type=int, default=300)
    options.add_argument("--lanes", type=int, default=4, help="folders in which victims run side by side")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.lanes) as pool:
        places = [Path(folder) / f"lane-{number}" for number in range(chosen.lanes)]
        for place in places:
            place.mkdir()
        sizes = [len(range(number, chosen.kills, chosen.lanes)) for number in range(chosen.lanes)]
        seeds = range(chosen.seed, chosen.seed + chosen.lanes)
        lanes = list(
            pool.map(
                lambda place, kills, seed: kill_all(place, rows=chosen.rows, kills=kills, seed=seed),
                places,
                sizes,
                seeds,
            )
        )
    tally = sum((Counter(lane["tally"]) for lane in lanes), Counter())
    result = {**{name: getattr(chosen, name) for name in ("rows", "kills", "lanes", "seed")}, "tally": dict(sorted(tally.items())),
              "faults": [fault for lane in lanes for fault in lane["faults"]]}  # fmt: skip
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.write:
        RESULTS.write_text(text + "\n", encoding="utf-8")
    if result["faults"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
