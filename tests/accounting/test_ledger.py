"""The ledger as its users see it: what it admits, what it refuses, and what it says was spent."""

import copy
import dataclasses
import getpass
import inspect
import json
import math
import pickle
import random
import sqlite3
import threading
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.accounting import EntryNumber, Ledger, LedgerEntry, fingerprint, note_entry, recall_entry
from labeldp.errors import BudgetError, LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee, Trust, Unit

ROWS = fingerprint("toy", n_rows=100)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def charge(ledger, guarantee=None, *, epsilon=1.0, label_set="labels", **more):
    promise = Guarantee.pure(epsilon) if guarantee is None else guarantee
    facts = {"rows": ROWS, "n_rows": 100, "mechanism": f"RandomizedResponse(epsilon={epsilon})", **more}
    return ledger.charge(promise, label_set=label_set, **facts)


# --------------------------------------------------------------------------------------------------------- one release


def test_an_entry_says_everything_and_reads_back_the_same(path):
    parts = (("stage 1", Guarantee.pure(1.0)), ("stage 2", Guarantee.pure(0.5)))
    whole = Guarantee.in_parallel(part for _, part in parts)
    before = datetime.now(timezone.utc)
    entry = charge(
        Ledger(path), whole, label_set="income", parts=parts, seeded=True, who="ann@desk", note="two stages, n = 100"
    )
    after = datetime.now(timezone.utc)
    assert isinstance(entry, LedgerEntry)
    assert (entry.id, entry.label_set, entry.rows, entry.n_rows) == (1, "income", ROWS, 100)
    assert (entry.guarantee, entry.parts, entry.seeded) == (whole, parts, True)
    assert (entry.who, entry.note) == ("ann@desk", "two stages, n = 100")
    assert before <= datetime.fromisoformat(entry.when) <= after
    assert datetime.fromisoformat(entry.when).utcoffset() == timedelta(0)
    assert Ledger(path).entries() == (entry,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.n_rows = 5


def test_parallel_parts_are_counted_once(path):
    ledger = Ledger(path, budget=1.0)
    parts = [("a", Guarantee.pure(1.0)), ("b", Guarantee.pure(1.0))]
    charge(ledger, Guarantee.in_parallel(part for _, part in parts), parts=parts)
    assert ledger.spent() == Guarantee.pure(1.0)
    assert ledger.remaining() == 0.0


def test_user_and_host_sign_by_default(path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "desk")
    assert charge(Ledger(path)).who == f"{getpass.getuser()}@desk"


def test_a_user_without_a_name_can_sign(path, monkeypatch):
    def nameless():
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert charge(Ledger(path)).who.startswith("unknown@")


def test_no_file_before_the_first_charge(path):
    ledger = Ledger(path)
    assert (ledger.entries(), ledger.label_sets(), ledger.budgets()) == ((), (), ())
    assert (ledger.spent(), ledger.budget(), ledger.remaining(), ledger.verify()) == (None, None, math.inf, "")
    assert not path.exists()
    assert charge(ledger).id == 1
    assert path.exists()


def test_the_argument_names_are_the_ones_the_door_uses():
    names = list(inspect.signature(Ledger.charge).parameters)
    assert names[1:] == [
        "guarantee", "label_set", "rows", "n_rows", "mechanism", "parts", "seeded", "who", "note",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- budgets


def test_over_budget_is_refused_with_the_numbers_and_nothing_is_written(path):
    ledger = Ledger(path, budget=1.0)
    charge(ledger, epsilon=0.75)
    before = path.read_bytes()
    said = "budget of epsilon = 1 at delta = 0, got 0.5 asked, 0.75 spent, 0.25 left .1.25 in all."
    with pytest.raises(BudgetError, match=said):
        charge(ledger, epsilon=0.5)
    assert path.read_bytes() == before
    assert len(ledger.entries()) == 1
    charge(ledger, epsilon=0.25)  # exactly what is left
    assert ledger.remaining() == 0.0


def test_what_decimals_call_equal_fits(path):
    # 3 * 0.1 > 0.3 in doubles; nothing beyond rounding fits.
    ledger = Ledger(path, budget=0.3)
    for _ in range(3):
        charge(ledger, epsilon=0.1)
    assert ledger.remaining() == 0.0
    with pytest.raises(BudgetError, match="0 left"):
        charge(ledger, epsilon=1e-12)


def test_a_budget_of_zero_admits_only_what_is_free(path):
    ledger = Ledger(path, budget=0.0)
    charge(ledger, epsilon=0.0)
    with pytest.raises(BudgetError):
        charge(ledger, epsilon=5e-324)


def test_infinite_epsilon_fits_only_an_infinite_budget(path):
    ledger = Ledger(path, budget=8.0)
    with pytest.raises(BudgetError, match="inf asked"):
        charge(ledger, epsilon=math.inf)
    ledger.set_budget(math.inf)
    charge(ledger, epsilon=math.inf)
    assert ledger.remaining() == math.inf
    assert Ledger(path).budget() == (math.inf, 0.0)


def test_a_budget_at_delta_admits_gaussians_by_their_composition(path):
    delta = 1e-5
    noise = Guarantee.gaussian(sigma=10.0, sensitivity=1.0, trust=Trust.CURATOR)
    limit = noise.times(4).epsilon(delta)
    ledger = Ledger(path, budget=limit, delta=delta)
    # Four fit although four times their epsilon does not; the fifth does not.
    assert 4 * noise.epsilon(delta) > limit
    for _ in range(4):
        charge(ledger, noise)
    assert ledger.spent() == noise.times(4)
    with pytest.raises(BudgetError):
        charge(ledger, noise)


def test_a_guarantee_that_is_not_pure_is_told_to_bring_a_delta(path):
    with pytest.raises(BudgetError, match="needs a budget with delta > 0"):
        charge(Ledger(path, budget=5.0), Guarantee.gaussian(sigma=10.0, sensitivity=1.0))


@pytest.mark.parametrize("other", [0.5, 5.0])
def test_the_recorded_default_stands_whoever_opens_with_another(path, other):
    Ledger(path, budget=1.0)
    again = Ledger(path, budget=other, delta=0.1)
    assert again.budget() == (1.0, 0.0)
    with pytest.raises(BudgetError):
        charge(again, epsilon=1.5)
    charge(again, epsilon=1.0)
    assert Ledger(path).budget() == (1.0, 0.0)
    assert [(entry.label_set, entry.limit) for entry in again.budgets()] == [(None, (1.0, 0.0))]


def test_the_budget_of_a_set_stands_against_the_argument(path):
    ledger = Ledger(path)
    ledger.set_budget(0.5, label_set="income")
    again = Ledger(path, budget=9.0)
    assert again.budget("income") == (0.5, 0.0)
    assert again.budget("age") == (9.0, 0.0)


def test_set_budget_is_a_row_and_the_newest_wins(path):
    ledger = Ledger(path, budget=1.0)
    ledger.set_budget(2.0, delta=1e-6, label_set="income", who="officer@desk")
    ledger.set_budget(0.5, label_set="income", who="officer@desk")
    ledger.set_budget(3.0, label_set=None)
    assert ledger.budget("income") == (0.5, 0.0)
    assert ledger.budget("other") == (3.0, 0.0)
    history = ledger.budgets("income")
    assert [(entry.limit, entry.who) for entry in history] == [
        ((2.0, 1e-6), "officer@desk"),
        ((0.5, 0.0), "officer@desk"),
    ]
    assert all(datetime.fromisoformat(entry.when).tzinfo for entry in history)


def test_a_budget_below_what_was_spent_leaves_nothing(path):
    ledger = Ledger(path)
    charge(ledger, epsilon=2.0)
    ledger.set_budget(1.0)
    assert ledger.remaining() == 0.0
    with pytest.raises(BudgetError):
        charge(ledger, epsilon=1e-9)
    assert ledger.spent() == Guarantee.pure(2.0)


def test_label_sets_are_independent(path):
    ledger = Ledger(path, budget=1.0)
    names = [f"set {i}" for i in range(12)]
    for name in names:
        charge(ledger, epsilon=1.0, label_set=name)
        with pytest.raises(BudgetError):
            charge(ledger, epsilon=0.1, label_set=name)
    assert ledger.label_sets() == tuple(sorted(names))
    assert [len(ledger.entries(name)) for name in names] == [1] * 12
    assert ledger.spent("never seen") is None
    assert ledger.remaining("never seen") == 1.0


def test_two_units_in_one_set_are_refused_and_apart_are_fine(path):
    ledger = Ledger(path)
    charge(ledger)
    record = Guarantee.pure(0.1, unit=Unit.RECORD_REPLACE)
    with pytest.raises(PrivacyError, match="unit of label set 'labels', `label`, got 'record_replace'"):
        charge(ledger, record)
    assert len(ledger.entries()) == 1
    charge(ledger, record, label_set="records")


# -------------------------------------------------------------------------------------------------------------- replay

NUMBERS = st.floats(min_value=0.001, max_value=3.0)
GUARANTEES = st.one_of(
    st.builds(Guarantee.pure, NUMBERS),
    st.builds(Guarantee.bounded_range, NUMBERS),
    st.builds(Guarantee.zcdp, NUMBERS, slack=st.sampled_from([0.0, 1e-9])),
    st.builds(lambda sigma: Guarantee.gaussian(sigma=sigma, sensitivity=1.5, trust=Trust.CURATOR), NUMBERS),
    st.builds(lambda a, b: Guarantee.pure(a).then(Guarantee.zcdp(b)).named("both"), NUMBERS, NUMBERS),
    st.builds(lambda a, b: Guarantee.zcdp(a).beside(Guarantee.pure(b)).assuming("split blindly"), NUMBERS, NUMBERS),
    st.just(Guarantee.pure(math.inf)),
)


@settings(max_examples=15)
@given(promises=st.lists(GUARANTEES, min_size=1, max_size=5))
def test_replay_equals_live(tmp_path_factory, promises):
    ledger = Ledger(tmp_path_factory.mktemp("replay") / "ledger")
    live = None
    for promise in promises:
        assert charge(ledger, promise).guarantee == promise
        live = promise if live is None else live.then(promise)
    replayed = Ledger(ledger.path).spent()
    assert replayed == live == Guarantee.in_sequence(promises)
    assert replayed.epsilon(1e-5) == live.epsilon(1e-5)


@settings(max_examples=15)
@given(budget=st.floats(1e-3, 1e3), share=st.floats(0, 1))
def test_a_pure_guarantee_of_what_remains_fits(tmp_path_factory, budget, share):
    ledger = Ledger(tmp_path_factory.mktemp("rest") / "ledger", budget=budget)
    charge(ledger, epsilon=budget * share)
    charge(ledger, epsilon=ledger.remaining())
    # What is left is rounding; a millionth of the budget is not.
    with pytest.raises(BudgetError):
        charge(ledger, epsilon=budget * 1e-6)


# -------------------------------------------------------------------------------------------------- values and threads


def test_a_ledger_pickles_as_its_path_and_settings(path):
    ledger = Ledger(path, budget=2.0, timeout=3.0)
    charge(ledger)
    copy = pickle.loads(pickle.dumps(ledger))
    assert repr(copy) == repr(ledger) == f"Ledger({str(path)!r})"
    assert copy.timeout == 3.0
    charge(copy)
    with pytest.raises(BudgetError):
        charge(ledger)


def test_the_path_is_fixed_when_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger ?#%41 é.sqlite")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    charge(ledger)
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["ledger ?#%41 é.sqlite"]


def test_threads_share_a_ledger(path):
    ledger = Ledger(path, budget=5.0)
    done, refused = [], []

    def work():
        try:
            done.append(charge(ledger).id)
        except BudgetError as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [2, 3, 4, 5, 6]  # the first row is the budget
    assert len(refused) == 7


def test_label_values_are_nowhere_in_the_file(path):
    # The door knows labels; what it hands over is a fingerprint of ids. Labels in its place are refused, unseen.
    ledger = Ledger(path)
    for rows in (["secret-label"], "secret-label", b"secret-label", ROWS.upper(), ROWS + "\n", None):
        with pytest.raises(LabelDPError, match="fingerprint of 64") as caught:
            charge(ledger, rows=rows)
        assert "secret" not in str(caught.value)
    charge(ledger)
    with closing(sqlite3.connect(path)) as other:
        columns = [row[1] for row in other.execute("PRAGMA table_info(record)")]
    assert columns == ["id", "kind", "label_set", "at", "who", "content", "previous", "hash"]
    assert b"secret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"guarantee": 1.0}, "`guarantee` must be a Guarantee, got 1.0"),
        ({"n_rows": -1}, "`n_rows` must be an integer >= 0"),
        ({"n_rows": 2.0}, "`n_rows` must be an integer >= 0"),
        ({"label_set": ""}, "`label_set` must be a non-empty text"),
        ({"label_set": "a\nb"}, "`label_set` must be a non-empty text"),
        ({"label_set": "\ud800"}, "`label_set` must be a non-empty text"),
        ({"who": " "}, "`who` must be a non-empty text"),
        ({"mechanism": None}, "`mechanism` must be a text"),
        ({"note": 5}, "`note` must be a text"),
        ({"parts": [Guarantee.pure(1.0)]}, "`parts` must be pairs"),
        ({"parts": [("a", 1.0)]}, "`parts` must be pairs"),
    ],
)
def test_a_bad_argument_is_named_and_nothing_is_written(path, wrong, said):
    with pytest.raises(LabelDPError, match=said):
        charge(Ledger(path), **wrong)
    assert not path.exists()


@pytest.mark.parametrize(
    "wrong",
    [{"budget": -1.0}, {"budget": math.nan}, {"budget": "1"}, {"delta": 1.0}, {"timeout": 0}, {"path": ":memory:"},
     {"path": ""}, {"path": 3}, {"path": "a\0b"}],
)  # fmt: skip
def test_a_ledger_with_bad_settings_is_refused(path, wrong):
    with pytest.raises(LabelDPError, match="Ledger: `"):
        Ledger(**{"path": path, **wrong})
    assert not path.exists()


def test_a_bad_budget_is_refused(path):
    ledger = Ledger(path)
    for wrong in ({"epsilon": -1}, {"epsilon": 1, "delta": 2}, {"epsilon": 1, "label_set": ""}):
        with pytest.raises(LabelDPError, match=r"Ledger\.set_budget: `"):
            ledger.set_budget(**wrong)
    assert not path.exists()


# ----------------------------------------------------------------------------------------------------------- processes

RACE = """
import os, sys, warnings
warnings.simplefilter("error")
from labeldp.accounting import Ledger, fingerprint
from labeldp.errors import BudgetError
from labeldp.guarantee import Guarantee
rows = fingerprint("toy", n_rows=100)

def race():
    try:
        ledger = Ledger(sys.argv[1], budget=3.0)
        return str(ledger.charge(Guarantee.pure(1.0), rows=rows, n_rows=100, mechanism="RR").id)
    except BudgetError:
        return "refused"

gate, starter = os.pipe()
answers, teller = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        os.close(starter)
        os.read(gate, 1)  # returns for all of them at once, when the parent closes the last writing end
        os.write(teller, (race() + "\\n").encode())
        os._exit(0)
os.close(starter)
os.close(teller)
print(os.fdopen(answers).read())
while True:
    try:
        assert os.wait()[1] == 0
    except ChildProcessError:
        break
"""


def test_eight_processes_race_for_a_budget_of_three(path, forks):
    # The file does not exist yet: they also race to create it and to record the default budget.
    done = forks.run(RACE, path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["2", "3", "4", *["refused"] * 5]
    ledger = Ledger(path)
    assert ledger.spent() == Guarantee.pure(1.0).times(3)
    assert len(ledger.budgets()) == 1


KILLS = """
import os, random, signal, sys, time, warnings
warnings.simplefilter("error")
from labeldp.accounting import Ledger, fingerprint
from labeldp.guarantee import Guarantee
rows, chance = fingerprint("toy", n_rows=100), random.Random(int(sys.argv[2]))
ledger = Ledger(sys.argv[1], budget=1e6)

def charge():
    return ledger.charge(Guarantee.pure(0.5), rows=rows, n_rows=100, mechanism="RR").id

def child(out):
    while True:
        os.write(out, b"%d\\n" % charge())

charge()
for _ in range(12):
    inward, outward = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(inward)
        child(outward)
    os.close(outward)
    time.sleep(chance.uniform(0.0, 0.12))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    told = [int(line) for line in os.fdopen(inward).read().split()]
    ids = [entry.id for entry in ledger.entries()]
    # Whatever was acknowledged is there; at most the row under way is there unacknowledged.
    assert ids == list(range(2, len(ids) + 2)), ids
    assert not told or ids[-1] - told[-1] in (0, 1), (ids[-1], told)
    ledger.verify()
    charge()
print(len(ledger.entries()))
"""


def test_a_process_killed_at_any_moment_leaves_a_whole_ledger(path, forks):
    # The children inherit the ledger by fork, so this also shows that it survives one.
    done = forks.run(KILLS, path, random.randrange(2**32))
    assert done.returncode == 0, done.stderr
    out = done.stdout
    ledger = Ledger(path)
    assert len(ledger.entries()) == int(out)
    assert ledger.spent() == Guarantee.pure(0.5).times(int(out))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_entry_number_keeps_its_hash_through_copies_and_notes() -> None:
    entry = EntryNumber(7, "ab" * 32)
    for same in (copy.copy(entry), copy.deepcopy(entry), pickle.loads(pickle.dumps(entry))):
        assert (same, same.hash) == (7, "ab" * 32)
    noted = json.loads(json.dumps(note_entry(entry)))
    again = recall_entry(noted)
    assert again is not None
    assert (again, again.hash) == (7, "ab" * 32)
    assert note_entry(None) == {"ledger_entry": None, "ledger_hash": None}
    assert recall_entry(note_entry(None)) is None
    assert note_entry(7) == {"ledger_entry": 7, "ledger_hash": None}


@pytest.mark.parametrize(
    "noted", [{"ledger_entry": "7"}, {"ledger_entry": True}, {"ledger_entry": 7, "ledger_hash": 1}]
)
def test_a_strange_note_of_an_entry_is_refused(noted: dict[str, Any]) -> None:
    with pytest.raises(LabelDPError, match="ledger_entry"):
        recall_entry(noted)


def test_no_two_rows_are_the_same(tmp_path: Path) -> None:
    charge = {"rows": "0" * 64, "n_rows": 1, "mechanism": "m", "who": "w"}
    hashes = {Ledger(tmp_path / f"{i}.sqlite").charge(Guarantee.pure(1.0), **charge).id.hash for i in range(5)}
    assert len(hashes) == 5
