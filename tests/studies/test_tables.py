"""The study `tables`: its measures, the words it derives from its rows, one small case, and what was committed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labeldp.mechanisms import InformativeResponse, RandomizedResponse
from studies import StudyRow, read_result
from studies import tables as subject

PUBLIC = {"X_public": np.eye(4), "y_public": np.array([0, 1, 0, 1]), "n_classes": 2}


def test_measures_of_known_probabilities():
    y = np.array([0, 0, 1, 1])
    chances = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.2, 0.8]])
    loss, area, offset, gap, right = subject.score(chances, y)
    assert loss == pytest.approx(-25 * np.log(0.9 * 0.6 * 0.5 * 0.8))
    assert area == 100.0
    assert offset == pytest.approx(-5.0)
    assert gap == pytest.approx(25 * (0.1 + 0.4 + 0.5 + 0.2))  # four rows in fifteen bins: each row is a bin of its own
    assert right == 75.0  # a tie goes to the first class
    assert subject.score(np.full((4, 2), 0.5), y)[1] == 50.0


def test_findings_are_read_off_the_rows():
    values = {
        subject.LOG_LOSS: (60.0, 40.0),
        subject.AUC: (80.0, 81.0),
        subject.OFFSET: (20.0, -1.5),
        subject.COST: (2.0, 5.0),
    }
    rows = [
        StudyRow(
            table=subject.table_name("adult", measure),
            setting=subject.setting_name("LightGBM", way, "labels", 1.0),
            epsilon=1.0,
            trust="no one",
            values=(value,),
        )
        for measure, pair in values.items()
        for way, value in zip((subject.BEFORE, subject.RULE), pair, strict=True)
    ]
    told = subject.compare(rows, "adult")
    assert "smaller log loss in 1 of 1 pairs (behind: nowhere)" in told
    assert "off by at most 1.5 points (before: 20.0); it costs 5.0 plain fits on average (5.0 without" in told
    assert "and 5.0 at most (LightGBM at 1, before: 2.0)" in told
    assert subject.compare(rows, "credit-default") == "credit-default: not run."


def test_one_small_case(monkeypatch):
    monkeypatch.setattr(subject, "QUICK_ROWS", 800)
    study = subject.Tables(quick=True)
    case = subject.Case(data_set="adult", estimator="LogisticRegression", release=subject.RELEASES[1], epsilon=2.0)
    found = study.run_case(case, seed=0)
    assert len(found) == 4 * len(subject.MEASURES)
    assert {one.trust for one in found} == {"everyone", "no one"}
    assert max(one.epsilon for one in found if one.trust == "no one") == pytest.approx(2.0)


def test_every_release_names_its_mechanism_and_scaled_columns_are_asked_for():
    kinds = {release.name: release for release in subject.RELEASES}
    part = subject.Part(**dict.fromkeys(("X", "y", "X_test", "y_test"), None), **PUBLIC)
    made = {name: release.make(part)["mechanism"] for name, release in kinds.items()}
    assert made["labels"] == RandomizedResponse(1.0)
    assert {name for name, mechanism in made.items() if isinstance(mechanism, InformativeResponse)} == {
        name for name in kinds if name.startswith("informative answers")
    }
    for name, scaled in (("cluster prior", False), ("cluster prior of scaled columns", True)):
        assert subject.Case(data_set="adult", estimator="LightGBM", release=kinds[name], epsilon=1.0).scaled == scaled


def test_committed_results_are_ahead_of_what_was_before(repository: Path):
    result = read_result(repository / "studies" / "results" / "tables" / "result.json")
    assert subject.Tables().findings(result.rows) == result.findings  # the words are those of these rows
    for data_set in ("adult", "credit-default"):
        pairs = subject.pair_up(result.rows, data_set, subject.LOG_LOSS, release="labels")
        assert len(pairs) == 5 * 4
        # At epsilon 4 there is little noise to undo, and which is ahead may hang on the seed; the findings name where.
        assert all(after < before for _, epsilon, before, after in pairs if epsilon <= 2)
