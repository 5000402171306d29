"""The messages of the peer-to-peer protocol: JSON of a fixed shape, and everything else is refused before it is used.

>>> body = encode("report", run="r", peer=3, ticket="t", label=1)
>>> read(body, run="r", kinds=("report",))["label"]
1
>>> read(body.replace(b":1", b":2"), run="r", kinds=("report",))
Traceback (most recent call last):
labeldp.engines.peers._messages.Refused: bad value

Design notes. A message has exactly the fields of its kind. A boolean is no number, and a label is 0 or 1. What is refused
carries a reason and nothing of the message, so that a count of reasons can be shown to anyone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

#: A message of a peer is far below this; a longer one is not read.
LONGEST = 4096


class Refused(Exception):  # noqa: N818 - a message that is dropped and counted, not an error of ours
    """A message that is not what the protocol allows; its text is the reason that is counted."""


def encode(kind: str, *, run: str, **fields: Any) -> bytes:
    """Return the bytes of a message."""
    return json.dumps({"kind": kind, "run": run, **fields}, separators=(",", ":")).encode()


def read(body: bytes, *, run: str, kinds: tuple[str, ...], longest: int | None = LONGEST) -> dict[str, Any]:
    """Return the fields of a message of one of these kinds, or raise `Refused` with the reason."""
    if longest is not None and len(body) > longest:
        raise Refused("too long")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused("not JSON") from None
    if not isinstance(message, dict) or message.get("kind") not in kinds:
        raise Refused("wrong kind")
    if message.get("run") != run:
        raise Refused("another run")
    return _checked(message)


def _checked(message: dict[str, Any]) -> dict[str, Any]:
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


def is_label(value: Any) -> bool:
    """Whether this is 0 or 1, as a number."""
    return type(value) is int and value in {0, 1}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 256


def _is_members(value: Any) -> bool:
    """Whether this is a list of [name, address]."""
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    return pairs and all(is_name(name) and _is_text(address) for name, address in value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(is_name(name) for name in value)


def _is_name_or_none(value: Any) -> bool:
    return value is None or is_name(value)


_SIGNED: dict[str, Callable[[Any], bool]] = {"peer": is_name, "ticket": _is_text}
#: The fields of each kind beside "kind" and "run".
FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "hello": {**_SIGNED, "address": _is_text},
    "start": {"members": _is_members},
    "ask": {"peer": is_name},
    "answer": {"peer": is_name, "label": is_label},
    "ready": {**_SIGNED, "failed": _is_name_or_none},
    "check": {},
    "alive": _SIGNED,
    "close": {"survivors": _is_names},
    "report": {**_SIGNED, "label": is_label},
    "abstain": _SIGNED,
}
