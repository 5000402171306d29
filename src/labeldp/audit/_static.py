"""Checks that only read: the matrix against the promise, the ledger against releases, and what lies in a directory.

>>> import labeldp
>>> release = labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(1.0, n_classes=2))
>>> matrix_check(release).passed
True

Design notes. `matrix_check` enumerates dense matrices and does not ask the channel for its epsilon: a fault in one does
not hide in the other. The files are read by names alone, so a check of ten million rows is one pass over the columns.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labeldp.audit._values import Check
from labeldp.errors import LabelDPError
from labeldp.release import Release, load_release

if TYPE_CHECKING:
    from labeldp.accounting import Ledger

Floats = npt.NDArray[np.floating[Any]]

#: Distinct matrices that are enumerated; of more, evenly spaced ones.
MOST_MATRICES = 512
#: What rounding can add to a log-ratio of two entries: eight half-ulps of the ratio, absolute in its logarithm.
ROUNDING = 8 * 2.0**-53
#: Names under which no value belongs into a release.
SECRET_WORDS = ("seed", "key", "secret", "rng", "raw", "true_label", "password", "token")


def worst_log_ratio(matrix: Floats) -> float:
    """Return the largest log T[y, o] / T[z, o] of a dense matrix, by looking at every column."""
    most, least = matrix.max(axis=0), matrix.min(axis=0)
    possible = most > 0
    if np.any(least[possible] == 0):
        return math.inf
    return float(np.log(most[possible] / least[possible]).max())


def matrix_check(release: Release) -> Check:
    """No log-ratio of the release's matrices exceeds the pure epsilon that it promises."""
    rows = _distinct_examples(release)
    worst = max(worst_log_ratio(release.channel.matrix(int(row))) for row in rows)
    promised = release.guarantee.epsilon()
    passed = worst <= promised + ROUNDING + (math.ulp(promised) if math.isfinite(promised) else 0.0)
    detail = f"largest log-ratio {worst:.6g} in {len(rows):,} matrices, {promised:.6g} promised"
    return Check(name="matrix within guarantee", passed=passed, detail=detail)


def _distinct_examples(release: Release) -> npt.NDArray[np.int64]:
    """Return an example of each distinct matrix, or of evenly spaced ones where they are many."""
    arrays = release.channel.example_arrays()
    if not arrays or not len(release):
        return np.zeros(1, np.int64)
    stored = next(iter(arrays.values()))
    # A candidate set is stored as bits; sets of one size have the same matrix up to the order of the classes.
    kind = np.bitwise_count(stored).sum(axis=1, dtype=np.int64) if stored.ndim == 2 else stored
    # The last of repeated assignments stands: backwards, it is the first example of each kind. No sort of n rows.
    seen = np.full(int(kind.max()) + 1, -1, np.int64)
    seen[kind[::-1]] = np.arange(len(kind))[::-1]
    first = np.sort(seen[seen >= 0])
    step = -(-len(first) // MOST_MATRICES)
    return first[::step]


def private_check(release: Release) -> Check:
    """The noise did not come from a seed."""
    detail = "the noise came from a seed: whoever guesses it undoes it" if release.seeded else "the noise was secure"
    return Check(name="not seeded", passed=not release.seeded, detail=detail)


def directory_check(directory: str | os.PathLike[str]) -> Check:
    """A release directory holds the files that its manifest names and nothing under a secret's name."""
    import json

    root = Path(directory)
    manifest = json.loads((root / "release.json").read_text(encoding="utf-8"))
    known = {"release.json", *manifest["files"]}
    folders = {parent.as_posix() for name in known for parent in PurePosixPath(name).parents}
    found_here = {(path.relative_to(root).as_posix(), path.is_dir()) for path in root.rglob("*")}
    strangers = sorted(name for name, is_folder in found_here if name not in (folders if is_folder else known))
    names = sorted({*_keys(manifest), *_columns(root, manifest)} - {"seeded"})
    secrets = [name for name in names if _is_secret(name)]
    found = [f"file {name!r}" for name in strangers] + [f"value {name!r}" for name in secrets]
    detail = "unexpected: " + ", ".join(found[:8]) if found else f"{len(known)} files, all named in the manifest"
    return Check(name="no key or stray file", passed=not found, detail=detail)


def _is_secret(name: str) -> bool:
    words = name.lower().replace("-", "_").split("_")
    return any(word in words or word == name.lower() for word in SECRET_WORDS)


def _keys(value: Any) -> Iterable[str]:
    """Yield every key of nested JSON; the names of files are keys too, and were looked at as files."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            if key != "files":
                yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def _columns(root: Path, manifest: dict[str, Any]) -> Iterable[str]:
    """Yield the keys of Parquet metadata, and the columns of a release that has no table's own columns."""
    import pyarrow.parquet as pq

    for name in manifest["files"]:
        schema = pq.read_schema(root / name)
        yield from (key.decode("utf-8", "replace") for key in (schema.metadata or {}))
        if manifest.get("label_column") is None:
            yield from schema.names


def ledger_checks(ledger: Ledger, releases: Iterable[tuple[str, Release]]) -> tuple[Check, ...]:
    """The chain is intact; each release has an entry of its own that charges what it promises.

    `releases` are names and releases, say of all directories that were handed out.
    """
    try:
        last = ledger.verify()
    except LabelDPError as error:
        return (Check(name="ledger intact", passed=False, detail=str(error)),)
    entries = {entry.id: entry for entry in ledger.entries()}
    taken: dict[int, str] = {}
    faults = []
    for name, release in releases:
        faults += [f"{name}: {fault}" for fault in _entry_faults(release, entries.get(release.ledger_entry or -1))]
        if release.ledger_entry is not None:
            if release.ledger_entry in taken:
                faults.append(f"{name}: shares entry {release.ledger_entry} with {taken[release.ledger_entry]}")
            taken.setdefault(release.ledger_entry, name)
    intact = Check(
        name="ledger intact", passed=True, detail=f"{len(entries)} releases, chain ends in {last[:16] or '-'}"
    )
    detail = "; ".join(faults[:8]) or f"{len(taken)} of {len(entries)} entries are these releases"
    return intact, Check(name="ledger charged", passed=not faults, detail=detail)


def _entry_faults(release: Release, entry: Any) -> list[str]:
    """Return how a release and its ledger entry disagree."""
    if entry is None:
        return ["the ledger has no entry for it"]
    facts = (
        ("label set", entry.label_set, release.label_set),
        ("rows", entry.n_rows, len(release)),
        ("guarantee", entry.guarantee, release.guarantee),
        ("mechanism", entry.mechanism, release.mechanism),
        ("seeded", entry.seeded, release.seeded),
    )
    return [f"{what} is {there} in the ledger, {here} here" for what, there, here in facts if there != here]


def load_check(directory: str | os.PathLike[str]) -> tuple[Check, Release | None]:
    """A release loads: its checksums hold, and its channel keeps its promise. A damaged one is a failed check."""
    try:
        release = load_release(directory)
    except LabelDPError as error:
        return Check(name="intact", passed=False, detail=str(error)), None
    return Check(name="intact", passed=True, detail=f"{len(release):,} labels, every checksum holds"), release
