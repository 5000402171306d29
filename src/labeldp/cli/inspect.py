"""`labeldp inspect`: what a release protects, from whom, how well, and whether it is intact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import AsJson, answer, entry_facts, entry_text, facts_table, require_path, styled
from labeldp.errors import Described, invalid
from labeldp.report.words import percent, promise_document, promise_rows

if TYPE_CHECKING:
    from rich.console import Console

#: Classes shown one by one.
MOST_SHOWN = 20
#: What is said of a model that was saved without a guarantee.
NO_PROMISE = "none: the file says nothing about the labels that the model learned from"


def _show_schema(asked: bool) -> None:
    if asked:
        import json

        from labeldp.report.words import guarantee_schema

        print(json.dumps(guarantee_schema(), indent=2), flush=True)
        raise typer.Exit


def inspect(
    release: Annotated[Path, typer.Argument(help="A release directory, or a model from `labeldp train`.")],
    *,
    as_json: AsJson = False,
    schema: Annotated[  # noqa: ARG001 - its callback answers and leaves
        bool,
        typer.Option(
            "--schema", callback=_show_schema, is_eager=True, help="Show the JSON schema of a guarantee and leave."
        ),
    ] = False,
) -> None:
    """Show what a release promises and how its labels were randomized, after checking every checksum.

    Of a model: what it learned from, how it prepares the columns of a table, and what was promised. With --json, `guarantee` is
    an object of a published format, for programs that check models; it is null for a model that promises nothing.

    [bold]Examples[/bold]

      labeldp inspect release

      labeldp inspect release --json

      labeldp inspect model.skops

      labeldp inspect model.skops --json

      labeldp inspect --schema
    """
    if release.is_file():
        from labeldp.data.tables import is_table

        if is_table(release.name):
            fix = "`labeldp look` shows a table to its owner."
            raise invalid(
                "inspect", "release", "be a release or a model", got=Described(f"the table {release}"), fix=fix
            )
        _inspect_model(release, as_json=as_json)
        return
    from labeldp.release import load_release

    require_path(release, "release", owner="inspect", directory=True)
    loaded = load_release(release)
    facts = _facts(release, loaded)
    answer(facts, as_json=as_json, show=lambda console: _show(console, facts, loaded.guarantee))


def _inspect_model(path: Path, *, as_json: bool) -> None:
    """Show a saved model."""
    from labeldp.learn.saved import load_model

    model = load_model(path)
    promise = _find_promise(model)
    told = None if promise is None else promise_document(promise)
    facts = {"model": str(path), **model.facts_, "guarantee": told}

    def show(console: Console) -> None:
        features = facts.get("features")
        rows: list[tuple[str, Any]] = [
            ("learned from", facts.get("source")),
            ("rows", f"{facts['rows']:,}" if "rows" in facts else None),
            ("label", facts.get("label")),
            ("features", None if features is None else ", ".join(features)),
            *(("columns", line) for line in facts.get("preparation", ())),
            *([("promise", NO_PROMISE)] if promise is None else promise_rows(promise)),
        ]
        console.print(styled((facts["model"], "bold")), soft_wrap=True)
        console.print(facts_table(rows))

    answer(facts, as_json=as_json, show=show)


def _find_promise(model: Any) -> Any:
    """Return the guarantee of a loaded model, or None if it has none.

    A learner of labeldp has its own, alone or as the last step of a pipeline. Models of ratings were once saved without the learner
    around them: their files keep the promise beside them. Of others that is not believed, since it says nothing about them.
    """
    from labeldp.errors import LabelDPError, ReleaseError
    from labeldp.guarantee import Guarantee
    from labeldp.learn.saved import learner_of

    learner = learner_of(model)
    if hasattr(learner, "guarantee_"):
        return learner.guarantee_
    if "guarantee" not in model.facts_ or type(learner).__name__ != "MatrixFactorisation":
        return None
    try:
        return Guarantee.from_json(model.facts_["guarantee"])
    except LabelDPError as error:
        raise ReleaseError(f"inspect: the model's guarantee is none: {error} Do not use this file.") from error


def _facts(directory: Path, release: Any) -> dict[str, Any]:
    """Return everything public about a release."""
    from labeldp.release.manifest import MANIFEST, read_manifest

    manifest = read_manifest(directory)
    return {
        "directory": str(directory),
        "rows": release.rows_in_all,
        "answered": len(release),
        "label_column": release.label_column,
        "label_set": release.label_set,
        "label_notes": list(release.label_notes),
        "classes": list(release.classes),
        "mechanism": release.mechanism,
        "seeded": release.seeded,
        "private": not release.seeded,
        "guarantee": promise_document(release.guarantee),
        "channel_epsilon": release.channel.epsilon,
        **_rate_facts(release),
        "stages": _count_stages(release),
        "prior": None if release.prior is None else f"noisy label shares of {len(release.prior):,} groups",
        "created": release.created,
        "made_by": manifest.content.get("made_by"),
        **entry_facts(release.ledger_entry),
        "checksums": {name: digest for name, digest in manifest.checksums.items() if name != MANIFEST},
        "intact": True,
    }


def _rate_facts(release: Any) -> dict[str, Any]:
    """Return how often each class is released as another one, and the accuracy to expect, from the channel alone."""
    from labeldp.report.rates import number_facts, rates, set_facts

    found = rates(release, most_classes=MOST_SHOWN)
    flips = (
        None
        if found.flips is None
        else {str(name): flip for name, flip in zip(release.classes, found.flips, strict=False)}
    )
    sets, numbers = set_facts(release), number_facts(release)
    return {
        "answers": None if sets is None else sets.sentence,
        "numbers": None if numbers is None else {**numbers._asdict(), "in_words": numbers.sentence},
        "flip_rate": flips,
        "expected_accuracy": found.expected_accuracy,
        "expected_under": found.expected_under,
    }


def _count_stages(release: Any) -> list[int] | None:
    """Return the number of rows of each stage."""
    import numpy as np

    return None if release.stage is None else np.bincount(release.stage).tolist()


def _show(console: Console, facts: dict[str, Any], guarantee: Any) -> None:
    if facts["seeded"]:
        told = "The noise came from a seed: it can be removed."
        console.print(styled((" NOT PRIVATE ", "bold white on red"), " ", (told, "red")))
    column = "labels" if facts["label_column"] is None else f"labels of column `{facts['label_column']}`"
    from labeldp.release.numbers import say_number

    stages, numbers = facts["stages"], facts["numbers"]
    rows: list[tuple[str, Any]] = [
        ("protects", f"{facts['rows']:,} {column}, {_describe_kind(facts)}; the other columns are public"),
        (
            "answered",
            None if facts["answered"] == facts["rows"] else f"{facts['answered']:,} of {facts['rows']:,} rows",
        ),
        *promise_rows(guarantee),
        ("labels were tidied", "; ".join(facts["label_notes"]) or None),
        ("mechanism", facts["mechanism"]),
        ("prior", facts["prior"]),
        ("answers", facts["answers"]),
        ("stored in", None if facts["answers"] is None else _stored_text(facts)),
        ("labels expected right", _expected_text(facts)),
        ("an answer is off by", None if numbers is None else f"{say_number(numbers['noise'])} in the root mean square"),
        ("one number", None if numbers is None else numbers["in_words"]),
        ("stages", None if stages is None or len(stages) < 2 else " + ".join(f"{n:,}" for n in stages) + " rows"),
        ("label set", facts["label_set"]),
        ("ledger entry", entry_text(facts)),
        ("made", f"{facts['created']} by {facts['made_by']}"),
        ("checksums", f"all {len(facts['checksums']) + 1} files intact"),
    ]
    console.print(styled((facts["directory"], "bold")), soft_wrap=True)
    console.print(facts_table(rows))
    if facts["flip_rate"]:
        console.print("How often a label is released as another one:")
        console.print(_flip_table(facts))


def _describe_kind(facts: dict[str, Any]) -> str:
    """Say how many classes there are, or what is public of numbers."""
    if facts["numbers"] is None:
        return f"{len(facts['classes'])} classes"
    from labeldp.release.numbers import say_bounds

    return f"numbers in [{say_bounds(facts['numbers']['bounds'])}]"


def _expected_text(facts: dict[str, Any]) -> str | None:
    if facts["expected_accuracy"] is None:
        return None
    return f"{percent(facts['expected_accuracy'])}, under {facts['expected_under']}"


def _stored_text(facts: dict[str, Any]) -> str:
    """Say where sets are, and that they are no labels."""
    from labeldp.release.columns import RESERVED

    name = "output" if facts["label_column"] is None else f"{RESERVED}output"
    return f"column {name}, in the place of labels; release.channel.members(release.codes) in Python lists each one"


def _flip_table(facts: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(header_style="bold")
    table.add_column("true class", style="cyan", overflow="fold")
    table.add_column("flipped", justify="right")
    for name, rate in facts["flip_rate"].items():
        table.add_row(name, percent(rate))
    rest = len(facts["classes"]) - len(facts["flip_rate"])
    if rest > 0:
        table.add_row(styled((f"{rest:,} more", "dim")), "")
    return table
