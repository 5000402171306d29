"""Releases on disk: one writer, one reader. A directory of Parquet and JSON, written at once or not at all.

    release.json     format, guarantee, channel header, classes, the names of a table's other columns ("features"), the
                     number of stages, SHA-256 of every other file and of itself
    labels.parquet   a row per example: the released label, and its channel row or candidate set where they differ;
                     a table's release also holds its other columns, and the manifest names its "label_column";
                     a table of several files has them under labels/, and the manifest lists its "label_files" in order
    channel.parquet  the channel's shared rows, if it has any
    prior.parquet    the rows of a released prior (a noisy histogram per cluster), if one was used

No raw label and no key is ever written. Checksums find damage and carelessness; they are not a signature.

>>> import tempfile
>>> import labeldp
>>> with tempfile.TemporaryDirectory() as folder:
...     release = labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(epsilon=1.0, n_classes=2))
...     release.save(Path(folder) / "out")
...     read_manifest(Path(folder) / "out").content["n_examples"], len(load_release(Path(folder) / "out"))
(3, 3)

Design notes. Writing. Everything goes into a hidden directory, is flushed, and gets its name in one step (`stage_directory`):
what a kill leaves behind is the hidden directory, which no reader takes for a release. A release in memory is written by
`save_release`, with or without the features it belongs to; an engine writes label files batch by batch (`LabelsStream`).
Both end in `finish_release`, which writes what examples share and the manifest last. A place may be a `Path` or anything
with its methods (an engine writes behind URLs). Columns that labeldp adds beside a table's own begin with `RESERVED`. The
checksum of a long file is computed while it is written: reading it again would cost as much as a second copy.

Reading. `read_manifest` is the only parser of release.json: it checks the type of every value once (`FIELDS`), and that the
directory holds files and folders alone. `load_release` checks every checksum before it reads a file, what the footers of
Parquet declare before it reads a row, and the promise against the channel afterwards; of a table it reads only the columns
that labeldp wrote, in batches. Nothing that is read can run code. The sizes inside a Parquet page are Arrow's to check:
a footer that lies about them can make it ask for up to 2 GiB at once, the most that a page may have.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeldp.accounting import note_entry, recall_entry
from labeldp.arrays import Array
from labeldp.channel import FiniteChannel, build_channel
from labeldp.errors import Described, LabelDPError, PrivacyError, ReleaseError, invalid
from labeldp.guarantee import Guarantee
from labeldp.release.columns import EXTRAS, RESERVED, as_array, as_column, clean_field, example_columns
from labeldp.release.labels import decode_labels
from labeldp.release.release import Release
from labeldp.release.unfinished import hidden_name, hold, is_partial, lock, make_private
from labeldp.untrusted import read_footer, read_json
from labeldp.validate import code_dtype

FORMAT = "labeldp release"
VERSION = 1
MANIFEST = "release.json"
LABELS = "labels.parquet"
#: A table of several files has a folder of that many instead.
LABELS_FOLDER = "labels"
CHANNEL = "channel.parquet"
PRIOR = "prior.parquet"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_classes(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, (str, int, float)) for one in value)


def _are_files(value: Any) -> bool:
    """Whether this is, for each name of a file, its checksum and size."""
    return isinstance(value, dict) and all(
        _is_file_name(name)
        and isinstance(facts, dict)
        and _is_digest(facts.get("sha256"))
        and _is_count(facts.get("bytes"))
        for name, facts in value.items()
    )


def _are_file_names(value: Any) -> bool:
    """Whether this lists files, each once."""
    return _are_texts(value) and bool(value) and all(map(_is_file_name, value)) and len(set(value)) == len(value)


def _is_file_name(name: str) -> bool:
    """Whether a release has a file of that name: one of three, or one below labels/ that stays there on every system."""
    if name in (LABELS, CHANNEL, PRIOR):
        return True
    first, *rest = name.split("/")
    plain = all(part not in ("", ".", "..") for part in rest) and not set(name) & set("\\:\0")
    return first == LABELS_FOLDER and bool(rest) and plain


#: Everything that a manifest says, and what each value must be: `read_manifest` checks it, and nobody checks it again.
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "format": (_is_text, "text"),
    "version": (_is_count, "a count"),
    "made_by": (_is_text, "text"),
    "created": (_is_text, "text"),
    "n_examples": (_is_count, "a count"),
    "start": (_is_count, "a count"),
    "label_set": (_is_text, "text"),
    "classes": (_are_classes, "a list of text, numbers or booleans"),
    "mechanism": (_is_text, "text"),
    "seeded": (_is_boolean, "true or false"),
    "private": (_is_boolean, "true or false"),
    "ledger_entry": (lambda value: value is None or _is_count(value), "a count or null"),
    "ledger_hash": (lambda value: value is None or _is_text(value), "text or null"),
    "guarantee": (_is_object, "an object"),
    "channel": (_is_object, "an object"),
    "files": (_are_files, "names of files of a release, with the SHA-256 and the bytes of each"),
    "sha256": (_is_digest, "a SHA-256"),
    "label_files": (_are_file_names, "names of files of a release, each once"),
    "label_column": (_is_text, "text"),
    "features": (_are_texts, "a list of texts"),
    "stages": (_is_count, "a count"),
}
#: What a manifest says only where it applies; versions before the ledger's hashes have none.
WHERE_IT_APPLIES = ("ledger_hash", "label_files", "label_column", "features", "stages")
COMPRESSION = "zstd"
#: Rows of a row group of a table's release: some 40 MB at 20 columns of 8 bytes, whatever the batches are.
GROUP_ROWS = 2**18


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
            n_examples=len(release),
            features=None if features is None else names,
            stages=None if release.stage is None else int(release.stage.max(initial=0)) + 1,
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
) -> None:
    """Write what examples share, and the manifest last: from here on the directory is a release.

    `label_files` are the files of labels that are there already, in the order of the rows, with their facts (`file_facts`);
    `release` may be one without examples, where those were written batch by batch. `features` are the names of a table's
    other columns and `stages` is the number of stages, where there are any: with them whoever checks the release knows
    every column that belongs there, and what it may hold.
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
    if stages is not None:
        manifest["stages"] = stages
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


def _label_table(release: Release, features: Any) -> pa.Table:
    """Return the features, if there are any, the released labels, and what differs from example to example."""
    columns = {} if features is None else {name: features[name] for name in features.column_names}
    extras = example_columns(release.channel, stage=release.stage, prior_index=release.prior_index)
    if release.channel.outputs_are_labels:
        name = "label" if features is None else str(release.label_column)
        columns[name] = pa.array(decode_labels(release.codes, release.classes))
    else:
        extras = {"output": pa.array(release.codes), **extras}
    mark = "" if features is None else RESERVED
    table = pa.table({**columns, **{mark + name: column for name, column in extras.items()}})
    return pa.Table.from_arrays(table.columns, schema=pa.schema([clean_field(field) for field in table.schema]))


def _stream_labels(release: Release, features: Any, partial: Any) -> dict[str, Any]:
    """Write labels.parquet batch by batch, and return its facts; a release has an example, so there is a batch."""
    tables = (_label_table(release.take(positions), table) for positions, table in features.batches())
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


def load_release(directory: str | os.PathLike[str]) -> Release:
    """Read a release, after checking that it is whole and unchanged.

    >>> load_release("no/such/place")
    Traceback (most recent call last):
    labeldp.errors.ReleaseError: load_release: `directory` must hold a release, got 'no/such/place'. No release.json there.
    """
    root = Path(directory)
    manifest = read_manifest(root)
    try:
        for name, facts in manifest.content["files"].items():
            _check_file(root / name, facts)
        return _assemble(manifest)
    # ValueError covers LabelDPError and most of Arrow's; OSError, a file that went away or that the manifest left out.
    except (
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        ValueError,
        OSError,
        OverflowError,
        pa.ArrowException,
    ) as error:
        if isinstance(error, ReleaseError | PrivacyError):
            raise
        raise ReleaseError(
            f"load_release: {root} is not a readable release: {error}. Ask its owner for it again."
        ) from error


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """release.json of a directory, checked to be ours and unchanged: the facts of a release that are not arrays."""

    directory: Path
    content: Mapping[str, Any]

    @property
    def label_column(self) -> str | None:
        """The table's name for the label column; None where labels came from memory."""
        name: str | None = self.content.get("label_column")
        return name

    @property
    def label_files(self) -> tuple[Path, ...]:
        """The files that hold the labels, in the order of the rows; each has its checksum in the manifest."""
        names = self.content.get("label_files", [LABELS])
        if not set(names) <= set(self.content["files"]):
            raise ReleaseError("load_release: a file of labels has no checksum. Ask the release's owner for it again.")
        return tuple(self.directory / name for name in names)

    @property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of every file, the manifest's own among them."""
        sums = {name: facts["sha256"] for name, facts in self.content["files"].items()}
        return {**sums, MANIFEST: self.content["sha256"]}


def is_release(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory claims to hold a release; whether it is a sound one is for `load_release` to say."""
    return (Path(directory) / MANIFEST).is_file()


def read_manifest(directory: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of a directory after checking that it is ours, of a known version, whole and unchanged.

    Every value is of its type (`FIELDS`), and every file that it names is a file of the directory, not a link to one
    elsewhere nor a pipe. What is in the files is not looked at: `load_release` does that.
    """
    root = Path(directory)
    path = root / MANIFEST
    if any(is_partial(part) for part in root.absolute().parts):
        got, fix = Described("unfinished work"), "It was never released; whoever made it takes it up or throws it away."
        raise invalid("load_release", "directory", "hold a release", got=got, fix=fix, kind=ReleaseError)
    if not path.is_file():
        fix = f"No {MANIFEST} there."
        raise invalid("load_release", "directory", "hold a release", got=str(root), fix=fix, kind=ReleaseError)
    _refuse_links(root)
    try:
        manifest = read_json(path)
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"load_release: {path} is not readable JSON ({error}). Ask its owner for it again."
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        got = Described("something else")
        raise invalid("load_release", MANIFEST, f"be a {FORMAT!r}", got=got, kind=ReleaseError)
    if manifest.get("version") != VERSION:
        fix = "Upgrade labeldp to read newer releases."
        raise invalid(
            "load_release", "version", f"be {VERSION}", got=manifest.get("version"), fix=fix, kind=ReleaseError
        )
    if manifest.get("sha256") != digest(manifest):
        raise ReleaseError(f"load_release: {path} was changed after it was written. Ask its owner for it again.")
    for name, (is_valid, must) in FIELDS.items():
        if name not in manifest and name not in WHERE_IT_APPLIES:
            raise ReleaseError(f"load_release: {path} does not say its `{name}`. Ask its owner for it again.")
        if name in manifest and not is_valid(manifest[name]):
            fix = "labeldp did not write it. Do not use it."
            raise invalid("load_release", name, f"be {must}", got=manifest[name], fix=fix, kind=ReleaseError)
    return Manifest(directory=root, content=manifest)


def _refuse_links(root: Path) -> None:
    """Refuse a directory in which something is neither a file nor a folder.

    A link brings a file of the reader's own into the release, a pipe keeps the reader waiting, a device never ends.
    """
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    got = Described("a link" if entry.is_symlink() else "a pipe or a device")
                    raise invalid(
                        "load_release", entry.name, "be a file", got=got, fix="Do not use it.", kind=ReleaseError
                    )


def _check_file(path: Path, facts: dict[str, Any]) -> None:
    """Refuse a file that is missing, cut short or changed."""
    if not path.is_file():
        raise ReleaseError(f"load_release: {path} is missing. Ask the release's owner for it again.")
    size = path.stat().st_size
    if size != facts["bytes"]:
        raise ReleaseError(f"load_release: {path} has {size} bytes, not {facts['bytes']}: it is incomplete.")
    if file_facts(path)["sha256"] != facts["sha256"]:
        raise ReleaseError(f"load_release: {path} was changed after it was written: its checksum does not match.")


def _assemble(described: Manifest) -> Release:
    """Build the release from checked files, and check the promise against the channel."""
    root, manifest = described.directory, described.content
    classes = tuple(manifest["classes"])
    _check_rows(described)
    rows = _read_shared(root / CHANNEL) if CHANNEL in manifest["files"] else None
    codes, extras = _read_examples(described, classes)
    channel = _channel(manifest["channel"], extras, rows)
    guarantee = Guarantee.from_json(manifest["guarantee"])
    if not channel.epsilon <= guarantee.epsilon(0.0):
        raise PrivacyError(
            f"load_release: {root} claims {guarantee.headline}, but its channel has epsilon {channel.epsilon!r}. Do not use it."
        )
    if len(classes) != channel.n_classes:
        raise ReleaseError(
            f"load_release: {root} has {len(classes)} classes for a channel of {channel.n_classes}. "
            "Ask its owner for it again."
        )
    if (codes is None) is channel.outputs_are_labels:
        raise ReleaseError(f"load_release: {root} has outputs of another kind of channel. Ask its owner for it again.")
    codes = extras["output"] if codes is None else codes
    prior, places = _read_shared(root / PRIOR)["prior"] if PRIOR in manifest["files"] else None, extras.get("prior_row")
    if places is not None and (prior is None or places.min(initial=0) < 0 or places.max(initial=-1) >= len(prior)):
        raise ReleaseError(
            f"load_release: {root} names rows of a prior that are not there. Ask its owner for it again."
        )
    return Release(
        codes=codes.astype(code_dtype(channel.n_outputs), copy=False),
        classes=classes,
        channel=channel,
        guarantee=guarantee,
        mechanism=manifest["mechanism"],
        seeded=manifest["seeded"],
        start=manifest["start"],
        label_set=manifest["label_set"],
        created=manifest["created"],
        ledger_entry=recall_entry(manifest),
        label_column=described.label_column,
        stage=extras.get("stage"),
        prior=prior,
        prior_index=places,
    )


#: What channel.parquet or prior.parquet may take in memory beyond this many times its size on disk.
MOST_SHARED = 256 * 2**20
MOST_RATIO = 100


def _check_rows(described: Manifest) -> None:
    """Compare what the footers of the label files declare with the manifest, before a row is read.

    A column of one value takes no space on disk whatever its length, so the size of a file bounds nothing: the number of
    rows does, and how much one row may hold: a list of one number per class, or the longest class.
    """
    classes, expected = described.content["classes"], described.content["n_examples"]
    footers = [
        read_footer(path, only=functools.partial(_is_ours, label_column=described.label_column))
        for path in described.label_files
    ]
    found = sum(footer.num_rows for footer in footers)
    if found != expected:
        raise ReleaseError(
            f"load_release: {described.directory} has {found} labels for a manifest of {expected}. "
            "Ask its owner for it again."
        )
    texts = sum(len(str(one).encode()) for one in classes)
    longest = max(len(str(one).encode()) for one in classes) + 8 * len(classes) + 64
    for footer in footers:
        # Not a feature of the table, which is not read here.
        places = [
            place
            for place in range(footer.num_columns)
            if _is_ours(footer.schema.column(place).path, described.label_column)
        ]
        for group, place in itertools.product(range(footer.num_row_groups), places):
            rows, column = footer.row_group(group).num_rows, footer.row_group(group).column(place)
            decoded = column.num_values * max(8, footer.schema.column(place).length)
            # In the file there are the classes once more, as a dictionary, and the headers of its pages, in 64 KiB.
            if decoded > rows * longest or column.total_uncompressed_size > rows * longest + 2 * texts + 2**16:
                raise ReleaseError(
                    f"load_release: {described.directory} declares more in {column.path_in_schema!r} than {rows} labels "
                    "take. Do not use it."
                )


def _is_ours(path: str, label_column: str | None) -> bool:
    """Whether a column, by its path in a Parquet schema, is one that `_read_examples` reads."""
    name = path.split(".", maxsplit=1)[0]
    return label_column is None or path == label_column or name in {RESERVED + extra for extra in EXTRAS}


def _read_shared(path: Path) -> dict[str, Array]:
    """Return the columns of a file that examples share, unless its footer declares far more than its bytes."""
    footer = read_footer(path)
    columns = range(footer.num_columns)
    values = sum(footer.row_group(g).column(c).num_values for g in range(footer.num_row_groups) for c in columns)
    width = max((max(8, footer.schema.column(c).length) for c in columns), default=8)
    if max(values, footer.num_rows) * width > max(MOST_SHARED, MOST_RATIO * path.stat().st_size):
        raise ReleaseError(f"load_release: {path} declares far more values than it has bytes. Do not use it.")
    table = pq.read_table(path)
    return {name: as_array(table[name]) for name in table.column_names}


def _read_examples(described: Manifest, classes: tuple[Hashable, ...]) -> tuple[Array | None, dict[str, Array]]:
    """Return the code of each released label, and what labeldp wrote beside it, by its short name.

    The codes are None where outputs are not labels; the outputs are among the rest then. A table's other columns are not
    read. Files are read in batches, and texts by their dictionary: what is in memory is the codes, and one batch.
    """
    pieces: dict[str, list[Array]] = {}
    label_column = described.label_column
    for path in described.label_files:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow
        mark = "" if label_column is None else RESERVED
        extras = [name for name in EXTRAS if mark + name in there.names]
        # Outputs that are not labels stand in a column of ours, and the label column is not there.
        label = [] if "output" in extras else ["label" if label_column is None else label_column]
        missing = next((name for name in label if name not in there.names), None)
        if missing is not None:
            raise ReleaseError(f"load_release: {path} is not a readable release: it has no column {missing!r}.")
        texts = [
            name
            for name in label
            if pa.types.is_string(there.field(name).type) or pa.types.is_large_string(there.field(name).type)
        ]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            wanted = [*label, *(mark + name for name in extras)]
            for batch in file.iter_batches(batch_size=GROUP_ROWS, columns=wanted):
                for name in label:
                    pieces.setdefault("label", []).append(_encode(batch.column(name), classes))
                for name in extras:
                    column = batch.column(mark + name)
                    if column.null_count:
                        raise ReleaseError(f"load_release: {path} lacks values of {name!r}. Do not use it.")
                    pieces.setdefault(name, []).append(as_array(pa.chunked_array([column])))
    found = {name: np.concatenate(parts) for name, parts in pieces.items()}
    wrong = next((name for name, array in found.items() if len(array) != described.content["n_examples"]), None)
    if wrong is not None or not found:
        raise ReleaseError(
            f"load_release: {described.directory} has {wrong or 'labels'!r} for some of its labels only."
        )
    return found.pop("label", None), found


def _encode(values: pa.Array, classes: tuple[Hashable, ...]) -> Array:
    """Return the place of each label among the classes."""
    dtype = code_dtype(len(classes))
    if pa.types.is_dictionary(values.type):
        if values.null_count or values.dictionary.null_count:
            raise ReleaseError("load_release: a released label is missing. Ask its owner for it again.")
        named: Array = _encode(values.dictionary, classes)[as_array(pa.chunked_array([values.indices]))]
        return named
    codes = pc.index_in(values, value_set=pa.array(list(classes)).cast(values.type))
    if codes.null_count:
        raise ReleaseError("load_release: a released label is not among the classes. Ask its owner for it again.")
    places: Array = as_array(pa.chunked_array([codes])).astype(dtype)
    return places


def _channel(header: dict[str, Any], extras: Mapping[str, Array], rows: dict[str, Array] | None) -> FiniteChannel:
    """Return the channel that these columns describe; its own checks apply."""
    kind = header["kind"]
    if kind not in FiniteChannel.kinds:
        raise ReleaseError(f"load_release: unknown kind of channel {kind!r}. Upgrade labeldp to read newer releases.")
    if rows is None and kind != "candidates":
        raise ReleaseError("load_release: the channel's rows are missing. Ask the release's owner for it again.")
    own = {name: extras[name] for name in ("candidates", "row") if name in extras}
    return build_channel(header, rows=rows or {}, examples=own)


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
