"""An owner's table on its way to training: features as a table, labels in their box, checked before anything is spent.

>>> import pyarrow as pa, tempfile, pathlib
>>> from labeldp.data import open_table, write_table
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> table = pa.table({"age": [20, 40, 30, 50], "ill": ["no", "yes", "no", "yes"]})
>>> write_table([table], table.schema, path)
4
>>> read_labelled(open_table(path), label="ill").labels
<SensitiveLabels 'ill': 4 labels of 2 classes, contents hidden>
>>> folder.cleanup()
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from labeldp.data import TableSource, check_label, check_row_ids, label_profile
from labeldp.errors import invalid
from labeldp.release import Release, SensitiveLabels
from labeldp.release._encoding import decoded
from labeldp.release._writer import (
    LABELS,
    RESERVED,
    as_column,
    check_plain_classes,
    check_target,
    file_facts,
    staged,
    write_manifest,
    write_parquet,
    write_shared,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTable:
    """Features with their boxed labels; `dropped` rows had no label."""

    features: Any = field(repr=False)
    labels: SensitiveLabels
    dropped: int


def feature_columns(source: TableSource, *, label: str | None, leave_out: Sequence[str] = ()) -> list[str]:
    """Return the columns of a table that are features: all but the label and those left out."""
    source.require(*leave_out, *([] if label is None else [label]))
    return [name for name in source.names if name != label and name not in leave_out]


def read_columns(source: TableSource, columns: Sequence[str]) -> Any:
    """Return some columns of a table in memory."""
    schema = pa.schema([source.schema.field(name) for name in columns])
    return pa.Table.from_batches(source.batches(columns=list(columns)), schema=schema)


def read_labelled(
    source: TableSource,
    *,
    label: str,
    leave_out: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
    missing: str = "error",
    row_ids: str | None = None,
    label_set: str | None = None,
) -> LabelledTable:
    """Read a table after the same checks as a release: missing labels, lone values, constants, repeated row ids."""
    away = [*leave_out, *([row_ids] if row_ids else [])]
    columns = feature_columns(source, label=label, leave_out=away)
    check_label(label_profile(source, label), missing=missing, classes=classes)
    if row_ids:
        check_row_ids(source, row_ids)
    table = read_columns(source, [*columns, label, *([row_ids] if row_ids else [])])
    absent = pc.is_null(table[label], nan_is_null=True)
    dropped = int(pc.sum(absent).as_py() or 0)
    if dropped:
        table = table.filter(pc.invert(absent))
    boxed = SensitiveLabels(
        decoded_column(table[label]),
        classes=classes,
        name=label if label_set is None else label_set,
        row_ids=table[row_ids].to_pylist() if row_ids else None,
    )
    return LabelledTable(features=table.select(columns), labels=boxed, dropped=dropped)


def decoded_column(column: Any) -> Any:
    """Return a dictionary column as plain values: its dictionary was read off the labels, and says so that way."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def check_release_target(directory: str | os.PathLike[str], labelled: LabelledTable) -> None:
    """Refuse, before any budget is spent, what `save_with_features` would refuse afterwards."""
    check_target(directory, owner="save_with_features")
    check_plain_classes(labelled.labels.classes, owner="save_with_features")
    taken = next((name for name in labelled.features.column_names if name.startswith(RESERVED)), None)
    if taken is not None:
        raise invalid("save_with_features", "columns", f"not begin with {RESERVED}", got=taken, fix="Rename it.")


def save_with_features(release: Release, features: Any, directory: str | os.PathLike[str], *, label: str) -> None:
    """Write a release with its features into a new directory: all that others need to train the same model."""
    columns = {name: features[name] for name in features.column_names}
    columns[label] = pa.array(decoded(release.codes, release.classes))
    extras = {**release.channel.example_arrays(), "stage": release.stage, "prior_row": release.prior_index}
    for name, array in extras.items():
        if array is not None:
            columns[RESERVED + name] = as_column(array)
    with staged(directory, owner="save_with_features") as partial:
        write_parquet(pa.table(columns), partial / LABELS)
        files = {LABELS: file_facts(partial / LABELS), **write_shared(release, partial)}
        write_manifest(release, partial, files=files, n_examples=len(release), label_column=label)
