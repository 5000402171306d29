"""`raw_label_check`: whether a table beside the released labels still holds the raw ones.

>>> import numpy as np
>>> from labeldp import RandomizedResponse, privatize
>>> raw = np.arange(2000) % 2
>>> release = privatize(raw, RandomizedResponse(2.0, n_classes=2), rng=0)
>>> looks_raw(release, raw), looks_raw(release, raw[::-1] * 0 + 1)
(True, False)

Design notes. Without the raw labels one can still tell: a column that is the raw labels agrees with the released ones as
often as the channel says, and a column that has nothing to do with them agrees as often as chance says.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.audit._values import Check
from labeldp.release import Release
from labeldp.release._store import label_files

#: Rows looked at, evenly spaced: at this many, a share is known to 0.2 %; fewer where classes are so many that the table
#: of rows by classes would be larger than the second number.
MOST_ROWS, MOST_CELLS = 50_000, 5_000_000
#: Standard deviations: a copy of the raw labels is farther than this from its expectation once in 16,000 times; an
#: unrelated column is farther than the second from its own once in 500 million.
NEAR, FAR = 4.0, 6.0
#: Columns that labeldp adds to a table begin so.
OWN = "_labeldp_"


def raw_label_check(directory: str | os.PathLike[str], release: Release, *, label_column: str | None) -> Check:
    """No other column of a released table behaves as the raw labels would."""
    name = "no raw label column"
    if label_column is None or not release.channel.outputs_are_labels:
        return Check(name=name, passed=True, detail="the release has no other columns")
    import pyarrow as pa
    import pyarrow.parquet as pq

    step = max(1, -(-len(release) // min(MOST_ROWS, max(1, MOST_CELLS // release.n_classes))))
    rows = np.arange(0, len(release), step)
    part = release.take(rows)
    suspects, looked = [], 0
    manifest = json.loads((Path(directory) / "release.json").read_text(encoding="utf-8"))
    paths = [Path(directory) / name for name in label_files(manifest)]
    for column in pq.read_schema(paths[0]).names:
        if column == label_column or column.startswith(OWN):
            continue
        pieces = (pq.ParquetFile(path).read(columns=[column])[column] for path in paths)
        values = pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks]).take(rows).to_numpy()
        looked += 1
        codes = _as_codes(values, part.classes)
        if codes is not None and looks_raw(part, codes):
            suspects.append(column)
    detail = (
        f"behaves as the raw labels: {suspects}" if suspects else f"{looked} other columns, none behaves as they would"
    )
    return Check(name=name, passed=not suspects, detail=detail)


def looks_raw(release: Release, codes: npt.NDArray[Any]) -> bool:
    """Whether labels agree with the released ones as the raw labels would, and as unrelated ones would not."""
    n, k = len(release), release.n_classes
    agree = int((codes == release.codes).sum())
    own = np.zeros((n, k), np.float32)
    own[np.arange(n), codes] = 1.0
    chance = np.asarray(release.channel.expected_accuracy(own), np.float64)
    share = np.bincount(codes, minlength=k) / n @ (np.bincount(release.codes, minlength=k) / n)
    spread = max(float((chance * (1 - chance)).sum()), 1.0) ** 0.5
    unrelated = max(float(n * share * (1 - share)), 1.0) ** 0.5
    return bool(abs(agree - chance.sum()) <= NEAR * spread and abs(agree - n * share) > FAR * unrelated)


def _as_codes(values: npt.NDArray[Any], classes: tuple[Any, ...]) -> npt.NDArray[np.int64] | None:
    """Return a column as class codes if all its values are classes, in their own type or as text, and two occur."""
    kinds, inverse = np.unique(values.astype(str), return_inverse=True)
    place = {str(name): code for code, name in enumerate(classes)}
    if len(kinds) < 2 or not set(kinds.tolist()) <= set(place):
        return None
    return np.array([place[kind] for kind in kinds.tolist()], np.int64)[inverse]
