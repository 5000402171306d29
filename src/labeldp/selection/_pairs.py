"""Users per item from a table of pairs, each pair once, in memory that a few bytes per row bound.

>>> names, counts = count_pairs("demo", [1, 1, 2, 2], ["a", "a", "a", "b"])
>>> names.tolist(), counts.tolist()
(['a', 'b'], [2, 1])

Design notes. Both columns become integer codes, chunk by chunk. Users are then split into parts by code; the pairs of
one part are packed into one integer each (user * n_items + item), sorted, and repeated ones dropped. Only the codes (8
to 16 bytes a row) and one part live at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, invalid

Codes = npt.NDArray[np.int64]

#: Rows coded at a time, and pairs sorted at a time (8 MiB of keys).
CHUNK = 1 << 20


def count_pairs(owner: str, users: Any, items: Any) -> tuple[npt.NDArray[Any], Codes]:
    """Return the distinct items, sorted, and how many distinct users have each."""
    user_column, item_column = read_column(owner, "users", users), read_column(owner, "items", items)
    if user_column.size != item_column.size or user_column.size == 0:
        got = Described(f"{user_column.size} users and {item_column.size} items")
        raise invalid(owner, "users and items", "be columns of one length, not empty", got=got)
    names, item_codes = coded(item_column)
    _, user_codes = coded(user_column)
    counts = np.zeros(names.size, np.int64)
    n_parts = -(-user_column.size // CHUNK)
    for part in range(n_parts):
        keys = np.concatenate(
            [
                user_codes[low : low + CHUNK][chosen].astype(np.int64) * names.size
                + item_codes[low : low + CHUNK][chosen]
                for low in range(0, user_codes.size, CHUNK)
                for chosen in [user_codes[low : low + CHUNK] % n_parts == part]
            ]
        )
        keys.sort()
        first = np.ones(keys.size, bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        counts += np.bincount(keys[first] % names.size, minlength=names.size)
    return names, counts


def coded(column: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the distinct values, sorted, and the place of each row's value among them, in the smallest integers."""
    chunks = range(0, column.size, CHUNK)
    names = np.unique(np.concatenate([np.unique(column[low : low + CHUNK]) for low in chunks]))
    kind = np.int32 if names.size < 2**31 else np.int64
    codes = np.empty(column.size, kind)
    for low in chunks:
        values, inverse = np.unique(column[low : low + CHUNK], return_inverse=True)
        codes[low : low + CHUNK] = np.searchsorted(names, values)[inverse]
    return names, codes


def read_column(owner: str, name: str, column: Any) -> npt.NDArray[Any]:
    """Return a column of integers or text; Arrow columns are read through their own conversion."""
    if hasattr(column, "combine_chunks") or hasattr(column, "to_pylist"):
        column = column.to_numpy() if hasattr(column, "combine_chunks") else column.to_numpy(zero_copy_only=False)
    array = np.asarray(column)
    if array.dtype.kind in "OT" and all(isinstance(value, str) for value in array.flat):
        return array
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        fix = "Drop or fill missing ids first."
        raise invalid(owner, name, "be a column of integers or text", got=Described(f"dtype {array.dtype}"), fix=fix)
    return array
