"""Several networks that share a fit: their mean, how many there are, and that nothing is lost between them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import RandomState

from labeldp import LabelPrivateClassifier
from labeldp.errors import LabelDPError, ReleaseError
from labeldp.learn import load_model, save_model
from labeldp.nn import NetClassifier, load_network, save_network
from labeldp.nn.checkpoint import get_arrays, read_arrays, write_arrays
from labeldp.nn.presets import HOURS, count_networks

SETTINGS = {"hidden": 8, "epochs": 3, "batch_size": 10}
CIFAR = {"sample_shape": (3, 32, 32), "n_classes": 10, "width": 256}


class KilledError(Exception):
    """Stands for a signal that cannot be caught."""


@pytest.fixture(scope="module")
def three(rows):
    return NetClassifier("mlp", **SETTINGS, members=3, random_state=RandomState(5)).fit(*rows)


def test_answers_are_the_mean_of_networks_fitted_one_by_one(rows, three):
    """A generator that is handed on gives each network the seed that it has among several."""
    generator = RandomState(5)
    alone = [NetClassifier("mlp", **SETTINGS, random_state=generator).fit(*rows) for _ in range(3)]
    expected = np.mean([model.predict_proba(rows[0]) for model in alone], axis=0)
    # float32 logarithms on the way: some units of its last digit.
    np.testing.assert_allclose(three.predict_proba(rows[0]), expected, atol=1e-6)
    assert np.abs(alone[0].predict_proba(rows[0]) - expected).max() > 1e-3  # they do differ
    assert three.history_ == tuple(loss for model in alone for loss in model.history_)
    features = np.concatenate([model.hidden_features(rows[0]) for model in alone], axis=1)
    np.testing.assert_array_equal(three.hidden_features(rows[0]), features)


def test_they_are_copied_and_stored_as_one(rows, three, tmp_path):
    save_network(three, tmp_path / "network.npz")
    save_model(three, tmp_path / "model.skops")
    for back in (
        load_network(tmp_path / "network.npz"),
        load_model(tmp_path / "model.skops"),
        pickle.loads(pickle.dumps(three)),
    ):
        np.testing.assert_array_equal(back.predict_proba(rows[0]), three.predict_proba(rows[0]))


@pytest.mark.parametrize("members", [0, -1, 2, 4, 10**9, "3", None, 3.0])
def test_a_file_with_another_number_of_networks_is_refused(three, tmp_path, members):
    path = tmp_path / "network.npz"
    save_network(three, path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, "members": members}, new=False)
    with pytest.raises(ReleaseError):
        load_network(path)


def test_a_run_that_is_killed_in_the_second_network_goes_on_there(rows, three, tmp_path):
    told = []

    def kill(done, total, _loss):
        told.append((done, total))
        if done == 30:  # 7 steps a pass, 21 a network
            raise KilledError

    settings = {**SETTINGS, "members": 3, "checkpoint": tmp_path}
    with pytest.raises(KilledError):
        NetClassifier("mlp", **settings, progress=kill, random_state=RandomState(5)).fit(*rows)
    assert told[-1] == (30, 63)
    told.clear()
    listen = lambda done, total, _loss: told.append((done, total))  # noqa: E731
    model = NetClassifier("mlp", **settings, progress=listen, random_state=RandomState(5)).fit(*rows)
    assert told[0] == (29, 63)  # after the pass that was kept: the first network is not trained again
    for name, array in get_arrays(model.module_).items():
        np.testing.assert_array_equal(array, get_arrays(three.module_)[name])


def test_warm_start_takes_each_of_them_further(rows):
    model = NetClassifier("mlp", **SETTINGS, members=2, warm_start=True).fit(*rows)
    first = get_arrays(model.module_)
    model.set_params(members=7, lr=1e-12, weight_decay=0.0).fit(*rows)  # as many as there were
    second = get_arrays(model.module_)
    assert first.keys() == second.keys()
    weights = [name for name in first if name.endswith("0.weight")]
    assert len(weights) == 2
    for name in weights:
        np.testing.assert_allclose(second[name], first[name], atol=1e-8)  # steps of 1e-12 each


@pytest.mark.parametrize(
    ("minutes", "n_examples", "networks"),
    [
        (5, 50_000, 1),
        (60, 50_000, 1),
        (89, 50_000, 1),
        (172, 50_000, 3),
        (172, 200_000, 1),  # passes of one network are few enough
        (172, 80_000, 1),
        (172, 75_000, 2),
        (600, 1_000, 5),  # no more passes than help, divided
    ],
)
def test_hours_that_one_network_has_no_use_for_go_to_others(minutes, n_examples, networks):
    assert count_networks(replace(HOURS, cpu_minutes=minutes), n_examples=n_examples, **CIFAR) == networks


def test_the_minutes_are_shared():
    images = np.zeros((6, 12, 12, 3), np.uint8)
    images[::2] = 200
    y = np.arange(6) % 2
    model = NetClassifier("fast-cnn", cpu_minutes=1e-4, hidden=8)
    one, two = (model.set_params(members=members).fit(images, y).training_.epochs for members in (1, 2))
    assert abs(one - 2 * two) <= 1  # both are rounded to whole passes


def test_a_number_of_networks_that_is_none_is_refused_before_a_charge(rows):
    for members in (0, 1.5, "two"):
        network = NetClassifier("mlp", **SETTINGS, members=members)
        with pytest.raises(LabelDPError, match="members"):
            network.check_fit(rows[0], n_classes=3)


def test_private_labels_are_learned_by_several(rows):
    model = LabelPrivateClassifier(
        NetClassifier("mlp", **SETTINGS, members=2), epsilon=4.0, classes=range(3), stages=1, random_state=0
    ).fit(*rows)
    assert len(model.estimator_.module_.members) == 2
    assert model.guarantee_.epsilon() == 4.0
