"""Releases on disk: a directory of Parquet and JSON, written at once or not at all, loaded without running anything.

    release.json     format, guarantee, channel header, classes, SHA-256 of every other file and of itself
    labels.parquet   a row per example: the released label, and its channel row or candidate set where they differ;
                     a table's release also holds its other columns, and the manifest names its "label_column";
                     a table of several files has them under labels/, and the manifest lists its "label_files" in order
    channel.parquet  the channel's shared rows, if it has any
    prior.parquet    the rows of a released prior (a noisy histogram per cluster), if one was used

No raw label and no key is ever written. Checksums find damage and carelessness; they are not a signature.

Design notes. Writing is in `_writer`. Loading checks every checksum before it reads, and the promise against the
channel afterwards; of a table it reads only the columns that labeldp wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeldp._validate import code_dtype
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel
from labeldp.errors import Described, PrivacyError, ReleaseError, invalid
from labeldp.guarantee import Guarantee
from labeldp.release._release import Release
from labeldp.release._writer import CHANNEL, EXTRAS, FORMAT, LABELS, MANIFEST, PRIOR, RESERVED, VERSION, save_release
from labeldp.release._writer import digest as _digest
from labeldp.release._writer import file_facts as _file_facts

__all__ = ["CHANNEL", "LABELS", "MANIFEST", "PRIOR", "load_release", "save_release"]


def load_release(directory: str | os.PathLike[str]) -> Release:
    """Read a release, after checking that it is whole and unchanged.

    >>> load_release("no/such/place")
    Traceback (most recent call last):
    labeldp.errors.ReleaseError: load_release: `directory` must hold a release, got 'no/such/place'. No release.json there.
    """
    root = Path(directory)
    manifest = _read_manifest(root)
    try:
        for name, facts in manifest["files"].items():
            _check_file(_inside(root, name), facts)
        return _assembled(root, manifest)
    # ValueError covers LabelDPError and most of Arrow's; OSError, a file that went away or that the manifest left out.
    except (KeyError, TypeError, AttributeError, ValueError, OSError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, ReleaseError | PrivacyError):
            raise
        raise ReleaseError(
            f"load_release: {root} is not a readable release: {error}. Ask its owner for it again."
        ) from error


def _as_array(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return what `_as_column` stored."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    if pa.types.is_fixed_size_binary(whole.type):
        width = whole.type.byte_width
        data = np.frombuffer(whole.buffers()[1], np.uint8)
        return data[whole.offset * width : (whole.offset + len(whole)) * width].reshape(len(whole), width)
    if pa.types.is_fixed_size_list(whole.type):
        whole, shape = whole.flatten(), (len(whole), whole.type.list_size)
        matrix: npt.NDArray[Any] = whole.to_numpy(zero_copy_only=False).reshape(shape)
        return matrix
    array: npt.NDArray[Any] = whole.to_numpy(zero_copy_only=False)
    return array


def _read_manifest(root: Path) -> dict[str, Any]:
    """Return the manifest of a directory after checking that it is ours, of a known version, and unchanged."""
    path = root / MANIFEST
    if not path.is_file():
        fix = f"No {MANIFEST} there."
        raise invalid("load_release", "directory", "hold a release", got=str(root), fix=fix, kind=ReleaseError)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
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
    if manifest.get("sha256") != _digest(manifest):
        raise ReleaseError(f"load_release: {path} was changed after it was written. Ask its owner for it again.")
    return manifest


def _inside(root: Path, name: str) -> Path:
    """Return the path of a file of the release; a manifest names none outside of its directory."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ReleaseError(f"load_release: {root} names a file outside of it, {name!r}. Do not use it.")
    return root / name


def _check_file(path: Path, facts: dict[str, Any]) -> None:
    """Refuse a file that is missing, cut short or changed."""
    if not path.is_file():
        raise ReleaseError(f"load_release: {path} is missing. Ask the release's owner for it again.")
    got = _file_facts(path)
    if got["bytes"] != facts["bytes"]:
        raise ReleaseError(f"load_release: {path} has {got['bytes']} bytes, not {facts['bytes']}: it is incomplete.")
    if got["sha256"] != facts["sha256"]:
        raise ReleaseError(f"load_release: {path} was changed after it was written: its checksum does not match.")


def _assembled(root: Path, manifest: dict[str, Any]) -> Release:
    """Build the release from checked files, and check the promise against the channel."""
    paths = [_inside(root, name) for name in label_files(manifest)]
    table = pa.concat_tables([_labels(path, manifest.get("label_column")) for path in paths])
    rows = pq.read_table(root / CHANNEL) if CHANNEL in manifest["files"] else None
    channel = _channel(manifest["channel"], table, rows)
    guarantee = Guarantee.from_json(manifest["guarantee"])
    if not channel.epsilon <= guarantee.epsilon(0.0):
        raise PrivacyError(
            f"load_release: {root} claims {guarantee}, but its channel has epsilon {channel.epsilon!r}. Do not use it."
        )
    classes = tuple(manifest["classes"])
    if len(classes) != channel.n_classes or manifest["n_examples"] != len(table):
        raise ReleaseError(
            f"load_release: {root} has {len(classes)} classes and {len(table)} labels for a channel of "
            f"{channel.n_classes} and a manifest of {manifest['n_examples']}. Ask its owner for it again."
        )
    return Release(
        codes=_codes(table, classes, channel),
        classes=classes,
        channel=channel,
        guarantee=guarantee,
        mechanism=str(manifest["mechanism"]),
        seeded=bool(manifest["seeded"]),
        start=int(manifest["start"]),
        label_set=str(manifest["label_set"]),
        created=str(manifest["created"]),
        ledger_entry=manifest["ledger_entry"],
        stage=_as_array(table["stage"]) if "stage" in table.column_names else None,
        prior=_as_array(pq.read_table(root / PRIOR)["prior"]) if PRIOR in manifest["files"] else None,
        prior_index=_as_array(table["prior_row"]) if "prior_row" in table.column_names else None,
    )


def label_files(manifest: dict[str, Any]) -> list[str]:
    """Return the files that hold the labels, in the order of the rows; each has its checksum in the manifest."""
    names = manifest.get("label_files", [LABELS])
    unknown = next((name for name in names if name not in manifest["files"]), None)
    if not names or unknown is not None:
        raise ReleaseError("load_release: a file of labels has no checksum. Ask the release's owner for it again.")
    return [str(name) for name in names]


def _labels(path: Path, label_column: str | None) -> pa.Table:
    """Return what labeldp wrote about each example, under its short names; a table's other columns are not read."""
    if label_column is None:
        return pq.read_table(path)
    there = set(pq.read_schema(path).names)
    extras = [name for name in EXTRAS if RESERVED + name in there]
    table = pq.read_table(path, columns=[label_column, *(RESERVED + name for name in extras)])
    return table.rename_columns(["label", *extras])


def _codes(table: pa.Table, classes: tuple[Hashable, ...], channel: FiniteChannel) -> npt.NDArray[Any]:
    dtype = code_dtype(channel.n_outputs)
    if not channel.outputs_are_labels:
        return _as_array(table["output"]).astype(dtype)
    values = table["label"]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    codes = pc.index_in(values, value_set=pa.array(list(classes)).cast(values.type))
    if codes.null_count:
        raise ReleaseError("load_release: a released label is not among the classes. Ask its owner for it again.")
    return _as_array(codes).astype(dtype)


def _channel(header: dict[str, Any], table: pa.Table, rows: pa.Table | None) -> FiniteChannel:
    """Return the channel that these arrays describe; its own checks apply."""
    kind = header["kind"]
    if kind == "candidates":
        members = _as_array(table["candidates"])
        return CandidateChannel(odds=float(header["odds"]), members=members, n_classes=header["n_classes"])
    if rows is None:
        raise ReleaseError("load_release: the channel's rows are missing. Ask the release's owner for it again.")
    index = _as_array(table["row"]) if "row" in table.column_names else None
    if kind == "rows":
        keep, redraw, base = (_as_array(rows[name]) for name in ("keep", "redraw", "base"))
        return Channel(keep=keep, redraw=redraw, base=base, index=index)
    if kind == "matrix":
        flat = _as_array(rows["transition"])
        transition = flat.reshape(len(flat), header["n_classes"], header["n_outputs"])
        return MatrixChannel(transition, index=index, outputs_are_labels=header["outputs_are_labels"])
    raise ReleaseError(f"load_release: unknown kind of channel {kind!r}. Upgrade labeldp to read newer releases.")
