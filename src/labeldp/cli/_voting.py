"""What PATE learns from, out of two tables: private rows with labels, and public rows without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labeldp.cli._options import typed_classes
from labeldp.errors import Described, invalid


@dataclass(frozen=True, kw_only=True, eq=False)
class VoteData:
    """A private table and public rows: features as tables, targets in a box (one label) or as rows of 0 and 1."""

    private: Any
    public: Any
    targets: Any
    dropped: int

    @property
    def rows(self) -> int:
        return int(self.private.num_rows)

    @property
    def columns(self) -> list[str]:
        return list(self.private.column_names)


def read_voting(
    source: Any, public: Any, *, label: list[str], drop: list[str], classes: str | None, missing: str, name: str
) -> VoteData:
    """Return features and targets; the public table must have every feature."""
    from labeldp.learn._labelled import feature_columns, read_columns, read_labelled

    source.require(*label)
    if len(label) == 1:
        kind = source.schema.field(label[0]).type
        named = typed_classes(classes, kind)
        read = read_labelled(source, label=label[0], leave_out=drop, classes=named, missing=missing, label_set=name)
        private, targets, dropped = read.features, read.labels, read.dropped
    else:
        columns = feature_columns(source, label=None, leave_out=[*drop, *label])
        whole = read_columns(source, [*columns, *label])
        private, targets, dropped = whole.select(columns), _indicators(source, whole, label), 0
    if not private.column_names:
        raise invalid("pate", "table", "have features", got=Described("labels only"))
    public.require(*private.column_names)
    rows = read_columns(public, private.column_names)
    if rows.num_rows == 0:
        raise invalid("pate", "--public", "have rows", got=Described("none"), fix="Teachers vote on public rows.")
    return VoteData(private=private, public=rows, targets=targets, dropped=dropped)


def _indicators(source: Any, table: Any, labels: list[str]) -> Any:
    """Return label columns of 0 and 1 (or booleans) as a matrix."""
    import numpy as np
    import pyarrow as pa

    columns = []
    for name in labels:
        column = table[name]
        if column.null_count:
            got = Described(f"{column.null_count:,} missing of {len(column):,} rows")
            raise invalid(source.path.name, name, "have no missing values", got=got, fix="Fill or drop them first.")
        if not (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
        ):
            fix = "Several labels are columns of 0 and 1; a column of classes is one label alone."
            raise invalid(source.path.name, name, "hold 0 and 1", got=Described(str(column.type)), fix=fix)
        values = column.to_numpy()
        if not np.isin(values, (0, 1)).all():
            fix = "Several labels are columns of 0 and 1; a column of classes is one label alone."
            raise invalid(source.path.name, name, "hold 0 and 1", got=Described("another number"), fix=fix)
        columns.append(values.astype(np.uint8))
    return np.stack(columns, axis=1)
