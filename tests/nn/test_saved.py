"""Networks on disk: no pickle, the same answers, and refusals."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from labeldp.errors import LabelDPError, ReleaseError
from labeldp.learn import LabelPrivateClassifier, load_model, save_model
from labeldp.nn import Augment, NetClassifier, cpu_preset, load_network, save_network

QUICK = {"hidden": 8, "epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 60)
    return (generator.normal(size=(60, 4)) + y[:, None]).astype(np.float32), np.array(["no", "yes"])[y]


@pytest.fixture(scope="module")
def fitted(rows):
    X, y = rows
    return NetClassifier("mlp", preset=cpu_preset("mlp"), augment=Augment(flip=True), **QUICK).fit(X, y)


def test_a_file_brings_the_same_answers(fitted, rows, tmp_path):
    save_network(fitted, tmp_path / "net.npz")
    loaded = load_network(tmp_path / "net.npz")
    assert np.array_equal(loaded.predict_proba(rows[0]), fitted.predict_proba(rows[0]))
    assert loaded.predict(rows[0]).tolist() == fitted.predict(rows[0]).tolist()
    assert (loaded.history_, loaded.training_, loaded.n_features_in_) == (fitted.history_, fitted.training_, 4)
    assert (loaded.preset, loaded.augment) == (fitted.preset, fitted.augment)
    with np.load(tmp_path / "net.npz", allow_pickle=False) as stored:  # nothing in it needs pickle
        assert all(stored[name].dtype.kind != "O" for name in stored.files)


def test_a_network_saved_by_an_older_version_answers_as_it_did():
    folder = Path(__file__).parent / "saved_by_0.1"
    answers = json.loads((folder / "answers.json").read_text())
    network = load_network(folder / "network.npz")
    # The weights are the same bits; another machine may add float32 products in another order.
    assert np.allclose(network.predict_proba(answers["X"]), answers["network"], rtol=0, atol=1e-6)
    assert list(network.history_) == answers["history"]
    assert network.classes_.tolist() == ["cat", "dog", "owl"]
    assert (network.augment, network.preset, network.training_.ema) == (Augment(flip=True), cpu_preset("mlp"), 0.5)


def test_a_file_names_no_module_or_class_of_python(fitted, tmp_path):
    # So that moving code never breaks what users saved.
    save_network(fitted, tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as stored:
        text = str(stored["header"])
    assert "labeldp." not in text
    assert "NetClassifier" not in text


@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_copies_answer_the_same_and_share_nothing(fitted, rows, way):
    again = way(fitted)
    before = fitted.predict_proba(rows[0])
    assert np.array_equal(again.predict_proba(rows[0]), before)
    with torch.no_grad():
        again.module_[0].weight.zero_()
    assert np.array_equal(fitted.predict_proba(rows[0]), before)


def test_a_width_set_anew_does_not_break_the_copy(fitted, rows):
    model = copy.deepcopy(fitted).set_params(hidden=99)
    assert np.array_equal(copy.deepcopy(model).predict_proba(rows[0]), fitted.predict_proba(rows[0]))


def test_images_and_ratings_are_rebuilt(tmp_path):
    images = np.random.default_rng(0).normal(size=(8, 1, 8, 8)).astype(np.float32)
    pairs = np.array([[0, 1], [2, 0], [1, 3], [0, 0]])
    cnn = NetClassifier("small-cnn", epochs=1).fit(images, [0, 1] * 4)
    ncf = NetClassifier("ncf", epochs=1).fit(pairs, [1, 2, 1, 2])
    for name, model, X in (("cnn", cnn, images), ("ncf", ncf, pairs)):
        save_network(model, tmp_path / name)
        assert np.array_equal(load_network(tmp_path / name).predict_proba(X), model.predict_proba(X))


def test_a_module_of_ones_own_is_passed_again(rows, tmp_path):
    X, y = rows
    own = NetClassifier(torch.nn.Linear(4, 2), epochs=1).fit(X, y)
    save_network(own, tmp_path / "own.npz")
    with pytest.raises(ReleaseError, match="pass the module"):
        load_network(tmp_path / "own.npz")
    with pytest.raises(ReleaseError, match="those of this network"):
        load_network(tmp_path / "own.npz", module=torch.nn.Linear(5, 2))
    loaded = load_network(tmp_path / "own.npz", module=torch.nn.Linear(4, 2))
    assert np.array_equal(loaded.predict_proba(X), own.predict_proba(X))


def test_label_private_models_are_saved_with_their_network(rows, tmp_path):
    X, y = rows
    network = NetClassifier("mlp", **QUICK, checkpoint=tmp_path / "epochs", progress=print)
    network.set_params(progress=False)
    model = LabelPrivateClassifier(network, epsilon=2.0, stages=2, classes=["no", "yes"], random_state=0).fit(X, y)
    save_model(model, tmp_path / "model.skops")
    loaded = load_model(tmp_path / "model.skops")
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.guarantee_.epsilon() == 2.0
    own = LabelPrivateClassifier(NetClassifier(torch.nn.Linear(4, 2), epochs=1), classes=["no", "yes"], random_state=0)
    with pytest.raises(LabelDPError, match=r"with estimator__module, a Linear\. That is code, .* load_network"):
        save_model(own.fit(X, y), tmp_path / "own.skops")
    assert not (tmp_path / "own.skops").exists()


def test_a_file_has_no_settings_of_its_owner_and_a_forged_one_sets_none(rows, tmp_path):
    """Before: a file could name a folder that the next fit of who loaded it wrote to, and a seed."""
    X, y = rows
    owned = NetClassifier("mlp", **QUICK, checkpoint=tmp_path / "owners", random_state=31337, progress=lambda *_: None)
    save_network(owned.fit(X, y), tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    header = json.loads(str(arrays["header"]))
    assert not {"checkpoint", "random_state", "progress", "device", "module"} & set(header["settings"])
    forged = {
        **header["settings"],
        "checkpoint": str(tmp_path / "victims"),
        "random_state": 7,
        "progress": True,
        "device": "meta",
    }
    arrays["header"] = np.array(json.dumps({**header, "settings": forged, "sealed": False}))
    np.savez(tmp_path / "forged.npz", **arrays)
    loaded = load_network(tmp_path / "forged.npz")
    assert (loaded.checkpoint, loaded.random_state, loaded.progress, loaded.device) == (None, 0, False, "cpu")
    loaded.fit(X, y)
    assert not (tmp_path / "victims").exists()


def test_refusals(fitted, rows, tmp_path):
    path = tmp_path / "net.npz"
    save_network(fitted, path)
    with pytest.raises(LabelDPError, match="new file"):
        save_network(fitted, path)
    with pytest.raises(LabelDPError, match="fitted"):
        save_network(NetClassifier(), tmp_path / "other.npz")
    with pytest.raises(LabelDPError, match="existing file"):
        load_network(tmp_path / "none.npz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ReleaseError, match="not a readable network"):
        load_network(path)
    np.savez(tmp_path / "foreign.npz", header=np.array('{"format": "x"}'))
    with pytest.raises(ReleaseError, match="'x'"):
        load_network(tmp_path / "foreign.npz")


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 4), (1, 1, 1, 4)])
def test_a_shift_that_fits_no_example(fitted, rows, tmp_path, shape):
    """Before: loaded, and a RuntimeError of torch in `predict`; a single number is the shift of every column."""
    X, _ = rows
    save_network(fitted, tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    header = json.loads(str(arrays["header"]))
    arrays |= {"shift": np.zeros(shape, np.float32), "header": np.array(json.dumps({**header, "sealed": False}))}
    np.savez(tmp_path / "forged.npz", **arrays)
    if shape == ():
        assert load_network(tmp_path / "forged.npz").predict(X).shape == (len(X),)
        return
    with pytest.raises(ReleaseError, match="is not a readable network"):
        load_network(tmp_path / "forged.npz")


@pytest.mark.parametrize("width", [-5, 0, "x", True, 2.5, [4]])
def test_a_number_of_features_that_is_none(fitted, tmp_path, width):
    """Before: loaded, and scikit-learn's error, or a TypeError, in `predict`."""
    save_network(fitted, tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    header = {**json.loads(str(arrays["header"])), "n_features_in": width, "sealed": False}
    np.savez(tmp_path / "forged.npz", **{**arrays, "header": np.array(json.dumps(header))})
    with pytest.raises(ReleaseError, match="a number of features cannot be"):
        load_network(tmp_path / "forged.npz")
