"""The command line as a process: exit codes, streams, start-up, a locked ledger, a full disk, a narrow screen."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.accounting import Ledger

SOURCE = str(Path(labeldp.__file__).parent.parent)


def command(line, *, folder=None, limit=None, columns="100"):
    """Run `python -m labeldp` on a line; `limit` is the most bytes that a file may have."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": columns}
    tighten = None if limit is None else (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    arguments = [sys.executable, "-m", "labeldp", *line.split()]
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, cwd=folder, env=environment, preexec_fn=tighten
    )


def test_help_starts_fast_and_loads_nothing_heavy():
    program = (
        "import json, sys, time; start = time.perf_counter(); import labeldp.cli.app; "
        "print(json.dumps([time.perf_counter() - start, sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    elapsed, loaded = json.loads(done.stdout)
    print(f"import of the command line: {1000 * elapsed:.0f} ms")
    assert [m for m in ("numpy", "scipy", "sklearn", "numba", "pyarrow", "skops", "plotly") if m in loaded] == []
    # About 120 ms on one idle core; three seconds leave room for a cold disk and a busy machine.
    assert elapsed < 3.0


def test_help_as_a_process():
    start = time.perf_counter()
    done = command("--help")
    print(f"labeldp --help: {time.perf_counter() - start:.2f} s")
    assert done.returncode == 0
    assert "privatize" in done.stdout
    assert done.stderr == ""


def test_streams_and_codes(folder):
    good = command("privatize people.parquet -l income -e 1 --to out --json", folder=folder)
    assert good.returncode == 0
    assert json.loads(good.stdout)["rows"] == 600
    assert good.stderr == ""
    bad = command("privatize people.parquet -l incom -e 1 --to out2 --json", folder=folder)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: ")
    usage = command("privatize --no-such-option", folder=folder)
    assert usage.returncode == 2


def test_a_full_disk_leaves_nothing(folder):
    table = pa.table({"x": list(range(40_000)), "y": ["a", "b"] * 20_000})
    pq.write_table(table, folder / "big.parquet")
    before = sorted(p.name for p in folder.iterdir())
    done = command("privatize big.parquet -l y -e 1 --to out", folder=folder, limit=20_000)
    assert done.returncode == 2, done.stderr
    assert "could not write" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_full_disk_for_a_model(folder):
    done = command("train people.parquet -l income -e 1 --to m.skops", folder=folder, limit=5_000)
    assert done.returncode == 2, done.stderr
    assert "could not write" in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["people.parquet", "test.csv"]


def test_a_locked_ledger(folder, run, monkeypatch):
    run("ledger l --set-budget 2")
    monkeypatch.setitem(Ledger.__init__.__kwdefaults__, "timeout", 0.2)  # thirty seconds are too long for a test
    other = sqlite3.connect(folder / "l", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        result = run("privatize people.parquet -l income -e 1 --to out --ledger l", code=2)
    finally:
        other.close()
    assert "Another process is writing" in result.stderr
    assert not (folder / "out").exists()


@pytest.mark.parametrize("columns", ["60", "100"])
def test_screens_fit(folder, run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    run("privatize people.parquet -l income -e 1 --to out --ledger l --budget 4")
    for line in ("plan --classes 10", "inspect out", "ledger l", "train out --to m.skops"):
        text = run(line).stdout
        assert max(map(len, text.splitlines())) <= int(columns), line
