"""Every command's happy path: what it says to people, what it says to machines, and what it leaves on the disk."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest

import labeldp
from labeldp.cli import app
from labeldp.learn.saved import load_model

COMMANDS = (
    "look",
    "demo",
    "plan",
    "privatize",
    "inspect",
    "train",
    "predict",
    "train-ratings",
    "predict-ratings",
    "evaluate",
    "ledger",
    "top-k",
    "pate",
    "report",
    "audit",
    "explore",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(run, command):
    text = run(f"{command} --help").stdout
    assert "Examples" in text
    assert f"labeldp {command}" in text


def test_every_command_is_listed_and_tested(run):
    assert {(c.name or c.callback.__name__) for c in app.registered_commands} == set(COMMANDS)
    text = run("--help").stdout
    assert all(command in text for command in COMMANDS)


def test_version(run):
    assert run("--version").stdout.strip() == f"labeldp {labeldp.__version__}"


def test_plan_says_what_the_channels_say(run_json):
    facts = run_json("plan --classes 10 -e 0.5 -e 2 -a 0.5")
    for line in facts["plan"]:
        channel = labeldp.RandomizedResponse(line["epsilon"], n_classes=10).channel()
        # The channel rounds its odds down by an ulp or two, never up; the plan is a forecast in plain floats.
        assert line["keep"] == pytest.approx(channel.matrix()[0, 0], rel=1e-12)
        E = math.exp(line["epsilon"])
        assert line["advantage"] == pytest.approx((E - 1) / (E + 1), rel=1e-12)


@pytest.mark.parametrize("classes", [2, 10])
def test_plan_gives_no_answer_more_information_than_the_label_has(run_json, classes):
    """Before: 4.9 nats for two classes at epsilon 8, where the label itself has 0.69."""
    for line in run_json(f"plan --classes {classes} -e 1 -e 8 -e 30")["plan"]:
        told = line["training"]
        assert told["most_information"] <= math.log(classes)
        for name in ("response_information", "informative_information"):
            # A sum of K^2 rounded terms, each below ln K: at epsilon 30 the label is as good as told.
            assert told[name] <= told["most_information"] + 1e-12
    assert told["most_information"] == math.log(classes)


def test_plan_of_numbers_takes_the_rows_of_a_table(run, run_json, folder):
    assert run_json("plan people.parquet -l age --bounds 0,100 -e 1")["rows"] == 600
    assert "600 rows" in run("plan people.parquet -l age --bounds 0,100 -e 1").stdout


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("accuracy", [0.3, 0.6, 0.95])
def test_plan_with_a_prior_is_what_rr_with_prior_expects(epsilon, accuracy):
    from labeldp.cli.plan import compute_worth, falling_prior

    prior = falling_prior(accuracy, 6)
    assert prior.sum() == pytest.approx(1.0, rel=1e-12)
    assert prior[0] == pytest.approx(accuracy, rel=1e-9)  # found by halving
    assert (np.diff(prior) < 0).all()
    [line] = compute_worth(epsilon, n_classes=6, prior_accuracies=[accuracy]).with_prior
    channel = labeldp.RRWithPrior(epsilon).channel(prior)
    assert line.label_accuracy == pytest.approx(float(np.max(channel.expected_accuracy(prior))), rel=1e-9)
    assert line.candidates == np.count_nonzero(channel.base[0])


def test_plan_of_a_table_uses_its_shape_and_not_its_labels(run, run_json, folder):
    assert run_json("plan people.parquet --label income --classes 3")["rows"] == 600
    assert run_json("plan test.csv --label income --classes 3")["rows"] == 200
    assert run_json("plan people.parquet --label income --read-classes")["classes"] == 2
    assert "a look at the labels" in run("plan people.parquet --label income --read-classes").stderr
    assert "look at the labels" in run("plan people.parquet --label income", code=2).stderr


def test_ledger_verify_replays_all_rows(run, run_json, folder):
    """The listing checks the chain; --verify also finds a note that was taken out of the index beside the rows."""
    book = labeldp.Ledger(folder / "verified.sqlite", budget=2.0)
    book.charge(labeldp.Guarantee.pure(0.5), rows="0" * 64, n_rows=3, mechanism="RR", note="job 1")
    assert [run_json(f"ledger verified.sqlite {option}")["replayed"] for option in ("", "--verify")] == [False, True]
    assert "all rows replayed" in run("ledger verified.sqlite --verify").stdout
    with closing(sqlite3.connect(folder / "verified.sqlite")) as other:
        other.execute("DELETE FROM noted")
        other.commit()
    run("ledger verified.sqlite")
    assert "restore it from a backup" in " ".join(run("ledger verified.sqlite --verify", code=4).stderr.split())


def test_privatize_inspect(run, run_json, folder):
    facts = run_json("privatize people.parquet -l income -e 1 --to out --classes low,high --row-ids id")
    assert (facts["rows"], facts["guarantee"]["epsilon"], facts["seeded"]) == (600, 1.0, False)
    released = pq.read_table(folder / "out" / "labels.parquet")
    assert released["age"].equals(pq.read_table("people.parquet")["age"])
    seen = run_json("inspect out")
    assert seen["classes"] == ["low", "high"]
    assert seen["intact"]
    # Flip rate of RR: (K - 1) / (E + K - 1); the channel rounds its odds by an ulp or two.
    assert seen["flip_rate"]["low"] == pytest.approx(1 / (math.e + 1), rel=1e-9)
    text = run("inspect out").stdout
    assert "trusts no one" in text
    assert "73.2%" in text
    assert "intact" in text
    assert "NOT PRIVATE" not in text


@pytest.mark.parametrize("prior", ["--clusters 5", "--cluster-column sex"])
def test_privatize_with_a_prior_trusts_a_curator(run_json, folder, prior):
    facts = run_json(f"privatize people.parquet -l income -e 1 --to out {prior}")
    assert facts["guarantee"]["trust"] == "a curator"
    assert facts["guarantee"]["epsilon"] <= 1.0


def test_privatize_with_a_saved_model(run_json, folder):
    run_json("train people.parquet -l income -e 3 --drop id --to m.skops")
    facts = run_json("privatize test.csv -l income -e 1 --to out --model m.skops --for labels")
    # A model that knows the label well makes more labels right than randomized response, 73.1 % at epsilon 1.
    assert facts["expected_accuracy"] > 0.75


def test_seed_is_shouted_about(run, folder):
    result = run("privatize people.parquet -l income -e 1 --to out --seed 7")
    assert "NOT PRIVATE" in result.stderr
    assert "NOT PRIVATE" in run("inspect out").stdout
    assert json.loads(run("inspect out --json").stdout)["private"] is False


def test_train_from_a_release_predict_and_evaluate(run, run_json, folder):
    run("privatize people.parquet -l income -e 2 --to out --row-ids id")
    trained = run_json("train out --to m.skops --drop id")
    assert trained["features"] == ["age", "sex"]
    assert trained["guarantee"]["epsilon"] == 2.0
    score = run_json("evaluate m.skops test.csv -l income --public-labels")
    assert score["accuracy"] > 0.7  # the labels are 86 % predictable; a coin gets 50 %
    assert score["labels"] == "declared public"
    facts = run_json("predict m.skops test.csv --to p.parquet --keep id")
    answer = pq.read_table("p.parquet")
    assert answer.column_names == ["id", "predicted", "probability_high", "probability_low"] == facts["columns"]
    right = np.mean(answer["predicted"].to_numpy() == pa_labels("test.csv"))
    assert right == pytest.approx(score["accuracy"])


def pa_labels(path):
    return labeldp.data.column(path, "income").to_numpy()


def test_private_evaluation_is_charged_and_noisy(run, run_json, folder):
    run("train people.parquet -l income -e 3 --drop id --to m.skops")
    exact = run_json("evaluate m.skops test.csv -l income --public-labels")
    score = run_json("evaluate m.skops test.csv -l income -e 0.5 --ledger l.sqlite --budget 1")
    assert score["labels"] == "protected"
    assert score["guarantee"]["epsilon"] == 0.5
    # At most 12 counts of rate 1/2 go into the sum Z: E exp(Z / 4) = (cosh(1/2) - 1) / (cosh(1/2) - cosh(1/4)) each, 1.33,
    # so that Pr[|Z| > 75] < 2 exp(-75/4) 1.33^12 = 5e-7. How labels lie in a cell adds a few rows.
    assert abs(score["correct"] - exact["correct"]) <= 80
    low, high = score["report"]["accuracy"]["interval"]
    assert low <= score["accuracy"] <= high  # noise may take all of it past 1, and in 5 of 316 runs it did
    assert run_json("ledger l.sqlite")["label_sets"][0]["spent"] == 0.5
    run("evaluate m.skops test.csv -l income -e 0.6 --ledger l.sqlite", code=3)
    assert "this score is a release" in run("evaluate m.skops test.csv -l income -e 0.5 --ledger l.sqlite").stdout


def test_labels_that_a_ledger_protects_are_not_public(run, run_json, folder):
    """By name, by row ids under another name, by their number under another name; another column is another matter."""
    run("train people.parquet -l income -e 3 --drop id --to m.skops")
    declared = "-l income --public-labels --ledger l.sqlite"
    run("privatize people.parquet -l income -e 1 --to out --row-ids id --ledger l.sqlite")
    assert "accounted for in l.sqlite, entry 1" in run(f"evaluate m.skops people.parquet {declared}", code=4).stderr
    (folder / "people.parquet").rename(folder / "test_rows.parquet")
    renamed = run(f"evaluate m.skops test_rows.parquet {declared}", code=4).stderr
    assert "'people.parquet:income'" in renamed
    other = run_json(f"evaluate m.skops test.csv {declared}")
    assert other["ledger"] == "no release of these labels in l.sqlite"
    run("privatize test.csv -l sex -e 1 --to sexes --ledger l.sqlite")
    assert run_json(f"evaluate m.skops test.csv {declared}")["noisy"] is False
    run("privatize test.csv -l income -e 1 --to again --ledger l.sqlite --label-set secret --drop sex")
    assert "as many" in run(f"evaluate m.skops test.csv {declared}", code=4).stderr
    run("evaluate m.skops test.csv -l income --public-labels --ledger nowhere.sqlite", code=2)
    assert not (folder / "nowhere.sqlite").exists()


@pytest.mark.parametrize("options", ["", "--stages 2", "--prior cluster --clusters 6", "--prior cluster --stages 2"])
def test_a_release_directory_alone_gives_the_owners_model(run, run_json, folder, options):
    run(f"train people.parquet -l income -e 1.7 --drop id {options} --save-release rel --to owner.skops")
    run("train rel --to receiver.skops")
    owner, receiver = load_model("owner.skops"), load_model("receiver.skops")
    assert np.array_equal(owner.estimator_.coef_, receiver.estimator_.coef_)
    assert np.array_equal(owner.estimator_.intercept_, receiver.estimator_.intercept_)
    assert owner.guarantee_ == receiver.guarantee_


@pytest.mark.parametrize("estimator", ["logistic", "forest", "boosting", "bayes"])
def test_named_estimators_train_save_and_load(run, run_json, folder, estimator):
    run(f"train people.parquet -l income -e 4 --drop id --estimator {estimator} --to m.skops")
    assert run_json("evaluate m.skops test.csv -l income --public-labels")["accuracy"] > 0.7


def test_ledger_budget_and_refusal(run, run_json, folder):
    run("ledger l.sqlite --set-budget 2")
    run("privatize people.parquet -l income -e 1.5 --to a --ledger l.sqlite")
    refused = run("privatize people.parquet -l income -e 1 --to b --ledger l.sqlite", code=3)
    assert refused.stderr.startswith("error:")
    assert not (folder / "b").exists()
    [account] = run_json("ledger l.sqlite --label-set people.parquet:income")["label_sets"]
    assert (account["spent"], account["budget"], account["left"]) == (1.5, 2.0, 0.5)
    text = run("ledger l.sqlite").stdout
    assert "people.parquet:income" in text
    assert "intact" in text


def test_plan_warns_when_clusters_are_too_small(run, run_json):
    told = " ".join(run("plan --classes 100 --epsilon 1 --cluster-size 5").stdout.split())
    assert "clusters of 5 are too small for 100 classes at epsilon 1: use at least 27 examples each" in told
    assert "warning" not in run("plan --classes 10 --epsilon 1 --cluster-size 100").stdout
    [bound] = run_json("plan --classes 100 --epsilon 1 --cluster-size 5")["clusters"]
    assert bound["too_small"] is True


def test_a_recorded_budget_stands_and_the_user_is_told(run, folder):
    run("privatize people.parquet -l income -e 1 --to a --ledger l.sqlite --budget 2")
    told = run("privatize people.parquet -l income -e 1 --to b --ledger l.sqlite --budget 9").stderr
    assert "budget is epsilon = 2, not 9" in " ".join(told.split())
    run("privatize people.parquet -l income -e 1 --to c --ledger l.sqlite --budget 9", code=3)


def test_train_and_privatize_charge_the_same_label_set(run, folder):
    run("privatize people.parquet -l income -e 1 --to a --ledger l.sqlite --budget 2")
    run("train people.parquet -l income -e 1.5 --to m.skops --ledger l.sqlite", code=3)
    assert not (folder / "m.skops").exists()


def test_a_model_of_the_same_labels_is_pointed_out(run, folder):
    run("train people.parquet -l income -e 1 --drop id --to m.skops")
    told = run("privatize people.parquet -l income -e 1 --to out --model m.skops").stderr
    assert "the model learned from label set people.parquet:income itself" in " ".join(told.split())
    assert "note:" not in run("privatize test.csv -l income -e 1 --to out2 --model m.skops").stderr
