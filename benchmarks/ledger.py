"""How long a charge takes in ledgers of 10, 10,000 and 100,000 entries, and what it costs to know accounts by their rows.

    PYTHONPATH=src python benchmarks/ledger.py > benchmarks/results/ledger.md

prints three tables. *Charges*: for each size the median of many charges, on the clock and of the processor's time, the steps
of SQLite's virtual machine and the Python calls of one charge, which no other process disturbs, and how long
`Ledger.verify` takes. Entries are of one epsilon ("equal"), or each of another ("different"). The budget is read at
delta = 0 and at 1e-6. *Accounts*: the same for a table that is known by its rows, and for a new one, in ledgers of
many accounts. *Tables*: the processor's seconds of `privatize_table` with and without a ledger. One word (charges, accounts,
tables) on the command line prints one of them.
"""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labeldp.accounting import AccountName, Ledger, ProtectedRows, RowKey, fingerprint, protect_ids
from labeldp.accounting.account_file import AccountTables
from labeldp.accounting.balance import Balance
from labeldp.accounting.entries import draft_release
from labeldp.accounting.ledger_file import open_for_writing
from labeldp.engines import privatize_table
from labeldp.guarantee import Guarantee

SIZES = (10, 10_000, 100_000)
CHARGES = 101
#: Rows of the Parquet file; the CSV has a tenth.
TABLE_ROWS = 10_000_000
REPEATS = 3
ROWS = fingerprint("benchmark", n_rows=1000)


def main() -> None:
    """Measure what was asked for and print tables."""
    print("# Charges in figures\n\n`PYTHONPATH=src python benchmarks/ledger.py`, ", end="")
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {CHARGES}\n")
    parts = {"charges": measure_charges, "accounts": measure_accounts, "tables": measure_tables}
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](Path(folder))
        print(flush=True)


def measure_charges(folder: Path) -> None:
    """Print the table of charges to accounts that are known by name."""
    print("| entries | epsilons | delta | clock ms | processor ms | SQLite steps | Python calls | verify s |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for size in SIZES:
        for different in (False, True):
            path = folder / f"{size}-{different}.sqlite"
            ledger = Ledger(path, budget=1e4)
            fill(path, size, different=different)
            print(row(ledger, size, different=different, delta=0.0), flush=True)
            ledger.set_budget(1e4, delta=1e-6)
            print(row(ledger, size, different=different, delta=1e-6), flush=True)


def measure_accounts(folder: Path) -> None:
    """Print the table of charges to accounts that are known by their rows: a known table, and a new one, of 20,000 rows."""
    print("| entries | accounts | hashes | table | clock ms | processor ms | SQLite steps | verify s | file MB |")
    print("|---:|---:|---:|---|---:|---:|---:|---:|---:|")
    for size, accounts in ((10, 1), (10_000, 1000), (100_000, 10_000)):
        path = folder / f"{size}.sqlite"
        ledger = Ledger(path, budget=1e4)
        key = ledger.row_key()
        hashes = fill_accounts(path, size, accounts=accounts, key=key)
        charge(ledger, 0, name=AccountName("known", big_table(key, 0)))
        whole = measure_verify(ledger)
        for what, most in (("known", CHARGES), ("new", 11)):
            times, works = [], []
            for number in range(most):
                rows = big_table(key, 0 if what == "known" else 1 + number)  # hashed before: this is about the ledger
                name = AccountName("known" if what == "known" else f"new {number}", rows)
                began, worked = time.perf_counter(), time.process_time()
                account = AccountName(ledger.choose_account(name).label_set, rows)
                charge(ledger, number, name=account)
                works.append(1e3 * (time.process_time() - worked))
                times.append(1e3 * (time.perf_counter() - began))
            last = AccountName("known" if what == "known" else "last", big_table(key, 0 if what == "known" else 99))
            steps = count_steps(functools.partial(charge, ledger, 0, name=last))
            clock, work = statistics.median(times), statistics.median(works)
            size_mb = path.stat().st_size / 1e6
            line = f"| {size:,} | {accounts:,} | {hashes:,} | {what} | {clock:.1f} | {work:.1f} | {steps:,} |"
            print(f"{line} {whole if what == 'known' else ''} | {size_mb:.1f} |", flush=True)


def big_table(key: RowKey, number: int) -> ProtectedRows:
    """Return the sketch of 20,000 rows that no other number has."""
    return protect_ids(np.arange(20_000) + 10**9 + number * 20_000, key)


def fill_accounts(path: Path, size: int, *, accounts: int, key: RowKey) -> int:
    """Write many entries, spread over accounts of 100 rows each, in one transaction; return how many hashes there are."""
    facts: dict[str, Any] = {
        "rows": ROWS,
        "n_rows": 100,
        "mechanism": "RR",
        "parts": (),
        "seeded": False,
        "who": "bench",
    }
    balances = [Balance() for _ in range(accounts)]
    with open_for_writing(path, timeout=60.0) as table:
        tables = AccountTables(table)
        for number in range(size):
            account, guarantee = number % accounts, promise(number, different=False)
            draft = draft_release(guarantee, label_set=f"account {account}", note=f"job {number}", **facts)
            if number < accounts:
                rows = protect_ids(np.arange(100) + 100 * account, key)
                entry = 1 + (table.last.id if table.last else 0)
                names = tables.attach(f"account {account}", rows, entry=entry)
                draft = replace(draft, content={**draft.content, "accounts": names})
            balances[account] = balances[account].add(guarantee)
            table.append(draft, balance=balances[account].to_text())
    return 100 * accounts


def measure_tables(folder: Path) -> None:
    """Print what a ledger adds to the release of a table of 8 columns and a label."""
    print("| rows | columns | file | ledger | processor s | ratio |")
    print("|---:|---:|---|---|---:|---:|")
    rng = np.random.default_rng(0)
    for kind, rows in (("parquet", TABLE_ROWS), ("csv", TABLE_ROWS // 10)):
        path = folder / f"table.{kind}"
        write_rows(path, rows, rng)
        privatize_table(path, label="y", to=folder / f"warm-{kind}", epsilon=1.0, classes=[0, 1])
        alone = 0.0
        for book in (None, folder / f"{kind}.sqlite"):
            works = []
            for number in range(REPEATS):
                ledger = None if book is None else Ledger(book)
                worked = time.process_time()
                target = folder / f"{kind}-{book is None}-{number}"
                privatize_table(path, label="y", to=target, epsilon=1.0, classes=[0, 1], ledger=ledger)
                works.append(time.process_time() - worked)
                shutil.rmtree(target)
            work = statistics.median(works)
            alone = alone or work
            print(
                f"| {rows:,} | 8 | {kind} | {'yes' if book else 'no'} | {work:.2f} | {work / alone:.2f} |", flush=True
            )


def write_rows(path: Path, rows: int, rng: np.random.Generator) -> None:
    """Write five columns of floats, two of integers, one of text and a label, a million rows at a time."""
    words = np.array(["clerk", "cook", "smith", "a longer occupation"])
    writer: Any = None
    for start in range(0, rows, 1_000_000):
        size = min(1_000_000, rows - start)
        columns: dict[str, Any] = {f"x{i}": rng.normal(size=size) for i in range(5)}
        columns |= {"age": rng.integers(18, 90, size), "id": np.arange(start, start + size)}
        columns |= {"job": pa.array(words[rng.integers(0, 4, size)]), "y": rng.integers(0, 2, size)}
        table = pa.table(columns)
        if writer is None:
            opened = pq.ParquetWriter if path.suffix == ".parquet" else pa.csv.CSVWriter
            writer = opened(path, table.schema)
        writer.write_table(table)
    writer.close()


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


def charge(ledger: Ledger, number: int, *, different: bool = False, name: str = "labels") -> None:
    """Charge one release."""
    cost = promise(number, different=different)
    ledger.charge(cost, label_set=name, rows=ROWS, n_rows=1000, mechanism="RR", note=f"job {number}")


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
