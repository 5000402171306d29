"""`labeldp train --search`: settings chosen by released labels, within one release, and boosters by name."""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from labeldp import Ledger
from labeldp.errors import MissingExtraError
from labeldp.learn import SoftmaxRegression, load_model
from labeldp.learn.named import BOOSTED, ESTIMATORS, GRIDS, named_estimator, search_grid

TABLE = "train people.parquet -l income -e 2 --drop id --seed 3"


@pytest.fixture
def released(run, folder):
    """A directory `out` with a release of the table."""
    run(f"{TABLE} --save-release out --to first.skops")
    return folder


def test_a_search_from_a_release_is_free_and_says_what_it_tried(run_json, released):
    facts = run_json("train out --to m.skops --search l2=0.001,0.01,1000")
    tried = facts["search"]["candidates"]
    assert sorted(one["settings"]["l2"] for one in tried) == [0.001, 0.01, 1000]
    scores = [one["score"] for one in tried]
    assert scores == sorted(scores, reverse=True)
    assert tried[0]["behind"] == tried[0]["error"] == 0
    # Behind by what 600 labels at epsilon 2 tell: a penalty of 1000 leaves the mean alone.
    assert tried[-1]["settings"]["l2"] == 1000
    assert tried[-1]["behind"] > 4 * tried[-1]["error"] > 0
    model = load_model("m.skops")
    assert model.get_params()["estimator__classifier__l2"] == tried[0]["settings"]["l2"]
    assert model.guarantee_.epsilon() == facts["guarantee"]["epsilon"] == 2.0


def test_a_search_from_a_table_is_one_charge_and_others_can_repeat_it(run, run_json, folder):
    line = f"{TABLE} --ledger spent --budget 2 --save-release out"
    facts = run_json(f"{line} --to m.skops --search")
    assert [one["settings"] for one in facts["search"]["candidates"]].__len__() == len(GRIDS["softmax"]["l2"])
    spent = [e for e in Ledger("spent").entries() if e.guarantee.epsilon() > 0]
    assert [e.guarantee.epsilon() for e in spent] == [2.0]
    again = run_json("train out --to again.skops --search")
    assert again["search"] == facts["search"]
    features = pq.read_table("people.parquet").drop_columns(["income", "id"])
    ours, theirs = (load_model(f"{name}.skops").predict_proba(features) for name in ("m", "again"))
    assert np.array_equal(ours, theirs)
    assert "spent" in run(f"{TABLE} --ledger spent --to n.skops --search", code=3).stderr


def test_the_screen_shows_the_candidates_and_a_bare_option_may_stand_anywhere(run, released):
    shown = run("train --search out --to m.skops").stdout
    assert "the first was kept" in " ".join(shown.split())
    for word in ("l2", "score", "behind", "standard error", "0.0001", "0.1"):
        assert word in shown
    two = run("train out --search l2=0.1 --to n.skops --search fit_intercept=true,false").stdout
    assert "fit_intercept" in two
    assert "False" in two


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--search l3=1,2", "name a setting of softmax, got 'l3'"),
        ("--search l2=", "give a setting its values"),
        ("--search l2=1 --search l2=2", "name a setting once"),
        ("--search l2=-1", "be values that the classifier takes, got l2=-1"),
        ("--search l2=much", "be values that the classifier takes"),
        ("--estimator forest --search min_samples_leaf=0", "be values that the classifier takes"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_is_spent(refused, options, words):
    assert words in refused(f"train people.parquet -l income -e 1 --to m.skops --ledger spent --budget 1 {options}")


def test_a_search_that_fails_leaves_the_release_that_was_paid_for(run, folder, monkeypatch):
    plain = SoftmaxRegression.fit_likelihood
    fits = []

    def fit_likelihood(self, *arguments, **options):
        fits.append(1)
        if len(fits) == 3:
            raise MemoryError
        return plain(self, *arguments, **options)

    monkeypatch.setattr(SoftmaxRegression, "fit_likelihood", fit_likelihood)
    run(f"{TABLE} --to m.skops --save-release out --search", code=1)
    run("train out --to m.skops --search")
    assert load_model("m.skops").guarantee_.epsilon() == 2.0


def test_a_long_table_is_read_whole_and_that_is_said(run, folder, monkeypatch):
    monkeypatch.setattr("labeldp.data.tables.BATCH_ROWS", 150)
    said = run(f"{TABLE} --to m.skops --search l2=0.01,0.1").stderr
    assert "reads the whole table into memory" in said


# ------------------------------------------------------------------------------------------------ boosters by name


@pytest.mark.parametrize("library", BOOSTED)
def test_boosters_have_a_name_and_write_no_files(run, released, library):
    pytest.importorskip(library, reason=f"needs {library}")
    setting = "iterations" if library == "catboost" else "n_estimators"
    before = {path.name for path in released.iterdir()}
    shown = run(f"train out --to m.skops --estimator {library} --search {setting}=5,20")
    assert {path.name for path in released.iterdir()} - before == {"m.skops"}
    assert shown.stderr == ""
    run("predict m.skops test.csv --to p.parquet")
    predicted, true = pq.read_table("p.parquet")["predicted"].to_pylist(), load_model("m.skops").classes_
    assert set(predicted) <= set(true)
    facts = json.loads(run("evaluate m.skops test.csv -l income --public-labels --json").stdout)
    assert facts["accuracy"] > 0.7  # of two classes, seeded; a coin has 0.5


@pytest.mark.parametrize("library", BOOSTED)
def test_a_library_that_is_absent_is_named(monkeypatch, refused, released, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=f"needs {library}"):
        named_estimator(library)
    assert f"pip install {library}" in refused(f"train out --to m.skops --estimator {library}")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_has_a_grid_that_it_takes(name):
    if name in BOOSTED:
        pytest.importorskip(name, reason=f"needs {name}")
    assert all(len(values) > 1 for values in search_grid(name).values())
