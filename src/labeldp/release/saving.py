"""Releases and files of ours, put on disk at once or not at all: the only writer.

>>> import tempfile
>>> import labeldp
>>> with tempfile.TemporaryDirectory() as folder:
...     release = labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(epsilon=1.0, n_classes=2))
...     save_release(release, Path(folder) / "out")
...     sorted(path.name for path in (Path(folder) / "out").iterdir())
['channel.parquet', 'labels.parquet', 'release.json']

The layout stands in `labeldp.release.manifest`. Everything goes into a hidden directory, is flushed, and gets its name in one
step (`stage_directory`): what a kill leaves behind is the hidden directory, which no reader takes for a release. A release in
memory is written by `save_release`, with or without the features it belongs to; an engine writes label files batch by batch
(`LabelsStream`). Both end in `finish_release`, which writes what examples share and the manifest last. A place may be a `Path`
or anything with its methods (an engine writes behind URLs). Columns that labeldp adds beside a table's own begin with
`RESERVED`. The checksum of a long file is computed while it is written: reading it again would cost as much as a second copy.
Other files of ours (models, pages, statistics) are whole or absent too: `write_new`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import math
import os
import shutil
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labeldp.accounting import note_entry
from labeldp.errors import Described, LabelDPError, invalid
from labeldp.release.columns import RESERVED, as_column, clean_field, example_columns, spread_nulls
from labeldp.release.manifest import CHANNEL, FORMAT, GROUP_ROWS, LABELS, MANIFEST, PRIOR, VERSION, digest, file_facts
from labeldp.release.release import Release
from labeldp.release.unfinished import hidden_name, hold, lock, make_private

COMPRESSION = "zstd"


def save_release(
    release: Release,
    directory: str | os.PathLike[str],
    *,
    features: Any = None,
    owner: str = "Release.save",
    private: bool = False,
) -> None:
    """Write a release into a new directory; an existing one is refused.

    `features`, an Arrow table with a row per example, makes it a table's release, all that others need to train the same
    model: its columns stand beside the label column, which the release must know (`Release.label_column`). Features that
    come in batches (`batches()` yields slices of the examples and their Arrow tables) are written so. `private` makes a
    directory that its owner alone may open.
    """
    names = () if features is None else tuple(features.column_names)
    check_saving(directory, classes=release.classes, columns=names, owner=owner)
    if features is not None and release.label_column is None:
        raise invalid(
            owner, "label_column", "be known beside features", got=None, fix="Set it with dataclasses.replace."
        )
    with stage_directory(directory, owner=owner, private=private) as partial:
        if hasattr(features, "batches"):
            facts = _stream_labels(release, features, partial)
        else:
            write_parquet(_label_table(release, features), partial / LABELS)
            facts = file_facts(partial / LABELS)
        finish_release(
            release,
            partial,
            label_files={LABELS: facts},
            n_examples=release.rows_in_all,
            features=None if features is None else names,
            stages=None if release.stage is None else int(release.stage.max(initial=0)) + 1,
            answered=None if release.rows is None else len(release),
        )


def check_saving(directory: Any, *, classes: tuple[Hashable, ...], columns: Sequence[str] = (), owner: str) -> None:
    """Refuse, before any budget is spent, what saving would refuse afterwards: the place, the classes, the columns."""
    check_target(directory, owner=owner)
    check_plain_classes(classes, owner=owner)
    taken = next((name for name in columns if name.startswith(RESERVED)), None)
    if taken is not None:
        fix = f"Names that begin with {RESERVED!r} are labeldp's: rename or drop it."
        raise invalid(owner, "columns", "not have a reserved name", got=taken, fix=fix)


def finish_release(
    release: Release,
    place: Any,
    *,
    label_files: Mapping[str, Mapping[str, Any]],
    n_examples: int,
    features: Sequence[str] | None = None,
    stages: int | None = None,
    answered: int | None = None,
) -> None:
    """Write what examples share, and the manifest last: from here on the directory is a release.

    `label_files` are the files of labels that are there already, in the order of the rows, with their facts (`file_facts`);
    `release` may be one without examples, where those were written batch by batch. `features` are the names of a table's
    other columns and `stages` is the number of stages, where there are any: with them whoever checks the release knows
    every column that belongs there, and what it may hold. `answered` is how many of the examples have an answer, where some
    have none.
    """
    files: dict[str, Any] = {name: dict(facts) for name, facts in label_files.items()}
    rows = release.channel.row_arrays()
    if rows:
        write_parquet(pa.table({name: as_column(array) for name, array in rows.items()}), place / CHANNEL)
        files[CHANNEL] = file_facts(place / CHANNEL)
    if release.prior is not None:
        write_parquet(pa.table({"prior": as_column(release.prior)}), place / PRIOR)
        files[PRIOR] = file_facts(place / PRIOR)
    manifest = _describe(release, files, n_examples=n_examples)
    if list(label_files) != [LABELS]:
        manifest["label_files"] = list(label_files)
    if release.label_column is not None:
        manifest["label_column"] = release.label_column
        manifest["features"] = list(features or ())
    if release.person_column is not None and release.person_column in (features or ()):
        manifest["person_column"] = release.person_column
    if release.label_notes:
        manifest["label_notes"] = list(release.label_notes)
    if stages is not None:
        manifest["stages"] = stages
    if answered is not None:
        manifest["answered"] = answered
    manifest["sha256"] = digest(manifest)
    with (place / MANIFEST).open("w", encoding="utf-8") as handle:
        json.dump(manifest, handle, indent=1, allow_nan=False)
        flush(handle)


@contextlib.contextmanager
def stage_directory(directory: str | os.PathLike[str], *, owner: str, private: bool = False) -> Iterator[Path]:
    """Give a hidden directory to fill; at the end it becomes `directory`, and after any error it is gone.

    A kill leaves it hidden, with a name that `is_partial` knows and `load_release` refuses. It is 0700 while it is hidden,
    whatever the umask, and stays so if it is `private`.
    """
    target = check_target(directory, owner=owner)
    partial = target.parent / hidden_name(target.name)
    try:
        usual = make_private(partial)
        with hold(partial):
            yield partial
            flush_directory(partial)
            if not private:
                partial.chmod(usual)
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


def _describe(release: Release, files: dict[str, Any], *, n_examples: int) -> dict[str, Any]:
    """Return everything about a release that is not an array, for the manifest."""
    from labeldp import __version__

    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"labeldp {__version__}",
        "created": release.created,
        "n_examples": n_examples,
        "start": release.start,
        "label_set": release.label_set,
        "classes": list(release.classes),
        "mechanism": release.mechanism,
        "seeded": release.seeded,
        "private": not release.seeded,
        **note_entry(release.ledger_entry),
        "guarantee": release.guarantee.to_json(),
        "channel": release.channel.header(),
        "files": files,
    }


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


def _label_table(release: Release, features: Any) -> pa.Table:
    """Return the features, if there are any, the released labels, and what differs from example to example."""
    names = () if features is None else features.column_names
    columns = {name: features[name] for name in names}
    extras = example_columns(release.channel, stage=release.stage, prior_index=release.prior_index)
    shown = release.shown
    if shown is not None:
        columns["label" if features is None else str(release.label_column)] = pa.array(shown)
    else:
        extras = {"output": as_column(release.codes), **extras}
    mark = "" if features is None else RESERVED
    if release.rows is not None:  # a row without an answer has nulls in the place of one
        places = spread_nulls(release.rows, release.rows_in_all)
        label = {name: column.take(places) for name, column in columns.items() if features is None or name not in names}
        columns, extras = {**columns, **label}, {name: column.take(places) for name, column in extras.items()}
    table = pa.table({**columns, **{mark + name: column for name, column in extras.items()}})
    return pa.Table.from_arrays(table.columns, schema=pa.schema([clean_field(field) for field in table.schema]))


def _stream_labels(release: Release, features: Any, partial: Any) -> dict[str, Any]:
    """Write labels.parquet batch by batch, and return its facts; a release has an example, so there is a batch."""
    tables = (_label_table(release.at(positions), table) for positions, table in features.batches())
    first = next(tables)
    stream = LabelsStream(partial, first.schema)
    try:
        for table in itertools.chain([first], tables):
            for batch in table.combine_chunks().to_batches():
                stream.write(batch)
        return stream.close()
    except BaseException:
        stream.abandon()
        raise


def flush_directory(path: Path) -> None:
    """Make a rename or a new file durable; file systems that cannot are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_new(path: str | os.PathLike[str], *, owner: str) -> Path:
    """Refuse a target that exists or has no folder, before any budget is spent on what would go there."""
    target = Path(path)
    if os.path.lexists(target):
        fix = "Nothing is overwritten: choose another name, or remove it first."
        raise invalid(owner, "path", "be a new file", got=str(target), fix=fix)
    if not target.parent.is_dir():
        raise invalid(owner, "path", "be in an existing folder", got=str(target), fix="Create it first.")
    return target


def write_new(target: Path, data: bytes, *, owner: str) -> None:
    """Write a new file through a hidden one: the target is whole or absent, and an existing one is never replaced."""
    hidden = target.parent / hidden_name(target.name)
    try:
        with hidden.open("xb") as handle:
            lock(handle.fileno())
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.link(hidden, target)
    except FileExistsError:
        check_new(target, owner=owner)
        raise
    except OSError as error:
        message = f"{owner}: could not write {target}: {error.strerror or error}. Nothing was kept."
        raise LabelDPError(message) from error
    finally:
        hidden.unlink(missing_ok=True)
