"""`python -m studies NAME`: a named experiment from a paper, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import studies
from labeldp.cli.screen import AsJson, answer, escaped, facts_table, guarded, shares
from labeldp.errors import Described, invalid

if TYPE_CHECKING:
    from rich.console import Console


def study(
    name: Annotated[str | None, typer.Argument(help="The study; --list shows them.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A small version that only shows that it runs.")] = False,
    seeds: Annotated[int | None, typer.Option("--seeds", help="How many seeds.")] = None,
    out_dir: Annotated[Path | None, typer.Option("--out-dir", help="Where JSON, plot and page go.")] = None,
    data: Annotated[Path | None, typer.Option("--data", envvar="LABELDP_DATA", help="The folder of data sets.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name the studies.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment from a paper and print paper / ours / difference, with seeds and spread.

    [bold]Examples[/bold]

      python -m studies --list

      python -m studies prior-response --quick
    """
    if show_list:
        titles = {one: studies.study(one).title for one in studies.names()}
        answer({"studies": titles}, as_json=as_json, show=lambda console: console.print(facts_table([*titles.items()])))
        return
    if name is None:
        fix = "There are: " + ", ".join(studies.names()) + "."
        raise invalid("study", "name", "be given", got=Described("nothing"), fix=fix)
    with shares(f"study {name}") as told:
        result = studies.run(name, quick=quick, seeds=seeds, out_dir=out_dir, directory=data, progress=told)
    facts: dict[str, Any] = {**result.to_json(), "page": str(result.page)}
    answer(facts, as_json=as_json, show=lambda console: _show(console, result))


def _show(console: Console, result: Any) -> None:
    console.print(studies.rich_table(result))
    for finding in result.findings:
        console.print(escaped(finding))
    console.print(f"page: {escaped(result.page)}", soft_wrap=True)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command()(guarded(study))
    app(prog_name="python -m studies")
