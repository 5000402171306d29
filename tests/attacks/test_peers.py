"""Strangers at the sockets of the peer-to-peer protocol, and peers who lie about where they are.

On the commit before, a message of any length was taken in whole (600 MB were; here 8 MB), and an address with a lone surrogate,
which JSON can carry, went from a lying peer through the rendezvous to the others, where `connect` raised UnicodeEncodeError.
Now the transport closes a connection that announces more than a message can be, and such an address is refused at the desk.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("zmq", reason="needs labeldp[peers]")

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from labeldp.peers import Roster
from labeldp.peers.messages import encode, open_socket

PATIENCE = 600.0  # a test that waits in vain ends


async def what_comes(size: int) -> str:
    """Send so many bytes to a socket of ours; return what it does: take the message, or close the connection."""
    context = zmq.asyncio.Context()
    inbox, stranger = open_socket(context, zmq.PULL), context.socket(zmq.PUSH)
    stranger.set(zmq.LINGER, 0)
    monitor: Any = inbox.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        port = inbox.bind_to_random_port("tcp://127.0.0.1")
        stranger.connect(f"tcp://127.0.0.1:{port}")
        await stranger.send(bytes(size))
        taken = asyncio.ensure_future(inbox.recv())
        closed = asyncio.ensure_future(recv_monitor_message(monitor))
        done, left = await asyncio.wait({taken, closed}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return "taken" if taken in done else "closed" if closed in done else "nothing"
    finally:
        inbox.disable_monitor()
        context.destroy(linger=0)


def test_a_message_longer_than_any_is_not_taken_in():
    assert asyncio.run(what_comes(8_000_000)) == "closed"
    assert asyncio.run(what_comes(4096)) == "taken"  # the broken twin: a message of the longest kind is heard


def test_an_address_that_cannot_be_sent_goes_to_nobody():
    roster = Roster.of([0, 0])
    for address in ("tcp://\ud800:1", "tcp://[\x1b]:1", "tcp://h\u00f6st:1", "t" * 300, ""):
        hello = encode("hello", run="r", peer=0, ticket=roster.tickets[0], address=address)
        assert roster.admit(hello, run="r", kinds=("hello",)) is None, ascii(address)
    assert sum(roster.refused.values()) == 5
    hello = encode("hello", run="r", peer=0, ticket=roster.tickets[0], address="tcp://10.0.0.1:5555")
    assert roster.admit(hello, run="r", kinds=("hello",)) is not None
