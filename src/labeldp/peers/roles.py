"""The three roles of the protocol: the peer, the rendezvous and the learner.

>>> terms = Terms(
...     run="r",
...     alpha=0.25,
...     theta=1.0,
...     rendezvous="",
...     learner="",
...     timeout=5.0,
...     join_timeout=60.0,
...     least_share=0.5,
...     host=None,
... )
>>> Peer(1, name=7, ticket="secret", terms=terms)
<Peer 7: label hidden>

A *peer* has one label, its own noise, one question and one report. The *rendezvous* introduces peers to each other and
says who was there to the end; it sees no label, noisy or not. The *learner* hears one report, or none, from each
survivor: a noisy label of someone, and nobody says whose.

Design notes. The roles know of each other by messages alone, so any of them may run elsewhere: a peer needs `Terms` and
her ticket, the other two a bound socket and the `Roster`. `host_peers` is what a worker process of `run_peers` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

import zmq
import zmq.asyncio

from labeldp.errors import Described, LabelDPError, invalid
from labeldp.mechanisms.peers import WORDS, toss_coins
from labeldp.peers.messages import (
    Refused,
    Roster,
    Terms,
    bind_socket,
    borrow_context,
    encode,
    is_label,
    open_context,
    open_socket,
    read,
    report_ticket,
)
from labeldp.random import BitStream, NoiseKey
from labeldp.samplers import uniform_below


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
    terms : Terms
        The run that she takes part in.

    Notes
    -----
    She draws from a key of her own, from the operating system: a flip with probability alpha (rounded up on 64 bits),
    whether she takes part (theta, rounded down) and, when she knows who is there, the peer that she asks.

    She answers whoever has the word of her cluster, which the rendezvous gives to its peers alone. A learner that could
    ask for itself would have every flipped label with its owner's name, and no report would be needed.
    """

    __slots__ = ("_bits", "_noisy", "_takes_part", "_terms", "_ticket", "_word", "name")

    def __init__(self, label: int, *, name: int, ticket: str, terms: Terms) -> None:
        if not is_label(label):
            raise invalid("Peer", "label", "be 0 or 1", got=Described("another value"))
        self.name = name
        self._ticket = ticket
        self._terms = terms
        self._word: str | None = None  # empty once she plays, and that of her cluster once she knows it
        self._bits = BitStream(NoiseKey.from_os().claim("peer"))
        self._noisy = label ^ int(self._coin(math.ceil(Fraction(terms.alpha) * WORDS)))
        self._takes_part = self._coin(math.floor(Fraction(terms.theta) * WORDS))

    def _coin(self, threshold: int) -> bool:
        """Return whether a coin of probability threshold / 2^64 comes up."""
        return bool(toss_coins(self._bits, threshold, 1)[0])

    async def play(self, context: zmq.asyncio.Context | None = None) -> None:
        """Take part in one run, from hello to report; peers of one process share a context, one alone needs none.

        Ends by itself, without a report, when nobody has answered for the lifetime of a run. Other peers are answered
        for as long as it lasts. Once only: a second report of the same flipped labels is in no guarantee.
        """
        if self._word is not None:
            raise LabelDPError("Peer: a peer plays once. Make a new one for another run, which costs what it promises.")
        self._word = ""
        with borrow_context(context, linger=self._terms.linger) as shared:
            server = open_socket(shared, zmq.ROUTER)
            desk = open_socket(shared, zmq.DEALER, linger=self._terms.linger, longest=self._terms.longest)
            try:
                address = self._bind(server)
                desk.connect(self._terms.rendezvous)
                until = self._terms.clock.now() + self._terms.lifetime
                await self._terms.clock.wait(self._join(shared, server, desk, address), until=until, on=())
            except asyncio.TimeoutError:
                return  # the others are gone: nothing was reported, and nothing will be
            finally:
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

    async def _join(
        self, context: zmq.asyncio.Context, server: zmq.asyncio.Socket, desk: zmq.asyncio.Socket, address: str
    ) -> None:
        """Say hello, and when the run has begun answer others while she plays; who asked before has waited in the socket."""
        await desk.send(self._sign("hello", address=address))
        start = await self._receive(desk, "start")
        self._word = start["word"]
        serving = asyncio.create_task(self._serve(server))
        try:
            await self._follow_protocol(context, desk, start)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _follow_protocol(
        self, context: zmq.asyncio.Context, desk: zmq.asyncio.Socket, start: dict[str, Any]
    ) -> None:
        """Ask one peer, wait until all have asked, and report what she saw if it may be reported."""
        members: dict[int, str] = dict(start["members"])
        partner, seen = await self._ask_someone(context, members)
        failed = partner if partner is not None and seen is None else None
        await desk.send(self._sign("ready", failed=failed))
        await self._receive(desk, "check")
        await desk.send(self._sign("alive"))
        survivors = set((await self._receive(desk, "close"))["survivors"])
        # Of all on the roster: a cluster whose peers were kept from coming has shrunk as well.
        enough = len(survivors) >= self._terms.least_share * max(len(members), start["size"])
        body = self._sign("abstain")
        if seen is not None and partner in survivors and self.name in survivors and enough:
            body = self._sign("report", label=seen)
        learner = open_socket(context, zmq.PUSH, linger=self._terms.linger)
        try:
            learner.connect(self._terms.learner)
            await learner.send(body)
        finally:
            learner.close()

    async def _ask_someone(
        self, context: zmq.asyncio.Context, members: dict[int, str]
    ) -> tuple[int | None, int | None]:
        """Return the peer chosen and the noisy label seen: none of either for one who does not take part."""
        if not self._takes_part or self.name not in members:
            return None, None
        names = sorted(members)
        partner = names[int(uniform_below(self._bits, [len(names)])[0])]
        # She asks herself as she would ask another: how long it takes must not tell the rendezvous whose label she has.
        return partner, await self._ask(context, members[partner], partner)

    async def _ask(self, context: zmq.asyncio.Context, address: str, partner: int) -> int | None:
        """Return the noisy label of a peer, or None if no proper answer comes in time."""
        if not self._terms.is_address(address):
            return None
        socket = open_socket(context, zmq.DEALER)
        try:
            socket.connect(address)
            await socket.send(encode("ask", run=self._terms.run, peer=self.name, word=self._word))
            until = self._terms.clock.now() + self._terms.timeout / 2
            body = await self._terms.clock.wait(socket.recv(), until=until, on=(partner,))
            answer = read(body, run=self._terms.run, kinds=("answer",))
            return int(answer["label"]) if answer["peer"] == partner else None
        except (asyncio.TimeoutError, Refused, zmq.ZMQError):
            return None
        finally:
            socket.close()

    async def _serve(self, server: zmq.asyncio.Socket) -> None:
        """Give everyone of her cluster who asks the same noisy label, until cancelled; all else gets no answer.

        The rendezvous knocks here, where the others ask: it hears that she can be asked, and no label.
        """
        answers = {
            "ask": encode("answer", run=self._terms.run, peer=self.name, label=self._noisy),
            "knock": encode("here", run=self._terms.run, peer=self.name),
        }
        word = (self._word or "").encode()
        while True:
            frames = await server.recv_multipart()
            # Who asks without a pause must not keep her, and the others of this process, from playing.
            await asyncio.sleep(0)
            if len(frames) != 2:  # the name of the connection, and the question
                continue
            try:
                question = read(frames[-1], run=self._terms.run, kinds=("ask", "knock"))
            except Refused:
                continue
            if hmac.compare_digest(question["word"].encode(), word):
                await server.send_multipart([*frames[:-1], answers[question["kind"]]])

    async def _receive(self, desk: zmq.asyncio.Socket, kind: str) -> dict[str, Any]:
        """Return the next message of this kind from the rendezvous; all others are passed over."""
        while True:
            body = await desk.recv()
            with contextlib.suppress(Refused):
                return read(body, run=self._terms.run, kinds=(kind,), longest=self._terms.longest)

    def _sign(self, kind: str, **fields: Any) -> bytes:
        """Return a message in her name, with her ticket: for the learner another one than for the rendezvous."""
        ticket = report_ticket(self._ticket) if kind in {"report", "abstain"} else self._ticket
        return encode(kind, run=self._terms.run, peer=self.name, ticket=ticket, **fields)

    def __repr__(self) -> str:
        return f"<Peer {self.name}: label hidden>"

    def __reduce__(self) -> NoReturn:
        raise LabelDPError("Peer: a peer does not pickle. Make it in the process in which it plays.")


@dataclass(frozen=True, kw_only=True)
class Attendance:
    """Who said hello, and who survived: both public, both free of labels."""

    joined: frozenset[int]
    survivors: frozenset[int]


@dataclass(kw_only=True)
class Rendezvous:
    """Leads a run through four phases, each ended by everyone's message or by the clock: hello, ready, alive, the close.

    Survivors are those who finished their own question, were there after the last question was finished, answered a
    knock then at the address where the others ask, and were not named by someone whom they failed to answer.

    Without the knock one whom nobody can reach (behind a firewall, say) would be a survivor whenever nobody happened to
    ask her, and count as one of those among whom a report may hide, though none can be hers.
    """

    roster: Roster
    terms: Terms
    #: Told the name of each phase as it begins ("joining", "asking", "checking", "closing").
    watch: Callable[[str], None] | None = None
    _desks: dict[int, bytes] = field(default_factory=dict, repr=False)
    #: The word of each cluster, with which its peers ask each other: neither the learner nor another cluster has it.
    _words: defaultdict[int, str] = field(
        default_factory=lambda: defaultdict(lambda: secrets.token_hex(16)), repr=False
    )

    async def hold(self, socket: zmq.asyncio.Socket | None = None) -> Attendance:
        """Lead one run on a bound ROUTER socket, and return who was there; without one, at the address in the terms."""
        with contextlib.ExitStack() as opened:
            desk = socket or opened.enter_context(bind_socket(zmq.ROUTER, self.terms, "rendezvous"))
            return await self._lead(desk)

    async def _lead(self, socket: zmq.asyncio.Socket) -> Attendance:
        """Go through the four phases, and return who was there."""
        self._words.clear()  # what was heard in another run is of no use in this one
        self._begin("joining")
        hellos = await self._gather(socket, "hello", self.roster.clusters, self.terms.join_timeout)
        members = self._group(hellos)
        addresses = {name: str(hello["address"]) for name, hello in hellos.items()}
        listed = {c: [[name, addresses[name]] for name in names] for c, names in members.items()}
        starts = {
            c: self._body("start", members=listed[c], size=len(names), word=self._words[c])
            for c, names in self._group(self.roster.clusters).items()
            if c in listed
        }
        await self._tell(socket, hellos, lambda name: starts[self._cluster(name)])
        self._begin("asking")
        ready = await self._gather(socket, "ready", hellos, self.terms.timeout)
        self._begin("checking")
        await self._tell(socket, ready, lambda _: self._body("check"))
        alive, here = await asyncio.gather(
            self._gather(socket, "alive", ready, self.terms.timeout),
            self._knock(socket, {name: addresses[name] for name in ready}),
        )
        survivors = here.intersection(alive) - self._find_failed(ready)
        left = self._group(survivors)
        self._begin("closing")
        await self._tell(socket, survivors, lambda name: self._body("close", survivors=left[self._cluster(name)]))
        return Attendance(joined=frozenset(hellos), survivors=frozenset(survivors))

    def _begin(self, phase: str) -> None:
        """Tell whoever watches that a phase begins."""
        if self.watch is not None:
            self.watch(phase)

    def _find_failed(self, ready: dict[int, dict[str, Any]]) -> set[int]:
        """Return those who gave no proper answer to someone of their own cluster."""
        named = {(message["failed"], self._cluster(name)) for name, message in ready.items()}
        return {name for name, cluster in named if name is not None and self.roster.clusters.get(name) == cluster}

    async def _gather(
        self, socket: zmq.asyncio.Socket, kind: str, expected: Iterable[int], timeout: float
    ) -> dict[int, dict[str, Any]]:
        """Return the first message of this kind from each expected peer, until all came or time is up."""
        waited, came = set(expected), dict[int, dict[str, Any]]()
        until = self.terms.clock.now() + timeout
        while waited:
            try:
                frames = await self.terms.clock.wait(socket.recv_multipart(), until=until, on=waited)
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

    async def _knock(self, desk: zmq.asyncio.Socket, addresses: dict[int, str]) -> set[int]:
        """Return those who answer where the others ask them. One socket leads to all, so that it costs a connection each."""
        waited = {name for name, address in addresses.items() if self.terms.is_address(address)}
        here = set[int]()
        if not waited:
            return here
        until = self.terms.clock.now() + self.terms.timeout
        context: Any = desk.context  # of asyncio, as the desk is; the types of pyzmq do not know
        knocker = open_socket(context, zmq.ROUTER)
        try:
            for name in sorted(waited):
                line = str(name).encode()
                with contextlib.suppress(zmq.ZMQError):  # an address that leads nowhere: nobody answers
                    knocker.set(zmq.CONNECT_ROUTING_ID, line)
                    knocker.connect(addresses[name])
                    await knocker.send_multipart([line, self._body("knock", word=self._words[self._cluster(name)])])
            while waited:
                try:
                    frames = await self.terms.clock.wait(knocker.recv_multipart(), until=until, on=waited)
                except asyncio.TimeoutError:
                    break
                name = int(frames[0])  # the name of a connection that was made above: no one else can be at its end
                waited.discard(name)
                with contextlib.suppress(Refused):
                    if read(frames[-1], run=self.terms.run, kinds=("here",))["peer"] == name:
                        here.add(name)
        finally:
            knocker.close()
        return here

    async def _tell(self, socket: zmq.asyncio.Socket, names: Iterable[int], body: Callable[[int], bytes]) -> None:
        """Send each of these its message; a dead one's is thrown away by the socket."""
        for name in names:
            await socket.send_multipart([self._desks[name], body(name)])

    def _body(self, kind: str, **fields: Any) -> bytes:
        """Return a message of the rendezvous."""
        return encode(kind, run=self.terms.run, **fields)

    def _cluster(self, name: int) -> int:
        """Return the cluster of a peer."""
        return self.roster.clusters[name]

    def _group(self, names: Iterable[int]) -> dict[int, list[int]]:
        """Return the names of each cluster, in order."""
        members: dict[int, list[int]] = defaultdict(list)
        for name in sorted(names):
            members[self._cluster(name)].append(name)
        return members


@dataclass(kw_only=True)
class Learner:
    """Hears the reports: keeps the first message of each survivor and counts what it refuses.

    `reports` maps the name of a peer to the noisy label that she reported; `heard` also has those who abstained.
    """

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

    async def collect(
        self, socket: zmq.asyncio.Socket | None = None, *, survivors: frozenset[int] | Awaitable[frozenset[int]]
    ) -> None:
        """Listen on a bound PULL socket until every survivor was heard or time is up; without one, at the address in the terms.

        Reports are on their way as soon as the rendezvous knows the survivors. Where it is elsewhere, the learner listens before it has
        their names: `survivors` may be awaited.
        """
        with contextlib.ExitStack() as opened:
            inbox = socket or opened.enter_context(bind_socket(zmq.PULL, self.terms, "learner"))
            named = survivors if isinstance(survivors, frozenset) else frozenset(await survivors)
            until = self.terms.clock.now() + self.terms.timeout
            while waited := named - self.heard:
                try:
                    frames = await self.terms.clock.wait(inbox.recv_multipart(), until=until, on=waited)
                except asyncio.TimeoutError:
                    break
                self.hear(frames[-1], survivors=named)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What a peer is made from, in the process in which she plays; its repr shows no label and no ticket."""

    name: int
    ticket: str = field(repr=False)
    label: int = field(repr=False)


def make_peer(seat: Seat, terms: Terms) -> Peer:
    """Return the peer of a seat."""
    return Peer(seat.label, name=seat.name, ticket=seat.ticket, terms=terms)


def host_peers(seats: Sequence[Seat], terms: Terms) -> None:
    """Make these peers in this process and run them until all are done; a peer that fails does not stop the others."""

    async def play_all() -> None:
        """Let all peers play in one event loop, and hand over what is still unsent at the end."""
        context = open_context(len(seats))
        try:
            peers = [make_peer(seat, terms) for seat in seats]
            await asyncio.gather(*(peer.play(context) for peer in peers), return_exceptions=True)
        finally:
            context.destroy(linger=terms.linger)

    asyncio.run(play_all())
