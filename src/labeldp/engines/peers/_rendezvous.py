"""The rendezvous: introduces peers to each other and says who was there to the end; it sees no label, noisy or not."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.asyncio

from labeldp.engines.peers._messages import encode
from labeldp.engines.peers._roster import Roster, Terms


@dataclass(frozen=True, kw_only=True)
class Attendance:
    """Who said hello, and who survived: both public, both free of labels."""

    joined: frozenset[int]
    survivors: frozenset[int]


@dataclass(kw_only=True)
class Rendezvous:
    """Four phases, each ended by everyone's message or by the clock: hello, ready, alive, and the close.

    Survivors are those who finished their own question, were there after the last question was finished, and were not
    named by someone whom they failed to answer.
    """

    roster: Roster
    terms: Terms
    #: Told the name of each phase as it begins ("joining", "asking", "checking", "closing").
    watch: Callable[[str], None] | None = None
    _desks: dict[int, bytes] = field(default_factory=dict)

    async def hold(self, socket: zmq.asyncio.Socket) -> Attendance:
        """Hold one run on a bound ROUTER socket."""
        self._begin("joining")
        hellos = await self._gather(socket, "hello", self.roster.clusters, self.terms.join_timeout)
        members = self._by_cluster(hellos)
        listed = {c: [[name, hellos[name]["address"]] for name in names] for c, names in members.items()}
        await self._tell(socket, hellos, lambda name: self._body("start", members=listed[self._cluster(name)]))
        self._begin("asking")
        ready = await self._gather(socket, "ready", hellos, self.terms.timeout)
        self._begin("checking")
        await self._tell(socket, ready, lambda _: self._body("check"))
        alive = await self._gather(socket, "alive", ready, self.terms.timeout)
        survivors = set(alive) - self._failed(ready)
        left = self._by_cluster(survivors)
        self._begin("closing")
        await self._tell(socket, survivors, lambda name: self._body("close", survivors=left[self._cluster(name)]))
        return Attendance(joined=frozenset(hellos), survivors=frozenset(survivors))

    def _begin(self, phase: str) -> None:
        if self.watch is not None:
            self.watch(phase)

    def _failed(self, ready: dict[int, dict[str, Any]]) -> set[int]:
        """Return those who gave no proper answer to someone of their own cluster."""
        named = {(message["failed"], self._cluster(name)) for name, message in ready.items()}
        return {name for name, cluster in named if name is not None and self.roster.clusters.get(name) == cluster}

    async def _gather(
        self, socket: zmq.asyncio.Socket, kind: str, expected: Iterable[int], timeout: float
    ) -> dict[int, dict[str, Any]]:
        """Return the first message of this kind from each expected peer, until all came or time is up."""
        waited, came = set(expected), dict[int, dict[str, Any]]()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while waited and (left := deadline - loop.time()) > 0:
            try:
                frames = await asyncio.wait_for(socket.recv_multipart(), left)
            except asyncio.TimeoutError:
                break
            message = self.roster.admit(frames[-1], run=self.terms.run, kinds=(kind,))
            if message is None:
                continue
            if message["peer"] not in waited:
                self.roster.refused["repeated" if message["peer"] in came else "too late"] += 1
                continue
            waited.remove(message["peer"])
            came[message["peer"]] = message
            self._desks[message["peer"]] = frames[0]
        return came

    async def _tell(self, socket: zmq.asyncio.Socket, names: Iterable[int], body: Callable[[int], bytes]) -> None:
        """Send each of these its message; a dead one's is thrown away by the socket."""
        for name in names:
            await socket.send_multipart([self._desks[name], body(name)])

    def _body(self, kind: str, **fields: Any) -> bytes:
        return encode(kind, run=self.terms.run, **fields)

    def _cluster(self, name: int) -> int:
        return self.roster.clusters[name]

    def _by_cluster(self, names: Iterable[int]) -> dict[int, list[int]]:
        members: dict[int, list[int]] = defaultdict(list)
        for name in sorted(names):
            members[self._cluster(name)].append(name)
        return members
