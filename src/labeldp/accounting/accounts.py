"""Which account of a ledger pays for a table: it is known by its rows, whatever its file is called.

>>> from labeldp.accounting.sketches import RowKey, protect_ids
>>> key = RowKey.fresh()
>>> first, second = protect_ids(["ana", "bo", "cy"], key), protect_ids(["cy", "di"], key)
>>> known = KnownRows(label_set="survey", kind=IDS, sets=(first.ids.rows,), sample=first.ids.sample)
>>> compare_rows(second.ids, known).share  # one of two
0.5

What is protected is a set of labels, and a set of labels is that of a set of rows, of which a ledger has sketches
(`labeldp.accounting.sketches`: a total, and a sample of hashes).

**When rows are the same.** By ids: any id in common, since an id names a row. Without ids, rows that look the same may be two
people. How often that happens by chance a table tells about itself. If rows were drawn independently, those that occur once in
a table of n rows have together a probability of about 2 f2 / n, where f2 is the number of rows that occur twice (Good 1953,
Turing). So of n' rows of another table from the same population about lambda = 2 f2 n' / n hit one of them. (If n < n', f2 is
raised to f2 + 3 + 3 sqrt(f2): a small table tells little about repeats.) More common
rows than max(1 % of the smaller table, lambda + 4 sqrt(lambda)), among those that are single in one of the two tables, are more
than chance explains, and count as an overlap; fewer do not. Tables of few columns with few values, in which every row occurs
often, are therefore recognised as a whole only, by their total; a part of them needs ids to be found.

**Other label columns.** The rows of one table with another label have another set of columns, so their hashes differ. Beside
the total there is one for each column by itself. Two tables of as many rows are the same if the columns of one, but for the
labels of either, are among those of the other, and all of them have equal totals. This also finds a whole copy from which
columns were dropped, but no part of one.

**Persons.** Where all labels of a person are protected together, an account is known by her id, hashed apart from ids of rows, and
by the name of the column of ids. A table that has a column of that name is compared by it also where nobody said that it
has persons: any id in common, and the table's release is her account's business (`ProtectedRows.owners`).

**Two labels in one table.** A column that is released as it is, or learned from, must not be a label that the ledger protects in
these rows: its account would promise what the release takes back (`refuse_exposed`). An account knows its label columns by
name. Its rows are these by the rules above: by ids, or as a whole table. A column of that name in rows that
are not recognised (a part of the table without ids, labels that were missing) is told, and not refused.

`choose_account` is the rule; `labeldp.accounting.account_file` keeps sketches, and `Ledger` applies both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from labeldp.accounting.sketches import (
    COLUMNS,
    IDS,
    SAMPLE_ROWS,
    WORD,
    ProtectedRows,
    RowKey,
    RowSample,
    RowSet,
    RowSketch,
)
from labeldp.arrays import Places, UInt8s
from labeldp.errors import AccountError, Described, LabelDPError, PrivacyError, invalid

if TYPE_CHECKING:
    from typing_extensions import Self

#: Of the smaller table: fewer rows in common are no overlap, where rows have no ids.
LEAST_SHARE = 0.01


class AccountName(str):
    """A name of labels that knows their rows: one value, so that neither is lost on the way to the charge.

    `given` says whether the user chose the name; one that was only made up from a file's name gives way to the account
    that has these rows. `find_rows` hashes them anew, where the ledger turns out to have another key than they were hashed under.
    It compares as the text that it is. It pickles without its rows, which no worker needs.

    >>> name = AccountName("people.csv:income")
    >>> name == "people.csv:income", name.given, name.rows
    (True, False, None)
    """

    __slots__ = ("find_rows", "given", "rows")
    given: bool
    rows: ProtectedRows | None
    find_rows: Callable[[RowKey], ProtectedRows] | None

    def __new__(
        cls,
        name: str,
        rows: ProtectedRows | None = None,
        given: bool = False,  # noqa: FBT001, FBT002 - pickle
        find_rows: Callable[[RowKey], ProtectedRows] | None = None,
    ) -> Self:
        """Make a name; without `given`, nobody chose it."""
        made = super().__new__(cls, name)
        made.rows, made.given, made.find_rows = rows, given, find_rows
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return AccountName, (str(self), None, self.given)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> Self:
        return self


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownRows:
    """What a ledger knows of an account's rows, of one kind: each table that was charged to it, and a sample of all."""

    label_set: str
    kind: str
    sets: tuple[RowSet, ...]
    sample: RowSample = field(repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns of these tables."""
        return tuple(dict.fromkeys(one.label for one in self.sets))

    @property
    def person_columns(self) -> tuple[str, ...]:
        """The columns of persons' ids, where it is known by them."""
        return tuple(dict.fromkeys(name for one in self.sets for name in one.columns)) if self.kind == IDS else ()

    @property
    def n_rows(self) -> int:
        """Rows of all tables together, at least: those of the largest, or as many as the sample speaks for."""
        size = len(self.sample)
        spread = size if size < SAMPLE_ROWS else math.floor((size - 1) * WORD / max(self.sample.limit, 1))
        return max([spread, *(one.n_rows for one in self.sets)])

    def includes(self, sketch: RowSketch) -> bool:
        """Whether charging these rows adds nothing to what is known: the very table was charged before."""
        return any(one == sketch.rows for one in self.sets)

    def widened(self, sketch: RowSketch) -> KnownRows:
        """Return the account with one more table."""
        found = {**self.sets_by_total(), (sketch.rows.total, sketch.rows.label): sketch.rows}
        sets = tuple(one for _, one in sorted(found.items(), key=lambda pair: pair[0]))
        return KnownRows(
            label_set=self.label_set,
            kind=self.kind,
            sets=sets,
            sample=self.sample.joined(sketch.sample, same_table=False),
        )

    def sets_by_total(self) -> dict[tuple[str, str], RowSet]:
        """Return the tables by their total and label."""
        return {(one.total, one.label): one for one in self.sets}


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """An account that has some of the rows: what share of the smaller of the two, and whether it has this very table.

    `labels` are the label columns of what it has; `share` is an estimate where tables are larger than a sample. `persons` is the
    column by which the account knows persons with rows here, where that was not said of these rows.
    """

    label_set: str
    share: float
    equal: bool
    labels: tuple[str, ...]
    persons: str = ""

    def is_about(self, label: str) -> bool:
        """Whether it is about this label column, as far as both have a name."""
        return not label or label in self.labels or "" in self.labels


def compare_rows(mine: RowSketch, known: KnownRows) -> Overlap | None:
    """Return what an account has of these rows, or None if no more than chance explains; see the module's docstring."""
    equal = [one.label for one in known.sets if (one.n_rows, one.total) == (mine.rows.n_rows, mine.rows.total)]
    if equal:
        return Overlap(label_set=known.label_set, share=1.0, equal=True, labels=tuple(equal))
    alike = [one.label for one in known.sets if mine.kind == COLUMNS and one.shares_rows(mine.rows)]
    if alike:
        return Overlap(label_set=known.label_set, share=1.0, equal=False, labels=tuple(alike))
    limit = min(mine.sample.limit, known.sample.limit)
    one, other = mine.sample.below(limit), known.sample.below(limit)
    common, at, there = np.intersect1d(one.hashes, other.hashes, assume_unique=True, return_indices=True)
    smaller = len(one) if mine.rows.n_rows <= known.n_rows else len(other)
    share = min(1.0, len(common) / max(smaller, 1))
    if mine.kind == IDS:
        seen = len(common) > 0
    else:
        least = LEAST_SHARE * smaller
        seen = _exceeds(one.counts, at, least, own=mine.rows.n_rows, others=known.n_rows) or _exceeds(
            other.counts, there, least, own=known.n_rows, others=mine.rows.n_rows
        )
    return Overlap(label_set=known.label_set, share=share, equal=False, labels=known.labels) if seen else None


def _exceeds(counts: UInt8s, common: Places, least: float, *, own: int, others: int) -> bool:
    """Whether more rows that are single in a table are in another one than independent draws explain."""
    singles, doubles = int(np.count_nonzero(counts[common] == 1)), float(np.count_nonzero(counts == 2))
    if own < others:  # the smaller table knows less of how often rows repeat: its count is raised by what it may err
        doubles += 3.0 + 3.0 * math.sqrt(doubles)
    expected = 2.0 * doubles * others / max(own, 1)
    return singles > max(least, expected + 4.0 * math.sqrt(expected))


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """A column among the features of some rows that is a label of an account; `same` says whether of these very rows."""

    column: str
    label_set: str
    same: bool


def find_exposed(mine: ProtectedRows, known: KnownRows) -> list[Exposed]:
    """Return the features of rows that are label columns of an account, each with whether it has these rows."""
    found = []
    for column in mine.features:
        sets = tuple(one for one in known.sets if column in one.label_columns)
        if not sets:
            continue
        if known.kind == IDS:
            asked = [sketch for name, sketch in mine.owners.items() if name in known.person_columns]
            asked += [] if mine.ids is None else [mine.ids]
            same = any(compare_rows(sketch, known) is not None for sketch in asked)
        else:  # rows with another label have other hashes: a table is known as a whole, or not at all
            same = mine.columns is not None and any(one.shares_rows(mine.columns.rows) for one in sets)
        found.append(Exposed(column=column, label_set=known.label_set, same=same))
    return found


def refuse_exposed(exposed: Sequence[Exposed]) -> tuple[str, ...]:
    """Raise `PrivacyError` where a feature is a label that the ledger protects in these rows; return what else to know."""
    same = {one.column: one.label_set for one in reversed(exposed) if one.same}
    if same:
        names = sorted(same)
        what = " and ".join(f"{name!r} (the label of account {same[name]!r})" for name in names)
        fix = (
            "Features are published, or learned from, as they are, and this ledger protects that column in these rows. Leave it "
            f"out: drop={names!r} (--drop {','.join(names)}); a model that has it as a feature is trained anew without it. "
            "Nothing was charged."
        )
        must = f"leave out {what}"
        raise invalid("Ledger", "columns", must, got=Described("it among the features"), fix=fix, kind=PrivacyError)
    other = {one.column: one.label_set for one in reversed(exposed)}
    return tuple(
        f"column {name!r} is used as it is, and account {other[name]!r} protects a label of that name in rows that are not "
        f"recognised as these. If they are the same people, leave it out: --drop {name}."
        for name in sorted(other)
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The account that pays, and what its user should know about it, in sentences."""

    label_set: str
    notes: tuple[str, ...] = ()


def choose_account(
    name: str, overlaps: Sequence[Overlap], *, given: bool, label: str, state: Mapping[str, str]
) -> Choice:
    """Return which account pays for rows, or raise `AccountError` if only their owner can say.

    Parameters
    ----------
    name : str
        What the labels are called.
    overlaps : sequence of Overlap
        The accounts that have some of the rows.
    given : bool
        Whether the user chose the name. Her word stands, and she is told about other accounts with these rows.
    label : str
        The label column.
    state : mapping
        For the names of accounts that there are: "rows" if the rows are known, "name" if only the name is (accounts of older
        versions, and of labels without ids in memory).

    Notes
    -----
    Without the user's word: the account that has this very table and label pays, whatever the table is called. One of the same
    name that has a part of the rows pays too, and gets the others: a table that has grown. Labels that share no row with
    any account get a new one, under a name that no other rows have; an account that is known by name alone takes
    them on. Anything else is refused.
    """
    if given:
        others = [one for one in overlaps if one.label_set != name]
        notes = (f"{name!r} is charged as you say, though {_describe(others)}.",) if others else ()
        return Choice(label_set=name, notes=notes)
    own = [one.label_set for one in overlaps if one.equal and one.is_about(label)]
    if name in own or len(own) == 1:
        chosen = name if name in own else own[0]
        told = f"{name!r} holds the rows of account {chosen!r} and is charged to it."
        return Choice(label_set=chosen, notes=() if chosen == name else (told,))
    if overlaps and all(one.label_set == name and one.is_about(label) for one in overlaps):
        (one,) = overlaps
        told = (
            f"{name!r} has rows ({_percent(one.share)}) of the account of this name, and others: all are charged to it."
        )
        return Choice(label_set=name, notes=(told,))
    if overlaps:
        raise _refuse_overlap(name, overlaps, label=label)
    if state.get(name) == "name":
        told = f"the account {name!r} was known by its name alone; from now on it is known by these rows."
        return Choice(label_set=name, notes=(told,))
    number, free = 1, name
    while free in state:
        number += 1
        free = f"{name} #{number}"
    told = f"the account {name!r} has other rows; these labels are charged to {free!r}."
    return Choice(label_set=free, notes=() if free == name else (told,))


def _refuse_overlap(name: str, overlaps: Sequence[Overlap], *, label: str) -> LabelDPError:
    there = overlaps[0].label_set
    owned = next((one for one in overlaps if one.persons), None)
    if owned is not None:
        fix = (
            f"There all labels of a person are protected together: name the column here too, persons={owned.persons!r} "
            f"(--person {owned.persons}); or, if these are other people, say so with a name of their own, such as {name!r}. "
            "Nothing was charged."
        )
        return AccountError(
            f"Ledger: `label_set` must be given for {name!r}, since account {owned.label_set!r} knows persons of its column "
            f"{owned.persons!r}. {fix}"
        )
    what = "" if all(one.is_about(label) for one in overlaps) else f" (with {overlaps[0].labels[0]!r} as the label)"
    fix = (
        f"Charge them there with label_set={there!r} (--label-set), or, if these are other labels, say so with a name of "
        f"their own, such as {name!r}. Nothing was charged."
    )
    return AccountError(f"Ledger: `label_set` must be given for {name!r}, since {_describe(overlaps)}{what}. {fix}")


def _describe(overlaps: Sequence[Overlap]) -> str:
    """Return which accounts have which share of the rows, the largest shares first."""
    ordered = sorted(overlaps, key=lambda one: -one.share)
    shown = [
        f"account {one.label_set!r} has {_percent(one.share)} of its "
        + (f"persons (column {one.persons!r}, which was not named here)" if one.persons else "rows")
        for one in ordered[:3]
    ]
    more = f" and {len(ordered) - 3} more have some" if len(ordered) > 3 else ""
    return ", ".join(shown) + more


def _percent(share: float) -> str:
    return "all" if share >= 1.0 else f"about {max(share, 0.0001):.2%}"
