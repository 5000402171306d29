"""The person as unit on the command line: train, evaluate and pate take --person, and no command forgets whose rows they are."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labeldp import Ledger
from labeldp.learn.saved import load_model
from labeldp.release.manifest import read_manifest

PRIVATIZE = "privatize first.parquet -l ill --classes no,yes -e 1 --person patient --to out --ledger spent.sqlite"


@pytest.fixture
def stays(folder):
    """Two files of the stays of 150 patients; everyone has stays in both."""
    rng = np.random.default_rng(3)
    ids = 1000 + 17 * rng.permutation(np.repeat(np.arange(150), 4))
    age = rng.integers(20, 90, len(ids))
    ill = np.where(age + rng.normal(0, 10, len(ids)) > 55, "yes", "no")
    table = pa.table({"patient": ids, "age": age, "ill": ill, "days": rng.integers(0, 9, len(ids)).astype(float)})
    pq.write_table(table.slice(0, 300), folder / "first.parquet")
    pq.write_table(table.slice(300), folder / "second.parquet")
    return folder


def test_the_column_of_ids_of_a_release_is_no_feature(stays, run):
    run(PRIVATIZE)
    assert read_manifest(stays / "out").content["person_column"] == "patient"
    told = run("train out --to model.skops")
    assert "'patient' says whose row it is, and is left out of the features." in " ".join(told.stderr.split())
    assert load_model(stays / "model.skops").facts_["features"] == ["age", "days"]
    run(f"train {stays / 'out'} --to absolute.skops")
    facts = load_model(stays / "absolute.skops").facts_  # which others get: not where her files lie
    assert facts["source"] == "out"
    assert str(stays) not in str(facts)
    run("train out --to again.skops --person patient", code=2)  # the release knows


def test_a_table_is_trained_on_and_evaluated_with_the_person_as_unit(stays, run, run_json):
    made = run_json(
        "train first.parquet -l ill --classes no,yes -e 2 --person patient --to model.skops --ledger spent.sqlite"
    )
    patients = len(set(pq.read_table("first.parquet")["patient"].to_pylist()))
    assert made["features"] == ["age", "days"]
    assert (made["persons"], made["answered"], made["guarantee"]["unit"]) == (patients, patients, "person")
    line = "evaluate model.skops second.parquet -l ill -e 1 --person patient --ledger spent.sqlite"
    assert "account 'first.parquet:ill' has" in run(line, code=3).stderr  # both files have rows of the same patients
    found = run_json(line + " --label-set first.parquet:ill")
    assert found["guarantee"]["unit"] == "person"
    assert found["rows"] < 300  # some rows of those who have several do not count
    assert "each person's rows count" in json.dumps(found["report"]["notes"])
    assert [entry.label_set for entry in Ledger("spent.sqlite").entries()] == 2 * ["first.parquet:ill"]
    for line, words in (
        ("evaluate model.skops second.parquet -l ill --public-labels --person patient", "--epsilon only"),
        ("evaluate model.skops second.parquet -l ill -e 1 --person ill", "not be the label column"),
        ("evaluate model.skops second.parquet -l ill -e 1 --person patients", "patient"),
        ("train first.parquet -l ill -e 1 --person patient --row-ids patient --to no.skops", "be left out"),
        ("train first.parquet -l ill -e 1 --person ill --to no.skops", "not be the label column"),
    ):
        assert words in " ".join(run(line, code=2).stderr.split()), line


def test_labels_of_known_persons_are_recognised_without_the_option(stays, run):
    """Her other rows, in another file, as labels or as public ones: the ledger knows her by the name of the column."""
    run(PRIVATIZE)
    line = "privatize second.parquet -l ill --classes no,yes -e 1 --to other --ledger spent.sqlite"
    told = " ".join(run(line, code=3).stderr.split())
    assert "knows persons of its column 'patient'" in told
    assert "--person patient" in told
    assert len(Ledger("spent.sqlite").entries()) == 1
    run("train out --to model.skops")
    public = "evaluate model.skops second.parquet -l ill --public-labels --ledger spent.sqlite"
    assert "accounted for" in run(public, code=4).stderr
    warned = run(line + " --label-set others")  # her word stands, and is recorded
    assert "which was not named here" in " ".join(warned.stderr.split())


def test_pate_deals_persons(stays, run_json):
    line = "pate first.parquet -l ill --classes no,yes --public second.parquet --drop days -e 4 --teachers 20"
    made = run_json(line + " --person patient --to student.skops --aggregation gnmax --queries 20")
    assert made["features"] == ["age"]
    assert made["guarantee"]["unit"] == "person"
