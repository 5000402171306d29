"""What was spent on which labels, kept in a file that only grows, so that a budget outlives the process that spends it.

>>> import tempfile
>>> from pathlib import Path
>>> from labeldp.accounting import fingerprint
>>> from labeldp.guarantee import Guarantee
>>> ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.sqlite", budget=2.0)
>>> rows = fingerprint("adult", n_rows=48842)
>>> entry = ledger.charge(Guarantee.pure(1.5), label_set="income", rows=rows, n_rows=48842, mechanism="RR(epsilon=1.5)")
>>> entry.id, ledger.remaining("income")
(2, 0.5)
>>> ledger.charge(Guarantee.pure(1.0), label_set="income", rows=rows, n_rows=48842, mechanism="RR(epsilon=1.0)")
Traceback (most recent call last):
    ...
labeldp.errors.BudgetError: Ledger.charge: `guarantee` must keep label set 'income' within its budget of epsilon = 2 at
delta = 0, got 1 asked, 1.5 spent, 0.5 left (2.5 in all). Ask for less, or have the budget raised: ledger.set_budget, or
`labeldp ledger FILE --set-budget B`.

Two kinds of rows (`labeldp.accounting.entries`): a release that was charged and a budget that was set. All releases of
a label set compose in sequence, since any two may share rows.

References: Dwork, McSherry, Nissim & Smith 2006 (composition in sequence); `labeldp.loss.compose` has ours.

Design notes. The budget is compared and the row is written in one transaction, before any noise is drawn: a crash may
waste budget, and can never hide a release. The file itself is the subject of `labeldp.accounting.ledger_file`. Nothing
is remembered between calls. What a label set has spent is kept beside the rows as a balance
(`labeldp.accounting.balance`) that each row seals, so a charge takes as long in a ledger of 100,000 rows as in one of
ten. The balance before and a row give the balance after by one function, for a charge as for the replay in `verify`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from labeldp.accounting.account_file import AccountTables, list_overlaps
from labeldp.accounting.accounts import AccountName, Choice, KnownRows
from labeldp.accounting.balance import Balance, digest_text, format_down, say_budget
from labeldp.accounting.entries import (
    OWNER,
    BudgetEntry,
    LedgerEntry,
    draft_budget,
    draft_release,
    read_budget,
    read_release,
    select_releases,
)
from labeldp.accounting.ledger_file import (
    NAMED_VERSION,
    PLAIN_VERSION,
    Record,
    Table,
    fingerprint,
    open_for_reading,
    open_for_writing,
    read_bindings,
    tampering_error,
)
from labeldp.accounting.sketches import IDS, ProtectedRows, RowKey, protect_ids
from labeldp.display import MOST_LINES, card
from labeldp.errors import AccountError, BudgetError, Described, LabelDPError, OtherKeyError, PrivacyError, invalid
from labeldp.guarantee import Guarantee, Unit, format_up
from labeldp.validate import check_delta, check_epsilon, check_positive

#: A column that nobody called ids is taken for one if an account's ids hold this share of it, at least.
MOST_IDS = 0.99


class Ledger:
    """An append-only record of releases, and the budget of each label set.

    Parameters
    ----------
    path : str or path
        The file; made at the first charge, when rows are to be recognised, or at once where a `budget` is given.
    budget, delta : float, optional
        The default budget of every label set without its own: epsilon at this delta.
    timeout : float
        Seconds to wait for another process that is writing.
    make_now : bool
        Without it nothing is written before the first charge, whatever is asked before: whoever fails leaves no file and no
        budget behind. So the commands open a ledger.

    Notes
    -----
    *What is recorded*, all of it public: the label set's name, a fingerprint of the data set's identity and row ids,
    the number of rows, the guarantee, the mechanism's description, the names and guarantees of its parts, whether the
    noise was seeded, who, when, a note, and a random token that makes the row unlike any other; of tables and of row ids,
    keyed hashes of rows without their labels. Label values never are, nor anything computed from them.

    *What counts as the same labels*: the label set's name is the account that pays. All releases under one name compose in
    sequence, whatever their rows. Disjoint parts of one release are charged once, with their guarantee in parallel, and
    listed in `parts`. A name that knows its rows (`AccountName`) is recognised by them: see `labeldp.accounting.accounts`.

    *Budgets* are rows too; the newest of a set wins, and a set without one has the default (label set None). `budget`
    and `delta` given here are recorded as the default when the file has none yet. If it has one, the recorded one
    stands, larger or smaller: only `set_budget` changes a budget, and it leaves a row with who and when.

    *Edge cases*: without `budget` no file is made before the first charge; an empty file becomes a ledger; an infinite
    budget admits everything; a budget at delta 0 admits only pure guarantees. Safe among threads, forked children and
    processes on a local disk; on a network disk, as safe as its locks. Pickles as its path and settings.

    *An edited file* raises `PrivacyError`. Every call checks the newest rows, the balances that it reads, and a random
    block of older rows; the whole of a ledger of up to 128 rows. `entries`, `budgets` and `label_sets` check the chain of
    all rows, and `verify` checks besides that what is kept beside them is what they add up to.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        budget: float | None = None,
        delta: float = 0.0,
        timeout: float = 30.0,
        make_now: bool = True,
    ) -> None:
        self.path, self._make_now = check_path(path), make_now
        self.timeout = check_positive("Ledger", "timeout", timeout)
        self._pending: RowKey | None = None
        share = check_delta("Ledger", delta)
        self._default = None if budget is None else (check_epsilon("Ledger", budget, name="budget"), share)
        limit = self.budget(None)
        if self._default is not None and limit is None and make_now:
            with self._write():
                pass

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """Return a card for a notebook: what each label set has spent and has left. The chain of all rows is checked first."""
        title = f"Ledger {self.path.name}"
        try:
            names, entries = self.label_sets(), self.entries()
            with self._open() as table:
                default = find_budget(table, None)
                shown = [
                    (name, find_account(table, name).limited_to(find_budget(table, name)))
                    for name in names[:MOST_LINES]
                ]
        except LabelDPError as error:
            return card(title, rows=[("says", str(error))], warning="This ledger cannot be trusted as it is.")
        seeded = sum(entry.seeded for entry in entries)
        warning = f"Not private: {seeded:,} of its releases had seeded noise, which the seed takes away."
        return card(
            title,
            rows=[
                (
                    "releases",
                    f"{len(entries):,}, of {len(names):,} label set{'s' * (len(names) != 1)}; those of one set add up",
                ),
                ("default budget", say_budget(default)),
                ("chain", "intact: every row names the hash of the row before" if entries else "no row yet"),
            ],
            warning=warning if seeded else "",
            columns=("label set", "releases", "epsilon spent", "budget", "epsilon left", "hides", "trusts"),
            table=[(name, *balance.in_words()) for name, balance in shown],
            numeric=(1, 2, 3, 4),
            left_out=max(0, len(names) - MOST_LINES),
        )

    def charge(
        self,
        guarantee: Guarantee,
        *,
        label_set: str = "labels",
        rows: str,
        n_rows: int,
        mechanism: str,
        parts: Iterable[tuple[str, Guarantee]] = (),
        seeded: bool = False,
        who: str | None = None,
        note: str = "",
    ) -> LedgerEntry:
        """Record a release before it is drawn, or raise `BudgetError` with nothing written.

        One transaction: what the set has spent and this guarantee, in sequence, must keep within the budget. When this
        returns, the row is on disk.

        Parameters
        ----------
        guarantee : Guarantee
            What the release will cost; of the same unit as the set's other releases.
        label_set : str
            Whose budget it is charged to. An `AccountName` with its rows must still be the account that `choose_account`
            found for them; the rows are kept with it.
        rows : str
            `fingerprint` of the data set and its rows; never the rows themselves.
        n_rows : int
            How many labels it is about.
        mechanism : str
            What makes the noise, in words.
        parts : iterable of (str, Guarantee)
            What the release is made of, for readers of the ledger.
        seeded : bool
            Whether the noise can be made again, which protects no one.
        who, note : str
            Who signs (user@host if left out), and anything else to remember.
        """
        draft = draft_release(
            guarantee,
            label_set=label_set,
            rows=rows,
            n_rows=n_rows,
            mechanism=mechanism,
            parts=parts,
            seeded=seeded,
            who=who,
            note=note,
        )
        if not self._make_now and not self.path.exists():  # what does not fit makes no file; asked again below
            check_room(guarantee, balance=Balance().limited_to(self._default), label_set=label_set)
        with self._write() as table:
            balance = find_account(table, label_set)
            check_room(guarantee, balance=balance.limited_to(find_budget(table, label_set)), label_set=label_set)
            if isinstance(label_set, AccountName) and label_set.rows is not None:
                facts = self._attach(table, label_set, label_set.rows)
                draft = replace(draft, content={**draft.content, **facts})
            record = table.append(draft, balance=balance.add(guarantee).to_text())
            # Before the commit: a row that could not be read would close the ledger for good.
            return read_release(record)

    def row_key(self) -> RowKey:
        """Return the secret under which this ledger hashes rows; made, and the file with it, when it is first asked for.

        Without `make_now` the next charge keeps it. If another process has made one by then, rows are hashed again
        (`labeldp.release.budget.Budget.charge`).
        """
        with self._open() as table:
            key = None if table is None else AccountTables(table).find_key()
            plain = table is not None and table.version == PLAIN_VERSION
            if key is None and (plain or not self._make_now):
                # A plain file is brought up to date by a row, and there is none to write yet: the next charge keeps the key.
                key = self._pending = self._pending or RowKey.fresh()
        if key is not None:
            return key
        with self._write() as table:
            accounts = AccountTables(table)
            key = accounts.find_key()
            if key is None:
                key = RowKey.fresh()
                accounts.keep_key(key)
            return key

    def choose_account(self, name: AccountName) -> Choice:
        """Return which account pays for the rows of a name, or raise `AccountError`; nothing is written.

        The rule is that of `labeldp.accounting.accounts.choose_account`.
        """
        with self._open() as table:
            if table is None or name.rows is None:
                return Choice(label_set=str(name))
            return AccountTables(table).choose(str(name), name.rows, given=name.given)[0]

    def known_rows(self, label_set: str = "labels") -> tuple[KnownRows, ...]:
        """Return what is known of an account's rows, by ids and by columns; nothing where it is known by name alone."""
        with self._open() as table:
            return () if table is None else AccountTables(table).find_rows(label_set)

    def _attach(self, table: Table, name: AccountName, rows: ProtectedRows) -> dict[str, Any]:
        """Add rows to the account of a name, and return what the ledger's next row says about it."""
        accounts = AccountTables(table)
        key = accounts.find_key()
        if key is None and self._pending is not None:
            key = self._pending
            accounts.keep_key(key)
        if key is None or key.digest != rows.key:
            fix = "The file was replaced, or brought up to date by another process, in the meantime: run it again."
            got, must = Described("rows that were read for another"), "have rows that were read for this ledger"
            raise invalid(OWNER, "label_set", must, got=got, fix=fix, kind=OtherKeyError)
        choice, overlaps = accounts.choose(str(name), rows, given=name.given)
        if choice.label_set != name:
            raise AccountError(
                f"{OWNER}: `label_set` must be the account of these rows, got {str(name)!r} for rows that another process has "
                f"just charged to {choice.label_set!r}. Nothing was charged: run it again."
            )
        names = accounts.attach(str(name), rows, entry=1 + (table.last.id if table.last else 0))
        others = list_overlaps(overlaps, but=name)
        return {**({"accounts": names} if names else {}), **({"overlaps": others} if others else {})}

    def set_budget(
        self, epsilon: float, *, delta: float = 0.0, label_set: str | None = "labels", who: str | None = None
    ) -> None:
        """Record a new budget for a label set, or (None) for every set without its own; smaller than spent is fine."""
        owner = "Ledger.set_budget"
        limit, share = check_epsilon(owner, epsilon), check_delta(owner, delta)
        draft = draft_budget(owner, epsilon=limit, delta=share, label_set=label_set, who=who)
        with self._write() as table:
            table.append(draft, balance=find_account(table, label_set).limited_to((limit, share)).to_text())

    def budget(self, label_set: str | None = "labels") -> tuple[float, float] | None:
        """Return the (epsilon, delta) that a label set may spend, or None if nobody set one."""
        with self._open() as table:
            return find_budget(table, label_set)

    def spent(self, label_set: str = "labels") -> Guarantee | None:
        """Return what the releases of a label set cost together, or None if there are none."""
        with self._open() as table:
            return find_account(table, label_set).spent

    def remaining(self, label_set: str = "labels") -> float:
        """Return an epsilon that may still be charged, at the budget's delta; inf if there is no budget.

        It is the budget less what was spent, so a pure guarantee of it fits (at delta > 0 up to the rounding up of a
        composition). Guarantees that compose better than by adding up may fit even when they look larger.
        """
        with self._open() as table:
            return find_account(table, label_set).limited_to(find_budget(table, label_set)).left

    def entries(self, label_set: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return the releases of a label set, or of all, oldest first, with the chain of all rows checked."""
        return select_releases(self._read(), label_set)

    def find_noted(self, note: str, *, longer: bool = False) -> tuple[LedgerEntry, ...]:
        """Return the releases with this note, or (`longer`) with a note that begins so, oldest first.

        They are found by an index: it takes as long in a large ledger as in a small one, and checks these rows alone.
        """
        with self._open() as table:
            if table is None:
                return ()
            if table.version != PLAIN_VERSION:
                return select_releases(table.find_noted(note, longer=longer))
            entries = select_releases(table.read_records())
        return tuple(one for one in entries if one.note == note or (longer and one.note.startswith(note)))

    def find_releases(
        self,
        label_set: str,
        *,
        n_rows: int,
        find_rows: Callable[[RowKey], ProtectedRows] | None = None,
        row_ids: Iterable[Any] = (),
    ) -> tuple[LedgerEntry, ...]:
        """Return the releases that may be of these labels: under this name, or of these rows, all or some, under another.

        `find_rows` hashes the rows under the ledger's key: accounts that have some of them are found, unless they are
        about another label column. `row_ids` are columns of the table that may be ids. They find accounts that know
        nothing but ids, if these have all values of the column. An account that is known by name alone may have these rows
        if the fingerprint of its entry, made anew under its own name, is that of the table: by one of these columns, or by
        the number of rows alone.
        """
        columns = [None, *row_ids]
        with self._open() as table:
            if table is None:
                return ()
            accounts = AccountTables(table)
            entries = select_releases(table.read_records())
            kinds = {
                name: {one.kind for one in accounts.find_rows(name)} for name in {one.label_set for one in entries}
            }
            found, key = {label_set}, accounts.find_key()
            if key is not None and find_rows is not None:
                rows = find_rows(key)
                found |= {one.label_set for one in accounts.find_overlaps(rows) if one.is_about(rows.label)}
            if key is not None and {IDS} in kinds.values():
                tried = [protect_ids(ids, key, persons=mine) for ids in columns[1:] for mine in (False, True)]
                held = [one for rows in tried for one in accounts.find_overlaps(rows)]
                found |= {one.label_set for one in held if one.share >= MOST_IDS and kinds[one.label_set] == {IDS}}
        return tuple(
            entry
            for entry in entries
            if entry.label_set in found
            or (
                not kinds[entry.label_set]
                and entry.n_rows == n_rows
                and any(fingerprint(entry.label_set, n_rows=n_rows, row_ids=ids) == entry.rows for ids in columns)
            )
        )

    def budgets(self, label_set: str | None = None) -> tuple[BudgetEntry, ...]:
        """Return every budget that was ever set for a label set, or for any, oldest first."""
        chosen = (record for record in self._read() if record.kind == "budget")
        return tuple(read_budget(record) for record in chosen if label_set in (None, record.label_set))

    def label_sets(self) -> tuple[str, ...]:
        """Return the names of the label sets that have a release or a budget of their own, sorted."""
        return tuple(sorted({record.label_set for record in self._read() if record.label_set is not None}))

    def verify(self, *, known: str | None = None) -> str:
        """Check all rows, and what is kept beside them, and return the last hash, or raise `PrivacyError`.

        Every row is replayed: the balance that it names must be what the rows up to it add up to, and the balances and
        notes on file must be those of all rows; so must the rows of accounts, their index and its key.

        `known` is a hash from before (of an entry, or of an earlier `verify`). A chain that no longer holds it was
        written anew, which the chain alone cannot tell.
        """
        hashes: list[str] = []
        with self._open() as table:
            if table is not None:
                records = table.read_records()
                hashes = [record.hash for record in records]
                balances = self._replay(records)
                if table.version != PLAIN_VERSION:
                    self._compare(table, records, balances)
                AccountTables(table).verify(records)
        if known is not None and known not in hashes:
            raise tampering_error(self.path, f"a chain without the known hash {known!r:.14}...")
        return hashes[-1] if hashes else ""

    def last_hash(self) -> str:
        """Return the hash in which the chain ends, empty without rows; `verify` returns it after checking everything."""
        with self._open() as table:
            return "" if table is None or table.last is None else table.last.hash

    def _read(self) -> tuple[Record, ...]:
        with self._open() as table:
            return () if table is None else table.read_records()

    @contextmanager
    def _open(self) -> Iterator[Table | None]:
        with open_for_reading(self.path, timeout=self.timeout) as table:
            if table is not None and table.version == PLAIN_VERSION:
                records = table.read_records()
                table.assume({name: one.to_text() for name, one in self._replay(records).items()})
            yield table

    @contextmanager
    def _write(self) -> Iterator[Table]:
        """Open a write transaction on a file of this version, with its default budget recorded."""
        with open_for_writing(self.path, timeout=self.timeout) as table:
            if table.version == PLAIN_VERSION:
                records = table.read_records()
                notes = [(entry.note, int(entry.id)) for entry in select_releases(records) if entry.note]
                table.upgrade({name: one.to_text() for name, one in self._replay(records).items()}, notes)
            elif table.version == NAMED_VERSION:
                table.add_accounts()
            if self._default is not None and find_budget(table, None) is None:
                epsilon, delta = self._default
                draft = draft_budget("Ledger", epsilon=epsilon, delta=delta, label_set=None, who=None)
                table.append(draft, balance=find_account(table, None).limited_to(self._default).to_text())
            yield table

    def _replay(self, records: Sequence[Record]) -> dict[str | None, Balance]:
        """Return the balance of every label set after these rows; the newest row of each set must name it."""
        newest = {record.label_set: record.id for record in records}
        balances: dict[str | None, Balance] = {}
        for record in records:
            balance = balances.get(record.label_set, Balance())
            if record.kind == "release":
                balances[record.label_set] = balance.add(read_release(record).guarantee)
            else:
                balances[record.label_set] = balance.limited_to(read_budget(record).limit)
            # The row that brought an older file to this version names the balances of other sets too.
            names = read_bindings(record)
            if len(names) == 1 and record.id != newest[record.label_set]:
                continue
            for name, digest in names.items():
                if name not in balances or digest_text(balances[name].to_text()) != digest:
                    what = f"another balance of {name!r:.60} in row {record.id} than its rows give"
                    raise tampering_error(self.path, what)
        return balances

    def _compare(self, table: Table, records: Iterable[Record], balances: Mapping[str | None, Balance]) -> None:
        """Refuse balances and notes on file that are not those of the rows."""
        for name in {*balances, *table.read_balances()}:
            text = balances[name].to_text() if name in balances else None
            if table.find_balance(name) != text:
                raise tampering_error(self.path, f"another balance of {name!r:.60} than its rows give")
        notes = {(entry.note, int(entry.id)) for entry in select_releases(records) if entry.note}
        if table.read_notes() != notes:
            raise tampering_error(self.path, "other notes in its index than in its rows")


def check_path(path: Any) -> Path:
    """Return the absolute path, so that a later change of directory does not change the ledger."""
    if not isinstance(path, (str, os.PathLike)) or str(path) in {"", ":memory:"}:
        raise invalid("Ledger", "path", "name a file", got=path, fix="A ledger that forgets protects no one.")
    return Path(path).absolute()


def check_room(guarantee: Guarantee, *, balance: Balance, label_set: str) -> None:
    """Refuse a guarantee of another unit than the set's, or one that does not fit its budget."""
    used, limit = balance.spent, balance.limit
    if used is not None and used.unit != guarantee.unit:
        must = f"be about the unit of label set {label_set!r}, `{used.unit.value}`"
        fix = "Guarantees of two units do not add up. "
        if {used.unit, guarantee.unit} == {Unit.LABEL, Unit.PERSON}:
            fix += "A promise about labels is one about persons as guarantee.for_persons(most_rows): release with persons= too."
        else:
            fix += "Use another label set."
        raise invalid("Ledger.charge", "guarantee", must, got=guarantee.unit.value, fix=fix, kind=PrivacyError)
    if limit is not None and not balance.admits(guarantee):
        raise over_budget_error(guarantee, balance=balance, limit=limit, label_set=label_set)


def over_budget_error(
    guarantee: Guarantee, *, balance: Balance, limit: tuple[float, float], label_set: str
) -> LabelDPError:
    """Return the refusal: budget, asked, spent, left."""
    epsilon, delta = limit
    total = balance.add(guarantee).spent
    assert total is not None
    before = 0.0 if balance.spent is None else balance.spent.epsilon(delta)
    asked, whole = guarantee.epsilon(delta), total.epsilon(delta)
    must = f"keep label set {label_set!r} within its budget of epsilon = {format_up(epsilon)} at delta = {delta:g}"
    rest = format_down(balance.left)
    got = f"{format_up(asked)} asked, {format_up(before)} spent, {rest} left ({format_up(whole)} in all)"
    fix = "Ask for less, or have the budget raised: ledger.set_budget, or `labeldp ledger FILE --set-budget B`."
    if math.isinf(asked) and delta == 0 and math.isfinite(guarantee.epsilon(1e-5)):
        fix = "This guarantee is not pure: it needs a budget with delta > 0 (ledger.set_budget, `labeldp ledger FILE --set-budget`)."
    return invalid("Ledger.charge", "guarantee", must, got=Described(got), fix=fix, kind=BudgetError)


def find_account(table: Table | None, label_set: str | None) -> Balance:
    """Return the balance of a label set, or of the default; an empty one where nothing was written."""
    text = None if table is None else table.find_balance(label_set)
    return Balance() if text is None else Balance.from_text(text)


def find_budget(table: Table | None, label_set: str | None) -> tuple[float, float] | None:
    """Return the newest budget of the set, or else the newest default."""
    own = find_account(table, label_set).limit
    return own if own is not None or label_set is None else find_account(table, None).limit
