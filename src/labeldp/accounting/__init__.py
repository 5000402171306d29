"""Budgets and noise: what was spent, what is left, how much noise a budget needs. Every answer ends on the safe side.

>>> from labeldp.accounting import analytic_gaussian_sigma, what_is_left
>>> round(analytic_gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0), 4)
3.7306
>>> what_is_left(1.0, after=0.25)
0.75

| question | call |
|---|---|
| what was spent on these labels, and what may be | `Ledger`, `LedgerEntry`, `EntryNumber`, `fingerprint` |
| which account pays for a table, by its rows | `AccountName`, `ProtectedRows`, `RowKey`, `protect_rows`, `protect_ids` |
| how much noise does a budget need | `analytic_gaussian_sigma`, `discrete_gaussian_sigma`, `laplace_scale`, `zcdp_rho` |
| the same for a mechanism of my own | `calibrate` |
| how much of an epsilon is left after a part of it | `what_is_left` |
| what the peer-to-peer mechanism costs, and which alpha meets a budget | `peers_epsilon`, `calibrate_peers` |
| how large clusters must be | `least_cluster_size` |

More about peers (theta, the papers' bounds) is in `labeldp.accounting.peers`, more about noise and clusters in
`labeldp.accounting.calibration`. What an epsilon means to someone who guesses a label is said by
`labeldp.guarantee.advantage_bound` and `best_guess`.
"""

from labeldp.accounting.accounts import AccountName
from labeldp.accounting.calibration import (
    analytic_gaussian_sigma,
    calibrate,
    discrete_gaussian_sigma,
    laplace_scale,
    least_cluster_size,
    zcdp_rho,
)
from labeldp.accounting.entries import EntryNumber, LedgerEntry, note_entry, recall_entry
from labeldp.accounting.ledger import Ledger
from labeldp.accounting.ledger_file import fingerprint
from labeldp.accounting.peers import calibrate_peers, peers_epsilon
from labeldp.accounting.sketches import ProtectedRows, RowKey, protect_ids, protect_rows
from labeldp.guarantee import what_is_left

__all__ = [
    "AccountName",
    "EntryNumber",
    "Ledger",
    "LedgerEntry",
    "ProtectedRows",
    "RowKey",
    "analytic_gaussian_sigma",
    "calibrate",
    "calibrate_peers",
    "discrete_gaussian_sigma",
    "fingerprint",
    "laplace_scale",
    "least_cluster_size",
    "note_entry",
    "peers_epsilon",
    "protect_ids",
    "protect_rows",
    "recall_entry",
    "what_is_left",
    "zcdp_rho",
]
