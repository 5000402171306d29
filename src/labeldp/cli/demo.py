"""`labeldp demo`: the main job on bundled data, and a report to open."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.screen import AsJson, answer, shares

if TYPE_CHECKING:
    from rich.console import Console


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
    answer(facts, as_json=as_json, show=lambda console: _show(console, rows, html))


def _show(console: Console, rows: Any, html: Path) -> None:
    from labeldp.demo import demo_table

    console.print(demo_table(rows))
    console.print("The report, with plots, opens in a browser:")
    console.print(str(html), soft_wrap=True, markup=False)
