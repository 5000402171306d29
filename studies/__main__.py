"""`python -m studies NAME`: run a named experiment from a paper, from the root of a clone.

The table goes to stdout, as JSON with `--json`; progress and errors go to stderr. An unknown name is answered with the
nearest one. Exit codes: 0 done, 2 an argument or the data is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

import studies
from labeldp.display import open_bar
from labeldp.errors import Described, LabelDPError, invalid

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
#: Columns of a table that goes to a file or a pipe, where there is no terminal to ask.
PIPED_WIDTH = 100


@app.command()
def study(
    name: Annotated[str | None, typer.Argument(help="The study; --list shows them.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A small version that only shows that it runs.")] = False,
    seeds: Annotated[int | None, typer.Option("--seeds", help="How many seeds.")] = None,
    out_dir: Annotated[Path | None, typer.Option("--out-dir", help="Where JSON, plots and page go.")] = None,
    data: Annotated[Path | None, typer.Option("--data", envvar="LABELDP_DATA", help="The folder of data sets.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name the studies.")] = False,
    readme: Annotated[bool, typer.Option("--readme", help="Print the text of studies/results/README.md.")] = False,
    only: Annotated[
        str | None,
        typer.Option("--only", help="Measure the cases whose name begins so, and write no page yet."),
    ] = None,
    measured: Annotated[
        bool,
        typer.Option("--measured", help="Measure nothing: write the page of what has been measured so far."),
    ] = False,
    add: Annotated[
        bool,
        typer.Option("--add", help="Measure nothing: add what --only measured to the result in --out-dir."),
    ] = False,
    retell: Annotated[
        bool, typer.Option("--retell", help="Say the findings of --out-dir/result.json anew; measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run an experiment from a paper and print paper / ours / difference, with seeds and spread.

    [bold]Examples[/bold]

      python -m studies --list

      python -m studies prior-response --quick

      python -m studies networks --only "cifar10, 20 minutes" && python -m studies networks --measured

      python -m studies ratings --only "epsilon 8" --out-dir DIR && python -m studies ratings --add --out-dir DIR
    """
    try:
        if readme:
            typer.echo(studies.results_readme(), nl=False)
        elif show_list:
            _list_studies(as_json=as_json)
        elif retell:
            _retell_study(name, out_dir)
        elif add:
            _add_to_study(name, seeds=seeds, out_dir=out_dir, directory=data)
        else:
            options = {"quick": quick, "seeds": seeds, "out_dir": out_dir, "directory": data}
            _run_study(name, only=only, measured=measured, as_json=as_json, options=options)
    except LabelDPError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def _list_studies(*, as_json: bool) -> None:
    titles = {name: studies.find_study(name).title for name in studies.names()}
    if as_json:
        typer.echo(json.dumps({"studies": titles}, indent=1))
        return
    for name, title in titles.items():
        typer.echo(f"{name:<22}{title}")


def _retell_study(name: str | None, out_dir: Path | None) -> None:
    """Make page and JSON of a result again, with new words for the same rows."""
    target = out_dir if out_dir is not None else Path("studies") / "results" / str(name)
    result = studies.retell(studies.read_result(target / "result.json"))
    studies.write_result(result, target)
    for finding in result.findings:
        typer.echo(finding)


def _add_to_study(name: str | None, **options: Any) -> None:
    """Add rows that were measured later to a result, and say what its facts then say of them."""
    result = studies.add_measured(str(name), **options)
    added = result.facts["added"][-1]
    typer.echo(f"added {added['rows']} rows of {', '.join(added['cases'])}; page: {result.page}")


def _run_study(name: str | None, *, only: str | None, measured: bool, as_json: bool, options: dict[str, Any]) -> None:
    if name is None:
        fix = "There are: " + ", ".join(studies.names()) + "."
        raise invalid("study", "name", "be given", got=Described("nothing"), fix=fix)
    if measured and only is not None:
        fix = "First measure with --only, then write the page with --measured."
        raise invalid("study", "measured", "stand without --only", got=Described("both"), fix=fix)
    with _show_progress(f"study {name}") as tell:
        if only is not None:
            found = studies.measure_part(name, only, **options, progress=tell)
            typer.echo(
                f"measured {found} cases; the same command with --measured in place of --only writes the page of what there is, and "
                "with neither it measures the rest",
                err=True,
            )
            return
        result = studies.write_measured(name, **options) if measured else studies.run(name, **options, progress=tell)
    if as_json:
        typer.echo(json.dumps({**result.to_json(), "page": str(result.page)}, indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    console.print(studies.rich_table(result))
    for finding in result.findings:
        console.print(escape(finding))
    console.print(f"page: {escape(str(result.page))}", soft_wrap=True)


@contextmanager
def _show_progress(what: str) -> Iterator[studies.Progress]:
    """Show on stderr how far the body is."""
    with open_bar(what, total=1.0) as told:
        yield lambda share, doing: told(share, words=doing)


if __name__ == "__main__":
    app(prog_name="python -m studies")
