"""Peers that die, lie or talk too much: the run ends in time, and what it releases is still what it promised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.loss.peers import local_epsilon
from labeldp.mechanisms import PeerToPeerRR
from labeldp.peers import Peer, Roster, Terms, run_peers
from labeldp.peers import run as _run
from labeldp.peers.peer import Seat


def settings(*, alpha=0.5, theta=1.0, timeout=8.0, join_timeout=60.0, least_share=0.5, host=None) -> Terms:
    return Terms(
        run="test",
        alpha=alpha,
        theta=theta,
        rendezvous="",
        learner="",
        timeout=timeout,
        join_timeout=join_timeout,
        least_share=least_share,
        host=host,
    )


def conducted(labels, groups, *, processes=0, watch=None, **terms):
    roster = Roster.of(groups)
    seats = [Seat(name=k, ticket=roster.tickets[k], label=int(label)) for k, label in enumerate(labels)]
    host = _run.HOST if processes else None
    return _run.conduct(seats, roster=roster, terms=settings(host=host, **terms), processes=processes, watch=watch)


def assert_no_raw_labels(run) -> None:
    """All labels were 1 and alpha is a half: raw labels would all be 1, noisy ones are fair coins.

    Hoeffding twice, for the share of ones among a >= 170 noisy labels and among m >= 140 reports of them, each within
    0.24: fails with probability 2 exp(-2 * 170 * 0.24^2) + 2 exp(-2 * 140 * 0.24^2) < 3e-7.
    """
    assert len(run.rows) >= 140
    assert abs(run.labels.mean() - 0.5) < 0.48


def test_two_hundred_peers_as_tasks():
    begun = time.perf_counter()
    run = run_peers(np.ones(200, int), groups=np.arange(200) % 4, alpha=0.5, theta=1.0, timeout=30.0)
    print(f"200 tasks: {time.perf_counter() - begun:.2f} s")
    assert len(run.rows) == 200
    assert (run.absent, run.lost, run.silent, run.refused) == (0, 0, 0, {})
    assert run.cluster_sizes.tolist() == [50] * 4
    assert not run.seeded
    assert_no_raw_labels(run)


@pytest.mark.parametrize("phase", ["asking", "checking"])
def test_killing_a_tenth_of_the_tasks_neither_hangs_nor_releases_a_raw_label(phase: str):
    def watch(now, /, *, tasks, hosts) -> None:
        if now == phase:
            for task in tasks[::10]:
                task.cancel()

    begun = time.perf_counter()
    run = conducted(np.ones(200, int), (np.arange(200) % 2).tolist(), watch=watch)
    assert time.perf_counter() - begun < 3 * 2.0 + 5  # three phases of two seconds, and a busy machine
    assert (run.lost, run.silent, run.absent) == (20, 0, 0)
    assert not np.isin(run.rows, np.arange(0, 200, 10)).any()
    assert run.cluster_sizes.tolist() == [80, 100]  # 0, 10, 20, .. are all even: of the first cluster
    assert_no_raw_labels(run)


def test_sigkill_of_a_worker_with_a_tenth_of_the_peers():
    def watch(now, /, *, tasks, hosts) -> None:
        if now == "asking":
            os.kill(hosts[3].pid, signal.SIGKILL)

    run = conducted(np.ones(200, int), [0] * 200, processes=10, watch=watch, timeout=8.0)
    assert run.lost == 20
    assert run.cluster_sizes.tolist() == [180]
    assert not (run.rows % 10 == 3).any()
    assert_no_raw_labels(run)


def test_reports_copy_survivors_only():
    # Peer 0 alone has a 1, alpha is next to nothing (1e-9 a flip), and she dies after the questions were answered: many
    # have seen her label, none may report it. A protocol that reported it would fail with 1 - (1 - 1/40)^39 = 0.63; four
    # clusters in which the same happens make that 0.98.
    def watch(now, /, *, tasks, hosts) -> None:
        if now == "checking":
            for task in tasks[::40]:
                task.cancel()

    labels = [int(k % 40 == 0) for k in range(160)]
    run = conducted(labels, [k // 40 for k in range(160)], watch=watch, alpha=1e-9, timeout=5.0)
    assert run.cluster_sizes.tolist() == [39] * 4
    assert 100 < len(run.rows) < 157  # those who asked her are silent: about 1 in 40
    assert not run.labels.any()


def test_the_guarantee_is_that_of_the_survivors():
    def watch(now, /, *, tasks, hosts) -> None:
        if now == "asking":
            for task in tasks[:3]:
                task.cancel()

    run = conducted([0, 1] * 10, [0] * 10 + [1] * 10, watch=watch, alpha=0.2, theta=0.5, timeout=4.0)
    mechanism = PeerToPeerRR(0.2, theta=0.5)
    assert run.cluster_sizes.tolist() == [7, 10]
    for delta in (1e-8, 1e-3, 1e-2):
        assert run.guarantee.epsilon(delta) >= mechanism.guarantee_for(7).epsilon(delta)
    assert run.guarantee.trust == Trust.PEERS
    assert any("drops out" in words for words in run.guarantee.assumptions)
    assert run.peer_guarantee == Guarantee.pure(local_epsilon(0.2))
    assert "3 dropped out" in repr(run)


def test_a_cluster_that_shrank_too_much_reports_nothing():
    def watch(now, /, *, tasks, hosts) -> None:
        if now == "asking":
            for task in tasks[:4]:
                task.cancel()

    run = conducted([1] * 12, [0] * 6 + [1] * 6, watch=watch, timeout=4.0)
    assert run.cluster_sizes.tolist() == [2, 6]
    assert (run.rows >= 6).all()
    assert len(run.rows) == 6


def test_everyone_dead_is_an_empty_run():
    def watch(now, /, *, tasks, hosts) -> None:
        for task in tasks:
            task.cancel()

    run = conducted([1, 0], [0, 0], watch=watch, timeout=0.2, join_timeout=0.3)
    assert (len(run.rows), run.absent + run.lost) == (0, 2)
    assert run.guarantee.epsilon() == 0.0


class BadAnswer(Peer):
    async def _serve(self, server) -> None:
        while True:
            frames = await server.recv_multipart()
            await server.send_multipart([*frames[:-1], b'{"label": 7}'])


class BadReport(Peer):
    def _signed(self, kind, **fields):
        return b"\xff\x00" if kind == "report" else super()._signed(kind, **fields)


class Forger(Peer):
    """Speaks for someone else when she should say hello."""

    def _signed(self, kind, **fields):
        body = super()._signed(kind, **fields)
        return body.replace(self._ticket.encode(), b"guess") if kind == "hello" else body


class BadAddress(Peer):
    def _bind(self, server) -> str:
        return "nowhere at all"


@pytest.mark.parametrize(
    ("liar", "lost", "absent", "silent", "refused"),
    [
        (BadAnswer, 1, 0, 0, {}),
        (BadAddress, 1, 0, 0, {}),
        (BadReport, 0, 0, 1, {"not JSON": 1}),
        (Forger, 0, 1, 0, {"unknown sender": 1}),
    ],
)
def test_a_liar_costs_only_her_own_part(monkeypatch, liar, lost, absent, silent, refused):
    # Left to chance, nobody would ask the liar in (1 - 1/40)^39 = 0.37 of the runs: peer 6 always does.
    class Curious(Peer):
        async def _look(self, context, members):
            if self.name == 6 and 5 in members:
                return 5, await self._ask(context, members[5], 5)
            return await super()._look(context, members)

    def seated(seat, terms):
        kind = liar if seat.name == 5 else Curious
        return kind(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)

    monkeypatch.setattr(_run, "seated", seated)
    run = conducted([1] * 40, [0] * 40, timeout=6.0, join_timeout=4.0)
    assert (run.lost, run.absent, run.silent) == (lost, absent, silent)
    assert run.refused == refused
    assert 5 not in run.rows
    assert len(run.rows) >= 10  # 40 less those who asked the liar: 1 in 40, and peer 6


def test_processes_give_the_same_result_shape():
    run = run_peers([0, 1] * 10, groups=[0] * 20, alpha=0.1, theta=1.0, processes=2, timeout=20.0)
    assert run.rows.tolist() == list(range(20))
    assert (run.silent, run.refused) == (0, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels_by_peer": [0, 1, 2]}, "`labels` must be 0 or 1, got other values"),
        ({"labels_by_peer": [0.0, 0.5, 1.0]}, "`labels` must be 0 or 1, one per user"),
        ({"labels_by_peer": ["a", "b", "a"]}, "`labels` must be 0 or 1, one per user"),
        ({"groups": [0, 2, 2]}, "`groups` must have an example in every cluster"),
        ({"groups": [0, 0]}, "`groups` must be integers, one per label"),
        ({"alpha": 0.0}, "`alpha` must be in"),
        ({"theta": 1.5}, "`theta` must be in"),
        ({"processes": -1}, "`processes` must be an integer >= 0"),
        ({"timeout": 0.0}, "`timeout` must be finite and > 0"),
        ({"join_timeout": float("inf")}, "`join_timeout` must be finite and > 0"),
        ({"least_share": 0.0}, r"`least_share` must be in \(0, 1\]"),
    ],
)
def test_bad_input_is_answered_clearly(change, words):
    given = {"labels_by_peer": [0, 1, 1], "groups": [0, 0, 0], "alpha": 0.1, "theta": 1.0, **change}
    labels = given.pop("labels_by_peer")
    with pytest.raises(LabelDPError, match=words):
        run_peers(labels, **given)


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['zmq'] = None\nimport labeldp.peers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'labeldp[peers]'" in done.stderr
