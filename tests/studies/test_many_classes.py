"""The study of many classes: every way keeps its promise and learns, words follow rows, the committed rows are what must be shown."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from studies import StudyRow, many_classes, read_result


def make_texts(n: int = 1_500) -> dict[str, np.ndarray]:
    """A hundred and fifty far-apart classes, ten rows each: whatever learns at all learns this."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 150
    X = (rng.normal(size=(150, 40))[y] + 0.1 * rng.normal(size=(n, 40))).astype(np.float32)
    return {"X": X, "y": y, "X_test": X[:600], "y_test": y[:600], "seconds": np.array(1.0)}


WAYS = [
    *(many_classes.Case(setting=way, epsilon=8.0) for way in (many_classes.RESPONSE, many_classes.SETS)),
    many_classes.Case(setting=many_classes.STAGED, epsilon=8.0),
    many_classes.Case(setting=many_classes.NON_PRIVATE, epsilon=math.inf),
]


@pytest.mark.parametrize("case", WAYS, ids=lambda case: case.setting)
def test_every_way_keeps_its_promise_and_learns(case, monkeypatch):
    monkeypatch.setattr(many_classes, "strength_of", lambda _case: 1e-3)
    study = many_classes.ManyClasses()
    study.texts = make_texts()
    (found,) = study.run_case(case, seed=0)
    assert found.epsilon <= case.epsilon
    assert found.trust == ("everyone" if case.setting == many_classes.NON_PRIVATE else "no one")
    # Chance is 0.7%; the classes are ten standard deviations apart.
    assert found.value > 60.0


def test_every_case_has_a_strength_that_was_tried():
    study = many_classes.ManyClasses()
    study.texts = make_texts()
    for case in study.cases():
        way = many_classes.SETS if case.setting == many_classes.STAGED else case.setting
        assert many_classes.strength_of(case) in many_classes.TRIED[way, case.epsilon]


def test_the_words_follow_the_rows():
    rows = [
        StudyRow(table="clinc150", setting=way, epsilon=2.0, trust="no one", values=(value, value + 1.0))
        for way, value in ((many_classes.RESPONSE, 20.0), (many_classes.SETS, 70.0))
    ]
    said = " ".join(many_classes.ManyClasses().findings(rows))
    assert "randomized response 20.5 (sd 0.7), sets 70.5" in said


def test_committed_results_meet_what_they_must_show(repository: Path):
    """The issue asks for 50, 76 and 82% at epsilon 2, 3 and 4, with no one trusted, over three seeds."""
    result = read_result(repository / "studies" / "results" / "many-classes" / "result.json")
    found = {(row.setting, round(row.epsilon)): row for row in result.rows if math.isfinite(row.epsilon)}
    for epsilon, least in ((2, 50.0), (3, 76.0), (4, 82.0)):
        row = found[many_classes.SETS, epsilon]
        assert row.n_seeds >= 3
        assert row.trust == "no one"
        assert row.mean >= least
        assert row.mean > found[many_classes.RESPONSE, epsilon].mean
