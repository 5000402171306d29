"""Row numbers must differ: the ledger knows a label set by them, and a row given twice is released twice.

>>> import numpy as np
>>> _repeated(np.array([3, 1, 3, 3]))
(array([3]), 2)

Design notes. At most `IDS_AT_ONCE` ids are in memory: a longer table is read several times, each pass taking the ids
of one residue of a hash. Whole numbers are their own key. Text is keyed by a 64-bit hash, and keys that meet are
confirmed on the ids themselves in one more pass, so that a collision is never reported as a duplicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from labeldp.data.tables._source import TableSource
from labeldp.errors import Described, invalid

#: 128 MB of 64-bit keys, and as much again to sort them.
IDS_AT_ONCE = 2**24

#: Candidates that one pass confirms: enough to find a true duplicate among chance collisions of 64-bit hashes.
MOST_CANDIDATES = 1_000

ID_ROWS = 2**18
KeyArray = npt.NDArray[np.int64]


def check_row_ids(source: TableSource, column: str) -> None:
    """Refuse a column of row ids (whole numbers or text) that misses one or has one twice."""
    source.require(column)
    _check_type(source, column)
    rows = source.rows if source.rows is not None else sum(batch.num_rows for batch in source.batches(columns=[column]))
    passes = max(1, -(-rows // IDS_AT_ONCE))
    for number in range(passes):
        keys = [key[_residue(key, passes) == number] for _, key in _keyed(source, column)]
        candidates, repeats = _repeated(np.concatenate(keys))
        if repeats:
            _confirm(source, column, candidates, repeats)


def _check_type(source: TableSource, column: str) -> None:
    dtype = _plain(source.schema.field(column).type)
    if not (pa.types.is_integer(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
        fix = "Cast it first; rounding would make different ids equal."
        raise invalid(column, "row ids", "be whole numbers or text", got=Described(str(dtype)), fix=fix)


def _plain(dtype: Any) -> Any:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _keyed(source: TableSource, column: str) -> Iterator[tuple[Any, KeyArray]]:
    """Each batch of ids with a 64-bit key per id."""
    for batch in source.batches(columns=[column], batch_rows=ID_ROWS):
        ids = batch.column(0)
        if ids.null_count:
            raise invalid(
                column, "row ids", "have no missing values", got=Described(f"{ids.null_count:,} in one batch")
            )
        yield ids, _key(ids)


def _key(ids: Any) -> KeyArray:
    ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
    if pa.types.is_integer(ids.type):
        # uint64 wraps around into int64 one to one, so equality is kept.
        keys: KeyArray = ids.to_numpy(zero_copy_only=False).astype(np.int64)
        return keys
    return np.fromiter((hash(text) for text in ids.to_pylist()), np.int64, len(ids))


def _residue(keys: KeyArray, passes: int) -> npt.NDArray[np.uint64]:
    """Which pass takes a key: the high bits of a multiplicative hash, so that runs of numbers spread evenly."""
    mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    residue: npt.NDArray[np.uint64] = (mixed >> np.uint64(32)) % np.uint64(passes)
    return residue


def _repeated(keys: KeyArray) -> tuple[KeyArray, int]:
    """Some of the keys that occur more than once, and how many rows repeat an earlier one."""
    keys.sort()
    again = keys[1:][keys[1:] == keys[:-1]]
    return np.unique(again)[:MOST_CANDIDATES], len(again)


def _confirm(source: TableSource, column: str, candidates: KeyArray, repeats: int) -> None:
    """Count the ids behind the candidate keys, and raise if one of them truly occurs twice."""
    seen: Counter[Any] = Counter()
    for ids, keys in _keyed(source, column):
        seen.update(ids.filter(pa.array(np.isin(keys, candidates))).to_pylist())
    example, count = seen.most_common(1)[0]
    if count > 1:
        got = Described(f"{example!r} {count:,} times; {repeats:,} rows or more repeat an id")
        fix = "Drop or merge the repeated rows: each label is released once."
        raise invalid(column, "row ids", "differ from row to row", got=got, fix=fix)
