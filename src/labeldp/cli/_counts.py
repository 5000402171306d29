"""Users per item from an owner's table: a table of counts, or of users and items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labeldp.errors import Described, LabelDPError, invalid


def read_counts(
    source: Path, *, item: str, count: str | None, user: str | None, candidates: Path | None, public: bool
) -> Any:
    """Return the counts of a table, and whether the list of its items is public."""
    from labeldp.data import open_table
    from labeldp.learn._labelled import read_columns
    from labeldp.selection import Histogram

    if (count is None) == (user is None):
        raise LabelDPError(
            "top-k: give --count (a table of counts) or --user (a table of users and items), one of them."
        )
    if public and (candidates is not None or user is not None):
        raise LabelDPError("top-k: --public-items is for a table of counts alone; --candidates names another list.")
    opened = open_table(source)
    opened.require(item, *(name for name in (count, user) if name is not None))
    listed = None if candidates is None else _candidates(candidates, item)
    table = read_columns(opened, list(dict.fromkeys(name for name in (item, count, user) if name is not None)))
    names = _names(source, item, table[item])
    if user is not None:
        return Histogram.from_pairs(_names(source, user, table[user]), names, candidates=listed)
    counts = _whole(table[count])
    if public:
        return Histogram.of(counts, candidates=names.to_pylist(), owner="top-k")
    return Histogram.of(_mapping(source, item, names, counts), candidates=listed, owner="top-k")


def _names(source: Path, column: str, values: Any) -> Any:
    """Return a column of names: whole numbers or text, none of them missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.null_count:
        got = Described(f"{values.null_count:,} missing of {len(values):,} rows")
        raise invalid(source.name, column, "have no missing values", got=got, fix="Drop or fill them first.")
    if not (
        pa.types.is_integer(values.type) or pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    ):
        fix = "Cast it first; a rounded name is another name."
        raise invalid(source.name, column, "be whole numbers or text", got=Described(str(values.type)), fix=fix)
    return values


def _whole(values: Any) -> Any:
    """Return a column of counts as an array; a missing one becomes NaN, which the library refuses."""
    return values.to_numpy()


def _mapping(source: Path, item: str, names: Any, counts: Any) -> dict[Any, Any]:
    """Return counts by name; a name on two rows is refused, since a user may have been counted on both."""
    found = dict(zip(names.to_pylist(), counts.tolist(), strict=True))
    if len(found) < len(names):
        got = Described(f"{len(names) - len(found):,} repeated")
        fix = "Count each user once per item, or give rows of users and items with --user."
        raise invalid(source.name, item, "name each item once", got=got, fix=fix)
    return found


def _candidates(path: Path, item: str) -> list[Any]:
    """Return the public list of items: the column of that name."""
    from labeldp.data import open_table
    from labeldp.learn._labelled import read_columns

    listed = open_table(path)
    listed.require(item)
    return list(_names(path, item, read_columns(listed, [item])[item]).to_pylist())
