"""Tables as people have them on the command line: read, looked at, tidied, asked about, and written by their names."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

README = Path(__file__).parents[2] / "README.md"
PRIVATIZE = "privatize survey.csv -l ill -e 1 --to out"


def write_survey(path: Path, n: int = 300, *, labels: bool = True) -> None:
    """A CSV as a spreadsheet of Zürich writes it: semicolons, decimal commas, cp1252, and one class in three spellings."""
    rng = np.random.default_rng(4)
    age = rng.integers(18, 90, n)
    spelling = np.array(["yes", "YES", "yes "])[rng.integers(0, 3, n)]
    ill = np.where(age + rng.normal(0, 10, n) > 55, spelling, "no")
    lines = ["age;größe;town;since;ill" if labels else "age;größe;town;since"]
    for row in range(n):
        size = "" if row % 11 == 0 else f"{rng.normal(1.7, 0.1):.2f}".replace(".", ",")
        town = ("Zürich", "Genève", "Bern")[row % 3]
        day = f"{1 + row % 28:02d}.{1 + row % 12:02d}.20{10 + row % 9}"
        lines.append(f"{age[row]};{size};{town};{day}" + (f";{ill[row]}" if labels else ""))
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))


@pytest.fixture
def survey(folder):
    write_survey(folder / "survey.csv")
    write_survey(folder / "new.csv", 40, labels=False)
    return folder


@pytest.fixture
def type_at_terminal(forks):
    """A function that types a line at a terminal, as a user does, and returns what was seen there."""

    def typed(line: str, *, answers: str = "", code: int = 0) -> str:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        name, *words = shlex.split(line)
        assert name == "labeldp"
        program = "from labeldp.cli import main; main()"
        forks.start(program, *words, files=(theirs, theirs, theirs), environment=environment)
        os.close(theirs)
        os.write(ours, answers.encode())
        seen = b""
        while True:
            try:
                block = os.read(ours, 2**16)
            except OSError:  # the other side is gone
                break
            if not block:
                break
            seen += block
        assert forks.wait() == code, seen.decode()
        os.close(ours)
        return seen.decode().replace("\r\n", "\n")

    return typed


def test_the_readme_s_six_commands(survey, type_at_terminal):
    """Typed as README has them, by someone who reads nothing else."""
    found = re.search(r"semicolon CSV.*?```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    lines = [line.partition("#")[0].strip() for line in found[1].splitlines() if line.strip()]
    assert len(lines) == 6
    said = [type_at_terminal(line) for line in lines]
    assert "separator ';', decimal ',', encoding cp1252, 5 columns" in said[0]
    assert "look like one class: " in said[0]
    assert "--strip --merge yes=YES" in said[0]
    assert "2 (no, yes); which there are becomes public" in said[1]
    predicted = pa_csv.read_csv(survey / "predictions.csv")
    assert set(predicted["predicted"].to_pylist()) <= {"no", "yes"}
    assert predicted.num_rows == 40
    assert "<html" in (survey / "report.html").read_text()
    notes = json.loads((survey / "release" / "release.json").read_text())["label_notes"]
    assert notes == ["spaces around values taken away", "'YES' read as 'yes'"]


# ------------------------------------------------------------------------------------------------------------ labels


def test_spellings_of_one_class_are_refused_by_row_and_nothing_is_spent(run, survey):
    run("ledger l --set-budget 1")
    said = run(f"{PRIVATIZE} --ledger l", code=2).stderr
    assert "differ in spaces or capitals" in said
    assert "--strip" in said
    assert "'yes" not in said
    assert json.loads(run("ledger l --json").stdout)["entries"] == []
    assert not (survey / "out").exists()


def test_they_are_tidied_and_the_manifest_says_so(run, run_json, survey):
    assert run_json(f"{PRIVATIZE} --strip --merge yes=YES")["classes"] == ["no", "yes"]
    assert run_json("inspect out")["label_notes"] == ["spaces around values taken away", "'YES' read as 'yes'"]
    facts = run_json("train survey.csv -l ill -e 4 --strip --merge yes=YES --save-release kept --to m.skops")
    assert any("größe" in line and "median" in line for line in facts["preparation"])
    assert run_json("inspect kept")["classes"] == ["no", "yes"]
    assert run_json("inspect m.skops")["preparation"] == facts["preparation"]
    shown = run_json("evaluate m.skops survey.csv -l ill --public-labels --strip --merge yes=YES")
    assert shown["accuracy"] > 0.5


def test_a_person_is_asked_and_may_stop(survey, type_at_terminal):
    line = "labeldp privatize survey.csv -l ill -e 1 --to out"
    assert "stopped before anything was spent" in type_at_terminal(line, answers="n\n", code=2)
    assert not (survey / "out").exists()
    said = type_at_terminal(line, answers="y\n")
    assert "1 groups of labels differ in spaces or capitals alone" in said
    assert "2 (no, yes)" in said


def test_a_spelling_that_no_label_has_is_told_to_the_owner_alone(run, run_json, survey, monkeypatch):
    """Before: `--merge YES=yes.` did nothing in silence. Whether a label occurs is private: no log and no file may tell."""
    line = f"{PRIVATIZE} --strip --merge yes=YES --merge no=No --classes no,yes"
    assert "No" not in run(line).stderr
    other = line.replace("no=No", "no=Nein").replace("out", "other")
    monkeypatch.setattr("labeldp.cli.tables.can_ask", lambda: True)
    said = " ".join(run(other).stderr.split())
    assert "no label is spelt 'Nein'" in said
    assert "'YES'" not in said
    for file in [*(survey / "out").rglob("*.json"), *(survey / "other").rglob("*.json")]:
        assert "spelt" not in file.read_text()
    assert run_json("inspect out")["label_notes"][1:] == ["'YES' read as 'yes'", "'No' read as 'no'"]
    looked = run_json("look survey.csv -l ill --show-raw --strip --merge yes=YES --merge no=No")
    assert looked["label"]["unmatched"] == ["No"]
    shown = " ".join(run("look survey.csv -l ill --show-raw --strip --merge no=No").stdout.split())
    assert "no label is spelt 'No'" in shown


def test_an_unmatched_spelling_beyond_the_rows_that_were_looked_at(tmp_path):
    """The column is text because of its last row, which no piece of the file shows at first."""
    from labeldp.data import open_table
    from labeldp.data.label_column import find_unmatched

    path = tmp_path / "late.csv"
    path.write_text("x,label\n" + "0.123456789,1\n" * 50_000 + "0.5,Ja\n" + "0.123456789,1\n" * 50_000)
    source = open_table(path)
    assert find_unmatched(source.settle().rewrite("label", merge={"ja": ["Ja", "JA"]})) == ["JA"]
    assert find_unmatched(source.settle().rewrite("label", strip=True)) == []


def test_contradicting_merges_are_refused(run, survey):
    assert "lead each spelling to one class" in run(f"{PRIVATIZE} --merge a=b --merge b=c", code=2).stderr
    assert "two words" in run(f"{PRIVATIZE} --merge yes", code=2).stderr


def test_classes_with_commas(run_json, run, folder, type_at_terminal):
    values = ["high, very", "low"] * 20
    pq.write_table(pa.table({"age": range(40), "level": values}), "commas.parquet")
    (folder / "classes.txt").write_text("low\nhigh, very\n")
    facts = run_json("privatize commas.parquet -l level -e 1 --to out --classes-file classes.txt")
    assert facts["classes"] == ["low", "high, very"]
    both = "privatize commas.parquet -l level -e 1 --to other --classes-file classes.txt --classes a,b"
    assert "not be given together" in run(both, code=2).stderr
    said = type_at_terminal(
        "labeldp privatize commas.parquet -l level -e 1 --to o --class low --class 'high, very' --json"
    )
    assert json.loads(said)["classes"] == ["low", "high, very"]


def test_a_question_mark_is_a_class_or_missing_as_the_owner_says(run, run_json, folder):
    (folder / "q.csv").write_text("age,ill\n" + "1,yes\n2,no\n3,?\n" * 20)
    assert "question mark in row 2" in run("privatize q.csv -l ill -e 1 --to out", code=2).stderr
    assert run_json("privatize q.csv -l ill -e 1 --to out --na ? --missing drop")["dropped"] == 20
    assert run_json("privatize q.csv -l ill -e 1 --to other --classes yes,no,?")["dropped"] == 0


# -------------------------------------------------------------------------------------------------------------- look


def test_look_says_what_numbers_in_words_are_read_as(run_json, folder):
    """A weight of "12 kg" is a category to a model, and nobody had said so."""
    n = 40
    columns = {
        "weight": [f"{row} kg" for row in range(n)],
        "price": [f"€ {row}.50" for row in range(n)],
        "paid": [f"{row},234" for row in range(1, n + 1)],
        "plain": [str(row) for row in range(n)],
        "town": ["Bern", "Basel"] * (n // 2),
        "street": [f"Weg {row}" for row in range(n)],
        "code": [f"{row}-{row}" for row in range(n)],
        "gaps": [None if row % 2 else f"{row} m²" for row in range(n)],
        "none": pa.array([None] * n, pa.string()),
        "zip": [f"0{row:04}" for row in range(n)],
    }
    pq.write_table(pa.table(columns), folder / "words.parquet")
    facts = run_json("look words.parquet")
    found = {hint["column"]: hint["hint"] for hint in facts["hints"]}
    assert set(found) == {"weight", "price", "paid", "plain", "gaps"}
    assert "numbers with a unit" in found["weight"]
    assert "numbers with a unit" in found["gaps"]
    assert "groups of thousands" in found["paid"]
    assert "plain numbers kept as text" in found["plain"]
    assert all("read as text" in hint for hint in found.values())
    assert "12" not in found["paid"].replace("1234", "").replace("1,234", "")  # no value is quoted: it may be the label


def test_a_type_that_was_asked_for_needs_no_hint(run_json, folder):
    """Before: whoever had said that a code is text was told to make it a column of numbers."""
    (folder / "codes.csv").write_text("code,size\n" + "8001,12 kg\n" * 20)
    assert [hint["column"] for hint in run_json("look codes.csv --type code=string")["hints"]] == ["size"]


def test_a_column_that_begins_with_gaps_is_looked_at_further_on(run_json, tmp_path):
    """Before: a first piece without a single value was taken for one of words."""
    for name, values in {"a": [None] * 5, "b": ["12 kg", "7 kg"]}.items():
        (tmp_path / "parts").mkdir(exist_ok=True)
        pq.write_table(pa.table({"weight": pa.array(values, pa.string())}), tmp_path / "parts" / f"{name}.parquet")
    assert [hint["column"] for hint in run_json(f"look {tmp_path / 'parts'}")["hints"]] == ["weight"]


def test_look_is_not_kept_without_consent(run, run_json, survey):
    said = run("look survey.csv -l ill", code=2).stderr
    assert "--show-raw" in said
    facts = run_json("look survey.csv -l ill --show-raw")
    assert not facts["private"]
    assert {value for value, _ in facts["label"]["counts"]} == {"no", "yes", "YES", "yes "}
    assert facts["label"]["alike"][0]["class"] == "yes"
    plain = run("look survey.csv")
    assert "yes" not in plain.stdout
    assert "date32" in plain.stdout
    shown = run("look survey.csv -l ill --show-raw --strip --merge yes=YES").stdout
    assert "This is not private" in shown
    assert "look like one class" not in shown


# ----------------------------------------------------------------------------------------------------------- epsilon


@pytest.mark.parametrize(
    "line",
    [
        "privatize people.parquet -l income -e 21 --to out",
        "privatize people.parquet -l income -e inf --to out",
        "train people.parquet -l income -e 21 --to m.skops",
        "evaluate m.skops people.parquet -l income -e 21",
        "pate people.parquet -l income --public people.parquet -e 21 --to m.skops",
        "train-ratings people.parquet --user id --item sex --rating age -e 21 --to m.skops",
        "top-k people.parquet --item sex --user id -e 21 -d 1e-6 --neighbours add_remove --k-max 2",
    ],
)
def test_a_large_epsilon_is_confirmed_in_every_command(refused, line):
    assert "--accept-large-epsilon" in refused(line)


def test_a_large_epsilon_that_is_meant(run, folder, type_at_terminal):
    run("privatize people.parquet -l income -e 21 --to out --accept-large-epsilon")
    said = type_at_terminal("labeldp privatize people.parquet -l income -e 21 --to other", answers="n\n", code=2)
    assert "hides next to nothing" in said
    run("privatize people.parquet -l income -e 20 --to third")


# ----------------------------------------------------------------------------------------------------------- writing


def test_the_format_follows_the_name(run, refused, folder):
    run("train people.parquet -l income -e 4 --drop id --to m.skops")
    read = {
        "p.csv": pa_csv.read_csv,
        "p.parquet": pq.read_table,
        "p.feather": pyarrow.feather.read_table,
        "p.tsv": lambda name: pa_csv.read_csv(name, parse_options=pa_csv.ParseOptions(delimiter="\t")),
        "p.jsonl": lambda name: pa.Table.from_pylist(
            [json.loads(line) for line in Path(name).read_text().splitlines()]
        ),
    }
    tables = {}
    for name, load in read.items():
        run(f"predict m.skops test.csv --to {name} --keep id")
        tables[name] = load(name)
    for found in tables.values():
        assert found.column_names == tables["p.parquet"].column_names
        assert found["predicted"].to_pylist() == tables["p.parquet"]["predicted"].to_pylist()
        np.testing.assert_allclose(found["probability_high"], tables["p.parquet"]["probability_high"], rtol=1e-12)
    printed = run("predict m.skops test.csv --to - --keep id")
    assert printed.stdout == (folder / "p.csv").read_text()
    assert "Known are .parquet" in refused("predict m.skops test.csv --to p.xls")
    assert "standard output" in refused("predict m.skops test.csv --to - --json")


def test_a_model_reads_postal_codes_as_it_learned_them(run, run_json, folder):
    (folder / "a.csv").write_text("zip,ill\n" + "03012,yes\n80010,no\n" * 50)
    (folder / "b.csv").write_text("zip\n80010\n80010\n")
    run("train a.csv -l ill -e 8 --to m.skops")
    run("predict m.skops b.csv --to p.csv")
    assert set(pa_csv.read_csv("p.csv")["predicted"].to_pylist()) == {"no"}


def test_all_missing_features_are_named(run, refused, folder):
    run("train people.parquet -l income -e 4 --drop id --to m.skops")
    (folder / "b.csv").write_text("x\n1\n2\n")
    assert "without age, sex" in refused("predict m.skops b.csv --to p.csv")
