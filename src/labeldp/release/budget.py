"""Charging a ledger before anything is drawn: one call for both leaves of the door."""

from __future__ import annotations

from typing import Any

from labeldp.guarantee import Guarantee
from labeldp.release.labels import SensitiveLabels


def charge(
    ledger: Any, guarantee: Guarantee, labels: SensitiveLabels, *, mechanism: str, seeded: bool, start: int = 0
) -> int | None:
    """Write the release into the ledger, or raise BudgetError; without a ledger nothing is recorded."""
    if ledger is None:
        return None
    from labeldp.accounting import fingerprint

    rows = fingerprint(labels.name, n_rows=len(labels), start=start, row_ids=labels.row_ids)
    entry = ledger.charge(
        guarantee,
        label_set=labels.name,
        rows=rows,
        n_rows=len(labels),
        mechanism=mechanism,
        parts=guarantee.parts,
        seeded=seeded,
    )
    return int(entry.id)
