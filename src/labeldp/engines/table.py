"""`privatize_table`: from a table on disk to a release on disk in bounded memory, on one machine or on many.

>>> privatize_table("people.parquet", label="income", to="out", epsilon=-1.0)
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: privatize_table: `epsilon` must be >= 0, got -1.0. Use math.inf for no privacy.

Design notes. The order of work is the safety: everything that can be checked is checked, then the ledger is charged
once, then labels are drawn into a hidden directory, which is flushed and given its name. A kill at any moment leaves
no release and perhaps a charge, or a whole release and its charge. Engines carry the pieces of the table to the same
functions, so they give the same bytes: see `_randomizer` and `_spans`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Any

from labeldp.data.tables import Place, TableSource, open_table, place_of
from labeldp.engines.engine import Progress
from labeldp.engines.job import Job, Staging, check_passphrase, resumed_key, run, staging_at
from labeldp.engines.plan import OWNER, TableLabels, check_columns, checked_rows, chosen_belief, planned
from labeldp.engines.rows import BATCH_ROWS
from labeldp.engines.train import TableRelease, opened_engine
from labeldp.errors import Described, invalid
from labeldp.random import NoiseKey, as_key
from labeldp.release.files import check_target
from labeldp.release.labels import Budget
from labeldp.validate import check_epsilon, check_integer


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
    learner: Any = None,
    prior_epsilon: float | None = None,
    missing: str = "error",
    row_ids: str | None = None,
    label_set: str | None = None,
    ledger: Any = None,
    rng: Any = None,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
    engine: str = "local",
    client: Any = None,
    scheduler: str | None = None,
    workers: int | None = None,
    keep_unfinished: bool = False,
    passphrase: str | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> TableRelease:
    """Release a table with its label column randomized, into a new directory that `load_release` reads.

    Parameters
    ----------
    source : TableSource or path
        A CSV or Parquet file, or a folder of Parquet files, in folders or not; a path or an fsspec URL.
    label, to, epsilon
        The column to protect, the directory to make, and the budget for each label, prior included.
    classes : sequence, optional
        The public list of classes. Without it they are read off the column, and the guarantee says so; a value that
        one row alone has is then refused. Text is read as the column's own type.
    prior_columns, cluster_column, n_clusters, model, learner
        At most one. A column of probabilities per class; a public column of groups (whole numbers or text); a number
        of clusters for k-means on the numeric columns; a fitted classifier for the other columns; a classifier with
        `partial_fit` that learns from the labels of a first stage, drawn without a prior, what to expect of the rest.
        Without any, randomized response.
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
        Called after each batch is written; on a cluster, after each file.
    engine : "local" or "dask"
        This machine, with reading, drawing and writing overlapped; or a cluster (`labeldp[dask]`), where each worker must
        reach table and target by the same paths. The release is the same, byte for byte.
    client, scheduler, workers
        For dask, at most one: a `distributed.Client`; the address of a scheduler; or how many worker processes of this
        machine (by default, one a core).
    keep_unfinished : bool
        Whether a job that fails after its charge stays in its hidden folder, and its key in this process's memory, so that
        `resume` can take it up. Otherwise nothing stays.
    passphrase : str, optional
        Seals the key in the hidden folder until the job ends, so that another process can take it up; it implies
        `keep_unfinished`. Whoever has that folder and the passphrase can undo the noise.
    resume : path, optional
        The hidden folder of an unfinished job, which the error of the failed run names. All other options must be as they
        were (engine and batches may differ). It is not charged again: the noise is the same.

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
    budget, size = check_epsilon(OWNER, epsilon), check_integer(OWNER, "batch_rows", batch_rows, least=1)
    key, target = as_key(OWNER, rng), check_target(place_of(to), owner=OWNER)
    staging, key = _place(target, key, rng=rng, resume=resume, passphrase=passphrase)
    table = source if isinstance(source, TableSource) else open_table(source)
    belief = chosen_belief(
        {
            "prior_columns": prior_columns,
            "cluster_column": cluster_column,
            "n_clusters": n_clusters,
            "model": model,
            "learner": learner,
        },
        prior_epsilon=prior_epsilon,
        apart=[label] if row_ids is None else [label, row_ids],
    )
    table.require(label)
    with opened_engine(engine, client=client, scheduler=scheduler, workers=workers) as carrier:
        rows, dropped = checked_rows(table, label, classes=classes, missing=missing, engine=carrier)
        check_columns(table, label=label, row_ids=row_ids, belief=belief)
        belief.prepare(rows, carrier)
        named = TableLabels(rows=rows, name=label if label_set is None else str(label_set), row_ids=row_ids)
        purse = Budget(owner=OWNER, labels=named, ledger=ledger, seeded=key.seeded)
        plan = planned(belief, budget, purse)
        job = Job(
            rows=rows,
            belief=belief,
            plan=plan,
            key=key,
            size=size,
            engine=carrier,
            staging=staging,
            progress=progress,
            ledger=ledger,
            row_ids=row_ids,
            passphrase=passphrase,
            keep=keep_unfinished or passphrase is not None or resume is not None,
        )
        entry, accuracy = run(job, target)
    return TableRelease(
        directory=target,
        label_column=label,
        classes=rows.classes,
        rows=rows.count,
        dropped=dropped,
        guarantee=plan.promise,
        mechanism=plan.words,
        seeded=key.seeded,
        label_set=named.name,
        ledger_entry=entry,
        expected_accuracy=accuracy,
    )


def _place(target: Place, key: NoiseKey, *, rng: Any, resume: Any, passphrase: str | None) -> tuple[Staging, NoiseKey]:
    """Return where the release is made, and under which key: a new one, or that of the job to take up."""
    if passphrase is not None:
        check_passphrase(passphrase)
    if resume is None:
        return Staging.beside(target, job=secrets.token_hex(8)), key
    staging = staging_at(place_of(resume))
    if not staging.place.name.startswith(f".{target.name}.partial-") or staging.place.parent != target.parent:
        fix = "Give the same --to as in the first run."
        raise invalid(OWNER, "resume", f"be a job of {target}", got=str(staging.place), fix=fix)
    held = resumed_key(staging, passphrase)
    if rng is not None and key.reveal() != held.reveal():
        raise invalid(OWNER, "rng", "be left out, or as it was", got=Described("another"), fix="A job keeps its key.")
    return staging, held
