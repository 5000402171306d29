"""A peer: one label, its own noise, one question and one report."""

from __future__ import annotations

import asyncio
import contextlib
import math
from fractions import Fraction
from typing import Any, NoReturn

import zmq
import zmq.asyncio

from labeldp._random import BitStream, NoiseKey
from labeldp._samplers import uniform_below
from labeldp.engines.peers._messages import Refused, encode, is_label, read
from labeldp.engines.peers._roster import Terms
from labeldp.engines.peers._sockets import LINGER, opened
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.mechanisms._peers import WORDS, _coins


class Peer:
    """A user and her label, which is flipped at once; what was not flipped is not kept.

    Parameters
    ----------
    label : 0 or 1
        Her label. After construction only the noisy label exists here, so neither a message nor a crash can show it.
    name : int
        Her public number.
    ticket : str
        The secret that shows to rendezvous and learner who she is.

    She draws from a key of her own, from the operating system: a flip with probability alpha (rounded up on 64 bits),
    whether she takes part (theta, rounded down) and, when she knows who is there, the peer that she asks.
    """

    __slots__ = ("_bits", "_noisy", "_takes_part", "_terms", "_ticket", "name")

    def __init__(self, label: int, *, name: int, ticket: str, terms: Terms) -> None:
        if not is_label(label):
            raise invalid("Peer", "label", "be 0 or 1", got=Described("another value"))
        self.name = name
        self._ticket = ticket
        self._terms = terms
        self._bits = BitStream(NoiseKey.from_os().claim("peer"))
        self._noisy = label ^ int(self._coin(math.ceil(Fraction(terms.alpha) * WORDS)))
        self._takes_part = self._coin(math.floor(Fraction(terms.theta) * WORDS))

    def _coin(self, threshold: int) -> bool:
        return bool(_coins(self._bits, threshold, 1)[0])

    async def play(self, context: zmq.asyncio.Context) -> None:
        """Take part in one run, from hello to report; ends by itself when nobody answers any more."""
        server = opened(context, zmq.ROUTER)
        desk = opened(context, zmq.DEALER, linger=LINGER)
        serving: asyncio.Task[None] | None = None
        try:
            address = self._bind(server)
            desk.connect(self._terms.rendezvous)
            serving = asyncio.create_task(self._serve(server))
            await asyncio.wait_for(self._walk(context, desk, address), self._terms.lifetime)
        except asyncio.TimeoutError:
            return  # the others are gone: nothing was reported, and nothing will be
        finally:
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            server.close()
            desk.close()

    def _bind(self, server: zmq.asyncio.Socket) -> str:
        """Return the address at which other peers can ask."""
        if self._terms.host is None:
            address = f"inproc://{self._terms.run}/{self.name}"
            server.bind(address)
            return address
        port = server.bind_to_random_port(f"tcp://{self._terms.host}")
        return f"tcp://{self._terms.host}:{port}"

    async def _walk(self, context: zmq.asyncio.Context, desk: zmq.asyncio.Socket, address: str) -> None:
        """Say hello, ask one peer, wait until all have asked, and report what is left of it."""
        await desk.send(self._signed("hello", address=address))
        members: dict[int, str] = dict((await self._next(desk, "start"))["members"])
        partner, seen = await self._look(context, members)
        failed = partner if partner is not None and seen is None else None
        await desk.send(self._signed("ready", failed=failed))
        await self._next(desk, "check")
        await desk.send(self._signed("alive"))
        survivors = set((await self._next(desk, "close"))["survivors"])
        enough = len(survivors) >= self._terms.least_share * len(members)
        body = self._signed("abstain")
        if seen is not None and partner in survivors and self.name in survivors and enough:
            body = self._signed("report", label=seen)
        learner = opened(context, zmq.PUSH, linger=LINGER)
        try:
            learner.connect(self._terms.learner)
            await learner.send(body)
        finally:
            learner.close()

    async def _look(self, context: zmq.asyncio.Context, members: dict[int, str]) -> tuple[int | None, int | None]:
        """Return the peer chosen and the noisy label seen: none of either for one who does not take part."""
        if not self._takes_part or self.name not in members:
            return None, None
        names = sorted(members)
        partner = names[int(uniform_below(self._bits, [len(names)])[0])]
        # She asks herself as she would ask another: how long it takes must not tell the rendezvous whose label she has.
        return partner, await self._ask(context, members[partner], partner)

    async def _ask(self, context: zmq.asyncio.Context, address: str, partner: int) -> int | None:
        """Return the noisy label of a peer, or None if no proper answer comes in time."""
        socket = opened(context, zmq.DEALER)
        try:
            socket.connect(address)
            await socket.send(encode("ask", run=self._terms.run, peer=self.name))
            body = await asyncio.wait_for(socket.recv(), self._terms.timeout / 2)
            answer = read(body, run=self._terms.run, kinds=("answer",))
            return int(answer["label"]) if answer["peer"] == partner else None
        except (asyncio.TimeoutError, Refused, zmq.ZMQError):
            return None
        finally:
            socket.close()

    async def _serve(self, server: zmq.asyncio.Socket) -> None:
        """Give everyone who asks the same noisy label, until cancelled; what is no question gets no answer."""
        answer = encode("answer", run=self._terms.run, peer=self.name, label=self._noisy)
        while True:
            frames = await server.recv_multipart()
            try:
                read(frames[-1], run=self._terms.run, kinds=("ask",))
            except Refused:
                continue
            await server.send_multipart([*frames[:-1], answer])

    async def _next(self, desk: zmq.asyncio.Socket, kind: str) -> dict[str, Any]:
        """Return the next message of this kind from the rendezvous, passing over what it is not."""
        while True:
            body = await desk.recv()
            with contextlib.suppress(Refused):
                return read(body, run=self._terms.run, kinds=(kind,), longest=None)

    def _signed(self, kind: str, **fields: Any) -> bytes:
        return encode(kind, run=self._terms.run, peer=self.name, ticket=self._ticket, **fields)

    def __repr__(self) -> str:
        return f"<Peer {self.name}: label hidden>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("Peer: a peer does not pickle. Make it in the process in which it plays.")
