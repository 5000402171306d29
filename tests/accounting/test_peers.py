"""The peer-to-peer accountant against enumeration of all outcomes, high precision, and the figures of the paper."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeldp.accounting.peers import (
    PeerSettings,
    calibrate_peers,
    calibrate_peers_both,
    calibrate_peers_theta,
    peers_delta,
    peers_epsilon,
    peers_paper_epsilon,
    peers_shuffle_epsilon,
)
from labeldp.errors import LabelDPError, PrivacyError
from labeldp.loss import peers
from labeldp.loss import peers as laws
from labeldp.mechanisms import PeerToPeerRR


def walked(n: int, x: int, theta: float) -> dict[tuple[int, int], float]:
    """Law of (participants, positive reports) given x positive noisy labels, user by user.

    Each stays away, reports 1 or reports 0 with probabilities 1 - theta, theta x / n, theta (n - x) / n.
    """
    outcomes = {(0, 0): 1.0}
    for _ in range(n):
        after: dict[tuple[int, int], float] = {}
        for (m, k), weight in outcomes.items():
            for key, step in (((m, k), 1 - theta), ((m + 1, k + 1), theta * x / n), ((m + 1, k), theta * (n - x) / n)):
                after[key] = after.get(key, 0.0) + weight * step
        outcomes = after
    return outcomes


def enumerated_law(n: int, positives: int, alpha: float, theta: float) -> dict[tuple[int, int], float]:
    """Law of (participants, positive reports), over every pattern of flips in turn."""
    chances = [0.0] * (n + 1)
    for flips in itertools.product((0, 1), repeat=n):
        x = sum((i < positives) ^ flip for i, flip in enumerate(flips))
        chances[x] += math.prod(alpha if flip else 1 - alpha for flip in flips)
    law: dict[tuple[int, int], float] = {}
    for x, chance in enumerate(chances):
        for key, weight in walked(n, x, theta).items():
            law[key] = law.get(key, 0.0) + chance * weight
    return law


def enumerated_delta(n: int, alpha: float, theta: float, epsilon: float) -> float:
    rows = [enumerated_law(n, positives, alpha, theta) for positives in range(n + 1)]
    return max(
        math.fsum(max(p[key] - math.exp(epsilon) * q[key], 0.0) for key in p)
        for one, two in itertools.pairwise(rows)
        for p, q in ((one, two), (two, one))
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.45])
def test_equals_enumeration_of_all_outcomes(n: int, alpha: float):
    for epsilon in (0.0, 0.1, 0.5, 1.5):
        exact = enumerated_delta(n, alpha, 1.0, epsilon)
        claimed = peers_delta(epsilon, cluster_size=n, alpha=alpha)
        # Enumeration itself sums 2^n terms in floats: 1e-15. Our margin is 64 u (L + n) < 5e-13 at these sizes.
        assert exact - 1e-15 <= claimed <= exact + 1e-12


def test_equals_enumeration_at_twelve_users():
    exact = enumerated_delta(12, 0.15, 1.0, 0.4)
    assert exact - 1e-15 <= peers_delta(0.4, cluster_size=12, alpha=0.15) <= exact + 1e-12


@pytest.mark.parametrize(("n", "theta"), [(4, 0.3), (6, 0.5), (7, 0.9)])
def test_random_participation_equals_enumeration_where_the_grid_holds_every_m(n: int, theta: float):
    # With n < GRID every m from 1 on can be its own grid point; the first stands for those below, hence an upper bound.
    for epsilon in (0.0, 0.3, 1.0):
        exact = enumerated_delta(n, 0.1, theta, epsilon)
        deltas = peers.peer_deltas(np.array([epsilon]), n=n, alpha=0.1, theta=theta, grid=200)
        assert exact - 1e-15 <= deltas[0] <= exact * 1.2 + 1e-12  # 1.2: the few m below mean - 1.5 sd, rounded up


def full_sum(n: int, alpha: float, theta: float, epsilon: float) -> float:
    """The exact delta for random m: every m in turn, all n1, both directions, straight from the laws."""
    factorials = laws.log_factorials(n)
    sums = laws.laws_of_noisy_sums(n, alpha, rows=n + 1, factorials=factorials)
    chance = laws.binomial(n, theta, factorials)
    total = np.zeros((2, n))
    for m in range(1, n + 1):
        rows = sums @ laws.report_table(n, m, factorials)
        total[0] += chance[m] * np.maximum(rows[:-1] - math.exp(epsilon) * rows[1:], 0).sum(axis=1)
        total[1] += chance[m] * np.maximum(rows[1:] - math.exp(epsilon) * rows[:-1], 0).sum(axis=1)
    return float(total.max())


@pytest.mark.parametrize(
    ("n", "alpha", "theta", "epsilon"), [(100, 0.1, 0.2, 0.2), (200, 0.1, 0.1, 0.3), (80, 0.1, 0.8, 0.5)]
)
def test_grid_bounds_the_full_sum_and_fixed_m_does_not(n: int, alpha: float, theta: float, epsilon: float):
    exact = full_sum(n, alpha, theta, epsilon)
    bound = peers_delta(epsilon, cluster_size=n, alpha=alpha, theta=theta)
    assert exact <= bound <= 1.5 * exact  # an upper bound, and no looser than a grid of 17 must be
    factorials = laws.log_factorials(n)
    m = round(theta * n)  # the broken twin: the number of participants taken at its mean
    rows = laws.laws_of_noisy_sums(n, alpha, rows=n + 1, factorials=factorials) @ laws.report_table(n, m, factorials)
    fixed = np.maximum(rows[1:] - math.exp(epsilon) * rows[:-1], 0).sum(axis=1).max()
    assert fixed < exact


def test_all_positives_are_scanned_not_only_the_ends():
    # The prototype's scan found settings where the worst n1 is inside; half of the n1 and both directions cover all.
    n, alpha, epsilon = 60, 0.45, 0.02
    factorials = laws.log_factorials(n)
    rows = laws.laws_of_noisy_sums(n, alpha, rows=n + 1, factorials=factorials) @ laws.report_table(n, n, factorials)
    up = np.maximum(rows[1:] - math.exp(epsilon) * rows[:-1], 0).sum(axis=1)
    down = np.maximum(rows[:-1] - math.exp(epsilon) * rows[1:], 0).sum(axis=1)
    np.testing.assert_allclose(up, down[::-1], rtol=1e-10)  # the symmetry; 1e-10: rounding of two different sums
    assert max(up.max(), down.max()) <= peers_delta(epsilon, cluster_size=n, alpha=alpha)


def test_rounded_up_against_high_precision():
    n, alpha, epsilon = 40, 0.1, 1.1
    with mpmath.workdps(50):

        def law(total: int, p: mpmath.mpf) -> list[mpmath.mpf]:
            return [mpmath.binomial(total, k) * p**k * (1 - p) ** (total - k) for k in range(total + 1)]

        def convolved(one: list[mpmath.mpf], two: list[mpmath.mpf]) -> list[mpmath.mpf]:
            sums = [mpmath.mpf(0)] * (n + 1)
            for (a, left), (b, right) in itertools.product(enumerate(one), enumerate(two)):
                sums[a + b] += left * right
            return sums

        flip = mpmath.mpf(alpha)
        table = mpmath.matrix([law(n, mpmath.mpf(x) / n) for x in range(n + 1)])
        sums = mpmath.matrix([convolved(law(i, 1 - flip), law(n - i, flip)) for i in range(n + 1)])
        rows = (sums * table).tolist()
        factor = mpmath.exp(mpmath.mpf(epsilon))
        exact = max(
            mpmath.fsum(max(p - factor * q, 0) for p, q in zip(top, bottom, strict=True))
            for one, two in itertools.pairwise(rows)
            for top, bottom in ((one, two), (two, one))
        )
        claimed = mpmath.mpf(peers_delta(epsilon, cluster_size=n, alpha=alpha))
        assert exact < 1e-9  # a tail that absolute errors of 1e-13 would not resolve to six digits
        assert exact <= claimed <= exact * (1 + mpmath.mpf("1e-6"))


def test_figures_of_the_paper_and_ours():
    # docs/proofs.md has the figures of the exact accountant at n = 1000, alpha = .1, theta = 1.
    assert round(peers_epsilon(2e-10, cluster_size=1000, alpha=0.1), 3) == 0.371
    assert round(peers_epsilon(1e-5, cluster_size=1000, alpha=0.1), 3) == 0.209
    assert round(peers_paper_epsilon(2.2e-10, cluster_size=1000, alpha=0.1), 2) == 3.37
    shuffled = peers_shuffle_epsilon(1e-5, cluster_size=1000, alpha=0.1)
    assert peers_epsilon(1e-5, cluster_size=1000, alpha=0.1) < shuffled < peers.local_epsilon(0.1)


def test_two_thousand_users_are_answered_exactly():
    exact = peers_epsilon(1e-6, cluster_size=2000, alpha=0.123)
    assert exact < 0.2
    assert exact < peers_shuffle_epsilon(1e-6, cluster_size=2000, alpha=0.123)  # what larger clusters are answered by


@settings(max_examples=20)
@given(st.integers(2, 60), st.floats(0.02, 0.49), st.floats(0.1, 1.0), st.floats(0.0, 2.0))
def test_monotone_where_it_must_be(n: int, alpha: float, theta: float, epsilon: float):
    delta = peers_delta(epsilon, cluster_size=n, alpha=alpha, theta=theta)
    assert 0 <= delta <= 1
    assert peers_delta(epsilon + 0.1, cluster_size=n, alpha=alpha, theta=theta) <= delta
    everyone = peers_delta(epsilon, cluster_size=n, alpha=alpha)
    assert delta <= everyone * (1 + 1e-9) + 2e-17  # fewer reports are a post-processing; the second term is BEYOND
    shuffled = peers.blanket_deltas(np.array([epsilon]), n=n, alpha=alpha)[0]
    assert epsilon >= peers.local_epsilon(alpha) or everyone <= shuffled * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(("n", "alpha", "theta"), [(1, 0.3, 1.0), (30, 0.1, 0.5), (200, 0.02, 1.0), (50, 0.5, 1.0)])
def test_profile_bounds_the_deltas_it_was_made_from(n: int, alpha: float, theta: float):
    guarantee = PeerToPeerRR(alpha, theta=theta).guarantee_for(n)
    worst = peers.local_epsilon(alpha)
    for epsilon in np.linspace(0, worst, 13)[:-1] if worst else [0.0]:
        exact = peers_delta(float(epsilon), cluster_size=n, alpha=alpha, theta=theta)
        assert exact * (1 - 1e-12) <= guarantee.delta(float(epsilon)) <= max(1.02 * exact, 2 * peers.FLOOR)
    assert guarantee.epsilon() == pytest.approx(worst, abs=1e-12)  # the pure end, rounded up
    assert guarantee.delta(worst) == 0.0


@pytest.mark.parametrize("theta", [1.0, 0.4])
def test_calibration_ends_on_the_safe_side_and_close(theta: float):
    alpha = calibrate_peers(0.4, delta=1e-6, cluster_size=150, theta=theta)
    assert peers_delta(0.4, cluster_size=150, alpha=alpha, theta=theta) <= 1e-6
    assert peers_delta(0.4, cluster_size=150, alpha=alpha * 0.999, theta=theta) > 1e-6
    assert alpha < 1 / (1 + math.exp(0.4))


def test_calibration_without_delta_is_randomized_response():
    alpha = calibrate_peers(1.0, delta=0.0, cluster_size=50)
    assert peers.local_epsilon(alpha) <= 1.0
    assert alpha == pytest.approx(1 / (1 + math.e), rel=1e-12)


def test_large_clusters_fall_back_on_the_shuffle_bound():
    large = peers_epsilon(1e-6, cluster_size=100_000, alpha=0.1)
    assert large == peers_shuffle_epsilon(1e-6, cluster_size=100_000, alpha=0.1)
    assert large < 0.06


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: peers_epsilon(1e-14, cluster_size=10, alpha=0.1), "`delta` must be 0 or at least 1e-13"),
        (lambda: peers_epsilon(1e-5, cluster_size=0, alpha=0.1), "`cluster_size` must be an integer >= 1"),
        (lambda: peers_delta(0.1, cluster_size=10, alpha=0.0), "`alpha` must be in"),
        (lambda: peers_delta(0.1, cluster_size=10, alpha=0.7), "`alpha` must be in"),
        (lambda: peers_delta(0.1, cluster_size=10, alpha=0.1, theta=0.0), "`theta` must be in"),
        (lambda: peers_delta(-0.1, cluster_size=10, alpha=0.1), "`epsilon` must be >= 0"),
        (lambda: calibrate_peers(30.0, delta=1e-5, cluster_size=10), "`epsilon` must be at most 20"),
    ],
)
def test_bad_input_is_answered_clearly(call, words: str):
    with pytest.raises(LabelDPError, match=words):
        call()


def test_refusal_below_the_float_floor_is_a_privacy_error():
    with pytest.raises(PrivacyError):
        peers_epsilon(1e-14, cluster_size=10, alpha=0.1)
    # The guarantee itself answers with the pure end alone: valid, and needing no floats.
    assert PeerToPeerRR(0.1, theta=1.0).guarantee_for(500).epsilon(1e-15) > 2


def test_paper_bound_is_infinite_outside_its_conditions_and_above_ours_inside():
    assert peers_paper_epsilon(1e-5, cluster_size=10, alpha=0.1) == math.inf
    assert peers_paper_epsilon(0.0, cluster_size=1000, alpha=0.1) == math.inf
    for n, alpha, theta in [(500, 0.2, 1.0), (1000, 0.1, 1.0), (800, 0.3, 0.5)]:
        paper = peers_paper_epsilon(1e-6, cluster_size=n, alpha=alpha, theta=theta)
        assert peers_epsilon(1e-6, cluster_size=n, alpha=alpha, theta=theta) < paper < math.inf


# --------------------------------------------------------------------------- calibration of theta, and of both together


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
