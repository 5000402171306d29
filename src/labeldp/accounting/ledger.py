"""What was spent on which labels, kept in a file that only grows, so that a budget outlives the process that spends it.

>>> import tempfile
>>> from pathlib import Path
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
delta = 0, got 1 asked, 1.5 spent, 0.5 left (2.5 in all). Ask for less, or have the budget raised with set_budget.

References: DESIGN.md, "Guarantees" (composition); Dwork, McSherry, Nissim & Smith 2006 (sequence).

Design notes. The budget is compared and the row is written in one transaction, before any noise is drawn: a crash may
waste budget, and can never hide a release. The file is described in `_ledger_file`, the values in `_ledger_entry`.
A process reads all rows at each call and checks their chain; nothing is remembered between calls, so replay is the only
path there is and live equals replay by construction.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from decimal import ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Any

from labeldp._validate import check_delta, check_epsilon, check_positive
from labeldp.accounting import _ledger_entry as entry_of
from labeldp.accounting._ledger_entry import BudgetEntry, LedgerEntry
from labeldp.accounting._ledger_file import Record, Table, read, tampered, writing
from labeldp.accounting._ledger_rows import fingerprint
from labeldp.errors import BudgetError, Described, LabelDPError, PrivacyError, invalid
from labeldp.guarantee import Guarantee, shown

__all__ = ["BudgetEntry", "Ledger", "LedgerEntry", "fingerprint"]

#: How far a sum may pass its budget, relatively. A decimal as a double errs by 2^-53: the charges' sum by that much
#: below, the budget by that much above, and the sum is rounded up by 2^-52. So three times 0.1 fits into 0.3, and
#: whatever a person would not call equal does not fit.
ROUNDING = 2.0**-50


class Ledger:
    """An append-only record of releases, and the budget of each label set.

    *What is recorded*, all of it public: the label set's name, a fingerprint of the data set's identity and row ids,
    the number of rows, the guarantee, the mechanism's description, the names and guarantees of its parts, whether the
    noise was seeded, who, when, and a note. Label values never are, nor anything computed from them.

    *What counts as the same labels*: the label set's name. All releases under one name compose in sequence, whatever
    their rows. Disjoint parts of one release are charged once, with their guarantee in parallel, and listed in `parts`.

    *Budgets* are rows too; the newest of a set wins, and a set without one has the default (label set None). `budget`
    and `delta` given here are recorded as the default when the file has none yet. If it has one, the recorded one
    stands, larger or smaller: only `set_budget` changes a budget, and it leaves a row with who and when.

    *Edge cases*: without `budget` no file is made before the first charge; an empty file becomes a ledger; an infinite
    budget admits everything; a budget at delta 0 admits only pure guarantees. Safe among threads, forked children and
    processes on a local disk; on a network disk, as safe as its locks. Pickles as its path and settings. Any call
    raises `PrivacyError` if the file was edited.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        budget: float | None = None,
        delta: float = 0.0,
        timeout: float = 30.0,
    ) -> None:
        self.path = check_path(path)
        self.timeout = check_positive("Ledger", "timeout", timeout)
        share = check_delta("Ledger", delta)
        self._default = None if budget is None else (check_epsilon("Ledger", budget, name="budget"), share)
        records = self._read()
        if self._default is not None and entry_of.budget(records, None) is None:
            with writing(self.path, timeout=self.timeout) as table:
                self._keep_default(table)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

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
        """
        draft = entry_of.release_draft(
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
        with writing(self.path, timeout=self.timeout) as table:
            self._keep_default(table)
            check_room(guarantee, records=table.records, label_set=label_set)
            record = table.append(draft)
        return entry_of.release_entry(record)

    def set_budget(
        self, epsilon: float, *, delta: float = 0.0, label_set: str | None = "labels", who: str | None = None
    ) -> None:
        """Record a new budget for a label set, or (None) for every set without its own; smaller than spent is fine."""
        owner = "Ledger.set_budget"
        limit, share = check_epsilon(owner, epsilon), check_delta(owner, delta)
        draft = entry_of.budget_draft(owner, epsilon=limit, delta=share, label_set=label_set, who=who)
        with writing(self.path, timeout=self.timeout) as table:
            self._keep_default(table)
            table.append(draft)

    def budget(self, label_set: str | None = "labels") -> tuple[float, float] | None:
        """Return the (epsilon, delta) that a label set may spend, or None if nobody set one."""
        return entry_of.budget(self._read(), label_set)

    def spent(self, label_set: str = "labels") -> Guarantee | None:
        """Return what the releases of a label set cost together, or None if there are none."""
        return entry_of.spent(self._read(), label_set)

    def remaining(self, label_set: str = "labels") -> float:
        """Return an epsilon that may still be charged, at the budget's delta; inf if there is no budget.

        It is the budget less what was spent, so a pure guarantee of it fits (at delta > 0 up to the rounding up of a
        composition). Guarantees that compose better than by adding up may fit even when they look larger.
        """
        records = self._read()
        return entry_of.left(entry_of.budget(records, label_set), entry_of.spent(records, label_set))

    def entries(self, label_set: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return the releases of a label set, or of all, oldest first."""
        return entry_of.releases(self._read(), label_set)

    def budgets(self, label_set: str | None = None) -> tuple[BudgetEntry, ...]:
        """Return every budget that was ever set for a label set, or for any, oldest first."""
        chosen = (record for record in self._read() if record.kind == "budget")
        return tuple(entry_of.budget_entry(record) for record in chosen if label_set in (None, record.label_set))

    def label_sets(self) -> tuple[str, ...]:
        """Return the names of the label sets that have a release or a budget of their own, sorted."""
        return tuple(sorted({record.label_set for record in self._read() if record.label_set is not None}))

    def verify(self, *, known: str | None = None) -> str:
        """Check the chain and return its last hash, or raise `PrivacyError`.

        `known` is a hash from before (of an entry, or of an earlier `verify`). A chain that no longer holds it was
        written anew, which the chain alone cannot tell.
        """
        hashes = [record.hash for record in self._read()]
        if known is not None and known not in hashes:
            raise tampered(self.path, f"a chain without the known hash {known!r:.14}...")
        return hashes[-1] if hashes else ""

    def _read(self) -> tuple[Record, ...]:
        return read(self.path, timeout=self.timeout)

    def _keep_default(self, table: Table) -> None:
        """Record the default budget in a file that has none."""
        if self._default is not None and entry_of.budget(table.records, None) is None:
            epsilon, delta = self._default
            table.append(entry_of.budget_draft("Ledger", epsilon=epsilon, delta=delta, label_set=None, who=None))


def check_path(path: Any) -> Path:
    """Return the absolute path, so that a later change of directory does not change the ledger."""
    if not isinstance(path, (str, os.PathLike)) or str(path) in {"", ":memory:"}:
        raise invalid("Ledger", "path", "name a file", got=path, fix="A ledger that forgets protects no one.")
    return Path(path).absolute()


def check_room(guarantee: Guarantee, *, records: tuple[Record, ...], label_set: str) -> None:
    """Refuse a guarantee of another unit than the set's, or one that does not fit its budget."""
    used = entry_of.spent(records, label_set)
    if used is not None and used.unit != guarantee.unit:
        must = f"be about the unit of label set {label_set!r}, `{used.unit.value}`"
        fix = "Guarantees of two units do not add up: use another label set."
        raise invalid("Ledger.charge", "guarantee", must, got=guarantee.unit.value, fix=fix, kind=PrivacyError)
    limit = entry_of.budget(records, label_set)
    if limit is None:
        return
    total = guarantee if used is None else Guarantee.in_sequence([used, guarantee])
    # A total that cannot be computed (NaN) does not fit.
    if not total.epsilon(limit[1]) <= limit[0] * (1.0 + ROUNDING):
        raise over_budget(guarantee, used=used, total=total, limit=limit, label_set=label_set)


def over_budget(
    guarantee: Guarantee, *, used: Guarantee | None, total: Guarantee, limit: tuple[float, float], label_set: str
) -> LabelDPError:
    """Return the refusal: budget, asked, spent, left."""
    epsilon, delta = limit
    before = 0.0 if used is None else used.epsilon(delta)
    asked, whole = guarantee.epsilon(delta), total.epsilon(delta)
    must = f"keep label set {label_set!r} within its budget of epsilon = {shown(epsilon)} at delta = {delta:g}"
    rest = shown_down(entry_of.left(limit, used))
    got = f"{shown(asked)} asked, {shown(before)} spent, {rest} left ({shown(whole)} in all)"
    fix = "Ask for less, or have the budget raised with set_budget."
    if math.isinf(asked) and delta == 0 and math.isfinite(guarantee.epsilon(1e-5)):
        fix = "This guarantee is not pure: it needs a budget with delta > 0 (set_budget)."
    return invalid("Ledger.charge", "guarantee", must, got=Described(got), fix=fix, kind=BudgetError)


def shown_down(value: float) -> str:
    """Return a number in six digits, rounded down: what is left is never overstated.

    >>> shown_down(0.29999999), shown_down(math.inf)
    ('0.299999', 'inf')
    """
    if math.isinf(value):
        return "inf"
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(Decimal(value))):.6g}"
