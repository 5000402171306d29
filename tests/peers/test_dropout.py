"""Peers that die, lie or talk too much: the run ends, and what it releases is still what it promised.

No verdict here depends on how busy the machine is: the tests bring a clock whose deadlines pass when the test says so.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee, Trust
from labeldp.loss.peers import local_epsilon
from labeldp.mechanisms import PeerToPeerRR
from labeldp.peers import Peer, Roster, Terms, run_peers
from labeldp.peers.messages import MachineClock
from labeldp.peers.roles import Seat, make_peer
from labeldp.peers.run import HOST, conduct

#: Seconds of a phase where nobody drops out: the run ends when all have spoken, and no deadline is ever reached.
AMPLE = 3600.0


class TestClock:
    """A deadline passes as soon as `gives_up` says so of the peers that are still waited for, and never otherwise."""

    __test__ = False

    def __init__(self, gives_up: Callable[[set[int]], bool]) -> None:
        self.gives_up = gives_up
        self.waits: dict[asyncio.Future[None], set[int]] = {}

    def now(self) -> float:
        return 0.0

    async def wait(self, work, *, until, on):
        passed = asyncio.get_running_loop().create_future()
        self.waits[passed] = set(on)
        self.look()
        try:
            return await first_of(work, passed)
        finally:
            del self.waits[passed]

    def look(self) -> None:
        """Let the deadlines pass that should, now that something has changed."""
        for passed, on in self.waits.items():
            if on and not passed.done() and self.gives_up(on):
                passed.set_result(None)


async def first_of(work, passed):
    """What `work` returns, or a time-out once `passed` is done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, passed}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise asyncio.TimeoutError
    finally:  # also when this wait is itself cancelled: a killed peer does nothing more
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Killer:
    """Cancels some of the tasks when a phase begins; deadlines pass where none but these are waited for."""

    def __init__(self, phase: str, doomed: slice) -> None:
        self.phase, self.doomed = phase, doomed
        self.dead: set[int] = set()
        self.clock = TestClock(lambda on: on <= self.dead)

    def __call__(self, phase, /, *, tasks, hosts) -> None:
        if phase == self.phase:
            for task in tasks[self.doomed]:
                task.cancel()
            self.dead |= set(range(len(tasks))[self.doomed])
            self.clock.look()


def settings(*, alpha=0.5, theta=1.0, least_share=0.5, host=None, clock=None, timeout=AMPLE) -> Terms:
    return Terms(
        run="test",
        alpha=alpha,
        theta=theta,
        rendezvous="",
        learner="",
        timeout=timeout,
        join_timeout=timeout,
        least_share=least_share,
        host=host,
        clock=MachineClock() if clock is None else clock,
    )


def run_with(labels, groups, *, processes=0, watch=None, make=make_peer, roster=None, **terms):
    roster = Roster.of(groups) if roster is None else roster
    seats = [Seat(name=k, ticket=roster.tickets[k], label=int(label)) for k, label in enumerate(labels)]
    terms = settings(host=HOST if processes else None, **terms)
    return conduct(seats, roster=roster, terms=terms, processes=processes, watch=watch, make=make)


def run_and_kill(labels, groups, phase, doomed, **terms):
    killer = Killer(phase, doomed)
    return run_with(labels, groups, watch=killer, clock=killer.clock, **terms)


def assert_no_raw_labels(run) -> None:
    """All labels were 1 and alpha is a half: raw labels would all be 1, noisy ones are fair coins.

    Hoeffding twice, for the share of ones among a >= 170 noisy labels and among m >= 140 reports of them, each within
    0.24: fails with probability 2 exp(-2 * 170 * 0.24^2) + 2 exp(-2 * 140 * 0.24^2) < 3e-7.
    """
    assert len(run.rows) >= 140
    assert abs(run.labels.mean() - 0.5) < 0.48


def test_two_hundred_peers_as_tasks():
    run = run_peers(np.ones(200, int), groups=np.arange(200) % 4, alpha=0.5, theta=1.0, timeout=AMPLE)
    assert len(run.rows) == 200
    assert (run.absent, run.lost, run.silent, run.refused) == (0, 0, 0, {})
    assert run.cluster_sizes.tolist() == [50] * 4
    assert not run.seeded
    assert_no_raw_labels(run)


@pytest.mark.parametrize("phase", ["asking", "checking"])
def test_killing_a_tenth_of_the_tasks_neither_hangs_nor_releases_a_raw_label(phase: str):
    run = run_and_kill(np.ones(200, int), (np.arange(200) % 2).tolist(), phase, slice(None, None, 10))
    assert (run.lost, run.silent, run.absent) == (20, 0, 0)
    assert not np.isin(run.rows, np.arange(0, 200, 10)).any()
    assert run.cluster_sizes.tolist() == [80, 100]  # 0, 10, 20, .. are all even: of the first cluster
    assert_no_raw_labels(run)


class WorkerClock:
    """As `TestClock`, for all processes of a run: gives up on the peers of one worker once that has been killed.

    The news is a byte in a pipe that nobody takes out: it wakes all who wait, and a dead process can hold no lock of it.
    """

    def __init__(self, doomed: frozenset[int]) -> None:
        self.doomed = doomed
        self.news, self.source = multiprocessing.Pipe(duplex=False)

    def __getstate__(self) -> dict[str, object]:
        return {"doomed": self.doomed, "news": self.news}

    def now(self) -> float:
        return 0.0

    async def wait(self, work, *, until, on):
        if not on or not self.doomed.issuperset(on):
            return await work
        return await first_of(work, asyncio.get_running_loop().run_in_executor(None, self.news.poll, None))


@pytest.mark.skipif(sys.platform == "win32", reason="its workers are not made by a fork server")
def test_sigkill_of_a_worker_with_a_tenth_of_the_peers():
    clock = WorkerClock(frozenset(range(3, 200, 10)))

    def watch(now, /, *, tasks, hosts) -> None:
        if now == "asking":
            hosts[3].kill()
            hosts[3].join()
            clock.source.send_bytes(b"killed")

    run = run_with(np.ones(200, int), [0] * 200, processes=10, watch=watch, clock=clock)
    assert (run.absent, run.lost, run.silent) == (0, 20, 0)
    assert run.cluster_sizes.tolist() == [180]
    assert not (run.rows % 10 == 3).any()
    assert_no_raw_labels(run)


def test_reports_copy_survivors_only():
    # Peer 0 alone has a 1, alpha is next to nothing (1e-9 a flip), and she dies after the questions were answered: many
    # have seen her label, none may report it. A protocol that reported it would fail with 1 - (1 - 1/40)^39 = 0.63; four
    # clusters in which the same happens make that 0.98.
    labels = [int(k % 40 == 0) for k in range(160)]
    run = run_and_kill(labels, [k // 40 for k in range(160)], "checking", slice(None, None, 40), alpha=1e-9)
    assert run.cluster_sizes.tolist() == [39] * 4
    assert 100 < len(run.rows) <= 156  # those who asked her are silent: about 1 in 40
    assert not run.labels.any()


def test_the_guarantee_is_that_of_the_survivors():
    run = run_and_kill([0, 1] * 10, [0] * 10 + [1] * 10, "asking", slice(3), alpha=0.2, theta=0.5)
    mechanism = PeerToPeerRR(0.2, theta=0.5)
    assert run.cluster_sizes.tolist() == [7, 10]
    for delta in (1e-8, 1e-3, 1e-2):
        assert run.guarantee.epsilon(delta) >= mechanism.guarantee_for(7).epsilon(delta)
    assert run.guarantee.trust == Trust.PEERS
    assert any("drops out" in words for words in run.guarantee.assumptions)
    assert run.peer_guarantee == Guarantee.pure(local_epsilon(0.2))
    assert "3 dropped out" in repr(run)


def test_a_cluster_that_shrank_too_much_reports_nothing():
    run = run_and_kill([1] * 12, [0] * 6 + [1] * 6, "asking", slice(4))
    assert run.cluster_sizes.tolist() == [2, 6]
    assert (run.rows >= 6).all()
    assert len(run.rows) == 6


def test_everyone_dead_is_an_empty_run():
    run = run_and_kill([1, 0], [0, 0], "joining", slice(None))
    assert (len(run.rows), run.absent + run.lost) == (0, 2)
    assert run.guarantee.epsilon() == 0.0


def test_the_clock_of_the_machine_ends_a_run_as_well():
    # All are dead from the start: whatever the machine does meanwhile, nobody can come before the deadline.
    def watch(now, /, *, tasks, hosts) -> None:
        for task in tasks:
            task.cancel()

    run = run_with([1, 0], [0, 0], watch=watch, timeout=0.01)
    assert (len(run.rows), run.absent) == (0, 2)


class BadAnswer(Peer):
    async def _serve(self, server) -> None:
        while True:
            frames = await server.recv_multipart()
            await server.send_multipart([*frames[:-1], b'{"label": 7}'])


class BadReport(Peer):
    def _sign(self, kind, **fields):
        return b"\xff\x00" if kind == "report" else super()._sign(kind, **fields)


class Forger(Peer):
    """Speaks for someone else when she should say hello."""

    def _sign(self, kind, **fields):
        body = super()._sign(kind, **fields)
        return body.replace(self._ticket.encode(), b"guess") if kind == "hello" else body


class BadAddress(Peer):
    def _bind(self, server) -> str:
        return "nowhere at all"


class Curious(Peer):
    """Peer 6 always asks the liar. Left to chance, nobody would in (1 - 1/40)^39 = 0.37 of the runs."""

    async def _ask_someone(self, context, members):
        if self.name == 6 and 5 in members:
            return 5, await self._ask(context, members[5], 5)
        return await super()._ask_someone(context, members)


@pytest.mark.parametrize(
    ("liar", "lost", "absent", "silent", "refused"),
    [
        (BadAnswer, 1, 0, 0, {}),
        (BadAddress, 1, 0, 0, {}),
        (BadReport, 0, 0, 1, {"not JSON": 1}),
        (Forger, 0, 1, 0, {"unknown sender": 1}),
    ],
)
def test_a_liar_costs_only_her_own_part(liar, lost, absent, silent, refused):
    def make(seat, terms):
        kind = liar if seat.name == 5 else Curious
        return kind(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)

    roster = Roster.of([0] * 40)
    # Those who wait for the liar alone wait until her lie has been heard.
    clock = TestClock(lambda on: on == {5} and bool(roster.refused))
    run = run_with([1] * 40, [0] * 40, make=make, roster=roster, clock=clock)
    assert (run.lost, run.absent, run.silent) == (lost, absent, silent)
    assert run.refused == refused
    assert 5 not in run.rows
    assert len(run.rows) >= 10  # 40 less those who asked the liar: 1 in 40, and peer 6


def test_processes_give_the_same_result_shape():
    run = run_peers([0, 1] * 10, groups=[0] * 20, alpha=0.1, theta=1.0, processes=2, timeout=AMPLE, join_timeout=AMPLE)
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
