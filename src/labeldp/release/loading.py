"""Releases from disk, where anyone may have written them: the only reader of what is in the files.

>>> import tempfile
>>> import labeldp
>>> with tempfile.TemporaryDirectory() as folder:
...     release = labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(epsilon=1.0, n_classes=2))
...     release.save(Path(folder) / "out")
...     len(load_release(Path(folder) / "out"))
3

`load_release` checks the manifest (`labeldp.release.manifest`) and every checksum before it reads a file, what the footers of
Parquet declare before it reads a row, and the promise against the channel afterwards; of a table it reads only the columns
that labeldp wrote, in batches. Nothing that is read can run code. The sizes inside a Parquet page are Arrow's to check:
a footer that lies about them can make it ask for up to 2 GiB at once, the most that a page may have.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeldp.accounting import recall_entry
from labeldp.arrays import Array, Int64s
from labeldp.channel import FiniteChannel, NumericChannel, build_channel
from labeldp.errors import PrivacyError, ReleaseError
from labeldp.guarantee import Guarantee, Unit
from labeldp.release.columns import EXTRAS, RESERVED, as_array
from labeldp.release.manifest import CHANNEL, GROUP_ROWS, PRIOR, Manifest, file_facts, read_manifest
from labeldp.release.release import Release
from labeldp.untrusted import read_footer
from labeldp.validate import check_integer, check_probability_rows, code_dtype


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
    numbers = manifest["channel"].get("kind") == "numbers"
    codes, extras, answered = _read_examples(described, classes, numbers=numbers)
    channel = _channel(manifest["channel"], extras, rows)
    if "place" not in extras:  # rows that follow each other, from the channel's first position on
        whole = channel.place(_first_place(manifest), manifest["n_examples"])
        channel = whole if answered is None or channel.n_examples is not None else whole.take(answered)
    guarantee = Guarantee.from_json(manifest["guarantee"])
    # A channel is about one label. What it costs a person is not seen here: who owns which row is not in a release.
    about_label = guarantee.for_labels() if guarantee.unit is Unit.PERSON else guarantee
    if not channel.epsilon <= min(guarantee.epsilon(0.0), about_label.epsilon(0.0)):
        raise PrivacyError(
            f"load_release: {root} claims {guarantee.headline}, but its channel has epsilon {channel.epsilon!r}. Do not use it."
        )
    if len(classes) != channel.n_classes:
        raise ReleaseError(
            f"load_release: {root} has {len(classes)} classes for a channel of {channel.n_classes}. "
            "Ask its owner for it again."
        )
    if isinstance(channel, NumericChannel):
        if classes != tuple(channel.levels.tolist()):
            raise ReleaseError(f"load_release: {root} has other levels than its channel. Ask its owner for it again.")
        codes = None if codes is None else channel.encode(codes)
    if (codes is None) is (channel.outputs_are_labels or channel.outputs_are_numbers):
        raise ReleaseError(f"load_release: {root} has outputs of another kind of channel. Ask its owner for it again.")
    codes = extras["output"] if codes is None else codes
    room = channel.empty_codes(0)
    if codes.shape[1:] != room.shape[1:] or codes.dtype.kind not in "iu" or not channel.are_outputs(codes).all():
        raise ReleaseError(f"load_release: {root} has outputs that its channel does not have. Do not use it.")
    prior = None
    if PRIOR in manifest["files"]:
        prior = check_probability_rows("load_release", PRIOR, _read_shared(root / PRIOR)["prior"])
        if prior.shape[1] != len(classes):
            raise ReleaseError(f"load_release: {root} has a prior of other classes. Ask its owner for it again.")
    _check_places(root, extras.get("prior_row"), 0 if prior is None else len(prior), "rows of a prior")
    # Manifests before the count of stages say none; there are then at most as many as examples.
    _check_places(root, extras.get("stage"), manifest.get("stages", len(codes)), "stages")
    return Release(
        codes=codes.astype(room.dtype, copy=False),
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
        person_column=manifest.get("person_column"),
        label_notes=tuple(manifest.get("label_notes", ())),
        stage=extras.get("stage"),
        prior=prior,
        prior_index=extras.get("prior_row"),
        rows=answered,
        n_rows=None if answered is None else manifest["n_examples"],
    )


def _check_places(root: Path, places: Array | None, count: int, what: str) -> None:
    """Refuse numbers of rows or stages that are not whole, or not below their count."""
    if places is None:
        return
    whole = places.ndim == 1 and places.dtype.kind in "iu"
    if not whole or (places.size and not 0 <= int(places.min()) <= int(places.max()) < count):
        raise ReleaseError(f"load_release: {root} names {what} that are not there. Ask its owner for it again.")


#: Channels whose header and examples say everything.
WITHOUT_ROWS = ("candidates", "arcs", "sets")


def _first_place(manifest: Mapping[str, Any]) -> int:
    """Return the position of the first row, where a channel goes by positions; elsewhere no one asks."""
    first = manifest["channel"].get("first", 0)
    return check_integer("load_release", "first", first, least=0, most=(1 << 62))


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


def _read_examples(
    described: Manifest, classes: tuple[Hashable, ...], *, numbers: bool
) -> tuple[Array | None, dict[str, Array], Int64s | None]:
    """Return the code of each released label (a number itself), what labeldp wrote beside it, by its short name, and the
    positions of the rows with an answer, where the manifest says that some have none.

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
            for whole in file.iter_batches(batch_size=GROUP_ROWS, columns=wanted):
                batch = whole
                if "answered" in described.content:
                    batch, there_is = _drop_unanswered(whole, path)
                    pieces.setdefault("answered", []).append(there_is)
                for name in label:
                    read = _read_numbers if numbers else functools.partial(_encode, classes=classes)
                    pieces.setdefault("label", []).append(read(batch.column(name)))
                for name in extras:
                    column = batch.column(mark + name)
                    if column.null_count:
                        raise ReleaseError(f"load_release: {path} lacks values of {name!r}. Do not use it.")
                    pieces.setdefault(name, []).append(as_array(pa.chunked_array([column])))
    found = {name: np.concatenate(parts) for name, parts in pieces.items()}
    mask: Array | None = found.pop("answered") if "answered" in found else None
    expected = described.content["n_examples" if mask is None else "answered"]
    wrong = next((name for name, array in found.items() if len(array) != expected), None)
    if wrong is not None or not found:
        raise ReleaseError(
            f"load_release: {described.directory} has {wrong or 'labels'!r} for some of its labels only."
        )
    rows = None if mask is None else np.flatnonzero(mask).astype(np.int64)
    return found.pop("label", None), found, rows


def _drop_unanswered(batch: Any, path: Path) -> tuple[Any, Array]:
    """Return the rows of a batch that have an answer, and which they are; a row has all of ours or nothing."""
    mask = batch.column(0).is_valid()
    kept = batch.filter(mask)
    gone = batch.num_rows - kept.num_rows
    if any(column.null_count != gone for column in batch.columns) or any(one.null_count for one in kept.columns):
        raise ReleaseError(f"load_release: {path} has rows with a part of an answer. Do not use it.")
    return kept, mask.to_numpy(zero_copy_only=False)


def _read_numbers(values: pa.Array) -> Array:
    """Return released numbers as they are; whether they are answers of the channel is for it to say."""
    if not pa.types.is_float64(values.type) or values.null_count:
        raise ReleaseError("load_release: a released number is missing, or is none. Ask its owner for it again.")
    return as_array(pa.chunked_array([values]))


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
    if rows is None and kind not in WITHOUT_ROWS:
        raise ReleaseError("load_release: the channel's rows are missing. Ask the release's owner for it again.")
    own = {name: extras[name] for name in ("candidates", "row", "place") if name in extras}
    return build_channel(header, rows=rows or {}, examples=own)
