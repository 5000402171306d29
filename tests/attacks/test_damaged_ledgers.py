"""Ledgers that were damaged, forged row by row, or tampered with beside the rows; and charges that slow down."""

import hashlib
import json
import random
import sqlite3
import sys
from contextlib import closing

import pytest

from labeldp.accounting import AccountName, Ledger, fingerprint, protect_ids
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee

ROWS = fingerprint("toy", n_rows=100)


def charge(ledger, epsilon=1.0, **more):
    return ledger.charge(Guarantee.pure(epsilon), rows=ROWS, n_rows=100, mechanism="RR", **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A budget, and twelve releases under two names, some of them noted; one of the two is known by its row ids."""
    place = tmp_path_factory.mktemp("whole") / "ledger.sqlite"
    ledger = Ledger(place, budget=1000.0)
    for i in range(12):
        ids = protect_ids(range(200 * i), ledger.row_key())
        name = AccountName("b", ids, given=True) if i % 2 else "a"
        charge(ledger, 1.0 + i / 8, label_set=name, note=f"job {i}" if i % 3 else "")
    return place


@pytest.fixture
def path(whole, tmp_path):
    place = tmp_path / "ledger.sqlite"
    place.write_bytes(whole.read_bytes())
    return place


def use(path):
    """Do what a user does with a ledger."""
    ledger = Ledger(path, timeout=0.5)
    ledger.entries()
    ledger.budgets()
    ledger.label_sets()
    ledger.spent("a")
    ledger.remaining("b")
    ledger.verify()
    charge(ledger, 0.5, label_set="a", note="job 99")


def damage(data, chance):
    """Return the file with one accident of five kinds."""
    spot, kind = chance.randrange(len(data)), chance.randrange(5)
    if kind == 0:
        return data[:spot]
    if kind == 1:
        return data[:spot] + bytes([data[spot] ^ (1 << chance.randrange(8))]) + data[spot + 1 :]
    length = chance.choice([1, 8, 64, 1024])
    if kind == 2:
        return data[:spot] + chance.randbytes(length) + data[spot + length :]
    if kind == 3:
        return data[:spot] + bytes(length) + data[spot + length :]
    # Into the texts: bytes that no UTF-8 has, where SQLite quotes its own schema.
    return data[: spot % 4096] + b"\xff\xfe\x80" + data[spot % 4096 + 3 :]


def test_a_damaged_file_is_an_error_of_ours_or_still_the_same_ledger(path):
    """Before, a file of these raised UnicodeDecodeError: SQLite's complaint about its schema quoted bytes that are no text."""
    data, chance = path.read_bytes(), random.Random(15)
    known = {entry.hash for entry in Ledger(path).entries()}
    said = []
    for _ in range(200):
        path.write_bytes(damage(data, chance))
        try:
            use(path)
        except LabelDPError as error:
            said.append(str(error))
        else:
            # What no check can see is an empty file, which is a new ledger, and bytes that nothing uses.
            entries = Ledger(path).entries()
            assert len(entries) == 1 or known <= {entry.hash for entry in entries}
        for rest in path.parent.glob("*-journal"):
            rest.unlink()
    assert len(said) > 80
    assert all(text.startswith("Ledger") for text in said)


def reseal(path, number, change):
    """Edit one row as a forger would: all hashes from there on are made anew."""
    columns = "id, kind, label_set, at, who, content, previous, hash"
    with closing(sqlite3.connect(path)) as other:
        triggers = other.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        rows = [list(row) for row in other.execute(f"SELECT {columns} FROM record ORDER BY id")]
        for name, _ in triggers:
            other.execute(f"DROP TRIGGER {name}")
        previous = "0" * 64
        for row in rows:
            if row[0] == number:
                change(row)
            row[6] = previous
            row[7] = previous = hashlib.sha256(json.dumps(row[:7], separators=(",", ":")).encode()).hexdigest()
            other.execute("DELETE FROM record WHERE id = ?", row[:1])
            other.execute(f"INSERT INTO record ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        for _, sql in triggers:
            other.execute(sql)
        other.commit()


CONTENTS = [
    "",
    "7",
    "[]",
    "null",
    "{}",
    "[" * 100_000,
    '{"rows":1,"n_rows":1,"guarantee":{},"mechanism":"","parts":[],"seeded":false,"note":""}',
    '{"balances":[7]}',
    '{"balances":{"a":1}}',
    '{"balances":[["a",["b"]]],"epsilon":"x","delta":0}',
    '{"epsilon":1e999,"delta":2}',
    "\x00",
]


@pytest.mark.parametrize("number", [1, 7, 13])
@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_a_sealed_row_of_another_make_is_an_error_of_ours(path, number, content):
    """Before: JSONDecodeError, KeyError, TypeError, AttributeError or RecursionError for each of these rows."""
    reseal(path, number, lambda row: row.__setitem__(5, content))
    with pytest.raises(PrivacyError, match="backup"):
        use(path)


@pytest.mark.parametrize(("column", "value"), [(1, "budget"), (2, None), (2, "two\nlines"), (2, 4.5), (2, "")])
def test_a_sealed_row_with_another_kind_or_set_is_an_error_of_ours(path, column, value):
    """Before: a KeyError, and an AssertionError where the name of a release was gone."""
    reseal(path, 7, lambda row: row.__setitem__(column, value))
    with pytest.raises(PrivacyError, match="backup"):
        use(path)


# ------------------------------------------------------------------------------------- tampering beside and inside rows


def edit(path, *commands):
    with closing(sqlite3.connect(path)) as other:
        triggers = other.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            other.execute(f"DROP TRIGGER {name}")
        for command in commands:
            other.execute(command)
        for _, sql in triggers:
            other.execute(sql)
        other.commit()


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE balance SET content = replace(content, '\"count\":1', '\"count\":0')",
        "UPDATE balance SET content = (SELECT content FROM balance WHERE label_set = 'b') WHERE label_set = 'a'",
        "UPDATE balance SET entry = 2 WHERE label_set = 'a'",
        "UPDATE balance SET entry = 99 WHERE label_set = 'a'",
        "UPDATE balance SET entry = 'x', content = x'00' WHERE label_set = 'a'",
        "DELETE FROM balance WHERE label_set = 'a'",
        "DELETE FROM balance",
    ],
)
def test_an_edited_balance_does_not_spend(path, command):
    """A charge believes a balance only if the newest row of its label set names it."""
    edit(path, command)
    for act in (
        lambda: charge(Ledger(path), 1.0, label_set="a"),
        lambda: Ledger(path).spent("a"),
        lambda: Ledger(path).verify(),
    ):
        with pytest.raises(PrivacyError, match="backup"):
            act()


def test_a_balance_of_yesterday_does_not_spend_either(path):
    """Putting back the balance and the row that named it leaves a newer row of the set, which the index finds."""
    with closing(sqlite3.connect(path)) as other:
        old = other.execute("SELECT entry, content FROM balance WHERE label_set = 'a'").fetchone()
    charge(Ledger(path), 5.0, label_set="a")
    edit(path, f"UPDATE balance SET entry = {old[0]}, content = '{old[1]}' WHERE label_set = 'a'")
    with pytest.raises(PrivacyError, match="no balance of label set 'a' after its newest row"):
        charge(Ledger(path), 1.0, label_set="a")


@pytest.mark.parametrize("command", ["DELETE FROM noted", "INSERT INTO noted VALUES ('job 77', 3)"])
def test_verify_finds_an_edited_index_of_notes(path, command):
    edit(path, command)
    with pytest.raises(PrivacyError, match="other notes"):
        Ledger(path).verify()


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory):
    """A ledger of 200 entries, more than are checked at every opening."""
    place = tmp_path_factory.mktemp("long") / "ledger.sqlite"
    ledger = Ledger(place, budget=1e4)
    for i in range(200):
        charge(ledger, 0.5, note=f"job {i}")
    return place


def test_an_old_row_that_was_edited_is_found_by_every_listing_and_soon_by_charges(long_ledger, tmp_path):
    """Row 5 of 201 is outside the newest 64. An opening checks one of three blocks of older rows.

    Sixty of them all miss row 5 with probability (2/3)^60 < 3e-11.
    """
    place = tmp_path / "ledger.sqlite"
    place.write_bytes(long_ledger.read_bytes())
    edit(place, "UPDATE record SET who = 'eve' WHERE id = 5")

    def try_often(act):
        for _ in range(60):
            act()

    for act in (
        lambda: Ledger(place).entries(),
        lambda: Ledger(place).verify(),
        lambda: try_often(lambda: Ledger(place)),
    ):
        with pytest.raises(PrivacyError, match="broken chain at row 5"):
            act()


def count_work(act):
    """Return the steps of SQLite's virtual machine and the calls of Python functions in `act`."""
    connect, counts = sqlite3.connect, [0, 0]

    def watched(*args, **named):
        connection = connect(*args, **named)
        connection.set_progress_handler(lambda: counts.__setitem__(0, counts[0] + 1), 1)
        return connection

    def watch(_frame, event, _argument):
        counts[1] += event == "call"

    before = sys.getprofile()
    sqlite3.connect = watched
    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(before)
        sqlite3.connect = connect
    return counts


def test_a_charge_does_no_more_work_in_a_longer_ledger(long_ledger, tmp_path):
    """Work is counted, not timed. From 200 to 600 entries it grew threefold before; now only the trees get deeper.

    The seconds at 10, 10,000 and 100,000 entries are in benchmarks/results/ledger.md.
    """
    place = tmp_path / "ledger.sqlite"
    place.write_bytes(long_ledger.read_bytes())
    ledger = Ledger(place)
    acts = [lambda: charge(ledger, 0.5), lambda: Ledger(place), ledger.remaining]
    if hasattr(ledger, "find_noted"):  # which the commit before had not, and scanned all entries instead
        acts += [lambda: ledger.find_noted("job 7"), lambda: ledger.find_noted("job 7:", longer=True)]
    short = [count_work(act) for act in acts]
    for i in range(400):
        charge(ledger, 0.5, note=f"run {i}")
    long = [count_work(act) for act in acts]
    # A random block of old rows may be a short last one: 64 rows of about 20 steps and calls each.
    for (steps, calls), (more_steps, more_calls) in zip(short, long, strict=True):
        assert more_steps <= 1.1 * steps + 64 * 20
        assert more_calls <= 1.1 * calls + 64 * 20


def test_a_note_is_found_in_any_ledger(path):
    ledger = Ledger(path)
    assert [entry.id for entry in ledger.find_noted("job 1")] == [3]
    assert [entry.id for entry in ledger.find_noted("job 1", longer=True)] == [3, 12, 13]
    assert ledger.find_noted("job") == ledger.find_noted("") == ()


def test_a_charge_that_could_not_be_read_again_is_refused(path):
    """One such row would close the ledger for good: every later call would find it and stop."""
    ledger, deep = Ledger(path), Guarantee.pure(0.01)
    for _ in range(80):
        deep = deep.named("part").then(Guarantee.pure(0.01)).named("whole")
    with pytest.raises(LabelDPError, match="read back from JSON"):
        charge(ledger, 1.0, note="half a character \ud800")
    with pytest.raises(LabelDPError, match="read back from JSON"):
        ledger.charge(deep, label_set="a", rows=ROWS, n_rows=100, mechanism="RR")
    assert len(ledger.entries()) == 12
    ledger.verify()
