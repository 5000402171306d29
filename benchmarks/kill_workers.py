"""SIGKILL at random to the workers of a cluster, and to its scheduler, while a table is privatized; and a full disk.

    python benchmarks/kill_workers.py [--rows 20000000] [--files 40] [--runs 5] [--kills 5] [--seed 0] [--parts workers,...]

`workers`: in each run, workers die at random moments of the drawing until `--kills` have. Allowed: a whole release whose files
are, byte for byte, those of an undisturbed run under the same seed, and one charge; or an error, nothing visible, and at
most one charge. `scheduler`: it is killed at a third of the work; nothing may be visible, and taking the job up must give
the same bytes without a second charge. `disk`: workers may not write files past a limit below the size of a part (the
kernel reports it as it reports no room); a clean failure is asked for. Anything else is exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from distributed import Client
from engines_equal import CLASSES, EPSILON, SEED, digests, make
from own_cluster import OwnCluster

import labeldp
from labeldp.engines import privatize_table
from labeldp.errors import LabelDPError


def released(root: Path, to: str, **how: Any) -> dict[str, str]:
    privatize_table(root / "in", label="label", to=root / to, epsilon=EPSILON, rng=SEED, classes=range(CLASSES), **how)
    return contents(root / to)


def contents(directory: Path) -> dict[str, str]:
    """What must be the same: every file but the manifest, which names the ledger's entry."""
    return {name: found for name, found in digests(directory).items() if name != "release.json"}


def strangers(root: Path) -> list[str]:
    """What is visible and should not be, and what is hidden and was not removed."""
    return sorted(path.name for path in root.iterdir() if ".partial-" in path.name)


class Killer(threading.Thread):
    """Kills a worker now and then, between the first piece and the end, until it has killed enough."""

    def __init__(self, client: Client, *, kills: int, pause: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.client, self.kills, self.pause, self.moments = client, kills, pause, random.Random(seed)
        self.killed, self.begun, self.over = 0, threading.Event(), threading.Event()

    def told(self, done: int, total: int) -> None:
        if 0 < done < total:
            self.begun.set()

    def run(self) -> None:
        self.begun.wait()
        while self.killed < self.kills and not self.over.wait(self.moments.uniform(0, 2 * self.pause)):
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
            if not workers:
                continue
            address = self.moments.choice(sorted(workers))
            try:
                pid = self.client.run(os.getpid, workers=[address], on_error="ignore").get(address)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
            except (OSError, KeyError, ValueError):
                continue


def kill_workers(
    root: Path, expected: dict[str, str], *, runs: int, kills: int, seconds: float, seed: int
) -> dict[str, Any]:
    tally: Counter[str] = Counter()
    killed = 0
    cluster = OwnCluster(root / "cluster", workers=2)
    try:
        with Client(cluster.address, security=cluster.security, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            for number in range(runs):
                ledger = labeldp.Ledger(root / f"ledger{number}.sqlite")
                killer = Killer(client, kills=kills, pause=seconds / kills, seed=seed + number)
                killer.start()
                try:
                    found = released(root, f"out{number}", engine="dask", client=client, ledger=ledger,
                                     progress=killer.told)  # fmt: skip
                    outcome = "complete and identical" if found == expected else "WRONG"
                except LabelDPError as error:
                    print(error)
                    outcome = "failed cleanly" if not (root / f"out{number}").exists() else "WRONG"
                killer.over.set()
                killer.begun.set()
                killer.join()
                killed += killer.killed
                ledger.verify()
                charges = len(ledger.entries())
                print(f"run {number + 1}: {killer.killed} kills, {outcome}, {charges} charge", flush=True)
                tally[outcome if charges <= 1 else "WRONG"] += 1
    finally:
        cluster.close()
    return {"runs": runs, "kills": killed, "tally": dict(tally)}


def kill_scheduler(root: Path, expected: dict[str, str]) -> dict[str, Any]:
    cluster, ledger = OwnCluster(root / "cluster2", workers=2), labeldp.Ledger(root / "ledger-s.sqlite")

    def kill(done: int, total: int) -> None:
        if 3 * done > total and cluster.scheduler.poll() is None:
            cluster.scheduler.kill()

    message, visible = "", True
    try:
        how = {"engine": "dask", "scheduler": cluster.address, "progress": kill, "keep_unfinished": True}
        with cluster.configured():
            released(root, "out-s", ledger=ledger, **how)
    except LabelDPError as error:
        message, visible = str(error), (root / "out-s").exists()
    finally:
        cluster.close()
    place = re.search(r"kept in (\S+): take", message)
    same = place is not None and released(root, "out-s", ledger=ledger, resume=place.group(1)) == expected
    return {"visible after the kill": visible, "resumed to the same bytes": same, "charges": len(ledger.entries())}


def fill_disk(root: Path, limit: int) -> dict[str, Any]:
    cluster, ledger = OwnCluster(root / "cluster3", workers=2, limit=limit), labeldp.Ledger(root / "ledger-d.sqlite")
    message = "no error"
    try:
        with cluster.configured():
            released(root, "out-d", engine="dask", scheduler=cluster.address, ledger=ledger)
    except LabelDPError as error:
        message = str(error)
    finally:
        cluster.close()
    clean = "could not write on worker" in message and not (root / "out-d").exists()
    return {"clean": clean, "message": re.sub(r"tls://\S+", "tls://...", message), "charges": len(ledger.entries())}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--files", type=int, default=40)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--parts", default="workers,scheduler,disk")
    chosen = options.parse_args()
    parts, result = chosen.parts.split(","), {"rows": chosen.rows, "files": chosen.files}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root / "in", chosen.rows, chosen.files)
        begin = time.perf_counter()
        expected = released(root, "plain")
        seconds = time.perf_counter() - begin
        size = min(path.stat().st_size for path in (root / "plain" / "labels").rglob("*.parquet"))
        if "workers" in parts:
            how = {"runs": chosen.runs, "kills": chosen.kills, "seconds": seconds, "seed": chosen.seed}
            result["workers"] = kill_workers(root, expected, **how)
        if "scheduler" in parts:
            result["scheduler"] = kill_scheduler(root, expected)
        if "disk" in parts:
            result["disk"] = fill_disk(root, size // 2)
        result["left behind"] = strangers(root)
    print(json.dumps(result, indent=1))
    workers, scheduler, disk = (result.get(name, {}) for name in ("workers", "scheduler", "disk"))
    wrong = "WRONG" in workers.get("tally", {}) or not disk.get("clean", True) or result["left behind"]
    if wrong or scheduler.get("visible after the kill") or not scheduler.get("resumed to the same bytes", True):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
