"""Releases on disk: a directory of Parquet and JSON, written at once or not at all, loaded without running anything.

    release.json     format, guarantee, channel header, classes, SHA-256 of every other file and of itself
    labels.parquet   a row per example: the released label, and its channel row or candidate set where they differ
    channel.parquet  the channel's shared rows, if it has any
    prior.parquet    the rows of a released prior (a noisy histogram per cluster), if one was used

No raw label and no key is ever written. Checksums find damage and carelessness; they are not a signature.

Design notes. Everything is written into a hidden directory beside the target, flushed to the disk, and then renamed:
the target appears whole or not at all. Loading checks every checksum before it reads, and the promise against the
channel afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from labeldp._validate import code_dtype
from labeldp.channel import CandidateChannel, Channel, FiniteChannel, MatrixChannel
from labeldp.errors import Described, LabelDPError, PrivacyError, ReleaseError, invalid
from labeldp.guarantee import Guarantee
from labeldp.release._encoding import decoded, look_up
from labeldp.release._release import Release

FORMAT = "labeldp release"
VERSION = 1
MANIFEST = "release.json"
LABELS = "labels.parquet"
CHANNEL = "channel.parquet"
PRIOR = "prior.parquet"


def save_release(release: Release, directory: str | os.PathLike[str]) -> None:
    """Write a release into a new directory; an existing one is refused."""
    target = Path(directory)
    if target.exists() or target.is_symlink():
        fix = "Choose a new directory: releases are never overwritten."
        raise invalid("Release.save", "directory", "not exist yet", got=str(target), fix=fix)
    if not target.parent.is_dir():
        raise invalid("Release.save", "directory", "have a parent directory", got=str(target), fix="Create it first.")
    _check_classes(release.classes)
    partial = target.parent / f".{target.name}.partial-{secrets.token_hex(8)}"
    try:
        _write(release, partial)
        partial.rename(target)
        _flush_directory(target.parent)
    except OSError as error:
        raise LabelDPError(
            f"Release.save: could not write {target}: {error.strerror or error}. Nothing was kept."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
            _check_file(root / name, facts)
        return _assembled(root, manifest)
    # ValueError covers LabelDPError and most of Arrow's; OSError, a file that went away or that the manifest left out.
    except (KeyError, TypeError, AttributeError, ValueError, OSError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, ReleaseError | PrivacyError):
            raise
        raise ReleaseError(
            f"load_release: {root} is not a readable release: {error}. Ask its owner for it again."
        ) from error


def _write(release: Release, partial: Path) -> None:
    """Write all files of a release into a fresh directory and flush them."""
    partial.mkdir()
    _write_parquet(_label_table(release), partial / LABELS)
    rows = release.channel.row_arrays()
    if rows:
        _write_parquet(pa.table({name: _as_column(array) for name, array in rows.items()}), partial / CHANNEL)
    if release.prior is not None:
        _write_parquet(pa.table({"prior": _as_column(release.prior)}), partial / PRIOR)
    files = {p.name: _file_facts(p) for p in sorted(partial.iterdir())}
    manifest = _manifest(release, files)
    manifest["sha256"] = _digest(manifest)
    with (partial / MANIFEST).open("w", encoding="utf-8") as handle:
        json.dump(manifest, handle, indent=1, allow_nan=False)
        handle.flush()
        os.fsync(handle.fileno())
    _flush_directory(partial)


def _manifest(release: Release, files: dict[str, Any]) -> dict[str, Any]:
    """Return everything that is not an array."""
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


def _label_table(release: Release) -> pa.Table:
    """Return the released labels with whatever part of the channel differs from example to example."""
    if release.channel.outputs_are_labels:
        columns = {"label": pa.array(decoded(release.codes, release.classes))}
    else:
        columns = {"output": pa.array(release.codes)}
    for name, array in release.channel.example_arrays().items():
        columns[name] = _as_column(array)
    for name, extra in (("stage", release.stage), ("prior_row", release.prior_index)):
        if extra is not None:
            columns[name] = pa.array(extra)
    return pa.table(columns)


def _as_column(array: npt.NDArray[Any]) -> pa.Array:
    """Return a vector as it is, bytes as fixed-size binary and other matrices as fixed-size lists."""
    if array.ndim == 1:
        return pa.array(array)
    flat = np.ascontiguousarray(array)
    if flat.dtype == np.uint8:
        width = pa.binary(flat.shape[1])
        return pa.FixedSizeBinaryArray.from_buffers(width, len(flat), [None, pa.py_buffer(flat)])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])


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


def _write_parquet(table: pa.Table, path: Path) -> None:
    with path.open("wb") as handle:
        pq.write_table(table, handle, compression="zstd")
        handle.flush()
        os.fsync(handle.fileno())


def _flush_directory(path: Path) -> None:
    """Make a rename or a new file durable; file systems that cannot are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _file_facts(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while piece := handle.read(1 << 20):
            digest.update(piece)
    return {"sha256": digest.hexdigest(), "bytes": path.stat().st_size}


def _digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of the manifest without its own digest, in canonical JSON."""
    rest = {k: v for k, v in manifest.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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


def _check_file(path: Path, facts: dict[str, Any]) -> None:
    """Refuse a file that is missing, cut short or changed."""
    if path.name != Path(path.name).name or not path.is_file():
        raise ReleaseError(f"load_release: {path} is missing. Ask the release's owner for it again.")
    got = _file_facts(path)
    if got["bytes"] != facts["bytes"]:
        raise ReleaseError(f"load_release: {path} has {got['bytes']} bytes, not {facts['bytes']}: it is incomplete.")
    if got["sha256"] != facts["sha256"]:
        raise ReleaseError(f"load_release: {path} was changed after it was written: its checksum does not match.")


def _assembled(root: Path, manifest: dict[str, Any]) -> Release:
    """Build the release from checked files, and check the promise against the channel."""
    table = pq.read_table(root / LABELS)
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


def _codes(table: pa.Table, classes: tuple[Hashable, ...], channel: FiniteChannel) -> npt.NDArray[Any]:
    dtype = code_dtype(channel.n_outputs)
    if not channel.outputs_are_labels:
        return _as_array(table["output"]).astype(dtype)
    values = _as_array(table["label"])
    codes = look_up(values, classes)
    if codes is None:
        raise ReleaseError("load_release: a released label is not among the classes. Ask its owner for it again.")
    return codes.astype(dtype)


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


def _check_classes(classes: tuple[Hashable, ...]) -> None:
    """Only plain values are written: whoever loads a release runs nothing."""
    odd = next((c for c in classes if not isinstance(c, (str, int, float, bool))), None)
    if odd is not None:
        fix = "Use text, numbers or booleans as classes of a release that is to be saved."
        raise invalid("Release.save", "classes", "be text, numbers or booleans", got=type(odd).__name__, fix=fix)
    kinds = {type(c) for c in classes}
    if len(kinds) > 1 and not kinds <= {int, float}:
        raise invalid("Release.save", "classes", "be of one kind", got=Described("a mixture"), fix="Use text for all.")
    wild = next((c for c in classes if isinstance(c, float) and not math.isfinite(c)), None)
    if wild is not None:
        raise invalid("Release.save", "classes", "be finite: JSON has no infinity", got=wild, fix="Use text for all.")
