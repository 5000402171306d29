"""What `ClusterPrior` can do besides Algorithm 4: views, principal components, shrinking, and the whole budget."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from labeldp.errors import LabelDPError
from labeldp.priors import ArrayExamples, ClusterPrior, PublicPrior, UniformPrior
from labeldp.priors.base import flat_features
from labeldp.priors.cluster import cluster
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels


def table(prior, X, y, *, budget=1.0):
    return prior.table(X, SensitiveLabels(y, n_classes=3), budget=budget, key=NoiseKey.from_seed(0))


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = np.zeros((900, 40))
    X[np.arange(900), y] = 5.0
    return X + rng.normal(size=X.shape), y


def test_views_are_averaged_and_images_are_flattened():
    X = np.random.default_rng(1).normal(size=(7, 2, 5))
    assert np.array_equal(flat_features(X, n_components=None, random_state=0), X.mean(axis=1))
    images = X.reshape(7, 1, 2, 5)
    assert np.array_equal(flat_features(images, n_components=None, random_state=0), X.reshape(7, 10))


def test_views_of_an_example_give_the_clusters_of_their_mean(blobs):
    X, y = blobs
    prior = ClusterPrior(n_clusters=6)
    both = table(prior, np.stack([X + 1, X - 1], axis=1), y)
    assert np.array_equal(both.rows, table(prior, (X + 1 + X - 1) / 2, y).rows)


def test_components_keep_what_varies_most(blobs):
    X, _ = blobs
    few = flat_features(X, n_components=2, random_state=0)
    assert few.shape == (900, 2)
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    np.testing.assert_allclose(few.var(axis=0, ddof=1), values[:2], rtol=1e-3)  # randomized, with a clear gap
    assert flat_features(X, n_components=40, random_state=0) is X
    sparse = scipy.sparse.csr_matrix(X)
    assert flat_features(sparse, n_components=2, random_state=0) is sparse
    with pytest.raises(LabelDPError, match="`n_components` must be an integer"):
        flat_features(X, n_components=0, random_state=0)


def test_shrinking_is_what_it_says_and_takeschoose_noise_nothing(blobs):
    X, y = blobs
    groups = np.arange(900) % 30  # clusters that know nothing: 10 of each class, noise of scale 20
    plain, shrunk = (table(ClusterPrior(groups=groups, epsilon=0.1, shrink=s), X, y, budget=1.0) for s in (0.0, 0.5))
    again = table(ClusterPrior(groups=groups, epsilon=0.1, shrink=1e-12), X, y, budget=1.0)
    assert (shrunk.rows > 0).all()  # half a count for everyone
    assert (plain.rows == 0).any()
    # With next to nothing taken off only the half counts remain, which a tenth of a share hides at these sizes.
    assert np.abs(again.rows - plain.rows).max() < 0.35
    assert shrunk.guarantee == plain.guarantee
    with pytest.raises(LabelDPError, match="`shrink` must be >= 0"):
        table(ClusterPrior(groups=groups, shrink=-1.0), X, y)


def test_shrinking_by_hand(monkeypatch):
    prior = ClusterPrior(groups=[0], shrink=0.5)
    # epsilon 0.1 has scale 20: 10 is taken off, what is below 0 is nothing, and half a count is added.
    assert prior._shrink(np.array([[100, 12, -30]]), 0.1).tolist() == [[90.5, 2.5, 0.5]]


def test_full_steps_make_tighter_clusters(blobs):
    X, _ = blobs

    def spread(steps):
        groups = cluster(X, n_clusters=30, random_state=0, full_steps=steps)
        return sum(((X[groups == g] - X[groups == g].mean(axis=0)) ** 2).sum() for g in np.unique(groups))

    assert spread(12) < spread(0)  # k-means steps never make it larger
    with pytest.raises(LabelDPError, match="`full_steps` must be an integer"):
        table(ClusterPrior(n_clusters=5, full_steps=-1), X, np.arange(900) % 3)


def test_the_whole_budget_and_no_more(blobs):
    X, y = blobs
    alone = ClusterPrior(n_clusters=5).alone()
    assert alone.cost(0.7, n_examples=900, n_classes=3) == 0.7
    prepared = alone.prepare(ArrayExamples(X, SensitiveLabels(y, n_classes=3)), budget=0.7)
    assert prepared.cost(0.7, n_examples=900, n_classes=3) == 0.7
    assert table(prepared, X, y, budget=0.7).guarantee.epsilon() == 0.7
    told = ClusterPrior(n_clusters=5, epsilon=0.2)
    assert told.alone() is told
    for free in (UniformPrior(), PublicPrior([0.2, 0.3, 0.5])):
        assert free.alone() is free
