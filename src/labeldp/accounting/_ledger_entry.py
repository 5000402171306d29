"""What a ledger says: a release that was charged, a budget that was set; both plain values read back from a row.

>>> budget = BudgetEntry(id=1, label_set=None, epsilon=2.0, delta=0.0, who="ann@desk", when="2030-01-01T00:00:00+00:00")
>>> budget.limit
(2.0, 0.0)
"""

from __future__ import annotations

import getpass
import json
import math
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from labeldp._loss.base import from_number, to_number
from labeldp._validate import check_integer
from labeldp.accounting._ledger_file import Draft, Record
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee

Parts = tuple[tuple[str, Guarantee], ...]
OWNER = "Ledger.charge"


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One charged release. Every field is public: none depends on the value of a label.

    `rows` is the fingerprint of the data set's identity and row ids; `when` is UTC in ISO 8601; `parts` names what the
    release was made of; `seeded` marks noise that can be made again, which protects no one; `hash` closes the chain up
    to this entry: whoever keeps it can later hold the ledger to it (`Ledger.verify(known=entry.hash)`).
    """

    id: int
    label_set: str
    rows: str
    n_rows: int
    guarantee: Guarantee
    mechanism: str
    parts: Parts = field(repr=False)
    seeded: bool
    who: str
    when: str
    note: str
    hash: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    """One budget that was set, for a label set or (None) for every set that has none of its own."""

    id: int
    label_set: str | None
    epsilon: float
    delta: float
    who: str
    when: str

    @property
    def limit(self) -> tuple[float, float]:
        """The most epsilon, and the delta at which it is read."""
        return self.epsilon, self.delta


def release_draft(
    guarantee: Guarantee,
    *,
    label_set: str,
    rows: str,
    n_rows: int,
    mechanism: str,
    parts: Iterable[tuple[str, Guarantee]],
    seeded: bool,
    who: str | None,
    note: str,
) -> Draft:
    """Return the row of a release, each field checked before anything is opened."""
    content = {
        "rows": check_rows(rows),
        "n_rows": check_integer(OWNER, "n_rows", n_rows, least=0),
        "guarantee": check_guarantee(guarantee).to_json(),
        "mechanism": check_text("mechanism", mechanism),
        "parts": [{"name": name, "guarantee": part.to_json()} for name, part in check_parts(parts)],
        "seeded": bool(seeded),
        "note": check_text("note", note),
    }
    label_set = check_name(OWNER, "label_set", label_set)
    return Draft(kind="release", label_set=label_set, who=signature(OWNER, who), content=packed(content))


def budget_draft(owner: str, *, epsilon: float, delta: float, label_set: str | None, who: str | None) -> Draft:
    """Return the row of a budget whose numbers were checked."""
    name = None if label_set is None else check_name(owner, "label_set", label_set)
    content = {"epsilon": to_number(epsilon), "delta": delta}
    return Draft(kind="budget", label_set=name, who=signature(owner, who), content=packed(content))


# The same rows are read at every charge; a Record is frozen, so what it says never changes.
@lru_cache(maxsize=16_384)
def release_entry(record: Record) -> LedgerEntry:
    """Return the release that a row records."""
    data = json.loads(record.content)
    assert record.label_set is not None  # `release_draft` wrote it
    return LedgerEntry(
        id=record.id,
        label_set=record.label_set,
        rows=data["rows"],
        n_rows=data["n_rows"],
        guarantee=Guarantee.from_json(data["guarantee"]),
        mechanism=data["mechanism"],
        parts=tuple((part["name"], Guarantee.from_json(part["guarantee"])) for part in data["parts"]),
        seeded=data["seeded"],
        who=record.who,
        when=record.when,
        note=data["note"],
        hash=record.hash,
    )


def budget_entry(record: Record) -> BudgetEntry:
    """Return the budget that a row records."""
    data = json.loads(record.content)
    epsilon = from_number(data["epsilon"])
    return BudgetEntry(
        id=record.id,
        label_set=record.label_set,
        epsilon=epsilon,
        delta=data["delta"],
        who=record.who,
        when=record.when,
    )


def releases(records: Iterable[Record], label_set: str | None = None) -> tuple[LedgerEntry, ...]:
    """Return the releases of one label set, or of all, in the order in which they were charged."""
    chosen = (record for record in records if record.kind == "release")
    return tuple(release_entry(record) for record in chosen if label_set in (None, record.label_set))


def spent(records: Iterable[Record], label_set: str) -> Guarantee | None:
    """Return what a label set's releases cost together: all in sequence, since any two may share rows."""
    guarantees = [entry.guarantee for entry in releases(records, label_set)]
    return Guarantee.in_sequence(guarantees) if guarantees else None


def budget(records: Iterable[Record], label_set: str | None) -> tuple[float, float] | None:
    """Return the newest budget of the set, or else the newest default."""
    budgets = [record for record in records if record.kind == "budget"]
    for name in (label_set, None):
        mine = [record for record in budgets if record.label_set == name]
        if mine:
            return budget_entry(mine[-1]).limit
    return None


def left(limit: tuple[float, float] | None, used: Guarantee | None) -> float:
    """Return the epsilon that a budget still admits at its delta, by adding up; inf without a budget."""
    if limit is None or math.isinf(limit[0]):
        return math.inf
    return limit[0] if used is None else max(0.0, limit[0] - used.epsilon(limit[1]))


def packed(content: dict[str, Any]) -> str:
    """Return strict JSON, one text for one content."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def signature(owner: str, who: str | None) -> str:
    """Return who signs: the name given, or user@host."""
    if who is not None:
        return check_name(owner, "who", who)
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a user id without a name, as in some containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def check_name(owner: str, name: str, value: Any) -> str:
    """Return a name that a line of a table can show."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise invalid(owner, name, "be a non-empty text on one line", got=value)
    return value


def check_rows(value: Any) -> str:
    """Return a fingerprint; anything else might be the rows, or their labels, themselves: it is not shown."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{64}", value):
        fix = "Use labeldp.accounting.fingerprint(name, n_rows=...)."
        got = Described(f"a {type(value).__name__}")
        raise invalid(OWNER, "rows", "be a fingerprint of 64 hexadecimal digits", got=got, fix=fix)
    return value


def check_text(name: str, value: Any) -> str:
    """Return a text, which may be empty."""
    if not isinstance(value, str):
        raise invalid(OWNER, name, "be a text", got=value)
    return value


def check_guarantee(value: Any) -> Guarantee:
    """Return a guarantee; a bare epsilon does not say what it is about."""
    if not isinstance(value, Guarantee):
        raise invalid(OWNER, "guarantee", "be a Guarantee", got=value, fix="Use Guarantee.pure(epsilon).")
    return value


def check_parts(parts: Any) -> Parts:
    """Return pairs of a name and a guarantee."""
    try:
        pairs = tuple((name, part) for name, part in parts)
    except (TypeError, ValueError):
        pairs = ((None, None),)
    if not all(isinstance(name, str) and isinstance(part, Guarantee) for name, part in pairs):
        raise invalid(OWNER, "parts", "be pairs of a name and a Guarantee", got=parts)
    return pairs
