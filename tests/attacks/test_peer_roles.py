"""Peers, a learner and strangers who want more than the protocol gives: cover that is none, tickets, questions, floods.

On the commit before,

- a peer whom nobody could reach was a survivor whenever nobody had asked her, and `PeerRun.guarantee` counted her among those
  whom a report may be of: with 39 of 40 deaf and theta 0.03, 37 survived, and each report would have been peer 0's own label;
- the learner had every ticket of the rendezvous, and could come as the absent or have others thrown out;
- whoever reached a peer's port was told her flipped label, the learner as well, though its guarantee is far smaller;
- of a cluster of 40 in which 38 never came the other two reported, whatever `least_share` was;
- terms with an alpha of 0 or 1 were played by: nothing was flipped, or everything;
- a stranger who sent without a pause kept the rendezvous in one phase for ever (300,000 messages past its deadline);
- a worker process had room for the sockets of 340 peers: of 600, 511 came, none could ask, and nothing was reported.

No verdict here depends on how busy the machine is, as in tests/peers/test_dropout.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

pytest.importorskip("zmq", reason="needs labeldp[peers]")

import zmq
import zmq.asyncio

from labeldp.errors import LabelDPError
from labeldp.peers import Learner, Peer, PeerRun, Rendezvous, Roster, Terms
from labeldp.peers.messages import MachineClock, encode, open_context
from labeldp.peers.roles import Seat, host_peers, make_peer
from labeldp.peers.run import conduct

#: A deadline that is never reached: what is waited for comes.
AMPLE = 3600.0


class GivingUp:
    """A clock whose deadlines pass at once where none but these peers are waited for, and never otherwise."""

    def __init__(self, dead: Collection[int]) -> None:
        self.dead = set(dead)

    def now(self) -> float:
        return 0.0

    async def wait(self, work: Any, *, until: float, on: Collection[int]) -> Any:
        task = asyncio.ensure_future(work)
        if on and self.dead.issuperset(on):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise asyncio.TimeoutError
        return await task


def make_terms(**changes: Any) -> Terms:
    given: dict[str, Any] = {
        "run": "r",
        "alpha": 0.25,
        "theta": 1.0,
        "rendezvous": "",
        "learner": "",
        "timeout": AMPLE,
        "join_timeout": AMPLE,
        "least_share": 0.5,
        "host": None,
    }
    return Terms(**{**given, **changes})


def run_with(
    n: int,
    *,
    absent: Collection[int] = (),
    make: Callable[[Seat, Terms], Peer] = make_peer,
    **terms: Any,
) -> PeerRun:
    """Run one cluster of n peers with label 1, of whom some do not come."""
    roster = Roster.of([0] * n)
    seats = [Seat(name=k, ticket=roster.tickets[k], label=1) for k in range(n) if k not in absent]
    given = make_terms(**{"clock": GivingUp(absent), **terms})
    return conduct(seats, roster=roster, terms=given, make=make)


class Shy(Peer):
    """Asks nobody: chance must not decide whether one who cannot be asked is asked."""

    async def _ask_someone(self, context: Any, members: dict[int, str]) -> tuple[None, None]:
        return None, None


class Babbler(Shy):
    """Says what nobody understands to all who ask."""

    async def _serve(self, server: Any) -> None:
        while True:
            frames = await server.recv_multipart()
            await server.send_multipart([*frames[:-1], b"ba ba"])


class Elsewhere(Shy):
    """Is where nobody of this run can go."""

    def _bind(self, server: Any) -> str:
        super()._bind(server)
        return "tcp://10.0.0.1:1"


class Lodger(Shy):
    """Gives the address of peer 11 as hers, who would be asked in her stead."""

    def _bind(self, server: Any) -> str:
        super()._bind(server)
        return f"inproc://{self._terms.run}/11"


class Deaf(Shy):
    """Takes part in everything, but no question reaches her: behind a firewall, say."""

    async def _serve(self, server: Any) -> None:
        await asyncio.get_running_loop().create_future()


def run_with_some(kind: type[Peer], some: int, **terms: Any) -> PeerRun:
    """Run a cluster of twelve of whom the first few are of this kind."""

    def make(seat: Seat, terms: Terms) -> Peer:
        return (kind if seat.name < some else Shy)(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)

    return run_with(12, make=make, **terms)


@pytest.mark.parametrize("kind", [Babbler, Elsewhere, Lodger])
@pytest.mark.parametrize("some", [1, 5])
def test_who_cannot_be_asked_is_no_cover(kind: type[Peer], some: int) -> None:
    run = run_with_some(kind, some)
    assert run.cluster_sizes.tolist() == [12 - some]
    assert (run.absent, run.lost, run.silent, run.refused) == (0, some, 0, {})
    for delta in (1e-3, 0.1):
        assert run.guarantee.epsilon(delta) >= run.mechanism.guarantee_for(12 - some).epsilon(delta)


def test_who_does_not_hear_a_question_is_no_cover() -> None:
    # By the machine's clock: a machine that is very busy loses others too, and never keeps the deaf ones.
    run = run_with_some(Deaf, 5, clock=MachineClock(), timeout=0.5)
    assert run.absent == 0
    assert run.cluster_sizes.tolist()[0] <= 7


@pytest.mark.parametrize(("absent", "reports"), [(4, 6), (6, 0)])
def test_those_who_never_came_have_left_the_cluster_too(absent: int, reports: int) -> None:
    run = run_with(10, absent=range(absent))
    assert (run.absent, run.lost) == (absent, 0)
    assert len(run.rows) == reports


def test_the_learner_can_speak_for_nobody() -> None:
    roster = Roster.of([0, 0, 1])
    known = roster.for_learner()
    assert not set(known.tickets.values()) & set(roster.tickets.values())
    for name, ticket in known.tickets.items():
        for kind, fields in (("hello", {"address": "tcp://10.0.0.1:1"}), ("ready", {"failed": 0}), ("alive", {})):
            body = encode(kind, run="r", peer=name, ticket=ticket, **fields)
            assert roster.admit(body, run="r", kinds=(kind,)) is None
    assert roster.refused == {"unknown sender": 9}
    assert known.refused is roster.refused  # one count for a run


def test_what_the_rendezvous_heard_is_no_report() -> None:
    """The broken twin of the two tickets: a report under the rendezvous' ticket, and one under the learner's."""
    roster = Roster.of([0, 0])
    learner = Learner(roster=roster.for_learner(), terms=make_terms())
    for tickets in (roster.tickets, learner.roster.tickets):
        body = encode("report", run="r", peer=1, ticket=tickets[1], label=1)
        learner.hear(body, survivors=frozenset({0, 1}))
    assert learner.reports == {1: 1}
    assert roster.refused == {"unknown sender": 1}


async def hear_first(word: str) -> str:
    """Ask a peer with this word, then knock with the right one; return what comes first: answers come in order."""
    peer = Peer(1, name=0, ticket="t", terms=make_terms())
    peer._word = "right"  # what the rendezvous tells her
    context = open_context(2)
    server, stranger = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    server.bind("inproc://r/0")
    stranger.connect("inproc://r/0")
    serving = asyncio.create_task(peer._serve(server))
    try:
        await stranger.send(encode("ask", run="r", peer=1, word=word))
        await stranger.send(encode("knock", run="r", word="right"))
        return (await stranger.recv()).decode()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        context.destroy(linger=0)


def test_who_does_not_know_the_word_of_the_cluster_is_told_nothing() -> None:
    assert '"kind":"here"' in asyncio.run(hear_first("wrong"))
    assert '"kind":"answer"' in asyncio.run(hear_first("right"))  # the broken twin: the search sees an answer


def test_clusters_have_words_of_their_own() -> None:
    heard: dict[int, str] = {}

    class Listener(Peer):
        async def _serve(self, server: Any) -> None:
            heard[self.name] = self._word or ""
            await super()._serve(server)

    roster = Roster.of([0, 0, 1, 1])
    seats = [Seat(name=k, ticket=roster.tickets[k], label=0) for k in range(4)]
    for _ in range(2):
        before = set(heard.values())
        conduct(seats, roster=roster, terms=make_terms(), make=lambda seat, terms: make_peer_of(Listener, seat, terms))
        assert heard[0] == heard[1] != heard[2] == heard[3]
        assert not before & set(heard.values())  # and every run
        assert all(len(word) == 32 for word in heard.values())


def make_peer_of(kind: type[Peer], seat: Seat, terms: Terms) -> Peer:
    return kind(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.0),
        ("alpha", -0.1),
        ("alpha", 1.0),
        ("alpha", float("nan")),
        ("theta", 0.0),
        ("theta", 1.5),
        ("least_share", 0.0),
        ("least_share", 2.0),
        ("timeout", -1.0),
        ("join_timeout", float("inf")),
        ("most_peers", 0),
    ],
)
def test_nobody_plays_on_such_terms(name: str, value: float) -> None:
    with pytest.raises(LabelDPError, match=f"Terms: `{name}` must be"):
        make_terms(**{name: value})


def test_a_peer_plays_once() -> None:
    peer = Peer(
        1, name=0, ticket="t", terms=make_terms(timeout=0.001, join_timeout=0.001, rendezvous="inproc://nobody")
    )

    async def play_twice() -> None:
        context = open_context(1)
        try:
            await peer.play(context)  # nobody is there, and she ends by herself
            await peer.play(context)
        finally:
            context.destroy(linger=0)

    with pytest.raises(LabelDPError, match="a peer plays once"):
        asyncio.run(play_twice())


class Flood:
    """A socket that has always a message, of a stranger; it stops the test where nobody else would."""

    def __init__(self) -> None:
        self.taken = 0

    def recv_multipart(self) -> asyncio.Future[list[bytes]]:
        self.taken += 1
        assert self.taken < 200_000, "nobody looks at the clock"
        done = asyncio.get_running_loop().create_future()
        done.set_result([b"stranger", b"nonsense"])
        return done


def test_a_flood_does_not_outlast_a_phase() -> None:
    roster, terms = Roster.of([0, 0]), make_terms(timeout=0.02, join_timeout=0.02)
    flood: Any = Flood()

    async def hold_and_collect() -> Any:
        attendance = await Rendezvous(roster=roster, terms=terms).hold(flood)
        learner = Learner(roster=roster.for_learner(), terms=terms)
        await learner.collect(flood, survivors=frozenset({0, 1}))
        return attendance, learner

    attendance, learner = asyncio.run(hold_and_collect())
    assert (attendance.joined, learner.heard) == (frozenset(), set())
    assert roster.refused["not JSON"] <= flood.taken


def test_one_who_asks_without_a_pause_does_not_stop_the_others() -> None:
    peer = Peer(1, name=0, ticket="t", terms=make_terms())
    flood: Any = Flood()

    async def serve_and_go_on() -> int:
        serving = asyncio.create_task(peer._serve(flood))
        for _ in range(100):
            await asyncio.sleep(0)  # the turns of another peer of this process
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return int(flood.taken)

    assert asyncio.run(serve_and_go_on()) <= 200


def test_a_process_has_room_for_the_sockets_of_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted and not opened: a test may have fewer files than that."""
    asked: list[int] = []

    def spy(n_peers: int) -> Any:
        asked.append(n_peers)
        return open_context(n_peers)

    monkeypatch.setattr("labeldp.peers.roles.open_context", spy)
    terms = make_terms(timeout=0.001, join_timeout=0.001, rendezvous="inproc://nobody")
    host_peers(
        [Seat(name=k, ticket="t", label=1) for k in range(3)], terms
    )  # nobody is there, and they end by themselves
    assert asked == [3]
    for n_peers in (600, 10**6):
        context = open_context(n_peers)
        try:
            assert context.get(zmq.MAX_SOCKETS) >= min(4 * n_peers, int(context.get(zmq.SOCKET_LIMIT)))
        finally:
            context.destroy(linger=0)
