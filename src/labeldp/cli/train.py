"""`labeldp train`: a model from a release, or from an owner's table through the door."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from labeldp.cli.given import given_options, refuse_idle
from labeldp.cli.screen import (
    AsJson,
    Budget,
    Classes,
    LabelSet,
    LedgerFile,
    Missing,
    MissingLabels,
    Person,
    RowIds,
    Seed,
    answer,
    facts_table,
    name_label_set,
    note,
    open_ledger,
    percent_or_none,
    progress,
    show_plain,
    spinner,
    split_names,
    styled,
    warn_seeded,
    without_owner,
)
from labeldp.cli.tables import (
    Consent,
    LabelChoice,
    LabelRules,
    NumberRules,
    Reading,
    ask_about_labels,
    refuse_other_kind,
)
from labeldp.errors import Described, LabelDPError, invalid, nearest
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

MODEL, OWNER = "Model", "From a table (its owner)"


class Estimator(str, Enum):
    """The classifiers that have a name here, and the regressors: ridge, and forest and boosting, which are both."""

    softmax = "softmax"
    logistic = "logistic"
    forest = "forest"
    boosting = "boosting"
    bayes = "bayes"
    lightgbm = "lightgbm"
    xgboost = "xgboost"
    catboost = "catboost"
    ridge = "ridge"


class Correction(str, Enum):
    """How training accounts for the noise."""

    auto = "auto"
    forward = "forward"
    posterior = "posterior"
    unbiased = "unbiased"
    none = "none"


class TrustChoice(str, Enum):
    """Whom the owners of labels trust."""

    no_one = "no-one"
    curator = "curator"


class PriorChoice(str, Enum):
    """What the first stage knows."""

    none = "none"
    cluster = "cluster"


#: What stands for a bare --search: the grid that the estimator has.
OWN_GRID = "auto"
#: What may be said about a model from a release, and what of it only classifiers have.
OF_A_RELEASE = {"--to", "--estimator", "--correction", "--search", "--drop", "--json"}
FOR_CLASSES = ("--search", "--trust", "--clusters", "--prior", "--correction")
#: Folds of a search: a candidate is trained three times, and the winner once more on all rows.
FOLDS = 3


class TrainCommand(TyperCommand):
    """The command, whose --search may stand alone: typer knows no option that may or may not have a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a bare --search its value, then read the line as always."""
        told: list[str] = []
        for place, word in enumerate(args):
            told.append(word)
            if word == "--search" and not any("=" in after for after in args[place + 1 : place + 2]):
                told.append(OWN_GRID)
        parsed: list[str] = super().parse_args(ctx, told)
        return parsed


def train(
    source: Annotated[Path, typer.Argument(help="A release directory, or a table: CSV, JSON lines, Parquet, Arrow.")],
    *,
    to: Annotated[Path, typer.Option("--to", help="The model: a new file.", metavar="FILE")],
    estimator: Annotated[
        Estimator | None,
        typer.Option(
            "--estimator",
            help="The classifier (softmax if left out); for numbers ridge (if left out), forest or boosting.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    correction: Annotated[
        Correction, typer.Option("--correction", help="How training accounts for the noise.", rich_help_panel=MODEL)
    ] = Correction.auto,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            help=(
                "Choose settings by released labels: alone, among a few of the estimator; or SETTING=VALUE,VALUE,... of "
                "your own, repeatable."
            ),
            metavar="[SETTING=VALUES]",
            rich_help_panel=MODEL,
        ),
    ] = None,
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
    trust: Annotated[
        TrustChoice | None,
        typer.Option(
            "--trust", help="Whom the labels' owners trust; no-one unless --prior says more.", rich_help_panel=OWNER
        ),
    ] = None,
    stages: Annotated[
        int | None,
        typer.Option(
            "--stages",
            help="1, or more: each stage's model informs the next. Chosen if left out.",
            rich_help_panel=OWNER,
        ),
    ] = None,
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
    numbers: NumberRules = NumberRules(),
    missing: MissingLabels = Missing.error,
    row_ids: RowIds = None,
    person: Person = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    seed: Seed = None,
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Train a classifier on released labels, or a regressor on released numbers.

    From a release directory no label and no budget is needed. From a table, its labels are privatized inside at
    --epsilon; with --save-release others can train the same model from that directory alone. The model takes raw
    tables: it scales numbers and encodes text itself. Softmax regression reads a long table in batches; the other
    estimators, --trust curator, --prior cluster and --search need it in memory. LightGBM, XGBoost and CatBoost must be installed.

    A release of numbers trains a regressor with squared loss: ridge regression, whose penalty is chosen on the released
    numbers, or --estimator forest or boosting. From a table, labels that are numbers have --bounds or --counts.

    With --person the unit is the person: epsilon is for all labels of one together, some of her rows have no answer, and the
    column of ids is no feature. A release that was made with --person says which column that is; it is left out too.

    --search trains every candidate on released labels of two thirds of the rows, three times, and scores it by how likely
    it makes the released labels of the third. That reads the one release and costs nothing more; the model carries the
    guarantee of the whole search. Alone it tries l2 1e-4 to 0.1 (softmax), C 0.01 to 10 (logistic), min_samples_leaf 5 to
    100 (forest), var_smoothing 1e-9 to 0.1 (bayes), and learning_rate 0.03, 0.1 with leaves 7, 15, 31 (boosting, lightgbm)
    or depths 2, 4, 6 (xgboost, catboost). A search that is stopped after --save-release goes on from that directory.

    [bold]Examples[/bold]

      labeldp train release --to model.skops

      labeldp train people.parquet --label income --epsilon 1 --to model.skops

      labeldp train people.csv -l income -e 1 --stages 2 --to model.skops --ledger spent.sqlite --budget 2

      labeldp train stays.parquet -l readmitted -e 1 --person patient_nbr --to model.skops

      labeldp train people.csv -l income -e 0.2 --trust curator --save-release release --to model.skops

      labeldp train claims.parquet -l amount -e 1 --bounds 0,5000 --to model.skops

      labeldp train release --to model.skops --estimator lightgbm --search

      labeldp train release --to model.skops --search l2=0.001,0.01,0.1
    """
    from labeldp.learn.saved import save_model
    from labeldp.release.saving import check_new

    check_new(to, owner="train")
    _require_source(source)
    released = source.is_dir() and (source / "release.json").exists()
    numeric = _holds_numbers(source) if released else numbers.given
    if released:
        _refuse_owner_options()
    if numeric:
        fix = "Labels are numbers: ridge chooses its penalty itself, on what was released."
        refuse_idle("train", FOR_CLASSES, where="for labels that are numbers", fix=fix)
    refuse_other_kind("train", numeric=numeric)
    consent.check_epsilon(epsilon)
    if seed is not None:
        warn_seeded()
    default = Estimator.ridge if numeric else Estimator.softmax
    shape = {"estimator": (estimator or default).value}
    shape |= {} if numeric else {"correction": correction.value}
    choice = (
        None
        if released
        else _choose_labels(
            reading, rules, source, label, classes=classes, missing=missing.value, numbers=numbers.given
        )
    )
    grid = None if not search else _read_grid(estimator or default, search)
    with _show_work(grid) as told:
        if choice is None:
            model, used = _from_release(source, shape, drop=split_names(drop), search=told)
        else:
            owner = _Owner(
                table=choice.source,
                label=_require("--label", label, source),
                epsilon=_require("--epsilon", epsilon, source),
                classes=choice.classes,
                missing=choice.missing,
                row_ids=row_ids,
                person=person,
                drop=tuple(split_names(drop)),
                label_set=label_set,
                ledger=open_ledger(ledger, budget),
                numbers=numbers,
            )
            chosen = _choose_prior(prior, clusters)
            plan = {
                "trust": None if trust is None else trust.value.replace("-", " "),
                "stages": "auto" if stages is None else stages,
                "prior": "auto" if chosen is None else chosen,
            }
            if numeric:
                plan = {"stages": 1 if stages is None else stages}
            model, used = _from_table(owner, shape, plan, seed=seed, keep=save_release, search=told)
        used["preparation"], used["text"] = _describe_preparation(model)
        save_model(model, to, facts=without_owner(used))
    facts = {"model": str(to), **used, "guarantee": promise_facts(model.guarantee_), "seeded": model.release_.seeded}
    facts["stages"] = [_without_nan(dataclasses.asdict(stage)) for stage in model.stages_]
    answer(facts, as_json=as_json, show=lambda console: _show(console, model, facts))


def _require_source(source: Path) -> None:
    """Refuse a name that nothing has, with the releases and tables beside it."""
    if source.exists() or not source.parent.is_dir():
        return
    from labeldp.data.tables import is_table

    beside = sorted(source.parent.iterdir()) if os.access(source.parent, os.R_OK | os.X_OK) else []
    # Folders of others, which may not be looked into, are passed over.
    releases = [str(one) for one in beside if os.access(one, os.X_OK) and (one / "release.json").is_file()]
    tables = [str(one) for one in beside if one.is_file() and is_table(one.name)]
    fix = nearest(str(source), [*releases, *tables])
    raise invalid("train", "SOURCE", "be a release or a table that exists", got=str(source), fix=fix)


def _without_nan(record: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and value != value else value for name, value in record.items()}  # noqa: PLR0124 - NaN


def _choose_labels(
    reading: Reading,
    rules: LabelRules,
    path: Path,
    label: str | None,
    *,
    classes: str | None,
    missing: str,
    numbers: bool,
) -> LabelChoice:
    """Return an owner's table with its labels tidied, after what there is to ask about them."""
    source = reading.open(path)
    column = _require("--label", label, path)
    source = rules.apply(source, column)
    listed = rules.classes(classes, source.schema.field(column).type)
    return ask_about_labels(source, column, classes=listed, missing=missing, numbers=numbers)


def _holds_numbers(directory: Path) -> bool:
    """Whether the labels of a release are numbers."""
    from labeldp.release.manifest import read_manifest

    return bool(read_manifest(directory).content["channel"].get("kind") == "numbers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Owner:
    """What only the owner of labels says."""

    table: Any
    label: str
    epsilon: float
    classes: list[Any] | None
    missing: str
    row_ids: str | None
    person: str | None
    drop: tuple[str, ...]
    label_set: str | None
    ledger: Any
    numbers: NumberRules


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Search:
    """What to choose among, and whom to tell of each fit."""

    grid: dict[str, list[Any]]
    told: Any

    def around(self, model: Any, **more: Any) -> Any:
        """Return the search among settings of a learner."""
        from labeldp.learn import PrivateSearchCV

        return PrivateSearchCV(model, self.grid, cv=FOLDS, progress=self.told, **more)


def _read_grid(estimator: Estimator, search: list[str]) -> dict[str, list[Any]]:
    from labeldp.learn.named import search_grid

    return search_grid(estimator.value, [text for text in search if text != OWN_GRID])


@contextmanager
def _show_work(grid: dict[str, list[Any]] | None) -> Iterator[_Search | None]:
    """Show that a model is trained, or how far a search is."""
    if grid is None:
        with spinner("training"):
            yield None
        return
    with progress("searching") as told:
        yield _Search(grid=grid, told=told)


def _describe_search(search: Any) -> dict[str, Any]:
    """Return the candidates, the best first, by the names that the classifier itself has for its settings."""
    from labeldp.learn.named import INSIDE

    results = search.cv_results_
    rows = [
        {
            "settings": {name.removeprefix(INSIDE): value for name, value in results["params"][place].items()},
            "score": float(results["mean_test_score"][place]),
            "behind": float(results["behind"][place]),
            "error": float(results["behind_error"][place]),
        }
        for place in sorted(range(len(results["params"])), key=lambda one: results["rank_test_score"][one])
    ]
    return {"score": "mean log likelihood of released labels held out", "folds": FOLDS, "candidates": rows}


def _from_release(
    directory: Path, shape: dict[str, str], *, drop: list[str], search: _Search | None
) -> tuple[Any, dict[str, Any]]:
    from labeldp.engines import open_released_table
    from labeldp.learn.named import table_classifier, table_regressor
    from labeldp.learn.tables import TableRows, feature_columns, read_columns

    source, release = open_released_table(directory)
    ids = release.person_column
    if ids is not None and ids not in drop:
        note(f"{ids!r} says whose row it is, and is left out of the features.")
    columns = feature_columns(source, label=None, leave_out=[*drop, *([] if ids is None else [ids])])
    make: Any = table_regressor if release.channel.outputs_are_numbers else table_classifier
    size = _batch_rows(source, shape["estimator"], searching=search is not None)
    features = read_columns(source, columns) if size is None else TableRows(source, columns, batch_rows=size)
    model = make(**shape, epsilon=release.guarantee.epsilon(), columns=columns)
    used = {"source": str(directory), "label": release.label_column, "rows": len(release), "features": columns}
    used |= {} if ids is None else {"person": ids}
    used |= {"label_notes": list(release.label_notes)} if release.label_notes else {}
    if search is None:
        # Whoever has many rows counts a little more, as where labels are randomized and learned from at once.
        owners = {}
        if ids is not None and not release.channel.outputs_are_numbers:
            owners["persons"] = read_columns(source, [ids])[ids]
        return model.fit_release(features, release, **owners), used
    found = search.around(model).fit_release(features, release)
    return found.best_estimator_, {**used, "search": _describe_search(found)}


def _from_table(
    owner: _Owner,
    shape: dict[str, str],
    plan: dict[str, Any],
    *,
    seed: int | None,
    keep: Path | None,
    search: _Search | None,
) -> tuple[Any, dict[str, Any]]:
    from dataclasses import replace

    from labeldp.learn.named import table_classifier, table_regressor
    from labeldp.learn.tables import read_labelled
    from labeldp.release.saving import check_saving

    source = owner.table
    source.require(owner.label)
    ways = owner.numbers.ways()
    counts = plan.get("prior", "auto") != "auto" or plan.get("trust") == "curator"
    labelled = read_labelled(
        source,
        label=owner.label,
        leave_out=owner.drop,
        classes=owner.classes,
        missing=owner.missing,
        row_ids=owner.row_ids,
        persons=owner.person,
        label_set=name_label_set(owner.label_set, source.path, owner.label),
        ledger=owner.ledger,
        batch_rows=None if counts else _batch_rows(source, shape["estimator"], searching=search is not None),
        **ways,
    )
    if keep is not None:
        check_saving(keep, classes=labelled.labels.classes, columns=labelled.features.column_names, owner="train")
    columns = labelled.features.column_names
    if owner.numbers.given:
        plan = {**plan, "mechanism": _choose_response(owner, labelled.labels.bounds), "outside": ways["outside"]}
    make: Any = table_regressor if owner.numbers.given else table_classifier
    model = make(**shape, epsilon=owner.epsilon, columns=columns, **plan)
    paid = {"random_state": seed, "ledger": owner.ledger}
    learner = model.set_params(**paid) if search is None else search.around(model, epsilon=owner.epsilon, **paid)
    try:
        learner.fit(labelled.features, labelled.labels, persons=labelled.persons)
    finally:
        # A search that fails or is stopped after the draw leaves the release that was paid for.
        if keep is not None and hasattr(learner, "release_"):
            notes = () if source.rewritten is None else tuple(source.rewritten.words)
            saved = replace(learner.release_, label_column=owner.label, label_notes=notes)
            saved.save(keep, features=labelled.features)
    chosen = {} if search is None else {"search": _describe_search(learner)}
    model = learner if search is None else learner.best_estimator_
    used = {"source": str(source.path), "label": owner.label, "rows": len(labelled.labels), "features": columns}
    if labelled.persons is not None:
        used |= {"person": owner.person, "persons": labelled.persons.n_persons, "answered": len(learner.release_)}
    return model, {**used, "dropped": labelled.dropped, "release": None if keep is None else str(keep), **chosen}


def _choose_response(owner: _Owner, bounds: Any) -> Any:
    """Return the mechanism for numbers: every count is a level; amounts have the levels of the default."""
    from labeldp.mechanisms import UnbiasedResponse

    if owner.numbers.counts is None:
        return UnbiasedResponse(owner.epsilon, bounds=bounds)
    return UnbiasedResponse(owner.epsilon, bounds=bounds, grid="integers")


def _describe_preparation(model: Any) -> tuple[list[str], list[str]]:
    """Return what was done to the columns, in words, and which of them are read as text."""
    encoder = model.transformer_[0]
    return list(encoder.notes_), list(encoder.categories_)


def _batch_rows(source: Any, estimator: str, *, searching: bool) -> int | None:
    """Return the size of the batches to train in, or None to train in memory.

    A table of one batch fits into memory; so must one for an estimator that sees all rows at once, for a prior that
    clusters them, and for a search, which holds rows out. Softmax regression reads a longer table batch by batch, in each
    step of its solver.
    """
    from labeldp.data.tables import BATCH_ROWS
    from labeldp.learn.tables import is_longer

    if estimator != Estimator.softmax.value or not is_longer(source, BATCH_ROWS):
        return None
    if searching:
        note("a search reads the whole table into memory, which training alone would not.")
        return None
    return BATCH_ROWS


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


def _refuse_owner_options() -> None:
    """A release is public already: options that would read, protect or charge it again are a misunderstanding."""
    fix = "The source is a release: its labels are randomized already, its promise stands, and it says how it is read."
    refuse_idle("train", set(given_options()) - OF_A_RELEASE, where="for a release", fix=fix)


def _show(console: Console, model: Any, facts: dict[str, Any]) -> None:
    from labeldp.release.numbers import say_number

    dropped = facts.get("dropped")
    rows: list[tuple[str, Any]] = [
        ("learned from", f"{facts['rows']:,} rows, {len(facts['features'])} features of {facts['source']}"),
        ("left out", f"{dropped:,} rows without a label" if dropped else None),
        (
            "persons",
            f"{facts['persons']:,} by {facts['person']}: {facts['answered']:,} answers" if "persons" in facts else None,
        ),
        ("label", f"{facts['label']} ({_describe_kind(model)})"),
        *promise_rows(model.guarantee_),
    ]
    for stage in model.stages_ if hasattr(model, "bounds_") else ():
        off = f"{say_number(stage.noise**0.5)} in the root mean square"
        rows.append((f"stage {stage.number}", f"{stage.n_examples:,} rows, an answer is off by {off}"))
    for stage in () if hasattr(model, "bounds_") else model.stages_:
        text, right = f"{stage.n_examples:,} rows", percent_or_none(stage.expected_accuracy)
        if right is not None and model.release_.channel.outputs_are_labels:
            text += f", {stage.average_k:.1f} candidates on average, {right} of labels expected right"
        elif right is not None:
            text += f", sets of {stage.average_k:.1f} classes on average, the true one expected in {right} of them"
        rows.append((f"stage {stage.number}", text))
    rows += [("columns", line) for line in facts["preparation"]]
    rows += [("correction", getattr(model, "correction_", None)), ("release", facts.get("release"))]
    rows.append(("next", f"labeldp predict {facts['model']} TABLE --to predictions.parquet"))
    console.print(styled(("trained", "bold green"), " ", (facts["model"], "bold")), soft_wrap=True)
    console.print(facts_table(rows))
    if "search" in facts:
        console.print(_search_table(facts["search"]))


def _describe_kind(model: Any) -> str:
    """Say what kind of label a model predicts."""
    if not hasattr(model, "bounds_"):
        return f"{len(model.classes_)} classes"
    from labeldp.release.numbers import say_bounds

    return f"numbers in [{say_bounds(model.bounds_)}]"


def _search_table(search: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(
        title=f"Candidates by {search['score']}, {search['folds']} folds: the first was kept",
        title_justify="left",
        header_style="bold",
    )
    names = list(search["candidates"][0]["settings"])
    for name in [*names, "score", "behind the best", "standard error"]:
        table.add_column(show_plain(name), justify="right")
    for place, one in enumerate(search["candidates"]):
        cells = [show_plain(one["settings"][name]) for name in names]
        behind = ["", ""] if place == 0 else [f"{one['behind']:.4f}", f"{one['error']:.4f}"]
        table.add_row(*cells, f"{one['score']:.4f}", *behind)
    return table
