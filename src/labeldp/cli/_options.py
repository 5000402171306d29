"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli._screen import warn_budget
from labeldp.errors import Described, LabelDPError, invalid

LEDGER = "Ledger"
ENGINE = "Engine"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
Label = Annotated[str, typer.Option("--label", "-l", help="The column to protect.", metavar="COLUMN")]
Epsilon = Annotated[float, typer.Option("--epsilon", "-e", help="The privacy of each label; smaller is more private.")]
LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", help="Charge this ledger before anything is drawn.", rich_help_panel=LEDGER)
]
Budget = Annotated[
    float | None,
    typer.Option("--budget", help="The default budget of a new ledger; a recorded one stands.", rich_help_panel=LEDGER),
]
BudgetDelta = Annotated[
    float,
    typer.Option(
        "--budget-delta",
        help="The delta at which --budget is read; noise that is not pure needs one.",
        rich_help_panel=LEDGER,
    ),
]
LabelSet = Annotated[
    str | None,
    typer.Option(
        "--label-set", help="The ledger's name for these labels; FILE:COLUMN if left out.", rich_help_panel=LEDGER
    ),
]
Classes = Annotated[
    str | None,
    typer.Option("--classes", help="The public list of classes, with commas; read off the labels if left out."),
]
RowIds = Annotated[
    str | None, typer.Option("--row-ids", help="A column of public row ids, which must differ.", metavar="COLUMN")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Reproducible noise: NOT PRIVATE, for experiments only.")]


Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="The address of a Dask scheduler.", metavar="ADDRESS", rich_help_panel=ENGINE),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Worker processes on this machine; one a core if left out.", rich_help_panel=ENGINE),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        help="Seal the key with the passphrase in this file (or in $LABELDP_PASSPHRASE) until the job ends, so that a "
        "failed one can be taken up with --resume.",
        metavar="FILE",
        rich_help_panel=ENGINE,
    ),
]


class Missing(str, Enum):
    """What to do with rows without a label."""

    error = "error"
    drop = "drop"


MissingLabels = Annotated[Missing, typer.Option("--missing", help="Rows without a label: an error, or left out.")]


def listed(text: str | None) -> list[str]:
    """Return the names in a text with commas.

    >>> listed("a, b,c"), listed(None)
    (['a', 'b', 'c'], [])
    """
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def typed_classes(text: str | None, kind: Any) -> list[Any] | None:
    """Return the listed classes as the label column has them: whole numbers, numbers, booleans or text."""
    if text is None:
        return None
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    words = listed(text)
    try:
        if pa.types.is_integer(inner):
            return [int(word) for word in words]
        if pa.types.is_floating(inner):
            return [float(word) for word in words]
        if pa.types.is_boolean(inner):
            return [{"false": False, "true": True}[word.lower()] for word in words]
    except (ValueError, KeyError) as error:
        raise invalid("--classes", "classes", f"be values of type {inner}", got=Described(text)) from error
    return words


def opened_ledger(path: Path | None, budget: float | None, *, delta: float = 0.0) -> Any:
    """Return the ledger, or None; a budget without a ledger would be forgotten, so it is refused."""
    if path is None:
        if budget is not None:
            raise LabelDPError("--budget needs a ledger to be kept in. Add --ledger FILE.")
        return None
    from labeldp.accounting import Ledger

    book = Ledger(path, budget=budget, delta=delta)
    recorded = book.budget(None)
    if budget is not None and recorded is not None and recorded[0] != budget:
        warn_budget(recorded[0], budget)
    return book


def read_passphrase(path: Path | None) -> str | None:
    """Return the passphrase in a file, or in the environment; never one of the command line, which others can see."""
    if path is None:
        return os.environ.get("LABELDP_PASSPHRASE")
    return path.read_text(encoding="utf-8").strip()


def named_labels(label_set: str | None, table: Any, label: str) -> str:
    """Return the ledger's name for a label column: as given, or the table's file name and the column."""
    return label_set if label_set is not None else f"{table.name}:{label}"
