"""Who may take part: the public list that rendezvous and learner hold, and the terms that all of them share."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from labeldp.engines.peers._messages import Refused, read


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What every role knows: the run, the mechanism, the places to go to, and how long to wait.

    `timeout` is the seconds of each phase; an answer is waited for half as long, so that one who asked a dead peer is
    still in time herself. `join_timeout` is for the first phase, in which processes start.
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

    @property
    def lifetime(self) -> float:
        """The longest that a peer stays: four phases, and one more for what is under way."""
        return self.join_timeout + 4 * self.timeout


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The cluster and the ticket of each peer, and a count of the messages that were refused, by reason.

    A ticket is a secret of the peer and those who check it: without it, whoever can reach a socket could speak for
    everyone. It says nothing of labels.
    """

    clusters: dict[int, int]
    tickets: dict[int, str] = field(repr=False)
    refused: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, clusters: Iterable[int]) -> Roster:
        """Return a roster with a fresh ticket for each peer."""
        listed = dict(enumerate(clusters))
        return cls(clusters=listed, tickets={name: secrets.token_hex(16) for name in listed})

    def admit(self, body: bytes, *, run: str, kinds: tuple[str, ...]) -> dict[str, Any] | None:
        """Return a signed message of a known peer; None, and one more count, for anything else."""
        try:
            message = read(body, run=run, kinds=kinds)
            self._check_sender(message)
        except Refused as reason:
            self.refused[str(reason)] += 1
            return None
        return message

    def _check_sender(self, message: dict[str, Any]) -> None:
        ticket = self.tickets.get(message["peer"])
        # Bytes: compare_digest refuses text that is not ASCII.
        if ticket is None or not hmac.compare_digest(ticket.encode(), message["ticket"].encode("utf-8", "replace")):
            raise Refused("unknown sender")
