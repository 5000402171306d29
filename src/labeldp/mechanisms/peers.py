r"""`PeerToPeerRR`: users report each other's noisy labels, so that the learner cannot tell whose label a report is.

>>> import numpy as np
>>> mechanism = PeerToPeerRR(0.25, theta=0.5)
>>> reports = mechanism.simulate(np.array([0, 1, 1, 0]), groups=np.zeros(4, int), rng=0)
>>> reports.guarantee.epsilon() <= 1.0987, reports.peer_guarantee.epsilon() <= 1.0987  # log 3
(True, True)

References: Esfandiari, Mirrokni, Syed, Vassilvitskii, "Label differential privacy via clustering" (2022), Algorithm 2,
Theorem 4 (`bound_peer_risk`).

Design notes. This is no `Mechanism`: the reports of a cluster depend on each other (two may copy one noisy label), so
no channel of independent draws describes them. `labeldp.loss.peers` holds the accountant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Bools, Int64s, Places, UInt8s
from labeldp.errors import Described, invalid
from labeldp.guarantee import SEEDED, Guarantee, Trust, did_not_see
from labeldp.loss.peers import check_alpha, check_floor, check_theta, local_epsilon, peer_profile
from labeldp.mechanisms.cluster import RiskBound, check_clusters
from labeldp.random import BitStream, as_key
from labeldp.samplers import uniform_below
from labeldp.validate import check_integer, check_positive

OWNER = "PeerToPeerRR"
WORDS = 1 << 64
ASSUMPTION = "no user tells the learner whose noisy label she reports"


@dataclass(frozen=True)
class PeerToPeerRR:
    r"""Flip each label with probability alpha; report the noisy label of a random user of the cluster; take part by chance.

    Binary labels. User i flips her label with probability alpha, picks a user j of her cluster uniformly (herself
    included), and with probability theta tells the learner the noisy label of j as her own.

    Parameters
    ----------
    alpha : float
        The chance that a label is flipped, in (0, 1/2].
    theta : float
        The chance that a user takes part, in (0, 1].

    Guarantee
    ---------
    `guarantee_for(cluster_size)`: what the learner, who sees all reports and who sent them, learns about one label; the
    exact profile, rounded up (the paper's bound is valid and many times larger). `peer_guarantee`: what the one who is
    asked reveals to the one who asks, log((1 - alpha) / alpha), which is not amplified by anything.

    Assumes
    -------
    Users choose their peers as they should and do not tell the learner whom they chose. If all of them do, what remains
    is `peer_guarantee`: the labels were flipped before they left their owners.

    Edge cases
    ----------
    A cluster of one reports its own flipped label. alpha = 1/2 says nothing about anyone. A delta below 1e-13 is beyond
    floating point and is answered by the pure guarantee alone; `epsilon_for` refuses it.

    Example
    -------
    >>> PeerToPeerRR(0.1, theta=1.0).guarantee_for(cluster_size=200).epsilon(1e-5) < 0.6
    True
    """

    alpha: float
    theta: float = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(OWNER, self.alpha))
        object.__setattr__(self, "theta", check_theta(OWNER, self.theta))

    @property
    def peer_guarantee(self) -> Guarantee:
        """What one user reveals to the peer who asks her: randomized response, and no one to trust."""
        return Guarantee.pure(local_epsilon(self.alpha)).named("one peer")

    def guarantee_for(self, cluster_size: int) -> Guarantee:
        """Return what the learner learns about a label in a cluster of this size."""
        size = check_integer(OWNER, "cluster_size", cluster_size, least=1)
        loss = peer_profile(n=size, alpha=self.alpha, theta=self.theta)
        return Guarantee(loss=loss, trust=Trust.PEERS, assumptions=(ASSUMPTION,), name=f"cluster of {size}")

    def epsilon_for(self, delta: float, *, cluster_size: int) -> float:
        """Return epsilon at this delta, refusing what floats cannot certify."""
        return self.guarantee_for(cluster_size).epsilon(check_floor(OWNER, delta))

    def simulate(self, labels: Any, *, groups: Any, rng: Any = None) -> PeerReports:
        """Return what the learner would receive: every user's part played here, from secure noise.

        Parameters
        ----------
        labels : array of 0 and 1, or of booleans
            The label of each user.
        groups : integer array
            The cluster of each user, 0 .. C-1 without gaps.
        rng : None, int or numpy.random.Generator
            As for `labeldp.privatize`.
        """
        truth = check_binary(labels)
        clusters, sizes = check_clusters(groups, len(truth), owner=OWNER)
        key = as_key(OWNER, rng)
        bits = BitStream(key.claim("peers"))
        # Integers on 64-bit words, rounded to the private side: flips no rarer, participants no likelier than stated.
        noisy = truth ^ toss_coins(bits, math.ceil(Fraction(self.alpha) * WORDS), len(truth))
        members = np.argsort(clusters, kind="stable")
        starts = np.cumsum(sizes) - sizes
        chosen = members[starts[clusters] + uniform_below(bits, sizes[clusters])]
        rows = np.flatnonzero(toss_coins(bits, math.floor(Fraction(self.theta) * WORDS), len(truth)))
        return PeerReports(
            mechanism=self,
            rows=rows,
            labels=noisy[chosen[rows]].astype(np.uint8),
            cluster_sizes=sizes,
            seeded=key.seeded,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerReports:
    """What the learner receives: who took part (`rows`) and what they reported (`labels`). No raw label, no key."""

    mechanism: PeerToPeerRR
    rows: Places
    labels: UInt8s
    cluster_sizes: Int64s
    seeded: bool

    @property
    def participates(self) -> Bools:
        """Whether each user took part."""
        mask = np.zeros(int(self.cluster_sizes.sum()), bool)
        mask[self.rows] = True
        return mask

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the learner learns about one label: the worst of the clusters, each size computed once."""
        sizes = np.unique(self.cluster_sizes).tolist()
        promise = Guarantee.in_parallel([self.mechanism.guarantee_for(size) for size in sizes])
        known = (*did_not_see("grouping"), *([SEEDED] if self.seeded else []))
        return replace(promise, assumptions=(*promise.assumptions, *known))

    @property
    def peer_guarantee(self) -> Guarantee:
        """What one user reveals to the peer who asks her."""
        return self.mechanism.peer_guarantee

    def __repr__(self) -> str:
        warning = "SEEDED, NOT PRIVATE; " if self.seeded else ""
        return f"<PeerReports: {warning}{len(self.rows)} reports by {self.mechanism!r}>"


def bound_peer_risk(
    n_examples: int,
    *,
    alpha: float,
    theta: float,
    heterogeneity: float,
    dimension: float,
    failure: float = 0.05,
    constant: float = 1.0,
) -> RiskBound:
    r"""Return the paper's Theorem 4: how far the minimiser of the loss on the reports is from the best hypothesis.

    With probability 1 - gamma over n independent examples and the mechanism, for a loss in [0, 1],

        risk(h~) - inf risk <= C sqrt(dim log(1/gamma) / (theta n)) + phi + 2 alpha.

    The paper has O(phi + alpha) for the last two, which stay as n grows; the constants follow as in `bound_cluster_bias`. A
    report with features x has the law (1 - 2 alpha) p(. | c) + alpha: its 1-norm from p(. | x) is at most
    2 alpha |1 - 2 p(1 | c)| + |p(. | c) - p(. | x)|_1, and risks are off by half of that, their difference by all of it. The
    loss is not modified: no one knows how labels were randomized, so more examples do not remove the bias.

    Parameters
    ----------
    n_examples, alpha, theta
        n users; the chance that a label is flipped; the chance that a user takes part.
    heterogeneity, dimension, failure, constant
        As in `labeldp.mechanisms.cluster.bound_cluster_risk`. The paper does not give C: with 1 the first term is a rate.
    """
    owner = "bound_peer_risk"
    n = check_integer(owner, "n_examples", n_examples, least=1)
    flip, part = check_alpha(owner, alpha), check_theta(owner, theta)
    log = -math.log(check_positive(owner, "failure", failure))
    return RiskBound(constant * math.sqrt(dimension * log / (float(part) * n)), heterogeneity + 2.0 * float(flip))


def toss_coins(bits: BitStream, threshold: int, count: int) -> Bools:
    """Return `count` coins that are True with probability threshold / 2^64, one word each; 2^64 is always True."""
    words = bits.take(count)
    return np.ones(count, bool) if threshold >= WORDS else words < np.uint64(threshold)


def check_binary(labels: Any) -> Bools:
    """Return binary labels as booleans; the message never shows more than that some are not."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iub":
        got = Described(f"an array of shape {array.shape} and dtype {array.dtype}")
        raise invalid(OWNER, "labels", "be 0 or 1, one per user", got=got)
    if array.dtype.kind != "b" and (int(array.min()) < 0 or int(array.max()) > 1):
        fix = "The peer-to-peer mechanism is for two classes; use ClusterRR for more."
        raise invalid(OWNER, "labels", "be 0 or 1", got=Described("other values"), fix=fix)
    return array.astype(bool)
