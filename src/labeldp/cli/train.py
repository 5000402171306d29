"""`labeldp train`: a model from a release, or from an owner's table through the door."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import (
    AsJson,
    Budget,
    Classes,
    LabelSet,
    LedgerFile,
    Missing,
    MissingLabels,
    RowIds,
    Seed,
    answer,
    facts_table,
    name_label_set,
    open_ledger,
    percent_or_none,
    spinner,
    split_names,
    styled,
    warn_seeded,
)
from labeldp.cli.tables import Consent, LabelChoice, LabelRules, Reading, ask_about_labels
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

MODEL, OWNER = "Model", "From a table (its owner)"


class Estimator(str, Enum):
    """The classifiers that have a name here."""

    softmax = "softmax"
    logistic = "logistic"
    forest = "forest"
    boosting = "boosting"
    bayes = "bayes"


class Correction(str, Enum):
    """How training accounts for the noise."""

    auto = "auto"
    forward = "forward"
    posterior = "posterior"
    unbiased = "unbiased"
    none = "none"


class PriorChoice(str, Enum):
    """What the first stage knows."""

    none = "none"
    cluster = "cluster"


def train(
    source: Annotated[Path, typer.Argument(help="A release directory, or a table: CSV, JSON lines, Parquet, Arrow.")],
    *,
    to: Annotated[Path, typer.Option("--to", help="The model: a new file.", metavar="FILE")],
    estimator: Annotated[
        Estimator, typer.Option("--estimator", help="The classifier.", rich_help_panel=MODEL)
    ] = Estimator.softmax,
    correction: Annotated[
        Correction, typer.Option("--correction", help="How training accounts for the noise.", rich_help_panel=MODEL)
    ] = Correction.auto,
    drop: Annotated[
        str | None, typer.Option("--drop", help="Columns that are not features, with commas.", rich_help_panel=MODEL)
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", "-l", help="The column to protect.", metavar="COLUMN", rich_help_panel=OWNER),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", "-e", help="The privacy of each label.", rich_help_panel=OWNER)
    ] = None,
    stages: Annotated[
        int, typer.Option("--stages", help="1, or more: each stage's model informs the next.", rich_help_panel=OWNER)
    ] = 1,
    prior: Annotated[
        PriorChoice, typer.Option("--prior", help="What the first stage knows.", rich_help_panel=OWNER)
    ] = PriorChoice.none,
    clusters: Annotated[
        int | None, typer.Option("--clusters", help="Clusters of --prior cluster.", rich_help_panel=OWNER)
    ] = None,
    save_release: Annotated[
        Path | None,
        typer.Option(
            "--save-release", help="Keep the release too: a new directory.", metavar="DIRECTORY", rich_help_panel=OWNER
        ),
    ] = None,
    classes: Classes = None,
    rules: LabelRules = LabelRules(),
    missing: MissingLabels = Missing.error,
    row_ids: RowIds = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    seed: Seed = None,
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Train a classifier on released labels.

    From a release directory no label and no budget is needed. From a table, its labels are privatized inside at
    --epsilon; with --save-release others can train the same model from that directory alone. The model takes raw
    tables: it scales numbers and encodes text itself. Softmax regression reads a long table in batches; the other
    estimators, and --prior cluster, need it in memory.

    [bold]Examples[/bold]

      labeldp train release --to model.skops

      labeldp train people.parquet --label income --epsilon 1 --to model.skops

      labeldp train people.csv -l income -e 1 --stages 2 --to model.skops --ledger spent.sqlite --budget 2

      labeldp train people.csv -l income -e 1 --prior cluster --save-release release --to model.skops
    """
    from labeldp.learn.saved import save_model
    from labeldp.release.saving import check_new

    check_new(to, owner="train")
    consent.check_epsilon(epsilon)
    if seed is not None:
        warn_seeded()
    shape = {"estimator": estimator.value, "correction": correction.value}
    released = source.is_dir() and (source / "release.json").exists()
    choice = None if released else _choose_labels(reading, rules, source, label, classes=classes, missing=missing.value)
    with spinner("training"):
        if choice is None:
            _refuse_owner_options(label=label, epsilon=epsilon, ledger=ledger, save_release=save_release)
            model, used = _from_release(source, shape, drop=split_names(drop))
        else:
            owner = _Owner(
                table=choice.source,
                label=_require("--label", label, source),
                epsilon=_require("--epsilon", epsilon, source),
                classes=choice.classes,
                missing=choice.missing,
                row_ids=row_ids,
                drop=tuple(split_names(drop)),
                label_set=label_set,
                ledger=open_ledger(ledger, budget),
            )
            chosen = _choose_prior(prior, clusters)
            model, used = _from_table(owner, shape, stages=stages, prior=chosen, seed=seed, keep=save_release)
        used["preparation"], used["text"] = _describe_preparation(model)
        save_model(model, to, facts=used)
    facts = {"model": str(to), **used, "guarantee": promise_facts(model.guarantee_), "seeded": model.release_.seeded}
    facts["stages"] = [dataclasses.asdict(stage) for stage in model.stages_]
    answer(facts, as_json=as_json, show=lambda console: _show(console, model, facts))


def _choose_labels(
    reading: Reading, rules: LabelRules, path: Path, label: str | None, *, classes: str | None, missing: str
) -> LabelChoice:
    """Return an owner's table with its labels tidied, after what there is to ask about them."""
    source = reading.open(path)
    column = _require("--label", label, path)
    source = rules.apply(source, column)
    listed = rules.classes(classes, source.schema.field(column).type)
    return ask_about_labels(source, column, classes=listed, missing=missing)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Owner:
    """What only the owner of labels says."""

    table: Any
    label: str
    epsilon: float
    classes: list[Any] | None
    missing: str
    row_ids: str | None
    drop: tuple[str, ...]
    label_set: str | None
    ledger: Any


def _from_release(directory: Path, shape: dict[str, str], *, drop: list[str]) -> tuple[Any, dict[str, Any]]:
    from labeldp.engines import open_released_table
    from labeldp.learn.tables import TableRows, feature_columns, read_columns, table_classifier

    source, release = open_released_table(directory)
    columns = feature_columns(source, label=None, leave_out=drop)
    size = _batch_rows(source, shape["estimator"])
    features = read_columns(source, columns) if size is None else TableRows(source, columns, batch_rows=size)
    model = table_classifier(**shape, epsilon=release.guarantee.epsilon(), columns=columns)  # type: ignore[arg-type]
    model.fit_release(features, release)
    return model, {"source": str(directory), "label": release.label_column, "rows": len(release), "features": columns}


def _from_table(
    owner: _Owner, shape: dict[str, str], *, stages: int, prior: Any, seed: int | None, keep: Path | None
) -> tuple[Any, dict[str, Any]]:
    from dataclasses import replace

    from labeldp.learn.tables import read_labelled, table_classifier
    from labeldp.release.saving import check_saving

    source = owner.table
    source.require(owner.label)
    labelled = read_labelled(
        source,
        label=owner.label,
        leave_out=owner.drop,
        classes=owner.classes,
        missing=owner.missing,
        row_ids=owner.row_ids,
        label_set=name_label_set(owner.label_set, source.path, owner.label),
        ledger=owner.ledger,
        batch_rows=None if prior is not None else _batch_rows(source, shape["estimator"]),
    )
    if keep is not None:
        check_saving(keep, classes=labelled.labels.classes, columns=labelled.features.column_names, owner="train")
    columns = labelled.features.column_names
    model = table_classifier(
        **shape,
        epsilon=owner.epsilon,
        columns=columns,
        stages=stages,
        prior=prior,
        random_state=seed,
        ledger=owner.ledger,
    ).fit(labelled.features, labelled.labels)
    if keep is not None:
        notes = () if source.rewritten is None else tuple(source.rewritten.words)
        saved = replace(model.release_, label_column=owner.label, label_notes=notes)
        saved.save(keep, features=labelled.features)
    used = {"source": str(source.path), "label": owner.label, "rows": len(labelled.labels), "features": columns}
    return model, {**used, "dropped": labelled.dropped, "release": None if keep is None else str(keep)}


def _describe_preparation(model: Any) -> tuple[list[str], list[str]]:
    """Return what was done to the columns, in words, and which of them are read as text."""
    encoder = model.transformer_[0]
    return list(encoder.notes_), list(encoder.categories_)


def _batch_rows(source: Any, estimator: str) -> int | None:
    """Return the size of the batches to train in, or None to train in memory.

    A table of one batch fits into memory; so must one for an estimator that sees all rows at once, and for a prior that
    clusters them. Softmax regression reads a longer table batch by batch, in each step of its solver.
    """
    from labeldp.data.tables import BATCH_ROWS
    from labeldp.learn.tables import is_longer

    return BATCH_ROWS if estimator == Estimator.softmax.value and is_longer(source, BATCH_ROWS) else None


def _choose_prior(choice: PriorChoice, clusters: int | None) -> Any:
    if choice is PriorChoice.none:
        if clusters is not None:
            raise LabelDPError("--clusters says how --prior cluster is made. Add --prior cluster.")
        return None
    from labeldp.priors import ClusterPrior

    return ClusterPrior(n_clusters=clusters)


def _require(option: str, value: Any, source: Path) -> Any:
    if value is None:
        fix = f"{source} is a table, not a release: its owner says which label to protect, and how much."
        raise invalid("train", option, "be given", got=Described("nothing"), fix=fix)
    return value


def _refuse_owner_options(**options: Any) -> None:
    """A release is public already: options that would protect it again are a misunderstanding."""
    for name, value in options.items():
        if value is not None:
            fix = "The source is a release: its labels are randomized already and its promise stands."
            raise invalid("train", f"--{name.replace('_', '-')}", "be left out", got=str(value), fix=fix)


def _show(console: Console, model: Any, facts: dict[str, Any]) -> None:
    dropped = facts.get("dropped")
    rows: list[tuple[str, Any]] = [
        ("learned from", f"{facts['rows']:,} rows, {len(facts['features'])} features of {facts['source']}"),
        ("left out", f"{dropped:,} rows without a label" if dropped else None),
        ("label", f"{facts['label']} ({len(model.classes_)} classes)"),
        *promise_rows(model.guarantee_),
    ]
    for stage in model.stages_:
        right = percent_or_none(stage.expected_accuracy)
        text = (
            f"{stage.n_examples:,} rows, {stage.average_k:.1f} candidates on average, {right} of labels expected right"
        )
        rows.append((f"stage {stage.number}", text))
    rows += [("columns", line) for line in facts["preparation"]]
    rows += [("correction", model.correction_), ("release", facts.get("release"))]
    rows.append(("next", f"labeldp predict {facts['model']} TABLE --to predictions.parquet"))
    console.print(styled(("trained", "bold green"), " ", (facts["model"], "bold")), soft_wrap=True)
    console.print(facts_table(rows))
