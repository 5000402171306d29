"""Damaged and forged inputs, seeded and bounded: everything that labeldp reads ends in success or in an error of its own.

    python benchmarks/fuzz.py [--inputs 20000] [--seed 0] [--kind release --kind model ...] [--workers 2]
    python benchmarks/fuzz.py --seed 0 --kind model --only 1234      # one input again, with its traceback

Kinds: release, model, network, ledger, command, peer, table, checkpoint, job (`fuzz_doors.py`, `fuzz_files.py`). Each makes small valid
inputs and changes them by `mutations.py`: bytes, JSON, archives, array headers, Parquet footers, SQLite pages and cells,
links and pipes in place of files; about half of the changes to sealed files compute their digests anew.

Outcomes:

    refused      a LabelDPError; of the command line, an exit code of 2, 3 or 4; of a peer, `Refused`
    unchanged    it loaded, and is what it was before the change (or the request was answered)
    changed      it loaded as something else: allowed if digests were computed anew, or where a format has none (a table)
    bad          any other exception, exit code or status; a crash of the interpreter; more than 10 s; more than 1 GiB;
                 something changed that loaded although no digest was computed anew

Each input is made and read in a forked process whose address space may grow by 1 GiB, and which is killed when reading takes
more than 10 s. The time is that of a clock on the wall, without what the process waited for a core that others used
(/proc/PID/schedstat), so that a verdict does not depend on how busy the machine is. An allocation that the limit of memory
refused is bad even where an error of ours covers it up. Input N of a kind is made from (seed, kind, N) alone. Time stamps and
random names inside the valid inputs differ between runs, and with them a few bytes; `--keep FOLDER` keeps the files of the
input of `--only`. Exit code 1 if anything is bad.

Links. A path that the user gives (a model, a network, a table) may be a link: whoever made it chose the file behind it, and
the digest inside of that file says whether it is whole. So a link to a file is read as the file, and must load unchanged. A link
to a device, to a pipe or to itself is refused. Inside of a release labeldp names the files, and a link comes with the folder
from whoever wrote that: it is refused wherever it leads.
"""

from __future__ import annotations

import os

# ruff: noqa: E402 - the lines below must come before NumPy is imported
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # threads do not survive a fork
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # the others reserve address space by the gigabyte
os.environ.setdefault("MALLOC_ARENA_MAX", "2")

import argparse
import contextlib
import json
import multiprocessing
import multiprocessing.connection
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_doors import Commands, Kind, Messages
from fuzz_files import Checkpoints, Jobs, Ledgers, Models, Networks, Releases, Tables

from labeldp.errors import LabelDPError

#: By name, in the order of the summary.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(
            Releases(),
            Models(),
            Networks(),
            Ledgers(),
            Commands(),
            Messages(),
            Tables(),
            Checkpoints(),
            Jobs(),
        ),
    )
}
SECONDS = 10.0
BYTES = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """What became of one input; `verdict` is refused, unchanged, changed, or bad with what it was."""

    kind: str
    number: int
    how: str
    verdict: str
    seconds: float = 0.0
    grown: int = 0

    @property
    def is_bad(self) -> bool:
        return self.verdict not in {"refused", "unchanged", "changed"}


# ------------------------------------------------------------------------------------------------------ one input


def try_input(
    kind: Kind,
    number: int,
    *,
    seed: int,
    root: Path,
    tell: Callable[[], None] = lambda: None,
    debug: bool = False,
    keep: Path | None = None,
) -> Outcome:
    """Make input `number` of a kind, `tell` that it is made, give it to labeldp, and say what became of it."""
    rng = random.Random(f"{seed} {kind.name} {number}")
    folder = Path(tempfile.mkdtemp(dir=root))
    kind.number = number
    how, resealed = kind.make(rng, folder)
    if keep is not None:
        shutil.copytree(folder, keep, symlinks=True, dirs_exist_ok=True)
    before, begin = _reset_peak(), _read_clock()
    tell()
    try:
        verdict = kind.run(folder)
        if verdict == "changed" and not resealed:
            verdict = "bad: changed, and no digest was computed anew"
    except LabelDPError as error:
        verdict = "bad: MemoryError inside a refusal" if _ran_out(error) else "refused"
        if debug:
            traceback.print_exc()
    except kind.refusals:
        verdict = "refused"
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is an outcome
        verdict = f"bad: {_name_error(error)}"
        if debug:
            traceback.print_exc()
    seconds, grown = _read_clock() - begin, _read_status("VmHWM") - before
    shutil.rmtree(folder, ignore_errors=True)
    if grown > BYTES and verdict in {"refused", "unchanged", "changed"}:
        verdict = "bad: more than 1 GiB"
    return Outcome(kind.name, number, how, verdict, seconds, grown)


def _name_error(error: BaseException) -> str:
    """Return the type of an error, and the deepest line of labeldp that it went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "labeldp" in Path(frame.filename).parts]
    place = f" at {'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].name}" if frames else ""
    text = str(error) if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__}{place}{': ' + text if text else ''}"


def _ran_out(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _read_status(name: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split(f"{name}:")[1].split()[0]) * 1024


def _read_clock(process: int | str = "self") -> float:
    """Return seconds that go on while a process works or sleeps, and not while it waits for a core."""
    waited = 0.0
    with contextlib.suppress(OSError, IndexError):
        waited = int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return time.monotonic() - waited


def _reset_peak() -> int:
    """Begin a new measurement of the peak of memory, and return where it begins."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _read_status("VmHWM")


# ------------------------------------------------------------------------------------------------- many of them


def _work(kind: Kind, numbers: list[int], *, seed: int, root: Path, pipe: Any, log: Path) -> None:
    """Try inputs in a forked process with limits, and tell about each before and after it."""
    with log.open("wb") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)
    sys.stdout = sys.stderr = open(log, "w", encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115 - until the process ends
    warnings.simplefilter("ignore")
    limit = _read_status("VmSize") + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        pipe.send(number)
        try:
            pipe.send(try_input(kind, number, seed=seed, root=root, tell=lambda: pipe.send("made")))
        except BaseException as error:  # noqa: BLE001 - a fault of the fuzzer is shown as one
            pipe.send(Outcome(kind.name, number, "making it", f"bad: fuzzer: {_name_error(error)}"))
    pipe.close()
    os._exit(0)


@dataclass
class Worker:
    """A forked process, the input that it works on, since when by its clock, and whether it is made already."""

    kind: Kind
    process: Any
    pipe: Any
    left: list[int]
    log: Path
    now: int | None = None
    since: float = 0.0
    made: bool = False


def fuzz(counts: dict[str, int], *, seed: int, workers: int, seconds: float = SECONDS) -> list[Outcome]:
    """Try so many inputs of each kind, and return every outcome."""
    context = multiprocessing.get_context("fork")
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(dir=place, prefix="fuzz-") as text:
        root = Path(text)
        waiting: deque[tuple[Kind, list[int]]] = deque()
        for name, count in counts.items():
            kind = KINDS[name]
            kind.prepare(root / name)
            starts = range(0, count, kind.chunk)
            waiting.extend((kind, list(range(at, min(at + kind.chunk, count)))) for at in starts)
        running: list[Worker] = []
        begin, told = time.perf_counter(), 0
        while waiting or running:
            while waiting and len(running) < workers:
                kind, numbers = waiting.popleft()
                mine, theirs = context.Pipe(duplex=False)
                log = Path(tempfile.mkstemp(dir=root)[1])
                process = context.Process(
                    target=_work, args=(kind, numbers), kwargs={"seed": seed, "root": root, "pipe": theirs, "log": log}
                )
                process.start()
                theirs.close()
                running.append(Worker(kind, process, mine, list(numbers), log))
            multiprocessing.connection.wait([worker.pipe for worker in running], timeout=0.2)
            for worker in list(running):
                ended = _listen(worker, outcomes, seconds=seconds)
                if ended:
                    running.remove(worker)
                    if worker.left:
                        waiting.appendleft((worker.kind, worker.left))
                    if len(outcomes) // 1000 > told:
                        told = len(outcomes) // 1000
                        print(f"{len(outcomes)} inputs, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return outcomes


def _listen(worker: Worker, outcomes: list[Outcome], *, seconds: float) -> bool:
    """Take what a worker has told, and return whether it has ended, by itself or by us."""
    try:
        while worker.pipe.poll():
            told = worker.pipe.recv()
            worker.since, worker.made = _read_clock(worker.process.pid), told == "made"
            if worker.made:
                continue
            if isinstance(told, Outcome):
                outcomes.append(told)
                worker.left.remove(told.number)
                worker.now = None
            else:
                worker.now = told
    except EOFError:
        worker.process.join()
        if worker.now is not None:
            said = worker.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            verdict = f"bad: crash with code {worker.process.exitcode}{': ' + said[-1][:120] if said else ''}"
            _end(worker, outcomes, verdict)
        return True
    taken = _read_clock(worker.process.pid) - worker.since
    if worker.now is not None and taken > (seconds if worker.made else 6 * seconds):
        worker.process.kill()
        worker.process.join()
        _end(worker, outcomes, f"bad: {'' if worker.made else 'fuzzer: making it takes '}more than {seconds:g} s")
        return True
    return False


def _end(worker: Worker, outcomes: list[Outcome], verdict: str) -> None:
    assert worker.now is not None
    outcomes.append(Outcome(worker.kind.name, worker.now, "?", verdict, _read_clock(worker.process.pid) - worker.since))
    worker.left.remove(worker.now)


# ------------------------------------------------------------------------------------------------------ the answer


def summarise(outcomes: list[Outcome], *, seed: int) -> str:
    """Return the table of outcomes by kind, the bad ones by type, and a line to repeat one of each."""
    lines = ["| kind | inputs | refused | unchanged | changed | bad | slowest, s | most memory, MB |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in [*KINDS, "all"]:
        mine = [one for one in outcomes if name in {one.kind, "all"}]
        if not mine:
            continue
        tally = Counter("bad" if one.is_bad else one.verdict for one in mine)
        cells = [tally[word] for word in ("refused", "unchanged", "changed", "bad")]
        slowest, most = max(one.seconds for one in mine), max(one.grown for one in mine) / 1e6
        lines.append(f"| {name} | {len(mine)} | {' | '.join(map(str, cells))} | {slowest:.1f} | {most:.0f} |")
    bad = Counter((one.kind, one.verdict) for one in outcomes if one.is_bad)
    for (name, verdict), count in sorted(bad.items(), key=lambda pair: (pair[0][0], -pair[1])):
        first = next(one for one in outcomes if (one.kind, one.verdict) == (name, verdict))
        lines.append(f"\n{count} x {name}: {verdict} ({first.how})")
        lines.append(f"    python benchmarks/fuzz.py --seed {seed} --kind {name} --only {first.number}")
    changed = Counter((one.kind, one.how) for one in outcomes if one.verdict == "changed")
    if changed:
        lines.append("\nLoaded changed, by what was done:\n")
        lines += [f"- {name}: {how}: {count}" for (name, how), count in sorted(changed.items())]
    return "\n".join(lines)


def share_inputs(inputs: int, names: list[str]) -> dict[str, int]:
    """Divide the inputs between kinds by their shares: slow ones have fewer."""
    whole = sum(KINDS[name].share for name in names)
    return {name: -(-inputs * KINDS[name].share // whole) for name in names}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--inputs", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--kind", action="append", choices=sorted(KINDS), help="may be repeated; all if left out")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seconds", type=float, default=SECONDS, help="after which an input counts as hanging")
    options.add_argument("--only", type=int, help="the number of one input, tried in this process without limits")
    options.add_argument("--keep", type=Path, help="a folder for the files of that input")
    options.add_argument("--json", type=Path, help="write every outcome there")
    chosen = options.parse_args()
    names = chosen.kind or list(KINDS)
    if chosen.only is not None:
        with tempfile.TemporaryDirectory() as text:
            KINDS[names[0]].prepare(Path(text) / names[0])
            root = Path(text)
            print(try_input(KINDS[names[0]], chosen.only, seed=chosen.seed, root=root, debug=True, keep=chosen.keep))
        return
    begin = time.perf_counter()
    outcomes = fuzz(
        share_inputs(chosen.inputs, names), seed=chosen.seed, workers=chosen.workers, seconds=chosen.seconds
    )
    print(summarise(outcomes, seed=chosen.seed))
    print(
        f"\n{len(outcomes)} inputs, seed {chosen.seed}, {time.perf_counter() - begin:.0f} s with {chosen.workers} processes"
    )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([vars(one) for one in outcomes]), encoding="utf-8")
    if any(one.is_bad for one in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
