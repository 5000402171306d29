"""One release, however it is cut: batches, pieces, threads, memory order and layout do not change a single label."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from labeldp.mechanisms import RandomizedResponse, RRTopK, RRWithPrior
from labeldp.mechanisms.response import find_distinct_rows
from labeldp.random import NoiseKey
from labeldp.release import SensitiveLabels, privatize
from labeldp.release.door import STEP

CLASSES = (2, 10, 64, 65, 100, 1000)
MECHANISMS = (RRWithPrior(1.0), RRTopK(1.0, k=2))


def case(n_classes: int, dtype: type = np.float64) -> tuple[SensitiveLabels, np.ndarray]:
    """Return labels and a prior per example; the number of examples is no multiple of 64."""
    n = 331 if n_classes < 1000 else 131
    generator = np.random.default_rng(n_classes)
    rows = generator.gamma(0.3, size=(n, n_classes)) + 1e-9
    labels = SensitiveLabels(generator.integers(0, n_classes, n), n_classes=n_classes)
    return labels, (rows / rows.sum(axis=1, keepdims=True)).astype(dtype)


def cut(n: int, size: int) -> list[slice]:
    return [slice(low, min(low + size, n)) for low in range(0, n, size)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_classes", CLASSES)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_streamed_priors_give_the_same_labels(mechanism: RRWithPrior | RRTopK, n_classes: int, dtype: type):
    labels, prior = case(n_classes, dtype)
    whole = privatize(labels, mechanism, prior=prior, rng=0)
    for size in (1, 100, len(prior)):
        streamed = privatize(labels, mechanism, prior=(prior[part] for part in cut(len(prior), size)), rng=0)
        np.testing.assert_array_equal(streamed.channel.members, whole.channel.members)
        np.testing.assert_array_equal(streamed.channel.sizes, whole.channel.sizes)
        np.testing.assert_array_equal(streamed.codes, whole.codes)
    listed = privatize(labels, mechanism, prior=[prior[part] for part in cut(len(prior), 100)], rng=0)
    np.testing.assert_array_equal(listed.codes, whole.codes)


@pytest.mark.parametrize("n_classes", CLASSES)
def test_pieces_under_one_key_are_the_whole(n_classes: int):
    labels, prior = case(n_classes)
    key = NoiseKey.from_seed(3)
    whole = privatize(labels, RRWithPrior(1.0), prior=prior, rng=key).codes
    for size in (7, 100, len(prior)):
        pieces = [
            privatize(labels.take(p), RRWithPrior(1.0), prior=prior[p], rng=key, start=p.start).codes
            for p in cut(len(prior), size)
        ]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    shifted = privatize(labels, RRWithPrior(1.0), prior=prior, rng=key, start=1).codes
    assert not np.array_equal(shifted, whole)  # the position matters: another start is other noise


@pytest.mark.parametrize("n_classes", CLASSES)
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_threads_do_not_change_labels(mechanism: RRWithPrior | RRTopK, n_classes: int, monkeypatch: pytest.MonkeyPatch):
    labels, prior = case(n_classes)
    whole = privatize(labels, mechanism, prior=prior, rng=1).codes
    # Small spans, so that even these few rows are divided among the threads.
    monkeypatch.setattr("labeldp.release.door.STEP", 50)
    monkeypatch.setattr("labeldp.mechanisms.response.ENTRIES", 1)
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("LABELDP_THREADS", threads)
        np.testing.assert_array_equal(privatize(labels, mechanism, prior=prior, rng=1).codes, whole)


@pytest.mark.parametrize("n_classes", [2, 10, 65])
def test_memory_order_does_not_change_labels(n_classes: int):
    labels, prior = case(n_classes)
    padded = np.zeros((len(prior), n_classes + 3))
    padded[:, :n_classes] = prior
    plain = privatize(labels, RRWithPrior(1.0), prior=prior, rng=0).codes
    for other in (np.asfortranarray(prior), padded[:, :n_classes], prior[::-1][::-1]):
        np.testing.assert_array_equal(privatize(labels, RRWithPrior(1.0), prior=other, rng=0).codes, plain)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_groups_and_rows_describe_the_same_channel(mechanism: RRWithPrior | RRTopK):
    _, prior = case(10)
    groups = np.arange(50) % 4
    by_group = mechanism.channel(prior[:4], groups=groups)
    by_example = mechanism.channel(prior[:4][groups])
    alone = [mechanism.channel(row) for row in prior[:4]]
    for i in range(8):
        np.testing.assert_array_equal(by_group.matrix(i), by_example.matrix(i))
        np.testing.assert_array_equal(alone[i % 4].matrix(), by_example.matrix(i))


@pytest.mark.parametrize("n", [0, 1, 50])
def test_distinct_rows_are_those_of_numpy(n: int):
    rows = np.random.default_rng(2).integers(0, 2, (n, 3)) / 4
    distinct, index = np.unique(rows, axis=0, return_inverse=True)
    found, places = find_distinct_rows(rows)
    np.testing.assert_array_equal(found, distinct)
    np.testing.assert_array_equal(places, index.reshape(-1))


def test_pieces_across_the_steps_of_the_door():
    n = STEP + 1003
    labels = SensitiveLabels(np.arange(n) % 2, n_classes=2)
    whole = privatize(labels, RandomizedResponse(1.0), rng=9).codes
    edges = [0, 7, STEP - 1, STEP + 64, n]
    parts = [
        privatize(labels.take(slice(a, b)), RandomizedResponse(1.0), rng=9, start=a).codes
        for a, b in itertools.pairwise(edges)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
