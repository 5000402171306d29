"""A label that is a number, from the table to the report, by the commands of docs/tables.md."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp.release import load_release


def write_claims(path, seed, n=4_000):
    rng = np.random.default_rng(seed)
    age, region = rng.integers(18, 80, n), rng.choice(["north", "south"], n)
    amount = np.round(1_000 + 40 * (age - 40) + 600 * (region == "north") + rng.gamma(2.0, 200.0, n), 2)
    columns = {"id": np.arange(n), "age": age, "region": region, "amount": amount}
    pq.write_table(pa.table({**columns, "claims": np.minimum(rng.poisson(age / 50), 7)}), path)
    return amount


@pytest.fixture
def claims(folder):
    """The current directory, with claims.parquet and test.parquet."""
    write_claims(folder / "claims.parquet", 1)
    write_claims(folder / "test.parquet", 2)
    return folder


RELEASE = "privatize claims.parquet --label amount --bounds 0,5000 --epsilon 4 --to out"


def test_from_the_table_to_the_report(run, run_json, claims):
    done = run_json(f"{RELEASE} --ledger spent.sqlite --budget 5 --row-ids id")
    assert (done["rows"], done["bounds"], done["outside"], len(done["classes"])) == (4_000, [0, 5_000], "clip", 33)
    assert re.fullmatch(r"a number whose mean is the label, off by [\d,.]+ in the root mean square", done["answers"])
    told = run("inspect out").stdout
    assert "numbers in [0, 5000]" in told
    assert "Whoever knew nothing but the bounds" in told
    assert run_json("train out --to model.skops --drop id,claims")["stages"][0]["n_examples"] == 4_000
    assert run_json("predict model.skops test.parquet --to said.parquet --keep id")["columns"] == ["id", "predicted"]
    said = pq.read_table("said.parquet")["predicted"].to_numpy()
    truth = pq.read_table("test.parquet")["amount"].to_numpy()
    exact = run_json("evaluate model.skops test.parquet -l amount --public-labels --plot calibration.svg")
    assert exact["rmse"] == pytest.approx(np.sqrt(np.mean((said - truth) ** 2)))
    assert exact["rmse"] < 0.5 * truth.std()  # over 40 seeds .349, with a deviation of .0012
    assert (claims / "calibration.svg").read_text().count("<svg") == 1
    noisy = run_json("evaluate model.skops test.parquet -l amount --epsilon 1 --ledger other.sqlite --budget 1")
    assert noisy["noisy"]
    assert noisy["ledger_entry"] == 2  # the first is the budget
    run("privatize test.parquet -l amount --bounds 0,5000 -e 4 --to held")
    free = run_json("evaluate model.skops --release held")
    low, high = free["report"]["mae"]["interval"]
    assert 0 <= low <= free["mae"] <= high
    for line in ("evaluate model.skops test.parquet -l amount --public-labels", "evaluate model.skops --release held"):
        assert "Calibration by decile" in run(line).stdout
    run("report out --to page.html --ledger spent.sqlite --model model.skops")
    page = (claims / "page.html").read_text()
    assert "How numbers were changed" in page
    assert "Answers, noise included" in page
    assert run("audit out --ledger spent.sqlite").stdout.count("passed") == 10
    # Of fresh noise: a sound release is refuted once in ten million runs.
    assert run("audit out --labels claims.parquet --label amount --confidence 0.9999999").exit_code == 0
    assert "claims.parquet:amount" in run("ledger spent.sqlite").stdout


@pytest.mark.parametrize("estimator", ["forest", "boosting"])
def test_regressors_by_name_from_a_table(run, run_json, claims, estimator):
    line = "train claims.parquet -l claims -e 4 --counts 0..4 --drop id,amount --save-release kept"
    run(f"{line} --estimator {estimator} --to model.skops")
    assert load_release("kept").classes == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert run_json("evaluate model.skops test.parquet -l claims --public-labels")["explained"] > 0
    assert "numbers in [0, 4]" in run("train kept --to again.skops").stdout
    assert json.loads(run("inspect model.skops --json").stdout)["label"] == "claims"


def test_mechanisms_by_name(run_json, claims):
    line = "privatize claims.parquet -l claims -e 1 --counts 0..4 --to"
    assert run_json(f"{line} a --mechanism laplace")["mechanism"].startswith(
        "LaplaceResponse(epsilon=1.0, bounds=(0.0, 4.0)"
    )
    assert run_json(f"{line} b --mechanism binned")["mechanism"].endswith("bins=5)")
    wide = "privatize claims.parquet -l amount -e 1 --bounds 0,5000 --to"
    assert "grid=9" in run_json(f"{wide} c --mechanism-option grid=9")["mechanism"]
    assert len(run_json(f"{wide} d --mechanism unbiased --mechanism-option grid=5")["classes"]) == 5


def test_what_an_epsilon_buys(run, run_json):
    lines = run_json("plan --bounds 0,100 --epsilon 0.5 --epsilon 2")["plan"]
    assert [line["epsilon"] for line in lines] == [0.5, 2.0]
    first, second = lines
    assert second["noise"] < first["noise"]
    assert second["off_after"] < first["off_after"] < first["off_before"] == second["off_before"]
    assert first["rows_for_a_mean"] == int(np.ceil((first["noise"] / 100 / 0.01) ** 2))
    assert "numbers in [0, 4]" in run("plan --counts 0..4 --epsilon 1").stdout


def test_how_many_were_clipped_is_said_to_the_owner_alone(run, run_json, claims):
    """Nothing that is printed or written by a release changes with how many numbers lie outside; `look` counts them."""
    raw = pq.read_table("claims.parquet")
    lines = []
    for top in (3_000, 4_999):
        amount = np.where(np.arange(len(raw)) < 500, 9e9 if top == 3_000 else 5_000.0, 100.0)
        table = raw.set_column(raw.column_names.index("amount"), "amount", pa.array(amount))
        pq.write_table(table, "claims.parquet")
        told = run(f"{RELEASE}{top} --seed 1")
        lines.append((told.stdout.replace(f"out{top}", "out"), told.stderr))
        numbers = load_release(f"out{top}")
        lines[-1] += (numbers.values.tobytes(), numbers.guarantee)
    assert lines[0] == lines[1]
    found = run_json("look claims.parquet --label amount --bounds 0,4000 --show-raw")["label"]
    assert (found["below"], found["above"]) == (0, 500)
    assert "--bounds" in run("look test.parquet --label amount --show-raw").stdout


BAD = {
    "privatize claims.parquet -l amount -e 1 --to out": r"--bounds low,high.*--counts 0\.\.C",
    "train claims.parquet -l amount -e 1 --to out": r"--bounds low,high.*--counts 0\.\.C",
    "privatize claims.parquet -l amount -e 1 --to out --bounds 5000,0": "must rise",
    "privatize claims.parquet -l amount -e 1 --to out --bounds 5000": "two numbers, low,high",
    "privatize claims.parquet -l amount -e 1 --to out --bounds 0,inf": "be finite",
    "privatize claims.parquet -l amount -e 1 --to out --bounds 0;5": "two numbers, low,high",
    "privatize claims.parquet -l claims -e 1 --to out --counts 0-4": "two whole numbers",
    "privatize claims.parquet -l claims -e 1 --to out --counts 4..0": "the first and the last",
    "privatize claims.parquet -l claims -e 1 --to out --counts 0..4 --bounds 0,4": "left out where counts are given",
    "privatize claims.parquet -l claims -e 1 --to out --counts 0..4 --outside refuse": r"within bounds, got another one in row \d+ \(",
    "train claims.parquet -l claims -e 1 --to out --counts 0..4 --outside refuse": r"within bounds, got another one in row \d+ \(",
    "privatize claims.parquet -l region -e 1 --to out --bounds 0,1": r"got text in row 0 .*--type region=double",
    "train claims.parquet -l region -e 1 --to out --bounds 0,1": r"got text in row 0 .*--type region=double",
    "privatize claims.parquet -l amount -e 1 --to out --mechanism laplace": "--bounds` must be given with --mechanism laplace",
    "privatize claims.parquet -l amount -e 1 --to out --bounds 0,9 --mechanism rr-top-k --mechanism-option k=2": "for numbers",
    "privatize claims.parquet -l amount -e 1 --to out --bounds 0,9 --classes 1,2": "left out for labels that are numbers",
    "train claims.parquet -l amount -e 1 --to out --bounds 0,9 --estimator logistic": "be a regressor.*ridge, forest, boosting",
    "train claims.parquet -l amount -e 1 --to out --bounds 0,9 --search": "left out for labels that are numbers",
    "plan --bounds 0,1 --classes 3": "`--classes` must be left out for labels that are numbers",
    "train people.parquet -l income -e 1 --to out --estimator ridge": "be one that has a name here",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_lines_charge_nothing(run, refused, claims, line):
    run("ledger l --set-budget 9")
    paid = "" if line.startswith("plan") else " --ledger l"
    assert re.search(BAD[line], " ".join(refused(line + paid).split()))
    assert json.loads(run("ledger l --json").stdout)["entries"] == []


def test_a_text_table_of_numbers(run_json, claims):
    """Numbers with a decimal comma, quoted ones, and text that is to be read as numbers."""
    (claims / "euro.csv").write_text("x;amount\n" + "".join(f'{i};"{i},5"\n' for i in range(50)))
    assert run_json("privatize euro.csv -l amount -e 1 --bounds 0,50 --to out")["rows"] == 50
    (claims / "odd.csv").write_text("x,amount\n" + "".join(f"{i},{i}.5\n" for i in range(50)) + "9,n.a.\n")
    assert run_json("privatize odd.csv -l amount -e 1 --bounds 0,50 --na n.a. --missing drop --to b")["dropped"] == 1
