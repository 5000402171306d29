"""kill -9 at every step: no release and perhaps a charge, or a whole release and its charge; nothing else.

A step is an event that Python reports to an audit hook (a file is opened, renamed or removed, a folder made), a flush to the
disk, a batch that was written, or the moment before and after the charge. `benchmarks/kill_privatize.py` kills larger jobs
at random moments.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.engines import privatize_table
from labeldp.release import load_release

ROWS = 3_000
KILLS = 16
NOTHING, CHARGED, RELEASED = "no release, no charge", "no release, charged", "whole release, charged"

# Forks a victim for each step from one process that has everything imported and no threads yet.
PARENT = """
import json, os, signal, sys
from pathlib import Path
import labeldp
import labeldp.kernels
from labeldp.engines import privatize_table

root, kills = Path(sys.argv[1]), int(sys.argv[2])
EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}

def victim(target, last):
    steps = 0
    def step(*_):
        nonlocal steps
        steps += 1
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
    ledger = labeldp.Ledger(root / "ledger.sqlite")
    charge, flush = ledger.charge, os.fsync
    def watched(*arguments, **facts):
        step()
        entry = charge(*arguments, **facts)
        step()
        return entry
    def flushed(handle):
        step()
        flush(handle)
    ledger.charge, os.fsync = watched, flushed
    sys.addaudithook(lambda event, _: step() if event in EVENTS else None)
    privatize_table(root / "table.parquet", label="label", to=root / target, epsilon=1.0, ledger=ledger,
                    batch_rows=1000, progress=step, classes=range(3))
    return steps

def fork(target, last):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(victim(target, last)).encode())
        os._exit(0)
    os.close(writer)
    told = os.read(reader, 100)
    os.close(reader)
    return os.waitpid(child, 0)[1], told

status, told = fork("whole", 0)
total = int(told)
chosen = sorted({round(1 + number * (total - 1) / (kills - 1)) for number in range(kills)})
found = []
for last in chosen:
    before = len(labeldp.Ledger(root / "ledger.sqlite").entries())
    status, _ = fork(f"out{last}", last)
    ledger = labeldp.Ledger(root / "ledger.sqlite")
    ledger.verify()
    found.append([last, os.WIFSIGNALED(status), len(ledger.entries()) - before])
print(json.dumps({"total": total, "kills": found}))
"""


@pytest.fixture(scope="module")
def killed(forks: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, str]]]:
    """The folder of all victims, and the state that each kill left, in the order of the steps."""
    root = tmp_path_factory.mktemp("killed")
    pq.write_table(pa.table({"label": np.arange(ROWS) % 3}), root / "table.parquet")
    done = forks.run(PARENT, root, KILLS)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["total"] > 2 * KILLS  # there are more steps than are killed at
    states = []
    for step, was_killed, charges in told["kills"]:
        assert was_killed or step == told["total"]  # threads may take a step more or less: the last may be past the end
        visible = (root / f"out{step}").exists()
        assert charges == 1 or (charges == 0 and not visible)
        if visible:
            assert len(load_release(root / f"out{step}")) == ROWS  # every checksum right, every row there
        states.append((step, RELEASED if visible else CHARGED if charges else NOTHING))
    return root, states


def test_a_kill_leaves_one_of_three_states_in_their_order(killed: tuple[Path, list[tuple[int, str]]]) -> None:
    order = [NOTHING, CHARGED, RELEASED]
    found = [order.index(state) for _, state in killed[1]]
    assert set(found) == {0, 1, 2}  # kills before the charge, after it, and after the release had its name
    assert found == sorted(found)


def test_what_is_charged_is_the_release_that_is_seen(killed: tuple[Path, list[tuple[int, str]]]) -> None:
    root, states = killed
    entries = {entry.id for entry in labeldp.Ledger(root / "ledger.sqlite").entries()}
    seen = [step for step, state in states if state == RELEASED]
    assert {load_release(root / f"out{step}").ledger_entry for step in seen} <= entries


def test_a_new_run_after_a_kill_is_charged_anew(killed: tuple[Path, list[tuple[int, str]]]) -> None:
    root, states = killed
    step = next(step for step, state in reversed(states) if state == CHARGED)
    assert [path for path in root.iterdir() if path.name.startswith(f".out{step}.partial-")]  # hidden, and no release
    ledger = labeldp.Ledger(root / "ledger.sqlite")
    before = len(ledger.entries())
    privatize_table(root / "table.parquet", label="label", to=root / f"out{step}", epsilon=1.0, ledger=ledger)
    assert len(ledger.entries()) == before + 1  # it draws new noise, and pays for it


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
