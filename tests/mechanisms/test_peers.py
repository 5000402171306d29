"""The peer-to-peer simulation: its reports follow the law that the accountant accounts for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from labeldp.errors import LabelDPError, PrivacyError
from labeldp.guarantee import Guarantee, Trust
from labeldp.loss import peers as laws
from labeldp.mechanisms import PeerToPeerRR
from labeldp.mechanisms.peers import bound_peer_risk
from labeldp.random import NoiseKey


def law_of_reports(n: int, positives: int, alpha: float, m: int) -> np.ndarray:
    factorials = laws.log_factorials(n)
    return laws.laws_of_noisy_sums(n, alpha, rows=n + 1, factorials=factorials)[positives] @ laws.report_table(
        n, m, factorials
    )


def positive_reports(alpha: float, n: int, positives: int, clusters: int, seed: int) -> np.ndarray:
    """Positive reports of many clusters of n users, everyone taking part."""
    labels = np.tile(np.arange(n) < positives, clusters)
    reports = PeerToPeerRR(alpha, theta=1.0).simulate(labels, groups=np.repeat(np.arange(clusters), n), rng=seed)
    return reports.labels.reshape(clusters, n).sum(axis=1)


def unlikely(sums: np.ndarray, law: np.ndarray, level: float) -> bool:
    """Whether some count's frequency has a two-sided binomial tail below level / (number of counts)."""
    seen = np.bincount(sums.astype(np.int64), minlength=len(law))
    tails = 2 * np.minimum(binom.cdf(seen, len(sums), law), binom.sf(seen - 1, len(sums), law))
    return bool((tails < level / len(law)).any())


def test_simulated_reports_follow_the_accountants_law():
    # The seed is fixed; over seeds this fails with probability 1e-6 at most (union over the counts).
    n, positives, clusters = 6, 2, 20_000
    sums = positive_reports(0.2, n, positives, clusters, seed=1)
    assert not unlikely(sums, law_of_reports(n, positives, 0.2, n), 1e-6)
    # Twins: another alpha, and reports of independent flips (no shared peers), which have another variance.
    assert unlikely(sums, law_of_reports(n, positives, 0.24, n), 1e-6)
    mean = (positives * 0.8 + (n - positives) * 0.2) / n
    assert unlikely(sums, binom.pmf(np.arange(n + 1), n, mean), 1e-6)


def test_participation_follows_theta():
    n = 200_000
    reports = PeerToPeerRR(0.1, theta=0.3).simulate(np.zeros(n, int), groups=np.zeros(n, int), rng=2)
    # Six standard deviations: 2e-9.
    assert abs(len(reports.rows) - 0.3 * n) < 6 * math.sqrt(n * 0.3 * 0.7)
    assert reports.participates.sum() == len(reports.rows) == len(reports.labels)
    assert abs(len(reports.rows) - 0.31 * n) > 6 * math.sqrt(n * 0.31 * 0.69)


def test_reports_come_from_the_own_cluster():
    labels = np.repeat([0, 1], 5000)
    reports = PeerToPeerRR(1e-9, theta=1.0).simulate(labels, groups=labels, rng=0)
    np.testing.assert_array_equal(reports.labels, labels)  # no flips to speak of: 1e-5 for one among 10,000, seeded
    mixed = PeerToPeerRR(1e-9, theta=1.0).simulate(labels, groups=np.zeros(10_000, int), rng=0)
    assert abs(mixed.labels[:5000].mean() - 0.5) < 6 * 0.5 / math.sqrt(5000)  # and one cluster mixes them; 2e-9


def test_guarantee_is_the_worst_cluster_and_names_its_trust():
    groups = np.repeat([0, 1, 2], [5, 40, 40])
    reports = PeerToPeerRR(0.2, theta=0.5).simulate(np.zeros(85, int), groups=groups)
    mechanism = reports.mechanism
    parts = [mechanism.guarantee_for(5), mechanism.guarantee_for(40)]
    for delta in (1e-8, 1e-4, 1e-2):
        assert reports.guarantee.epsilon(delta) == max(part.epsilon(delta) for part in parts)
    assert reports.guarantee.trust == Trust.PEERS
    assert "no user tells the learner" in reports.guarantee.assumptions[0]
    assert not reports.seeded


def test_guarantee_survives_json():
    guarantee = PeerToPeerRR(0.2, theta=0.5).guarantee_for(30)
    again = Guarantee.from_json(guarantee.to_json())
    assert again == guarantee
    assert again.epsilon(1e-6) == guarantee.epsilon(1e-6)


def test_one_peer_is_protected_by_the_flip_alone():
    peer = PeerToPeerRR(0.1, theta=1.0).peer_guarantee
    assert math.log(9) <= peer.epsilon() <= math.log(9) * (1 + 1e-14)
    assert peer.trust == Trust.NO_ONE
    assert PeerToPeerRR(0.5, theta=1.0).peer_guarantee.epsilon() == 0.0


def test_seeds_reproduce_and_a_key_serves_once():
    mechanism, labels, groups = PeerToPeerRR(0.3, theta=0.5), np.arange(100) % 2, np.zeros(100, int)
    one, two = (mechanism.simulate(labels, groups=groups, rng=4) for _ in range(2))
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.rows, two.rows)
    assert one.seeded
    assert "NOT PRIVATE" in repr(one)
    key = NoiseKey.from_os()
    mechanism.simulate(labels, groups=groups, rng=key)
    with pytest.raises(PrivacyError, match="drawn from this key before"):
        mechanism.simulate(1 - labels, groups=groups, rng=key)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PeerToPeerRR(0.0, theta=1.0), "`alpha` must be in"),
        (lambda: PeerToPeerRR(0.6, theta=1.0), "`alpha` must be in"),
        (lambda: PeerToPeerRR(0.1, theta=0.0), "`theta` must be in"),
        (lambda: PeerToPeerRR(0.1, theta=1.5), "`theta` must be in"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).guarantee_for(0), "`cluster_size` must be an integer >= 1"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).epsilon_for(1e-15, cluster_size=5), "`delta` must be 0 or at least"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).simulate([0, 1, 2], groups=[0, 0, 0]), "`labels` must be 0 or 1"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).simulate([0.0, 1.0], groups=[0, 0]), "`labels` must be 0 or 1"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).simulate([0, 1], groups=[0, 2]), "PeerToPeerRR: `groups` must"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).simulate([0, 1, 1], groups=[0, 2, 2]), "an example in every cluster"),
        (lambda: PeerToPeerRR(0.1, theta=1.0).simulate([0, 1], groups=[0]), "`groups` must be integers, one per label"),
    ],
)
def test_bad_input_is_answered_clearly(call: Callable[[], Any], words: str):
    with pytest.raises(LabelDPError, match=words):
        call()


def test_bias_of_theorem_4_against_enumeration():
    """As n grows: reports have the law (1 - 2 alpha) p(. | c) + alpha, and their minimiser loses phi + 2 alpha at most."""
    rng = np.random.default_rng(0)
    nearest = 0.0
    for _ in range(300):
        groups = np.array([0, 0, 0, 1, 1, 1])
        ones = rng.beta(0.5, 0.5, 6)
        rows = np.stack([1 - ones, ones], axis=1)
        losses = rng.random((40, 6, 2)) ** rng.choice([0.2, 1.0, 5.0])
        alpha = float(rng.uniform(0.01, 0.5))
        shares = np.stack([rows[groups == c].mean(axis=0) for c in (0, 1)])[groups]
        phi = np.abs(rows - shares).sum(axis=1).mean()
        reported = (1 - 2 * alpha) * shares + alpha
        true, seen = ((law * losses).sum(axis=2).mean(axis=1) for law in (rows, reported))
        excess = true[np.argmin(seen)] - true.min()
        bound = bound_peer_risk(100, alpha=alpha, theta=1.0, heterogeneity=phi, dimension=1.0)
        assert excess <= bound.residual
        nearest = max(nearest, excess / bound.residual)
    assert nearest > 0.15  # of the right size


def test_theorem_4_has_its_terms():
    bound = bound_peer_risk(1000, alpha=0.25, theta=0.5, heterogeneity=0.125, dimension=8.0, constant=2.0)
    assert bound.residual == 0.625
    assert bound.sampling == pytest.approx(2 * math.sqrt(8 * math.log(20) / 500), rel=1e-12)
    with pytest.raises(LabelDPError, match="`alpha` must be in"):
        bound_peer_risk(1000, alpha=0.0, theta=0.5, heterogeneity=0.1, dimension=8.0)
