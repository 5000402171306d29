r"""What the peer-to-peer mechanism costs: exact, calibrated, and beside it the bounds that others state.

>>> round(peers_epsilon(1e-5, cluster_size=200, alpha=0.1), 2)
0.56
>>> alpha = calibrate_peers(0.6, delta=1e-5, cluster_size=200)
>>> peers_delta(0.6, cluster_size=200, alpha=alpha) <= 1e-5
True

References: Esfandiari, Mirrokni, Syed, Vassilvitskii 2022 (Lemma 9 of the supplement); Balle, Bell, Gascon, Nissim
2019, "The privacy blanket of the shuffle model"; Feldman, McMillan, Talwar 2021, "Hiding among the clones".

Design notes. The mathematics is in `labeldp.loss.peers`. Everything here is about one cluster; clusters compose in
parallel, so the worst of them counts. The shuffle bound is the blanket decomposition of binary randomized response
itself, proved in two lines where it is computed; the erratum to the general clone bound of Feldman, McMillan and Talwar
(2023) does not touch it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldp.errors import invalid
from labeldp.loss.peers import (
    LARGEST_EXACT,
    blanket_deltas,
    check_alpha,
    check_floor,
    check_theta,
    local_epsilon,
    peer_deltas,
    peer_profile,
    shuffled_profile,
)
from labeldp.validate import check_epsilon, check_integer

#: The bracket of a calibrated alpha ends this narrow, relative to it; each step is a full scan.
WIDTH = 1e-4
#: The smallest alpha that is tried.
LEAST_ALPHA = 1e-9
#: The smallest theta that is tried: below it a cluster of a million would send no report in most runs.
LEAST_THETA = 1e-7
#: The shares of participants among which `calibrate_peers_both` chooses.
THETAS = (1.0, 0.8, 0.6, 0.4, 0.2)


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """The two settings of the peer-to-peer mechanism, calibrated together."""

    alpha: float
    theta: float


def peers_delta(epsilon: float, *, cluster_size: int, alpha: float, theta: float = 1.0) -> float:
    """Return delta at this epsilon, as seen by the learner: exact for theta = 1 but for rounding up.

    For theta < 1 the number of participants is random, and a grid of it bounds delta from above. Clusters beyond 4000
    are answered by the shuffle bound.
    """
    owner = "peers_delta"
    target = check_epsilon(owner, epsilon)
    size, flip, part = _check_settings(owner, cluster_size, alpha, theta)
    if target >= local_epsilon(flip):
        return 0.0
    at = np.array([target])
    exact = size <= LARGEST_EXACT
    deltas = peer_deltas(at, n=size, alpha=flip, theta=part) if exact else blanket_deltas(at, n=size, alpha=flip)
    return float(deltas[0])


def peers_epsilon(delta: float, *, cluster_size: int, alpha: float, theta: float = 1.0) -> float:
    """Return epsilon at this delta, as seen by the learner; a delta in (0, 1e-13) is refused."""
    owner = "peers_epsilon"
    size, flip, part = _check_settings(owner, cluster_size, alpha, theta)
    return peer_profile(n=size, alpha=flip, theta=part).epsilon(check_floor(owner, delta))


def calibrate_peers(epsilon: float, *, delta: float, cluster_size: int, theta: float = 1.0) -> float:
    """Return an alpha, the least within 1e-4 of itself, whose reports are (epsilon, delta)-DP for the learner.

    *Guarantee*: peers_delta(epsilon, alpha=returned, ...) <= delta, by evaluation. The search goes down from
    1 / (1 + e^epsilon), rounded up, which meets any budget because every label is flipped before it leaves its owner.
    """
    owner = "calibrate_peers"
    target, slack = check_epsilon(owner, epsilon), check_floor(owner, delta)
    size = check_integer(owner, "cluster_size", cluster_size, least=1)
    part = check_theta(owner, theta)
    high = _pure_alpha(owner, target)
    low = LEAST_ALPHA
    while slack > 0 and high / low > 1 + WIDTH:
        middle = math.sqrt(low * high)
        meets = peers_delta(target, cluster_size=size, alpha=middle, theta=part) <= slack
        low, high = (low, middle) if meets else (middle, high)
    return high


def calibrate_peers_theta(epsilon: float, *, delta: float, cluster_size: int, alpha: float) -> float:
    """Return a theta, the largest within 1e-4 of itself, whose reports are (epsilon, delta)-DP for the learner.

    *Guarantee*: peers_delta(epsilon, theta=returned, ...) <= delta, by evaluation. delta does not fall as theta grows
    (fewer reports are a post-processing), so the search is a bisection; where the bound's grid makes it step, the answer
    is still one that was evaluated. An alpha that meets epsilon by itself gives 1. With delta = 0 only such an alpha
    will do: one report, however rare, can reveal log((1 - alpha) / alpha).

    >>> theta = calibrate_peers_theta(0.5, delta=1e-5, cluster_size=200, alpha=0.1)
    >>> 0.3 < theta < 1, peers_delta(0.5, cluster_size=200, alpha=0.1, theta=theta) <= 1e-5
    (True, True)
    """
    owner = "calibrate_peers_theta"
    target, slack = check_epsilon(owner, epsilon), check_floor(owner, delta)
    size, flip, _ = _check_settings(owner, cluster_size, alpha, 1.0)

    def meets(theta: float) -> bool:
        return peers_delta(target, cluster_size=size, alpha=flip, theta=theta) <= slack

    if meets(1.0):
        return 1.0
    low, high = LEAST_THETA, 1.0
    if not meets(low):
        fix = "Flip more labels (calibrate_peers gives the alpha), allow a larger delta, or make clusters larger."
        raise invalid(owner, "alpha", "meet the target at some theta", got=flip, fix=fix)
    while high / low > 1 + WIDTH:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def calibrate_peers_both(epsilon: float, *, delta: float, cluster_size: int) -> PeerSettings:
    r"""Return alpha and theta that meet (epsilon, delta) and tell most about the share of positives in a cluster.

    With m = theta n reports, the share p of positives estimated from their mean has, at p = 1/2 and to first order, the
    variance (alpha (1 - alpha) + 1 / (4 theta)) / (n (1 - 2 alpha)^2): the flips of n labels, and m draws from them.
    For each theta of a grid alpha is calibrated, and the pair of the least variance is returned. Ties go to the larger
    theta. *Guarantee*: that of `calibrate_peers`, by evaluation.

    >>> chosen = calibrate_peers_both(1.0, delta=1e-5, cluster_size=50)
    >>> peers_delta(1.0, cluster_size=50, alpha=chosen.alpha, theta=chosen.theta) <= 1e-5
    True
    """
    owner = "calibrate_peers_both"
    target, slack = check_epsilon(owner, epsilon), check_floor(owner, delta)
    size = check_integer(owner, "cluster_size", cluster_size, least=1)
    if target == 0:
        return PeerSettings(alpha=0.5, theta=1.0)
    # Beyond the exact accountant the bound does not use theta: fewer reports would buy nothing.
    thetas = THETAS if slack > 0 and size <= LARGEST_EXACT else THETAS[:1]
    best: PeerSettings | None = None
    for theta in thetas:
        # No alpha can bring the variance below 0.25 / theta, which only grows from here.
        if best is not None and 0.25 / theta >= _relative_variance(best):
            break
        pair = PeerSettings(alpha=calibrate_peers(target, delta=slack, cluster_size=size, theta=theta), theta=theta)
        best = pair if best is None else min(best, pair, key=_relative_variance)
    assert best is not None
    return best


def _relative_variance(pair: PeerSettings) -> float:
    """Return n times the variance of an estimated share at 1/2."""
    signal = (1 - 2 * pair.alpha) ** 2
    return (pair.alpha * (1 - pair.alpha) + 0.25 / pair.theta) / signal if signal > 0 else math.inf


def _pure_alpha(owner: str, epsilon: float) -> float:
    """Return an alpha in (0, 1/2] whose local epsilon is at most this."""
    if epsilon > 20:
        raise invalid(owner, "epsilon", "be at most 20", got=epsilon, fix="There alpha is below 2e-9: no flips.")
    alpha = 1.0 / (1.0 + math.exp(epsilon))
    while alpha < 0.5 and local_epsilon(alpha) > epsilon:
        alpha *= 1 + 2.0**-48
    return min(alpha, 0.5)


def peers_paper_epsilon(delta: float, *, cluster_size: int, alpha: float, theta: float = 1.0) -> float:
    r"""Return the paper's bound (Lemma 9), for comparison; inf where its conditions fail.

    epsilon = theta log(e + 3 / (s alpha)) + sqrt(theta) xi log(1 + 3 / sqrt(s alpha)) at
    delta = exp(-alpha xi^2 / (4 (alpha + 1/s) (1 - alpha))), for s >= 2 / alpha and xi <= 3 alpha sqrt(theta s (1 - alpha)).
    It held wherever it was compared with the exact value; its proof treats the number of participants as fixed.

    >>> round(peers_paper_epsilon(2.2e-10, cluster_size=1000, alpha=0.1), 2)
    3.37
    """
    owner = "peers_paper_epsilon"
    s, flip, part = _check_settings(owner, cluster_size, alpha, theta)
    slack = check_floor(owner, delta)
    if slack == 0 or s < 2 / flip:
        return math.inf
    xi = math.sqrt(-math.log(slack) * 4 * (flip + 1 / s) * (1 - flip) / flip)
    if xi > 3 * flip * math.sqrt(part * s * (1 - flip)):
        return math.inf
    return part * math.log(math.e + 3 / (s * flip)) + math.sqrt(part) * xi * math.log1p(3 / math.sqrt(s * flip))


def peers_shuffle_epsilon(delta: float, *, cluster_size: int, alpha: float) -> float:
    """Return the bound for shuffled flipped labels: valid for the peers whatever theta, looser, fast for any size."""
    owner = "peers_shuffle_epsilon"
    size, flip, _ = _check_settings(owner, cluster_size, alpha, 1.0)
    return shuffled_profile(n=size, alpha=flip).epsilon(check_floor(owner, delta))


def _check_settings(owner: str, cluster_size: Any, alpha: Any, theta: Any) -> tuple[int, float, float]:
    """Return the cluster's size, alpha and theta, each checked in the name of `owner`."""
    size = check_integer(owner, "cluster_size", cluster_size, least=1)
    return size, check_alpha(owner, alpha), check_theta(owner, theta)
