"""The commands that use a saved model: `predict` answers for a raw table, `evaluate` says how good the model is.

A prediction is made from features alone and costs nothing. A score on protected labels is itself a release of them: the
number of right predictions is counted with noise and charged. Labels that are declared public are scored exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import (
    AsJson,
    Budget,
    Label,
    LabelSet,
    LedgerFile,
    Seed,
    answer,
    entry_facts,
    entry_text,
    facts_table,
    name_label_set,
    open_ledger,
    progress,
    read_ledger,
    spinner,
    split_names,
    styled,
    warn_seeded,
)
from labeldp.cli.tables import STDOUT, Consent, LabelRules, Reading, check_output, write_rows
from labeldp.errors import Described, LabelDPError, PrivacyError, invalid
from labeldp.report.words import percent, promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console


def predict(
    model: Annotated[Path, typer.Argument(help="A model from `labeldp train`.")],
    table: Annotated[Path, typer.Argument(help="The table to predict.")],
    *,
    to: Annotated[
        Path,
        typer.Option("--to", help="A new file, whose name says the format (.csv, .parquet, .jsonl, ...); - is stdout."),
    ],
    keep: Annotated[
        str | None, typer.Option("--keep", help="Columns of the table to carry over, with commas (ids).")
    ] = None,
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Predict labels: a table with the likeliest class and the probability of each.

    A model of several labels at once gives 0 or 1 for each of them instead.

    [bold]Examples[/bold]

      labeldp predict model.skops new.parquet --to predictions.parquet

      labeldp predict model.skops new.csv --to predictions.csv --keep id

      labeldp predict model.skops new.csv --to - | head
    """
    from labeldp.learn.saved import load_model

    check_output(to, owner="predict", as_json=as_json)
    fitted = load_model(model)
    source = reading.open(table, as_text=getattr(fitted, "facts_", {}).get("text", ()))
    carried = split_names(keep)
    source.require(*carried)
    wanted = features_of(fitted, model)
    require_features(source, wanted)
    names = answer_names(fitted)
    taken = next((name for name in carried if name in names), None)
    if taken is not None:
        raise invalid("predict", "--keep", "not name a column of the answer", got=taken)
    with progress("predicting") as told:
        batches = _predict_batches(fitted, source, wanted=wanted, carried=carried, names=names, told=told)
        first = next(batches)  # the types of the columns are known when the first answer is
        rows = write_rows(itertools.chain([first], batches), first.schema, to)
    if str(to) == STDOUT:
        return
    facts = {"predictions": str(to), "rows": rows, "columns": list(first.schema.names)}
    answer(
        facts,
        as_json=as_json,
        show=lambda console: console.print(
            styled(("predicted", "bold green"), f" {rows:,} rows: ", (to, "bold"), f" ({', '.join(names[:3])}, ...)"),
            soft_wrap=True,
        ),
    )


def features_of(fitted: Any, path: Path) -> list[str]:
    """Return the columns that a saved model reads."""
    features = getattr(fitted, "facts_", {}).get("features")
    if features is None:
        fix = "Train one with `labeldp train`."
        raise invalid("predict", "model", "be one that takes tables", got=path.name, fix=fix)
    return [str(name) for name in features]


def require_features(source: Any, wanted: list[str]) -> None:
    """Refuse a table that lacks columns which a model reads, and name all of them."""
    absent = [name for name in wanted if name not in source.names]
    if len(absent) > 1:
        got = Described(f"a table without {', '.join(absent[:8])}{', ...' if len(absent) > 8 else ''}")
        raise invalid(source.path.name, "columns", "be those that the model was trained on", got=got)
    source.require(*absent)


def labels_of(fitted: Any) -> list[str]:
    """Return the labels of a model that predicts several at once; none for a model of one label."""
    return [str(name) for name in fitted.facts_.get("labels", ())]


def answer_names(fitted: Any) -> list[str]:
    """Return the columns of an answer."""
    several = labels_of(fitted)
    first = [f"predicted_{name}" for name in several] or ["predicted"]
    return first + [f"probability_{name}" for name in (several or fitted.classes_)]


def _predict_batches(
    fitted: Any, source: Any, *, wanted: list[str], carried: list[str], names: list[str], told: Any
) -> Iterator[Any]:
    """Yield a table of answers for each batch of rows."""
    import pyarrow as pa

    done = 0
    for batch in source.batches(columns=list(dict.fromkeys([*carried, *wanted]))):
        features = pa.Table.from_batches([batch.select(wanted)])
        chances = fitted.predict_proba(features)
        columns = [batch.column(name) for name in carried]
        if labels_of(fitted):
            columns += [pa.array(column) for column in fitted.predict(features).T]
        else:
            columns.append(pa.array(fitted.classes_[chances.argmax(axis=1)].tolist()))
        columns += [pa.array(column) for column in chances.T]
        done += batch.num_rows
        told(done, source.rows)
        yield pa.table(dict(zip([*carried, *names], columns, strict=True)))


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model from `labeldp train`.")],
    table: Annotated[Path, typer.Argument(help="A table with labels that the model has not learned from.")],
    *,
    label: Label,
    public_labels: Annotated[
        bool, typer.Option("--public-labels", help="These labels are no secret: score exactly, at no cost.")
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", "-e", help="What the noisy score may spend on these labels.")
    ] = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    seed: Seed = None,
    rules: LabelRules = LabelRules(),
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Score a model on labels of its own.

    Scoring on protected labels is a release: the number of right predictions is counted with noise at --epsilon and
    charged. Labels that are public knowledge are scored exactly, and the answer says that they were declared so. With
    --ledger the declaration is checked: labels that the ledger accounts for, by their name or by their rows, are refused.

    [bold]Examples[/bold]

      labeldp evaluate model.skops test.parquet --label income --public-labels

      labeldp evaluate model.skops test.parquet -l income --public-labels --ledger spent.sqlite

      labeldp evaluate model.skops test.csv -l income --epsilon 0.5 --ledger spent.sqlite
    """
    if public_labels == (epsilon is not None):
        fix = "Either the labels are public, or their protection has a price."
        got = Described("both" if public_labels else "neither")
        raise invalid("evaluate", "labels", "have --public-labels or --epsilon", got=got, fix=fix)
    if public_labels and budget is not None:
        raise LabelDPError("evaluate: public labels cost nothing. Leave --budget out.")
    consent.check_epsilon(epsilon)
    source = reading.open(table)
    source = rules.apply(source, label)
    with spinner("scoring"):
        classes, chances, labels = _predict_labelled(model, source, label)
        name = name_label_set(label_set, table, label)
        if epsilon is None:
            _refuse_accounted(read_ledger(ledger, owner="evaluate"), source, label, name)
            facts = _score_exactly(classes, chances, labels)
            facts["ledger"] = None if ledger is None else f"no release of these labels in {ledger.name}"
        else:
            book = open_ledger(ledger, budget)
            facts = _score_with_noise(classes, chances, labels, epsilon=epsilon, name=name, ledger=book, seed=seed)
    if seed is not None:
        warn_seeded()
    promise = facts.pop("promise", None)
    facts = {"model": str(model), "table": str(table), **facts}
    if promise is not None:
        facts["guarantee"] = promise_facts(promise)
    answer(facts, as_json=as_json, show=lambda console: _show(console, facts, promise))


def _predict_labelled(model: Path, source: Any, label: str) -> tuple[Any, Any, Any]:
    """Return the model's classes and probabilities, and the labels; rows without a label are refused."""
    from labeldp.data import label_profile
    from labeldp.learn.saved import load_model
    from labeldp.learn.tables import decode_column, read_columns

    fitted = load_model(model)
    if labels_of(fitted):
        fix = "Predict with `labeldp predict` and score each label by itself."
        raise invalid("evaluate", "model", "predict one label", got=Described("a model of several"), fix=fix)
    source.require(label)
    wanted = features_of(fitted, model)
    require_features(source, wanted)
    if label in wanted:
        raise invalid("evaluate", "--label", "not be a feature of the model", got=label)
    missing = label_profile(source, label).missing
    if missing:
        fix = "Score on rows with a label."
        raise invalid(label, "label", "have no missing values", got=Described(f"{missing:,} missing"), fix=fix)
    whole = read_columns(source, [*wanted, label])
    return fitted.classes_, fitted.predict_proba(whole.select(wanted)), decode_column(whole[label])


def _refuse_accounted(book: Any, source: Any, label: str, name: str) -> None:
    """Refuse labels that are declared public where the ledger protects them, under this name or another.

    An entry about another column of this very table is about other labels.
    """
    if book is None:
        return
    import pyarrow as pa

    from labeldp.learn.tables import read_columns

    whole = read_columns(source, list(source.names))
    ids = (
        column.to_pylist()
        for column in whole.columns
        if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_string(column.type))
    )
    for entry in book.find_releases(name, n_rows=whole.num_rows, row_ids=ids):
        column = entry.label_set.rpartition(":")[2]
        if entry.label_set == name or column == label or column not in source.names:
            same = "" if entry.label_set == name else f", under the name {entry.label_set!r}: the same rows, or as many"
            raise PrivacyError(
                f"evaluate: these labels are accounted for in {book.path.name}, entry {entry.id}{same}. They are protected, "
                "and no score on them is exact and free. Use --epsilon; if they are other labels, leave --ledger out."
            )


def _score_exactly(classes: Any, chances: Any, labels: Any) -> dict[str, Any]:
    """Return the exact score; a label that is no class of the model is a wrong prediction of certain loss."""
    import numpy as np

    from labeldp.learn.scoring import find_codes

    codes = find_codes(labels.to_pylist(), classes.tolist())
    known = codes >= 0
    given = np.where(known, chances[np.arange(len(codes)), codes.clip(min=0)], 0.0)
    # Clipped as scikit-learn does: a probability of zero has no finite log.
    loss = -np.log(np.clip(given, np.finfo(np.float64).eps, 1.0)).mean()
    right = int((chances.argmax(axis=1) == codes).sum())
    score = {"accuracy": right / len(codes), "log_loss": float(loss), "correct": right, "rows": len(codes)}
    return {**score, "labels": "declared public", "noisy": False}


def _score_with_noise(
    classes: Any, chances: Any, labels: Any, *, epsilon: float, name: str, ledger: Any, seed: int | None
) -> dict[str, Any]:
    """Return the score as a release: counted with noise, and charged where there is a ledger."""
    from labeldp.learn.scoring import score_privately

    score = score_privately(
        classes[chances.argmax(axis=1)],
        labels,
        classes=classes.tolist(),
        epsilon=epsilon,
        ledger=ledger,
        label_set=name,
        rng=seed,
    )
    n = score.n_examples
    noise = {"noise": score.noise, "noise_within_95": score.within / n, **entry_facts(score.ledger_entry)}
    return {
        "accuracy": score.accuracy,
        "correct": score.correct,
        "rows": n,
        "labels": "protected",
        "noisy": True,
        **noise,
        "seeded": score.seeded,
        "promise": score.guarantee,
    }


def _show(console: Console, facts: dict[str, Any], promise: Any) -> None:
    if promise is None:
        rows: list[tuple[str, Any]] = [
            ("accuracy", f"{percent(facts['accuracy'])} ({facts['correct']:,} of {facts['rows']:,})"),
            ("log loss", f"{facts['log_loss']:.4f}"),
            ("labels", "declared public by --public-labels: exact, and nothing was charged"),
            ("ledger", facts["ledger"]),
        ]
    else:
        width = percent(facts["noise_within_95"], up=True)
        rows = [
            ("accuracy", f"{percent(facts['accuracy'])} of {facts['rows']:,}, with noise"),
            ("noise", f"within {width} in 95 of 100 draws ({facts['noise']} on the count of right predictions)"),
            ("labels", "protected: this score is a release of them"),
            *promise_rows(promise),
            ("ledger entry", entry_text(facts)),
        ]
    console.print(facts_table(rows))
