"""`labeldp privatize`: a table in, a release directory out, by any mechanism.

`--mechanism` takes a short name (`MECHANISMS`) or where a mechanism of someone else's is: `package.module:Name`. It is called
with `--epsilon` and with each `--mechanism-option key=value`. Values are Python literals, names of what
`labeldp.mechanisms` has, or calls of those with literals; anything else is text.

>>> parse_option("k=3"), parse_option("note=plain words")
(('k', 3), ('note', 'plain words'))
>>> parse_option("objective=MeanInformation(values=(1, 2, 3))")
('objective', MeanInformation(values=(1.0, 2.0, 3.0), spread=0.0))
>>> make_mechanism("rr-top-k", epsilon=1.0, options=["k=2"])
RRTopK(epsilon=1.0, k=2)
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from labeldp.cli.given import refuse_idle
from labeldp.cli.screen import (
    ENGINE,
    AsJson,
    Budget,
    Classes,
    Epsilon,
    InsecureScheduler,
    Label,
    LabelSet,
    LedgerFile,
    Missing,
    MissingLabels,
    PassphraseFile,
    Person,
    RowIds,
    Scheduler,
    Seed,
    Workers,
    answer,
    entry_facts,
    entry_text,
    errors,
    exit_with,
    facts_table,
    name_label_set,
    note,
    open_ledger,
    percent_or_none,
    progress,
    read_passphrase,
    split_names,
    styled,
    warn_seeded,
)
from labeldp.cli.tables import Consent, LabelRules, NumberRules, Reading, ask_about_labels, refuse_other_kind
from labeldp.errors import Described, LabelDPError, invalid, nearest
from labeldp.report.words import promise_facts, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

PRIOR = "Prior (at most one)"
MECHANISM = "Mechanism"
OWNER = "labeldp privatize"
#: Short names of our mechanisms, and what `labeldp.mechanisms` calls them.
MECHANISMS = {
    "rr": "RandomizedResponse",
    "rr-top-k": "RRTopK",
    "rr-with-prior": "RRWithPrior",
    "informative": "InformativeResponse",
    "cluster-rr": "ClusterRR",
    "optimal": "OptimalResponse",
}
#: Those for labels that are numbers, which take the bounds.
NUMERIC = {"unbiased": "UnbiasedResponse", "laplace": "LaplaceResponse", "binned": "BinnedResponse"}


class Purpose(str, Enum):
    """What a release is for, where no mechanism is named."""

    training = "training"
    labels = "labels"


class EngineChoice(str, Enum):
    """What carries the pieces of a table."""

    local = "local"
    dask = "dask"


#: What only a cluster has.
DASK_OPTIONS = ("--scheduler", "--workers", "--insecure-scheduler")
#: What `--discard` means without a place.
HERE = "."


class PrivatizeCommand(TyperCommand):
    """The command, whose `--discard` may stand alone: it then means the current folder. typer knows no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the place that was left out."""
        at = args.index("--discard") if "--discard" in args else None
        if at is not None and (at + 1 == len(args) or args[at + 1].startswith("-")):
            args = [*args[: at + 1], HERE, *args[at + 1 :]]
        if not ctx.resilient_parsing:
            _refuse_beside_discard(args)
        return super().parse_args(ctx, args)


def _refuse_beside_discard(args: list[str]) -> None:
    """Refuse a line that throws work away and seems to ask for a release too: none would be made.

    --discard is looked at first, so whatever else stands on its line would be ignored.
    """
    alone = 2 if "--discard" in args else 1
    asks = "--discard" in args or any(word.startswith("--discard=") for word in args)
    if asks and len(args) > alone and not {"--help", "-h"} & set(args):
        fix = "It throws unfinished work away and releases nothing: give it a line of its own."
        exit_with(invalid("privatize", "--discard", "stand alone", got=Described("other words too"), fix=fix))


def _discard(place: str | None) -> None:
    """Throw unfinished work away, before any other option is looked at, and show what it was."""
    if place is None:
        return
    try:
        _discard_leftovers(place)
    except Exception as error:  # noqa: BLE001 - the border: a callback runs outside `guard`
        exit_with(error)
    raise typer.Exit


def _discard_leftovers(place: str) -> None:
    from labeldp.data.places import UrlPath, place_of
    from labeldp.engines import discard_job
    from labeldp.release.unfinished import find_leftovers

    where = place_of(place)
    if isinstance(where, UrlPath):
        discard_job(place)
        errors().print(f"discarded {place}", soft_wrap=True)
        return
    found = find_leftovers(place)
    if not found:
        if place == HERE:
            errors().print("nothing of labeldp's is unfinished here")
            return
        fix = "Give the target, its hidden folder .NAME.partial-..., or the folder that they lie in."
        raise invalid(OWNER, "--discard", "be, or have beside it, an unfinished job", got=place, fix=fix)
    for one in found:
        if one.in_use:
            errors().print(f"in use, left alone: {one.path}", soft_wrap=True)
            continue
        discard_job(one.path)
        errors().print(f"discarded {one.path}: {one.what}", soft_wrap=True)
    if all(one.in_use for one in found):
        raise LabelDPError(f"{OWNER}: nothing was discarded: a process is at work on it. Wait for it, or end it first.")


def privatize(
    table: Annotated[
        str, typer.Argument(help="A table (CSV, JSON lines, Parquet, Arrow), a folder of Parquet files, or their URL.")
    ],
    *,
    label: Label,
    epsilon: Epsilon,
    to: Annotated[str, typer.Option("--to", help="The release: a new directory.", metavar="DIRECTORY")],
    classes: Classes = None,
    rules: LabelRules = LabelRules(),
    numbers: NumberRules = NumberRules(),
    purpose: Annotated[
        Purpose | None,
        typer.Option(
            "--for",
            help="What is released: [bold]training[/bold] (the default), per row the set of classes that teaches a learner "
            "most; or [bold]labels[/bold], one label per row for whoever needs labels.",
            rich_help_panel=MECHANISM,
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            help=f"Instead of --for: one of {', '.join(MECHANISMS)}; for numbers {', '.join(NUMERIC)}; or your own, "
            "module:Name.",
            metavar="NAME",
            rich_help_panel=MECHANISM,
        ),
    ] = None,
    mechanism_option: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism-option",
            help="A parameter of the mechanism; may be repeated.",
            metavar="KEY=VALUE",
            rich_help_panel=MECHANISM,
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            help="A public column of groups, for cluster-rr.",
            metavar="COLUMN",
            rich_help_panel=MECHANISM,
        ),
    ] = None,
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
    drop: Annotated[
        str | None, typer.Option("--drop", help="Columns that are left out of the release, with commas.")
    ] = None,
    row_ids: RowIds = None,
    person: Person = None,
    ledger: LedgerFile = None,
    budget: Budget = None,
    label_set: LabelSet = None,
    seed: Seed = None,
    consent: Consent = Consent(),
    reading: Reading = Reading(),
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="This machine, or a Dask cluster.", rich_help_panel=ENGINE)
    ] = EngineChoice.local,
    scheduler: Scheduler = None,
    workers: Workers = None,
    insecure_scheduler: InsecureScheduler = False,
    passphrase_file: PassphraseFile = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", help="Take up the unfinished job in this folder.", metavar="FOLDER", rich_help_panel=ENGINE
        ),
    ] = None,
    discard: Annotated[  # noqa: ARG001 - its callback does it
        str | None,
        typer.Option(
            "--discard",
            help="Throw away what a stopped or killed run has left: in this hidden folder, beside this target, or, without "
            "a place, anything of ours in the current folder.",
            metavar="[PLACE]",
            rich_help_panel=ENGINE,
            is_eager=True,
            callback=_discard,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Release a table with its label column randomized.

    The directory holds the table with private answers in place of the labels, how they were randomized, and the promise. It
    appears whole or not at all, and is all that others need to train. An answer is a set of classes, from which labeldp
    trains better models than from labels as private; with two classes it is a label. Who reads the file as a table
    of labels wants --for labels.

    A label that is a number (an amount, a duration, a count) has --bounds or --counts, public and never read off the data,
    instead of classes. Each row is then answered with a number whose mean is the label: any regressor with squared loss may
    train on it as it is. Numbers beyond the bounds are brought to the nearest one, and how many were is not said.

    [bold]Examples[/bold]

      labeldp privatize people.parquet --label income --epsilon 1 --to release

      labeldp privatize people.csv -l income -e 1 --to release --ledger spent.sqlite --budget 2

      labeldp privatize letters.parquet -l topic -e 1 --to release --for labels

      labeldp privatize claims.parquet -l amount -e 1 --to release --bounds 0,5000

      labeldp privatize policies.csv -l claims -e 1 --to release --counts 0..4

      labeldp privatize people.parquet -l income -e 1 --to release --clusters 50

      labeldp privatize people.parquet -l income -e 1 --to release --mechanism cluster-rr --groups region

      labeldp privatize stars.csv -l rating -e 1 --to release --mechanism ladder:Ladder --mechanism-option n_classes=5

      labeldp privatize visits.csv -l ill -e 2 --to release --classes no,yes --missing drop

      labeldp privatize visits.csv -l ill -e 2 --to release --drop insured,hiv --ledger spent.sqlite --budget 2

      labeldp privatize stays.parquet -l readmitted -e 1 --to release --person patient_nbr

      labeldp privatize survey.csv -l ill -e 1 --to release --sep ';' --strip --merge yes=YES

      labeldp privatize clicks/ -l bought -e 1 --to release --engine dask --scheduler tls://10.0.0.1:8786

      labeldp privatize --discard release
    """
    from labeldp.engines import privatize_table

    if purpose is not None and mechanism is not None:
        fix = "The mechanism settles what is released: give one of the two."
        raise invalid(OWNER, "--for", "be left out with --mechanism", got=purpose.value, fix=fix)
    consent.check_epsilon(epsilon)
    _refuse_engine_options(engine, scheduler)
    ways = numbers.ways()
    chosen = make_mechanism(mechanism, epsilon=epsilon, options=mechanism_option or (), **ways)
    numeric = numbers.given or _is_numeric(chosen)
    refuse_other_kind("privatize", numeric=numeric, of_classes=("--for", "--groups"))
    source = reading.open(table, settle=False)
    source = rules.apply(source, label)
    listed = rules.classes(classes, source.schema.field(label).type)
    choice = ask_about_labels(source, label, classes=listed, missing=missing.value, numbers=numeric)
    source = choice.source
    name = name_label_set(label_set, source.path, label)
    fitted = _load_prior(model, label_set=name)
    if seed is not None:
        warn_seeded()
    with progress("privatizing") as told:
        done = privatize_table(
            source,
            label=label,
            to=to,
            epsilon=epsilon,
            mechanism=chosen,
            purpose=None if purpose is None else purpose.value,
            groups=groups,
            classes=choice.classes,
            **ways,
            prior_columns=split_names(prior_columns) or None,
            cluster_column=cluster_column,
            n_clusters=clusters,
            model=fitted,
            prior_epsilon=prior_epsilon,
            missing=choice.missing,
            drop=split_names(drop),
            row_ids=row_ids,
            persons=person,
            label_set=name,
            ledger=open_ledger(ledger, budget),
            rng=seed,
            progress=told,
            engine=engine.value,
            scheduler=scheduler,
            workers=workers,
            insecure=insecure_scheduler,
            passphrase=read_passphrase(passphrase_file),
            resume=resume,
        )
    facts = _facts(done, label=label)
    answer(facts, as_json=as_json, show=lambda console: _show(console, done))


def _refuse_engine_options(engine: EngineChoice, scheduler: str | None) -> None:
    """Refuse the options of a cluster where there is none, or one that nobody else reaches."""
    if engine is not EngineChoice.dask:
        fix = "It is about a Dask cluster: add --engine dask, or leave it out."
        refuse_idle("privatize", DASK_OPTIONS, where="on one machine", fix=fix)
    elif scheduler is None:
        fix = "Workers inside this process cannot be reached by others: it is about --scheduler ADDRESS."
        refuse_idle("privatize", ["--insecure-scheduler"], where="without --scheduler", fix=fix)


def _is_numeric(mechanism: Any) -> bool:
    """Whether a mechanism is for labels that are numbers, and has their bounds itself."""
    if mechanism is None:
        return False
    from labeldp.mechanisms import NumericMechanism

    return isinstance(mechanism, NumericMechanism)


def make_mechanism(
    name: str | None,
    *,
    epsilon: float,
    options: Iterable[str],
    bounds: tuple[float, float] | None = None,
    counts: tuple[int, int] | None = None,
    outside: str = "",  # noqa: ARG001 - what is done with labels, which a mechanism never sees
) -> Any:
    """Return the mechanism that a name stands for, called with epsilon and the options; None without a name.

    One for numbers is given their bounds too, and counts are its levels.
    """
    given = dict(parse_option(text) for text in options)
    known = bounds or counts
    if known is not None:
        name = name or ("unbiased" if given else None)
        if name is not None and name not in MECHANISMS:
            given = {"bounds": known, **given}
            if counts is not None and name in NUMERIC:
                every = {"bins": counts[1] - counts[0] + 1} if name == "binned" else {"grid": "integers"}
                given = {**every, **given}
    elif name in NUMERIC and "bounds" not in given:
        fix = "Public ones, known without the labels: --bounds 0,5000, or --counts 0..4."
        raise invalid(OWNER, "--bounds", f"be given with --mechanism {name}", got=Described("none"), fix=fix)
    if name is None:
        if given:
            fix = "Name the mechanism that they are for."
            raise invalid(OWNER, "--mechanism", "be given with --mechanism-option", got=Described("none"), fix=fix)
        return None
    from labeldp import mechanisms

    ours = {**MECHANISMS, **NUMERIC}
    make = getattr(mechanisms, ours[name]) if name in ours else _import_mechanism(name)
    try:
        made = make(epsilon=epsilon, **given)
    except TypeError as error:  # a parameter that it does not have, or one that it misses
        fix = "Options are given as --mechanism-option key=value."
        raise invalid(OWNER, "--mechanism-option", f"suit {name}", got=Described(str(error)), fix=fix) from error
    if not isinstance(made, mechanisms.Mechanism):
        fix = "It is a class, or a function, whose answer is a labeldp.mechanisms.Mechanism."
        raise invalid(
            OWNER, "--mechanism", "make a mechanism", got=Described(f"{name}: a {type(made).__name__}"), fix=fix
        )
    return made


def _import_mechanism(name: str) -> Any:
    """Return what `module:attribute` or `module.attribute` names; modules of the current directory are found too."""
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module or not attribute:
        fix = nearest(name, [*MECHANISMS, *NUMERIC]) + " One of your own is module:Name."
        raise invalid(OWNER, "--mechanism", "be a mechanism's name", got=name, fix=fix)
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        got = Described(f"{name} ({error})")
        fix = "It is looked for in the current directory and among installed packages."
        raise invalid(OWNER, "--mechanism", "be importable", got=got, fix=fix) from error
    finally:
        sys.path.remove(here)


def parse_option(text: str) -> tuple[str, Any]:
    """Return the key and the value of KEY=VALUE; nothing of it is run."""
    key, sign, value = text.partition("=")
    if not sign or not key.isidentifier():
        raise invalid(OWNER, "--mechanism-option", "be KEY=VALUE", got=text, fix="For example k=3.")
    try:
        return key, _read_value(ast.parse(value, mode="eval").body)
    except (SyntaxError, ValueError):
        return key, value


def _read_value(node: ast.expr) -> Any:
    """Return a literal, or what `labeldp.mechanisms` has under a name, called with literals if the text calls it."""
    from labeldp import mechanisms

    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in mechanisms.__all__:
        arguments = [ast.literal_eval(argument) for argument in node.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
        return getattr(mechanisms, node.func.id)(*arguments, **named)
    return ast.literal_eval(node)


def _load_prior(model: Path | None, *, label_set: str) -> Any:
    """Return the model that serves as a prior, and say so if it has learned from these very labels."""
    if model is None:
        return None
    from labeldp.learn.saved import load_model

    fitted = load_model(model)
    if fitted.facts_.get("label_set") == label_set:
        note(
            f"the model learned from label set {label_set} itself: what it cost adds to what this release costs. "
            "A ledger adds them up."
        )
    return fitted


def _facts(done: Any, *, label: str) -> dict[str, Any]:
    """Return what was done, for machines."""
    named = {field.name: getattr(done, field.name) for field in dataclasses.fields(done)}
    named |= entry_facts(done.ledger_entry)
    return {**named, "label": label, "directory": str(done.directory), "guarantee": promise_facts(done.guarantee)}


def _show(console: Console, done: Any) -> None:
    rows: list[tuple[str, Any]] = [
        ("rows", f"{done.rows:,}" + (f" ({done.dropped:,} without a label left out)" if done.dropped else "")),
        ("rows answered", f"{done.answered:,}" if done.answered < done.rows else None),
        *promise_rows(done.guarantee),
        ("mechanism", done.mechanism),
        ("numbers", _bounds_text(done)),
        ("each row has", done.answers + _labels_hint(done)),
        ("labels expected right", percent_or_none(done.expected_accuracy)),
        ("ledger entry", entry_text(entry_facts(done.ledger_entry))),
        ("next", f"labeldp inspect {done.directory}"),
    ]
    console.print(styled(("released", "bold green"), " ", (done.directory, "bold")), soft_wrap=True)
    console.print(facts_table(rows))


def _bounds_text(done: Any) -> str | None:
    """Say what numbers were held to; how many were not within it is a count of labels, and is not said."""
    if done.bounds is None:
        return None
    from labeldp.release.numbers import say_bounds

    what = "brought to the nearest bound" if done.outside == "clip" else "refused"
    return f"in [{say_bounds(done.bounds)}], others {what}; rounded to {len(done.classes)} levels without bias"


def _labels_hint(done: Any) -> str:
    """Say how to get labels where sets were released: whoever did not ask for sets may not know of them."""
    return "; for one label per row: --for labels" if done.answers.startswith("a set") else ""
