"""`labeldp look`: a table as its owner should see it before anything is spent: how it is read, its columns, its labels.

It prints raw labels and how often each occurs. That is not private, so it is said first, and nothing is printed where it would
be kept (a file, a pipe) unless the owner asks for that.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Container
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labeldp.cli.given import refuse_idle
from labeldp.cli.screen import AsJson, answer, facts_table, styled
from labeldp.cli.tables import NumberRules, Outside, Reading, Tidying, options_of, refuse_other_kind
from labeldp.errors import Described, invalid

if TYPE_CHECKING:
    from rich.console import Console

#: Classes shown one by one, columns too, and how few rows make a class rare.
MOST_SHOWN, MOST_COLUMNS, RARE = 50, 200, 10
#: Text that is nearly always a number written in a way that makes it none: what each way is called, its pattern, and the remedy.
#: Whole parts do not begin with a needless 0: that is a postal code or the number of a telephone, which is a word.
NUMBER = r"[+-]?(0|[1-9]\d*|[1-9]\d{0,2}([,.'\x{2019}\x{A0}\x{202F} ]\d{3})+)([.,]\d+)?"
WAYS = (
    ("plain numbers kept as text", r"[+-]?(0|[1-9]\d*)(\.\d+)?", "make it a column of numbers"),
    ("numbers with a decimal comma or groups of thousands", NUMBER, "write 1,234.5 as 1234.5"),
    (
        "numbers with a unit or a currency",
        rf"(\p{{Sc}}|[A-Z]{{2,3}} )?\s*{NUMBER}\s*(\p{{Sc}}|[\p{{L}}%\x{{B0}}][\p{{L}}\d%/\x{{B0}}\x{{B2}}\x{{B3}}.]{{0,7}})?",
        "leave the unit to the name of the column: weight_kg with 12",
    ),
)
#: The share of a column's values that have to be written so.
NEARLY_ALL = 0.9
#: Of numbers.
QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)


def look(
    table: Annotated[
        str, typer.Argument(help="A table: CSV, JSON lines, Parquet, Arrow, or a folder of Parquet files.")
    ],
    *,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="The label column, to see its raw values.", metavar="COLUMN")
    ] = None,
    show_raw: Annotated[
        bool, typer.Option("--show-raw", help="Print raw label counts also where the output is kept (a file, a pipe).")
    ] = False,
    rules: Tidying = Tidying(),
    numbers: NumberRules = NumberRules(),
    reading: Reading = Reading(),
    as_json: AsJson = False,
) -> None:
    """Show how a table is read, its columns, and with --label the raw labels: for their owner's eyes, and not private.

    The labels are shown as `privatize` would read them: classes with counts, spellings that look like one class, values of
    a few rows, missing ones. Nothing is spent and nothing is written. Output that is not a terminal is refused without
    --show-raw. Of labels that are numbers (--bounds, --counts) it shows how many lie outside: the one place that counts them.

    [bold]Examples[/bold]

      labeldp look people.csv --label income

      labeldp look people.csv --label income --strip --merge yes=YES

      labeldp look claims.parquet --label amount --bounds 0,5000

      labeldp look export.txt --sep '|' --encoding cp1252
    """
    if label is None:
        fix = "It is about the labels, which are shown with --label alone."
        refuse_idle("look", ["--show-raw", *options_of(Tidying, NumberRules)], where="without --label", fix=fix)
    refuse_other_kind("look", numeric=numbers.given)
    if label is not None and not show_raw and not (sys.stdout is not None and sys.stdout.isatty()):
        fix = "Raw labels would be kept there. If that is meant: --show-raw. Without --label no label is shown."
        got = Described("a file or a pipe")
        raise invalid("look", "output", "be a terminal", got=got, fix=fix)
    from labeldp.mechanisms.numbers import choose_bounds

    source = reading.open(table)
    if label is not None:
        source = rules.apply(source, label, tell=False)  # it is shown below
    columns, rows, hints = _count_missing(source, asked=reading.types)
    facts: dict[str, Any] = {
        "table": str(table),
        "private": label is None,
        "read_as": None if source.form is None else source.form.words,
        "rows": rows,
        "columns": columns,
        "hints": hints,
    }
    if label is not None:
        known = choose_bounds("look", numbers.read_bounds(), numbers.read_counts()) if numbers.given else None
        facts["label"] = _describe_label(source, label)
        if known is not None or facts["label"]["quantity"]:
            facts["label"] = _describe_numbers(source, facts["label"], known)
            facts["label"]["outside"] = None if known is None else numbers.outside.value
    answer(facts, as_json=as_json, show=lambda console: _show(console, facts, label))


def _count_missing(source: Any, *, asked: Container[str]) -> tuple[list[dict[str, Any]], int, list[dict[str, str]]]:
    """Return each column with its type and its number of missing values, the number of rows, and hints about columns.

    There is none about a column of `asked`, whose type the user has said.
    """
    import pyarrow.compute as pc

    from labeldp.data.tables import find_missing, value_type

    missing = dict.fromkeys(source.names, 0)
    written = {
        one.name: [0] * len(WAYS)
        for one in source.schema
        if str(value_type(one.type)) in {"string", "large_string"} and one.name not in asked
    }
    rows = 0
    for batch in source.batches():
        rows += batch.num_rows
        for name in source.names:
            missing[name] += pc.sum(find_missing(batch.column(name))).as_py() or 0
        for name in list(written):
            written[name] = [a + b for a, b in zip(written[name], _count_ways(batch.column(name)), strict=True)]
            if not any(written[name]) and rows > missing[name]:  # words: the rest of the column is not looked at
                del written[name]
    types = {one.name: str(value_type(one.type)) for one in source.schema}  # of the values, where they are coded
    columns = [{"name": name, "type": types[name], "missing": missing[name]} for name in source.names]
    hints = [_say_hint(name, counts, rows - missing[name]) for name, counts in written.items()]
    return columns, rows, [hint for hint in hints if hint is not None]


def _count_ways(values: Any) -> list[int]:
    """Return how many values are numbers in each of `WAYS`; one that is so in several ways counts in all of them."""
    import pyarrow.compute as pc

    from labeldp.data.tables import decode_dictionary

    tidy = pc.utf8_trim_whitespace(decode_dictionary(values))
    return [int(pc.sum(pc.match_substring_regex(tidy, f"^(?:{one})$")).as_py() or 0) for _, one, _ in WAYS]


def _say_hint(name: str, counts: list[int], known: int) -> dict[str, str] | None:
    """Say what a column of text will be read as, if nearly all of it are numbers; no value is quoted: it may be the label."""
    way = next((way for way, count in zip(WAYS, counts, strict=True) if count >= NEARLY_ALL * known), None)
    if way is None or not known:
        return None
    what, _, remedy = way
    hint = f"{what}: read as text, where each value is a category of its own and none is more than another. As numbers: {remedy}"
    return {"column": name, "hint": hint}


def _describe_label(source: Any, label: str) -> dict[str, Any]:
    """Return the raw labels as a release would read them, and what is odd about them."""
    from labeldp.data.label_column import choose_spelling, find_alike, find_unmatched, is_quantity, label_profile

    profile = label_profile(source, label)
    alike = find_alike(profile.counts) if profile.complete else []
    return {
        "column": label,
        "type": profile.dtype,
        "quantity": is_quantity(profile),
        "missing": profile.missing,
        "complete": profile.complete,
        "values": len(profile.counts),
        "counts": [[value, count] for value, count in list(profile.counts.items())[:MOST_SHOWN]],
        "alike": [{"spellings": group, "class": choose_spelling(group)} for group in alike],
        "rare": [value for value, count in profile.counts.items() if count < RARE][:MOST_SHOWN],
        "alone": [[value, profile.first[value]] for value, count in profile.counts.items() if count == 1][:MOST_SHOWN],
        "changes": [] if source.rewritten is None else source.rewritten.words,
        "unmatched": find_unmatched(source),
    }


def _describe_numbers(source: Any, found: dict[str, Any], bounds: tuple[float, float] | None) -> dict[str, Any]:
    """Return the raw numbers in a few quantiles, and how many lie outside of public bounds; the column is in memory."""
    import numpy as np

    from labeldp.data.tables import decode_dictionary
    from labeldp.learn.tables import read_columns
    from labeldp.release.labels import as_plain
    from labeldp.release.numbers import Asked, read_finite

    column = decode_dictionary(read_columns(source, [found["column"]])[found["column"]]).drop_null()
    values = read_finite(
        as_plain(column), Asked(found["column"], "label", must="be numbers", fix="Leave out --bounds.")
    )
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    return {
        **{name: found[name] for name in ("column", "type", "missing", "changes")},
        "quantiles": dict(zip(QUANTILES, np.quantile(values, QUANTILES).tolist(), strict=True)) if len(values) else {},
        "bounds": bounds,
        "below": int((values < low).sum()),
        "above": int((values > high).sum()),
        "whole": bool(np.all(values == np.rint(values))),
    }


def _show_numbers(console: Console, found: dict[str, Any]) -> None:
    rows = [(f"{100 * share:g}% are at most", f"{value:,.6g}") for share, value in found["quantiles"].items()]
    console.print(facts_table(rows))
    if found["bounds"] is None:
        way = "--bounds LOW,HIGH" + (" or --counts 0..C" if found["whole"] else "")
        told = f"a quantity: release it with {way}, of numbers that you knew before you saw these"
        console.print(styled(("numbers: ", "yellow"), told), soft_wrap=True)
    else:
        way = "they would be brought to the nearest one"
        if found["outside"] == Outside.refuse.value:
            way = "the table is refused with one of them"
        told = f"{found['below']:,} below the bounds, {found['above']:,} above: {way}"
        console.print(styled(("outside: ", "yellow"), told), soft_wrap=True)
    if found["missing"]:
        told = f"{found['missing']:,} rows: --missing drop leaves them out"
        console.print(styled(("without a label: ", "yellow"), told))


def _show(console: Console, facts: dict[str, Any], label: str | None) -> None:
    from rich.table import Table

    if label is not None:
        told = "For the owner's eyes: these are raw labels and exact counts. This is not private."
        console.print(styled((" NOT PRIVATE ", "bold white on red"), " ", (told, "red")))
    shown = [("read as", facts["read_as"]), ("rows", f"{facts['rows']:,}")]
    console.print(styled((facts["table"], "bold")), soft_wrap=True)
    console.print(facts_table(shown))
    columns = Table(header_style="bold")
    columns.add_column("column", style="cyan", overflow="fold")
    columns.add_column("type")
    columns.add_column("missing", justify="right")
    for one in facts["columns"][:MOST_COLUMNS]:
        mark = " (the label)" if one["name"] == label else ""
        columns.add_row(f"{one['name']}{mark}", one["type"], f"{one['missing']:,}" if one["missing"] else "")
    console.print(columns)
    for hint in facts["hints"][:MOST_COLUMNS]:
        console.print(styled((f"{hint['column']}: ", "yellow"), hint["hint"]), soft_wrap=True)
    if len(facts["columns"]) > MOST_COLUMNS:
        console.print(f"and {len(facts['columns']) - MOST_COLUMNS:,} more columns")
    if label is not None:
        (_show_numbers if "quantiles" in facts["label"] else _show_label)(console, facts["label"])


def _show_label(console: Console, found: dict[str, Any]) -> None:
    from rich.table import Table

    classes = Table(header_style="bold")
    classes.add_column(f"{found['column']}", style="cyan", overflow="fold")
    classes.add_column("rows", justify="right")
    for value, count in found["counts"]:
        classes.add_row(repr(value), f"{count:,}")
    console.print(classes)
    more = found["values"] - len(found["counts"])
    if more > 0 or not found["complete"]:
        console.print(
            f"and {'' if found['complete'] else 'more than '}{more:,} more values: is this a column of classes?"
        )
    for change in found["changes"]:
        console.print(styled(("done: ", "green"), change))
    for spelling in found["unmatched"]:
        told = f"{spelling!r}: the spelling to be changed stands on the right, --merge CLASS=SPELLING"
        console.print(styled(("no label is spelt ", "yellow"), told), soft_wrap=True)
    for group in found["alike"]:
        said = ", ".join(repr(value) for value in group["spellings"])
        console.print(styled(("look like one class: ", "yellow"), said, "; ", _suggest(group)), soft_wrap=True)
    for value, row in found["alone"]:
        told = f"in row {row:,} alone (rows count from 0): list it among --classes, or merge it"
        console.print(styled(("one row: ", "yellow"), f"{value!r} {told}"), soft_wrap=True)
    if found["missing"]:
        told = f"{found['missing']:,} rows: --missing drop leaves them out"
        console.print(styled(("without a label: ", "yellow"), told))


def _suggest(group: dict[str, Any]) -> str:
    """Return the options that make one class of several spellings."""
    kept = group["class"]
    others = sorted({value.strip() for value in group["spellings"]} - {kept})
    options = ["--strip"] if any(value != value.strip() for value in group["spellings"]) else []
    options += [f"--merge {shlex.quote(f'{kept}={value}')}" for value in others]
    return " ".join(options)
