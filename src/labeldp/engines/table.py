"""`privatize_table`: from a table on disk to a release on disk in bounded memory, by any mechanism, on one machine or on many.

>>> privatize_table("people.parquet", label="income", to="out", epsilon=-1.0)
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: privatize_table: `epsilon` must be >= 0, got -1.0. Use math.inf for no privacy.

The walk is that of `labeldp.privatize`, batch by batch:

1. the label column is checked, and the rows to release are counted (`check_rows`);
2. the prior does what needs no label (`Prior.prepare`), and the budget is split between it and the mechanism (`Budget.split`);
3. everything that can fail is tried without labels (`Plan.rehearse`);
4. the ledger is charged once, and labels are drawn into a hidden directory, which is flushed and given its name (`job`).

A kill at any moment leaves no release and perhaps a charge, or a whole release and its charge. Engines carry the pieces of
the table to the same functions, so they give the same bytes.

Design notes. Nothing here knows a prior or a mechanism by name, but for what a call means that names none
(`choose_mechanism`): answers that teach most, or labels. What is planned is `labeldp.engines.plans`.
"""

from __future__ import annotations

import functools
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeldp.accounting import AccountName
from labeldp.channel import ArcChannel, FiniteChannel, NumericChannel, SetAnswers
from labeldp.channel.sets import MOST_CLASSES
from labeldp.data.places import Place, UrlPath, place_of
from labeldp.data.tables import TableSource, open_table
from labeldp.engines.engine import Progress, open_engine
from labeldp.engines.examples import TableExamples
from labeldp.engines.job import Job, Staging, find_key, run, staging_at
from labeldp.engines.plans import make_plan, plan_persons
from labeldp.engines.rows import (
    BATCH_ROWS,
    OWNER,
    check_ids,
    check_left_out,
    check_rows,
    protect_table,
)
from labeldp.errors import ColumnTypeError, Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import (
    InformativeResponse,
    Mechanism,
    NumericMechanism,
    RandomizedResponse,
    RRWithPrior,
    UnbiasedResponse,
)
from labeldp.mechanisms.numbers import LEVELS, choose_bounds
from labeldp.priors import ClusterPrior, LearnedPrior, Prior, PublicPrior
from labeldp.random import NoiseKey, as_key
from labeldp.release import Release, load_release
from labeldp.release.budget import Budget, open_account
from labeldp.release.labels import NumberRule
from labeldp.release.numbers import OUTSIDE, say_bounds, say_number
from labeldp.release.persons import (
    ASSIGNMENT,
    COMMON,
)
from labeldp.release.saving import check_target
from labeldp.release.unfinished import check_passphrase
from labeldp.validate import check_choice, check_epsilon, check_integer

#: What a release may be for.
TRAINING, LABELS = "training", "labels"


def privatize_table(
    source: TableSource | str | os.PathLike[str],
    *,
    label: str,
    to: str | os.PathLike[str],
    epsilon: float | None = None,
    mechanism: Mechanism | None = None,
    purpose: str | None = None,
    prior: Any = None,
    groups: Any = None,
    classes: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    counts: Any = None,
    outside: str = "clip",
    strip: bool = False,
    merge: Mapping[Any, Any] | None = None,
    prior_columns: Sequence[str] | None = None,
    cluster_column: str | None = None,
    n_clusters: int | None = None,
    model: Any = None,
    learner: Any = None,
    prior_epsilon: float | None = None,
    missing: str = "error",
    drop: Sequence[str] = (),
    row_ids: str | None = None,
    persons: str | None = None,
    persons_way: str = COMMON,
    label_set: str | None = None,
    ledger: Any = None,
    rng: Any = None,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
    engine: str = "local",
    client: Any = None,
    scheduler: str | None = None,
    workers: int | None = None,
    insecure: bool = False,
    keep_unfinished: bool = False,
    passphrase: str | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> TableRelease:
    """Release a table with its label column randomized, into a new directory that `load_release` reads.

    Parameters
    ----------
    source : TableSource or path
        A file that `labeldp.data.open_table` reads (text, Parquet, Arrow), or a folder of Parquet files, in folders or not; a
        path or an fsspec URL. How text is written is found out; `open_table(path, sep=..., ...)` says it.
    label, to
        The column to protect, and the directory to make.
    epsilon : float, optional
        The budget for each label, prior included. With a mechanism it may be left out: the mechanism's own epsilon is then
        the whole budget.
    mechanism : Mechanism, optional
        Any mechanism, ours or yours: RRTopK(1.0, k=2), ClusterRR(1.0), OptimalResponse(1.0). Where a prior costs something,
        the mechanism is used at the epsilon that is left (`Mechanism.with_epsilon`). Without one, `purpose` chooses it.
    purpose : "training" or "labels", optional
        What the release is for, where no mechanism is named. For "training", the default, each row is answered with the set of
        classes that teaches a learner most (`InformativeResponse`); with two classes such a set is a label, and the answer
        is that of randomized response. For "labels" each row has one label, right as often as can be: RRWithPrior with
        a prior, randomized response without. At the same epsilon both are as private.
    prior : Prior or array, optional
        What is believed about the labels: a `PublicPrior`, `ModelPrior`, `ClusterPrior`, `LearnedPrior`, or your own; or an
        array of class probabilities, (K,), (n, K), or (C, K) with `groups`.
    groups : name of a column, array of shape (n,), or ClusterPrior, optional
        Public groups of rows, for a mechanism that counts labels in them (ClusterRR) or for a prior of shape (C, K). A
        column's sorted values are the groups; a ClusterPrior lends its clusters, and no histogram is taken.
    classes : sequence, optional
        The public list of classes. Without it they are read off the column, and the guarantee says so; a value that
        one row alone has is then refused, and so are values that differ in spaces or capitals alone. Text is read as
        the column's own type.
    bounds : (low, high), optional
        For labels that are numbers (amounts, durations): public bounds, never read off the labels. Released are then numbers,
        each with its label as mean (`UnbiasedResponse`, or the mechanism for numbers that is named, which has bounds itself).
    counts : int or (first, last), optional
        For labels that are counts, instead of bounds: 0 .. C, or from the first to the last. Each one is a level.
    outside : "clip" or "refuse"
        What is done with a number outside of the bounds: it is brought to the nearest one, and the guarantee says so; or
        the table is refused. How many there are is not said anywhere: it is a count of labels.
    strip, merge : bool, and mapping of a class to its other spellings, optional
        Take spaces around labels away; read other spellings as a class: ``merge={"yes": ["YES", "Yes"]}``. Both are done to
        each label by itself, before anything else sees it, and are written into the manifest. A spelling that no label has is
        not told of: which labels occur is private (`labeldp look` shows its owner).
    prior_columns, cluster_column, n_clusters, model, learner
        Other spellings of a prior, at most one of them and `prior`: PublicPrior(prior_columns), a column of probabilities
        per class; ClusterPrior(groups=cluster_column), a public column of groups (whole numbers or text);
        ClusterPrior(n_clusters=...), k-means on the numeric columns; PublicPrior(model), a fitted classifier for the
        other columns; LearnedPrior(learner), a classifier with `partial_fit` that learns from the labels of a first
        stage, drawn without a prior, what to expect of the rest.
    prior_epsilon : float, optional
        What the histograms of groups spend; by default the rule of `ClusterPrior`.
    missing : "error" or "drop"
        Whether rows without a label are refused or left out.
    drop : sequence of str
        Columns of which nothing is released: those that are sensitive too, such as another label of these rows. No prior and
        no groups are read from them. Row ids and persons may be, and the ledger still knows the rows by them.
    row_ids : str, optional
        A column of row ids, which must differ; the ledger recognises rows by them, whatever their other columns.
    persons : str, optional
        A public column of ids, text or whole numbers, that says whose row it is. Then epsilon is what a person spends on all her
        labels, wherever her rows are, and rows of hers that are not answered have nulls in the place of an answer. The ledger
        recognises persons by these ids.
    persons_way : "common" or "group"
        One answer of each person, or the few that are computed to tell more; or all rows, each at the epsilon that whoever has
        most rows can afford (`labeldp.release.persons`). A table is answered at one epsilon.
    label_set : str, optional
        The account of the ledger that pays. By default the one that has these rows and this label column, whatever it is
        called; for new rows one with the label column's name. Rows that are in part another account's are refused
        (`AccountError`) unless it is said which one is meant. A column that the ledger protects as another label of these rows
        is refused (`PrivacyError`) unless it is dropped.
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
        For dask, at most one: a `distributed.Client`; the address of a scheduler; or how many workers inside this process
        (by default, one a core), which no other user can reach.
    insecure : bool
        Whether a client or scheduler may talk in the clear (not `tls://`). Raw labels and the key of the noise travel to
        workers, and whoever reaches a plain port runs code there. Without it one of another machine is refused, and one
        of this machine draws an `InsecureClusterWarning`.
    keep_unfinished : bool
        Whether a job that fails after its charge stays in its hidden folder, and its key in this process's memory, so that
        `resume` can take it up, if the labels are the same. Otherwise nothing stays.
    passphrase : str, optional
        Seals the key in the hidden folder until the job ends, so that another process can take it up; it implies
        `keep_unfinished`. Whoever has that folder and the passphrase can undo the noise.
    resume : path, optional
        The hidden folder of an unfinished job, which the error of the failed run names. All other options must be as they
        were (engine and batches may differ). It is not charged again: the noise is the same.

    Guarantee
    ---------
    With `persons`: pure epsilon when all labels of one person are replaced. Without: that of the mechanism when one label is replaced, in sequence with that of the prior where it costs something; together
    never more than epsilon. The epsilon of the channel that answers each batch is compared with the mechanism's claim.

    Assumes
    -------
    The other columns are public: they are released as they are, but for those of `drop`. One that repeats the label gives it away. A prior that
    costs nothing did not see these labels, and groups were made without them.

    Edge cases
    ----------
    Row i's noise is that of position i among the released rows: the labels are those of one `privatize` call in memory
    with the same key and channel. A failure after the charge says so; a new run draws new noise and is charged again.
    Outputs that are not labels (sets; OptimalResponse with UnbiasedReport) are written in a reserved column, and the label
    column is left out; `load_release` reads them back. A mechanism that measures holds 8 bytes a row in memory.
    More than 65,536 classes are answered with labels, whatever the purpose, since no set of so many is drawn.
    """
    if epsilon is not None:
        epsilon = check_epsilon(OWNER, epsilon)
    size = check_integer(OWNER, "batch_rows", batch_rows, least=1)
    key, target = as_key(OWNER, rng, pieces=True), check_target(place_of(to), owner=OWNER)
    staging, key = _find_place(target, key, rng=rng, resume=resume, passphrase=passphrase)
    table = source if isinstance(source, TableSource) else open_table(source)
    spelt = {
        "prior_columns": prior_columns,
        "cluster_column": cluster_column,
        "n_clusters": n_clusters,
        "model": model,
        "learner": learner,
    }
    belief = choose_prior(prior, spelt, groups=groups, prior_epsilon=prior_epsilon)
    _check_mechanism(mechanism, epsilon=epsilon, purpose=purpose)
    check_choice(OWNER, "outside", outside, OUTSIDE)
    numeric = choose_numeric(mechanism, epsilon=epsilon, bounds=bounds, counts=counts)
    of_classes = {"classes": classes, "strip": strip or None, "merge": merge, "purpose": purpose}
    _check_kind(numeric, belief, groups=groups, of_classes=of_classes, outside=outside)
    table = table.rewrite(label, strip=strip, merge=merge)
    if belief is not None or groups is not None:
        table = table.settle()  # what a prior reads must not turn out to be of another type when it has been paid for
    with open_engine(engine, client=client, scheduler=scheduler, workers=workers, insecure=insecure) as carrier:
        if numeric is None:
            rows, dropped = check_rows(table, label, classes=classes, missing=missing, engine=carrier)
        else:
            levels, rule = tuple(numeric.levels.tolist()), NumberRule(numeric.bounds, outside)
            rows, dropped = check_rows(table, label, classes=levels, missing=missing, engine=carrier, numbers=rule)
        rows = replace(
            rows,
            row_ids=check_ids(rows.source, row_ids, label),
            left_out=check_left_out(rows.source, drop, label),
        )
        given = () if groups is None else ("grouping",)
        budget = Budget(owner=OWNER, labels=rows, ledger=ledger, seeded=key.seeded, given=given)
        examples = TableExamples(rows, carrier)
        chosen = choose_mechanism(
            numeric or mechanism,
            epsilon=epsilon,
            n_classes=rows.n_classes,
            prior=belief,
            purpose=purpose or TRAINING,
        )
        asking = None
        if persons is not None:
            asking = plan_persons(chosen, rows, carrier, epsilon=epsilon, column=persons, way=persons_way, prior=belief)
            chosen, epsilon, rows = asking.mechanism, asking.answers.label_epsilon, asking.rows
            examples = TableExamples(rows, carrier)
            budget = replace(budget, labels=rows, given=(*given, ASSIGNMENT))
        plan = make_plan(chosen, belief, examples, budget, epsilon=epsilon, groups=groups)
        if asking is not None:
            plan = replace(plan, promise=asking.answers.promise_for(plan.promise), asking=asking)
        asked = AccountName(label) if label_set is None else label_set
        ids = None if asking is None else asking.ids
        try:
            name = open_account(
                ledger, asked, functools.partial(protect_table, rows, carrier, persons=ids, column=persons or "")
            )
        except ColumnTypeError:  # in a row that was not looked at, and is read now; labels were all read before
            rows = replace(rows, source=rows.source.retype(keep=[label]))
            name = open_account(
                ledger, asked, functools.partial(protect_table, rows, carrier, persons=ids, column=persons or "")
            )
        rows = replace(rows, name=name)
        budget = replace(budget, labels=rows)
        keep = keep_unfinished or passphrase is not None or resume is not None
        job = Job(
            rows=rows,
            respond=functools.partial(plan.respond, key),
            promise=plan.promise,
            words=plan.words,
            budget=budget,
            key=key,
            size=size,
            engine=carrier,
            staging=staging,
            progress=progress,
            passphrase=passphrase,
            keep=keep,
            answers=None if asking is None else asking.answers,
            person_column=persons,
            owners=asking.owners.digest_owners() if asking is not None and keep else None,
        )
        entry, accuracy = run(job, target)
    return TableRelease(
        directory=target,
        label_column=label,
        classes=rows.classes,
        rows=rows.count,
        answered=rows.answered,
        dropped=dropped,
        guarantee=plan.promise,
        mechanism=plan.words,
        answers=describe_answers(plan.probe),
        seeded=key.seeded,
        label_set=str(rows.name),
        ledger_entry=entry,
        expected_accuracy=None if math.isnan(accuracy) else accuracy,
        bounds=rows.bounds,
        outside=rows.outside,
    )


@dataclass(frozen=True, kw_only=True)
class TableRelease:
    """What `privatize_table` did. All of it is public but for what the owner knows of her own table: `dropped`.

    `answered` of the `rows` have an answer: all, unless persons were named.
    `answers` says in words what a row of the release has in the place of its label. `bounds` and `outside` are those of
    numbers, whose `classes` are the levels that they were rounded to, without bias, before they were randomized.
    `expected_accuracy` is the share of released labels that are expected to be true if labels follow the prior (with
    no prior, if they are uniform): a forecast from public facts, never a comparison with the labels. It is as good as
    the prior: histograms that are mostly noise promise more than they keep. None where outputs are not labels.
    """

    directory: Place
    label_column: str
    classes: tuple[Any, ...]
    rows: int
    answered: int
    dropped: int
    guarantee: Guarantee
    mechanism: str
    answers: str
    seeded: bool
    label_set: str
    ledger_entry: int | None
    expected_accuracy: float | None
    bounds: tuple[float, float] | None = None
    outside: str | None = None

    def load(self) -> Release:
        """Read the labels and the channel back, checked; the table's other columns stay on the disk."""
        if isinstance(self.directory, UrlPath):
            fix = "Copy the directory to this machine, and call load_release there."
            raise invalid("TableRelease.load", "directory", "be on this machine", got=str(self.directory), fix=fix)
        return load_release(self.directory)


def describe_answers(channel: FiniteChannel | None) -> str:
    """Say what a row of a release has in the place of its label.

    >>> describe_answers(InformativeResponse(1.0, n_classes=10).channel())
    'a set of 4 of 10 classes, with the true one in it 64.4% of the time'
    """
    if channel is None or channel.outputs_are_labels:
        return "one label, the true one or another"
    if isinstance(channel, ArcChannel):
        told = f"a set of {channel.size} of {channel.n_classes} classes"
        return f"{told}, with the true one in it {channel.inclusion[0]:.1%} of the time"
    if isinstance(channel, SetAnswers):
        return "a set of classes, by what the prior leaves open"
    if isinstance(channel, NumericChannel):
        off = float(np.sqrt(np.mean(channel.spread())))
        return f"a number whose mean is the label, off by {say_number(off)} in the root mean square"
    return "a value that is no label"


# ------------------------------------------------------------------------------------------------ which prior, which mechanism


def choose_prior(prior: Any, spelt: dict[str, Any], *, groups: Any, prior_epsilon: float | None) -> Prior | None:
    """Return the one prior that was asked for, by `prior` or by another spelling of it; None without any."""
    named = {name: value for name, value in {"prior": prior, **spelt}.items() if value is not None}
    if len(named) > 1:
        got = Described(" and ".join(named))
        raise invalid(OWNER, "prior", "come from one source at most", got=got, fix="Choose one of them.")
    if prior_epsilon is not None and not named.keys() & {"cluster_column", "n_clusters"}:
        fix = "Only histograms of groups spend it: name cluster_column= or n_clusters=."
        raise invalid(OWNER, "prior_epsilon", "be left out", got=prior_epsilon, fix=fix)
    kind: str
    value: Any
    kind, value = next(iter(named.items()), ("", None))
    if kind == "prior" and not isinstance(value, Prior):
        return PublicPrior(value, groups=groups if np.ndim(value) == 2 else None)
    if kind == "model" and not hasattr(value, "predict_proba"):
        fix = "Pass a fitted classifier."
        raise invalid(OWNER, "model", "have `predict_proba` and `classes_`", got=type(value).__name__, fix=fix)
    if kind in ("prior_columns", "model"):
        return PublicPrior(list(value) if kind == "prior_columns" else value)
    if kind == "n_clusters":
        return ClusterPrior(n_clusters=value, epsilon=prior_epsilon)
    if kind == "cluster_column":
        return ClusterPrior(groups=value, epsilon=prior_epsilon)
    found: Prior | None = LearnedPrior(value) if kind == "learner" else value
    return found


def _check_mechanism(mechanism: Any, *, epsilon: float | None, purpose: Any) -> None:
    if purpose not in (None, TRAINING, LABELS):
        fix = "'training' releases what teaches a learner most, 'labels' one label per row."
        raise invalid(OWNER, "purpose", "be 'training' or 'labels'", got=purpose, fix=fix)
    if purpose is not None and mechanism is not None:
        fix = "The mechanism settles what is released: name one of the two."
        raise invalid(OWNER, "purpose", "be left out where a mechanism is named", got=purpose, fix=fix)
    if mechanism is None and epsilon is None:
        fix = "Say how private: epsilon=1.0, or a mechanism that says it."
        raise invalid(OWNER, "epsilon", "be given where no mechanism is", got=None, fix=fix)
    if mechanism is not None and not isinstance(mechanism, Mechanism):
        fix = "For example labeldp.RRTopK(1.0, k=2)."
        raise invalid(OWNER, "mechanism", "be a mechanism", got=mechanism, fix=fix)


def choose_numeric(mechanism: Any, *, epsilon: float | None, bounds: Any, counts: Any) -> NumericMechanism | None:
    """Return the mechanism for labels that are numbers, at the whole budget; None for labels that are classes.

    >>> choose_numeric(None, epsilon=1.0, bounds=None, counts=4).levels.tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    known = choose_bounds(OWNER, bounds, counts)
    if mechanism is None:
        if known is None:
            return None
        assert epsilon is not None
        return UnbiasedResponse(epsilon, bounds=known, grid=LEVELS if counts is None else "integers")
    if not isinstance(mechanism, NumericMechanism):
        if known is None:
            return None
        fix = (
            "For numbers: UnbiasedResponse, LaplaceResponse or BinnedResponse (--mechanism unbiased, laplace, binned)."
        )
        raise invalid(OWNER, "mechanism", "be one for numbers", got=type(mechanism).__name__, fix=fix)
    if known not in (None, mechanism.bounds):
        got = Described(f"[{say_bounds(known)}] for a mechanism of [{say_bounds(mechanism.bounds)}]")
        raise invalid(
            OWNER, "bounds", "be those of the mechanism", got=got, fix="The mechanism has them: leave them out."
        )
    return mechanism if epsilon is None else mechanism.with_epsilon(epsilon)


def _check_kind(
    numeric: NumericMechanism | None, prior: Prior | None, *, groups: Any, of_classes: Mapping[str, Any], outside: str
) -> None:
    """Refuse what only labels of the other kind have: classes, or numbers."""
    if numeric is None:
        if outside != OUTSIDE[0]:
            fix = "It is about numbers outside of bounds= or counts=: give one of the two."
            raise invalid(OWNER, "outside", "be left out for labels that are classes", got=outside, fix=fix)
        return
    given = next((name for name, value in of_classes.items() if value is not None), None)
    if given is not None:
        fix = "Numbers have bounds, classes have a list: leave one of the two out."
        raise invalid(OWNER, given, "be left out for labels that are numbers", got=Described("given"), fix=fix)
    if prior is not None and (prior.sees_labels or hasattr(getattr(prior, "source", None), "predict_proba")):
        fix = "A public law of the levels: prior= an array of probabilities, or prior_columns=."
        raise invalid(OWNER, "prior", "be a public one for labels that are numbers", got=type(prior).__name__, fix=fix)
    if prior is None and groups is not None:
        raise invalid(OWNER, "groups", "be left out without a prior of shape (C, K)", got=Described("some"))


def choose_mechanism(
    mechanism: Mechanism | None, *, epsilon: float | None, n_classes: int, prior: Prior | None, purpose: str
) -> Mechanism:
    """Return the mechanism that was asked for, or the one for a purpose.

    For training it is InformativeResponse. Of two classes its sets are labels, drawn as randomized response does, whatever
    the prior; without one that mechanism is named, since everyone knows it.
    """
    if mechanism is None:
        assert epsilon is not None
        if purpose == TRAINING and (2 if prior is None else 1) < n_classes <= MOST_CLASSES:
            return InformativeResponse(epsilon)
        return RandomizedResponse(epsilon, n_classes=n_classes) if prior is None else RRWithPrior(epsilon)
    stated = getattr(mechanism, "n_classes", None)
    if stated is not None and stated != n_classes:
        got = Described(f"{stated} for {n_classes} classes of labels")
        raise invalid(OWNER, "mechanism", "have as many classes as the labels", got=got, fix="Pass classes=.")
    return mechanism


def _find_place(
    target: Place, key: NoiseKey, *, rng: Any, resume: Any, passphrase: str | None
) -> tuple[Staging, NoiseKey]:
    """Return where the release is made, and under which key: a new one, or that of the job to take up."""
    if passphrase is not None:
        check_passphrase(passphrase, owner=OWNER)
    if resume is None:
        return Staging.beside(target, job=secrets.token_hex(8)), key.claim_all()
    staging = staging_at(place_of(resume))
    if not staging.place.name.startswith(f".{target.name}.partial-") or staging.place.parent != target.parent:
        fix = "Give the same --to as in the first run."
        raise invalid(OWNER, "resume", f"be a job of {target}", got=str(staging.place), fix=fix)
    held = find_key(staging, passphrase)
    if rng is not None and key.reveal() != held.reveal():
        raise invalid(OWNER, "rng", "be left out, or as it was", got=Described("another"), fix="A job keeps its key.")
    return staging, held
