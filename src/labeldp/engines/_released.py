"""A table's release: what it was, in a value to show, and how to read it again.

>>> open_released_table("no/such/place")
Traceback (most recent call last):
labeldp.errors.ReleaseError: load_release: `directory` must hold a release, got 'no/such/place'. No release.json there.

Design notes. The directory is a release like any other: `labeldp.load_release` reads its labels and channel without the
table's other columns. Those are features to whoever trains, and come as a `TableSource`, in batches.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from labeldp.data.tables import TableSource, open_table
from labeldp.data.tables._url import Place, UrlPath
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.release import Release, load_release
from labeldp.release._store import label_files
from labeldp.release._writer import MANIFEST, RESERVED


@dataclass(frozen=True, kw_only=True)
class TableRelease:
    """What `privatize_table` did. All of it is public but for what the owner knows of her own table: `dropped`.

    `expected_accuracy` is the share of released labels that are expected to be true if labels follow the prior (with
    no prior, if they are uniform): a forecast from public facts, never a comparison with the labels. It is as good as
    the prior: histograms that are mostly noise promise more than they keep.
    """

    directory: Place
    label_column: str
    classes: tuple[Any, ...]
    rows: int
    dropped: int
    guarantee: Guarantee
    mechanism: str
    seeded: bool
    label_set: str
    ledger_entry: int | None
    expected_accuracy: float

    def load(self) -> Release:
        """Read the labels and the channel back, checked; the table's other columns stay on the disk."""
        if isinstance(self.directory, UrlPath):
            fix = "Copy the directory to this machine, and call load_release there."
            raise invalid("TableRelease.load", "directory", "be on this machine", got=str(self.directory), fix=fix)
        return load_release(self.directory)


def open_released_table(directory: str | os.PathLike[str]) -> tuple[TableSource, Release]:
    """Return the features of a table's release, row for row with its labels, and the release, all checked."""
    root = Path(directory)
    release = load_release(root)
    manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    label = manifest.get("label_column")
    if label is None:
        fix = "It was made from labels in memory: its features are where its owner left them."
        got = Described("labels alone")
        raise invalid("open_released_table", str(root), "hold a table with its features", got=got, fix=fix)
    parts = tuple(root / name for name in label_files(manifest))
    whole = open_table(parts[0])
    fields = [field for field in whole.schema if field.name != label and not field.name.startswith(RESERVED)]
    features = TableSource(path=root, schema=pa.schema(fields), rows=len(release), parts=parts)
    return features, release
