"""The studies of peers, noises, prescribed parameters and bounds of clusters: exact values, small runs, committed results."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from labeldp.selection import Histogram
from studies import StudyRow, cluster_bounds, dimension_free, noisy_max, peers, read_result


def enumerate_peers(n: int, positives: int, alpha: float, theta: float) -> tuple[float, float]:
    """Mean square error of the share given a report, and the chance of a wrong majority, over all outcomes of three peers."""
    total, error, wrong = 0.0, 0.0, 0.0
    labels = [1] * positives + [0] * (n - positives)
    for flips in itertools.product((0, 1), repeat=n):
        chance_flips = np.prod([alpha if flip else 1 - alpha for flip in flips])
        noisy = [label ^ flip for label, flip in zip(labels, flips, strict=True)]
        for part in itertools.product((0, 1), repeat=n):
            chance_part = np.prod([theta if one else 1 - theta for one in part])
            m = sum(part)
            for picks in itertools.product(range(n), repeat=m):
                chance = chance_flips * chance_part / n**m
                ones = sum(noisy[pick] for pick in picks)
                wrong += chance * (0.5 if 2 * ones == m else float(2 * ones > m))
                if m:
                    total += chance
                    error += chance * ((ones / m - alpha) / (1 - 2 * alpha) - positives / n) ** 2
    return error / total, wrong


@pytest.mark.parametrize(("alpha", "theta"), [(0.1, 1.0), (0.3, 0.5)])
def test_exact_errors_of_peers_are_sums_over_all_outcomes(alpha: float, theta: float):
    error, wrong = enumerate_peers(3, 1, alpha, theta)
    assert peers.expect_share_error(3, share=1 / 3, alpha=alpha, theta=theta) ** 2 == pytest.approx(error, rel=1e-12)
    excess = peers.expect_excess_risk(3, share=1 / 3, alpha=alpha, theta=theta)
    assert excess == pytest.approx(wrong / 3, rel=1e-12)  # |1 - 2 p| = 1/3


def test_drop_out_leaves_fewer_reports_and_a_smaller_cluster():
    whole, half = (
        peers.Case(table=peers.GONE, setting=f"lost {lost:g}: x", alpha=0.1, lost=lost, size=40) for lost in (0.0, 0.5)
    )
    m, ones = half.draw_reports(0)
    # Each of 20 survivors reports with probability 1/2: 1,000 expected over 100 clusters, sd 22; 200 off is nine of them.
    assert abs(m.sum() - 1_000) < 200
    assert (ones <= m).all()
    assert half.epsilon > whole.epsilon


def within(rows: tuple[StudyRow, ...]) -> None:
    """Drawn means lie within five standard errors of what is exact: one in 10^6 for each, were they normal."""
    for row in rows:
        if row.expected is not None and row.spread > 0:
            assert abs(row.mean - row.expected) < 5 * row.spread / row.n_seeds**0.5 + 0.02 * row.expected


def test_committed_peers_agree_with_what_is_exact_and_with_the_theorem(repository: Path):
    result = read_result(repository / "studies" / "results" / "peers" / "result.json")
    within(result.rows)
    assert all(row.mean < row.paper for row in result.rows if row.table == peers.RISK and row.paper is not None)


def test_noises_and_gaps_measure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(noisy_max, "NOISE_RUNS", 2)
    counts = Histogram.of(np.array([10_000, 3, 2, 1]))
    for noise in ("gumbel", "exponential", "laplace"):
        (one,) = noisy_max.Noise(histogram=counts, noise=noise, queries=5, epsilon=1.0).measure(0)
        assert one.value == 100.0  # a lead of 10,000 users: any noise here misses with probability below e^-100
    plain = noisy_max.Noise(histogram=counts, noise="laplace", queries=100, epsilon=1.0).each
    assert plain < noisy_max.Noise(histogram=counts, noise="gumbel", queries=100, epsilon=1.0).each
    assert [one.paper is not None for one in noisy_max.Gap(noise="gaussian", queries=1).measure(0)] == [True, False]


@pytest.mark.parametrize("name", ["dimension-free", "noisy-max"])
def test_committed_bounds_hold(name: str, repository: Path):
    result = read_result(repository / "studies" / "results" / name / "result.json")
    bounded = [row for row in result.rows if row.paper is not None]
    assert bounded
    if name == "dimension-free":
        assert all(0 < row.mean < row.paper for row in bounded if row.paper is not None)
        own = [
            row.mean
            for row in result.rows
            if row.table == dimension_free.BY_WIDTH and row.setting.startswith(dimension_free.OWN)
        ]
        assert max(own) < 2 * min(own)  # from p = 10 to 100,000: the risk does not grow


def test_the_corollary_s_parameters_are_what_is_released():
    from labeldp.release import SensitiveLabels

    labels = SensitiveLabels(np.arange(400) % 2, n_classes=2)
    groups = np.repeat(np.arange(4), 100)
    case = cluster_bounds.Case(data="mnist", digit=0, setting=cluster_bounds.PRESCRIBED, epsilon=1.0)
    release, terms = cluster_bounds.release_clusters(case, labels, groups, phi=0.2, seed=0)
    assert release.guarantee.epsilon() == 1.0
    assert terms["floor"] == 0.2
    assert terms["noise"] == pytest.approx(2.0)  # one count, epsilon_1 = 1/2
    assert terms["redraw"] <= 1 / (1 + (np.exp(0.5) - 1) * 0.2) + 1e-12  # the realised minimum is at least the floor
