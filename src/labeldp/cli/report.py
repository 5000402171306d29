"""`labeldp report`: one page about a release that anyone can open.

`labeldp explore`: a page on this machine where epsilon can be dragged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli.screen import AsJson, answer, errors, output, waiting, warn_seeded
from labeldp.errors import Described, invalid, nearest


def report(
    release: Annotated[Path, typer.Argument(help="A release directory.")],
    *,
    to: Annotated[Path, typer.Option("--to", "--out", help="The page: a new HTML file.", metavar="FILE")],
    ledger: Annotated[Path | None, typer.Option("--ledger", help="The ledger that was charged.")] = None,
    audit: Annotated[Path | None, typer.Option("--audit", help="The JSON file of `labeldp audit`.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="A model that learned from the release.")] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Drawings without scripts: kilobytes instead of 2 MB.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page about a release: what it protects, from whom, how well, at what price.

    The page opens from disk, prints, and asks no network for anything. Every checksum is verified first.

    [bold]Examples[/bold]

      labeldp report release --to report.html

      labeldp report release --to report.html --ledger spent.sqlite --audit audit.json --model model.skops
    """
    from labeldp.release.files import check_new, write_new
    from labeldp.report.release_page import release_page

    check_new(to, owner="report")
    _there("release", release, release.is_dir())
    with waiting("reporting"):
        text = release_page(
            release,
            ledger=_ledger(ledger),
            audit=_audit(audit),
            model_facts=_model(model),
            interactive=not static,
        )
        data = text.encode()
        write_new(to, data, owner="report")
    seeded = bool(json.loads((release / "release.json").read_text(encoding="utf-8"))["seeded"])
    if seeded:
        warn_seeded()
    facts = {"report": str(to), "release": str(release), "bytes": len(data), "seeded": seeded}
    answer(facts, as_json=as_json, show=lambda console: console.print(_done(facts), soft_wrap=True))


def _done(facts: dict[str, Any]) -> str:
    from labeldp.cli.screen import escaped

    return f"[bold green]reported[/] [bold]{escaped(facts['report'])}[/] ({facts['bytes'] / 1e6:.1f} MB)"


def _there(name: str, path: Path, found: bool) -> None:
    """Refuse a path that is not there, with what looks like it."""
    if not found:
        around = [str(p) for p in path.parent.iterdir()] if path.parent.is_dir() else []
        must = "be a directory" if name == "release" else "exist"
        raise invalid("report", name, must, got=str(path), fix=nearest(str(path), around))


def _ledger(path: Path | None) -> Any:
    if path is None:
        return None
    from labeldp.accounting import Ledger

    _there("ledger", path, path.is_file())
    return Ledger(path)


def _model(path: Path | None) -> dict[str, Any] | None:
    """Return what a saved model says of itself."""
    if path is None:
        return None
    from labeldp.learn.saved import load_model

    facts: dict[str, Any] = load_model(path).facts_
    return facts


def _audit(path: Path | None) -> dict[str, Any] | None:
    """Return the JSON object of an audit."""
    if path is None:
        return None
    _there("audit", path, path.is_file())
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
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
        output().print("Stopped.")
