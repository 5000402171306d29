"""The command `evaluate`: three sources of truth, one report, for people, machines and as a drawing."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import labeldp
from labeldp.learn.saved import load_model

MAIN = ("accuracy", "balanced_accuracy", "auc", "log_loss", "brier", "ece")


@pytest.fixture
def trained(run, folder):
    run("train people.parquet -l income -e 4 --drop id --to m.skops")
    return folder


def test_public_labels_are_scored_exactly_and_drawn(run, run_json, trained):
    score = run_json("evaluate m.skops test.csv -l income --public-labels --plot r.svg")
    table = pa.csv.read_csv("test.csv")
    chances = load_model("m.skops").predict_proba(table.select(["age", "sex"]))
    labels = table["income"].to_numpy()
    assert score["auc"] == pytest.approx(roc_auc_score(labels == "low", chances[:, 1]))
    assert score["log_loss"] == pytest.approx(log_loss(labels, chances))
    assert score["report"]["accuracy"]["interval"] is None
    assert "Calibration" in ET.parse("r.svg").getroot().attrib["aria-label"]
    shown = run("evaluate m.skops test.csv -l income --public-labels").stdout
    for words in ("balanced accuracy", "AUC", "log loss", "Calibration", "Confusion", "lift", "population"):
        assert words in shown
    assert "exact, and nothing was charged" in shown


def test_protected_labels_are_charged_once_for_all_figures(run, run_json, trained):
    score = run_json("evaluate m.skops test.csv -l income -e 2 --ledger l.sqlite --budget 3")
    for name in MAIN:
        low, high = score["report"][name]["interval"]
        assert low <= score[name] <= high
    (account,) = run_json("ledger l.sqlite")["label_sets"]
    assert (account["label_set"], account["spent"]) == ("test.csv:income", 2.0)
    assert len(run_json("ledger l.sqlite")["entries"]) == 1
    assert score["guarantee"]["trust"] == "a curator"
    shown = run("evaluate m.skops test.csv -l income -e 1 --ledger l.sqlite").stdout
    assert "charged once for all figures" in shown
    assert "95 of 100" in shown
    run("evaluate m.skops test.csv -l income -e 1 --ledger l.sqlite", code=3)


def test_what_can_be_refused_is_refused_before_the_charge(run, refused, trained):
    run("evaluate m.skops test.csv -l income -e 1 --ledger l.sqlite --plot r.svg")
    spent = labeldp.Ledger("l.sqlite").spent("test.csv:income").epsilon()
    assert "new file" in refused("evaluate m.skops test.csv -l income -e 1 --ledger l.sqlite --plot r.svg")
    assert "--label" in refused("evaluate m.skops test.csv -e 1 --ledger l.sqlite")
    assert "TABLE" in refused("evaluate m.skops -l income -e 1 --ledger l.sqlite")
    assert "only --epsilon spends" in refused("evaluate m.skops test.csv -l income --public-labels --budget 2")
    assert labeldp.Ledger("l.sqlite").spent("test.csv:income").epsilon() == spent == 1.0


def test_released_labels_are_free(run, run_json, refused, trained):
    run("privatize test.csv -l income -e 3 --to held --row-ids id --ledger l.sqlite")
    before = run_json("ledger l.sqlite")["label_sets"][0]["spent"]
    score = run_json("evaluate m.skops --release held")
    again = run_json("evaluate m.skops test.csv --release held")
    assert score["report"] == again["report"]
    assert score["labels"] == "released already"
    assert score["report"]["notes"] == []
    exact = run_json("evaluate m.skops test.csv -l income --public-labels")
    # 200 rows at epsilon 3: the unbiased estimate has a spread below 0.03; 0.2 is more than six of them.
    assert abs(score["accuracy"] - exact["accuracy"]) < 0.2
    assert run_json("ledger l.sqlite")["label_sets"][0]["spent"] == before
    assert "nothing more was spent" in run("evaluate m.skops --release held").stdout
    assert "left out" in refused("evaluate m.skops test.csv -l income --release held")
    assert "both" in refused("evaluate m.skops test.csv --release held -e 1")
    assert "directory" in refused("evaluate m.skops test.csv --release nowhere")


def test_a_models_own_release_is_optimistic(run, run_json, folder):
    run("train people.parquet -l income -e 2 --drop id --save-release own --to m.skops")
    with pytest.warns(UserWarning, match="very release"):
        score = run_json("evaluate m.skops --release own")
    assert "optimistic" in score["report"]["notes"][0]


def test_the_class_that_figures_are_about_can_be_chosen(run, run_json, trained):
    line = "evaluate m.skops test.csv -l income --public-labels"
    usual, other = run_json(line), run_json(f"{line} --positive high")
    assert other["accuracy"] == usual["accuracy"]
    assert {one["report"]["classes"][1] for one in (usual, run_json(f"{line} --positive low"))} == {"low"}
    assert {top["class"] for top in other["report"]["tops"]} == {"high"}
    shown = " ".join(run(f"{line} --positive high").stdout.split())
    assert "of the class high; chance: 0.5" in shown
    assert "Calibration: the probability of high" in shown
    noisy = run_json("evaluate m.skops test.csv -l income -e 4 --positive high")
    assert noisy["report"]["classes"] == ["low", "high"]
