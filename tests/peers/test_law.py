"""The protocol's reports have the law of the vectorised mechanism, and the test can tell when they do not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from labeldp.mechanisms import PeerToPeerRR
from labeldp.peers import Peer, Roster, Terms
from labeldp.peers.messages import encode
from labeldp.peers.roles import Seat
from labeldp.peers.run import conduct

#: Chosen for power: a larger alpha shows better who copies whom, a smaller one who is picked.
ALPHA, THETA = 0.375, 0.9
#: Two kinds of clusters of two: equal labels show who copies whom, unequal ones show who is picked.
KINDS = ((0, 0), (1, 0))
OUTCOMES = tuple(itertools.product((None, 0, 1), repeat=2))
#: The outcomes in which both report the same.
AGREE = np.array([None not in outcome and outcome[0] == outcome[1] for outcome in OUTCOMES])
#: Over all outcomes of all kinds together.
LEVEL = 1e-6


def law(labels: tuple[int, int]) -> np.ndarray:
    """The chance of each outcome, by enumeration of flips, picks and participation."""
    chances = dict.fromkeys(OUTCOMES, 0.0)
    for flips in itertools.product((0, 1), repeat=2):
        noisy = [label ^ flip for label, flip in zip(labels, flips, strict=True)]
        weight = np.prod([ALPHA if flip else 1 - ALPHA for flip in flips])
        for picks in itertools.product((0, 1), repeat=2):
            for part in itertools.product((False, True), repeat=2):
                seen = tuple(noisy[pick] if here else None for pick, here in zip(picks, part, strict=True))
                chances[seen] += weight * 0.25 * np.prod([THETA if here else 1 - THETA for here in part])
    return np.array([chances[outcome] for outcome in OUTCOMES])


def counted(reports) -> dict[tuple[int, int], np.ndarray]:
    """How often each outcome occurred: clusters 0, 2, 4, .. are of the first kind, the others of the second."""
    value = np.zeros(reports.participates.size, int)
    value[reports.rows] = reports.labels + 1
    outcome = (value.reshape(-1, 2) * [3, 1]).sum(axis=1)
    return {kind: np.bincount(outcome[k::2], minlength=9) for k, kind in enumerate(KINDS)}


def layout(clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and groups of so many clusters of each kind."""
    return np.tile(np.array(KINDS).reshape(-1), clusters), np.repeat(np.arange(2 * clusters), 2)


def protocol_counts(clusters: int, peer: type[Peer] = Peer) -> dict[tuple[int, int], np.ndarray]:
    """How often each outcome occurred in runs of the protocol with so many clusters of each kind, among such peers."""
    total = {kind: np.zeros(9, int) for kind in KINDS}
    for part in range(0, clusters, 225):
        labels, groups = layout(min(225, clusters - part))
        roster = Roster.of(groups.tolist())
        seats = [Seat(name=k, ticket=roster.tickets[k], label=label) for k, label in enumerate(labels.tolist())]
        run = conduct(seats, roster=roster, terms=TERMS, make=lambda seat, terms: make(peer, seat, terms))
        assert (run.absent, run.lost, run.silent, run.refused) == (0, 0, 0, {})
        for kind, seen in counted(run).items():
            total[kind] += seen
    return total


#: Nobody drops out: a run ends when all have spoken, however long that takes.
TERMS = Terms(
    run="law",
    alpha=ALPHA,
    theta=THETA,
    rendezvous="",
    learner="",
    timeout=3600.0,
    join_timeout=3600.0,
    least_share=0.5,
    host=None,
)


def make(peer: type[Peer], seat: Seat, terms: Terms) -> Peer:
    return peer(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)


def unlikely(counts: dict[tuple[int, int], np.ndarray]) -> bool:
    """Whether some frequency has a two-sided binomial tail below its share of `LEVEL` (a union bound).

    Of each kind: the nine outcomes, and whether both report the same.
    """
    for kind, outcomes in counts.items():
        chances = law(kind)
        n, seen = outcomes.sum(), np.append(outcomes, outcomes[AGREE].sum())
        chance = np.append(chances, chances[AGREE].sum())
        tails = 2 * np.minimum(binom.cdf(seen, n, chance), binom.sf(seen - 1, n, chance))
        if (tails < LEVEL / (len(KINDS) * len(seen))).any():
            return True
    return False


def test_the_vectorised_mechanism_has_this_law():
    labels, groups = layout(50_000)
    reports = PeerToPeerRR(ALPHA, theta=THETA).simulate(labels, groups=groups, rng=3)
    assert not unlikely(counted(reports))


def test_the_protocol_has_the_same_law():
    # Fresh noise every time: fails once in a million runs (LEVEL) at most.
    assert not unlikely(protocol_counts(450))


class ForgetfulPeer(Peer):
    """Flips anew for everyone who asks: the answers would add up to the label."""

    async def _serve(self, server) -> None:
        while True:
            frames = await server.recv_multipart()
            fresh = TRUTH[self.name] ^ int(self._coin(3 << 61))  # 3 * 2^61 / 2^64 is ALPHA
            body = encode("answer", run=self._terms.run, peer=self.name, label=fresh)
            await server.send_multipart([*frames[:-1], body])


class VainPeer(Peer):
    """Always asks herself."""

    async def _ask_someone(self, context, members):
        return await super()._ask_someone(context, {self.name: members[self.name]})


class RawPeer(Peer):
    """Does not flip."""

    def __init__(self, label, **others) -> None:
        super().__init__(label, **others)
        self._noisy = label


#: The labels of every run here, for the twin that must know them.
TRUTH = layout(225)[0].tolist()


@pytest.mark.parametrize(("twin", "clusters"), [(ForgetfulPeer, 450), (VainPeer, 300), (RawPeer, 100)])
def test_broken_peers_are_caught(twin: type[Peer], clusters: int):
    # Simulated from the twins' laws: missed in at most 1 of 100,000 trials at these numbers of clusters.
    assert unlikely(protocol_counts(clusters, twin))
