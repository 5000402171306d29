"""What one worker process, or the tasks of one, does: make its peers, and let them play."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq.asyncio

from labeldp.engines.peers._peer import Peer
from labeldp.engines.peers._roster import Terms
from labeldp.engines.peers._sockets import LINGER


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What a peer is made from; its repr shows no label and no ticket."""

    name: int
    ticket: str = field(repr=False)
    label: int = field(repr=False)


def seated(seat: Seat, terms: Terms) -> Peer:
    """Return the peer of a seat."""
    return Peer(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)


def host(seats: Sequence[Seat], terms: Terms) -> None:
    """Run some peers in this process, until they are done."""
    asyncio.run(_host(seats, terms))


async def _host(seats: Sequence[Seat], terms: Terms) -> None:
    context = zmq.asyncio.Context()
    try:
        peers = [seated(seat, terms) for seat in seats]
        await asyncio.gather(*(peer.play(context) for peer in peers), return_exceptions=True)
    finally:
        context.destroy(linger=LINGER)
