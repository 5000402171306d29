"""Calibration of theta, and of alpha and theta together: evaluated, on the safe side, and close."""

from __future__ import annotations

import pytest

from labeldp.accounting.peers import (
    PeerSettings,
    calibrate_peers,
    calibrate_peers_both,
    calibrate_peers_theta,
    peers_delta,
)
from labeldp.errors import LabelDPError


def test_theta_ends_on_the_safe_side_and_close():
    theta = calibrate_peers_theta(0.5, delta=1e-5, cluster_size=60, alpha=0.2)
    assert peers_delta(0.5, cluster_size=60, alpha=0.2, theta=theta) <= 1e-5
    assert 0 < theta < 1
    # 1.1: the bound's grid over the number of participants makes steps; the bisection's own width is 1e-4.
    assert peers_delta(0.5, cluster_size=60, alpha=0.2, theta=min(1.0, theta * 1.1)) > 1e-5


def test_enough_flips_need_no_absentees():
    alpha = calibrate_peers(0.5, delta=1e-5, cluster_size=60)
    assert calibrate_peers_theta(0.5, delta=1e-5, cluster_size=60, alpha=alpha) == 1.0
    assert calibrate_peers_theta(1.2, delta=0.0, cluster_size=60, alpha=0.25) == 1.0  # log 3 < 1.2


@pytest.mark.parametrize(("delta", "size"), [(0.0, 60), (1e-12, 1)])
def test_a_target_that_no_theta_meets_is_an_error(delta: float, size: int):
    # A cluster of one reports its own flipped label: delta is theta times a constant, 1e-8 at the least theta.
    with pytest.raises(LabelDPError, match=r"`alpha` must meet the target at some theta, got 0\.1\. Flip more"):
        calibrate_peers_theta(0.5, delta=delta, cluster_size=size, alpha=0.1)


def test_both_together_meet_the_target_and_beat_everyone_taking_part():
    def variance(pair: PeerSettings) -> float:
        return (pair.alpha * (1 - pair.alpha) + 0.25 / pair.theta) / (1 - 2 * pair.alpha) ** 2

    both = calibrate_peers_both(0.5, delta=1e-5, cluster_size=40)
    assert peers_delta(0.5, cluster_size=40, alpha=both.alpha, theta=both.theta) <= 1e-5
    everyone = PeerSettings(alpha=calibrate_peers(0.5, delta=1e-5, cluster_size=40), theta=1.0)
    assert variance(both) <= variance(everyone)


def test_no_budget_is_a_fair_coin():
    assert calibrate_peers_both(0.0, delta=1e-5, cluster_size=40) == PeerSettings(alpha=0.5, theta=1.0)
