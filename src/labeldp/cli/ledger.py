"""`labeldp ledger`: what was spent on which labels, and what is left."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.screen import AsJson, answer, require_path, styled
from labeldp.report.words import at_delta, cost, cost_text

if TYPE_CHECKING:
    from rich.console import Console


#: Digits of a fingerprint of rows, and tables of an account, that are shown.
SHOWN, MOST_TABLES = 8, 3


def ledger(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    *,
    label_set: Annotated[str | None, typer.Option("--label-set", help="One label set instead of all.")] = None,
    set_budget: Annotated[
        float | None, typer.Option("--set-budget", help="Record a new budget: of --label-set, or the default of all.")
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="The delta at which --set-budget is read.")] = 0.0,
    known: Annotated[
        str | None, typer.Option("--known", help="A hash noted earlier, which the ledger must still hold.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Replay all rows: the balances and the accounts' rows beside them must be what they say. So does --known.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what was spent, what is left, and whether the record is intact.

    Accounts are shown with the rows by which they are recognised: how many, whether by ids or by columns, and the beginning
    of a fingerprint that means something in this ledger only.

    The chain of all rows is checked whenever they are listed. A charge checks the newest rows and some of the others, so
    run --verify from time to time, and before you trust a ledger that was elsewhere.

    The last line is the hash in which the chain ends. Note it down away from this file after each release. A ledger that
    an older copy replaced is intact in itself; --known, with that hash, tells.

    [bold]Examples[/bold]

      labeldp ledger spent.sqlite

      labeldp ledger spent.sqlite --label-set people.parquet:income

      labeldp ledger spent.sqlite --set-budget 2

      labeldp ledger spent.sqlite --verify

      labeldp ledger spent.sqlite --known 5f2b...
    """
    from labeldp.accounting import Ledger

    if set_budget is None:
        refuse_idle("ledger", ["--delta"], where="without --set-budget", fix="It says how a new budget is read.")
        require_path(file, "file", owner="ledger")
    book = Ledger(file)
    if set_budget is not None:
        book.set_budget(set_budget, delta=delta, label_set=label_set)
    facts = _facts(book, label_set=label_set, known=known, verify=verify)
    answer(facts, as_json=as_json, show=lambda console: _show(console, facts))


def _facts(book: Any, *, label_set: str | None, known: str | None, verify: bool) -> dict[str, Any]:
    """Return the ledger as plain facts; reading it checks its chain."""
    last = book.verify(known=known) if verify or known is not None else book.last_hash()
    entries = book.entries(label_set)
    names = sorted({entry.label_set for entry in entries} | ({label_set} if label_set else set(book.label_sets())))
    default = book.budget(None)
    return {
        "file": str(book.path),
        "intact": True,
        "replayed": verify or known is not None,
        "last_hash": last,
        "default_budget": None if default is None else {"epsilon": default[0], "delta": default[1]},
        "label_sets": [_account_facts(book, name) for name in names],
        "entries": [_entry_facts(entry) for entry in entries],
    }


def _account_facts(book: Any, name: str) -> dict[str, Any]:
    limit, spent = book.budget(name), book.spent(name)
    delta = 0.0 if limit is None else limit[1]
    return {
        "label_set": name,
        "spent": 0.0 if spent is None else spent.epsilon(delta),
        "budget": None if limit is None else limit[0],
        "delta": delta,
        "left": None if limit is None else book.remaining(name),
        "rows": [
            {"by": known.kind, "rows": one.n_rows, "fingerprint": one.total[:SHOWN], "label": one.label}
            for known in book.known_rows(name)
            for one in known.sets
        ],
    }


def _entry_facts(entry: Any) -> dict[str, Any]:
    epsilon, delta = cost(entry.guarantee)
    return {
        "id": int(entry.id),
        "hash": entry.hash,
        "when": entry.when,
        "who": entry.who,
        "label_set": entry.label_set,
        "rows": entry.n_rows,
        "epsilon": epsilon,
        "delta": delta,
        "shown": cost_text(epsilon, delta),
        "trust": entry.guarantee.trust.words,
        "guarantee": entry.guarantee.headline,
        "mechanism": entry.mechanism,
        "seeded": entry.seeded,
    }


def _show(console: Console, facts: dict[str, Any]) -> None:
    from rich.table import Table

    accounts = Table(title="Accounts", title_justify="left", header_style="bold")
    accounts.add_column("label set", style="cyan", overflow="fold")
    for name in ("spent", "budget", "left"):
        accounts.add_column(name, justify="right")
    accounts.add_column("rows", overflow="fold")
    for line in facts["label_sets"]:
        none = styled(("none", "dim"))
        budget = none if line["budget"] is None else _number_text(line["budget"]) + at_delta(line["delta"])
        left = none if line["left"] is None else _number_text(line["left"])
        rows = _rows_text(line["rows"]) or styled(("known by name", "dim"))
        accounts.add_row(line["label_set"], _number_text(line["spent"]), budget, left, rows)
    console.print(accounts if facts["label_sets"] else "No label set has a release or a budget of its own yet.")
    default = facts["default_budget"]
    if default is not None:
        console.print(
            f"Default budget: epsilon {_number_text(default['epsilon'])}{at_delta(default['delta'])} for each label set."
        )
    if facts["entries"]:
        console.print(_entry_table(facts["entries"], wide=console.width >= 90))
    count = len(facts["entries"])
    ends = facts["last_hash"] or "-"
    how = "intact, all rows replayed" if facts["replayed"] else "intact"
    console.print(styled((how, "green"), f": {count} release{'' if count == 1 else 's'}; the chain ends in"))
    console.print(ends)
    console.print(styled(("Keep this hash where the ledger is not, and give it to --known next time.", "dim")))


def _rows_text(rows: list[dict[str, Any]]) -> str:
    """Return the tables of an account: how many rows, known by what, under which fingerprint; by ids where there are some."""
    best = [one for one in rows if one["by"] == "ids"] or rows
    shown = [f"{one['rows']:,} by {one['by']}, {one['fingerprint']}" for one in best[:MOST_TABLES]]
    more = [f"and {len(best) - MOST_TABLES} more tables"] if len(best) > MOST_TABLES else []
    return "; ".join([*shown, *more])


def _entry_table(entries: list[dict[str, Any]], *, wide: bool) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Releases", title_justify="left", header_style="bold")
    table.add_column("id", justify="right")
    table.add_column("when (UTC)" if wide else "when", no_wrap=True, min_width=10)
    if wide:
        table.add_column("who", overflow="fold")
    table.add_column("label set", style="cyan", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("epsilon", justify="right")
    table.add_column("trusts", overflow="fold")
    for entry in entries:
        when = entry["when"][: 16 if wide else 10].replace("T", " ")
        trust = styled(entry["trust"])
        if entry["seeded"]:
            trust = trust + Text("\nseeded: not private", style="red")
        who = [entry["who"]] if wide else []
        table.add_row(str(entry["id"]), when, *who, entry["label_set"], f"{entry['rows']:,}", entry["shown"], trust)
    return table


def _number_text(value: float) -> str:
    return "no limit" if math.isinf(value) else f"{value:.6g}"
