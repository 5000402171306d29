"""What a network would refuse whatever the labels are is refused before the ledger is charged."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from labeldp import Ledger
from labeldp.errors import LabelDPError
from labeldp.learn import LabelPrivateClassifier, PrivateSearchCV, SufficientStatistics
from labeldp.nn import NetClassifier

N = 60
CLASSES = [0, 1, 2]


def frozen():
    return nn.Linear(4, 3).requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    return {
        "rows": generator.normal(size=(N, 4)),
        "images": generator.integers(0, 255, (N, 12, 12), dtype=np.uint8),
        "small images": generator.integers(0, 255, (N, 6, 6), dtype=np.uint8),
        "y": generator.integers(0, 3, N),
    }


@pytest.fixture
def refused(tmp_path, data):
    def refuse(learner, kind, *, match, error=LabelDPError):
        ledger = Ledger(tmp_path / "ledger.sqlite", budget=10.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(error, match=match):
                learner.set_params(ledger=ledger).fit(data[kind], data["y"])
        assert ledger.remaining("labels") == 10.0

    return refuse


NETWORKS = {
    "module": ("mlpp", {}, "rows", "`module`"),
    "dropout": ("mlp", {"dropout": 1.5}, "rows", "`dropout`"),
    "device that is not here": ("mlp", {"device": "cuda:99"}, "rows", "`device`"),
    "device": ("mlp", {"device": "zzz"}, "rows", "`device`"),
    "progress": ("mlp", {"progress": "yes"}, "rows", "`progress`"),
    "checkpoint": ("mlp", {"checkpoint": __file__}, "rows", "`checkpoint`"),
    "checkpoint in a file": ("mlp", {"checkpoint": f"{__file__}/deeper"}, "rows", "`checkpoint`"),
    "checkpoint that is no path": ("mlp", {"checkpoint": 17}, "rows", "`checkpoint`"),
    "outputs": (nn.Linear(4, 5), {}, "rows", "logits"),
    "inputs": (nn.Linear(7, 3), {}, "rows", "what the module takes"),
    "callable": (lambda **_: None, {}, "rows", "`module`"),
    "no network": (17, {}, "rows", "`module`"),
    "nothing to train": (frozen(), {}, "rows", "weights to train"),
    "rows for images": ("small-cnn", {}, "rows", "8 x 8"),
    "image_shape": ("small-cnn", {"image_shape": (3, 3)}, "rows", "`image_shape`"),
    "pairs": ("ncf", {}, "rows", "user and item"),
    "pretrain": ("mlp", {"pretrain": 3}, "rows", "`pretrain`"),
    "precision": ("mlp", {"precision": "float16"}, "rows", "`precision`"),
    "random_state": ("mlp", {"random_state": "x"}, "rows", "`random_state`"),
    "hidden": ("mlp", {"hidden": -1}, "rows", "`hidden`"),
    "small images": ("fast-cnn", {"epochs": 1}, "small images", "10 x 10"),
    "groups": ("fast-cnn", {"epochs": 1, "pretrain": N}, "images", "`pretrain`"),
    "width": ("fast-cnn", {"epochs": 1, "hidden": -1}, "images", "`hidden`"),
    "kept in a file": ("fast-cnn", {"epochs": 1, "checkpoint": __file__}, "images", "`checkpoint`"),
}


@pytest.mark.parametrize("epsilon", [1.0, 8.0])  # with a quick reader for images, and without
@pytest.mark.parametrize("name", NETWORKS)
def test_settings_of_a_network_cost_nothing(refused, name, epsilon):
    module, settings, kind, match = NETWORKS[name]
    learner = LabelPrivateClassifier(NetClassifier(module, **settings), epsilon=epsilon, classes=CLASSES)
    refused(learner, kind, match=match)


def test_parameters_of_stages_cost_nothing(refused):
    learner = LabelPrivateClassifier(NetClassifier(epochs=1), stage_params=[{}, {"dropout": 2.0}], classes=CLASSES)
    refused(learner, "rows", match="`dropout`")


@pytest.mark.parametrize(
    "settings", [{"network": NetClassifier(dropout=2.0)}, {"stage_params": [{}, {"dropout": 2.0}]}]
)
def test_a_network_behind_moments_costs_nothing(refused, settings):
    made = {
        "network": NetClassifier(epochs=1),
        "stages": 2,
        "epsilon": 1.0,
        "delta": 1e-6,
        "clip": "unit-norm",
        "classes": CLASSES,
        **settings,
    }
    refused(SufficientStatistics(**made), "rows", match="`dropout`")


def test_a_first_stage_of_one_example_costs_nothing(refused):
    learner = LabelPrivateClassifier(NetClassifier(epochs=1), stages=(0.01, 0.99), classes=CLASSES)
    refused(learner, "rows", match="two examples")


def test_numbers_beyond_short_floats_cost_nothing(refused, data, monkeypatch):
    far = data["rows"].copy()
    far[-1, 0] = 1e300
    monkeypatch.setitem(data, "far", far)
    learner = LabelPrivateClassifier(NetClassifier(epochs=1), classes=CLASSES)
    refused(learner, "far", match="too large", error=ValueError)  # scikit-learn's own


def test_points_of_a_grid_cost_nothing(refused):
    grid = {"dropout": [0.1, 1.5]}
    refused(PrivateSearchCV(NetClassifier(epochs=1), grid, cv=2, classes=CLASSES), "rows", match="`dropout`")


def test_a_rehearsal_draws_writes_and_shows_nothing(data, tmp_path, capsys):
    seed = np.random.RandomState(5)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    network = NetClassifier(module, random_state=seed, checkpoint=tmp_path / "kept", progress=True, epochs=1)
    before, own = torch.get_rng_state(), {name: value.clone() for name, value in module.state_dict().items()}
    network.check_fit(data["rows"], n_classes=3)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, own[name]) for name, value in module.state_dict().items())
    assert module.training
    assert seed.randint(1 << 30) == np.random.RandomState(5).randint(1 << 30)
    assert not (tmp_path / "kept").exists()
    assert not hasattr(network, "n_features_in_")
    assert capsys.readouterr() == ("", "")


def test_a_dataset_that_draws_is_left_where_it_was():
    """Transforms of people draw from torch, NumPy and Python: what they draw in a fit is the same without a rehearsal."""

    class Shaken(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, row):
            return torch.rand(4) + np.random.rand() + random.random(), row % 3

    network = NetClassifier(nn.Linear(4, 3), epochs=1)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    network.check_fit(Shaken(), n_classes=3)
    after = torch.get_rng_state(), np.random.get_state(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1][2] == after[1][2]
    assert np.array_equal(before[1][1], after[1][1])
    assert before[2] == after[2]
