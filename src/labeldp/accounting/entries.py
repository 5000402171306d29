"""The rows of a ledger as facts: a release that was charged, a budget that was set; drafted before a file is opened, read back as checked.

>>> from labeldp.accounting.ledger_file import fingerprint
>>> draft = draft_release(
...     Guarantee.pure(1.5),
...     label_set="income",
...     rows=fingerprint("adult", n_rows=48842),
...     n_rows=48842,
...     mechanism="RR(epsilon=1.5)",
...     parts=(),
...     seeded=False,
...     who="ana",
...     note="",
... )
>>> draft.kind, draft.label_set, draft.who, draft.content["n_rows"]
('release', 'income', 'ana', 48842)

Design notes. A row is checked twice by the same functions: when it is drafted, so that nothing is charged that could not be read again,
and when it is read, since whoever has the file can write what she likes into it and seal it (`labeldp.accounting.ledger_file`). What
was spent follows from the rows (`labeldp.accounting.balance`); who may spend is asked in `labeldp.accounting.ledger`.
"""

from __future__ import annotations

import getpass
import json
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from labeldp.accounting.ledger_file import Draft, Record
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.guarantee import Guarantee
from labeldp.loss.base import from_number, to_number
from labeldp.untrusted import parse_json
from labeldp.validate import check_delta, check_epsilon, check_integer

if TYPE_CHECKING:
    from typing_extensions import Self

#: The call that a refused field is reported for.
OWNER = "Ledger.charge"
#: Names and guarantees of what a release was made of.
Parts = tuple[tuple[str, Guarantee], ...]


class EntryNumber(int):
    """The number of a ledger's row, with the hash that closes the chain up to it: one value, so that neither is lost.

    A number alone does not say which row is meant: after an older copy of the file is put back, the next release gets a
    number that an earlier one has. The hash differs: it covers a random token, the content and every row before.
    It counts and compares as the number that it is; `hash` is empty where only the number is known.

    >>> entry = EntryNumber(2, "ab12")
    >>> entry == 2, entry.hash, note_entry(entry)
    (True, 'ab12', {'ledger_entry': 2, 'ledger_hash': 'ab12'})
    >>> recall_entry({"ledger_entry": 2, "ledger_hash": "ab12"}).hash, recall_entry({"ledger_entry": 2}).hash
    ('ab12', '')
    """

    hash: str

    def __new__(cls, number: int, chain_hash: str = "") -> Self:
        """Make a number that knows its hash."""
        made = super().__new__(cls, number)
        made.hash = chain_hash
        return made

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]
        """Return what a copy, or a pickle, is made from."""
        return int(self), self.hash


def note_entry(entry: int | None) -> dict[str, Any]:
    """Return an entry as plain facts, `ledger_entry` and `ledger_hash`, each None where it is not known."""
    known = getattr(entry, "hash", "")
    return {"ledger_entry": None if entry is None else int(entry), "ledger_hash": known or None}


def recall_entry(facts: Mapping[str, Any]) -> EntryNumber | None:
    """Return what `note_entry` noted; notes of older versions have the number alone."""
    number, known = facts.get("ledger_entry"), facts.get("ledger_hash")
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(known, str | None):
        got = Described(f"a {type(number).__name__} and a {type(known).__name__}")
        raise invalid("Ledger", "ledger_entry", "be a number, with its hash as a text", got=got)
    return EntryNumber(number, known or "")


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One charged release. Every field is public: none depends on the value of a label.

    `rows` is the fingerprint of the data set's identity and row ids; `when` is UTC in ISO 8601; `parts` names what the
    release was made of; `seeded` marks noise that can be made again, which protects no one; `hash` closes the chain up
    to this entry: whoever keeps it can later hold the ledger to it (`Ledger.verify(known=entry.hash)`). `id` carries it
    too, and a release keeps that. `overlaps` names other accounts that had some of the rows, with their share, where
    the user said that these are other labels.
    """

    id: EntryNumber
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
    overlaps: tuple[tuple[str, float], ...] = field(default=(), repr=False)


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


def draft_release(
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
        # Two charges are never the same row, whatever the clock says: a hash names one release.
        "token": secrets.token_hex(16),
    }
    label_set = str(check_name(OWNER, "label_set", label_set))
    check_readable(content)
    return Draft(kind="release", label_set=label_set, who=sign(OWNER, who), content=content)


def check_readable(content: dict[str, Any]) -> None:
    """Refuse what could be written and not read again: half a character, or a guarantee nested without end."""
    try:
        parse_json(json.dumps(content))
    except (ValueError, RecursionError) as error:
        fix = "Leave out what no text file holds, and name a composition instead of nesting it."
        raise invalid(
            OWNER, "guarantee", "read back from JSON, with its note", got=Described(str(error)), fix=fix
        ) from error


def draft_budget(owner: str, *, epsilon: float, delta: float, label_set: str | None, who: str | None) -> Draft:
    """Return the row of a budget whose numbers were checked."""
    name = None if label_set is None else check_name(owner, "label_set", label_set)
    content = {"epsilon": to_number(epsilon), "delta": delta}
    return Draft(kind="budget", label_set=name, who=sign(owner, who), content=content)


def unreadable_row_error(record: Record) -> LabelDPError:
    """Return the error for a sealed row that labeldp did not write: whoever forged it sealed it too."""
    fix = "What the ledger says was spent cannot be trusted: restore it from a backup."
    got = Described(f"row {record.id}")
    return invalid("Ledger", "path", "hold only rows that labeldp wrote", got=got, fix=fix, kind=PrivacyError)


#: What a content that is JSON of another make leads to: `LabelDPError` is a ValueError.
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


# The same rows are listed again and again; a Record is frozen, so what it says never changes.
@lru_cache(maxsize=16_384)
def read_release(record: Record) -> LedgerEntry:
    """Return the release that a row records."""
    try:
        data = parse_json(record.content)
        return LedgerEntry(
            id=EntryNumber(record.id, record.hash),
            label_set=check_name("Ledger", "label_set", record.label_set),
            rows=check_rows(data["rows"]),
            n_rows=check_integer("Ledger", "n_rows", data["n_rows"], least=0),
            guarantee=Guarantee.from_json(data["guarantee"]),
            mechanism=check_text("mechanism", data["mechanism"]),
            parts=tuple(
                (check_text("part", part["name"]), Guarantee.from_json(part["guarantee"])) for part in data["parts"]
            ),
            seeded=bool(data["seeded"]),
            who=record.who,
            when=record.when,
            note=check_text("note", data["note"]),
            hash=record.hash,
            overlaps=tuple((check_text("overlaps", name), float(share)) for name, share in data.get("overlaps", ())),
        )
    except UNREADABLE as error:
        raise unreadable_row_error(record) from error


def read_budget(record: Record) -> BudgetEntry:
    """Return the budget that a row records."""
    try:
        data = parse_json(record.content)
        return BudgetEntry(
            id=record.id,
            label_set=None if record.label_set is None else check_name("Ledger", "label_set", record.label_set),
            epsilon=check_epsilon("Ledger", from_number(data["epsilon"])),
            delta=check_delta("Ledger", data["delta"]),
            who=record.who,
            when=record.when,
        )
    except UNREADABLE as error:
        raise unreadable_row_error(record) from error


def select_releases(records: Iterable[Record], label_set: str | None = None) -> tuple[LedgerEntry, ...]:
    """Return the releases of one label set, or of all, in the order in which they were charged."""
    chosen = (record for record in records if record.kind == "release")
    return tuple(read_release(record) for record in chosen if label_set in (None, record.label_set))


def sign(owner: str, who: str | None) -> str:
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
