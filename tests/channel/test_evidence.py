"""Evidence: some rows at a time are what all rows at once would be, memory is asked for before it is taken, no label is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

import labeldp
from labeldp.channel import ArcChannel, Evidence, LazyRows, MatrixChannel
from labeldp.channel.evidence import is_flat, join_rows, keep_small, make_rows
from labeldp.errors import LabelDPError

K = 23


def release_of(kind: str, n: int = 90) -> labeldp.Release:
    rng = np.random.default_rng(5)
    labels = labeldp.SensitiveLabels(rng.integers(0, K, n), classes=range(K))
    prior = rng.dirichlet(np.ones(K), size=n)
    if kind == "arcs":
        return labeldp.privatize(labels, labeldp.InformativeResponse(1.0), rng=1)
    if kind == "sets":
        return labeldp.privatize(labels, labeldp.InformativeResponse(1.0), prior=prior, rng=1)
    if kind == "candidates":
        return labeldp.privatize(labels, labeldp.RRWithPrior(1.0), prior=prior, rng=1)
    return labeldp.privatize(labels, labeldp.RandomizedResponse(1.0), rng=1)


KINDS = ("arcs", "sets", "candidates", "labels")


@pytest.mark.parametrize("kind", KINDS)
def test_some_rows_are_those_of_the_whole_array(kind):
    release = release_of(kind)
    whole = release.channel.likelihood(release.codes)
    evidence = Evidence(release.codes, release.channel)
    assert evidence.shape == whole.shape
    assert len(evidence) == len(release)
    some = np.array([7, 3, 88, 3])
    for rows in (slice(10, 20), slice(None), slice(80, 200), slice(None, None, 7), some):
        assert np.array_equal(evidence.make(rows), whole[rows])
        assert np.array_equal(evidence[rows].make(slice(None)), whole[rows])
    assert np.array_equal(evidence[some][1:3].make(np.array([1, 0])), whole[some][1:3][[1, 0]])
    assert np.array_equal(np.concatenate(list(evidence)), whole)
    assert np.array_equal(np.asarray(evidence), whole)


def test_rows_of_several_sources_follow_each_other():
    first, second = release_of("arcs"), release_of("labels")
    arrays = [one.channel.likelihood(one.codes) for one in (first, second)]
    lazy = Evidence(first.codes, first.channel)
    joined = join_rows([lazy, arrays[1]])
    assert isinstance(joined, LazyRows)
    rows = np.array([179, 0, 90, 89])
    assert np.array_equal(make_rows(joined, rows), np.concatenate(arrays)[rows])
    assert np.array_equal(join_rows(arrays), np.concatenate(arrays))
    assert join_rows([lazy]) is lazy


def test_what_is_small_is_an_array_and_what_is_large_is_not_made():
    release = release_of("arcs")
    assert isinstance(keep_small(Evidence(release.codes, release.channel)), np.ndarray)
    many = np.broadcast_to(np.uint16(0), (10**6,))
    evidence = Evidence(many, ArcChannel(odds=1.0, size=3, n_classes=10_000))
    assert keep_small(evidence) is evidence


def test_an_array_that_no_machine_holds_is_refused_with_an_estimate():
    rows = np.broadcast_to(np.uint16(0), (10**12,))  # one number in memory
    evidence = Evidence(rows, ArcChannel(odds=1.0, size=3, n_classes=10_000))
    with pytest.raises(LabelDPError, match=r"1,000,000,000,000 rows of 10,000 classes .* need 80,000,000.0 GB"):
        np.asarray(evidence)
    assert evidence.make(slice(5, 6)).shape == (1, 10_000)


def test_codes_for_another_number_of_rows_are_refused():
    channel = MatrixChannel([np.eye(2), np.eye(2)], index=[0, 1, 1])
    with pytest.raises(LabelDPError, match="one entry for each example"):
        Evidence(np.zeros(2, np.uint8), channel)


def test_it_holds_what_was_released_and_nothing_else():
    release = release_of("sets")
    evidence = Evidence(release.codes, release.channel)
    assert vars(evidence) == {"codes": release.codes, "channel": release.channel, "shape": (90, K)}
    # What the draw was made from (blocks, prior) is gone with the channel of the draw; nothing has a row of raw labels.
    assert type(release.channel).__name__ == "SetChannel"
    assert "90 rows of 23 classes" in repr(evidence)


def test_a_flat_prior_is_known_without_making_it():
    assert is_flat(np.broadcast_to(np.full((1, 5), 0.2), (10**12, 5)))
    assert not is_flat(np.array([[0.2, 0.8]]))
    assert not is_flat(Evidence(np.zeros(3, np.uint16), ArcChannel(odds=math.expm1(1.0), size=3, n_classes=10)))


# ---------------------------------------------------------------------------------------- priors that are made row by row


class Made(LazyRows):
    """Rows of an array, one request after the other; it remembers how many were asked for at once."""

    def __init__(self, array):
        self.array, self.shape, self.most = array, array.shape, 0

    def make(self, rows):
        found = self.array[rows]
        self.most = max(self.most, len(found))
        return found


@pytest.mark.parametrize("k", [8, 40])
@pytest.mark.parametrize("mechanism", [labeldp.InformativeResponse(1.0), labeldp.RRWithPrior(1.0)])
def test_a_lazy_prior_draws_what_the_array_draws(k, mechanism):
    rng = np.random.default_rng(2)
    labels = labeldp.SensitiveLabels(rng.integers(0, k, 300), classes=range(k))
    prior = rng.dirichlet(np.ones(k), size=300)
    array = labeldp.privatize(labels, mechanism, prior=prior, rng=3)
    lazy = labeldp.privatize(labels, mechanism, prior=Made(prior), rng=3)
    assert np.array_equal(array.codes, lazy.codes)
    assert array.channel.header() == lazy.channel.header()
    assert lazy.guarantee == array.guarantee


def test_a_lazy_prior_of_many_classes_is_never_whole():
    rng = np.random.default_rng(2)
    prior = Made(rng.dirichlet(np.ones(60_000), size=100).astype(np.float32).astype(np.float64))
    prior.array /= prior.array.sum(axis=1, keepdims=True)
    labels = labeldp.SensitiveLabels(rng.integers(0, 60_000, 100), n_classes=60_000)
    labeldp.privatize(labels, labeldp.InformativeResponse(2.0), prior=prior, rng=3)
    assert prior.most <= (1 << 20) // 60_000  # `SPAN_CELLS` of labeldp.channel.finite


def test_a_bad_row_of_a_lazy_prior_is_named_before_the_charge(tmp_path):
    prior = np.full((30_000, 40), 1 / 40)
    prior[29_000, 3] = -1.0
    labels = labeldp.SensitiveLabels(np.zeros(30_000, int), classes=range(40))
    ledger = labeldp.Ledger(tmp_path / "ledger", budget=10.0)
    with pytest.raises(LabelDPError, match="row 29000"):
        labeldp.privatize(labels, labeldp.InformativeResponse(1.0), prior=Made(prior), ledger=ledger)
    assert not ledger.entries()


def test_one_row_that_stands_for_all_is_kept_once_and_draws_the_same():
    row = np.random.default_rng(4).dirichlet(np.ones(40))
    labels = labeldp.SensitiveLabels(np.arange(200) % 40, classes=range(40))
    repeated = labeldp.privatize(labels, labeldp.InformativeResponse(1.0), prior=np.broadcast_to(row, (200, 40)), rng=1)
    copied = labeldp.privatize(labels, labeldp.InformativeResponse(1.0), prior=np.tile(row, (200, 1)), rng=1)
    assert np.array_equal(repeated.codes, copied.codes)


# ------------------------------------------------------------------------------------------------------------ bad lists


def test_more_classes_than_are_supported_are_refused():
    with pytest.raises(LabelDPError, match="65536"):
        labeldp.InformativeResponse(1.0, n_classes=65_537)
    labels = labeldp.SensitiveLabels(np.zeros(3, int), n_classes=70_000)
    with pytest.raises(LabelDPError, match="65536"):
        labeldp.privatize(labels, labeldp.InformativeResponse(1.0))


def test_a_class_twice_in_a_long_list_is_refused_by_its_place():
    classes = [f"intent {i}" for i in range(10_000)]
    classes[7_000] = "intent 12"
    with pytest.raises(LabelDPError, match="7000") as caught:
        labeldp.SensitiveLabels(["intent 3"], classes=classes)
    assert "intent 12" not in str(caught.value)
