"""Rates from a channel's rows equal those from every example's matrix; lines against epsilon equal the mechanisms'."""

from __future__ import annotations

import math

import numpy as np
import pytest

import labeldp
from labeldp.channel import Channel, MatrixChannel
from labeldp.guarantee import Guarantee
from labeldp.release import Release
from labeldp.report import rates as rates_module
from labeldp.report.rates import accuracy_against_epsilon, evenly_spaced, rates, representatives

N, K = 60, 4
#: Sums of some hundred doubles of size 1, in another order.
CLOSE = 1e-12


def released(channel, *, prior=None):
    rng = np.random.default_rng(1)
    extra = {} if prior is None else {"prior": prior, "prior_index": rng.integers(0, len(prior), N)}
    return Release(
        codes=rng.integers(0, K, N).astype(np.uint8),
        classes=tuple("abcd"),
        channel=channel,
        guarantee=Guarantee.pure(9.0),
        mechanism="m",
        seeded=False,
        **extra,
    )


def channels():
    rng = np.random.default_rng(2)
    base, index = rng.dirichlet(np.ones(K), 5), rng.integers(0, 5, N)
    prior = rng.dirichlet(np.ones(K), N)
    return {
        "one row": Channel(keep=0.3, base=base[0]),
        "rows": Channel(keep=rng.random(5), base=base, index=index),
        "matrices": MatrixChannel(rng.dirichlet(np.ones(K), (5, K)), index=index, outputs_are_labels=True),
        "one matrix": MatrixChannel(rng.dirichlet(np.ones(K), (1, K)), outputs_are_labels=True),
        "candidate sets": labeldp.RRWithPrior(1.0).channel(prior),
    }


@pytest.mark.parametrize("kind", channels())
@pytest.mark.parametrize("with_prior", [False, True])
def test_rates_are_those_of_every_example(kind, with_prior):
    prior = np.random.default_rng(3).dirichlet(np.ones(K), 7) if with_prior else None
    release = released(channels()[kind], prior=prior)
    found = rates(release)
    kept = np.array([np.diag(release.channel.matrix(i)) for i in range(N)])
    assert found.flips == pytest.approx(1 - kept.mean(axis=0), abs=CLOSE)
    assert found.n_asked is None
    if not with_prior:
        assert found.expected_accuracy == pytest.approx(kept.mean(), abs=CLOSE)
        assert found.prior_flips is None
        return
    belief = release.prior[release.prior_index]
    assert found.expected_accuracy == pytest.approx((belief * kept).sum(axis=1).mean(), abs=CLOSE)
    assert found.prior_flips == pytest.approx(1 - (belief * kept).sum(axis=0) / belief.sum(axis=0), abs=CLOSE)
    # The law of total probability ties the two together; unweighted flips would not fit.
    shares = belief.mean(axis=0)
    assert np.dot(shares, 1 - np.array(found.prior_flips)) == pytest.approx(found.expected_accuracy, abs=CLOSE)


def test_a_class_that_cannot_occur_has_no_rate():
    prior = np.array([[0.5, 0.5, 0.0, 0.0]])
    assert [math.isnan(flip) for flip in rates(released(channels()["rows"], prior=prior)).prior_flips] == [
        False,
        False,
        True,
        True,
    ]


def test_many_examples_are_sampled_and_it_says_so(monkeypatch):
    monkeypatch.setattr(rates_module, "MOST_CELLS", 10 * K * K)
    found = rates(released(channels()["candidate sets"]))
    assert found.n_asked == 10
    assert rates(released(channels()["rows"])).n_asked is None  # five rows stand for all: nothing is sampled
    assert evenly_spaced(10, 3).tolist() == [0, 4, 8]


def test_weights_sum_to_one():
    for channel in channels().values():
        assert representatives(channel, N, most=1_000)[1].sum() == pytest.approx(1.0, abs=CLOSE)


def test_outputs_that_are_not_labels_have_no_rates():
    release = released(MatrixChannel(np.full((1, K, 2), 0.5)))
    assert rates(release).flips is None


def test_lines_against_epsilon_pass_through_the_release():
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.ones(K), 6)
    index = rng.integers(0, 6, N)
    sets = labeldp.RRWithPrior(0.7).channel(rows[index])
    release = released(sets, prior=rows)
    object.__setattr__(release, "prior_index", index)
    plain, informed = accuracy_against_epsilon(release)
    at = informed.x.index(sets.epsilon)
    assert informed.y[at] / 100 == pytest.approx(float(np.mean(sets.expected_accuracy(rows[index]))), abs=1e-9)
    assert all(better >= worse - 1e-9 for better, worse in zip(informed.y, plain.y, strict=True))
    assert list(plain.y) == sorted(plain.y)
    E = math.exp(2.0)
    assert plain.y[plain.x.index(2.0)] == pytest.approx(100 * E / (E + K - 1), rel=1e-9)


def test_lines_within_candidate_sets():
    sets = channels()["candidate sets"]
    _, line = accuracy_against_epsilon(released(sets))
    at = line.x.index(2.0)
    E = math.exp(2.0)
    assert line.y[at] == pytest.approx(100 * np.mean(E / (E + sets.sizes - 1.0)), rel=1e-9)
