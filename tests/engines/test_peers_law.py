"""The protocol's reports have the law of the vectorised mechanism, and the test can tell when they do not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from labeldp.mechanisms import PeerToPeerRR
from labeldp.peers import Peer, run_peers
from labeldp.peers import run as _run
from labeldp.peers.messages import encode

ALPHA, THETA = 0.25, 0.8
#: Two kinds of clusters of two: equal labels show who copies whom, unequal ones show who is picked.
KINDS = ((0, 0), (1, 0))
OUTCOMES = tuple(itertools.product((None, 0, 1), repeat=2))
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


def protocol_counts(runs: int, clusters: int = 200) -> dict[tuple[int, int], np.ndarray]:
    total = {kind: np.zeros(9, int) for kind in KINDS}
    labels, groups = layout(clusters)
    for _ in range(runs):
        run = run_peers(labels, groups=groups, alpha=ALPHA, theta=THETA, timeout=30.0)
        assert (run.absent, run.lost, run.silent, run.refused) == (0, 0, 0, {})
        for kind, seen in counted(run).items():
            total[kind] += seen
    return total


def unlikely(counts: dict[tuple[int, int], np.ndarray]) -> bool:
    """Whether some frequency has a two-sided binomial tail below its share of `LEVEL` (a union bound)."""
    for kind, seen in counts.items():
        n, chance = seen.sum(), law(kind)
        tails = 2 * np.minimum(binom.cdf(seen, n, chance), binom.sf(seen - 1, n, chance))
        if (tails < LEVEL / (len(KINDS) * len(OUTCOMES))).any():
            return True
    return False


def test_the_vectorised_mechanism_has_this_law():
    labels, groups = layout(50_000)
    reports = PeerToPeerRR(ALPHA, theta=THETA).simulate(labels, groups=groups, rng=3)
    assert not unlikely(counted(reports))


def test_the_protocol_has_the_same_law():
    # Fresh noise every time: fails once in a million runs (LEVEL) at most.
    assert not unlikely(protocol_counts(4))


class ForgetfulPeer(Peer):
    """Flips anew for everyone who asks: the answers would add up to the label."""

    async def _serve(self, server) -> None:
        while True:
            frames = await server.recv_multipart()
            fresh = TRUTH[self.name] ^ int(self._coin(1 << 62))  # 2^62 / 2^64 is ALPHA
            body = encode("answer", run=self._terms.run, peer=self.name, label=fresh)
            await server.send_multipart([*frames[:-1], body])


class VainPeer(Peer):
    """Always asks herself."""

    async def _look(self, context, members):
        return await super()._look(context, {self.name: members[self.name]})


class RawPeer(Peer):
    """Does not flip."""

    def __init__(self, label, **others) -> None:
        super().__init__(label, **others)
        self._noisy = label


#: The labels of every layout here, for the twin that must know them.
TRUTH = layout(200)[0].tolist()


@pytest.mark.parametrize(("twin", "runs"), [(ForgetfulPeer, 4), (VainPeer, 1), (RawPeer, 1)])
def test_broken_peers_are_caught(monkeypatch, twin: type[Peer], runs: int):
    # Simulated from the twins' laws: caught in 1000 of 1000 trials at 800 (forgetful) and 200 (the others) clusters.
    def seated(seat, terms):
        return twin(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)

    monkeypatch.setattr(_run, "seated", seated)
    assert unlikely(protocol_counts(runs))
