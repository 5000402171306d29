"""kill -9 in the middle of `LabelPrivateClassifier(checkpoint=...).fit`, resume, and what a thief finds on the disk.

    python benchmarks/kill_fits.py [--kills 200] [--seed 0] [--slow 0.005] [--at times|steps] [--write]

`--write` keeps the outcome in benchmarks/results/kill_fits.json, where that of `--at times` is. At steps, 9 kills are a test.

A run measures a histogram and draws two stages, charged to a ledger. It is killed, a thief reads its directory, and it is
started again, up to three kills in a row, until it is let finish. Half of the runs seal their key with a passphrase, half
have none. Each fsync takes `--slow` seconds longer, so that most kills fall into one. With `--at times` a kill comes at a
uniform moment of an undisturbed run's time; with `--at steps` the k-th fsync or rename is the last thing that the process
does, k = 1, 2, ...: every boundary between two of them, and then again with other distances between the kills of a run.

The thief reads every file, with `load_release` and without: hidden folders, half-written tables, arrays. All draws of a piece
(the histogram, a stage) that she finds are compared, byte for byte. Never may there be more different draws of a piece than
charges that cover it; with a passphrase there is one charge and one draw. In the end there is no hidden folder, no key, and
nobody else may open the directory. Anything else ends the script with exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from labeldp import Ledger
from labeldp.errors import LabelDPError
from labeldp.learn import LabelPrivateClassifier
from labeldp.mechanisms import RRWithPrior
from labeldp.priors import ClusterPrior
from labeldp.release import load_release

ROWS, CLASSES = 300, 3
PASSPHRASE = "correct horse battery"
PIECES = ("prior", "stage-1", "stage-2")
RESULTS = Path(__file__).parent / "results" / "kill_fits.json"


def fit(root: Path, *, sealed: bool, epsilon: float = 1.0) -> Any:
    """The victim: a histogram and two stages."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    place: Any = root / "run"
    if sealed:
        from labeldp.learn import Checkpoint

        place = Checkpoint(place, passphrase=PASSPHRASE)
    model = LabelPrivateClassifier(
        epsilon=epsilon,
        stages=2,
        prior=ClusterPrior(groups=np.arange(ROWS) % 5),
        mechanism=RRWithPrior(epsilon),
        classes=range(CLASSES),
        ledger=Ledger(root / "budget.ledger"),
        checkpoint=place,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a second charge is announced; it is counted below
        return model.fit(X, y)


def in_child(work: Callable[[], Any], *, kill_after: float | None = None) -> bool:
    """Run work in a fork, killed after some seconds if it still runs; return whether it ended by itself, well."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a fork must not return into its parent's code
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    if kill_after is not None:
        end = time.monotonic() + kill_after
        while time.monotonic() < end:
            if os.waitpid(child, os.WNOHANG)[0]:
                return True
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
    return bool(os.waitpid(child, 0)[1] == 0)


def slow_down(seconds: float) -> None:
    """Make every fsync of this process slower, as a busy disk is."""
    real = os.fsync

    def fsync(descriptor: Any) -> None:
        time.sleep(seconds)
        real(descriptor)

    os.fsync = fsync


def die_at(step: int) -> None:
    """Let the `step`-th fsync, rename or replace (from 1) of this process be its last act."""
    left = step

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            result = real(*arguments, **named)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    os.fsync, os.rename, os.replace = mortal(os.fsync), mortal(os.rename), mortal(os.replace)


def read_draws(root: Path) -> dict[str, set[bytes]]:
    """Return all that a thief can read of each piece, by whatever file shows it, visible or hidden."""
    found: dict[str, set[bytes]] = defaultdict(set)
    for folder in [path for path in root.rglob("*") if path.is_dir()]:
        piece = next((name for name in PIECES if name in folder.name), None)
        if piece is None:
            continue
        try:
            found[piece].add(load_release(folder).codes.astype("<i8").tobytes())
        except LabelDPError:
            with contextlib.suppress(OSError, pa.ArrowException, ValueError):  # by hand: the table alone
                table = pq.read_table(folder / "labels.parquet")
                found[piece].add(table.column("label").to_numpy().astype("<i8").tobytes())
        with contextlib.suppress(OSError, ValueError, EOFError):
            found[piece].add(np.load(folder / "rows.npy").tobytes())
    return found


def try_once(home: Path, kill: Callable[[int], bool], *, sealed: bool) -> tuple[int, int, int]:
    """Kill up to three times, let it finish; return kills that hit, charges, and the most draws of a piece found."""
    thief: dict[str, set[bytes]] = defaultdict(set)
    hits = 0

    def look() -> None:
        for piece, draws in read_draws(home / "run").items():
            thief[piece] |= draws

    for again in range(3):
        if kill(again):
            break
        hits += 1
        look()
    if not in_child(lambda: fit(home, sealed=sealed)):
        raise SystemExit(f"a resumed run failed, sealed={sealed}")
    look()
    charges = [one for one in Ledger(home / "budget.ledger").entries() if one.guarantee.epsilon() > 0]
    most = max(len(draws) for draws in thief.values())
    check_end(home, charges=len(charges), draws=most, sealed=sealed)
    return hits, len(charges), most


def check_end(home: Path, *, charges: int, draws: int, sealed: bool) -> None:
    """Stop where the promise is broken."""
    hidden = [path.name for path in (home / "run").rglob(".*")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in [home / "run"]}
    keys = [path.name for path in (home / "run").glob("run-*.json") if json.loads(path.read_text())["key"] is not None]
    broken = {
        "more draws than charges": draws > charges,
        "a sealed run was charged twice": sealed and charges != 1,
        "hidden folders": bool(hidden),
        "a key": bool(keys),
        "open to others": modes != {0o700},
    }
    wrong = [what for what, is_so in broken.items() if is_so]
    if wrong:
        raise SystemExit(f"sealed={sealed}: {', '.join(wrong)} ({draws} draws, {charges} charges, {hidden}, {modes})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0.005)
    parser.add_argument("--at", choices=["times", "steps"], default="times")
    parser.add_argument("--first", type=int, default=1, help="the step of the first kill, with --at steps")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    chance, outcomes, kills, runs = random.Random(asked.seed), Counter[str](), 0, 0
    step, lap = {False: 0, True: 0}, {False: 0, True: 0}
    duration: dict[bool, float] = {}
    while kills < asked.kills:
        sealed, home = bool(runs % 2), Path(tempfile.mkdtemp(prefix="kill-fits-"))

        def victim(home: Path = home, sealed: bool = sealed) -> None:  # noqa: FBT001 - bound now, not at the call
            slow_down(asked.slow)
            fit(home, sealed=sealed)

        if sealed not in duration:
            begun = time.monotonic()
            in_child(victim)
            duration[sealed] = time.monotonic() - begun
            shutil.rmtree(home)
            home.mkdir()

        def kill(again: int, home: Path = home, sealed: bool = sealed) -> bool:  # noqa: FBT001
            if asked.at == "times":
                return in_child(victim, kill_after=chance.uniform(0, 1.1 * duration[sealed]))

            def stepping() -> None:
                slow_down(asked.slow)
                die_at(asked.first + step[sealed] + (7 + lap[sealed]) * again)
                fit(home, sealed=sealed)

            return in_child(stepping)

        try:
            hits, charges, draws = try_once(home, kill, sealed=sealed)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        kills, runs = kills + hits, runs + 1
        # A step that no run reaches: begin again, with other distances between the kills of a run.
        step[sealed], lap[sealed] = (step[sealed] + 1, lap[sealed]) if hits else (0, lap[sealed] + 1)
        outcomes[f"{'sealed' if sealed else 'in memory'}: {charges} charges, {draws} draws"] += 1
    summary = {"kills": kills, "runs": runs, "slow": asked.slow, "outcomes": dict(sorted(outcomes.items()))}
    print(json.dumps(summary, indent=1))
    if asked.write:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**known, asked.at: summary}, indent=1) + "\n")


if __name__ == "__main__":
    main()
