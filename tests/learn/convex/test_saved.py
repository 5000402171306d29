"""A model in stages is saved with its network and its promise, and predicts the same when it is loaded."""

from __future__ import annotations

import numpy as np
import pytest

from labeldp.accounting import Ledger
from labeldp.learn import SufficientStatistics, load_model, save_model


def test_a_model_in_stages_is_saved_with_its_network(tmp_path):
    pytest.importorskip("torch", reason="networks need labeldp[torch]")
    from labeldp.nn import NetClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.argmax(X, axis=1)
    model = SufficientStatistics(
        epsilon=8.0,
        clip="unit-norm",
        stages=2,
        network=NetClassifier("mlp", epochs=1, random_state=0),
        classes=[0, 1, 2],
        random_state=0,
        ledger=Ledger(tmp_path / "ledger"),
    ).fit(X, y)
    save_model(model, tmp_path / "model")
    back = load_model(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.guarantee_ == model.guarantee_
    assert back.ledger is back.random_state is None
