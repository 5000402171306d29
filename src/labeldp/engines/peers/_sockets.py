"""Sockets that never keep a process waiting."""

from __future__ import annotations

import zmq.asyncio

#: How long a closing socket may take to hand over what was sent, in milliseconds.
LINGER = 3000
#: Connections that may wait to be accepted: a whole run connects at once, and the usual 100 would make some try again.
BACKLOG = 8192


def opened(context: zmq.asyncio.Context, kind: int, *, linger: int = 0) -> zmq.asyncio.Socket:
    """Return a socket of this kind that, once closed, holds unsent messages for `linger` milliseconds at most."""
    socket: zmq.asyncio.Socket = context.socket(kind)
    socket.set(zmq.LINGER, linger)
    socket.set(zmq.BACKLOG, BACKLOG)
    return socket
