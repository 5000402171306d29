"""From columns of any library to codes: what pandas, polars, pyarrow and NumPy call the same thing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, invalid


def categories_of(values: Any) -> tuple[Hashable, ...] | None:
    """Return the classes that a categorical column declares, or None for other columns.

    Duck-typed, so that none of the libraries need be installed: pandas has `.cat.categories` or `.categories`, a polars
    Enum `.dtype.categories`, pyarrow a dictionary type. A polars Categorical declares nothing: it grows with the data.
    An unordered pyarrow dictionary is sorted, since `dictionary_encode` lists values as they first occur: its own order
    would give the first label away.
    """
    holder = getattr(values, "cat", values) if hasattr(values, "dtype") else values
    if type(values).__module__.startswith("pyarrow"):
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            chunk = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            listed = chunk.dictionary.to_pylist()
            return tuple(listed if values.type.ordered else sorted(listed))
        return None
    if type(values).__module__.startswith("polars") and str(values.dtype).startswith("Enum"):
        return tuple(values.dtype.categories.to_list())
    if type(values).__module__.startswith("pandas"):
        categories = getattr(holder, "categories", None)
        return None if categories is None else tuple(categories.tolist())
    return None


def is_declared(values: Any, plain: npt.NDArray[Any]) -> bool:
    """Whether a column's type fixes its classes before any label is seen: a boolean, or a polars enumeration."""
    if plain.dtype == np.bool_:
        return True
    return type(values).__module__.startswith("polars") and str(values.dtype).startswith("Enum")


def as_plain(values: Any) -> npt.NDArray[Any]:
    """Return a column as a NumPy array; text as objects, so that no length is lost."""
    if type(values).__module__.startswith("pyarrow"):
        array = np.asarray(
            values.to_numpy(zero_copy_only=False) if hasattr(values, "chunk") is False else values.to_numpy()
        )
    elif type(values).__module__.startswith("polars"):
        array = np.asarray(values.to_numpy())
    else:
        array = _from_sequence(values)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _from_sequence(values: Any) -> npt.NDArray[Any]:
    """Return a list as an array of what it holds: NumPy alone would turn 1 and NaN beside text into text."""
    try:
        array = np.asarray(values)
    except ValueError:
        got = Described("sequences of different lengths")
        raise invalid("labels", "labels", "be one label per example", got=got) from None
    mixed = array.dtype.kind in "US" and isinstance(values, (list, tuple))
    return np.array(values, dtype=object) if mixed else array


def missing_in(plain: npt.NDArray[Any]) -> int:
    """Return how many values are missing: NaN, NaT or None."""
    if plain.dtype.kind == "f":
        return int(np.isnan(plain).sum())
    if plain.dtype.kind in "mM":
        return int(np.isnat(plain).sum())
    if plain.dtype == object:
        return sum(1 for v in plain if _is_missing(v))
    return 0


def _is_missing(value: Any) -> bool:
    """Whether an object stands for nothing; pandas.NA compares unequal to itself in its own way."""
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    return type(value).__name__ in ("NAType", "NaTType")


def look_up(plain: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> npt.NDArray[np.integer[Any]] | None:
    """Return the code of each label, or None if some label is not among the classes."""
    if plain.dtype.kind in "iu" and classes == tuple(range(len(classes))):
        inside = len(plain) == 0 or (int(plain.min()) >= 0 and int(plain.max()) < len(classes))
        return plain if inside else None
    if plain.dtype.kind in "iufb" and all(isinstance(c, (bool, int, float)) for c in classes):
        return _searched(plain, np.asarray(classes))
    code = {c: j for j, c in enumerate(classes)}
    found = [code.get(_scalar(v), -1) for v in plain.tolist()]
    codes = np.asarray(found, dtype=np.int64)
    return None if np.any(codes < 0) else codes


def _searched(plain: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.integer[Any]] | None:
    """Look numbers up by binary search in the sorted classes."""
    order = np.argsort(classes)
    at = np.searchsorted(classes[order], plain).clip(max=len(classes) - 1)
    codes = order[at]
    return codes if np.array_equal(classes[codes], plain) else None


def first_unknown(plain: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> tuple[Any, int]:
    """Return one value that is not among the classes, and how often it occurs."""
    known = set(classes)
    values = plain.tolist()
    unknown = next(v for v in values if _scalar(v) not in known)
    return unknown, sum(1 for v in values if v == unknown)


def _scalar(value: Any) -> Any:
    """Return a hashable Python value; an unhashable one is no class."""
    try:
        hash(value)
    except TypeError:
        return _UNHASHABLE
    return value


_UNHASHABLE = object()


def decoded(codes: npt.NDArray[Any], classes: tuple[Hashable, ...]) -> npt.NDArray[Any]:
    """Return the class of each code: numbers and booleans as such, everything else as objects."""
    kinds = {type(c) for c in classes}
    if kinds <= {int} or kinds <= {bool} or kinds <= {int, float}:
        table = np.asarray(classes)
    else:
        table = np.empty(len(classes), object)
        table[:] = classes
    named: npt.NDArray[Any] = table[codes]
    return named
