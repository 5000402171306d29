"""Saved models: the same model comes back, with its promise, without the labels, and without running anything."""

from __future__ import annotations

import functools
import json
import os
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from labeldp import ClusterPrior, LabelPrivateClassifier
from labeldp.errors import LabelDPError, ReleaseError
from labeldp.learn import SoftmaxRegression
from labeldp.learn.saved import FORMAT, VERSION, load_model, save_model


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = LabelPrivateClassifier(SoftmaxRegression(), epsilon=2.0, stages=2, prior=ClusterPrior(n_clusters=4))
    return model.fit(X, y), X


def test_the_same_model_comes_back_with_its_promise(fitted, tmp_path):
    model, X = fitted
    save_model(model, tmp_path / "m.skops", facts={"label": "ill"})
    back = load_model(tmp_path / "m.skops")
    assert np.array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.predict(X).tolist() == model.predict(X).tolist()
    assert back.guarantee_ == model.guarantee_
    assert back.stages_ == model.stages_
    assert back.facts_["label"] == "ill"
    assert (back.release_.seeded, len(back.release_)) == (False, 300)


def test_a_loaded_model_can_be_saved_again(fitted, tmp_path):
    model, X = fitted
    save_model(model, tmp_path / "a")
    save_model(load_model(tmp_path / "a"), tmp_path / "b")
    assert np.array_equal(load_model(tmp_path / "b").predict_proba(X), model.predict_proba(X))


def test_saving_leaves_the_model_as_it_was(fitted, tmp_path):
    model, _ = fitted
    save_model(model, tmp_path / "m")
    assert len(model.release_.codes) == 300
    assert model.prior is not None


def test_the_file_holds_no_released_label(fitted, tmp_path):
    model, _ = fitted
    save_model(model, tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        sizes = [i.file_size for i in archive.infolist() if i.filename.endswith(".npy")]
    assert max(sizes) < 300  # any array with an entry per label would be longer, header included


def test_an_existing_file_is_never_replaced(fitted, tmp_path):
    target = tmp_path / "m"
    target.write_text("mine")
    with pytest.raises(LabelDPError, match="new file"):
        save_model(fitted[0], target)
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


def hostile(payload, path):
    header = json.dumps({"format": FORMAT, "version": VERSION, "facts": {}})
    path.write_bytes(skops.io.dumps({"header": header, "model": payload}))


@pytest.mark.parametrize("kind", ["partial", "transformer", "bound"])
def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path, kind):
    victim = tmp_path / "ran"
    payloads = {
        "partial": functools.partial(os.system, f"touch {victim}"),
        "transformer": Pipeline([("f", FunctionTransformer(os.system)), ("c", LogisticRegression())]),
        "bound": functools.partial(victim.touch),
    }
    hostile(payloads[kind], tmp_path / "m")
    with pytest.raises(ReleaseError, match="known types"):
        load_model(tmp_path / "m")
    assert not victim.exists()


def test_types_that_would_not_load_are_not_saved(tmp_path):
    strange = Pipeline([("f", FunctionTransformer(os.path.join)), ("c", LogisticRegression())])
    with pytest.raises(LabelDPError, match="save_model"):
        save_model(strange, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_cut_short_and_foreign_files(fitted, tmp_path):
    save_model(fitted[0], tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    for end in (0, 10, len(data) // 2, len(data) - 5):
        (tmp_path / "cut").write_bytes(data[:end])
        with pytest.raises(ReleaseError, match="not a readable model"):
            load_model(tmp_path / "cut")
    (tmp_path / "other").write_bytes(skops.io.dumps({"header": json.dumps({"format": "x"}), "model": 1}))
    with pytest.raises(ReleaseError, match="labeldp model"):
        load_model(tmp_path / "other")


def test_classes_may_be_a_range(tmp_path):
    X = np.repeat([[-1.0], [1.0]], 100, axis=0)
    model = LabelPrivateClassifier(epsilon=4.0, classes=range(2)).fit(X, np.repeat([0, 1], 100))
    save_model(model, tmp_path / "model.skops")
    assert np.array_equal(load_model(tmp_path / "model.skops").predict(X), model.predict(X))
    assert model.classes == range(2)
