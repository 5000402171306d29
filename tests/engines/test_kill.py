"""kill -9 at random moments: no release and perhaps a charge, or a whole release and its charge; nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.engines import privatize_table
from labeldp.release import load_release

KILLS = 6
ALLOWED = {"no release, no charge", "no release, charged", "whole release, charged"}


def test_kills_at_random_moments(repository: Path, tmp_path: Path) -> None:
    script = repository / "benchmarks" / "kill_privatize.py"
    done = subprocess.run(
        [sys.executable, str(script), "--rows", "200000", "--kills", str(KILLS), "--seed", "1"],
        env={**os.environ, "PYTHONPATH": str(repository / "src"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=170,
    )
    result = json.loads(done.stdout)
    assert set(result["tally"]) <= ALLOWED
    assert sum(result["tally"].values()) == KILLS


# Kills itself when the row groups are half written, when all is written, and just after the rename.
CHILD = """
import os, signal, sys
from pathlib import Path
import labeldp
from labeldp.engines import privatize_table

root, where = Path(sys.argv[1]), sys.argv[2]
die = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
options = {}
if where == "half":
    options = {"batch_rows": 1000, "progress": lambda done, total: die() if 2 * done >= total else None}
if where == "written":
    os.rename = die
if where == "renamed":
    real = os.rename
    os.rename = lambda *arguments: (real(*arguments), die())
ledger = labeldp.Ledger(root / "ledger.sqlite")
privatize_table(root / "table.parquet", label="label", to=root / "out", epsilon=1.0, ledger=ledger, **options)
"""


@pytest.mark.parametrize(("where", "visible"), [("half", False), ("written", False), ("renamed", True)])
def test_kills_at_chosen_moments(where: str, visible: bool, tmp_path: Path, repository: Path) -> None:
    pq.write_table(pa.table({"label": np.arange(5000) % 3}), tmp_path / "table.parquet")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), where],
        env={**os.environ, "PYTHONPATH": str(repository / "src")},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -9
    assert (tmp_path / "out").exists() == visible
    ledger = labeldp.Ledger(tmp_path / "ledger.sqlite")
    (entry,) = ledger.entries()
    if visible:
        assert len(load_release(tmp_path / "out")) == 5000
        assert load_release(tmp_path / "out").ledger_entry == entry.id
    else:
        assert [p for p in tmp_path.iterdir() if p.name.startswith(".out.partial-")]
        privatize_table(tmp_path / "table.parquet", label="label", to=tmp_path / "out", epsilon=1.0, ledger=ledger)
        assert len(ledger.entries()) == 2  # a new run draws new noise, and pays for it


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"label": np.arange(5000) % 3}), tmp_path / "table.parquet")

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privatize_table(
            tmp_path / "table.parquet",
            label="label",
            to=tmp_path / "out",
            epsilon=1.0,
            batch_rows=100,
            progress=interrupt,
        )
    assert [p.name for p in tmp_path.iterdir()] == ["table.parquet"]
