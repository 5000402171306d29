"""The commands that make pages: `demo` (the main job on bundled data), `report` (about a release) and `explore` (sliders).

All three work offline. `demo` and `report` write one self-contained HTML file; `explore` serves a page on loopback.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.interrupts import end_listening
from labeldp.cli.screen import (
    AsJson,
    answer,
    errors,
    output,
    read_ledger,
    require_path,
    shares,
    spinner,
    styled,
    warn_seeded,
)
from labeldp.errors import Described, invalid

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
    from labeldp.demo import demo_table

    console.print(demo_table(rows))
    console.print("The report, with plots, opens in a browser:")
    console.print(str(html), soft_wrap=True)


def report(
    release: Annotated[Path, typer.Argument(help="A release directory.")],
    *,
    to: Annotated[Path, typer.Option("--to", "--out", help="The page: a new HTML file.", metavar="FILE")],
    ledger: Annotated[Path | None, typer.Option("--ledger", help="The ledger that was charged.")] = None,
    audit: Annotated[Path | None, typer.Option("--audit", help="The JSON file of `labeldp audit`.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="A model that learned from the release.")] = None,
    static: Annotated[  # noqa: ARG001 - older scripts pass it
        bool, typer.Option("--static", hidden=True, help="Has no effect any more: all drawings are static.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page about a release: what it protects, from whom, how well, at what price.

    The page opens from disk, prints, and asks no network for anything. Every checksum is verified first.

    [bold]Examples[/bold]

      labeldp report release --to report.html

      labeldp report release --to report.html --ledger spent.sqlite --audit audit.json --model model.skops
    """
    from labeldp.release.manifest import read_manifest
    from labeldp.release.saving import check_new, write_new
    from labeldp.report.release_page import release_page

    check_new(to, owner="report")
    require_path(release, "release", owner="report", directory=True)
    with spinner("reporting"):
        text = release_page(
            release,
            ledger=read_ledger(ledger, owner="report"),
            audit=_read_audit(audit),
            model_facts=_read_model_facts(model),
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


def _read_model_facts(path: Path | None) -> dict[str, Any] | None:
    """Return what a saved model says of itself."""
    if path is None:
        return None
    from labeldp.learn.saved import load_model

    facts: dict[str, Any] = load_model(path).facts_
    return facts


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
    port: Annotated[int, typer.Option("--port", help="The port on loopback; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Serve the explorer on loopback: drag epsilon, classes, prior and cluster size, and see what becomes of labels.

    It reads no data and asks no network. Leave with Ctrl-C.

    [bold]Examples[/bold]

      labeldp explore

      labeldp explore --port 8765 --no-browser
    """
    import webbrowser

    from labeldp.report.explorer import serve

    def ready(url: str) -> None:
        output().print(f"The explorer is at {url} (Ctrl-C to stop).", soft_wrap=True)
        if browser and not webbrowser.open(url):
            errors().print("No browser could be opened; open the address yourself.")

    try:
        serve(port=port, ready=ready)
    except KeyboardInterrupt:
        end_listening()
        output().print("Stopped.")
