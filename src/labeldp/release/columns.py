"""What stands in the files of a release: the columns that labeldp writes, and what a schema may say beside them.

A file of labels has, for each example, the released label (or an output that is no label) and what differs from example to
example; beside the columns of a user's table our own begin with `RESERVED`:

    output       the number of an output that is not a label, or a shape and a set of labels as bytes; then there is no
                 label column
    row          the number of the example's row in channel.parquet
    candidates   the candidate set, a bit for each class
    place        the position that public chance goes by, where it is not the row's own
    stage        in which stage the label was drawn, from 0
    prior_row    the number of the example's row in prior.parquet

Nothing else of ours. A table's other columns are its owner's; the manifest lists their names. So whoever checks a release
can name every column that does not belong there.

>>> column = as_column(np.array([[1, 0], [0, 1]], np.uint8))
>>> column.type, as_array(pa.chunked_array([column])).tolist()
(FixedSizeBinaryType(fixed_size_binary[2]), [[1, 0], [0, 1]])

Design notes. Free-form metadata may say anything about the labels: a rate, a count, a list of rows, in the schema, in one
of its columns, or in pandas' description of them. So a release has none of the source's. What stays of pandas'
description is built anew from the fields that pandas documents (`clean_metadata`), each of a known kind. The audit asks
whether cleaning a file's metadata leaves it as it is: one rule, for the writer and for whoever checks it.

Reference: "Storing pandas DataFrame objects in Apache Parquet format", the developers' page of pandas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from labeldp.channel import FiniteChannel
from labeldp.untrusted import parse_json

#: Columns of labels.parquet that are not the label, and what they begin with beside the columns of a user's table.
EXTRAS = ("output", "row", "candidates", "place", "stage", "prior_row")
RESERVED = "_labeldp_"
#: Keys of a column in pandas' description, and of what it may add to some types; a value is a short text or a number.
PANDAS_COLUMN = ("name", "field_name", "pandas_type", "numpy_type", "metadata")
PANDAS_TYPE = ("encoding", "num_categories", "ordered", "timezone", "unit", "precision", "scale")
#: A name of a type, a version or a time zone: nothing that could be a list of labels.
SHORT = re.compile(r"[\w\[\]<>:,.+/() -]{1,64}")

#: Lists of any length, and how they are made from the field of their items.
LISTS = ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list))


def as_column(array: npt.NDArray[Any]) -> pa.Array:
    """Return a vector as it is, bytes as fixed-size binary and other matrices as fixed-size lists."""
    if array.ndim == 1:
        return pa.array(array)
    flat = np.ascontiguousarray(array)
    if flat.dtype == np.uint8:
        width = pa.binary(flat.shape[1])
        return pa.FixedSizeBinaryArray.from_buffers(width, len(flat), [None, pa.py_buffer(flat)])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])


def example_columns(
    channel: FiniteChannel, *, stage: npt.NDArray[Any] | None = None, prior_index: npt.NDArray[Any] | None = None
) -> dict[str, pa.Array]:
    """Return what differs from example to example besides the label, as columns: `EXTRAS` says under which names.

    Group numbers have 32 bits on disk: there are never more groups than that. Positions have 64.
    """
    found = {**channel.example_arrays(), "stage": stage, "prior_row": prior_index}
    narrow = {
        name: array.astype(np.int32) if array.dtype == np.int64 and name != "place" else array
        for name, array in found.items()
        if array is not None
    }
    return {name: as_column(array) for name, array in narrow.items()}


def spread_nulls(rows: npt.NDArray[np.int64], n_rows: int) -> pa.Array:
    """Return, for each of `n_rows` rows, the place of its answer, and null where it has none: what `take` makes nulls of.

    >>> spread_nulls(np.array([0, 2]), 3).to_pylist()
    [0, None, 1]
    """
    places, there = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.bool_)
    places[rows], there[rows] = np.arange(len(rows)), True
    return pa.array(places, mask=~there)


def as_array(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return what `as_column` stored."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    if pa.types.is_fixed_size_binary(whole.type):
        width = whole.type.byte_width
        data = np.frombuffer(whole.buffers()[1], np.uint8)
        return data[whole.offset * width : (whole.offset + len(whole)) * width].reshape(len(whole), width)
    if pa.types.is_fixed_size_list(whole.type):
        whole, shape = whole.flatten(), (len(whole), whole.type.list_size)
        matrix: npt.NDArray[Any] = whole.to_numpy(zero_copy_only=False).reshape(shape)
        return matrix
    array: npt.NDArray[Any] = whole.to_numpy(zero_copy_only=False)
    return array


def clean_field(field: Any) -> Any:
    """Return a field without metadata, of a type whose own fields (of a struct, of a list) have none either."""
    return pa.field(field.name, _clean_type(field.type), nullable=field.nullable)


def _clean_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([clean_field(kind.field(place)) for place in range(kind.num_fields)])
    for is_list, make in LISTS:
        if is_list(kind):
            return make(clean_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(clean_field(kind.value_field), kind.list_size)
    return kind


def find_metadata(schema: Any) -> Iterator[str]:
    """Yield the names of fields that carry metadata, those inside of a type among them."""
    for field in schema:
        yield from _find_in_field(field, field.name)


def _find_in_field(field: Any, name: str) -> Iterator[str]:
    if field.metadata:
        yield name
    kind = field.type
    for place in range(getattr(kind, "num_fields", 0)):
        inner = kind.field(place)
        yield from _find_in_field(inner, f"{name}.{inner.name}")


def clean_metadata(
    metadata: Mapping[bytes, bytes] | None, *, columns: Collection[str], label: str | None
) -> dict[bytes, bytes] | None:
    """Return what a release keeps of a schema's metadata: pandas' description of the types, and nothing else.

    A description that is not made of the fields that pandas documents, or that speaks of other `columns`, is dropped
    whole; what it says of the label's own column, beyond the type, too.

    >>> clean_metadata({b"positives": b"17"}, columns=["ill"], label="ill") is None
    True
    """
    try:
        given = parse_json((metadata or {})[b"pandas"])
        described = {
            "index_columns": [_clean_index(one, columns) for one in given["index_columns"]],
            "column_indexes": [_clean_column(one, None, label) for one in given["column_indexes"]],
            "columns": [_clean_column(one, columns, label) for one in given["columns"]],
            "creator": {name: _check_short(given["creator"][name]) for name in ("library", "version")},
            "pandas_version": _check_short(given["pandas_version"]),
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return {b"pandas": json.dumps(described).encode()}


def _clean_index(given: Any, columns: Collection[str]) -> Any:
    """Return the name of an index column, or the description of a range."""
    if isinstance(given, str):
        return _check_known(given, columns)
    if given["name"] is not None:
        _check_short(given["name"])
    numbers = {key: _check_plain(int(given[key])) for key in ("start", "stop", "step")}
    return {"kind": _check_short(given["kind"]), "name": given["name"], **numbers}


def _clean_column(given: Any, columns: Collection[str] | None, label: str | None) -> dict[str, Any]:
    """Return the description of one column, of the documented fields alone; without `columns` its name is any short one."""
    known = {key: given[key] for key in PANDAS_COLUMN[:2]}
    for name in known.values():
        _ = name is None or (_check_short(name) if columns is None else _check_known(name, columns))
    types = {key: _check_short(given[key]) for key in PANDAS_COLUMN[2:4]}
    more = None if label is not None and label in known.values() else given["metadata"]
    if more is not None:
        more = {key: _check_plain(more[key]) for key in PANDAS_TYPE if key in more}
    return {**known, **types, "metadata": more}


def _check_known(name: Any, columns: Collection[str]) -> str:
    """Return the name of a column; refuse any other value."""
    if not isinstance(name, str) or name not in columns:
        raise ValueError("no column of this table")
    return name


def _check_short(text: Any) -> str:
    """Return a short text; refuse any other value."""
    if not isinstance(text, str) or not SHORT.fullmatch(text):
        raise ValueError("no name of a type, a version or a time zone")
    return text


def _check_plain(value: Any) -> Any:
    """Return a number of 64 bits, a truth value, None or a short text; refuse any other value."""
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    return None if value is None else _check_short(value)
