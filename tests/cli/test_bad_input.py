"""Every bad input: a clear line on stderr that starts with "error:", its exit code, and nothing written."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp.accounting import Ledger
from labeldp.learn import load_model

PRIVATIZE = "privatize bad.parquet -l income -e 1 --to out"
BINS = r"--bounds low,high.*--counts 0\.\.C.*--classes"

GOOD = ["high", "low"] * 10


def write(label, **columns):
    pq.write_table(pa.table({"age": np.arange(len(label)), **columns, "income": label}), "bad.parquet")


COLUMNS = {
    "missing labels": (["high", None] * 10, "10 missing of 20 rows.*--missing drop"),
    "seen once": ([*GOOD, "odd"], "got one that row 20 alone has"),
    "constant": (["high"] * 20, "one value only"),
    "thousands of values": (np.arange(3000) / 7, BINS),
}


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("line", [PRIVATIZE, "train bad.parquet -l income -e 1 --to out --ledger l --budget 1"])
def test_bad_label_columns(run, refused, case, line):
    label, says = COLUMNS[case]
    write(label)
    if "--ledger" in line:
        run("ledger l --set-budget 1")
    assert re.search(says, refused(line))
    if "--ledger" in line:
        assert json.loads(run("ledger l --json").stdout)["entries"] == []


def test_missing_labels_can_be_dropped(run_json, folder):
    write(["high", "low", None, "low", "high"] * 10)
    assert run_json(f"{PRIVATIZE} --missing drop")["dropped"] == 10


def test_how_many_labels_are_missing_stays_with_the_owner(run_json, folder):
    """She is told on her screen; the model goes to others, as a release does, and neither has the number."""
    write(["high", "low", None, "low", "high"] * 10)
    assert run_json("train bad.parquet -l income -e 1 --to model.skops --missing drop")["dropped"] == 10
    assert "dropped" not in load_model(folder / "model.skops").facts_
    assert '"dropped"' not in json.dumps(run_json("inspect model.skops"))
    run_json(f"{PRIVATIZE} --missing drop")
    assert '"dropped"' not in json.dumps(run_json("inspect out"))


def test_listed_classes_welcome_a_lone_value(run_json, folder):
    write([*GOOD, "odd"])
    assert run_json(f"{PRIVATIZE} --classes high,low,odd")["rows"] == 21


@pytest.mark.parametrize("command", ["privatize {} -l income -e 1 --to out", "train {} -l income -e 1 --to out"])
def test_missing_file_and_column(refused, command):
    assert "Did you mean `people.parquet`" in refused(command.format("peple.parquet"))
    line = command.format("people.parquet").replace("income", "incmoe")
    assert "Did you mean `income`" in refused(line)


def test_duplicate_row_ids(refused):
    write(GOOD, row=[*range(19), 3])
    assert "3 2 times" in refused(f"{PRIVATIZE} --row-ids row")
    assert "3 2 times" in refused("train bad.parquet -l income -e 1 --row-ids row --to out")


def test_unreadable_parquet(refused, folder):
    (folder / "bad.parquet").write_bytes(b"PAR1 this is not it")
    assert "readable Parquet" in refused(PRIVATIZE)


def test_existing_target(run, refused, folder):
    run("train people.parquet -l income -e 2 --to m.skops")
    (folder / "out").mkdir()
    assert "not exist yet" in refused("privatize people.parquet -l income -e 1 --to out")
    assert "new file" in refused("train people.parquet -l income -e 1 --to m.skops")
    assert "new file" in refused("predict m.skops test.csv --to people.parquet")
    line = "train people.parquet -l income -e 1 --save-release out --to n.skops --ledger l --budget 9"
    run("ledger l --set-budget 9")
    refused(line)
    assert json.loads(run("ledger l --json").stdout)["entries"] == []


def test_ledger_not_ours(refused, folder):
    (folder / "l").write_text("something else entirely, and long enough not to be blank")
    line = "privatize people.parquet -l income -e 1 --to out --ledger l"
    assert "ledger of labeldp" in refused(line)
    assert "ledger of labeldp" in refused("ledger l")
    refused("ledger nowhere")


def test_ledger_tampered(run, refused, folder):
    run("privatize people.parquet -l income -e 1 --to out --ledger l")
    with closing(sqlite3.connect(folder / "l")) as connection, connection:
        connection.execute("DROP TRIGGER IF EXISTS record_no_update")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE record SET content = replace(content, '1', '2')")
    assert "cannot be trusted" in refused("ledger l", code=4)


def test_damaged_release(run, refused, folder):
    run("privatize people.parquet -l income -e 1 --to out")
    path = folder / "out" / "labels.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    assert "checksum" in refused("inspect out", code=4)
    assert "checksum" in refused("train out --to m.skops", code=4)
    refused("inspect nowhere")


def test_damaged_model(refused, folder):
    (folder / "m.skops").write_bytes(b"PK not really")
    assert "not a readable model" in refused("predict m.skops test.csv --to p.parquet", code=4)
    refused("predict nothing.skops test.csv --to p.parquet")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("privatize people.parquet -l income -e -1 --to out", "must be 0 or more"),
        ("privatize people.parquet -l income -e 1 --to out --budget 1", "--ledger"),
        ("train people.parquet --to m.skops", "`--label` must be given"),
        ("train people.parquet -l income --to m.skops", "`--epsilon` must be given"),
        ("train people.parquet -l income -e 1 --clusters 3 --to m.skops", "--prior cluster"),
        ("train people.parquet -l income -e 1 --drop agee --to m.skops", "Did you mean `age`"),
        ("train people.parquet -l income -e 1 --to no/such/m.skops", "existing folder"),
        ("plan", "how many classes"),
        ("plan --classes 1", "integer in"),
        ("plan --classes 4 -a 0.1", "blind guess"),
        ("plan --read-classes", "come with a table"),
    ],
)
def test_usage(refused, line, says):
    assert says in refused(line)


def test_options_that_a_release_does_not_take(run, refused):
    run("privatize people.parquet -l income -e 1 --to out")
    assert "its promise stands" in refused("train out --to m.skops --epsilon 1")


def test_evaluate_must_be_told_what_the_labels_are(run, refused):
    run("train people.parquet -l income -e 2 --drop id --to m.skops")
    assert "neither" in refused("evaluate m.skops test.csv -l income")
    assert "both" in refused("evaluate m.skops test.csv -l income --public-labels -e 1")
    assert "not be a feature" in refused("evaluate m.skops test.csv -l age -e 1")


def test_unexpected_errors_show_no_traceback_unless_asked(run, folder, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("a fault.")

    monkeypatch.setattr("labeldp.release.load_release", broken)
    monkeypatch.setattr("labeldp.release.loading.load_release", broken)
    run("privatize people.parquet -l income -e 1 --to out")
    quiet = run("inspect out", code=1).stderr
    assert "RuntimeError. This is a fault of labeldp" in quiet
    assert "a fault." not in quiet  # what it says may quote data
    assert "Traceback" not in quiet
    assert "Traceback" in run("--debug inspect out", code=1).stderr
    monkeypatch.setenv("LABELDP_DEBUG", "1")
    assert "Traceback" in run("inspect out", code=1).stderr


FAILING = {
    "privatize people.parquet -l income -e -1 --to out": 2,
    "privatize people.parquet -l id -e 1 --to out": 2,
    "privatize people.parquet -l income -e 5 --to out": 3,
    "train people.parquet -l income -e 5 --to out": 3,
    "train people.parquet -l id -e 1 --to out": 2,
    "pate people.parquet -l income -e 5 --public test.csv --to out": 3,
    "train-ratings people.parquet --user id --item sex --rating income -e -1 --to out": 2,
    "top-k people.parquet --item sex --user id --k-max 1 --neighbours add_remove -e 5 -d 1e-6": 3,
}


@pytest.mark.parametrize("line", FAILING)
def test_a_command_that_fails_leaves_no_new_ledger(refused, line):
    """Nor a budget in it: the next command's would be ignored, since a recorded one stands."""
    refused(f"{line} --ledger new.sqlite --budget 2", code=FAILING[line])


def test_two_who_begin_a_ledger_at_once_are_both_charged(run, folder, monkeypatch):
    """Rows are hashed under a key that nobody has kept yet: whoever comes second hashes them again under the first's."""
    line = "privatize people.parquet -l income -e 1 --to {} --ledger new.sqlite --budget 3"
    begun = []
    charge = Ledger.charge

    def be_second(self, *arguments, **options):
        if not begun:
            begun.append(True)
            run(line.format("first"))
        return charge(self, *arguments, **options)

    monkeypatch.setattr(Ledger, "charge", be_second)
    run(line.format("second"))
    assert [one.label_set for one in Ledger("new.sqlite").entries()] == 2 * ["people.parquet:income"]
    Ledger("new.sqlite").verify()


HINTS = {
    "privatize people.parquet -l income -e -1 --to out": "`--epsilon` must be 0 or more, got -1.0. Smaller is more private",
    "train rel_ --to m2.skops": "Did you mean `rel`",
    "train nothing --to m2.skops": "There is: `rel`, `narrow.csv`, `people.parquet`, `test.csv`, `untidy.csv`.",
    "predict m.skops rel --to p.csv": "must be a table, got the release rel",
    "predict rel test.csv --to p.csv": "must be a file, got the directory rel. A model is one file. Is it a release?",
    "inspect people.parquet": "must be a release or a model, got the table people.parquet. `labeldp look`",
    "pate people.parquet -l income -e 5 --public narrow.csv --to out": "--drop id,sex",
    "evaluate m.skops test.csv -l income -e 1 --positive hgh": "Did you mean `high`",
    "evaluate m.skops --release rel --positive high": "`--positive` must be left out with --release",
    "evaluate m.skops untidy.csv -l income -e 1": "--strip, or --merge CLASS=SPELLING",
}


def test_hints_say_what_to_do(run, refused, folder):
    run("privatize people.parquet -l income -e 4 --to rel")
    run("train rel --drop id --to m.skops")
    (folder / "narrow.csv").write_text("age\n30\n40\n")
    (folder / "untidy.csv").write_text("id,age,sex,income\n1,30,f,low\n2,50,m,HIGH\n3,51,m,high\n")
    for line, says in HINTS.items():
        assert says in refused(line), line
    assert "--merge CLASS=SPELLING" in run("evaluate m.skops untidy.csv -l income --public-labels").stderr
    assert run("evaluate m.skops untidy.csv -l income --merge high=HIGH --public-labels").stderr == ""


def test_folders_of_others_do_not_hide_what_is_wrong(refused, folder, monkeypatch):
    """In a folder that many use, a name that nothing has is answered, whatever others keep beside it for themselves."""
    closed = folder / "closed"
    closed.mkdir()
    ask, look = os.access, Path.is_file

    def is_file(path):
        if path.parent == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "access", lambda path, mode, **more: Path(path) != closed and ask(path, mode, **more))
    monkeypatch.setattr(Path, "is_file", is_file)
    line = f"train {folder}/nobody.parquet -l income -e 1 --to m.skops"
    assert "be a release or a table that exists" in refused(line)


def test_a_model_knows_how_its_labels_were_tidied(run, refused, folder):
    write([" high", "HIGH", "high", "low"] * 10)
    run(f"{PRIVATIZE} --strip --merge high=HIGH")
    run("train out --to m.skops")
    told = refused("evaluate m.skops bad.parquet -l income -e 1")
    assert "Before it was trained: spaces around values taken away; 'HIGH' read as 'high'." in told


def test_a_refused_budget_names_the_command_that_raises_it(run, refused):
    run("ledger l --set-budget 1")
    assert "`labeldp ledger FILE --set-budget B`" in refused(
        "privatize people.parquet -l income -e 2 --to out --ledger l", code=3
    )


def test_how_a_table_is_read_is_said_once(run, folder):
    run("train people.parquet -l income -e 4 --drop id --to m.skops")
    rows = [line.replace(",", ";") for line in (folder / "test.csv").read_text().splitlines()]
    (folder / "other.csv").write_text("\n".join(rows) + "\n")
    said = run("evaluate m.skops other.csv -l income -e 1 --ledger l.sqlite").stderr
    assert said.count("read as:") == 1


def test_a_seed_that_is_not_the_noises_is_not_shown(run, run_json, folder):
    """The arrangement of blocks has a public seed, and people take any seed for that of the noise: not private."""
    shown = run("privatize people.parquet -l sex --classes f,m,x -e 1 --to out --ledger l.sqlite").stdout
    assert "InformativeResponse(epsilon=1.0, n_classes=None)" in shown
    page = run("report out --to page.html --ledger l.sqlite").stdout + (folder / "page.html").read_text()
    for text in (shown, run("inspect out").stdout, run("ledger l.sqlite").stdout, page):
        assert "seed=" not in text
