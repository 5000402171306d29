"""How long a charge takes in ledgers of 10, 10,000 and 100,000 entries, and what it reads.

    PYTHONPATH=src python benchmarks/ledger.py > benchmarks/results/ledger.md

prints a table: for each size the median of many charges, on the clock and of the processor's time, the steps of SQLite's virtual machine and the Python calls of one charge, which no other process disturbs, and how long
`Ledger.verify` takes. Entries are of one epsilon ("equal"), or each of another ("different"). The budget is read at
delta = 0 and at 1e-6.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from labeldp.accounting import Ledger, fingerprint
from labeldp.accounting.balance import Balance
from labeldp.accounting.ledger import draft_release
from labeldp.accounting.ledger_file import open_for_writing
from labeldp.guarantee import Guarantee

SIZES = (10, 10_000, 100_000)
CHARGES = 101
ROWS = fingerprint("benchmark", n_rows=1000)


def main() -> None:
    """Measure all sizes and print a table."""
    print("# Charges in figures\n\n`PYTHONPATH=src python benchmarks/ledger.py`, ", end="")
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {CHARGES}\n")
    print("| entries | epsilons | delta | clock ms | processor ms | SQLite steps | Python calls | verify s |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            for different in (False, True):
                path = Path(folder) / f"{size}-{different}.sqlite"
                ledger = Ledger(path, budget=1e4)
                fill(path, size, different=different)
                print(row(ledger, size, different=different, delta=0.0), flush=True)
                ledger.set_budget(1e4, delta=1e-6)
                print(row(ledger, size, different=different, delta=1e-6), flush=True)


def row(ledger: Ledger, size: int, *, different: bool, delta: float) -> str:
    """Return one line of the table."""
    charge(ledger, size, different=different)
    times, works = [], []
    for i in range(CHARGES):
        began, worked = time.perf_counter(), time.process_time()
        charge(ledger, size + 1 + i, different=different)
        times.append(1e3 * (time.perf_counter() - began))
        works.append(1e3 * (time.process_time() - worked))
    steps = count_steps(lambda: charge(ledger, size + CHARGES + 1, different=different))
    calls = count_calls(lambda: charge(ledger, size + CHARGES + 2, different=different))
    whole = measure_verify(ledger) if delta == 0 else ""
    clock, work = statistics.median(times), statistics.median(works)
    kind = "different" if different else "equal"
    return f"| {size:,} | {kind} | {delta:g} | {clock:.1f} | {work:.1f} | {steps:,} | {calls:,} | {whole} |"


def measure_verify(ledger: Ledger) -> str:
    """Return the processor's seconds of a check of all rows."""
    worked = time.process_time()
    ledger.verify()
    return f"{time.process_time() - worked:.2f}"


def promise(number: int, *, different: bool) -> Guarantee:
    """Return the guarantee of one entry."""
    return Guarantee.pure(1e-3 + number * 1e-8 if different else 1e-3)


def charge(ledger: Ledger, number: int, *, different: bool) -> None:
    """Charge one release."""
    ledger.charge(promise(number, different=different), rows=ROWS, n_rows=1000, mechanism="RR", note=f"job {number}")


def fill(path: Path, size: int, *, different: bool) -> None:
    """Write many entries in one transaction, each as a charge writes it."""
    balance = Balance()
    with open_for_writing(path, timeout=60.0) as table:
        for number in range(size):
            guarantee = promise(number, different=different)
            facts = {"rows": ROWS, "n_rows": 1000, "mechanism": "RR", "parts": (), "seeded": False, "who": "bench"}
            draft = draft_release(guarantee, label_set="labels", note=f"job {number}", **facts)  # type: ignore[arg-type]
            balance = balance.add(guarantee)
            table.append(draft, balance=balance.to_text())


def count_steps(work: Any) -> int:
    """Return how many instructions SQLite's virtual machine runs in `work`."""
    connect, steps = sqlite3.connect, [0]

    def watched(*args: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*args, **named)

        def step() -> int:
            steps[0] += 1
            return 0

        connection.set_progress_handler(step, 1)
        return connection

    sqlite3.connect = watched  # type: ignore[assignment]
    try:
        work()
    finally:
        sqlite3.connect = connect
    return steps[0]


def count_calls(work: Any) -> int:
    """Return how many functions, of Python or C, are called in `work`."""
    calls = [0]

    def watch(_frame: Any, event: str, _argument: Any) -> None:
        calls[0] += event in {"call", "c_call"}

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls[0]


if __name__ == "__main__":
    main()
