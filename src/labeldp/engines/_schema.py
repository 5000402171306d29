"""The schema of a table's release: the input's, with nothing in it that speaks of raw labels.

>>> import pyarrow as pa
>>> raw = pa.schema([pa.field("ill", pa.string(), metadata={"rate": "0.02"})], metadata={"positives": "17"})
>>> print(released_schema(raw, label="ill", extras={"row": pa.int32()}).to_string(show_schema_metadata=True))
ill: string
_labeldp_row: int32 not null

Design notes. Types, order and names are kept. Free-form metadata may say anything about the labels (a rate, a count, a
list of rows), so of the table's only pandas' description of types stays, and the label's own is dropped. Statistics and
dictionaries in the file are made anew, from the released labels, when it is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from labeldp.data.tables import TableSource
from labeldp.errors import Described, invalid
from labeldp.release._writer import RESERVED


def check_names(source: TableSource) -> None:
    """Refuse columns under the names that labeldp adds its own by."""
    taken = next((name for name in source.names if name.startswith(RESERVED)), None)
    if taken is not None:
        fix = f"Names that begin with {RESERVED!r} are labeldp's: rename or drop it."
        raise invalid("privatize_table", "columns", "not have a reserved name", got=taken, fix=fix)


def class_values(source: TableSource, label: str, classes: Sequence[Any] | None) -> tuple[Any, ...] | None:
    """Return listed classes in the label column's own type: a command line spells 0 and 1 as text."""
    if classes is None:
        return None
    dtype = value_type(source.schema.field(label).type)
    try:
        listed = pa.array([value.item() if isinstance(value, np.generic) else value for value in classes])
        return tuple(listed.cast(dtype).to_pylist())
    except (pa.ArrowException, ValueError, TypeError) as error:
        got = Described(str(error).splitlines()[0])
        raise invalid("privatize_table", "classes", f"be values of the column's type, {dtype}", got=got) from error


def released_schema(schema: Any, *, label: str, extras: Mapping[str, Any]) -> Any:
    """Return the input's schema without metadata about labels, and the reserved columns behind it."""
    fields = [field.remove_metadata() if field.name == label else field for field in schema]
    added = [pa.field(RESERVED + name, dtype, nullable=False) for name, dtype in extras.items()]
    return pa.schema([*fields, *added], metadata=_pandas_alone(schema.metadata, label))


def released_column(codes: Any, *, dtype: Any, classes: Sequence[Any]) -> Any:
    """Return released codes as values of the input's type; a dictionary holds the public list of classes."""
    values = pa.array(list(classes), type=value_type(dtype))
    if pa.types.is_dictionary(dtype):
        indices = pa.array(codes).cast(dtype.index_type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered)
    return values.take(pa.array(codes))


def value_type(dtype: Any) -> Any:
    """The type of a column's values, also where they are stored as a dictionary."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _pandas_alone(metadata: Mapping[bytes, bytes] | None, label: str) -> dict[bytes, bytes] | None:
    """Return pandas' description of the columns' types, without a data frame's free-form attributes."""
    try:
        described = json.loads((metadata or {})[b"pandas"])
        described.pop("attributes", None)
        for column in described["columns"]:
            if label in (column.get("name"), column.get("field_name")):
                column["metadata"] = None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return {b"pandas": json.dumps(described).encode()}
