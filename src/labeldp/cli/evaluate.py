"""The command `evaluate`: how good a saved model is, on labels that are public, protected, or released already.

A report on protected labels is itself a release of them: one measurement with noise, charged once, from which every figure of
the report follows. Labels that are declared public are scored exactly. From a release the report is free.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.predict import features_of, labels_of, predicts_numbers, require_features
from labeldp.cli.screen import (
    AsJson,
    Budget,
    LabelSet,
    LedgerFile,
    Person,
    Seed,
    answer,
    entry_facts,
    entry_text,
    facts_table,
    name_label_set,
    note,
    open_ledger,
    open_whole_table,
    read_ledger,
    require_path,
    spinner,
    styled,
    warn_seeded,
)
from labeldp.cli.tables import Consent, Reading, Tidying, options_of, refuse_other_kind
from labeldp.errors import Described, PrivacyError, invalid, nearest
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

#: What belongs to a report that is paid for.
PAYING = ("--budget", "--person", "--seed", "--label-set")
#: A confusion matrix of more classes does not fit a screen; --json has it.
WIDEST = 6


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model from `labeldp train`.")],
    table: Annotated[
        Path | None,
        typer.Argument(
            help="A table that the model has not learned from: its features, and its labels unless they were released."
        ),
    ] = None,
    *,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="The column of labels in the table.", metavar="COLUMN")
    ] = None,
    public_labels: Annotated[
        bool, typer.Option("--public-labels", help="These labels are no secret: score exactly, at no cost.")
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", "-e", help="What the whole report may spend on these labels.")
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(
            "--release",
            help="Labels that were released already: free. Without a table, the features beside them.",
            metavar="DIRECTORY",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw calibration (and ROC of classes): a new SVG file.", metavar="FILE"),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            "--positive",
            help="Of two classes, the one that AUC, calibration, precision and lift are about; the second of the model if left out.",
            metavar="CLASS",
        ),
    ] = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    person: Person = None,
    seed: Seed = None,
    rules: Tidying = Tidying(),
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Report how good a model is: accuracy, AUC, log loss, calibration, confusion, precision at k.

    Of a model that predicts numbers: RMSE, MAE, deviance, what is saved of the error of the mean label, calibration by decile.

    A report on protected labels is a release: rows are counted by score and label, with noise, at --epsilon, and charged
    once for all figures. Labels that are public knowledge are scored exactly, and the answer says that they were declared
    so. With --ledger the declaration is checked: labels that the ledger accounts for, by their name or by their rows, are
    refused. From labels that were released already (--release) the report costs nothing, and is noisier.

    With --person, --epsilon is for all labels of one person together: at most so many rows of each count as make the
    estimated error least, and the report says how many.

    [bold]Examples[/bold]

      labeldp evaluate model.skops test.csv --label income --epsilon 0.5 --ledger spent.sqlite

      labeldp evaluate model.skops stays.parquet -l readmitted -e 1 --person patient_nbr --ledger spent.sqlite

      labeldp evaluate model.skops test.parquet -l income --public-labels --plot report.svg

      labeldp evaluate model.skops test.parquet -l income --public-labels --ledger spent.sqlite

      labeldp evaluate model.skops test.csv -l ill --public-labels --positive yes

      labeldp evaluate model.skops --release held-out
    """
    _check_source(public_labels, epsilon, release)
    _refuse_idle(public_labels, release, table=table, ledger=ledger)
    consent.check_epsilon(epsilon)
    if plot is not None:
        from labeldp.release.saving import check_new

        check_new(plot, owner="evaluate")
    with spinner("scoring"):
        if release is not None:
            found = _from_release(model, table, release, reading=reading)
        else:
            place, column = _require_table(table, label)
            fitted = _load_model(model)
            refuse_other_kind("evaluate", numeric=predicts_numbers(fitted), of_classes=["--positive"])
            source = rules.apply(_open_for(fitted, place, reading), column)
            features, labels = _read_labelled(fitted, model, source, column)
            if not predicts_numbers(fitted):
                _check_spellings(fitted, labels, exact=epsilon is None)
            about = {} if positive is None else {"positive": _find_class(fitted, positive)}
            owners = None if person is None else _read_persons(source, person, column)
            name = name_label_set(label_set, place, column)
            if epsilon is None:
                _refuse_accounted(read_ledger(ledger, owner="evaluate"), reading.open(place, again=True), column, name)
                public = labels if predicts_numbers(fitted) else labels.to_pylist()
                found = _report(fitted, features, public, labels_are_public=True, **about)
            else:
                book = open_ledger(ledger, budget)
                # Columns as the file has them, and not as the model wants them: so `privatize` reads them too.
                whole, wanted = reading.open(place, again=True), features.column_names
                name = open_whole_table(name, whole, [column], book, features=wanted, persons=owners, person=person)
                paying = {"epsilon": epsilon, "label_set": name, "ledger": book, "rng": seed, "persons": owners}
                found = _report(fitted, features, labels, **paying, **about)
    if seed is not None:
        warn_seeded()
    facts = {"model": str(model), "table": None if table is None else str(table), **_list_facts(found)}
    if public_labels:
        facts["ledger"] = None if ledger is None else f"no release of these labels in {ledger.name}"
    facts["plot"] = None if plot is None else str(plot)
    answer(facts, as_json=as_json, show=lambda console: _show(console, found, facts))
    if plot is not None:  # after the answer: what was paid for is not lost with a full disk
        from labeldp.release.saving import write_new

        write_new(plot, found.to_svg().encode(), owner="evaluate")


def _check_source(public_labels: bool, epsilon: float | None, release: Path | None) -> None:
    """Refuse none or several of the three sources of truth."""
    asked = [public_labels, epsilon is not None, release is not None]
    if sum(asked) != 1:
        fix = "The labels are public, or their protection has a price, or they were released already."
        got = Described("neither" if not any(asked) else "both" if sum(asked) == 2 else "all of them")
        raise invalid("evaluate", "labels", "have --public-labels or --epsilon or --release", got=got, fix=fix)


def _refuse_idle(public_labels: bool, release: Path | None, *, table: Path | None, ledger: Path | None) -> None:
    """Refuse what does nothing for labels that are public, or that were released already."""
    if release is not None:
        fix = "Released labels have their own column and order of classes, and cost nothing."
        own = ("--label", "--ledger", "--positive", *options_of(Tidying), *PAYING)
        refuse_idle("evaluate", own, where="with --release", fix=fix)
    elif public_labels:
        fix = "Public labels are scored exactly, row by row: only --epsilon spends, and this is for --epsilon only."
        refuse_idle("evaluate", [one for one in PAYING if one != "--label-set"], where="with --public-labels", fix=fix)
        if ledger is None:
            fix = "It is the name that these labels have in a ledger: add --ledger FILE."
            refuse_idle("evaluate", ["--label-set"], where="without --ledger", fix=fix)
    if table is None:
        fix = "It is about a table, and none is given: released features are read as they were written."
        refuse_idle("evaluate", options_of(Reading), where="without a table", fix=fix)


def _require_table(table: Path | None, label: str | None) -> tuple[Path, str]:
    if table is None:
        raise invalid("evaluate", "TABLE", "be given", got=Described("nothing"), fix="Only --release needs no table.")
    if label is None:
        fix = "Say which column holds the labels."
        raise invalid("evaluate", "--label", "be given", got=Described("nothing"), fix=fix)
    return table, label


def _load_model(model: Path) -> Any:
    """Return a saved model of one label."""
    from labeldp.learn.saved import load_model

    fitted = load_model(model)
    if labels_of(fitted):
        fix = "Predict with `labeldp predict` and score each label by itself."
        raise invalid("evaluate", "model", "predict one label", got=Described("a model of several"), fix=fix)
    return fitted


def _open_for(fitted: Any, table: Path, reading: Reading) -> Any:
    """Open a table; columns that were text where the model was trained are text here."""
    return reading.open(table, as_text=getattr(fitted, "facts_", {}).get("text", ()))


def _read_labelled(fitted: Any, model: Path, source: Any, label: str) -> tuple[Any, Any]:
    """Return the features and the labels; rows without a label are refused."""
    from labeldp.data import label_profile
    from labeldp.data.tables import decode_dictionary
    from labeldp.learn.tables import read_columns

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
    return whole.select(wanted), decode_dictionary(whole[label])


def _find_class(fitted: Any, text: str) -> Any:
    """Return the class that is written so."""
    known = {str(value): value for value in getattr(fitted, "classes_", ())}
    if text not in known:
        raise invalid("evaluate", "--positive", "be a class of the model", got=text, fix=nearest(text, known))
    return known[text].item() if hasattr(known[text], "item") else known[text]


def _check_spellings(fitted: Any, labels: Any, *, exact: bool) -> None:
    """Refuse labels that are no class of the model, and say how they were tidied where the model learned.

    Where labels are public they are figures of their own, to which the model gives no chance: that is said.
    """
    known = set(fitted.classes_.tolist())
    row = next((row for row, value in enumerate(labels.to_pylist()) if value not in known), None)
    if row is None:
        return
    done = fitted.facts_.get("label_notes", ())
    tidied = f" Before it was trained: {'; '.join(map(str, done))}." if done else ""
    fix = f"Spelt in another way? --strip, or --merge CLASS=SPELLING; `labeldp look` shows the spellings.{tidied}"
    if exact:
        note(
            f"row {row:,} (rows count from 0) has a label that the model does not know; it is a class of its own. {fix}"
        )
        return
    got = Described(f"another one in row {row:,} (rows count from 0)")
    raise invalid("evaluate", "--label", "hold classes that the model knows", got=got, fix=fix)


def _read_persons(source: Any, person: str, label: str) -> Any:
    """Return who owns the rows."""
    from labeldp.learn.tables import read_columns
    from labeldp.release import Persons

    source.require(person)
    if person == label:
        fix = "It is what is to be hidden: name the column that says whose row it is."
        raise invalid("evaluate", "--person", "not be the label column", got=person, fix=fix)
    return Persons.of(read_columns(source, [person])[person], owner="evaluate")


def _from_release(model: Path, table: Path | None, directory: Path, *, reading: Reading) -> Any:
    """Return the report from released labels, with the features of the table or those beside the labels."""
    from labeldp.engines import open_released_table
    from labeldp.learn.tables import read_columns
    from labeldp.release import load_release

    require_path(directory, "--release", owner="evaluate", directory=True)
    fitted = _load_model(model)
    if table is None:
        source, released = open_released_table(directory)
    else:
        source, released = _open_for(fitted, table, reading), load_release(directory)
    wanted = features_of(fitted, model)
    require_features(source, wanted)
    return _report(fitted, read_columns(source, wanted), released)


def _report(fitted: Any, features: Any, labels: Any, **how: Any) -> Any:
    from labeldp.learn import evaluate as evaluate_model

    return evaluate_model(fitted, features, labels, **how)


def _refuse_accounted(book: Any, source: Any, label: str, name: str) -> None:
    """Refuse labels that are declared public where the ledger protects them, all or some, under this name or another.

    An entry about another column of this very table is about other labels.
    """
    if book is None:
        return
    import pyarrow as pa

    from labeldp.accounting import protect_rows
    from labeldp.learn.tables import read_columns

    whole = read_columns(source, list(source.names))
    ids = [
        column.to_pylist()
        for column in whole.columns
        if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_string(column.type))
    ]
    releases = book.find_releases(
        name, n_rows=whole.num_rows, find_rows=lambda key: protect_rows([whole], key, label=label), row_ids=ids
    )
    for entry in releases:
        column = entry.label_set.rpartition(":")[2]
        if entry.label_set == name or column == label or column not in source.names:
            same = (
                "" if entry.label_set == name else f", under the name {entry.label_set!r}: these rows, some, or as many"
            )
            raise PrivacyError(
                f"evaluate: these labels are accounted for in {book.path.name}, entry {entry.id}{same}. They are protected, "
                "and no score on them is exact and free. Use --epsilon; if they are other labels, leave --ledger out."
            )


SAID = {"public labels": "declared public", "protected labels": "protected", "released labels": "released already"}


def _list_facts(found: Any) -> dict[str, Any]:
    """Return the report for machines: the main figures as numbers, and all of it under `report`."""
    whole = found.facts()
    if hasattr(found, "rmse"):
        return _list_numbers(found, whole)
    main = ("accuracy", "majority", "balanced_accuracy", "auc", "log_loss", "constant_log_loss", "brier", "ece")
    facts: dict[str, Any] = {name: getattr(found, name).value for name in main}
    facts |= {
        "correct": round(found.accuracy.value * found.n_rows),
        "rows": found.n_rows,
        "labels": SAID[found.source],
        "noisy": found.source != "public labels",
        "seeded": found.seeded,
        "report": whole,
    }
    interval = found.accuracy.interval
    if interval is not None:
        facts["noise_within_95"] = max(found.accuracy.value - interval[0], interval[1] - found.accuracy.value)
    if found.n_counts is not None:
        facts |= {"noise": found.noise, **entry_facts(found.ledger_entry)}
    if found.guarantee is not None:
        facts["guarantee"] = promise_facts(found.guarantee)
    return facts


def _list_numbers(found: Any, whole: dict[str, Any]) -> dict[str, Any]:
    """Return the report on numbers for machines."""
    main = ("rmse", "mae", "gain", "explained", "deviance", "deviance_gain", "mean_error")
    facts: dict[str, Any] = {name: getattr(found, name).value for name in main}
    facts |= {"rows": found.n_rows, "labels": SAID[found.source], "noisy": found.source != "public labels"}
    facts |= {"seeded": found.seeded, "report": whole}
    if found.noise is not None:
        facts |= {"noise": found.noise, **entry_facts(found.ledger_entry)}
    if found.guarantee is not None:
        facts["guarantee"] = promise_facts(found.guarantee)
    return facts


# ---------------------------------------------------------------------------------------------------------- for people


def _show(console: Console, found: Any, facts: dict[str, Any]) -> None:
    console.print(styled(("evaluated", "bold green"), f" on {found.n_rows:,} rows with {found.source}"), soft_wrap=True)
    console.print(_main_table(found))
    if hasattr(found, "rmse"):
        console.print(_decile_table(found))
    else:
        console.print(_calibration_table(found))
        if found.confusion is not None and len(found.classes) <= WIDEST:
            console.print(_confusion_table(found))
        if found.tops:
            console.print(_top_table(found))
    said = {
        "public labels": "declared public by --public-labels: exact, and nothing was charged",
        "protected labels": "protected: this score is a release of them, charged once for all figures",
        "released labels": "released already: nothing more was spent",
    }
    rows: list[tuple[str, Any]] = [
        ("labels", said[found.source]),
        ("how", found.method),
        ("intervals", _explain_intervals(found)),
        *(("assumes", text) for text in found.assumptions),
        *(("beware", text) for text in found.notes),
        *(promise_rows(found.guarantee) if found.guarantee is not None else []),
        ("ledger entry", entry_text(facts) if "ledger_entry" in facts else None),
        ("ledger", facts.get("ledger")),
        ("plot", facts["plot"]),
    ]
    console.print(facts_table(rows))


def _explain_intervals(found: Any) -> str:
    population = "population: what rows like these would give, 95 of 100 times"
    if found.source == "public labels":
        return population
    return f"these rows: holds the exact figure of these rows 95 of 100 times; {population}"


def _main_table(found: Any) -> Any:
    from rich.table import Table

    noisy = found.source != "public labels"
    table = Table(title="Figures", title_justify="left", header_style="bold")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name in [*(["these rows"] if noisy else []), "population"]:
        table.add_column(name)
    table.add_column("beside", overflow="fold")
    for name, metric, beside in found.headline():
        between = [_between(metric.interval)] if noisy else []
        table.add_row(name, _number(metric), *between, _between(metric.population), metric.reason or beside)
    classes = getattr(found, "classes", ())
    for value, rate in zip(classes[:20], found.base_rates if classes else (), strict=False):
        between = [_between(rate.interval)] if noisy else []
        table.add_row(f"share of {value}", _number(rate), *between, _between(rate.population), rate.reason)
    return table


def _decile_table(found: Any) -> Any:
    from rich.table import Table

    from labeldp.release.numbers import say_number

    table = Table(title="Calibration by decile of the predictions", title_justify="left", header_style="bold")
    for name in ("predicted", "mean", "label", "95 %", "rows"):
        table.add_column(name, justify="right")
    for place in found.calibration:
        said = f"{say_number(place.low)} .. {say_number(place.high)}"
        ends = place.observed.interval or place.observed.population
        cells = (said, say_number(place.mean_prediction), _number(place.observed), _between(ends), f"{place.n_rows:,}")
        table.add_row(*cells)
    return table


def _calibration_table(found: Any) -> Any:
    from rich.table import Table

    what = str(found.classes[1]) if len(found.classes) == 2 else "the predicted class"
    table = Table(title=f"Calibration: the probability of {what}", title_justify="left", header_style="bold")
    for name in ("said", "mean", "came true", "95 %", "rows"):
        table.add_column(name, justify="right")
    for place in found.calibration:
        said = f"{place.low:.3f} .. {place.high:.3f}"
        ends = place.observed.interval or place.observed.population
        table.add_row(
            said, f"{place.mean_probability:.3f}", _number(place.observed), _between(ends), f"{place.n_rows:,}"
        )
    return table


def _confusion_table(found: Any) -> Any:
    from rich.table import Table

    table = Table(title="Confusion: rows by label (down) and prediction (across)", title_justify="left")
    table.add_column("", style="bold")
    for value in found.classes:
        table.add_column(str(value), justify="right")
    for value, row in zip(found.classes, found.confusion, strict=True):
        table.add_row(str(value), *(_cell(metric) for metric in row))
    return table


def _cell(metric: Any) -> str:
    """Return a number of rows, with half the width of its interval behind it."""
    if metric.interval is None:
        return f"{metric.value:,.0f}"
    return f"{metric.value:,.0f} ±{(metric.interval[1] - metric.interval[0]) / 2:,.0f}"


def _top_table(found: Any) -> Any:
    from rich.table import Table

    table = Table(title="The rows of the largest probability", title_justify="left", header_style="bold")
    for name in ("class", "rows", "precision", "95 %", "lift"):
        table.add_column(name, justify="right")
    shown = [top for top in found.tops if top.share <= 0.25 or len(found.tops) < 5]
    for top in shown[:16]:
        ends = top.precision.interval or top.precision.population
        taken = f"{top.n_rows:,} ({100 * top.share:.3g}%)"
        table.add_row(str(top.class_), taken, _number(top.precision), _between(ends), _number(top.lift))
    return table


def _number(metric: Any) -> str:
    return "-" if metric.value is None else _figure(metric.value)


def _figure(value: float) -> str:
    """Return a number in four decimals, a large one in fewer."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def _between(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{_figure(ends[0])} .. {_figure(ends[1])}"
