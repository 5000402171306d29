"""`labeldp train-ratings` and `predict-ratings`: a recommender from a table of ratings, and its answers for pairs.

A rating is one row: who, what, and a number to protect. Who rated what is public. The model file holds the learner that
predicts (`labeldp.learn.ratings.MatrixFactorisation`) and what was promised about the ratings; `predict-ratings` reads the
names of the columns from it and goes through a table of pairs batch by batch.
"""

from __future__ import annotations

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
    Seed,
    answer,
    entry_facts,
    facts_table,
    name_label_set,
    open_ledger,
    progress,
    shares,
    styled,
    warn_seeded,
    without_owner,
)
from labeldp.cli.tables import STDOUT, Consent, LabelRules, Reading, check_output, write_rows
from labeldp.errors import invalid
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

MODEL = "Model"


def train_ratings(
    table: Annotated[Path, typer.Argument(help="A table with one rating per row.")],
    *,
    user: Annotated[str, typer.Option("--user", help="Who rated; public.", metavar="COLUMN")],
    item: Annotated[str, typer.Option("--item", help="What was rated; public.", metavar="COLUMN")],
    rating: Annotated[str, typer.Option("--rating", "-r", help="The numbers to protect.", metavar="COLUMN")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The privacy of each rating.")],
    to: Annotated[Path, typer.Option("--to", help="The model: a new file.", metavar="FILE")],
    sums: Annotated[
        float | None,
        typer.Option("--sums", help="Share of epsilon for sums, which trust a curator; 0 trusts no one."),
    ] = None,
    factors: Annotated[
        int | None, typer.Option("--factors", help="Numbers per user and item.", rich_help_panel=MODEL)
    ] = None,
    sweeps: Annotated[int, typer.Option("--sweeps", help="Passes of the sampler.", rich_help_panel=MODEL)] = 40,
    pair_features: Annotated[
        int, typer.Option("--pair-features", help="Features of who rated what; 0 for none.", rich_help_panel=MODEL)
    ] = 16,
    classes: Classes = None,
    rules: LabelRules = LabelRules(),
    missing: MissingLabels = Missing.error,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    seed: Seed = None,
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Learn to predict ratings of (user, item) pairs; each rating is protected at --epsilon.

    Who rated what is public, how is not. Up to epsilon 1 noisy sums over groups of users and items are released, which a
    curator computes; above, each rating is randomized by itself. --sums says otherwise.

    [bold]Examples[/bold]

      labeldp train-ratings ratings.csv --user user --item film --rating stars -e 1 --to model.skops

      labeldp train-ratings ratings.parquet --user u --item i -r stars -e 2 --classes 1,2,3,4,5 --to model.skops
    """
    from labeldp.learn.saved import PROMISE, save_model
    from labeldp.release.saving import check_new

    consent.check_epsilon(epsilon)
    check_new(to, owner="train-ratings")
    if seed is not None:
        warn_seeded()
    source = reading.open(table)
    source.require(user, item, rating)
    source = rules.apply(source, rating)
    listed = rules.classes(classes, source.schema.field(rating).type)
    book = open_ledger(ledger, budget)
    pairs, labels, dropped = _read_ratings(
        source, user, item, rating, classes=listed, missing=missing.value, name=label_set, book=book
    )
    estimator = _make_estimator(
        epsilon, sums=sums, factors=factors, sweeps=sweeps, pair_features=pair_features, seed=seed,
        ledger=book,
    )  # fmt: skip
    with shares("learning") as told:
        model = estimator.fit(pairs, labels, progress=told)
    facts: dict[str, Any] = {
        "source": str(table), "user": user, "item": item, "rating": rating,
        "rows": len(labels), "dropped": dropped, "values": model.values_.tolist(),
        "users": len(model.learner_.user_ids_), "items": len(model.learner_.item_ids_),
        "seeded": model.seeded_, **entry_facts(model.ledger_entry_),
    }  # fmt: skip
    # The promise is the model's.
    save_model(model, to, facts={name: one for name, one in without_owner(facts).items() if name not in PROMISE})
    facts = {"model": str(to), **facts, "guarantee": promise_facts(model.guarantee_)}
    answer(facts, as_json=as_json, show=lambda console: _show(console, model, facts))


def predict_ratings(
    model: Annotated[Path, typer.Argument(help="A model from `labeldp train-ratings`.")],
    table: Annotated[Path, typer.Argument(help="Pairs to predict, in the columns of training: a table.")],
    *,
    to: Annotated[Path, typer.Option("--to", help="A new file, whose name says the format; - is stdout.")],
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Predict ratings: a table with user, item, the expected rating and how uncertain it is.

    Users and items that were not in the training table are taken as average ones.

    [bold]Examples[/bold]

      labeldp predict-ratings model.skops pairs.csv --to predictions.parquet
    """
    from labeldp.learn.saved import load_model

    check_output(to, owner="predict-ratings", as_json=as_json)
    fitted = load_model(model)
    facts = getattr(fitted, "facts_", {})
    if not {"user", "item"} <= set(facts):
        fix = "Train one with `labeldp train-ratings`."
        raise invalid("predict-ratings", "model", "be one of ratings", got=model.name, fix=fix)
    columns = [facts["user"], facts["item"]]
    source = reading.open(table)
    source.require(*columns)
    with progress("predicting") as told:
        batches = list(_predict(fitted, source, columns, told))
        rows = write_rows(iter(batches), batches[0].schema, to)
    if str(to) == STDOUT:
        return
    said = {"predictions": str(to), "rows": rows, "columns": list(batches[0].schema.names)}
    answer(
        said,
        as_json=as_json,
        show=lambda console: console.print(
            styled(("predicted", "bold green"), f" {rows:,} pairs: ", (to, "bold"), " (expected rating, spread)"),
            soft_wrap=True,
        ),
    )


def _read_ratings(
    source: Any,
    user: str,
    item: str,
    rating: str,
    *,
    classes: list[Any] | None,
    missing: str,
    name: str | None,
    book: Any,
) -> tuple[Any, Any, int]:
    """Return the public pairs and the boxed ratings, after the checks that every label column passes."""
    from labeldp.learn.tables import read_labelled

    if len({user, item, rating}) < 3:
        raise invalid("train-ratings", "--rating", "differ from --user and --item, and those too", got=rating)
    rest = [column for column in source.names if column not in (user, item, rating)]
    table = read_labelled(
        source,
        label=rating,
        leave_out=rest,
        classes=classes,
        missing=missing,
        label_set=name_label_set(name, source.path, rating),
        ledger=book,
    )
    return _read_pairs(table.features, [user, item]), table.labels, table.dropped


def _read_pairs(table: Any, columns: list[str]) -> Any:
    """Return two columns of ids as one array: whole numbers if both are, else text."""
    import numpy as np

    from labeldp.learn.ratings.pairs import as_ids

    left, right = (as_ids(table[column].to_numpy(zero_copy_only=False)) for column in columns)
    if left.dtype.kind != right.dtype.kind:
        left, right = left.astype(str), right.astype(str)
    return np.column_stack([left, right])


def _make_estimator(
    epsilon: float,
    *,
    sums: float | None,
    factors: int | None,
    sweeps: int,
    pair_features: int,
    seed: int | None,
    ledger: Any,
) -> Any:
    """Return the learner that the options describe, unfitted."""
    from labeldp.learn.ratings import LabelPrivateRatings, MatrixFactorisation
    from labeldp.learn.ratings.private import default_factors

    learner = MatrixFactorisation(
        factors=default_factors(epsilon) if factors is None else factors,
        sweeps=sweeps,
        burn=max(1, sweeps * 3 // 10),
        pair_features=pair_features,
        random_state=seed,
    )
    return LabelPrivateRatings(learner, epsilon=epsilon, sums=sums, random_state=seed, ledger=ledger)


def _predict(fitted: Any, source: Any, columns: list[str], told: Any) -> Any:
    """Yield a table of predictions for each batch of pairs; `told` is called with how many rows are done."""
    import pyarrow as pa

    done = 0
    for batch in source.batches(columns=columns):
        part = pa.Table.from_batches([batch])
        asked = _read_pairs(part, columns)
        done += batch.num_rows
        told(done, source.rows)
        extra = {"expected": pa.array(fitted.predict(asked)), "spread": pa.array(fitted.predict_spread(asked))}
        yield pa.table({**{name: part[name] for name in columns}, **extra})


def _show(console: Console, model: Any, facts: dict[str, Any]) -> None:
    rows: list[tuple[str, Any]] = [
        ("learned from", f"{facts['rows']:,} ratings by {facts['users']:,} users of {facts['items']:,} items"),
        ("left out", f"{facts['dropped']:,} rows without a rating" if facts["dropped"] else None),
        ("ratings", ", ".join(f"{value:g}" for value in facts["values"])),
        *promise_rows(model.guarantee_),
    ]
    for stage in model.stages_:
        text = f"{stage.n_examples:,} ratings, {stage.n_channels} channels, information {stage.information:.3f} each"
        rows.append((f"stage {stage.number}", text))
    rows.append(("next", f"labeldp predict-ratings {facts['model']} TABLE --to predictions.parquet"))
    console.print(styled(("trained", "bold green"), " ", (facts["model"], "bold")), soft_wrap=True)
    console.print(facts_table(rows))
