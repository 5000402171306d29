"""`labeldp train-ratings` and `predict-ratings`: another team's table through the same calls, and bad input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from labeldp.learn import load_model

TRAIN = "train-ratings ratings.csv --user who --item film --rating stars --sweeps 10 --pair-features 3 --factors 2"


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A current directory with ratings.csv, whose films differ, and pairs.csv."""
    rng = np.random.default_rng(0)
    who, film = rng.integers(0, 40, 2_000), rng.integers(0, 12, 2_000)
    stars = np.where(film % 2, 5, 1)
    flips = rng.random(2_000) < 0.2
    stars = np.where(flips, rng.integers(1, 6, 2_000), stars)
    moods = np.where(stars > 3, "good", "bad")
    names = [f"film {number}" for number in film]
    pa.csv.write_csv(pa.table({"who": who, "film": names, "stars": stars, "mood": moods}), tmp_path / "ratings.csv")
    pa.csv.write_csv(pa.table({"who": [0, 1, 99], "film": ["film 1", "film 2", "new"]}), tmp_path / "pairs.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.parametrize(("epsilon", "trust"), [(1.0, "a curator"), (3.0, "no one")])
def test_train_and_predict(tables, run_json, epsilon, trust):
    trained = run_json(f"{TRAIN} -e {epsilon} --classes 1,2,3,4,5 --to model.skops --seed 1")
    assert trained["rows"] == 2_000
    assert trained["users"], trained["items"] == (40, 12)
    assert trust in str(trained["guarantee"])
    assert trained["seeded"]
    told = run_json("predict-ratings model.skops pairs.csv --to answers.parquet")
    answers = pq.read_table(tables / "answers.parquet")
    assert told["rows"] == 3
    assert answers.column_names == ["who", "film", "expected", "spread"]
    expected = answers["expected"].to_numpy()
    assert expected[0] > 3 > expected[1]  # film 1 is loved and film 2 is not
    assert load_model("model.skops").facts_["guarantee"]["trust"] == (["curator"] if trust == "a curator" else [])


def test_the_table_says_what_was_promised(tables, run):
    said = run(f"{TRAIN} -e 3 --to model.skops").stdout
    assert "2,000 ratings by 40 users of 12 items" in said
    assert "predict-ratings" in said
    assert "stage 3" in said


def test_the_ledger_is_charged(tables, run, run_json):
    trained = run_json(f"{TRAIN} -e 1 --to one.skops --ledger spent.sqlite --budget 1.5")
    assert trained["ledger_entry"] is not None
    run(f"{TRAIN} -e 1 --to two.skops --ledger spent.sqlite", code=3)
    assert not (tables / "two.skops").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (TRAIN.replace("--user who", "--user whom") + " -e 1 --to m.skops", "who"),
        (TRAIN + " -e 0 --to m.skops", "epsilon"),
        (TRAIN + " -e 1 --sums 3 --to m.skops", "sums"),
        (TRAIN + " -e 1 --classes 1,2,3 --to m.skops", "classes"),
        (TRAIN.replace("--rating stars", "--rating film") + " -e 1 --to m.skops", "differ"),
        (TRAIN.replace("--rating stars", "--rating mood") + " -e 1 --to m.skops", "numbers"),
        (TRAIN + " -e 1 --to no/such/m.skops", "folder"),
        ("predict-ratings nothing.skops pairs.csv --to a.parquet", "existing file"),
    ],
)
def test_bad_input(tables, run, line, said):
    answered = run(line, code=2)
    assert said in answered.stderr
    assert not (tables / "m.skops").exists()
