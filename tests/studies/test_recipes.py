"""The study of recipes: "auto" is one of its ways, to the last bit, and words follow rows."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the study trains networks: install labeldp[torch]")

from studies import StudyRow, recipes  # noqa: E402 - after the skip


@pytest.mark.parametrize(
    ("setting", "epsilon"),
    [
        ("auto, no one", 0.5),
        ("auto, no one", 8.0),
        ("auto, curator", 2.0),
        ("auto, curator", 8.0),
        ("auto, curator", 30.0),
    ],
)
def test_auto_is_the_way_that_it_is_said_to_be(monkeypatch, setting, epsilon):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 2000)
    X = (3.0 * rng.normal(size=(10, 8))[y] + rng.normal(size=(2000, 8))).astype(np.float32)
    monkeypatch.setattr(recipes, "LEAST_STEPS", 20)
    made = []
    case = recipes.Case(data="mnist", rows=2000, setting=setting, epsilon=epsilon)
    way = recipes.Case(data="mnist", rows=2000, setting=recipes.find_way(case), epsilon=epsilon)
    for one in (case, way):
        model = recipes.make_way(one, seed=0)
        model.set_params(final_params={"hidden": 16, "epochs": 2}, estimator__hidden=16, estimator__epochs=2)
        made.append(model.fit(X, y))
    auto, asked = made
    assert auto.guarantee_.epsilon() == asked.guarantee_.epsilon()
    assert np.array_equal(auto.predict_proba(X), asked.predict_proba(X))
    assert way.setting in recipes.WAYS[setting]


def test_words_follow_rows():
    def row(setting, epsilon, value):
        return StudyRow(table="t", setting=setting, epsilon=epsilon, trust="no one", values=(value, value), paper=None)

    rows = [row("auto, no one", 1.0, 80.0), row("one draw", 1.0, 82.0), row("auto, no one", 2.0, 78.0)]
    said = " ".join(recipes.Recipes().findings(rows))
    assert "At most 2.0 points below the best of its ways. It falls from 80.0 at 1 to 78.0." in said
