"""`labeldp audit`: check a claim without trusting it, with an exit code that a pipeline can use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.screen import AsJson, Missing, MissingLabels, answer, progress, read_ledger, styled
from labeldp.cli.tables import Reading, Tidying, options_of, refuse_other_kind
from labeldp.errors import Described, LabelDPError, invalid, nearest

if TYPE_CHECKING:
    from rich.console import Console

#: How raw labels are read.
OF_LABELS = ("--missing", *options_of(Tidying, Reading))
#: The exit code of an audit that found something.
FAILED = 1


def audit(
    target: Annotated[str, typer.Argument(help="A release directory, or MODULE:FUNCTION.", metavar="RELEASE|PIPELINE")],
    *,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="The owner's table of raw labels: the release is attacked too.")
    ] = None,
    label: Annotated[str | None, typer.Option("--label", "-l", help="Its label column.", metavar="COLUMN")] = None,
    rules: Tidying = Tidying(),
    missing: MissingLabels = Missing.error,
    reading: Reading = Reading(),
    ledger: Annotated[Path | None, typer.Option("--ledger", help="The ledger that should be charged.")] = None,
    draws: Annotated[int, typer.Option("--draws", help="Labels drawn through a mechanism.")] = 1_000_000,
    confidence: Annotated[float, typer.Option("--confidence", help="Of every bound.")] = 0.95,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the auditor's own coins.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Runs at once, through joblib.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Audit a release on disk, or run a mechanism or a training and bound its epsilon from below.

    A release is read: checksums, matrix, noise, ledger, stray files, columns that look like the raw labels. With
    --labels, which only its owner has, it is attacked as well; what is then found depends on the raw labels, so keep it. It
    says so, and `labeldp report` does not take it.
    Labels that were tidied for the release are tidied alike here.

    MODULE:FUNCTION names a Python function without arguments that returns labeldp.audit.Randomizer (labels in, outputs
    out) or labeldp.audit.Pipeline (labels in, scores of a trained model out), with what it claims. It is code and is run.

    Exit code 0: nothing found, which proves nothing. 1: the claim is refuted or a check failed. 2: bad input.

    [bold]Examples[/bold]

      labeldp audit release --ledger spent.sqlite

      labeldp audit release --labels people.parquet --label income

      labeldp audit release --labels survey.csv --label ill --strip --merge yes=YES --missing drop

      labeldp audit my_pipeline:multi_stage --confidence 0.99 --json
    """
    from labeldp import audit as audits

    subject = _find_subject(target)
    _refuse_idle(subject, labels)
    book = read_ledger(ledger, owner="audit")
    codes = _read_codes(target, labels, label, rules=rules, missing=missing, reading=reading)
    with progress(f"audit of {target}") as told:
        found = audits.audit(
            subject,
            labels=codes,
            ledger=book,
            n_draws=draws,
            confidence=confidence,
            seed=seed,
            n_jobs=jobs,
            progress=told,
        )
    facts = {"target": target, **found.to_json()}
    answer(facts, as_json=as_json, show=lambda console: _show(console, facts))
    if not found.passed:
        raise typer.Exit(FAILED)


def _refuse_idle(subject: Any, labels: Path | None) -> None:
    """Refuse what does nothing for the kind of audit."""
    from labeldp.audit import Randomizer

    if isinstance(subject, Path):
        fix = "A release is read, or attacked with --labels: what runs is a MODULE:FUNCTION."
        refuse_idle("audit", ["--draws", "--jobs"], where="for a release", fix=fix)
        if labels is None:
            fix = "It is about an attack, and that needs the raw labels: --labels TABLE --label COLUMN."
            own = ("--confidence", "--seed", *OF_LABELS)
            refuse_idle("audit", own, where="without --labels", fix=fix)
        return
    fix = "What runs is charged nowhere; a ledger goes with a release."
    refuse_idle("audit", ["--ledger"], where="for MODULE:FUNCTION", fix=fix)
    fix = "Raw labels go with a release; a pipeline or a mechanism brings its own."
    own = ("--labels", "--label", *OF_LABELS)
    refuse_idle("audit", own, where="for MODULE:FUNCTION", fix=fix)
    if not isinstance(subject, Randomizer):
        fix = "A pipeline trains as often as it has canaries and references: set those in it."
        refuse_idle("audit", ["--draws"], where="for a pipeline", fix=fix)


def _find_subject(target: str) -> Any:
    """Return what is audited: the directory of a release, or what a named function returns."""
    from labeldp.release.manifest import is_release

    path = Path(target)
    if path.is_dir():
        if not is_release(path):
            raise invalid("audit", "target", "hold a release", got=target, fix="No release.json there.")
        return path
    if ":" not in target:
        around = [str(p) for p in path.parent.iterdir() if p.is_dir()] if path.parent.is_dir() else []
        fix = f"{nearest(target, around)} A pipeline is MODULE:FUNCTION."
        raise invalid("audit", "target", "be a release directory or MODULE:FUNCTION", got=target, fix=fix)
    return _call_target(target)


def _call_target(target: str) -> Any:
    """Import a module from the current directory or the path, and call its function."""
    import importlib
    import sys

    from labeldp.audit import Pipeline, Randomizer

    module, _, function = target.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise invalid("audit", "target", "name a function that can be imported", got=target, fix=f"{error}.") from error
    finally:
        sys.path.pop(0)
    made = make()
    if not isinstance(made, (Pipeline, Randomizer)):
        must = "return a labeldp.audit.Pipeline or Randomizer"
        raise invalid("audit", target, must, got=Described(type(made).__name__))
    return made


def _read_codes(
    target: str, table: Path | None, label: str | None, *, rules: Tidying, missing: Missing, reading: Reading
) -> Any:
    """Return the raw labels as codes of the release's classes, tidied as its owner says they were."""
    if (table is None) != (label is None):
        raise invalid("audit", "--labels", "come with --label", got=Described("one of the two"))
    if table is None or label is None:
        return None
    if not Path(target).is_dir():
        raise invalid("audit", "--labels", "go with a release", got=target, fix="A pipeline brings its own labels.")
    import numpy as np
    import pyarrow.compute as pc

    from labeldp.data import column
    from labeldp.data.tables import find_missing
    from labeldp.release import load_release
    from labeldp.release.labels import as_plain, find_unknown, look_up
    from labeldp.release.numbers import Asked, read_numbers

    try:
        released = load_release(target)
    except LabelDPError:  # the audit says what is wrong with the release
        return None
    refuse_other_kind("audit", numeric=released.channel.outputs_are_numbers)
    source = rules.apply(reading.open(table), label)
    values, classes = column(source, label), released.classes
    absent = find_missing(values)
    if missing is not Missing.drop and pc.any(absent).as_py():
        fix = "Were rows without a label left out of the release? --missing drop."
        raise invalid("audit", "--label", "have no missing values", got=Described("some"), fix=fix)
    plain = as_plain(values.filter(pc.invert(absent)))
    if released.channel.outputs_are_numbers:  # the level that is nearest to each number is what an attacker guesses
        levels = np.asarray(classes)
        ends = (float(levels[0]), float(levels[-1]))
        values = read_numbers(plain, ends, outside="clip", asked=Asked("audit", "--label"))
        codes = np.rint((values - levels[0]) / (levels[1] - levels[0])).astype(np.int64)
        return codes
    codes = look_up(plain, classes)
    if codes is None:
        done = f" Before it was released: {'; '.join(released.label_notes)}." if released.label_notes else ""
        fix = f"Pass the table that was released, tidied as it was then (--strip, --merge CLASS=SPELLING).{done}"
        row = np.flatnonzero(~np.asarray(absent))[find_unknown(plain, classes)]  # of the table, whatever was left out
        got = Described(f"another one in row {row:,} (rows count from 0)")
        raise invalid("audit", "--label", "hold classes of the release only", got=got, fix=fix)
    return codes


def _show(console: Console, facts: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"Audit of {facts['target']}", title_justify="left", header_style="bold")
    table.add_column("check", style="cyan")
    table.add_column("")
    table.add_column("detail", overflow="fold")
    for check in facts["checks"]:
        mark = styled(("passed", "green") if check["passed"] else ("FAILED", "bold red"))
        table.add_row(check["name"], mark, check["detail"])
    console.print(table)
    claim = facts["claims"].get("guarantee") or facts["claims"].get("epsilon")
    if claim is not None:
        console.print(f"claimed: {claim}", soft_wrap=True)
    if facts["lower_bound"] is not None:
        console.print(f"epsilon is at least {facts['lower_bound']:.4g}, at confidence {facts['confidence']:g}")
    if facts["raw_labels"]:
        from labeldp.audit.results import OWNERS_ALONE

        console.print(styled(("keep it", "yellow"), f": it is for {OWNERS_ALONE}"), soft_wrap=True)
    failed = ("The claim does not stand.", "bold red")
    console.print(styled("Nothing was found. That proves nothing." if facts["passed"] else failed))
