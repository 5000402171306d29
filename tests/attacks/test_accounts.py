"""One set of labels under two accounts: the budget is spent twice, and no row of the ledger says so.

The attacker is a colleague with a budget of 1 who wants two releases. She copies the file, turns its rows or columns
round, writes it in another format, takes a part of it, or adds rows. The other side: a table that only has the name of
another must not be charged for it.

On the commit before, accounts were named after the file. Run there by the command `privatize`, each of `SAME` below opened an
account of its own: 6 of 6 second releases went through on a budget of 1, and so did a part, a grown table, one with each row
twice and one with a column less (4 of 4). A copy passed `train`, `pate` and `evaluate` too, and a part of protected rows was
scored exactly as "public". sub/train.csv, a table of other rows, was refused because train.csv had spent its budget.
Races, ids, ratings, votes on several labels and edits were not tried there. Nothing here is statistical
but hashes of 64 bits: a false answer has a probability below 1e-9 in all tests together.
"""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import typer.main

import labeldp
from labeldp.accounting import AccountName, Ledger, RowKey, protect_ids, protect_rows
from labeldp.accounting.ledger_file import NAMED_VERSION, SCHEMAS
from labeldp.cli import app
from labeldp.engines import privatize_table
from labeldp.errors import AccountError, AccountWarning, BudgetError, PrivacyError
from labeldp.guarantee import Guarantee

N = 2000


def people(n: int = N, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": rng.permutation(10 * n)[:n] + 10 * n * seed,
            "age": rng.integers(18, 90, n),
            "pay": rng.normal(3000, 800, n),
            "job": pa.array(rng.choice(["cook", "clerk", "", "smith"], n)),
            "ill": rng.choice(["no", "yes"], n),
            "income": rng.choice(["high", "low"], n),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    found = people()
    pa.csv.write_csv(found, tmp_path / "train.csv")
    return found


def release(path: Path, ledger: Path, *, label: str = "income", name: str | None = None, **more: Any) -> Any:
    """Release at epsilon 1 as the command does: without --label-set the name is made of the file's."""
    asked = AccountName(f"{path.name}:{label}") if name is None else name
    place = ledger.parent / f"out-{len(list(ledger.parent.glob('out-*')))}"
    return privatize_table(
        path, label=label, epsilon=1.0, to=place, ledger=Ledger(ledger, budget=1.0), label_set=asked, **more
    )


# --------------------------------------------------------------------------------------------------------- the same rows


def copied(folder: Path, _: pa.Table) -> Path:
    shutil.copy(folder / "train.csv", folder / "copy.csv")
    return folder / "copy.csv"


def other_folder(folder: Path, _: pa.Table) -> Path:
    (folder / "sub").mkdir()
    shutil.copy(folder / "train.csv", folder / "sub" / "other.csv")
    return folder / "sub" / "other.csv"


def reordered(folder: Path, table: pa.Table) -> Path:
    pa.csv.write_csv(table.take(np.random.default_rng(1).permutation(N)), folder / "turned.csv")
    return folder / "turned.csv"


def as_parquet(folder: Path, table: pa.Table) -> Path:
    """Another format, narrower and wider types, and a dictionary."""
    found = table.set_column(1, "age", table["age"].cast(pa.float32()))
    found = found.set_column(3, "job", table["job"].dictionary_encode())
    pq.write_table(found, folder / "people.parquet", row_group_size=300)
    return folder / "people.parquet"


def other_columns(folder: Path, table: pa.Table) -> Path:
    pa.csv.write_csv(table.select(["income", "ill", "job", "pay", "age", "id"]), folder / "columns.csv")
    return folder / "columns.csv"


def in_pieces(folder: Path, table: pa.Table) -> Path:
    place = folder / "pieces"
    place.mkdir()
    for number in range(3):
        pq.write_table(table.slice(number * 700, 700), place / f"{number}.parquet")
    return place


SAME = [copied, other_folder, reordered, as_parquet, other_columns, in_pieces]


@pytest.mark.parametrize("change", SAME)
def test_the_same_rows_have_one_budget(tmp_path: Path, table: pa.Table, change: Callable[..., Path]) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    other = change(tmp_path, table)
    with pytest.raises(BudgetError, match="within its budget") as refused, pytest.warns(AccountWarning) as told:
        release(other, ledger)  # before: a second release on a budget of 1
    assert not isinstance(refused.value, AccountError)
    assert [str(one.message) for one in told] == [
        f"'{other.name}:income' holds the rows of account 'train.csv:income' and is charged to it."
    ]
    assert Ledger(ledger).label_sets() == ("train.csv:income",)
    Ledger(ledger).verify()


def dropped(table: pa.Table) -> pa.Table:
    return table.drop_columns(["age"])


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.slice(500, 20),
        lambda table: pa.concat_tables([table, people(500, seed=1)]),
        lambda table: pa.concat_tables([table.slice(0, 600), people(1500, seed=1)]),
        lambda table: pa.concat_tables([table, table]),
        dropped,
        lambda table: table.append_column("more", pa.array(np.arange(N))),
    ],
    ids=["part", "grown", "mixed", "twice", "dropped column", "added column"],
)
def test_some_of_the_rows_are_a_question_to_the_owner(
    tmp_path: Path, table: pa.Table, change: Callable[..., pa.Table]
) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    pq.write_table(change(table), tmp_path / "other.parquet")
    before = Ledger(ledger).verify()
    with pytest.raises(AccountError, match=r"account 'train.csv:income' has .* of its rows.*label_set") as caught:
        release(tmp_path / "other.parquet", ledger)  # before: a release under an account of its own
    assert "Nothing was charged" in str(caught.value)
    assert Ledger(ledger).verify() == before
    with pytest.raises(BudgetError, match="within its budget"):  # charged where they belong
        release(tmp_path / "other.parquet", ledger, name="train.csv:income")
    with pytest.warns(AccountWarning, match="charged as you say, though account 'train.csv:income' has"):
        done = release(tmp_path / "other.parquet", ledger, name="other people")
    (entry,) = Ledger(ledger).entries("other people")
    assert done.label_set == "other people"
    assert [name for name, _ in entry.overlaps] == ["train.csv:income"]
    release_again = Ledger(ledger).choose_account(
        AccountName("x", protect_rows(change(table).to_batches(), Ledger(ledger).row_key(), label="income"))
    )
    assert release_again.label_set == "other people"  # her word is remembered


def test_the_share_is_said(tmp_path: Path, table: pa.Table) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    pq.write_table(pa.concat_tables([table.slice(0, 600), people(1500, seed=1)]), tmp_path / "other.parquet")
    with pytest.raises(AccountError, match=r"about 30\.00% of its rows"):
        release(tmp_path / "other.parquet", ledger)


def test_another_label_of_the_same_rows_is_named(tmp_path: Path, table: pa.Table) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    with pytest.raises(AccountError, match="with 'income' as the label"):
        release(tmp_path / "train.csv", ledger, label="ill", drop=["income"])
    with pytest.warns(AccountWarning, match="as you say"):
        release(tmp_path / "train.csv", ledger, label="ill", name="train.csv:ill", drop=["income"])
    with pytest.raises(BudgetError, match=r"label set 'train\.csv:ill'"):
        release(tmp_path / "train.csv", ledger, label="ill", drop=["income"])  # from now on without a question


def test_a_table_that_grows_under_its_name_keeps_its_account(tmp_path: Path, table: pa.Table) -> None:
    """All rows are charged to the one account that has some of them: that never counts too little."""
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    pa.csv.write_csv(pa.concat_tables([table, people(300, seed=1)]), tmp_path / "train.csv")
    with (
        pytest.warns(AccountWarning, match="of the account of this name, and others"),
        pytest.raises(BudgetError, match="within its budget"),
    ):
        release(tmp_path / "train.csv", ledger)


def test_one_percent_of_a_large_table_is_found_by_its_sample(tmp_path: Path) -> None:
    """Of 1,000 rows about 164 are in the sample of 100,000: all of them missing has a probability of e^-164."""
    big = people(100_000)
    ledger = Ledger(tmp_path / "spent.sqlite")
    key = ledger.row_key()
    name = AccountName("big", protect_rows(big.to_batches(max_chunksize=10_000), key, label="income"))
    assert name.rows is not None
    assert len(name.rows.sketches[0].sample) == 16_384
    ledger.charge(Guarantee.pure(1.0), label_set=name, rows="0" * 64, n_rows=100_000, mechanism="RR")
    part = big.take(np.random.default_rng(3).permutation(100_000)[:1000])
    with pytest.raises(AccountError, match="account 'big' has all of its rows"):
        ledger.choose_account(AccountName("part", protect_rows(part.to_batches(), key, label="income")))


# -------------------------------------------------------------------------------------------------------- other rows


def test_a_table_that_only_has_the_name_is_not_charged_for_another(tmp_path: Path, table: pa.Table) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    (tmp_path / "sub").mkdir()
    pa.csv.write_csv(people(seed=7), tmp_path / "sub" / "train.csv")
    with pytest.warns(AccountWarning, match="has other rows; these labels are charged to 'train.csv:income #2'"):
        done = release(tmp_path / "sub" / "train.csv", ledger)  # before: over the budget of train.csv
    assert done.label_set == "train.csv:income #2"
    assert labeldp.release.load_release(done.directory).label_set == "train.csv:income #2"
    with pytest.warns(AccountWarning, match="holds the rows"), pytest.raises(BudgetError, match="#2"):
        release(tmp_path / "sub" / "train.csv", ledger)


def test_people_who_look_alike_are_not_the_same_people(tmp_path: Path) -> None:
    """Few columns of few values: rows coincide by chance, and that is not taken for an overlap; a whole copy is found."""
    ledger = tmp_path / "spent.sqlite"

    def narrow(seed: int, n: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        facts = {"sex": rng.choice(["f", "m"], n), "age": rng.integers(18, 90, n), "town": rng.integers(0, 30, n)}
        return pa.table({**facts, "income": rng.choice(["high", "low"], n)})

    for number, size in enumerate((5000, 5000, 400)):
        pq.write_table(narrow(number, size), tmp_path / f"{number}.parquet")
        release(tmp_path / f"{number}.parquet", ledger)
    assert len(Ledger(ledger).label_sets()) == 3
    shutil.copy(tmp_path / "0.parquet", tmp_path / "copy.parquet")
    with pytest.warns(AccountWarning, match="holds the rows"), pytest.raises(BudgetError):
        release(tmp_path / "copy.parquet", ledger)


def test_two_ledgers_have_nothing_in_common(tmp_path: Path, table: pa.Table) -> None:
    """Fingerprints of one ledger are of no use to whoever has another one, or none."""
    seen = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ledger = tmp_path / name / "spent.sqlite"
        release(tmp_path / "train.csv", ledger)
        (known,) = Ledger(ledger).known_rows("train.csv:income")
        seen.append(known)
        assert (ledger.stat().st_mode & 0o777) == 0o600
    assert seen[0].sets[0].total != seen[1].sets[0].total
    assert not set(seen[0].sample.hashes.tolist()) & set(seen[1].sample.hashes.tolist())


def test_labels_do_not_enter(tmp_path: Path, table: pa.Table) -> None:
    """Other labels on the same rows give the same bytes: nothing in the ledger is computed from a label."""
    key = RowKey.fresh()
    other = table.set_column(5, "income", pa.array(["changed"] * N))
    one, two = (protect_rows(each.to_batches(), key, label="income").sketches[0] for each in (table, other))
    assert one.rows == two.rows
    assert (one.sample.hashes == two.sample.hashes).all()


# --------------------------------------------------------------------------------------------------------------- by ids


def test_ids_find_rows_whose_features_have_changed(tmp_path: Path, table: pa.Table) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger, row_ids="id")
    changed = table.set_column(2, "pay", pa.array(np.arange(float(N)))).rename_columns(
        ["person", "years", "wage", "work", "ill", "income"]
    )
    pq.write_table(changed, tmp_path / "new.parquet")
    with pytest.warns(AccountWarning, match="holds the rows"), pytest.raises(BudgetError):
        release(tmp_path / "new.parquet", ledger, row_ids="person")
    pq.write_table(pa.concat_tables([changed.slice(3, 1), people(50, seed=4).rename_columns(changed.column_names)]),
                   tmp_path / "one.parquet")  # fmt: skip
    with pytest.raises(AccountError, match="has about"):  # one person in common is enough
        release(tmp_path / "one.parquet", ledger, row_ids="person")


@pytest.mark.parametrize("first", [None, "id"])
def test_leaving_the_ids_out_or_giving_them_later_is_no_way_round(
    tmp_path: Path, table: pa.Table, first: str | None
) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger, row_ids=first)
    shutil.copy(tmp_path / "train.csv", tmp_path / "copy.csv")
    with pytest.warns(AccountWarning, match="holds the rows"), pytest.raises(BudgetError):
        release(tmp_path / "copy.csv", ledger, row_ids=None if first else "id")


def test_labels_in_memory_with_ids_are_recognised_under_another_name(tmp_path: Path, table: pa.Table) -> None:
    ledger = Ledger(tmp_path / "spent.sqlite")
    codes = np.arange(N) % 2
    once = labeldp.RandomizedResponse(1.0, n_classes=2)

    def box(name: str, ids: Any) -> labeldp.SensitiveLabels:
        return labeldp.SensitiveLabels(codes[: len(ids)], n_classes=2, name=name, row_ids=ids)

    labeldp.privatize(box("a", table["id"].to_pylist()), once, ledger=ledger)
    labeldp.privatize(box("a", table["id"].to_pylist()), once, ledger=ledger)
    labeldp.privatize(box("b", people(seed=5)["id"].to_numpy()), once, ledger=ledger)
    with pytest.warns(AccountWarning, match="'c' is charged as you say, though account 'a' has all"):
        labeldp.privatize(box("c", table["id"].to_pylist()[::-1][:5]), once, ledger=ledger)
    with pytest.warns(AccountWarning, match="holds the rows of account 'a'"), pytest.raises(BudgetError):
        release(tmp_path / "train.csv", tmp_path / "spent.sqlite", row_ids="id")  # 'a' has spent 2
    ledger.verify()


# -------------------------------------------------------------------------------------------------- edits by another hand


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE row_key SET bytes = zeroblob(32)",
        "DELETE FROM row_key",
        "DELETE FROM row_hash WHERE hash = (SELECT max(hash) FROM row_hash)",
        "DELETE FROM row_hash",
        "UPDATE row_hash SET hash = hash + 1 WHERE hash = (SELECT max(hash) FROM row_hash)",
        "INSERT INTO row_hash VALUES (1, 1)",
        "UPDATE sketch SET hashes = substr(hashes, 9), counts = substr(counts, 2)",
        "UPDATE sketch SET counts = zeroblob(length(counts))",
        "UPDATE sketch SET label_set = 'other'",
        "UPDATE sketch SET entry = 1",
        "UPDATE sketch SET hashes = 'text'",
        "DELETE FROM sketch",
        "INSERT INTO sketch SELECT 9, 'new', kind, entry, hashes, counts FROM sketch",
        "UPDATE row_set SET n_rows = n_rows + 1",
        "UPDATE row_set SET total = 'ff' || substr(total, 3)",
        "UPDATE row_set SET label = 'ill'",
        "UPDATE row_set SET columns = '{}'",
        "DELETE FROM row_set",
        "INSERT INTO row_set VALUES (77, 'x', 'y', 1, '{}')",
    ],
)
def test_edited_rows_of_accounts_are_found(tmp_path: Path, table: pa.Table, command: str) -> None:
    ledger = tmp_path / "spent.sqlite"
    release(tmp_path / "train.csv", ledger)
    Ledger(ledger).verify()
    with closing(sqlite3.connect(ledger)) as other:
        other.execute(command)
        other.commit()
    with pytest.raises(PrivacyError, match="must be a ledger as it was written"):
        Ledger(ledger).verify()


# ------------------------------------------------------------------------------------------------ races, jobs, engines


RACE = """
import json, os, sys, warnings
from pathlib import Path
from labeldp.accounting import AccountName, Ledger
from labeldp.engines import privatize_table
from labeldp.errors import AccountError
warnings.simplefilter("ignore")

def race(number, table):
    try:
        done = privatize_table(
            table, label="income", epsilon=0.25, to=f"{sys.argv[1]}-{number}", ledger=Ledger(sys.argv[1], timeout=120.0),
            label_set=AccountName(f"{Path(table).name}:income"),
        )
        return "done", str(done.label_set)
    except AccountError as error:
        return "refused", str(error)

gate, starter = os.pipe()
answers, teller = os.pipe()
for number, table in enumerate(sys.argv[2:]):
    if os.fork() == 0:
        os.close(starter)
        os.read(gate, 1)  # returns for all of them at once, when the parent closes the last writing end
        os.write(teller, (json.dumps(race(number, table)) + "\\n").encode())
        os._exit(0)
os.close(starter)
os.close(teller)
print(os.fdopen(answers).read())
"""


@pytest.mark.parametrize("names", [["train.csv"] * 3, ["train.csv", "copy.csv", "train.csv"]])
def test_processes_that_race_for_a_new_ledger_share_one_account(
    tmp_path: Path, table: pa.Table, names: list[str], forks: Any
) -> None:
    """Whoever comes second is charged to the account of the first, or told to come again; none gets another account."""
    copied(tmp_path, table)
    path = tmp_path / "spent.sqlite"
    done = forks.run(RACE, path, *(tmp_path / one for one in names))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(found) == len(names), done.stderr
    ledger = Ledger(path)
    (account,) = ledger.label_sets()
    finished = [text for what, text in found if what == "done"]
    assert set(finished) == {account}
    assert len(ledger.entries()) == len(finished) >= 1
    assert all("run it again" in text for what, text in found if what == "refused")
    if len(set(names)) == 1:
        assert len(finished) == len(names)
    ledger.verify()


def test_a_job_that_is_taken_up_is_charged_once(tmp_path: Path, table: pa.Table) -> None:
    ledger, told = tmp_path / "spent.sqlite", []

    def stop(*_: Any) -> None:
        if not told:
            told.append(1)
            raise OSError(28, "no space")

    with pytest.raises(labeldp.errors.LabelDPError, match="unfinished job is kept"):
        release(tmp_path / "train.csv", ledger, keep_unfinished=True, progress=stop)
    (job,) = tmp_path.glob(".out-0.partial-*")
    assert len(Ledger(ledger).entries()) == 1
    done = privatize_table(
        tmp_path / "train.csv",
        label="income",
        epsilon=1.0,
        to=tmp_path / "out-0",
        ledger=Ledger(ledger),
        label_set=AccountName("train.csv:income"),
        resume=job,
    )
    assert (done.label_set, done.ledger_entry) == ("train.csv:income", 2)
    assert len(Ledger(ledger).entries()) == 1


def test_a_cluster_finds_the_account_of_one_machine(tmp_path: Path, table: pa.Table) -> None:
    pytest.importorskip("distributed")
    ledger = tmp_path / "spent.sqlite"
    pieces = in_pieces(tmp_path, table)
    release(pieces, ledger, engine="dask", workers=2)
    with pytest.warns(AccountWarning, match="holds the rows of account 'pieces:income'"), pytest.raises(BudgetError):
        release(tmp_path / "train.csv", ledger)


# --------------------------------------------------------------------------------------------------- ledgers of before


def make_older(path: Path) -> None:
    """Turn a ledger back into one of the version before: accounts are names."""
    with closing(sqlite3.connect(path)) as other:
        for name in set(SCHEMAS[3]) - set(SCHEMAS[NAMED_VERSION]):
            kind = "INDEX" if "_by_" in name else "TABLE"
            other.execute(f"DROP {kind} IF EXISTS {name}")
        other.execute(f"PRAGMA user_version = {NAMED_VERSION}")
        other.commit()


def test_a_ledger_of_the_version_before_keeps_its_accounts(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "spent.sqlite"
    facts: dict[str, Any] = {"rows": "0" * 64, "n_rows": N, "mechanism": "RR"}
    ledger = Ledger(path, budget=1.0)
    ledger.charge(Guarantee.pure(0.5), label_set="train.csv:income", **facts)
    make_older(path)
    before = Ledger(path).verify()
    assert Ledger(path).remaining("train.csv:income") == 0.5
    with pytest.warns(AccountWarning, match="known by its name alone"), pytest.raises(BudgetError, match=r"0\.5 left"):
        release(tmp_path / "train.csv", path)
    ledger = Ledger(path)
    assert ledger.verify(known=before) == before
    ledger.set_budget(2.0, label_set="train.csv:income")
    with pytest.warns(AccountWarning, match="from now on it is known by these rows"):
        release(tmp_path / "train.csv", path)
    (known,) = ledger.known_rows("train.csv:income")
    assert known.sets[0].n_rows == N
    copied(tmp_path, table)
    with pytest.warns(AccountWarning, match="holds the rows"), pytest.raises(BudgetError):
        release(tmp_path / "copy.csv", path)
    ledger.verify()


def test_an_older_ledger_is_only_read_where_nothing_is_charged(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "spent.sqlite"
    Ledger(path, budget=1.0)
    make_older(path)
    before = path.read_bytes()
    ledger = Ledger(path)
    ledger.verify()
    assert ledger.find_releases("x", n_rows=N, find_rows=lambda _: pytest.fail("no key, no rows")) == ()
    assert ledger.known_rows("x") == ()
    assert path.read_bytes() == before


# ----------------------------------------------------------------------------------------------------------- commands


COMMAND = typer.main.get_command(app)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run a command line in the folder of the test, in this process."""
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> Any:
        stdout, stderr = io.StringIO(), io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr), pytest.raises(SystemExit) as left:
            COMMAND.main(line.split(), prog_name="labeldp")
        return SimpleNamespace(returncode=left.value.code, stdout=stdout.getvalue(), stderr=stderr.getvalue())

    return run


LINES = [
    "privatize {} -l income -e 1 --to out-{}",
    "train {} -l income -e 1 --to model-{}.skops",
    "pate {} -l income --public public.csv --teachers 5 -e 1 -d 1e-6 --budget-delta 1e-6 --to student-{}.skops",
    "evaluate model.skops {} -l income -e 1",
]


@pytest.mark.parametrize("line", LINES)
def test_every_command_asks_the_rows(tmp_path: Path, table: pa.Table, command: Callable[[str], Any], line: str) -> None:
    """Before: exit code 0, and a second account, for each of these."""
    copied(tmp_path, table)
    pa.csv.write_csv(people(50, seed=9).drop_columns(["income"]), tmp_path / "public.csv")
    pa.csv.write_csv(people(500, seed=8), tmp_path / "fresh.csv")
    pa.csv.write_csv(table.slice(0, 100), tmp_path / "part.csv")
    if "model.skops" in line:
        assert command("train fresh.csv -l income -e 9 --to model.skops").returncode == 0
    spent = " --ledger spent.sqlite --budget 1"
    assert command(line.format("train.csv", 0) + spent).returncode == 0
    second = command(line.format("copy.csv", 1) + spent)
    assert second.returncode == 3
    assert "'copy.csv:income' holds the rows of account 'train.csv:income' and is charged to it." in second.stderr
    third = command(line.format("part.csv", 2) + spent)
    assert third.returncode == 3
    assert "account 'train.csv:income' has all of its rows" in third.stderr
    assert "--label-set" in third.stderr
    assert Ledger(tmp_path / "spent.sqlite").label_sets() == ("train.csv:income",)
    told = json.loads(command("ledger spent.sqlite --verify --json").stdout)
    (account,) = told["label_sets"]
    assert [(one["by"], one["rows"], one["label"]) for one in account["rows"]] == [("columns", N, "income")]


def test_ratings_and_several_labels_ask_the_rows(tmp_path: Path, command: Callable[[str], Any]) -> None:
    rng = np.random.default_rng(0)
    stars = pa.table({"user": np.arange(200) % 20, "film": rng.integers(0, 30, 200), "stars": rng.integers(1, 6, 200)})
    pa.csv.write_csv(stars, tmp_path / "stars.csv")
    x = rng.normal(size=300)
    films = pa.table({"x": x, "drama": (x > 0).astype(int), "war": (x > 1).astype(int)})
    pa.csv.write_csv(films, tmp_path / "films.csv")
    pa.csv.write_csv(pa.table({"x": rng.normal(size=30)}), tmp_path / "public.csv")
    rated = (
        "train-ratings {} --user user --item film -r stars -e 1 --sweeps 3 --factors 2 --pair-features 0 --to {}.skops"
    )
    voted = "pate {} -l drama -l war --public public.csv --teachers 20 -e 60 --accept-large-epsilon -d 1e-6 --budget-delta 1e-6 --to {}.skops"
    for line, name, most in ((rated, "stars.csv", 1), (voted, "films.csv", 60)):
        spent = f" --ledger {name}.sqlite --budget {most}"
        shutil.copy(tmp_path / name, tmp_path / "copy.csv")
        first = command(line.format(name, f"first-{name}") + spent)
        assert first.returncode == 0, first.stderr
        second = command(line.format("copy.csv", f"second-{name}") + spent)
        assert second.returncode == 3, second.stderr
        assert f"holds the rows of account '{name}:" in second.stderr


def test_public_labels_are_refused_for_a_part_of_protected_rows(
    tmp_path: Path, table: pa.Table, command: Callable[[str], Any]
) -> None:
    """Before: a part of the rows was not recognised, and scored exactly, for free."""
    assert command("train train.csv -l income -e 1 --to model.skops --ledger spent.sqlite").returncode == 0
    pa.csv.write_csv(table.slice(0, 40), tmp_path / "part.csv")
    pa.csv.write_csv(people(40, seed=3), tmp_path / "fresh.csv")
    line = "evaluate model.skops {} -l {} --public-labels --ledger spent.sqlite"
    refused = command(line.format("part.csv", "income"))
    assert (refused.returncode, "accounted for in spent.sqlite" in refused.stderr) == (4, True)
    assert command(line.format("fresh.csv", "income")).returncode == 0


def test_the_ids_of_a_name_travel_without_the_rows() -> None:
    """A name is pickled to workers and into models: neither gets the sketch."""
    import copy
    import pickle

    name = AccountName("a", protect_ids([1, 2], RowKey.fresh()))
    assert copy.deepcopy(name).rows is name.rows
    back = pickle.loads(pickle.dumps(name))
    assert (back, back.rows, back.given) == ("a", None, False)
    assert "secret" in repr(RowKey.fresh())
