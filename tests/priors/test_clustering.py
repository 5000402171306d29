"""Clusters without labels: their sizes, their merging, new rows, and phi."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.cluster import DBSCAN, AgglomerativeClustering, Birch, KMeans
from sklearn.mixture import GaussianMixture

import labeldp
from labeldp.errors import LabelDPError
from labeldp.priors import cluster_features, heterogeneity, public_heterogeneity
from labeldp.priors.cluster import cluster, merge_small
from labeldp.priors.cluster import cluster as cluster_of_the_prior


def blobs(sizes=(60, 50, 40), *, seed=0, spread=0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(10.0 * k, spread, (size, 2)) for k, size in enumerate(sizes)])


def test_there_is_one_version_of_the_default():
    X = blobs()
    assert cluster_of_the_prior is cluster
    np.testing.assert_array_equal(cluster_features(X, n_clusters=7).groups, cluster(X, n_clusters=7, random_state=0))


@pytest.mark.parametrize(
    "clusterer",
    [
        KMeans(3, n_init=3, random_state=0),
        Birch(n_clusters=3),
        AgglomerativeClustering(3),
        DBSCAN(eps=2.0),
        GaussianMixture(3, random_state=0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_clusterer_finds_the_blobs_and_places_new_rows(clusterer):
    X = blobs()
    found = cluster_features(X, clusterer=clusterer)
    assert sorted(found.sizes.tolist()) == [40, 50, 60]
    assert (found.merged, found.noise, found.empty) == (0, 0, 0)
    np.testing.assert_array_equal(np.bincount(found.groups), found.sizes)
    np.testing.assert_array_equal(found.assign(X), found.groups)
    np.testing.assert_array_equal(found.assign([[0.0, 0.0], [20.0, 20.0]]), found.groups[[0, -1]])
    assert not hasattr(clusterer, "labels_")  # the caller's own was cloned


def test_small_clusters_are_merged_into_the_nearest_and_it_shows():
    X = np.concatenate([blobs((50, 50)), [[12.0, 12.0], [12.1, 12.0], [-3.0, -3.0]]])
    found = cluster_features(X, clusterer=KMeans(4, n_init=10, random_state=0), min_size=10)
    assert sorted(found.sizes.tolist()) == [51, 52]
    assert found.merged == 2
    assert "2 merged" in repr(found)
    assert found.groups[100] == found.groups[101] == found.groups[99]
    assert found.groups[102] == found.groups[0]
    np.testing.assert_array_equal(found.assign(X), found.groups)
    for k in range(2):
        np.testing.assert_allclose(found.centroids[k], X[found.groups == k].mean(axis=0), rtol=1e-12)  # two sums


def merged_by_hand(centroids, sizes, min_size):
    """The same rule on sets of clusters, means taken anew from all members."""
    sets = [[k] for k in range(len(sizes))]

    def size(members):
        return sum(sizes[k] for k in members)

    def mean(members):
        return sum(sizes[k] * centroids[k] for k in members) / size(members)

    while len(sets) > 1 and min(map(size, sets)) < min_size:
        small = min(sets, key=size)
        sets.remove(small)
        near = min(sets, key=lambda other: ((mean(other) - mean(small)) ** 2).sum())
        near.extend(small)
    return {frozenset(members) for members in sets}


@given(st.integers(1, 8), st.integers(1, 300), st.integers(0, 10_000))
def test_merging_equals_the_rule_by_hand(n_clusters: int, min_size: int, seed: int):
    rng = np.random.default_rng(seed)
    centroids = rng.normal(size=(n_clusters, 3))
    sizes = rng.permutation(2 ** np.arange(n_clusters))  # sums of distinct powers never tie
    home = merge_small(centroids, sizes, min_size=min_size)
    after = np.bincount(home, weights=sizes)
    assert len(after) == 1 or after.min() >= min_size
    assert sorted(set(home.tolist())) == list(range(len(after)))
    by_set = {frozenset(np.flatnonzero(home == k).tolist()) for k in range(len(after))}
    assert by_set == merged_by_hand(centroids, sizes, min_size)


def test_noise_goes_to_the_nearest_centroid_and_is_counted():
    X = np.concatenate([blobs((50, 50)), [[5.2, 5.2], [-40.0, 0.0]]])
    found = cluster_features(X, clusterer=DBSCAN(eps=1.5))
    assert found.noise == 2
    assert "2 rows of noise" in repr(found)
    assert found.groups[100] == found.groups[50]
    assert found.groups[101] == found.groups[0]


def test_all_noise_is_an_error():
    with pytest.raises(LabelDPError, match=r"`clusterer` must find a cluster, got noise in all 100 rows.*eps"):
        cluster_features(blobs((50, 50)), clusterer=DBSCAN(eps=1e-6))


def test_empty_clusters_are_renumbered_and_counted_and_new_rows_still_find_a_home():
    class Gappy(KMeans):
        """Puts a centre where no training row is."""

        def fit_predict(self, X, y=None, sample_weight=None):
            found = super().fit_predict(X)
            self.cluster_centers_ = np.vstack([self.cluster_centers_, [[100.0, 100.0]]])
            return found

        def predict(self, X):
            return np.argmin(((np.asarray(X)[:, None] - self.cluster_centers_) ** 2).sum(axis=2), axis=1)

    found = cluster_features(blobs(), clusterer=Gappy(3, n_init=3, random_state=0))
    assert found.assign([[99.0, 99.0]])[0] == found.groups[-1]
    few = cluster_features(np.repeat([[0.0], [5.0]], 10, axis=0), clusterer=DoubleCentre())
    assert (few.n_clusters, few.empty) == (2, 1)
    assert "1 empty" in repr(few)


class DoubleCentre(DBSCAN):
    """Says it has three clusters and uses numbers 0 and 2."""

    n_clusters = 3

    def fit_predict(self, X, y=None):
        return np.where(np.asarray(X)[:, 0] > 2, 2, 0)


def test_an_unknown_cluster_at_prediction_is_an_error():
    class Strange(KMeans):
        def predict(self, X):
            return np.full(len(X), 7)

    found = cluster_features(blobs(), clusterer=Strange(3, n_init=3, random_state=0))
    with pytest.raises(LabelDPError, match=r"must be known clusters, got 7 \(2 rows are of no known cluster\)"):
        found.assign([[0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(LabelDPError, match=r"must be known clusters, 0 .. 2, got 3"):
        found.check([0, 3])
    with pytest.raises(LabelDPError, match=r"must be known clusters, 0 .. 2, got -1"):
        found.check([-1])
    with pytest.raises(LabelDPError, match="be integers, one per row"):
        found.check([0.5])
    np.testing.assert_array_equal(found.check([2, 0]), [2, 0])


def test_sparse_rows_give_what_dense_rows_give():
    X = blobs()
    dense, sparse = (cluster_features(rows, n_clusters=5, min_size=30) for rows in (X, csr_array(X)))
    assert sorted(dense.sizes.tolist()) == sorted(sparse.sizes.tolist())
    assert dense.sizes.min() >= 30
    np.testing.assert_array_equal(sparse.assign(csr_array(X)), sparse.groups)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"n_clusters": 5},
            "`n_clusters` must be an integer in [1, 4], got 5. There cannot be more clusters than rows.",
        ),
        ({"n_clusters": None}, "`n_clusters` must be an integer in [1, 4], got None"),
        ({"n_clusters": 0}, "`n_clusters` must be an integer in [1, 4]"),
        ({"n_clusters": None, "clusterer": KMeans(9)}, "`clusterer.n_clusters` must be an integer in [1, 4], got 9"),
        ({"clusterer": KMeans(2)}, "`n_clusters` must be left out when a clusterer is given, got 2"),
        ({"n_clusters": None, "clusterer": 3}, "`clusterer` must have `fit_predict`"),
        ({"min_size": 5}, "`min_size` must be at most the number of rows, 4, got 5"),
        ({"min_size": 0}, "`min_size` must be an integer >= 1"),
        ({"X": [1.0, 2.0]}, "`X` must be a matrix of finite numbers"),
        ({"X": [[np.nan], [1.0]]}, "`X` must be a matrix of finite numbers"),
        ({"X": [["a"], ["b"]]}, "`X` must be a matrix of finite numbers"),
    ],
)
def test_bad_input_is_answered_clearly(change, words):
    given_ = {"X": np.arange(8.0).reshape(4, 2), "n_clusters": 2, **change}
    with pytest.raises(LabelDPError, match=re.escape(words)):
        cluster_features(given_.pop("X"), **given_)


def test_new_rows_need_the_same_columns():
    with pytest.raises(LabelDPError, match="`X_new` must have 2 columns"):
        cluster_features(blobs(), n_clusters=3).assign([[1.0]])


def test_clusters_serve_the_mechanism():
    found = cluster_features(blobs(), n_clusters=12, min_size=30)
    labels = (blobs()[:, 0] > 5).astype(int)
    release = labeldp.privatize(labels, labeldp.ClusterRR(8.0), groups=found.groups, rng=0)
    estimate = heterogeneity(release.channel.base, found.sizes)
    # The blobs determine the labels, so phi is 0; the floor of tau = 0.05 leaves at most 4 * 0.05 * 0.95 = 0.19, and
    # counts of at least 30 with noise of rate 4 move shares by less than 0.1 here (seeded).
    assert 0 <= estimate < 0.4
    assert public_heterogeneity(public_labels=labels, groups=found.groups) == 0.0


def test_public_labels_bound_phi_and_do_not_show_it():
    """Coins that no feature informs: p(y | X) = p(y | c), so phi is 0, and what labels alone can say is 1."""
    labels = np.random.default_rng(0).integers(0, 2, 10_000)
    groups = np.arange(10_000) % 4
    assert 0.99 < public_heterogeneity(public_labels=labels, groups=groups) <= 1.0


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 4))
def test_phi_bounds_the_definition_and_meets_it_when_features_determine_labels(
    seed: int, n_groups: int, n_classes: int
):
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, 30)])
    rows = rng.dirichlet(np.full(n_classes, 0.5), len(groups))  # p(y | X) of each example, X uniform on them
    sizes = np.bincount(groups)
    shares = np.stack([rows[groups == c].mean(axis=0) for c in range(n_groups)])
    exact = np.abs(rows - shares[groups]).sum(axis=1).mean()
    assert exact <= heterogeneity(shares, sizes) + 1e-12  # rounding of sums of at most 2
    labels = rng.integers(0, n_classes, len(groups))
    certain = np.eye(n_classes)[labels]
    shares = np.stack([certain[groups == c].mean(axis=0) for c in range(n_groups)])
    exact = np.abs(certain - shares[groups]).sum(axis=1).mean()
    assert heterogeneity(shares, sizes) == pytest.approx(exact, abs=1e-12)
    assert public_heterogeneity(public_labels=labels, groups=groups) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: heterogeneity([[0.5, 0.6]], [3]), "rows of probabilities"),
        (lambda: heterogeneity([[0.5, 0.5]], [3, 4]), "`sizes` must be counts"),
        (lambda: heterogeneity([[0.5, 0.5]], [0]), "`sizes` must be counts"),
        (lambda: heterogeneity([[0.5, 0.5]], [0.5]), "`sizes` must be counts"),
        (lambda: public_heterogeneity(public_labels=[0, 1], groups=[0]), "`groups` must be integers from 0"),
        (lambda: public_heterogeneity(public_labels=[], groups=[]), "`groups` must be integers from 0"),
    ],
)
def test_phi_of_nonsense_is_an_error(call, words):
    with pytest.raises(LabelDPError, match=words):
        call()
