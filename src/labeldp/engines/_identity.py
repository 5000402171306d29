"""Which rows a table's release is about, for the ledger: `labeldp.accounting.fingerprint` over a stream of row ids.

Design notes. Equal to the fingerprint of the same ids in memory (a test compares them), without holding them: ten
million ids in text would be a gigabyte of Python objects.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from labeldp.accounting import fingerprint
from labeldp.accounting._ledger_rows import CHUNK, check_identity, chunk_bytes, put
from labeldp.engines._rows import Rows


def table_fingerprint(name: str, rows: Rows, *, row_ids: str | None) -> str:
    """Return the fingerprint of the released rows, by their ids where the table has them."""
    if row_ids is None:
        return fingerprint(name, n_rows=rows.count)
    digest = hashlib.sha256(b"labeldp rows 1\n")
    put(digest, check_identity(name))
    put(digest, f"0:{rows.count}".encode())
    for batch in rows.batches(columns=[row_ids], size=CHUNK):
        put(digest, chunk_bytes(_ids(batch.column(0))))
    return digest.hexdigest()


def _ids(column: Any) -> Any:
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_integer(plain.type):
        return plain.to_numpy(zero_copy_only=False)
    return np.array(plain.to_pylist(), dtype=object)
