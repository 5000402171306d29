"""The learner: hears one report, or none, from each survivor; a noisy label of someone, nobody says whose."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import zmq.asyncio

from labeldp.engines.peers._roster import Roster, Terms


@dataclass(kw_only=True)
class Learner:
    """Keeps the first word of each survivor and counts what it refuses."""

    roster: Roster
    terms: Terms
    reports: dict[int, int] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)

    def hear(self, body: bytes, *, survivors: frozenset[int]) -> None:
        """Take one message: a report or an abstention of a survivor, the first of it; anything else is counted."""
        message = self.roster.admit(body, run=self.terms.run, kinds=("report", "abstain"))
        if message is None:
            return
        name = message["peer"]
        if name in self.heard or name not in survivors:
            self.roster.refused["repeated" if name in self.heard else "not a survivor"] += 1
            return
        self.heard.add(name)
        if message["kind"] == "report":
            self.reports[name] = message["label"]

    async def collect(self, socket: zmq.asyncio.Socket, *, survivors: frozenset[int]) -> None:
        """Listen on a bound PULL socket until every survivor was heard or time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.terms.timeout
        while survivors - self.heard and (left := deadline - loop.time()) > 0:
            try:
                frames = await asyncio.wait_for(socket.recv_multipart(), left)
            except asyncio.TimeoutError:
                break
            self.hear(frames[-1], survivors=survivors)
