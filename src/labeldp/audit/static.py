"""Checks that only read: the matrix against the promise, the ledger against releases, and what lies in a directory.

>>> import numpy as np
>>> from labeldp import RandomizedResponse, privatize
>>> raw = np.arange(2000) % 2
>>> release = privatize(raw, RandomizedResponse(2.0, n_classes=2), rng=0)
>>> matrix_check(release).passed, private_check(release).passed  # a seed is not private
(True, False)

Design notes. `matrix_check` enumerates dense matrices and does not ask the channel for its epsilon: a fault in one does
not hide in the other. `directory_check` reads names and the manifest alone, so that it is quick for ten million rows; what
stands in the rows and columns is the subject of `labeldp.audit.contents`. A digest is no signature: whoever changes a
release can seal it again, so nothing here rests on the manifest being unchanged, and everything that it says is compared
with what labeldp could have written.
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
from labeldp.channel import SetAnswers
from labeldp.errors import LabelDPError
from labeldp.guarantee import Guarantee
from labeldp.release import Release, load_release
from labeldp.release.manifest import CHANNEL, FIELDS, LABELS, MANIFEST, PRIOR, Manifest, read_manifest

if TYPE_CHECKING:
    from labeldp.accounting import Ledger, LedgerEntry


#: Distinct matrices that are enumerated; of more, evenly spaced ones.
MOST_MATRICES = 512
#: What rounding can add to a log-ratio of two entries: eight half-ulps of the ratio, absolute in its logarithm.
ROUNDING = 8 * 2.0**-53
#: Names under which no value belongs into a release.
SECRET_WORDS = ("seed", "key", "secret", "rng", "raw", "true_label", "password", "token")
#: The longest text of a manifest that is not a name: a mechanism's words, an assumption.
MOST_TEXT = 4000
#: What closes the chain of a ledger.
HASH = re.compile("[0-9a-f]{64}")
#: Who made a release and when, as labeldp writes it.
MADE_BY = re.compile(r"labeldp [0-9A-Za-z.+]{1,40}")
CREATED = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00)?")
#: What the ledger's words for a mechanism end in where a run can be taken up again: its random name.
RUN = re.compile(", run [0-9a-f]{16}$")


def matrix_check(release: Release) -> Check:
    """Check that no log-ratio of the release's matrices exceeds the pure epsilon that it promises.

    All distinct matrices are enumerated, or `MOST_MATRICES` evenly spaced ones where they are more.
    """
    if isinstance(release.channel, SetAnswers):
        return _answers_check(release)
    rows = _choose_examples(release)
    worst = max(worst_log_ratio(release.channel.matrix(int(row))) for row in rows)
    promised = release.guarantee.epsilon()
    passed = worst <= promised + ROUNDING + (math.ulp(promised) if math.isfinite(promised) else 0.0)
    detail = f"largest log-ratio {worst:.6g} in {len(rows):,} matrices, {promised:.6g} promised"
    return Check(name="matrix within guarantee", passed=passed, detail=detail)


def _answers_check(release: Release) -> Check:
    """Check the answers of a release of sets, evenly spaced: the largest log-ratio of one under two labels.

    What was not answered is not known for blocks by a prior; an answer has two chances alone, with the label and without.
    """
    step = max(1, -(-len(release) // MOST_MATRICES))
    part = release.take(np.arange(0, len(release), step))
    worst, promised = 0.0, release.guarantee.epsilon()
    for row in range(len(part)):
        one = part.take(np.array([row]))
        likely = one.channel.likelihood(one.codes)[0]
        with np.errstate(divide="ignore"):
            worst = max(worst, float(np.log(likely.max() / likely.min())))
    passed = worst <= promised + ROUNDING + (math.ulp(promised) if math.isfinite(promised) else 0.0)
    detail = f"largest log-ratio {worst:.6g} of {len(part):,} answers that are sets, {promised:.6g} promised"
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
    from labeldp.kernels import ONES

    arrays = release.channel.example_arrays()
    if not arrays or not len(release):
        return np.zeros(1, np.int64)
    stored = next(iter(arrays.values()))
    # A candidate set is stored as bits; sets of one size have the same matrix up to the order of the classes.
    kind = ONES[stored].sum(axis=1, dtype=np.int64) if stored.ndim == 2 else stored
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
    """Check that a release directory holds the files that a release has, and nothing under a secret's name.

    Looked at: the names of files and folders, links and attributes of files, every key and text of the manifest, the keys
    of Parquet metadata, and the columns of a release that has no table's own columns. A file is known if a release has one
    of its kind: that the manifest names it is not enough. A manifest that cannot be read, or was changed, raises
    `ReleaseError`.
    """
    root = Path(directory)
    manifest = read_manifest(root)
    labels = [str(name) for name in manifest.content.get("label_files", [LABELS])]
    known = {*labels, CHANNEL, PRIOR, MANIFEST} & set(manifest.checksums)
    folders = {parent.as_posix() for name in known for parent in PurePosixPath(name).parents}
    found_here = {(path.relative_to(root).as_posix(), path.is_dir()) for path in root.rglob("*")}
    strangers = sorted(name for name, is_folder in found_here if name not in (folders if is_folder else known))
    names = sorted({*_find_keys(manifest.content), *_find_columns(manifest)} - {"seeded"})
    secrets = [name for name in names if _is_secret(name)]
    found = [f"file {name!r}" for name in strangers] + [f"value {name!r}" for name in secrets]
    found += [f"file {name!r} twice" for name in sorted({name for name in labels if labels.count(name) > 1})]
    found += [*_find_links(root), *_find_additions(manifest)]
    detail = "unexpected: " + ", ".join(found[:8]) if found else f"{len(known)} files, all named in the manifest"
    return Check(name="no key or stray file", passed=not found, detail=detail)


def _find_links(root: Path) -> Iterable[str]:
    """Yield files that lie elsewhere, and files with attributes of a user's."""
    for path in [root, *sorted(root.rglob("*"))]:
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            yield f"a link, {name!r}"
        elif hasattr(os, "listxattr"):
            try:
                own = [one for one in os.listxattr(path) if one.startswith("user.")]
            except OSError:  # a file system without attributes
                own = []
            yield from (f"attribute {one!r} of {name!r}" for one in own)


def _find_additions(manifest: Manifest) -> Iterable[str]:
    """Yield what a manifest says that labeldp does not write."""
    content = manifest.content
    yield from (f"value {name!r} in the manifest" for name in sorted(set(content) - set(FIELDS)))
    if content["private"] == content["seeded"]:
        yield "a value of another kind in the manifest, 'private'"
    number, known = content.get("ledger_entry"), content.get("ledger_hash")
    if not (number is None or 0 < number < 1 << 63) or not (known is None or (number and HASH.fullmatch(known))):
        yield "an entry of a ledger that no ledger has"
    if Guarantee.from_json(content["guarantee"]).to_json() != content["guarantee"]:
        yield "a guarantee with more in it than a guarantee has"
    if any(set(facts) != {"sha256", "bytes"} for facts in content["files"].values()):
        yield "more about a file than its checksum and size"
    if not MADE_BY.fullmatch(str(content["made_by"])) or not CREATED.fullmatch(str(content["created"])):
        yield "a maker or a time that labeldp does not write"
    texts = [*_find_texts({name: content[name] for name in ("mechanism", "label_set", "guarantee", "channel")})]
    if any(len(text) > MOST_TEXT or not text.isprintable() for text in texts):
        yield "a text that is too long, or that does not show all it holds"


def _find_texts(value: Any) -> Iterable[str]:
    """Yield every text of nested JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _find_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_texts(inner)


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
        ("rows", entry.n_rows, release.rows_in_all),
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
