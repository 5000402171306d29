"""What kills, signals and other users make of unfinished work: found, removed, and readable by its owner alone.

The long version, 300 kills of the command, is benchmarks/kill_privatize.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import labeldp
from labeldp.cli import app
from labeldp.engines import discard_job, privatize_table
from labeldp.engines.job import Staging
from labeldp.errors import LabelDPError
from labeldp.release.budget import Budget
from labeldp.release.unfinished import find_leftovers, hidden_name, hold, is_partial, remove_leftover

PHRASE = "correct horse battery"
NAME = ".out.partial-0123456789abcdef"

#: The command, which gets a signal when its first file is written. A shell that runs the tests in the background has its
#: children ignore Ctrl-C, and what is ignored stays so: here it is heard.
STOPPED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from labeldp.cli import main
from labeldp.engines.job import Staging

keep = Staging.keep
def stop(self, *given, **named):
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return keep(self, *given, **named)
Staging.keep = stop
main()
"""

#: The command, which gets SIGTERM in the middle of the import of pandas. pyarrow asks for it when it makes its first array of
#: objects, and drops what goes wrong; then it asks again.
IMPORTING = """
import os, signal, sys
from labeldp.cli import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas.core.sorting":
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):  # the handler runs between two of these
                pass
            os.write(2, b"importing pandas\\n")
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"label": np.arange(300) % 3}), path)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def command(*words: object, code: int) -> str:
    done = CliRunner().invoke(app, ["privatize", *map(str, words)])
    assert done.exit_code == code, done.output
    return str(done.output)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_clean_up_and_say_what_is_left(name: str, sealed: bool, table: Path, forks: Any) -> None:
    """Before: SIGTERM left a folder whether sealed or not (exit code -15), and Ctrl-C said nothing of `--resume`."""
    root, number = table.parent, signal.Signals[name]
    options = ["privatize", str(table), "--label", "label", "--epsilon", "1", "--to", str(root / "out")]
    options += ["--ledger", str(root / "ledger.sqlite")]
    environment = {**os.environ, "SIGNAL": str(int(number)), **({"LABELDP_PASSPHRASE": PHRASE} if sealed else {})}
    done = forks.run(STOPPED, *options, environment=environment)
    assert done.returncode == 128 + number, done.stderr
    assert "Traceback" not in done.stderr
    left = find_leftovers(root / "out")
    assert not (root / "out").exists()
    if not sealed:
        assert left == []
        assert "stopped:" in done.stderr
        return
    (job,) = left
    assert f"kept in {job.path}" in done.stderr.replace("\n", "")
    assert "--resume" in done.stderr
    os.environ["LABELDP_PASSPHRASE"] = PHRASE
    try:
        command(*options[1:], "--resume", job.path, code=0)
    finally:
        del os.environ["LABELDP_PASSPHRASE"]
    assert len(labeldp.Ledger(root / "ledger.sqlite").entries()) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_signal_in_an_import_of_a_library(sealed: bool, table: Path) -> None:
    """Before: the interrupt was lost, and pandas kept the lock of all imports: the thread that draws waited for it for ever."""
    pytest.importorskip("pandas")
    options = ["privatize", str(table), "--label", "label", "--epsilon", "1", "--to", str(table.parent / "out")]
    environment = {**os.environ, **({"LABELDP_PASSPHRASE": PHRASE} if sealed else {})}
    run = [sys.executable, "-c", IMPORTING, *options]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert "importing pandas" in done.stderr
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "stopped:" in done.stderr
    left = find_leftovers(table.parent / "out")
    assert all(f"kept in {one.path}" in done.stderr for one in left)
    assert sealed or left == []


def test_secrets_are_their_owners_alone(table: Path) -> None:
    """With umask 0. Before: the folder was 0777, key.json and the notes 0666. The release itself is as any new folder."""
    modes: dict[str, int] = {}

    def look(done: int, total: int) -> None:
        (place,) = table.parent.glob(".out.partial-*")
        for path in [place, *place.rglob("*.json")]:
            modes[path.name] = path.stat().st_mode & 0o777

    before = os.umask(0)
    try:
        privatize_table(table, label="label", to=table.parent / "out", epsilon=1.0, passphrase=PHRASE, progress=look)
        labeldp.load_release(table.parent / "out").save(table.parent / "copy")
    finally:
        os.umask(before)
    folders = {mode for name, mode in modes.items() if is_partial(name) and name.startswith(".out")}
    assert folders == {0o700}
    assert {modes["key.json"], modes["job.json"]} == {0o600}
    assert [(table.parent / name).stat().st_mode & 0o777 for name in ("out", "copy")] == [0o777, 0o777]


def test_a_kill_before_the_job_is_noted(tmp_path: Path) -> None:
    """Before: `--discard` refused the folder ("must be the folder of an unfinished job", exit code 2), so it stayed for good."""
    for made in ("work", "done", "release"):
        (tmp_path / NAME / made).mkdir(parents=True)
    assert "without a key" in command("--discard", tmp_path / NAME, code=0)
    assert names(tmp_path) == []


def test_everything_of_ours_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs, releases, models, tables: by the folder, by the target, or by where one stands. Nothing else is touched."""
    ours = [hidden_name("out"), hidden_name("out"), hidden_name("model.skops")]
    others = [".out.partial-", ".out.partial-xyz", "out.partial-0123456789abcdef", ".cache"]
    for name in [*ours[:2], *others]:
        (tmp_path / name).mkdir()
    (tmp_path / ours[2]).touch()
    assert command("--discard", tmp_path / "out", code=0).count("discarded") == 2
    monkeypatch.chdir(tmp_path)
    assert "half-written file" in command("--discard", code=0)
    assert names(tmp_path) == sorted(others)
    assert "nothing" in command("--discard", code=0)
    assert "unfinished job" in command("--discard", "out", code=2)


def test_work_in_progress_is_left_alone(tmp_path: Path, table: Path) -> None:
    place = tmp_path / NAME
    (place / "work").mkdir(parents=True)
    with hold(place) as free:
        assert free
        assert "in use, left alone" in command("--discard", tmp_path / "out", code=2)
        with pytest.raises(LabelDPError, match=r"nobody is at work on"):
            discard_job(place)
        assert place.exists()
    discard_job(place)
    assert not place.exists()

    found: list[bool] = []

    def sweep(done: int, total: int) -> None:
        found.extend(one.in_use for one in find_leftovers(tmp_path / "out"))

    privatize_table(table, label="label", to=tmp_path / "out", epsilon=1.0, progress=sweep)
    assert found
    assert all(found)


def test_a_planted_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / NAME).symlink_to(tmp_path / "precious")
    assert remove_leftover(tmp_path / NAME)
    assert names(tmp_path) == ["precious"]
    assert names(tmp_path / "precious") == ["file"]
    assert not remove_leftover(tmp_path / "precious")  # not a name of ours


def test_an_interrupt_names_the_job(table: Path) -> None:
    """Before: a bare KeyboardInterrupt, and a hidden folder that nobody was told of."""

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"kept in .*\.out\.partial-[0-9a-f]{16}: take it up with resume"):
        privatize_table(
            table, label="label", to=table.parent / "out", epsilon=1.0, passphrase=PHRASE, progress=interrupt
        )


def test_an_interrupt_after_the_last_step(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: the folder stayed, with the key of a release that was there already, and its resume was refused."""
    publish = Staging.publish

    def interrupt(self: Staging, target: Any) -> None:
        publish(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Staging, "publish", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"is whole: .*out\.$"):
        privatize_table(table, label="label", to=table.parent / "out", epsilon=1.0, passphrase=PHRASE)
    assert names(table.parent) == ["out", "table.parquet"]
    assert len(labeldp.load_release(table.parent / "out")) == 300


def test_an_interrupt_while_the_folder_is_removed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: what was not removed yet stayed, the sealed key too."""
    remove, interrupts = Staging.remove, [KeyboardInterrupt()]

    def interrupt(self: Staging) -> None:
        if interrupts:
            raise interrupts.pop()
        remove(self)

    monkeypatch.setattr(Staging, "remove", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"is whole: .*out\.$"):
        privatize_table(table, label="label", to=table.parent / "out", epsilon=1.0, passphrase=PHRASE)
    assert names(table.parent) == ["out", "table.parquet"]


def test_an_interrupt_right_after_the_charge_names_it(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: "Nothing was kept", and not a word of the ledger's entry."""
    charge = Budget.charge

    def interrupt(self: Budget, *given: Any, **named: Any) -> None:
        charge(self, *given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(Budget, "charge", interrupt)
    ledger = labeldp.Ledger(table.parent / "ledger.sqlite")
    with pytest.raises(KeyboardInterrupt, match=r"Entry 1 of the ledger stays"):
        privatize_table(table, label="label", to=table.parent / "out", epsilon=1.0, ledger=ledger)
    assert find_leftovers(table.parent / "out") == []
