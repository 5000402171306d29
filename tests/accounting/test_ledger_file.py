"""The ledger's file: only grows, shows edits, is left alone when it is not ours, and says why when it cannot be used."""

import dataclasses
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from labeldp.accounting import Ledger, fingerprint
from labeldp.accounting.ledger_file import (
    APPLICATION_ID,
    INSERT,
    PLAIN_SCHEMA,
    SCHEMA,
    Draft,
    Record,
    next_record,
    open_for_writing,
)
from labeldp.errors import BudgetError, LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee

ROWS = fingerprint("toy", n_rows=100)
TRIGGERS = [name for name, command in SCHEMA.items() if command.startswith("CREATE TRIGGER")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path):
    """Three releases and a budget."""
    made = Ledger(path, budget=10.0)
    for epsilon in (1.0, 2.0, 3.0):
        charge(made, epsilon)
    return made


def charge(ledger, epsilon=1.0):
    return ledger.charge(Guarantee.pure(epsilon), rows=ROWS, n_rows=100, mechanism="RR")


def edit(path, *commands, guarded=False):
    """Run SQL as another hand would; unguarded, without the triggers, which are put back afterwards."""
    with closing(sqlite3.connect(path)) as other:
        for name in () if guarded else TRIGGERS:
            other.execute(f"DROP TRIGGER {name}")
        for command in commands:
            other.execute(command)
        for name in () if guarded else TRIGGERS:
            other.execute(SCHEMA[name])
        other.commit()


# ---------------------------------------------------------------------------------------------------------- only grows


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE record SET who = 'eve'",
        "DELETE FROM record WHERE id = 4",
        "INSERT OR REPLACE INTO record SELECT id, kind, label_set, at, 'eve', content, previous, hash FROM record",
        "REPLACE INTO record (id, kind, at, who, content, previous, hash) VALUES (2, 'budget', '', '', '', '', '')",
        "INSERT INTO record (id, kind, at, who, content, previous, hash) VALUES (9, 'budget', '', '', '', '', '')",
    ],
)
def test_sqlite_itself_refuses_to_change_a_row(ledger, path, command):
    before = ledger.entries()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        edit(path, command, guarded=True)
    assert ledger.entries() == before


def test_edits_that_change_nothing_are_no_tampering(ledger, path):
    # The control of the test below: dropping and restoring the triggers is not by itself an edit.
    edit(path)
    assert ledger.verify() == ledger.entries()[-1].hash


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE record SET content = replace(content, '3.0', '0.1') WHERE id = 4",
        "UPDATE record SET content = replace(content, '10.0', '99.0') WHERE id = 1",
        "UPDATE record SET label_set = 'other' WHERE id = 4",
        "UPDATE record SET label_set = NULL WHERE id = 4",
        "UPDATE record SET kind = 'budget' WHERE id = 3",
        "UPDATE record SET who = 'eve' WHERE id = 2",
        "UPDATE record SET at = '2001-01-01T00:00:00+00:00' WHERE id = 2",
        "UPDATE record SET hash = previous WHERE id = 2",
        "UPDATE record SET content = x'00ff' WHERE id = 2",
        "DELETE FROM record WHERE id = 1",
        "DELETE FROM record WHERE id = 3",
        "DELETE FROM record WHERE id = 4",
        "DELETE FROM record",
        "UPDATE record SET id = id + 10",
        "INSERT INTO record SELECT 5, kind, label_set, at, who, content, previous, hash FROM record WHERE id = 4",
    ],
)
def test_an_edit_by_another_hand_shows(ledger, path, command):
    edit(path, command)
    with pytest.raises(PrivacyError, match="must be a ledger as it was written, got"):
        ledger.verify()
    with pytest.raises(PrivacyError, match="restore it from a backup"):
        Ledger(path)
    with pytest.raises(PrivacyError):
        charge(ledger)


@pytest.mark.parametrize("command", [f"DROP TRIGGER {TRIGGERS[0]}", "CREATE TABLE more (x)", "DROP TABLE record"])
def test_a_changed_schema_shows(ledger, path, command):
    edit(path, command, guarded=True)
    with pytest.raises(PrivacyError, match="in its schema"):
        ledger.verify()


def test_a_ledger_written_anew_shows_to_whoever_kept_a_hash(ledger, path):
    kept = ledger.entries()[0].hash
    last = ledger.verify(known=kept)
    assert last == ledger.entries()[-1].hash
    charge(ledger)
    assert ledger.verify(known=last) != last
    path.unlink()
    charge(ledger)
    assert ledger.budget() == (10.0, 0.0)  # whoever opened it with a budget still holds to it
    ledger.verify()
    with pytest.raises(PrivacyError, match="without the known hash"):
        ledger.verify(known=kept)


def test_each_row_is_bound_to_the_one_before():
    draft = Draft(kind="budget", label_set=None, who="ann", content={})
    first = next_record(None, draft)
    second = next_record(first, draft)
    assert (first.previous, second.previous) == ("0" * 64, first.hash)
    # JSON keeps fields apart: moving a character from one to the next is another row.
    fields = {"id": 1, "kind": "budget", "when": "", "previous": "", "hash": "", "label_set": None}
    assert (
        Record(**fields, who="ab", content="c").compute_hash() != Record(**fields, who="a", content="bc").compute_hash()
    )


def test_what_raises_inside_a_transaction_leaves_no_row(ledger, path):
    before = path.read_bytes()
    bad = Draft(kind="no such kind", label_set=None, who="ann", content={})
    with pytest.raises(LabelDPError, match="CHECK constraint"), open_for_writing(path, timeout=1.0) as table:
        [table.append(draft, balance="") for draft in (dataclasses.replace(bad, kind="budget"), bad)]
    assert path.read_bytes() == before


# ------------------------------------------------------------------------------------------------------------ not ours


def text_file(path):
    path.write_text("label,income\n1,2\n" * 100)


def short_file(path):
    path.write_bytes(b"x")


def other_database(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE record (id)")
        other.commit()


def marked_database(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA application_id = 7")
        other.commit()


@pytest.mark.parametrize("make", [text_file, short_file, other_database, marked_database])
@pytest.mark.parametrize("budget", [None, 1.0])
def test_a_file_that_is_not_ours_is_left_alone(path, make, budget):
    make(path)
    before = path.read_bytes()
    with pytest.raises(LabelDPError, match=r"Ledger: `path` must be a ledger of labeldp, got .*ledger.sqlite"):
        Ledger(path, budget=budget)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_replaced_behind_an_open_ledger_is_left_alone(path):
    ledger = Ledger(path)
    text_file(path)
    before = path.read_bytes()
    with pytest.raises(LabelDPError, match="must be a ledger of labeldp"):
        charge(ledger)
    assert path.read_bytes() == before


def test_a_ledger_from_the_future_is_left_alone(ledger, path):
    edit(path, "PRAGMA user_version = 4", guarded=True)
    with pytest.raises(LabelDPError, match=r"got version 4 .*Upgrade labeldp"):
        Ledger(path)


def make_plain(path, drafts):
    """Write a ledger of version 1 as labeldp wrote it before balances: rows alone."""
    last = None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        other.execute("PRAGMA user_version = 1")
        for command in PLAIN_SCHEMA.values():
            other.execute(command)
        for draft in drafts:
            last = next_record(last, draft)
            other.execute(INSERT, dataclasses.asdict(last))


def plain_drafts():
    yield Draft(kind="budget", label_set=None, who="ann", content={"epsilon": 10.0, "delta": 0.0})
    for i, name in enumerate("abba"):
        facts = {"rows": ROWS, "n_rows": 100, "mechanism": "RR", "parts": [], "seeded": False, "token": str(i)}
        promise = Guarantee.pure(1.0 + i).to_json()
        yield Draft(
            kind="release", label_set=name, who="ann", content={**facts, "guarantee": promise, "note": f"job {i}"}
        )
    yield Draft(kind="budget", label_set="b", who="ann", content={"epsilon": 6.0, "delta": 0.0})


def test_a_ledger_without_balances_is_read_and_brought_up_to_date_by_its_first_charge(path):
    make_plain(path, plain_drafts())
    before, ledger = path.read_bytes(), Ledger(path)
    assert [ledger.spent(name).epsilon() for name in "ab"] == [5.0, 5.0]
    assert [ledger.remaining(name) for name in "abc"] == [5.0, 1.0, 10.0]
    assert [entry.id for entry in ledger.find_noted("job 2")] == [4]
    first = ledger.verify()
    with pytest.raises(BudgetError):
        ledger.charge(Guarantee.pure(1.5), label_set="b", rows=ROWS, n_rows=100, mechanism="RR")
    assert path.read_bytes() == before  # reading and a refusal leave it as it was
    ledger.charge(Guarantee.pure(2.0), label_set="a", rows=ROWS, n_rows=100, mechanism="RR", note="job 9")
    assert path.read_bytes()[60:64] == b"\x00\x00\x00\x03"  # SQLite's user_version
    ledger.verify(known=first)
    assert [ledger.remaining(name) for name in "abc"] == [3.0, 1.0, 10.0]
    assert [[entry.id for entry in ledger.find_noted(note)] for note in ("job 2", "job 9")] == [[4], [7]]
    # Set b has had no row since: the row that brought the file up to date vouches for its balance.
    with pytest.raises(BudgetError):
        ledger.charge(Guarantee.pure(1.5), label_set="b", rows=ROWS, n_rows=100, mechanism="RR")
    edit(path, "UPDATE balance SET content = replace(content, '6.0', '9.0') WHERE label_set = 'b'")
    with pytest.raises(PrivacyError, match="a balance of label set 'b' that row 7 does not name"):
        ledger.remaining("b")


@pytest.mark.parametrize("command", ["UPDATE record SET who = 'eve' WHERE id = 3", "DELETE FROM record WHERE id = 6"])
def test_an_edited_ledger_without_balances_is_not_brought_up_to_date(path, command):
    make_plain(path, plain_drafts())
    edit(path, command)
    before = path.read_bytes()
    with pytest.raises(PrivacyError):
        charge(Ledger(path))
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_ledger(path):
    # Also what a crash between creating the file and the first commit leaves.
    path.touch()
    charge(Ledger(path))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_a_damaged_file_says_so(ledger, path):
    data = bytearray(path.read_bytes())
    assert len(data) > 4096 * 2
    data[4096:] = b"\xaa" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(PrivacyError, match=r"whole SQLite file.*backup"):
        ledger.entries()


def test_a_place_that_cannot_hold_a_file_is_named(tmp_path):
    with pytest.raises(LabelDPError, match="must be a file, got the directory"):
        Ledger(tmp_path)
    with pytest.raises(LabelDPError, match=r"in a directory that exists, got .*none/ledger. Create the directory"):
        Ledger(tmp_path / "none" / "ledger")
    (tmp_path / "plain").touch()
    with pytest.raises(LabelDPError, match="Ledger: `path` must"):
        Ledger(tmp_path / "plain" / "ledger")
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a POSIX thing")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LabelDPError, match="the special file"):
        Ledger(tmp_path / "pipe")


# -------------------------------------------------------------------------------------------- locked, read-only, full


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_a_locked_ledger_says_so_after_its_timeout(ledger, path, lock, monkeypatch):
    quick = Ledger(path, timeout=0.2)
    waits = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **named: waits.append(named) or connect(*args, **named))
    with closing(connect(path, isolation_level=None)) as other:
        other.execute(lock)
        began = time.monotonic()
        with pytest.raises(LabelDPError, match=r"must be free within 0.2 s, got .* Another process is writing"):
            charge(quick)
        # Not at once; and SQLite was told how long to wait, in place of its own default of 5 s.
        assert time.monotonic() - began > 0.15
        assert {named["timeout"] for named in waits} == {0.2}
        if lock == "BEGIN IMMEDIATE":
            assert len(quick.entries()) == 3  # a writer at work does not keep readers out
        else:
            with pytest.raises(LabelDPError, match="must be free"):
                Ledger(path, timeout=0.05)
    charge(quick)


SOURCE = str(Path(__file__).resolve().parents[2] / "src")
HEADER = """
import os, resource, signal, sys, warnings
warnings.simplefilter("error")
import labeldp.loss.base
from labeldp.accounting import ledger_file
from labeldp.accounting import Ledger, fingerprint
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
rows = fingerprint("toy", n_rows=100)
def charge(ledger, note=""):
    return ledger.charge(Guarantee.pure(1.0), rows=rows, n_rows=100, mechanism="RR", note=note)
"""


@pytest.fixture
def run(forks):
    return lambda program, *arguments: forks.run(HEADER + program, *arguments)


READ_ONLY = """
if os.getuid() == 0:
    os.setuid(65534)  # root may write whatever the mode says
ledger = Ledger(sys.argv[1], budget=99.0)
print(len(ledger.entries()))
for act in (lambda: charge(ledger), lambda: ledger.set_budget(5.0), lambda: Ledger(sys.argv[2])):
    try:
        act()
    except LabelDPError as error:
        print(error)
"""


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="file modes are a POSIX thing")
def test_a_read_only_ledger_reads_and_says_why_it_does_not_write(run):
    # A directory of its own: the user that root becomes may not enter pytest's.
    folder = Path(tempfile.mkdtemp())
    try:
        path, hidden = folder / "ledger", folder / "hidden"
        for name in (path, hidden):
            charge(Ledger(name, budget=10.0))
        path.chmod(0o444)
        hidden.chmod(0o000)
        folder.chmod(0o755)
        done = run(READ_ONLY, path, hidden)
        assert done.returncode == 0, done.stderr
        count, *said = done.stdout.splitlines()
        assert count == "1"
        assert [line.split(",")[0] for line in said] == [
            "Ledger: `path` must be writable",
            "Ledger: `path` must be writable",
            "Ledger: `path` must be readable and in a writable directory",
        ]
        assert len(Ledger(path).entries()) == 1
    finally:
        shutil.rmtree(folder)


FULL = """
ledger = Ledger(sys.argv[1])
size = os.path.getsize(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    charge(ledger, note="x" * 50_000)
except LabelDPError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on file sizes are a POSIX thing")
def test_a_file_that_cannot_grow_keeps_what_it_has(ledger, path, run):
    before = path.read_bytes()
    done = run(FULL, path)
    assert done.returncode == 0, done.stderr
    # A limit is an I/O error to SQLite, a full disk is "full": both are ours.
    assert done.stdout.startswith("Ledger: `path` must "), done.stdout
    assert ledger.verify() == ledger.entries()[-1].hash
    assert path.read_bytes() == before
    charge(ledger)


KILLED = """
append = ledger_file.Table.append
def die(self, draft, **more):
    append(self, draft, **more)
    os.kill(os.getpid(), signal.SIGKILL)
ledger = Ledger(sys.argv[1])
if sys.argv[2] == "before the commit":
    ledger_file.Table.append = die
charge(ledger)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="SIGKILL is a POSIX thing")
@pytest.mark.parametrize(("moment", "rows"), [("before the commit", 3), ("after the charge", 4)])
def test_killed_around_a_charge_the_row_is_there_or_is_not(ledger, path, moment, rows, run):
    done = run(KILLED, path, moment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(ledger.entries()) == rows
    charge(ledger)
    assert ledger.verify()
