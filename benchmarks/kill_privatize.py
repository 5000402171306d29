"""Kills, SIGTERM and Ctrl-C at random moments of `labeldp privatize`, and what is found afterwards.

    python benchmarks/kill_privatize.py [--rows 50000] [--kills 300] [--lanes 4] [--seed 0] [--limit 120] [--write]

Every victim is the command itself, from its first line to the end of its interpreter. A third of them is killed (SIGKILL), a
third gets SIGTERM, a third Ctrl-C; every third has its key sealed with a passphrase. Half of those that are not killed
get a second signal, SIGTERM or Ctrl-C, up to a tenth of a second after the first: a user who does not wait. Moments are
uniform over the time that an undisturbed run takes, which is measured again with each victim that ends before its signal. Those
do not count (but for the few that end in that very instant). In one lane of four victims import pandas and load compiled loops
while they work, which takes most of their time; in the others that is done before they begin. Afterwards there must be

- no release and no charge, no release and a charge, or a whole release (every checksum right, every row there) and its charge;
- of a sealed job that was stopped after it began, a folder of mode 0700 with a key of mode 0600; SIGTERM and Ctrl-C name it and
  `--resume`, and end with 143 and 130. Every other such folder is taken up by `--resume`, to a whole release and one charge;
- of other jobs, after SIGTERM or Ctrl-C nothing, and after a kill what `labeldp privatize --discard TARGET` removes;
- a ledger whose chain holds, and in the end not one hidden name.

A victim that lives `--limit` seconds after its signal writes down where each of its threads is, which becomes a part of the
report, and is killed. Anything but the above ends the script with exit code 1. `--write` puts the figures into
benchmarks/results/kill_privatize.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import subprocess
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
from labeldp.errors import LabelDPError

ALLOWED = ("no release, no charge", "no release, charged", "whole release, charged")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: Every so many-th lane imports pandas and loads the compiled loops in each victim; in the others that is done before.
COLD = 4
RESULTS = Path(__file__).resolve().parent / "results" / "kill_privatize.json"


def make(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"f{n}": rng.random(rows) for n in range(4)}
    pq.write_table(pa.table({"id": np.arange(rows), **columns, "label": rng.integers(0, 5, rows)}), path)


#: Has imported what the command needs, and has no threads. For each line that it reads, a fork of it becomes the command; it
#: answers with the number of that process, and later with how it ended. What a victim says goes to a file; so does where
#: its threads are, when it is asked.
SERVER = """
import faulthandler, gc, json, os, signal, sys
import labeldp.accounting, labeldp.cli, labeldp.engines, labeldp.kernels, rich.progress, typer.rich_utils

faulthandler.enable()
if sys.argv[1] == "warm":
    import pandas, typer._adapters
    labeldp.privatize([0, 1], labeldp.RandomizedResponse(1.0, n_classes=2))  # a call that starts no thread
gc.collect(), gc.freeze()  # so that forks share its memory
child = 0
while line := sys.stdin.readline():
    if child:
        os.waitpid(child, 0)
    child = os.fork()
    if child == 0:
        break
    print(child, flush=True)
    end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # its number stays its own until the next line
    print(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status, flush=True)
else:
    sys.exit()
asked = json.loads(line)
log = open(asked["log"], "ab", buffering=0)
for number, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log.fileno()), (2, log.fileno())):
    os.dup2(target, number)
faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command listens
sys.argv = ["labeldp", *asked["arguments"]]
labeldp.cli.main()
"""


class Victims:
    """Starts the command, one victim at a time, and waits for its end; or says where it hangs."""

    def __init__(self, log: Path, *, limit: float, warm: bool) -> None:
        self.log, self.limit = log, limit
        line = [sys.executable, "-c", SERVER, "warm" if warm else "cold"]
        self._server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def start(self, arguments: list[str]) -> int:
        """Return the number of a new process."""
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"arguments": arguments, "log": str(self.log)}) + "\n")
        return self._read()

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of the victim, at most so long; tell whether it has ended."""
        return bool(select.select([self._server.stdout], [], [], seconds)[0])

    def join(self, process: int) -> tuple[int, str]:
        """Return the exit code of a victim, and where its threads were if it had to be killed."""
        if self.ends_within(self.limit):
            return self._read(), ""
        said = self.log.stat().st_size
        os.kill(process, signal.SIGUSR1)
        time.sleep(1)
        os.kill(process, signal.SIGKILL)
        self._read()
        return -signal.SIGKILL, self.log.read_bytes()[said:].decode()

    def run(self, arguments: list[str]) -> int:
        """Run the command to its end, undisturbed, and return its exit code."""
        return self.join(self.start(arguments))[0]

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def _read(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())


class Ground:
    """A folder with a table and a ledger, and what has happened there."""

    def __init__(self, root: Path, *, rows: int, limit: float, warm: bool) -> None:
        self.root, self.rows, self.log = root, rows, root / "log"
        self.victims = Victims(self.log, limit=limit, warm=warm)
        self.tally: Counter[str] = Counter()
        self.seconds: dict[bool, float] = {}
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

    def hit(self, number: int, *, target: str, moments: random.Random) -> bool:
        """One victim, and what is left of it; False if it ended before its signal."""
        how, sealed = SIGNALS[number % 3], number // 3 % 3 == 0
        charges, said = self.charges(), self.log.stat().st_size
        signals = [how] if how == signal.SIGKILL or moments.random() < 0.5 else [how, moments.choice(SIGNALS[1:])]
        process, begin = self.victims.start(self.arguments(target, sealed=sealed)), time.perf_counter()
        if self.victims.ends_within(moments.uniform(0, self.seconds[sealed])):
            self.seconds[sealed] = time.perf_counter() - begin
            self.tally["ended before its signal"] += 1
            code, state = self.victims.join(process)[0], self.found(target, charges)
            self.check(
                code == 0 and state == ALLOWED[2] and not self.hidden(f"{target}."), f"{target}: {code}, {state}"
            )
            return False
        os.kill(process, how)  # if it has just ended, its number is still its own
        for one in signals[1:]:
            time.sleep(moments.uniform(0, 0.1))
            os.kill(process, one)
        code, stack = self.victims.join(process)
        self.check(not stack, f"{target}: {how.name}, sealed: {sealed}, hung at\n{stack}")
        state = self.found(target, charges)
        self.tally[state] += 1
        self.check(state in ALLOWED, f"{target}: {state}")
        words = self.log.read_bytes()[said:].decode()
        left = self.hidden(f"{target}.")
        twice = f" and {signals[1].name}" if len(signals) > 1 else ""
        self.tally[f"{how.name}{twice}, {'sealed' if sealed else 'plain'}: exit {code}"] += 1
        allowed = {0, *(-one for one in signals), *(128 + one for one in signals)}
        self.check(code in allowed, f"{target}: {how.name}{twice}: exit code {code}: {words}")
        self.check("Traceback" not in words and "ignored" not in words, f"{target}: {how.name}{twice}: said {words}")
        if code > 0:
            self.check("stopped:" in words, f"{target}: {how.name}{twice}: said {words}")
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
        return True

    def clear(self, target: str, place: Path, *, sealed: bool, charges: int, resume: bool) -> None:
        """Take up every other sealed job that can be, and throw the rest away."""
        if resume and sealed and (place / "job.json").exists() and not (self.root / target).exists():
            code = self.victims.run([*self.arguments(target, sealed=True), "--resume", str(place)])
            state = self.found(target, charges)
            self.check(code == 0 and state == "whole release, charged", f"{target}: resumed with {code}: {state}")
            self.tally["resumed"] += 1
        else:
            code = self.victims.run(["privatize", "--discard", str(self.root / target)])
            self.check(code == 0, f"{target}: --discard ended with {code}")
            self.tally["discarded"] += 1
        self.check(not self.hidden(f"{target}."), f"{target}: still hidden names")


def kill_all(root: Path, *, rows: int, kills: int, seed: int, limit: float, warm: bool) -> dict[str, Any]:
    ground = Ground(root, rows=rows, limit=limit, warm=warm)
    for sealed in (False, True):
        begin = time.perf_counter()
        code = ground.victims.run(ground.arguments(f"first-{sealed}", sealed=sealed))
        ground.seconds[sealed] = time.perf_counter() - begin
        ground.check(code == 0, f"the undisturbed run ended with {code}")
    moments, number, tries = random.Random(seed), 0, 0
    while number < kills:
        number += ground.hit(number, target=f"out{tries}", moments=moments)
        tries += 1
    ground.victims.close()
    labeldp.Ledger(root / "ledger.sqlite").verify()
    ground.check(not ground.hidden(), f"left: {ground.hidden()}")
    known = ("out", "first", "table", "ledger", "phrase", "log")
    strangers = sorted(path.name for path in root.iterdir() if not path.name.startswith((*known, ".ledger")))
    ground.check(not strangers, f"strangers: {strangers}")
    return {"tally": ground.tally, "faults": ground.faults}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=50_000)
    options.add_argument("--kills", type=int, default=300)
    options.add_argument("--lanes", type=int, default=4, help="folders in which victims run side by side")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--limit", type=float, default=120.0, help="seconds that a victim may live after its signal")
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.lanes) as pool:
        places = [Path(folder) / f"lane-{number}" for number in range(chosen.lanes)]
        for place in places:
            place.mkdir()
        sizes = [len(range(number, chosen.kills, chosen.lanes)) for number in range(chosen.lanes)]
        runs = [
            pool.submit(
                kill_all,
                place,
                rows=chosen.rows,
                kills=sizes[number],
                seed=chosen.seed + number,
                limit=chosen.limit,
                warm=number % COLD != 0,
            )
            for number, place in enumerate(places)
        ]
        lanes = [one.result() for one in runs]
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
