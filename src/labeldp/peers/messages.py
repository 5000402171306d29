"""What the roles of the peer-to-peer protocol share: messages, the roster of who may send them, and the terms of a run.

>>> body = encode("report", run="r", peer=3, ticket="t", label=1)
>>> read(body, run="r", kinds=("report",))["label"]
1
>>> read(body.replace(b":1", b":2"), run="r", kinds=("report",))
Traceback (most recent call last):
labeldp.peers.messages.Refused: bad value

Messages are JSON of a fixed shape, and everything else is refused before it is used. A message has exactly the fields of
its kind. A boolean is no number, a label is 0 or 1, and text is ASCII that can be printed, as addresses and tickets are.

How long a message can be is known before it comes. A message of a peer is at most `LONGEST` bytes. One of the rendezvous
lists the peers of a run, at most `Terms.most_peers` of them, at most `ENTRY` bytes each. Every socket is told its bound:
a connection that announces a longer message is closed by the transport, before anything is allocated for it. What is refused carries a reason and nothing of the message, so
that a count of reasons can be shown to anyone.

The roster is public but for its tickets: rendezvous and learner hold it and check each sender against it. The terms are
what everyone knows: the mechanism, the addresses, and how long to wait.

Design notes. Every wait of the protocol goes through `Terms.clock`, with the names of the peers that are waited for. The
default is the clock of the machine. A test hands in another one and so decides itself when a deadline passes: whether a
peer counts as lost then depends on the protocol and not on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from labeldp.errors import Described, invalid, missing_extra
from labeldp.loss.peers import check_alpha, check_theta
from labeldp.untrusted import parse_json
from labeldp.validate import check_integer, check_positive, check_real

try:
    import zmq.asyncio
except ImportError as absent:
    raise missing_extra("pyzmq", "peers", "The peer-to-peer protocol") from absent

Answer = TypeVar("Answer")

#: A message of a peer is far below this; a longer one is not read.
LONGEST = 4096
#: Characters of a text.
MOST_TEXT = 256
#: Bytes of one peer in a list of the rendezvous: her number (19 digits), her address (`MOST_TEXT`, in quotes, of which JSON
#: may escape each character as two), brackets and commas.
ENTRY = 19 + 2 * MOST_TEXT + 6


class Refused(Exception):  # noqa: N818 - a message that is dropped and counted, not an error of ours
    """A message that is not what the protocol allows; its text is the reason that is counted."""


def encode(kind: str, *, run: str, **fields: Any) -> bytes:
    """Return the bytes of a message of this kind, for this run, with these fields."""
    return json.dumps({"kind": kind, "run": run, **fields}, separators=(",", ":")).encode()


def read(body: bytes, *, run: str, kinds: tuple[str, ...], longest: int = LONGEST) -> dict[str, Any]:
    """Return the fields of a message, or raise `Refused` with the reason.

    Parameters
    ----------
    body : bytes
        What came in, from anyone.
    run : str
        The run it must belong to.
    kinds : tuple of str
        The kinds that are allowed here; see `FIELDS`.
    longest : int
        Bytes above which the message is not parsed; `Terms.longest` for messages of the rendezvous, which list clusters.
    """
    if len(body) > longest:
        raise Refused("too long")
    try:
        message = parse_json(body, most_bytes=longest)
    except ValueError:
        raise Refused("not JSON") from None
    if not isinstance(message, dict) or message.get("kind") not in kinds:
        raise Refused("wrong kind")
    if message.get("run") != run:
        raise Refused("another run")
    return _check_fields(message)


def _check_fields(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message if it has its fields, no others, and each of its type."""
    fields = FIELDS[message["kind"]]
    if set(message) != {"kind", "run", *fields}:
        raise Refused("wrong fields")
    if not all(check(message[name]) for name, check in fields.items()):
        raise Refused("bad value")
    return message


def is_name(value: Any) -> bool:
    """Whether this can be the number of a peer."""
    return type(value) is int and 0 <= value < 1 << 62


def _is_count(value: Any) -> bool:
    """Whether this can be the number of peers of a cluster, which has one at least."""
    return is_name(value) and value > 0


def is_label(value: Any) -> bool:
    """Whether this is 0 or 1, as a number."""
    return type(value) is int and value in {0, 1}


def _is_text(value: Any) -> bool:
    """Whether this is text of 1 to 256 characters of ASCII, all of which can be printed."""
    return isinstance(value, str) and 0 < len(value) <= MOST_TEXT and value.isascii() and value.isprintable()


def _is_members(value: Any) -> bool:
    """Whether this is a list of [name, address]."""
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    return pairs and all(is_name(name) and _is_text(address) for name, address in value)


def _is_names(value: Any) -> bool:
    """Whether this is a list of numbers of peers."""
    return isinstance(value, list) and all(is_name(name) for name in value)


def _is_name_or_none(value: Any) -> bool:
    """Whether this is the number of a peer, or nobody."""
    return value is None or is_name(value)


_SIGNED: dict[str, Callable[[Any], bool]] = {"peer": is_name, "ticket": _is_text}
#: The fields of each kind beside "kind" and "run".
FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "hello": {**_SIGNED, "address": _is_text},
    "start": {"members": _is_members, "size": _is_count, "word": _is_text},
    "ask": {"peer": is_name, "word": _is_text},
    "answer": {"peer": is_name, "label": is_label},
    "ready": {**_SIGNED, "failed": _is_name_or_none},
    "check": {},
    "alive": _SIGNED,
    "knock": {"word": _is_text},
    "here": {"peer": is_name},
    "close": {"survivors": _is_names},
    "report": {**_SIGNED, "label": is_label},
    "abstain": _SIGNED,
}


class Clock(Protocol):
    """How long the protocol waits: two calls, through which every deadline of every role goes."""

    def now(self) -> float:
        """Return the time in seconds, from any origin."""
        ...

    async def wait(self, work: Awaitable[Answer], *, until: float, on: Collection[int]) -> Answer:
        """Return what `work` returns, or cancel it and raise `asyncio.TimeoutError` once the time is `until`.

        `on` are the names of the peers that are waited for; it is empty where a peer waits for the rendezvous.
        """
        ...


class MachineClock:
    """The clock of the machine, as the event loop has it: it only moves forward, and `on` does not matter to it."""

    def now(self) -> float:
        """Return the time of the running event loop."""
        return asyncio.get_running_loop().time()

    async def wait(self, work: Awaitable[Answer], *, until: float, on: Collection[int]) -> Answer:
        """Wait for `work` until the time `until`; a deadline that has passed already ends the wait at once.

        Even if the work is done by then: a stranger who sends without a pause has always sent something already, and
        would keep a phase from ever ending. The others get their turn before each wait, for the same reason.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.sleep(0)
            if (left := until - self.now()) <= 0:
                raise asyncio.TimeoutError
            return await asyncio.wait_for(task, left)
        finally:  # also when this wait is itself cancelled
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What every role knows: the run, the mechanism, the places to go to, and how long to wait.

    `timeout` is the seconds of each phase; an answer is waited for half as long, so that one who asked a dead peer is
    still in time herself. `join_timeout` is for the first phase, in which processes start. `least_share` is the share of
    a cluster, as it is on the roster, that must survive for its peers to report at all.

    A peer takes part on terms that someone else has written. They are checked here, once for every role and before a
    label is touched: with an alpha of 0 nothing would be flipped, with 1 everything, which shows a label as well.
    """

    run: str
    alpha: float
    theta: float
    rendezvous: str
    learner: str
    timeout: float
    join_timeout: float
    least_share: float
    #: Where peers listen: a host to bind TCP ports on, or None for peers inside one process.
    host: str | None
    #: Most peers of a run, a public number: it bounds the messages of the rendezvous.
    most_peers: int = 100_000
    #: Decides when a deadline has passed.
    clock: Clock = field(default_factory=MachineClock, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("run", "rendezvous", "learner", "host"):
            value = getattr(self, name)
            if value and not _is_text(value):
                must = f"be at most {MOST_TEXT} characters of ASCII that can be printed"
                raise invalid("Terms", name, must, got=Described("other text"))
        checked = {
            "alpha": check_alpha("Terms", self.alpha),
            "theta": check_theta("Terms", self.theta),
            "timeout": check_positive("Terms", "timeout", self.timeout),
            "join_timeout": check_positive("Terms", "join_timeout", self.join_timeout),
            "least_share": check_share("Terms", self.least_share),
            "most_peers": check_integer("Terms", "most_peers", self.most_peers, least=1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def lifetime(self) -> float:
        """The longest that a peer stays: four phases, and one more for what is under way."""
        return self.join_timeout + 4 * self.timeout

    def is_address(self, text: str) -> bool:
        """Whether this may be where a peer is: what a peer said of herself may only lead where peers of this run are."""
        return text.startswith("inproc://" if self.host is None else "tcp://")

    @property
    def longest(self) -> int:
        """Bytes of the longest message of the rendezvous: a list of all peers."""
        return LONGEST + ENTRY * self.most_peers

    @property
    def linger(self) -> int:
        """How long a closing socket may take to hand over what was sent, in milliseconds.

        As long as the other side listens, and three seconds at least: a new connection takes its time.
        """
        return round(1000 * max(3.0, self.timeout))


def check_share(owner: str, value: Any) -> float:
    """Return the share of a cluster that must survive, in (0, 1]."""
    share = check_real(owner, "least_share", value)
    if not 0 < share <= 1:
        raise invalid(owner, "least_share", "be in (0, 1]", got=value)
    return share


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The cluster and the ticket of each peer, and a count of the messages that were refused, by reason.

    A ticket is a secret of the peer and those who check it: without it, whoever can reach a socket could speak for
    everyone. It says nothing of labels. The learner checks tickets too, and is the one against whom the reports are
    private: it gets `for_learner`, with which it can speak for nobody.
    """

    clusters: dict[int, int]
    tickets: dict[int, str] = field(repr=False)
    refused: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, clusters: Iterable[int]) -> Roster:
        """Return a roster of peers 0, 1, 2, ... with these clusters and a fresh ticket each, from the operating system."""
        listed = dict(enumerate(clusters))
        return cls(clusters=listed, tickets={name: secrets.token_hex(16) for name in listed})

    def for_learner(self) -> Roster:
        """Return the roster as the learner may have it: tickets of reports, from which those of the rendezvous do not follow.

        With the others it could come in the name of peers who are absent, whose labels it would know, or say of all
        but one in a cluster that they do not answer: fewer would hide those who are left than `PeerRun` counts.
        Refused messages are counted together.
        """
        tickets = {name: report_ticket(ticket) for name, ticket in self.tickets.items()}
        return Roster(clusters=self.clusters, tickets=tickets, refused=self.refused)

    def admit(self, body: bytes, *, run: str, kinds: tuple[str, ...]) -> dict[str, Any] | None:
        """Return the fields of a signed message of a known peer; None, and one more in `refused`, for anything else."""
        try:
            message = read(body, run=run, kinds=kinds)
            self._check_sender(message)
        except Refused as reason:
            self.refused[str(reason)] += 1
            return None
        return message

    def _check_sender(self, message: dict[str, Any]) -> None:
        """Refuse a message whose ticket is not that of the peer it names, in constant time."""
        ticket = self.tickets.get(message["peer"])
        # Bytes: compare_digest refuses text that is not ASCII.
        if ticket is None or not hmac.compare_digest(ticket.encode(), message["ticket"].encode("utf-8", "replace")):
            raise Refused("unknown sender")


def report_ticket(ticket: str) -> str:
    """Return the ticket with which a peer reports: an HMAC-SHA256 under the one that she shows to the rendezvous."""
    return hmac.new(ticket.encode("utf-8", "replace"), b"report", hashlib.sha256).hexdigest()[:32]


#: Sockets that a peer has open at once: where she is asked, the desk, a question, a report.
SOCKETS_OF_PEER = 4


def open_context(n_peers: int) -> zmq.asyncio.Context:
    """Return a context with room for the sockets of so many peers; the usual 1,023 are those of 340.

    A peer without a socket would be absent, and nothing would say why.
    """
    context = zmq.asyncio.Context()
    wanted = max(1024, SOCKETS_OF_PEER * n_peers + 64)
    context.set(zmq.MAX_SOCKETS, min(wanted, int(context.get(zmq.SOCKET_LIMIT))))
    return context


#: Connections that may wait to be accepted: a whole run connects at once, and the usual 100 would make some try again.
BACKLOG = 8192


def open_socket(
    context: zmq.asyncio.Context, kind: int, *, linger: int = 0, longest: int = LONGEST
) -> zmq.asyncio.Socket:
    """Return a socket of this kind that never keeps a process waiting, and takes no message above `longest` bytes.

    Once closed, it holds messages that are not sent yet for `linger` milliseconds at most, and then drops them. A
    connection that announces a longer message is closed before memory is given to it.
    """
    socket: zmq.asyncio.Socket = context.socket(kind)
    socket.set(zmq.LINGER, linger)
    socket.set(zmq.BACKLOG, BACKLOG)
    socket.set(zmq.MAXMSGSIZE, longest)
    return socket


@contextlib.contextmanager
def borrow_context(context: zmq.asyncio.Context | None, *, linger: int = 0) -> Iterator[zmq.asyncio.Context]:
    """Lend the context that is given, or one of one's own, which ends when what was sent has left or `linger` is over."""
    if context is not None:
        yield context
        return
    own = open_context(1)
    try:
        yield own
    finally:
        own.destroy(linger=linger)


@contextlib.contextmanager
def bind_socket(kind: int, terms: Terms, role: str) -> Iterator[zmq.asyncio.Socket]:
    """Lend a socket of this kind that listens where the terms say that this role is, in a context of its own."""
    address = getattr(terms, role)
    with borrow_context(None, linger=terms.linger) as context:
        socket = open_socket(context, kind, linger=terms.linger)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            must = "be an address of this machine that is free, as tcp://HOST:PORT"
            raise invalid("Terms", role, must, got=address, fix=f"The system says: {error.strerror}.") from error
        yield socket
