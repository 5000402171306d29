"""The protocol's reports have the law of the vectorised mechanism, and the test can tell when they do not."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from labeldp.mechanisms import PeerToPeerRR
from labeldp.peers import Peer, Roster, Terms
from labeldp.peers.messages import encode
from labeldp.peers.roles import Seat
from labeldp.peers.run import conduct

Labels = tuple[int, int]
Counts = dict[Labels, np.ndarray]

THETA = 0.9
#: What the two peers of a cluster may report; None for nothing.
OUTCOMES = tuple(itertools.product((None, 0, 1), repeat=2))
BOTH = np.array([None not in outcome for outcome in OUTCOMES])
AGREE = np.array([None not in outcome and outcome[0] == outcome[1] for outcome in OUTCOMES])
#: The probability at most with which a sound protocol is found at fault, over all outcomes of all kinds of clusters.
LEVEL = 1e-6


class Setting(NamedTuple):
    """How often labels flip, and the labels of each kind of cluster of two."""

    alpha: float
    kinds: tuple[Labels, ...]

    def law(self, labels: Labels) -> np.ndarray:
        """The chance of each outcome, by enumeration of flips, picks and participation."""
        chances = dict.fromkeys(OUTCOMES, 0.0)
        for flips in itertools.product((0, 1), repeat=2):
            noisy = [label ^ flip for label, flip in zip(labels, flips, strict=True)]
            weight = np.prod([self.alpha if flip else 1 - self.alpha for flip in flips])
            for picks in itertools.product((0, 1), repeat=2):
                for part in itertools.product((False, True), repeat=2):
                    seen = tuple(noisy[pick] if here else None for pick, here in zip(picks, part, strict=True))
                    chances[seen] += weight * 0.25 * np.prod([THETA if here else 1 - THETA for here in part])
        return np.array([chances[outcome] for outcome in OUTCOMES])

    def layout(self, clusters: int) -> tuple[np.ndarray, np.ndarray]:
        """Labels and groups of so many clusters of each kind: kinds take turns."""
        n = len(self.kinds) * clusters
        return np.tile(np.array(self.kinds).reshape(-1), clusters), np.repeat(np.arange(n), 2)

    def count(self, reports) -> Counts:
        """How often each outcome occurred in the clusters of each kind."""
        value = np.zeros(reports.participates.size, int)
        value[reports.rows] = reports.labels + 1
        outcome = (value.reshape(-1, 2) * [3, 1]).sum(axis=1)
        step = len(self.kinds)
        return {kind: np.bincount(outcome[k::step], minlength=9) for k, kind in enumerate(self.kinds)}

    def unlikely(self, counts: Counts) -> bool:
        """Whether some frequency has a two-sided binomial tail below its share of `LEVEL` (a union bound).

        Of each kind: the nine outcomes, and how often both report the same where both report.
        """
        for kind, found in counts.items():
            stated = self.law(kind)
            seen = np.append(found, found[AGREE].sum())
            trials = np.append(np.full(9, found.sum()), found[BOTH].sum())
            chance = np.append(stated, stated[AGREE].sum() / stated[BOTH].sum())
            tails = 2 * np.minimum(binom.cdf(seen, trials, chance), binom.sf(seen - 1, trials, chance))
            if (tails < LEVEL / (len(self.kinds) * len(seen))).any():
                return True
        return False


#: Fair flips hide every label: what two reports have in common is the noisy label that both copied.
COPIES = Setting(alpha=0.5, kinds=((0, 0),))
#: Rare flips show the label that was picked.
PICKS = Setting(alpha=0.125, kinds=((0, 0), (1, 0)))


def run_protocol(setting: Setting, clusters: int, peer: type[Peer] = Peer) -> Counts:
    """How often each outcome occurred in a run with so many clusters of each kind, among such peers."""
    labels, groups = setting.layout(clusters)
    roster = Roster.of(groups.tolist())
    seats = [Seat(name=k, ticket=roster.tickets[k], label=label) for k, label in enumerate(labels.tolist())]
    terms = Terms(
        run="law",
        alpha=setting.alpha,
        theta=THETA,
        rendezvous="",
        learner="",
        timeout=3600.0,  # nobody drops out: the run ends when all have spoken, however long that takes
        join_timeout=3600.0,
        least_share=0.5,
        host=None,
    )

    def make(seat: Seat, terms: Terms) -> Peer:
        return peer(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)

    run = conduct(seats, roster=roster, terms=terms, make=make)
    assert (run.absent, run.lost, run.silent, run.refused) == (0, 0, 0, {})
    return setting.count(run)


@pytest.mark.parametrize("setting", [COPIES, PICKS])
def test_the_vectorised_mechanism_has_this_law(setting: Setting):
    labels, groups = setting.layout(50_000)
    reports = PeerToPeerRR(setting.alpha, theta=THETA).simulate(labels, groups=groups, rng=3)
    assert not setting.unlikely(setting.count(reports))


@pytest.mark.parametrize(("setting", "clusters"), [(COPIES, 450), (PICKS, 150)])
def test_the_protocol_has_the_same_law(setting: Setting, clusters: int):
    # Fresh noise every time: fails once in a million runs (LEVEL) at most.
    assert not setting.unlikely(run_protocol(setting, clusters))


class ForgetfulPeer(Peer):
    """Flips anew for everyone who asks: the answers would add up to the label."""

    async def _serve(self, server) -> None:
        while True:
            frames = await server.recv_multipart()
            fresh = int(self._coin(1 << 63))  # every label is 0 in COPIES, and half of 2^64 is its alpha
            answer = encode("answer", run=self._terms.run, peer=self.name, label=fresh)
            here = encode("here", run=self._terms.run, peer=self.name)
            await server.send_multipart([*frames[:-1], here if b'"knock"' in frames[-1] else answer])


class VainPeer(Peer):
    """Always asks herself."""

    async def _ask_someone(self, context, members):
        return await super()._ask_someone(context, {self.name: members[self.name]})


class RawPeer(Peer):
    """Does not flip."""

    def __init__(self, label, **others) -> None:
        super().__init__(label, **others)
        self._noisy = label


@pytest.mark.parametrize(
    ("twin", "setting", "clusters"), [(ForgetfulPeer, COPIES, 450), (VainPeer, PICKS, 110), (RawPeer, COPIES, 60)]
)
def test_broken_peers_are_caught(twin: type[Peer], setting: Setting, clusters: int):
    # Simulated from the twins' laws: missed in at most 1 of 100,000 trials at these numbers of clusters.
    assert setting.unlikely(run_protocol(setting, clusters, twin))
