"""`labeldp top-k`: what it finds, what it charges, and what it refuses."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from labeldp.selection import Histogram

COUNTS = {"ham": 7000, "egg": 6500, "tea": 30, "pie": 2}
BASE = "top-k counts.csv --item name --count users -e 1 --neighbours"
STABLE = f"{BASE} add_remove -d 1e-6"


@pytest.fixture
def tables(folder):
    """counts.csv, and pairs.parquet with the same leading items, in which a user may stand twice."""
    pa.csv.write_csv(pa.table({"name": list(COUNTS), "users": list(COUNTS.values())}), folder / "counts.csv")
    user = [u for u in range(3000) for _ in range(2)]
    item = [i for u in range(3000) for i in (("a", "b") if u % 2 else ("a", "a"))] + ["c"]
    pq.write_table(pa.table({"user": [*user, 0], "item": item}), folder / "pairs.parquet")
    return folder


def test_finds_the_leading_set_and_says_what_it_cost(run, run_json, tables):
    # The gap of 6,470 is some 30 sure gaps: a failed test or another k has probability below 1e-6 (delta_t is 5e-7).
    facts = run_json(f"{STABLE} --k-max 3")
    assert (sorted(facts["items"]), facts["k"], facts["passed"]) == (["egg", "ham"], 2, True)
    assert facts["epsilon"] <= 1.0
    assert (facts["guarantee"]["unit"], facts["guarantee"]["trust"]) == ("record_add_remove", "a curator")
    assert (facts["public_items"], facts["ordered"], facts["seeded"]) == (False, False, False)
    text = run(f"{STABLE} --k-max 3").stdout
    assert re.search(
        r"2 items, as a set.*egg.*ham.*epsilon = 1 at delta = 1e-06.*one record added or removed", text, re.DOTALL
    )


@pytest.mark.parametrize("method", ["stable", "limited-domain", "top-stable", "exponential"])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_every_method_charges_what_it_promises(run_json, tables, method, neighbours):
    line = f"{BASE} {neighbours} -d 1e-6 --public-items -k 2 --method {method} --seed 4"
    facts = run_json(f"{line} --ledger l --budget 3 --budget-delta 1e-5")
    assert sorted(facts["items"]) == ["egg", "ham"]
    assert facts["epsilon"] <= 1.0
    [entry] = run_json("ledger l")["entries"]
    # The rehearsal on empty counts promised what the run itself promises.
    assert entry["guarantee"] == facts["guarantee"]["text"]
    assert (entry["id"], entry["seeded"], entry["label_set"]) == (facts["ledger_entry"], True, "counts.csv:name")
    assert entry["mechanism"] == f"top-k({method}, k = 2, {neighbours})"
    assert entry["rows"] == len(COUNTS)  # the list of items is public
    assert facts["ordered"] == (method in ("exponential", "limited-domain"))


def test_the_ledger_is_not_told_of_items_that_are_private(run_json, tables):
    facts = run_json(f"{STABLE} --k-max 3 --ledger l --budget 3 --budget-delta 1e-5")
    [entry] = run_json("ledger l")["entries"]
    assert (entry["rows"], entry["mechanism"]) == (0, "top-k(stable, k = chosen, add_remove)")
    assert entry["guarantee"] == facts["guarantee"]["text"]


def test_exponential_can_be_pure(run_json, tables):
    facts = run_json(f"{BASE} replace --public-items -k 2 --method exponential --ledger l --budget 1")
    assert facts["guarantee"]["delta"] == 0.0
    assert facts["epsilon"] <= 1.0


def test_users_count_once_per_item(run_json, tables):
    line = "top-k pairs.parquet --user user --item item -e 1 -d 1e-6 --neighbours add_remove --k-max 2"
    facts = run_json(line)
    table = pq.read_table("pairs.parquet")
    counts = Histogram.from_pairs(table["user"].to_numpy(), table["item"].to_numpy(zero_copy_only=False)).counts
    assert counts.tolist() == [3000, 1500, 1]
    assert facts["items"] in (["a"], ["a", "b"])


def test_candidates_are_a_public_list(run_json, run, tables):
    pa.csv.write_csv(pa.table({"name": [*COUNTS, "rye", "oat"]}), "list.csv")
    facts = run_json(f"{STABLE} --candidates list.csv -k 5 --seed 1")
    assert facts["public_items"] is True
    assert len(facts["items"]) == 5
    pa.csv.write_csv(pa.table({"name": ["ham", "egg"]}), "short.csv")
    assert "list every item" in run(f"{STABLE} --candidates short.csv -k 1", code=2).stderr


def test_a_seed_repeats_and_says_so(run, tables):
    one, two = (run(f"{STABLE} --k-max 3 --seed 1") for _ in range(2))
    assert one.stdout == two.stdout
    assert "NOT PRIVATE" in one.stderr


def test_the_answer_can_be_kept(run_json, run, tables):
    facts = run_json(f"{STABLE} --k-max 3 --to found.json")
    assert json.loads((tables / "found.json").read_text()) == facts
    assert "new file" in run(f"{STABLE} --k-max 3 --to found.json", code=2).stderr


def test_nothing_is_named_where_the_gap_is_small(run, run_json, tables):
    pa.csv.write_csv(pa.table({"name": ["a", "b", "c"], "users": [5, 4, 3]}), "counts.csv")
    # A set of counts this small passes with probability at most delta_t = 5e-7.
    facts = run_json(f"{STABLE} --k-max 2")
    assert (facts["items"], facts["passed"]) == ([], False)
    assert "no item" in run(f"{STABLE} --k-max 2").stdout


BAD = {
    "negative": ({"name": ["a", "b"], "users": [3, -1]}, "--public-items", "be >= 0, got a negative count"),
    "fraction": ({"name": ["a", "b"], "users": [3, 1.5]}, "--public-items", "whole numbers, got a fraction"),
    "missing count": ({"name": ["a", "b"], "users": [3, None]}, "--public-items", "whole numbers, got NaN"),
    "text": ({"name": ["a", "b"], "users": ["x", "y"]}, "--public-items", "whole numbers"),
    "missing item": ({"name": ["a", None], "users": [3, 1]}, "--k-max 1", "1 missing of 2 rows"),
    "repeated item": ({"name": ["a", "a"], "users": [3, 1]}, "--k-max 1", "name each item once"),
    "repeated public item": ({"name": ["a", "a"], "users": [3, 1]}, "--public-items", "be distinct"),
    "real names": ({"name": [0.5, 1.5], "users": [3, 1]}, "--k-max 1", "whole numbers or text"),
    "one candidate": ({"name": ["a"], "users": [3]}, "--public-items", "at least two candidates"),
    "k above the candidates": ({"name": ["a", "b"], "users": [3, 1]}, "--public-items -k 3", r"integer in \[1, 2\]"),
    "unknown domain": ({"name": ["a", "b"], "users": [3, 1]}, "", "where candidates are not public"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_counts(run, refused, case):
    table, options, says = BAD[case]
    pq.write_table(pa.table(table), "counts.parquet")
    run("ledger l --set-budget 9 --delta 1e-3")
    line = f"top-k counts.parquet --item name --count users -e 1 -d 1e-6 --neighbours replace --ledger l {options}"
    assert re.search(says, refused(line))
    assert json.loads(run("ledger l --json").stdout)["entries"] == []


LINES = {
    f"{STABLE} --k-max 2 --user name": "one of them",
    "top-k counts.csv --item name -e 1 -d 1e-6 --neighbours replace": "one of them",
    "top-k counts.csv --item nmae --count users -e 1 -d 1e-6 --neighbours replace": "Did you mean `name`",
    "top-k counts.csv --item name --count uesrs -e 1 -d 1e-6 --neighbours replace": "Did you mean `users`",
    "top-k conuts.csv --item name --count users -e 1 -d 1e-6 --neighbours replace": "Did you mean `counts.csv`",
    f"{BASE} replace --k-max 2": "`delta` must be > 0",
    f"{STABLE} --method top-stable": "be given for --method top-stable",
    f"{STABLE} --method limited-domain -k 2 --k-max 3": "belong to --method stable",
    f"{STABLE} --k-max 3 --regularizer 2": "Add --k",
    f"{STABLE} --public-items --candidates counts.csv": "--public-items is for",
    f"{STABLE} --method exponential -k 1": "candidates",
    "top-k counts.csv --item name --count users -e -1 -d 1e-6 --k-max 2 --neighbours replace": "epsilon",
    f"{STABLE} --k-max 2 --to no/such/folder/found.json": "existing folder",
}


@pytest.mark.parametrize("line", LINES)
def test_bad_lines(refused, tables, line):
    assert LINES[line] in refused(line)


def test_neighbours_must_be_said(run, tables):
    assert "--neighbours" in run("top-k counts.csv --item name --count users -e 1", code=2).stderr


def test_over_budget_draws_nothing(run, refused, tables):
    run("ledger l --set-budget 0.5 --delta 1e-5")
    refused(f"{STABLE} --k-max 2 --ledger l --to found.json", code=3)
    assert json.loads(run("ledger l --json").stdout)["entries"] == []


def test_the_promise_is_quoted_at_the_delta_that_was_asked_for(run, tables):
    for delta, words in (("1e-6", "1e-06"), ("1e-5", "1e-05")):
        shown = " ".join(run(f"{BASE} add_remove -d {delta} --k-max 3").stdout.split())
        assert f"promise epsilon = 1 at delta = {words} " in shown
