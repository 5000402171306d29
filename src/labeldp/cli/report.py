"""The commands that make pages: `demo` (the main job on bundled data), `report` (about a release) and `explore` (sliders).

All three work offline, and write one self-contained HTML file.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import (
    AsJson,
    answer,
    errors,
    read_ledger,
    require_path,
    shares,
    spinner,
    styled,
    warn_seeded,
)
from labeldp.errors import Described, LabelDPError, invalid

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def demo(
    *,
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", help="Where the report goes; the current folder if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Release labels of bundled data, learn from them, and see what it cost and bought. Under a minute, no network.

    [bold]Examples[/bold]

      labeldp demo

      labeldp demo --out-dir reports --json
    """
    from labeldp.demo import run_demo

    with shares("demo") as told:
        rows, html = run_demo(progress=told, out_dir=out_dir)
    facts: dict[str, Any] = {"rows": [dataclasses.asdict(row) for row in rows], "report": str(html)}
    answer(facts, as_json=as_json, show=lambda console: _show_demo(console, rows, html))


def _show_demo(console: Console, rows: Any, html: Path) -> None:
    from labeldp.demo import demo_table, demo_words

    console.print(demo_table(rows))
    for line in demo_words(rows):
        console.print(line, highlight=False)
    console.print("The report, with plots, opens in a browser:")
    console.print(str(html), soft_wrap=True)


def report(
    release: Annotated[Path, typer.Argument(help="A release directory.")],
    *,
    to: Annotated[Path, typer.Option("--to", "--out", help="The page: a new HTML file.", metavar="FILE")],
    ledger: Annotated[Path | None, typer.Option("--ledger", help="The ledger that was charged.")] = None,
    audit: Annotated[Path | None, typer.Option("--audit", help="The JSON file of `labeldp audit`.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="A model that learned from the release.")] = None,
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="The JSON file of `labeldp evaluate`: how good the model is.")
    ] = None,
    static: Annotated[  # noqa: ARG001 - older scripts pass it
        bool, typer.Option("--static", hidden=True, help="Has no effect any more: all drawings are static.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page about a release: what it protects, from whom, how well, at what price.

    The page opens from disk, prints, and asks no network for anything. Every checksum is verified first. With a model it says
    how good the model is, from released labels alone: those of --evaluation, or else of this release, if its features are there.

    [bold]Examples[/bold]

      labeldp report release --to report.html

      labeldp report release --to report.html --ledger spent.sqlite --audit audit.json --model model.skops

      labeldp evaluate model.skops --release held-out --json > evaluation.json

      labeldp report release --to report.html --model model.skops --evaluation evaluation.json
    """
    from labeldp.release.manifest import read_manifest
    from labeldp.release.saving import check_new, write_new
    from labeldp.report.release_page import release_page

    check_new(to, owner="report")
    require_path(release, "release", owner="report", directory=True)
    with spinner("reporting"):
        fitted = None if model is None else _load_model(model)
        found: dict[str, Any] | str | None = None
        if evaluation is not None:
            found = _read_evaluation(evaluation)
        elif model is not None:
            found = _evaluate_here(fitted, model, release)
        text = release_page(
            release,
            ledger=read_ledger(ledger, owner="report"),
            audit=_read_audit(audit),
            model_facts=None if fitted is None else fitted.facts_,
            evaluation=found,
        )
        data = text.encode()
        write_new(to, data, owner="report")
    seeded = bool(read_manifest(release).content["seeded"])
    if seeded:
        warn_seeded()
    facts = {"report": str(to), "release": str(release), "bytes": len(data), "seeded": seeded}
    answer(facts, as_json=as_json, show=lambda console: console.print(_show_report(facts), soft_wrap=True))


def _show_report(facts: dict[str, Any]) -> Text:
    size = f" ({facts['bytes'] / 1000:,.0f} kB)"
    return styled(("reported", "bold green"), " ", (facts["report"], "bold"), size)


def _load_model(path: Path) -> Any:
    from labeldp.learn.saved import load_model

    return load_model(path)


def _evaluate_here(fitted: Any, path: Path, directory: Path) -> dict[str, Any] | str:
    """Return how good a model is on the labels of the release, which costs nothing, or why that cannot be told.

    That the model learned from these very labels, and that the figures are too good then, is among the notes of the answer.
    """
    from labeldp.cli.predict import features_of, labels_of, require_features
    from labeldp.engines import open_released_table
    from labeldp.errors import OptimisticScoreWarning, hide_warnings
    from labeldp.learn import evaluate
    from labeldp.learn.tables import read_columns

    try:
        if labels_of(fitted):
            return "The model predicts several labels, and a release has one."
        source, released = open_released_table(directory)
        wanted = features_of(fitted, path)
        require_features(source, wanted)
        with hide_warnings(OptimisticScoreWarning):
            facts: dict[str, Any] = evaluate(fitted, read_columns(source, wanted), released).facts()
    except LabelDPError as error:
        return str(error)
    return facts


def _read_evaluation(path: Path) -> dict[str, Any]:
    """Return the facts of an evaluation's JSON file."""
    from labeldp.report.quality import read_evaluation
    from labeldp.untrusted import read_json

    require_path(path, "--evaluation", owner="report")
    try:
        return read_evaluation(read_json(path))
    except ValueError as error:
        fix = "Write it with `labeldp evaluate MODEL --release HELD_OUT --json > evaluation.json`."
        raise invalid(
            "report", "evaluation", "be the JSON file of an evaluation", got=Described(path.name), fix=fix
        ) from error


def _read_audit(path: Path | None) -> dict[str, Any] | None:
    """Return the JSON object of an audit."""
    if path is None:
        return None
    from labeldp.untrusted import read_json

    require_path(path, "--audit", owner="report")
    try:
        found = read_json(path)
    except ValueError as error:
        fix = "Write it with `labeldp audit RELEASE --json > audit.json`."
        raise invalid("report", "audit", "be a JSON file", got=Described(path.name), fix=fix) from error
    if not isinstance(found, dict) or not ({"checks", "passed"} & set(found)):
        fix = "Write it with `labeldp audit RELEASE --json > audit.json`."
        raise invalid("report", "audit", "hold the answer of an audit", got=Described(path.name), fix=fix)
    return found


def explore(
    *,
    to: Annotated[
        Path,
        typer.Option("--to", "--out", help="The page; an older explorer of this name is replaced.", metavar="FILE"),
    ] = Path("labeldp-explorer.html"),
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="Where epsilon starts.")] = None,
    classes: Annotated[int | None, typer.Option("--classes", help="How many classes, 2 to 16.", metavar="K")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="How many labels you have.", metavar="N")] = None,
    prior: Annotated[
        str | None, typer.Option("--prior", help="Shares of the classes, as 0.6,0.3,0.1.", metavar="SHARES")
    ] = None,
    release: Annotated[
        Path | None, typer.Option("--release", help="Start from a release: its classes, rows and shares.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    as_json: AsJson = False,
) -> None:
    """Write the explorer, one page with sliders: what epsilon does to labels, to an attacker, and to what can be learned.

    The page opens from disk, has no server and asks no network. Its settings stand in its address, which can be shared.

    [bold]Examples[/bold]

      labeldp explore

      labeldp explore --prior 0.6,0.3,0.1 --rows 20000 --to explorer.html --no-browser

      labeldp explore --release release
    """
    import webbrowser

    from labeldp.report.explorer import Settings, explorer_page, is_explorer, settings_of_release
    from labeldp.report.page import write_page

    given = {"epsilon": epsilon, "n_classes": classes, "rows": rows, "prior": _read_shares(prior)}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if classes is not None and prior is not None:
        raise invalid("explore", "--classes", "be left out with --prior", got=classes, fix="A prior says how many.")
    if release is None:
        settings = Settings(**chosen)
    else:
        for name in ("n_classes", "prior"):
            if name in chosen:
                option = "--classes" if name == "n_classes" else "--prior"
                raise invalid("explore", option, "be left out with --release", got=Described("both"))
        require_path(release, "--release", owner="explore", directory=True)
        settings = dataclasses.replace(settings_of_release(release), **chosen)
    if to.exists() and not is_explorer(to):
        fix = "Only an older explorer is replaced: choose another name."
        raise invalid("explore", "path", "be a new file", got=str(to), fix=fix)
    page = write_page(to, explorer_page(settings)).resolve()
    facts = {"explorer": str(to), "address": page.as_uri(), "bytes": page.stat().st_size}
    answer(facts, as_json=as_json, show=lambda console: console.print(_show_explorer(facts), soft_wrap=True))
    if browser and not webbrowser.open(page.as_uri()):
        errors().print("No browser could be opened; open the file yourself.")


def _show_explorer(facts: dict[str, Any]) -> Text:
    return styled(("explorer", "bold green"), " ", (facts["explorer"], "bold"), f" ({facts['bytes'] / 1000:,.0f} kB)")


def _read_shares(text: str | None) -> tuple[float, ...] | None:
    """Return the numbers of a list with commas."""
    if text is None:
        return None
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        raise invalid("explore", "--prior", "be numbers with commas", got=text, fix="As 0.6,0.3,0.1.") from error
