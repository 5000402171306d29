"""`labeldp privatize`: a table in, a release directory out."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import (
    ENGINE,
    AsJson,
    Budget,
    Classes,
    Epsilon,
    Label,
    LabelSet,
    LedgerFile,
    Missing,
    MissingLabels,
    PassphraseFile,
    RowIds,
    Scheduler,
    Seed,
    Workers,
    answer,
    errors,
    escape,
    exit_with,
    facts_table,
    name_label_set,
    open_ledger,
    parse_classes,
    percent_or_none,
    progress,
    read_passphrase,
    split_names,
    warn_seeded,
)
from labeldp.errors import LabelDPError
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

PRIOR = "Prior (at most one)"


class EngineChoice(str, Enum):
    """What carries the pieces of a table."""

    local = "local"
    dask = "dask"


def _discard(directory: Path | None) -> None:
    """Throw an unfinished job away, before any other option is looked at."""
    if directory is None:
        return
    from labeldp.engines import discard_job

    try:
        discard_job(directory)
    except LabelDPError as error:
        exit_with(error)
    errors().print(f"discarded {escape(directory)}", soft_wrap=True)
    raise typer.Exit


def privatize(
    table: Annotated[str, typer.Argument(help="A CSV or Parquet file, a folder of Parquet files, or their URL.")],
    *,
    label: Label,
    epsilon: Epsilon,
    to: Annotated[str, typer.Option("--to", help="The release: a new directory.", metavar="DIRECTORY")],
    classes: Classes = None,
    prior_columns: Annotated[
        str | None,
        typer.Option(
            "--prior-columns", help="Public columns of class probabilities, one per class.", rich_help_panel=PRIOR
        ),
    ] = None,
    cluster_column: Annotated[
        str | None,
        typer.Option(
            "--cluster-column", help="A public column of groups: noisy counts per group.", rich_help_panel=PRIOR
        ),
    ] = None,
    clusters: Annotated[
        int | None,
        typer.Option("--clusters", help="This many clusters of the numeric features.", rich_help_panel=PRIOR),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="A saved model that never saw these labels.", rich_help_panel=PRIOR),
    ] = None,
    prior_epsilon: Annotated[
        float | None,
        typer.Option("--prior-epsilon", help="What the noisy counts take of epsilon.", rich_help_panel=PRIOR),
    ] = None,
    missing: MissingLabels = Missing.error,
    row_ids: RowIds = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    seed: Seed = None,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="This machine, or a Dask cluster.", rich_help_panel=ENGINE)
    ] = EngineChoice.local,
    scheduler: Scheduler = None,
    workers: Workers = None,
    passphrase_file: PassphraseFile = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", help="Take up the unfinished job in this folder.", metavar="FOLDER", rich_help_panel=ENGINE
        ),
    ] = None,
    discard: Annotated[  # noqa: ARG001 - its callback does it
        Path | None,
        typer.Option(
            "--discard",
            help="Throw the unfinished job in this folder away.",
            metavar="FOLDER",
            rich_help_panel=ENGINE,
            is_eager=True,
            callback=_discard,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Release a table with its label column randomized.

    The directory holds the table with the released labels in place of the true ones, how they were randomized, and the
    promise. It appears whole or not at all, and is all that others need to train.

    [bold]Examples[/bold]

      labeldp privatize people.parquet --label income --epsilon 1 --to release

      labeldp privatize people.csv -l income -e 1 --to release --ledger spent.sqlite --budget 2

      labeldp privatize people.parquet -l income -e 1 --to release --clusters 50

      labeldp privatize visits.csv -l ill -e 2 --to release --classes no,yes --missing drop

      labeldp privatize clicks/ -l bought -e 1 --to release --engine dask --scheduler tcp://10.0.0.1:8786
    """
    from labeldp.data import open_table
    from labeldp.engines import privatize_table

    source = open_table(table)
    source.require(label)
    name = name_label_set(label_set, source.path, label)
    fitted = _loaded(model, label_set=name)
    if seed is not None:
        warn_seeded()
    with progress("privatizing") as told:
        done = privatize_table(
            source,
            label=label,
            to=to,
            epsilon=epsilon,
            classes=parse_classes(classes, source.schema.field(label).type),
            prior_columns=split_names(prior_columns) or None,
            cluster_column=cluster_column,
            n_clusters=clusters,
            model=fitted,
            prior_epsilon=prior_epsilon,
            missing=missing.value,
            row_ids=row_ids,
            label_set=name,
            ledger=open_ledger(ledger, budget),
            rng=seed,
            progress=told,
            engine=engine.value,
            scheduler=scheduler,
            workers=workers,
            passphrase=read_passphrase(passphrase_file),
            resume=resume,
        )
    facts = _facts(done, label=label)
    answer(facts, as_json=as_json, show=lambda console: _show(console, done))


def _loaded(model: Path | None, *, label_set: str) -> Any:
    """Return the model that serves as a prior, and say so if it has learned from these very labels."""
    if model is None:
        return None
    from labeldp.learn.saved import load_model

    fitted = load_model(model)
    if fitted.facts_.get("label_set") == label_set:
        errors().print(
            f"[yellow]note:[/] the model learned from label set {escape(label_set)} itself: what it cost adds to what "
            "this release costs. A ledger adds them up.",
        )
    return fitted


def _facts(done: Any, *, label: str) -> dict[str, Any]:
    """Return what was done, for machines."""
    named = {field.name: getattr(done, field.name) for field in dataclasses.fields(done)}
    return {**named, "label": label, "directory": str(done.directory), "guarantee": promise_facts(done.guarantee)}


def _show(console: Console, done: Any) -> None:
    rows: list[tuple[str, Any]] = [
        ("rows", f"{done.rows:,}" + (f" ({done.dropped:,} without a label left out)" if done.dropped else "")),
        *promise_rows(done.guarantee),
        ("mechanism", done.mechanism),
        ("labels expected right", percent_or_none(done.expected_accuracy)),
        ("ledger entry", None if done.ledger_entry is None else str(done.ledger_entry)),
        ("next", f"labeldp inspect {done.directory}"),
    ]
    console.print(f"[bold green]released[/] [bold]{done.directory}[/]", soft_wrap=True)
    console.print(facts_table(rows))
