"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from labeldp.cli._screen import warn_budget
from labeldp.errors import Described, LabelDPError, invalid

LEDGER = "Ledger"

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


def opened_ledger(path: Path | None, budget: float | None) -> Any:
    """Return the ledger, or None; a budget without a ledger would be forgotten, so it is refused."""
    if path is None:
        if budget is not None:
            raise LabelDPError("--budget needs a ledger to be kept in. Add --ledger FILE.")
        return None
    from labeldp.accounting import Ledger

    book = Ledger(path, budget=budget)
    recorded = book.budget(None)
    if budget is not None and recorded is not None and recorded[0] != budget:
        warn_budget(recorded[0], budget)
    return book


def named_labels(label_set: str | None, table: Path, label: str) -> str:
    """Return the ledger's name for a label column: as given, or the table's file name and the column."""
    return label_set if label_set is not None else f"{table.name}:{label}"
