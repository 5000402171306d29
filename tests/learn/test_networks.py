"""The recipes with a network: views in, the same model at the receiver, and moments in stages."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labeldp import RandomizedResponse, load_release, privatize
from labeldp.learn import LabelPrivateClassifier, SufficientStatistics
from labeldp.release import SensitiveLabels

pytest.importorskip("torch")

from labeldp.nn import NetClassifier


@pytest.fixture(scope="module")
def views() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    X = np.eye(8)[y] * 3.0 + rng.normal(size=(1500, 8))
    return np.stack([X, X[:, ::-1]], axis=1).astype(np.float32), y


def network(**changes):
    return NetClassifier("mlp", **{"hidden": 16, "epochs": 3, "batch_size": 128, "mixup": 1.0, **changes})


@pytest.mark.parametrize("epsilon", [0.2, 0.8, 2.0])
def test_the_receiver_ends_with_the_owners_network(views, tmp_path, epsilon):
    X, y = views
    settings = {"trust": "curator", "final_params": {"hidden": 32, "epochs": 4}}
    owner = LabelPrivateClassifier(network(), epsilon=epsilon, random_state=0, **settings).fit(X, y)
    owner.release_.save(tmp_path / "release")
    receiver = LabelPrivateClassifier(network(), **settings).fit_release(X, load_release(tmp_path / "release"))
    assert np.array_equal(owner.predict_proba(X), receiver.predict_proba(X))
    assert owner.estimator_.hidden == 32
    assert owner.score(X, y) > 0.75  # seeded; 0.97 can be had from true labels


def test_a_network_has_rounds_of_em_after_its_stages(views):
    X, y = views
    model = LabelPrivateClassifier(network(epochs=8), epsilon=3.0, stages=2, random_state=0).fit(X, y)
    assert (model.correction_, model.rounds_) == ("em", 2)  # answers of so few rows are pooled first
    assert model.guarantee_.epsilon() == 3.0
    assert model.score(X, y) > 0.8
    assert not model.estimator_.warm_start  # as the user has it
    assert (
        LabelPrivateClassifier(network(epochs=1), epsilon=3.0, correction="em", random_state=0).fit(X, y).rounds_ == 6
    )


def test_moments_in_stages(views):
    X, y = views
    model = SufficientStatistics(
        epsilon=1.0, clip="unit-norm", stages=2, network=network(), stage_params=[{"mixup": 0.0}, {"mixup": 1.0}],
        classes=[0, 1, 2], random_state=0,
    ).fit(X, y)  # fmt: skip
    assert model.score(X, y) > 0.7  # seeded; chance is 1/3
    assert model.guarantee_.epsilon(1e-5) <= 1.0
    assert model.network_.mixup == 1.0


def test_a_network_knows_the_classes_of_which_no_label_is_left():
    """As after the filter of a stage: fitted on plain labels it would know two, and the next stage could not go on from it."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    labels = SensitiveLabels(np.arange(60) % 2, n_classes=3)  # nobody has the third class
    release = privatize(labels, RandomizedResponse(math.inf, n_classes=3))
    model = LabelPrivateClassifier(network(warm_start=True), correction="none").fit_release(X, release)
    assert model.estimator_.classes_.tolist() == [0, 1, 2]
    assert model.predict_proba(X).shape == (60, 3)
