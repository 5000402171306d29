"""Which labels a release was about, told by the data set's name and row ids and never by label values.

>>> first = fingerprint("adult", n_rows=3, row_ids=[7, 8, 9])
>>> len(first), first == fingerprint("adult", n_rows=3, row_ids=[9, 8, 7])
(64, False)

Design notes. Every field goes into SHA-256 behind its length, so no two inputs share a text. Ids are hashed in order,
in chunks of a fixed size: the number of rows is bounded by patience, not by memory. The hash tells whether two releases
name the same rows; someone who can guess the ids can check the guess, so ids that are themselves secret (a social
security number) belong in a column of their own making first.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp._validate import check_integer
from labeldp.errors import Described, LabelDPError, invalid

#: Part of the definition: another value gives other fingerprints.
CHUNK = 65_536
OWNER = "fingerprint"


def fingerprint(name: str, *, n_rows: int, start: int = 0, row_ids: Any = None) -> str:
    """Return 64 hexadecimal digits that name rows `start` .. `start + n_rows` of a data set.

    `name` identifies the data set (a name, a path, a version); `row_ids` are integers or strings, one a row, in order.
    Equal integers of different widths count as equal; 7 and "7" do not. Label values never enter.
    """
    count = check_integer(OWNER, "n_rows", n_rows, least=0)
    first = check_integer(OWNER, "start", start, least=0)
    digest = hashlib.sha256(b"labeldp rows 1\n")
    put(digest, check_identity(name))
    put(digest, f"{first}:{count}".encode())
    if row_ids is not None:
        ids = as_ids(row_ids, count)
        for at in range(0, count, CHUNK):
            put(digest, chunk_bytes(ids[at : at + CHUNK]))
    return digest.hexdigest()


def put(digest: Any, data: bytes) -> None:
    """Feed bytes behind their length."""
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def as_ids(row_ids: Any, n_rows: int) -> npt.NDArray[Any]:
    """Return the ids as a 1-d array of integers or of Python strings."""
    ids = np.asarray(row_ids)
    if ids.shape != (n_rows,):
        got = Described(f"shape {ids.shape} for {n_rows} rows")
        raise invalid(OWNER, "row_ids", "have one id a row", got=got)
    if ids.size == 0 or ids.dtype.kind in "iuU":
        return ids
    kinds = {type(value) for value in ids.tolist()} if ids.dtype.kind in "OT" else {ids.dtype.type}
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return whole_numbers(ids)
    if not all(issubclass(kind, str) for kind in kinds):
        raise bad_ids(", ".join(sorted(kind.__name__ for kind in kinds)))
    return ids


def check_identity(name: Any) -> bytes:
    """Return the data set's name as bytes."""
    if not isinstance(name, str) or not name:
        raise invalid(OWNER, "name", "be a text that names the data set", got=name)
    return name.encode("utf-8", "surrogatepass")


def whole_numbers(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Python integers as 64-bit ones."""
    low, high = int(ids.min()), int(ids.max())
    if low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63):
        raise bad_ids("integers of more than 64 bits")
    return ids.astype(np.int64 if high < 2**63 else np.uint64)


def bad_ids(what: str) -> LabelDPError:
    """Return the error for ids that are neither integers nor strings."""
    fix = "Turn the ids into strings first; fill or drop missing ones."
    return invalid(OWNER, "row_ids", "be integers of 64 bits, or strings", got=Described(what), fix=fix)


def chunk_bytes(ids: npt.NDArray[Any]) -> bytes:
    """Return one chunk as bytes: a mark of the kind, then the integers, or the lengths and the texts."""
    if ids.dtype.kind in "iu":
        # Only an unsigned number past the signed range is written unsigned, so that the width says nothing.
        wide = ids.dtype == np.uint64 and bool((ids > np.iinfo(np.int64).max).any())
        return (b"u" if wide else b"i") + ids.astype("<u8" if wide else "<i8").tobytes()
    texts = [text.encode("utf-8", "surrogatepass") for text in ids.tolist()]
    lengths = np.array([len(text) for text in texts], dtype="<i8")
    return b"s" + lengths.tobytes() + b"".join(texts)
