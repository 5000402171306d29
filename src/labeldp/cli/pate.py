"""`labeldp pate`: teachers on parts of a private table vote on public rows, and a student learns the noisy answers.

Two tables come in: private rows with labels, and public rows without. One label column is handed to `labeldp.learn.PATE`,
several columns of 0 and 1 to `MultiLabelPATE`. What comes out is the student with its promise, behind an encoder that has
seen public rows alone, and on request the noisy answers.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.screen import (
    AsJson,
    Budget,
    BudgetDelta,
    Classes,
    LabelSet,
    LedgerFile,
    Missing,
    MissingLabels,
    Person,
    Seed,
    answer,
    entry_facts,
    entry_text,
    facts_table,
    name_label_set,
    open_ledger,
    open_whole_table,
    spinner,
    split_names,
    styled,
    warn_seeded,
    without_owner,
)
from labeldp.cli.tables import Consent, LabelRules, Reading, options_of
from labeldp.cli.train import Estimator
from labeldp.display import can_show_bars
from labeldp.errors import Described, invalid, name_type, nearest
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console


TEACHERS, VOTES = "Teachers and student", "Votes"


class Aggregation(str, Enum):
    """How votes become answers: the first two for one label, the others for several."""

    gnmax = "gnmax"
    confident_gnmax = "confident-gnmax"
    stable_top_k = "stable-top-k"
    pate = "pate"
    pate_tau = "pate-tau"


FOR_ONE = (Aggregation.confident_gnmax, Aggregation.gnmax)
FOR_MANY = (Aggregation.stable_top_k, Aggregation.pate, Aggregation.pate_tau)


#: What only votes that are tested first have.
TESTED = ("--most-answers", "--threshold")


class ProtectedUnit(str, Enum):
    """What one change of the private table is."""

    label = "label"
    record_replace = "record_replace"


def pate(
    table: Annotated[Path, typer.Argument(help="The private table.")],
    *,
    label: Annotated[
        list[str],
        typer.Option("--label", "-l", help="The column to protect; give several of 0 and 1.", metavar="COLUMN"),
    ],
    public: Annotated[Path, typer.Option("--public", help="Public rows without labels: a table.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The privacy of the whole run.")],
    to: Annotated[Path, typer.Option("--to", "--out", help="The student: a new file.", metavar="FILE")],
    delta: Annotated[float, typer.Option("--delta", "-d", help="Gaussian noise needs one above 0.")] = 1e-5,
    teachers: Annotated[
        int, typer.Option("--teachers", help="Parts of the private table.", rich_help_panel=TEACHERS)
    ] = 100,
    estimator: Annotated[
        Estimator, typer.Option("--estimator", help="What teachers and student are.", rich_help_panel=TEACHERS)
    ] = Estimator.softmax,
    drop: Annotated[
        str | None, typer.Option("--drop", help="Columns that are not features, with commas.", rich_help_panel=TEACHERS)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Teachers taught at once.", rich_help_panel=TEACHERS)
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            help="Private votes of an unfinished run: a new folder, or that of the same run.",
            metavar="DIRECTORY",
            rich_help_panel=TEACHERS,
        ),
    ] = None,
    aggregation: Annotated[
        Aggregation | None,
        typer.Option("--aggregation", help="confident-gnmax; for several labels stable-top-k.", rich_help_panel=VOTES),
    ] = None,
    queries: Annotated[
        int | None, typer.Option("--queries", help="Ask about the first public rows only.", rich_help_panel=VOTES)
    ] = None,
    most_answers: Annotated[
        int | None, typer.Option("--most-answers", help="Stop after so many (confident-gnmax).", rich_help_panel=VOTES)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Share of teachers that must agree (confident-gnmax).", rich_help_panel=VOTES),
    ] = None,
    tau: Annotated[
        int | None, typer.Option("--tau", help="Most labels per vote (pate-tau).", rich_help_panel=VOTES)
    ] = None,
    unit: Annotated[
        ProtectedUnit, typer.Option("--unit", help="What is protected: a label, or a whole record.")
    ] = ProtectedUnit.label,
    answers: Annotated[
        Path | None,
        typer.Option(
            "--answers", help="Keep the noisy answers: a new file, whose name says the format.", metavar="FILE"
        ),
    ] = None,
    classes: Classes = None,
    rules: LabelRules = LabelRules(),
    missing: MissingLabels = Missing.error,
    person: Person = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    budget_delta: BudgetDelta = 0.0,
    label_set: LabelSet = None,
    seed: Seed = None,
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Train a student on noisy votes of teachers (PATE).

    The private table is dealt into parts, a teacher learns on each, all vote on public rows, and noise hides what any
    one of them says. Teachers are never kept. The student takes raw tables; numbers and text are encoded by what the
    public table holds. A run that was stopped goes on where it was if --checkpoint is the same.

    [bold]Examples[/bold]

      labeldp pate people.parquet --label income --public census.parquet --teachers 200 -e 2 --to student.skops

      labeldp pate clinic.csv -l ill --public rows.csv -e 1 -d 1e-6 --to student.skops --checkpoint votes

      labeldp pate stays.parquet -l readmitted --person patient_nbr --public rows.parquet -e 2 --to student.skops

      labeldp pate films.parquet -l drama -l comedy -l war --public new.parquet -e 4 --to student.skops

      labeldp pate clinic.csv -l ill --public rows.csv -e 1 --to student.skops --answers answers.parquet --ledger
      spent.sqlite --budget 2 --budget-delta 1e-5
    """
    from labeldp.data.writing import choose_writer
    from labeldp.learn.saved import save_model
    from labeldp.release.saving import check_new

    consent.check_epsilon(epsilon)
    _check_options(label, aggregation)
    for target in (to, *([] if answers is None else [answers])):
        check_new(target, owner="pate")
    if answers is not None:
        choose_writer(answers, owner="pate")
    source, asked = reading.open(table, beside=[public]), reading.open(public, beside=[table])
    source.require(*label)
    listed = None
    if len(label) == 1:
        source = rules.apply(source, label[0])
        listed = rules.classes(classes, source.schema.field(label[0]).type)
    name, book = name_label_set(label_set, table, ",".join(label)), open_ledger(ledger, budget, delta=budget_delta)
    data = read_tables(
        source,
        asked,
        label=label,
        drop=split_names(drop),
        classes=listed,
        missing=missing.value,
        name=name,
        book=book,
        person=person,
    )
    settings: dict[str, Any] = {
        "n_teachers": teachers,
        "epsilon": epsilon,
        "delta": delta,
        "n_queries": queries,
        "unit": unit.value,
        "n_jobs": jobs,
        "checkpoint": checkpoint,
        "random_state": seed,
        "ledger": book,
        "label_set": data.name,
        "verbose": int(can_show_bars()),
    }
    chosen = {
        "aggregation": aggregation and aggregation.value,
        "n_answers": most_answers,
        "threshold": threshold,
        "tau": tau,
    }
    settings |= {name: value for name, value in chosen.items() if value is not None}
    if seed is not None:
        warn_seeded()
    with nullcontext() if settings["verbose"] else spinner("teaching"):  # teachers tell one by one, or nothing
        model = _fit(data, settings, estimator=estimator.value)
    used = {"source": str(table), "label": ",".join(label), "rows": data.rows, "features": data.columns}
    used |= {"labels": list(label)} if len(label) > 1 else {}
    save_model(model, to, facts=without_owner(used))
    if answers is not None:
        _write_answers(model[-1], data, label, answers)
    facts = _collect_facts(model[-1], used, to=to, answers=answers, data=data)
    answer(facts, as_json=as_json, show=lambda console: _show(console, model[-1], facts))


def _check_options(labels: list[str], aggregation: Aggregation | None) -> None:
    """Refuse options of another kind of vote, before a file is read."""
    if len(set(labels)) < len(labels):
        raise invalid("pate", "--label", "name each column once", got=", ".join(labels))
    many = len(labels) > 1
    known = FOR_MANY if many else FOR_ONE
    if aggregation is not None and aggregation not in known:
        fix = f"For {'several labels' if many else 'one label'}: {', '.join(choice.value for choice in known)}."
        raise invalid("pate", "--aggregation", "fit the number of labels", got=aggregation.value, fix=fix)
    if many:
        own = (*TESTED, "--classes", "--missing", *options_of(LabelRules))
        refuse_idle("pate", own, where="for several labels", fix="It is for one label.")
    elif aggregation is Aggregation.gnmax:
        fix = "It belongs to --aggregation confident-gnmax, which asks first whether teachers agree."
        refuse_idle("pate", TESTED, where="with --aggregation gnmax", fix=fix)
    if aggregation is not Aggregation.pate_tau:
        fix = "It is for several labels, and belongs to --aggregation pate-tau."
        refuse_idle("pate", ["--tau"], where=f"with --aggregation {(aggregation or known[0]).value}", fix=fix)


def _fit(data: VoteData, settings: dict[str, Any], *, estimator: str) -> Any:
    """Return a pipeline of the encoder and the fitted learner.

    The encoder learns from public rows alone: means and categories of private rows would be a release of them where
    whole records are protected.
    """
    import numpy as np
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import Pipeline

    from labeldp.learn import PATE, MultiLabelPATE, TableEncoder
    from labeldp.learn.named import named_estimator

    encoder = TableEncoder(columns=data.columns).fit(data.public)
    X, X_public = encoder.transform(data.private), encoder.transform(data.public)
    one = named_estimator(estimator)
    if isinstance(data.targets, np.ndarray):
        several = OneVsRestClassifier(one)
        learner: Any = MultiLabelPATE(several, student=several, **settings)
    else:
        learner = PATE(one, student=one, **settings)
    return Pipeline([("table", encoder), ("pate", learner.fit(X, data.targets, X_public, persons=data.persons))])


def _write_answers(model: Any, data: VoteData, labels: list[str], path: Path) -> None:
    """Write the public rows that were answered, with their row numbers and noisy answers."""
    import pyarrow as pa

    from labeldp.data import write_table
    from labeldp.release.columns import RESERVED

    rows = data.public.take(pa.array(model.answered_))
    columns = model.answers_.reshape(len(model.answered_), -1).T
    found = pa.table(
        {
            RESERVED + "row": pa.array(model.answered_),
            **{name: rows[name] for name in rows.column_names},
            **{name: pa.array(column.tolist()) for name, column in zip(labels, columns, strict=True)},
        }
    )
    write_table([found], found.schema, path)


def _collect_facts(
    model: Any, used: dict[str, Any], *, to: Path, answers: Path | None, data: VoteData
) -> dict[str, Any]:
    """Return what was done, for machines."""
    # Several labels are asked about at every query; one label only until there are enough answers.
    every = data.public.num_rows if model.n_queries is None else model.n_queries
    asked = getattr(model, "n_asked_", every)
    return {
        "model": str(to),
        **used,
        "dropped": data.dropped,
        "teachers": model.n_teachers,
        "aggregation": model.aggregation,
        "answered": model.n_answered_,
        "asked": asked,
        "epsilon": model.guarantee_.epsilon(model.delta),
        "delta": model.delta,
        "guarantee": promise_facts(model.guarantee_),
        "label_set": str(model.label_set),
        **entry_facts(model.ledger_entry_),
        "answers": None if answers is None else str(answers),
        "seeded": model.seeded_,
    }


def _show(console: Console, model: Any, facts: dict[str, Any]) -> None:
    rows: list[tuple[str, Any]] = [
        ("teachers", f"{facts['teachers']:,} on {facts['rows']:,} rows, {len(facts['features'])} features"),
        ("left out", f"{facts['dropped']:,} rows without a label" if facts["dropped"] else None),
        ("label", facts["label"]),
        ("answered", f"{facts['answered']:,} of {facts['asked']:,} queries, by {facts['aggregation']}"),
        *promise_rows(model.guarantee_, delta=facts["delta"]),
        ("ledger entry", entry_text(facts)),
        ("answers", facts["answers"]),
        ("next", f"labeldp predict {facts['model']} TABLE --to predictions.parquet"),
    ]
    console.print(styled(("taught", "bold green"), " ", (facts["model"], "bold")), soft_wrap=True)
    console.print(facts_table(rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class VoteData:
    """A private table and public rows: features as tables, targets in a box (one label) or as rows of 0 and 1."""

    private: Any
    public: Any
    targets: Any
    dropped: int
    name: str
    persons: Any = None

    @property
    def rows(self) -> int:
        """Private rows that teachers learn from."""
        return int(self.private.num_rows)

    @property
    def columns(self) -> list[str]:
        """Names of the features."""
        return list(self.private.column_names)


def read_tables(
    source: Any,
    public: Any,
    *,
    label: list[str],
    drop: list[str],
    classes: list[Any] | None,
    missing: str,
    name: str,
    book: Any,
    person: str | None = None,
) -> VoteData:
    """Return features and targets of the private table, and the public rows of the same features.

    `drop` names columns that are not features, `missing` says what to do with rows without a label, and `person` is the column
    that says whose row it is. The public table must have every feature.
    """
    from labeldp.learn.tables import feature_columns, read_columns, read_labelled
    from labeldp.release import Persons

    source.require(*label)
    if len(label) == 1:
        read = read_labelled(
            source,
            label=label[0],
            leave_out=drop,
            classes=classes,
            missing=missing,
            persons=person,
            label_set=name,
            ledger=book,
        )
        private, targets, dropped, owners = read.features, read.labels, read.dropped, read.persons
        name = str(read.labels.name)
    else:
        if person in label:
            fix = "It is what is to be hidden: name the column that says whose row it is."
            raise invalid("pate", "--person", "not be a label column", got=person, fix=fix)
        ids = [] if person is None else [person]
        columns = feature_columns(source, label=None, leave_out=[*drop, *label, *ids])
        whole = read_columns(source, [*columns, *label, *ids])
        private, targets, dropped = whole.select(columns), _read_indicators(source, whole, label), 0
        owners = None if person is None else Persons.of(whole[person], owner="pate")
        name = open_whole_table(name, source, label, book, features=columns, persons=owners, person=person)
    if not private.column_names:
        raise invalid("pate", "table", "have features", got=Described("labels only"))
    absent = [one for one in private.column_names if one not in public.names]
    if absent:
        got = Described(f"{public.path.name} without {', '.join(absent[:8])}{', ...' if len(absent) > 8 else ''}")
        fix = f"{nearest(absent[0], public.names)} What it lacks may be left out of both: --drop {','.join(absent)}."
        raise invalid("pate", "--public", "have every feature of the private table", got=got, fix=fix)
    rows = read_columns(public, private.column_names)
    if rows.num_rows == 0:
        raise invalid("pate", "--public", "have rows", got=Described("none"), fix="Teachers vote on public rows.")
    return VoteData(private=private, public=rows, targets=targets, dropped=dropped, name=name, persons=owners)


def _read_indicators(source: Any, table: Any, labels: list[str]) -> Any:
    """Return label columns of 0 and 1 (or booleans) as a matrix."""
    import numpy as np
    import pyarrow as pa

    columns = []
    for name in labels:
        column = table[name]
        if column.null_count:
            got = Described(f"{column.null_count:,} missing of {len(column):,} rows")
            raise invalid(source.path.name, name, "have no missing values", got=got, fix="Fill or drop them first.")
        if not (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
        ):
            fix = "Several labels are columns of 0 and 1; a column of classes is one label alone."
            raise invalid(source.path.name, name, "hold 0 and 1", got=name_type(column.type), fix=fix)
        values = column.to_numpy()
        if not np.isin(values, (0, 1)).all():
            fix = "Several labels are columns of 0 and 1; a column of classes is one label alone."
            raise invalid(source.path.name, name, "hold 0 and 1", got=Described("another number"), fix=fix)
        columns.append(values.astype(np.uint8))
    return np.stack(columns, axis=1)
