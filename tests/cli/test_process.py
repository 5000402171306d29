"""The command line in its surroundings: start-up, streams, exit codes, a full disk, a locked ledger, a narrow screen."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.accounting import Ledger

SOURCE = str(Path(labeldp.__file__).parent.parent)
#: What `--help` may load of the house.
LIGHT = ("cli", "display", "errors", "plots", "report")


def command(*arguments):
    """Run Python as a process on the arguments."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "100"}
    line = [sys.executable, *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=environment)


def test_help_loads_nothing_heavy():
    """Start-up is most of what a short command takes; what it loads does not depend on how busy the machine is."""
    program = (
        "import json, sys; from labeldp.cli import main; sys.argv = ['labeldp', '--help']\n"
        "try: main()\n"
        "finally: print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = command("-c", program)
    assert done.returncode == 0
    assert "privatize" in done.stdout
    loaded = json.loads(done.stderr)
    assert "rich" in loaded  # so that the list could name what it must not
    assert {"numpy", "scipy", "sklearn", "numba", "pyarrow", "skops", "cryptography"}.isdisjoint(loaded)
    assert [name for name in loaded if name.startswith("labeldp.") and name.split(".")[1] not in LIGHT] == []


def test_streams_and_codes():
    good = command("-m", "labeldp", "plan", "--classes", "3", "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["classes"] == 3
    bad = command("-m", "labeldp", "ledger", "nowhere", "--json")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: ")


@contextmanager
def small_disk(limit):
    """Let no file grow beyond so many bytes: what a full disk does to whoever writes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("line", "limit"),
    [("privatize big.parquet -l y -e 1 --to {}", 20_000), ("train people.parquet -l income -e 1 --to {}.skops", 5_000)],
    ids=["release", "model"],
)
def test_a_full_disk_leaves_nothing(folder, run, line, limit):
    pq.write_table(pa.table({"x": list(range(40_000)), "y": ["a", "b"] * 20_000}), folder / "big.parquet")
    run(line.format("whole"))  # the disk is large enough for it, and what is compiled is compiled now
    before = sorted(p.name for p in folder.iterdir())
    with small_disk(limit):
        result = run(line.format("out"), code=2)
    assert "could not write" in result.stderr
    assert sorted(p.name for p in folder.iterdir()) == before


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


def test_screens_fit(folder, run, monkeypatch):
    run("privatize people.parquet -l income -e 1 --to out --ledger l --budget 4")
    for columns in ("60", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        for line in ("plan --classes 10", "inspect out", "ledger l", f"train out --to m{columns}.skops"):
            assert max(map(len, run(line).stdout.splitlines())) <= int(columns), line


SLOW = """
import codecs, sys, time
from labeldp.data import open_table


class Slow(codecs.IncrementalDecoder):
    def decode(self, data, final=False):
        time.sleep(0.05)
        return codecs.charmap_decode(data, self.errors)[0]


def find(name):
    known = codecs.lookup("latin-1")
    return codecs.CodecInfo(known.encode, known.decode, incrementaldecoder=Slow, name=name) if name == "slow" else None


codecs.register(find)
for batch in open_table("large.csv", encoding="slow").batches(columns=["age"]):
    break
sys.exit(2)
"""


def test_a_process_that_stops_in_the_middle_of_a_table_ends_with_its_own_code(folder):
    """Arrow reads ahead in a thread of its own, through Python: where that goes on when Python ends, the process is aborted."""
    (folder / "large.csv").write_text("name,age\n" + "Zürich,30\n" * 600_000, encoding="latin-1")
    done = command("-c", SLOW)
    assert (done.returncode, done.stderr) == (2, "")
