"""The three roles as programs of their own, over TCP: each opens what it needs, and the run is that of `run_peers`.

Deadlines are never reached where all keep to the protocol, so that no verdict depends on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

pytest.importorskip("zmq", reason="needs labeldp[peers]")

from labeldp.errors import LabelDPError
from labeldp.peers import Attendance, Learner, Peer, PeerRun, Rendezvous, Roster, Terms, run_peers

#: A deadline that is never reached: what is waited for comes.
AMPLE = 3600.0


@pytest.fixture
def ports() -> list[int]:
    """Two ports of this machine that were free a moment ago."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def make_terms(ports: list[int], **changes: Any) -> Terms:
    given: dict[str, Any] = {
        "run": "machines",
        "alpha": 0.25,
        "theta": 1.0,
        "rendezvous": f"tcp://127.0.0.1:{ports[0]}",
        "learner": f"tcp://127.0.0.1:{ports[1]}",
        "timeout": AMPLE,
        "join_timeout": AMPLE,
        "least_share": 0.5,
        "host": "127.0.0.1",
    }
    return Terms(**{**given, **changes})


def test_programs_of_their_own_make_the_run_of_one_machine(ports):
    roster, terms = Roster.of([0] * 5 + [1] * 4), make_terms(ports)
    learner = Learner(roster=roster.for_learner(), terms=terms)

    async def hold_all() -> Attendance:
        held = asyncio.create_task(Rendezvous(roster=roster, terms=terms).hold())

        async def find_survivors() -> frozenset[int]:
            return (await held).survivors

        peers = [Peer(1, name=name, ticket=ticket, terms=terms) for name, ticket in roster.tickets.items()]
        await asyncio.gather(learner.collect(survivors=find_survivors()), *(peer.play() for peer in peers))
        return await held

    run = PeerRun.of(learner, asyncio.run(hold_all()))
    assert (run.participates.all(), run.absent, run.lost, run.silent, run.refused) == (True, 0, 0, 0, {})
    assert run.cluster_sizes.tolist() == [5, 4]
    together = run_peers([1] * 9, groups=[0] * 5 + [1] * 4, alpha=0.25, theta=1.0, timeout=AMPLE, join_timeout=AMPLE)
    assert run.guarantee == together.guarantee
    assert run.peer_guarantee == together.peer_guarantee


def test_fewer_survivors_are_a_weaker_promise(ports):
    """The survivors are those of the rendezvous: a learner who is told of fewer promises less, never more."""
    roster = Roster.of([0] * 30)
    learner = Learner(roster=roster.for_learner(), terms=make_terms(ports, alpha=0.1))
    everyone = frozenset(range(30))
    promises = [
        PeerRun.of(learner, Attendance(joined=everyone, survivors=frozenset(range(left)))).guarantee.epsilon(1e-3)
        for left in (30, 10, 1)
    ]
    assert promises == sorted(promises)
    assert promises[0] < promises[-1]


@pytest.mark.parametrize("role", ["rendezvous", "learner"])
@pytest.mark.parametrize("address", ["tcp://192.0.2.1:9", "nowhere", "tcp://127.0.0.1:{taken}"])
def test_a_place_that_cannot_be_had_is_named(ports, role, address):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = address.format(taken=taken.getsockname()[1])
        terms = make_terms(ports, **{role: place})
        roster = Roster.of([0, 0])
        if role == "rendezvous":
            work = Rendezvous(roster=roster, terms=terms).hold()
        else:
            work = Learner(roster=roster.for_learner(), terms=terms).collect(survivors=frozenset({0}))
        with pytest.raises(LabelDPError, match=rf"Terms: `{role}` must be an address of this machine that is free"):
            asyncio.run(work)


def test_a_peer_whom_nobody_meets_ends_by_herself(ports):
    """No rendezvous is there: she leaves after the lifetime of a run, which is short here, and nothing is raised."""
    terms = make_terms(ports, timeout=0.01, join_timeout=0.01)
    asyncio.run(Peer(1, name=0, ticket="t", terms=terms).play())
