"""Checks that only read: the matrix against the promise, the ledger against releases, and what lies in a directory.

>>> import numpy as np
>>> from labeldp import RandomizedResponse, privatize
>>> raw = np.arange(2000) % 2
>>> release = privatize(raw, RandomizedResponse(2.0, n_classes=2), rng=0)
>>> matrix_check(release).passed, private_check(release).passed  # a seed is not private
(True, False)
>>> looks_raw(release, raw), looks_raw(release, raw[::-1] * 0 + 1)
(True, False)

Design notes. `matrix_check` enumerates dense matrices and does not ask the channel for its epsilon: a fault in one does
not hide in the other. `directory_check` reads names alone, so that it is quick for ten million rows. `raw_label_check` can
tell without the raw labels whether a table still holds them: a column that is the raw labels agrees with the released
ones as often as the channel says, and a column that has nothing to do with them agrees as often as chance says.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats
from labeldp.audit.results import Check
from labeldp.errors import LabelDPError
from labeldp.release import Release, load_release
from labeldp.release.files import Manifest, read_manifest

if TYPE_CHECKING:
    from labeldp.accounting import Ledger, LedgerEntry


#: Distinct matrices that are enumerated; of more, evenly spaced ones.
MOST_MATRICES = 512
#: What rounding can add to a log-ratio of two entries: eight half-ulps of the ratio, absolute in its logarithm.
ROUNDING = 8 * 2.0**-53
#: Names under which no value belongs into a release.
SECRET_WORDS = ("seed", "key", "secret", "rng", "raw", "true_label", "password", "token")
#: Rows looked at, evenly spaced: at this many, a share is known to 0.2 %; fewer where classes are so many that the table
#: of rows by classes would be larger than the second number.
MOST_ROWS, MOST_CELLS = 50_000, 5_000_000
#: Standard deviations: a copy of the raw labels is farther than this from its expectation once in 16,000 times; an
#: unrelated column is farther than the second from its own once in 500 million.
NEAR, FAR = 4.0, 6.0
#: What the ledger's words for a mechanism end in where a run can be taken up again: its random name.
RUN = re.compile(", run [0-9a-f]{16}$")
#: Columns that labeldp adds to a table begin so.
OWN = "_labeldp_"


def matrix_check(release: Release) -> Check:
    """Check that no log-ratio of the release's matrices exceeds the pure epsilon that it promises.

    All distinct matrices are enumerated, or `MOST_MATRICES` evenly spaced ones where they are more.
    """
    rows = _choose_examples(release)
    worst = max(worst_log_ratio(release.channel.matrix(int(row))) for row in rows)
    promised = release.guarantee.epsilon()
    passed = worst <= promised + ROUNDING + (math.ulp(promised) if math.isfinite(promised) else 0.0)
    detail = f"largest log-ratio {worst:.6g} in {len(rows):,} matrices, {promised:.6g} promised"
    return Check(name="matrix within guarantee", passed=passed, detail=detail)


def worst_log_ratio(matrix: Floats) -> float:
    """Return the largest log T[y, o] / T[z, o] of a dense matrix, by looking at every column."""
    most, least = matrix.max(axis=0), matrix.min(axis=0)
    possible = most > 0
    if np.any(least[possible] == 0):
        return math.inf
    return float(np.log(most[possible] / least[possible]).max())


def _choose_examples(release: Release) -> npt.NDArray[np.int64]:
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
    """Check that the noise did not come from a seed."""
    detail = "the noise came from a seed: whoever guesses it undoes it" if release.seeded else "the noise was secure"
    return Check(name="not seeded", passed=not release.seeded, detail=detail)


def directory_check(directory: str | os.PathLike[str]) -> Check:
    """Check that a release directory holds the files that its manifest names and nothing under a secret's name.

    Looked at: the names of files and folders, every key of the manifest, the keys of Parquet metadata, and the columns of
    a release that has no table's own columns. A manifest that cannot be read, or was changed, raises `ReleaseError`.
    """
    root = Path(directory)
    manifest = read_manifest(root)
    known = set(manifest.checksums)
    folders = {parent.as_posix() for name in known for parent in PurePosixPath(name).parents}
    found_here = {(path.relative_to(root).as_posix(), path.is_dir()) for path in root.rglob("*")}
    strangers = sorted(name for name, is_folder in found_here if name not in (folders if is_folder else known))
    names = sorted({*_find_keys(manifest.content), *_find_columns(manifest)} - {"seeded"})
    secrets = [name for name in names if _is_secret(name)]
    found = [f"file {name!r}" for name in strangers] + [f"value {name!r}" for name in secrets]
    detail = "unexpected: " + ", ".join(found[:8]) if found else f"{len(known)} files, all named in the manifest"
    return Check(name="no key or stray file", passed=not found, detail=detail)


def _is_secret(name: str) -> bool:
    """Whether one of the words of a name is a word for a secret."""
    words = name.lower().replace("-", "_").split("_")
    return any(word in words or word == name.lower() for word in SECRET_WORDS)


def _find_keys(value: Any) -> Iterable[str]:
    """Yield every key of nested JSON; the names of files are keys too, and were looked at as files."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            if key != "files":
                yield from _find_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_keys(inner)


def _find_columns(manifest: Manifest) -> Iterable[str]:
    """Yield the keys of Parquet metadata, and the columns of a release that has no table's own columns."""
    import pyarrow.parquet as pq

    for name in manifest.content["files"]:
        schema = pq.read_schema(manifest.directory / name)
        yield from (key.decode("utf-8", "replace") for key in (schema.metadata or {}))
        if manifest.label_column is None:
            yield from schema.names


def ledger_checks(ledger: Ledger, releases: Iterable[tuple[str, Release]]) -> tuple[Check, ...]:
    """Check that the ledger's chain is intact and that each release has an entry of its own that charges its promise.

    `releases` are names and releases, say of all directories that were handed out. The answer is one check where the
    chain is broken, since its entries then say nothing, and two otherwise.

    An entry is known by its hash: an older copy of the file, put back, gives its next numbers out a second time. A release
    that keeps only the number (of an older version, or with its hash taken out) fails: it may be one of two.
    """
    try:
        last = ledger.verify()
    except LabelDPError as error:
        return (Check(name="ledger intact", passed=False, detail=str(error)),)
    entries: dict[int, LedgerEntry] = {entry.id: entry for entry in ledger.entries()}
    taken: dict[int, str] = {}
    faults = []
    for name, release in releases:
        faults += [f"{name}: {fault}" for fault in _compare_entry(release, entries.get(release.ledger_entry or -1))]
        if release.ledger_entry is not None:
            if release.ledger_entry in taken:
                faults.append(f"{name}: shares entry {release.ledger_entry} with {taken[release.ledger_entry]}")
            taken.setdefault(release.ledger_entry, name)
    intact = Check(
        name="ledger intact", passed=True, detail=f"{len(entries)} releases, chain ends in {last[:16] or '-'}"
    )
    detail = "; ".join(faults[:8]) or f"{len(taken)} of {len(entries)} entries are these releases"
    return intact, Check(name="ledger charged", passed=not faults, detail=detail)


def _compare_entry(release: Release, entry: Any) -> list[str]:
    """Return how a release and its ledger entry disagree."""
    if entry is None:
        return ["the ledger has no entry for it"]
    facts = (
        ("label set", entry.label_set, release.label_set),
        ("rows", entry.n_rows, len(release)),
        ("guarantee", entry.guarantee, release.guarantee),
        ("mechanism", RUN.sub("", entry.mechanism), release.mechanism),
        ("seeded", entry.seeded, release.seeded),
    )
    faults = [f"{what} is {there} in the ledger, {here} here" for what, there, here in facts if there != here]
    known = getattr(release.ledger_entry, "hash", "")
    if not known:
        faults.append("only the entry's number is recorded, not its hash: another release can have the same number")
    elif known != entry.hash:
        faults.append(f"its entry's hash, {known[:16]}, is not in the ledger: an older copy, or one written anew")
    return faults


def load_check(directory: str | os.PathLike[str]) -> tuple[Check, Release | None]:
    """Check that a release loads: its checksums hold, and its channel keeps its promise.

    The release comes with the check; None with a failed one, whose detail is the reason.
    """
    try:
        release = load_release(directory)
    except LabelDPError as error:
        return Check(name="intact", passed=False, detail=str(error)), None
    return Check(name="intact", passed=True, detail=f"{len(release):,} labels, every checksum holds"), release


def raw_label_check(directory: str | os.PathLike[str], release: Release) -> Check:
    """Check that no other column of a released table behaves as the raw labels would (`looks_raw`).

    Up to `MOST_ROWS` rows are compared, evenly spaced. Columns that labeldp adds itself are passed over.
    """
    name = "no raw label column"
    if release.label_column is None or not release.channel.outputs_are_labels:
        return Check(name=name, passed=True, detail="the release has no other columns")
    import pyarrow as pa
    import pyarrow.parquet as pq

    step = max(1, -(-len(release) // min(MOST_ROWS, max(1, MOST_CELLS // release.n_classes))))
    rows = np.arange(0, len(release), step)
    part = release.take(rows)
    suspects, looked = [], 0
    paths = read_manifest(directory).label_files
    for column in pq.read_schema(paths[0]).names:
        if column == release.label_column or column.startswith(OWN):
            continue
        pieces = (pq.ParquetFile(path).read(columns=[column])[column] for path in paths)
        values = pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks]).take(rows).to_numpy()
        looked += 1
        codes = _encode(values, part.classes)
        if codes is not None and looks_raw(part, codes):
            suspects.append(column)
    detail = (
        f"behaves as the raw labels: {suspects}" if suspects else f"{looked} other columns, none behaves as they would"
    )
    return Check(name=name, passed=not suspects, detail=detail)


def looks_raw(release: Release, codes: npt.NDArray[Any]) -> bool:
    """Whether a column, as codes, agrees with the released labels as the raw ones would and as unrelated ones would not.

    A copy of the raw labels agrees on as many rows as the channel says in expectation, up to `NEAR` standard deviations;
    an unrelated column on as many as the two columns' frequencies say, and the count must be `FAR` from that.
    """
    n, k = len(release), release.n_classes
    agree = int((codes == release.codes).sum())
    own = np.zeros((n, k), np.float32)
    own[np.arange(n), codes] = 1.0
    chance = np.asarray(release.channel.expected_accuracy(own), np.float64)
    share = np.bincount(codes, minlength=k) / n @ (np.bincount(release.codes, minlength=k) / n)
    spread = max(float((chance * (1 - chance)).sum()), 1.0) ** 0.5
    unrelated = max(float(n * share * (1 - share)), 1.0) ** 0.5
    return bool(abs(agree - chance.sum()) <= NEAR * spread and abs(agree - n * share) > FAR * unrelated)


def _encode(values: npt.NDArray[Any], classes: tuple[Any, ...]) -> npt.NDArray[np.int64] | None:
    """Return a column as class codes if all its values are classes, in their own type or as text, and two occur."""
    kinds, inverse = np.unique(values.astype(str), return_inverse=True)
    place = {str(name): code for code, name in enumerate(classes)}
    if len(kinds) < 2 or not set(kinds.tolist()) <= set(place):
        return None
    return np.array([place[kind] for kind in kinds.tolist()], np.int64)[inverse]
