"""The command `predict`: what a saved model says of a raw table. It is made from features alone and costs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.screen import AsJson, answer, progress, split_names, styled
from labeldp.cli.tables import STDOUT, Reading, check_output, write_rows
from labeldp.errors import Described, invalid


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
    """Predict labels: a table with the likeliest class and the probability of each; of numbers, with the expected one.

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
            styled(
                ("predicted", "bold green"),
                f" {rows:,} rows: ",
                (to, "bold"),
                f" ({', '.join(names[:3])}{', ...' if names[3:] else ''})",
            ),
            soft_wrap=True,
        ),
    )


def features_of(fitted: Any, path: Path) -> list[str]:
    """Return the columns that a saved model reads."""
    features = getattr(fitted, "facts_", {}).get("features")
    if features is None:
        fix = "Train one with `labeldp train`; one of ratings is for `labeldp predict-ratings`."
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


def predicts_numbers(fitted: Any) -> bool:
    """Whether a saved model is a regressor."""
    return hasattr(fitted, "bounds_")


def answer_names(fitted: Any) -> list[str]:
    """Return the columns of an answer."""
    if predicts_numbers(fitted):
        return ["predicted"]
    several = labels_of(fitted)
    first = [f"predicted_{name}" for name in several] or ["predicted"]
    return first + [f"probability_{name}" for name in (several or fitted.classes_)]


def _predict_batches(
    fitted: Any, source: Any, *, wanted: list[str], carried: list[str], names: list[str], told: Any
) -> Iterator[Any]:
    """Yield a table of answers for each batch of rows."""
    import numpy as np
    import pyarrow as pa

    done = 0
    for batch in source.batches(columns=list(dict.fromkeys([*carried, *wanted]))):
        features = pa.Table.from_batches([batch.select(wanted)])
        columns = [batch.column(name) for name in carried]
        chances = np.empty((batch.num_rows, 0)) if predicts_numbers(fitted) else fitted.predict_proba(features)
        if predicts_numbers(fitted):
            columns.append(pa.array(fitted.predict(features)))
        elif labels_of(fitted):
            columns += [pa.array(column) for column in fitted.predict(features).T]
        else:
            columns.append(pa.array(fitted.classes_[chances.argmax(axis=1)].tolist()))
        columns += [pa.array(column) for column in chances.T]
        done += batch.num_rows
        told(done, source.rows)
        yield pa.table(dict(zip([*carried, *names], columns, strict=True)))
