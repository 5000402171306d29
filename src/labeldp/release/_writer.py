"""Writing a release: into a hidden directory first, flushed, then given its name, so that it appears whole or not at all.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     with staged(Path(folder) / "out", owner="example") as partial:
...         _ = (partial / "note.txt").write_text("hello")
...         hidden = (Path(folder) / "out").exists()
...     hidden, (Path(folder) / "out" / "note.txt").read_text()
(False, 'hello')

Design notes. One way of writing for a release in memory (`save_release`) and for a table in batches (`LabelsStream`).
What a kill leaves behind is the hidden directory, which no reader takes for a release. A place may be a `Path` or anything
with its methods (an engine writes behind URLs). A table's release holds all its
columns; those that labeldp adds begin with `RESERVED`, so that they cannot be taken for the table's own. The checksum
of a long file is computed while it is written: reading it again would cost as much as a second copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import secrets
import shutil
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from labeldp.errors import Described, LabelDPError, invalid
from labeldp.release._encoding import decoded
from labeldp.release._release import Release

FORMAT = "labeldp release"
VERSION = 1
MANIFEST = "release.json"
LABELS = "labels.parquet"
#: A table of several files has a folder of that many instead.
LABELS_FOLDER = "labels"
CHANNEL = "channel.parquet"
PRIOR = "prior.parquet"

#: Columns of labels.parquet that are not the label, and what they begin with beside the columns of a user's table.
EXTRAS = ("row", "candidates", "stage", "prior_row")
RESERVED = "_labeldp_"
COMPRESSION = "zstd"
#: Rows of a row group of a table's release: some 40 MB at 20 columns of 8 bytes, whatever the batches are.
GROUP_ROWS = 2**18


def save_release(release: Release, directory: str | os.PathLike[str]) -> None:
    """Write a release into a new directory; an existing one is refused."""
    check_target(directory, owner="Release.save")
    check_plain_classes(release.classes, owner="Release.save")
    with staged(directory, owner="Release.save") as partial:
        write_parquet(_label_table(release), partial / LABELS)
        write_shared(release, partial)
        files = {path.name: file_facts(path) for path in sorted(partial.iterdir())}
        write_manifest(release, partial, files=files, n_examples=len(release))


@contextlib.contextmanager
def staged(directory: str | os.PathLike[str], *, owner: str) -> Iterator[Path]:
    """Give a hidden directory to fill; at the end it becomes `directory`, and after any error it is gone."""
    target = check_target(directory, owner=owner)
    partial = target.parent / f".{target.name}.partial-{secrets.token_hex(8)}"
    try:
        partial.mkdir()
        yield partial
        flush_directory(partial)
        partial.rename(target)
        flush_directory(target.parent)
    except OSError as error:
        raise LabelDPError(
            f"{owner}: could not write {target}: {error.strerror or error}. Nothing was kept."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_target(directory: Any, *, owner: str) -> Any:
    """Return the path of a release that does not exist yet, in a directory that does."""
    target = Path(directory) if isinstance(directory, (str, os.PathLike)) else directory
    if target.exists() or target.is_symlink():
        fix = "Choose a new directory: releases are never overwritten."
        raise invalid(owner, "directory", "not exist yet", got=str(target), fix=fix)
    if isinstance(target, Path) and not target.parent.is_dir():  # behind a URL folders come with their files
        raise invalid(owner, "directory", "have a parent directory", got=str(target), fix="Create it first.")
    return target


def check_plain_classes(classes: tuple[Hashable, ...], *, owner: str) -> None:
    """Only plain values are written: whoever loads a release runs nothing."""
    odd = next((c for c in classes if not isinstance(c, (str, int, float, bool))), None)
    if odd is not None:
        fix = "Use text, numbers or booleans as classes of a release that is to be saved."
        raise invalid(owner, "classes", "be text, numbers or booleans", got=type(odd).__name__, fix=fix)
    kinds = {type(c) for c in classes}
    if len(kinds) > 1 and not kinds <= {int, float}:
        raise invalid(owner, "classes", "be of one kind", got=Described("a mixture"), fix="Use text for all.")
    wild = next((c for c in classes if isinstance(c, float) and not math.isfinite(c)), None)
    if wild is not None:
        raise invalid(owner, "classes", "be finite: JSON has no infinity", got=wild, fix="Use text for all.")


class LabelsStream:
    """labels.parquet of a table, written batch by batch; `close` flushes it and returns its checksum and size."""

    def __init__(self, partial: Any, schema: pa.Schema, *, name: str = LABELS) -> None:
        self._file = _HashedFile(partial / name)
        self._schema = schema
        self._writer = pq.ParquetWriter(self._file, schema, compression=COMPRESSION)
        self._pending: list[pa.RecordBatch] = []
        self._waiting = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; whole row groups go to the disk."""
        self._pending.append(batch)
        self._waiting += batch.num_rows
        if self._waiting >= GROUP_ROWS:
            self._group()

    def close(self) -> dict[str, Any]:
        """Write what waits and the footer, flush, and return the facts for the manifest."""
        if self._waiting:
            self._group()
        self._writer.close()
        return self._file.finish()

    def abandon(self) -> None:
        """Let go of the file after an error; what is in it will be removed, so its own complaints do not matter."""
        with contextlib.suppress(OSError, pa.ArrowException, ValueError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()

    def _group(self) -> None:
        table = pa.Table.from_batches(self._pending, schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._pending, self._waiting = [], 0


class _HashedFile(io.RawIOBase):
    """A new file that keeps the SHA-256 of what is written to it; writing in order is all that Parquet needs."""

    def __init__(self, path: Any) -> None:
        self._handle = path.open("xb")
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._handle.write(data)
        self._digest.update(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        return int(self._handle.tell())

    def finish(self) -> dict[str, Any]:
        facts = {"sha256": self._digest.hexdigest(), "bytes": self._handle.tell()}
        flush(self._handle)
        self.close()
        return facts

    def close(self) -> None:
        self._handle.close()
        super().close()


def write_shared(release: Release, partial: Any) -> dict[str, dict[str, Any]]:
    """Write what examples share, the channel's rows and a released prior, and return the files' facts."""
    rows = release.channel.row_arrays()
    if rows:
        write_parquet(pa.table({name: as_column(array) for name, array in rows.items()}), partial / CHANNEL)
    if release.prior is not None:
        write_parquet(pa.table({"prior": as_column(release.prior)}), partial / PRIOR)
    return {name: file_facts(partial / name) for name in (CHANNEL, PRIOR) if (partial / name).exists()}


def write_manifest(
    release: Release,
    partial: Any,
    *,
    files: dict[str, Any],
    n_examples: int,
    label_column: str | None = None,
    label_files: Sequence[str] = (LABELS,),
) -> None:
    """Write everything that is not an array, last, with a digest of itself."""
    manifest = _manifest(release, files)
    manifest["n_examples"] = n_examples
    if list(label_files) != [LABELS]:
        manifest["label_files"] = list(label_files)
    if label_column is not None:
        manifest["label_column"] = label_column
    manifest["sha256"] = digest(manifest)
    with (partial / MANIFEST).open("w", encoding="utf-8") as handle:
        json.dump(manifest, handle, indent=1, allow_nan=False)
        flush(handle)


def _manifest(release: Release, files: dict[str, Any]) -> dict[str, Any]:
    from labeldp import __version__

    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"labeldp {__version__}",
        "created": release.created,
        "n_examples": len(release),
        "start": release.start,
        "label_set": release.label_set,
        "classes": list(release.classes),
        "mechanism": release.mechanism,
        "seeded": release.seeded,
        "private": not release.seeded,
        "ledger_entry": release.ledger_entry,
        "guarantee": release.guarantee.to_json(),
        "channel": release.channel.header(),
        "files": files,
    }


def digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of the manifest without its own digest, in canonical JSON."""
    rest = {k: v for k, v in manifest.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_facts(path: Any) -> dict[str, Any]:
    """Return the SHA-256 and the size of a file."""
    found, size = hashlib.sha256(), 0
    with path.open("rb") as handle:
        while piece := handle.read(1 << 20):
            found.update(piece)
            size += len(piece)
    return {"sha256": found.hexdigest(), "bytes": size}


def write_parquet(table: pa.Table, path: Any) -> None:
    """Write a table at once and flush it."""
    with path.open("wb") as handle:
        pq.write_table(table, handle, compression=COMPRESSION)
        flush(handle)


def flush(handle: Any) -> None:
    """Put what was written on the disk; a file behind a URL is put in its place when it is closed."""
    handle.flush()
    if isinstance(getattr(getattr(handle, "buffer", handle), "raw", None), io.FileIO):
        os.fsync(handle.fileno())


def as_column(array: npt.NDArray[Any]) -> pa.Array:
    """Return a vector as it is, bytes as fixed-size binary and other matrices as fixed-size lists."""
    if array.ndim == 1:
        return pa.array(array)
    flat = np.ascontiguousarray(array)
    if flat.dtype == np.uint8:
        width = pa.binary(flat.shape[1])
        return pa.FixedSizeBinaryArray.from_buffers(width, len(flat), [None, pa.py_buffer(flat)])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])


def _label_table(release: Release) -> pa.Table:
    """Return the released labels with whatever part of the channel differs from example to example."""
    if release.channel.outputs_are_labels:
        columns = {"label": pa.array(decoded(release.codes, release.classes))}
    else:
        columns = {"output": pa.array(release.codes)}
    for name, array in release.channel.example_arrays().items():
        columns[name] = as_column(array)
    for name, extra in (("stage", release.stage), ("prior_row", release.prior_index)):
        if extra is not None:
            columns[name] = pa.array(extra)
    return pa.table(columns)


def flush_directory(path: Path) -> None:
    """Make a rename or a new file durable; file systems that cannot are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
