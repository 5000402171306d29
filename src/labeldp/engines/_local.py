"""`privatize_table`: one machine's engine, from a table on disk to a release on disk in bounded memory.

>>> privatize_table("people.parquet", label="income", to="out", epsilon=-1.0)
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: privatize_table: `epsilon` must be >= 0, got -1.0. Use math.inf for no privacy.

Design notes. The order of work is the safety: everything that can be checked is checked, then the ledger is charged
once, then labels are drawn into a hidden directory, which is flushed and given its name. A kill at any moment leaves
no release and perhaps a charge, or a whole release and its charge. Reading and randomizing each have a thread, writing
has the caller's; queues of a few batches bound the memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labeldp._random import as_key
from labeldp._validate import check_epsilon, check_integer
from labeldp.data.tables import TableSource, open_table
from labeldp.engines._pipeline import Job, write_release
from labeldp.engines._plan import OWNER, charged, check_columns, checked_rows, chosen_belief, planned
from labeldp.engines._released import TableRelease
from labeldp.engines._rows import BATCH_ROWS
from labeldp.errors import LabelDPError
from labeldp.release._writer import check_target, staged

Progress = Callable[[int, int], None]


def privatize_table(
    source: TableSource | str | os.PathLike[str],
    *,
    label: str,
    to: str | os.PathLike[str],
    epsilon: float,
    classes: Sequence[Any] | None = None,
    prior_columns: Sequence[str] | None = None,
    cluster_column: str | None = None,
    n_clusters: int | None = None,
    model: Any = None,
    prior_epsilon: float | None = None,
    missing: str = "error",
    row_ids: str | None = None,
    label_set: str | None = None,
    ledger: Any = None,
    rng: Any = None,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
) -> TableRelease:
    """Release a table with its label column randomized, into a new directory that `load_release` reads.

    Parameters
    ----------
    source : TableSource or path
        A CSV or Parquet file, or a folder of Parquet files.
    label, to, epsilon
        The column to protect, the directory to make, and the budget for each label, prior included.
    classes : sequence, optional
        The public list of classes. Without it they are read off the column, and the guarantee says so; a value that
        one row alone has is then refused. Text is read as the column's own type.
    prior_columns, cluster_column, n_clusters, model
        At most one. A column of probabilities per class; a public column of groups (whole numbers or text); a number
        of clusters for k-means on the numeric columns; a fitted classifier for the other columns. Without any,
        randomized response.
    prior_epsilon : float, optional
        What the histograms of groups spend; by default the rule of `ClusterPrior`.
    missing : "error" or "drop"
        Whether rows without a label are refused or left out.
    row_ids : str, optional
        A column of row ids, which must differ; the ledger's fingerprint is made of them.
    label_set : str, optional
        The ledger's name for these labels; the label column's name by default.
    ledger : Ledger, optional
        Charged once, when all checks have passed and before anything is drawn.
    rng : None, int or numpy.random.Generator
        None is secure; anything else is reproducible, hence `seeded`: not private.
    batch_rows : int
        Rows in memory at a time, of each step. What is released does not depend on it.
    progress : callable (done rows, all rows), optional
        Called after each batch is written.

    Guarantee
    ---------
    Pure epsilon when one label is replaced: that of randomized response or RRWithPrior, in sequence with that of the
    groups' histograms where they are used (a curator is then trusted).

    Assumes
    -------
    The other columns are public: they are released as they are. One that repeats the label gives it away.

    Edge cases
    ----------
    Row i's noise is that of position i among the released rows: the labels are those of one `privatize` call in memory
    with the same key and channel. A failure after the charge says so; a new run draws new noise and is charged again.
    """
    budget, key = check_epsilon(OWNER, epsilon), as_key(OWNER, rng)
    size = check_integer(OWNER, "batch_rows", batch_rows, least=1)
    check_target(to, owner=OWNER)
    table = source if isinstance(source, TableSource) else open_table(source)
    belief = chosen_belief(
        {"prior_columns": prior_columns, "cluster_column": cluster_column, "n_clusters": n_clusters, "model": model},
        prior_epsilon=prior_epsilon,
        apart=[label] if row_ids is None else [label, row_ids],
    )
    rows, dropped = checked_rows(table, label, classes=classes, missing=missing)
    check_columns(table, label=label, row_ids=row_ids, belief=belief)
    belief.prepare(rows)
    plan = planned(belief, budget, rows, label_set=label if label_set is None else str(label_set))
    job = Job(rows=rows, belief=belief, plan=plan, key=key, size=size, progress=progress)
    entry, accuracy = _run(job, to, ledger=ledger, row_ids=row_ids)
    return TableRelease(
        directory=Path(to),
        label_column=label,
        classes=rows.classes,
        rows=rows.count,
        dropped=dropped,
        guarantee=plan.promise,
        mechanism=plan.words,
        seeded=key.seeded,
        label_set=plan.label_set,
        ledger_entry=entry,
        expected_accuracy=accuracy,
    )


def _run(job: Job, to: str | os.PathLike[str], *, ledger: Any, row_ids: str | None) -> tuple[int | None, float]:
    """Charge and write. The hidden directory comes first, so that a place that cannot be written to costs nothing."""
    entry: int | None = None
    try:
        with staged(to, owner=OWNER) as partial:
            entry = charged(ledger, job.plan, job.rows, row_ids=row_ids, seeded=job.key.seeded)
            accuracy = write_release(job, partial, ledger_entry=entry)
    except LabelDPError as error:
        if entry is None:
            raise
        kept = f"Entry {entry} of the ledger stays: noise may have been drawn, and a new run is charged anew."
        raise type(error)(f"{error} {kept}") from error
    return entry, accuracy
