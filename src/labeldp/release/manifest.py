"""What a directory of files says of itself: the layout of a release on disk, and the only parser of its release.json.

    release.json     format, guarantee, channel header, classes, the names of a table's other columns ("features"), the
                     number of stages, how many rows are answered where some are not, SHA-256 of every other file
                     and of itself
    labels.parquet   a row per example: the released label, and its channel row or candidate set where they differ; a row
                     that was not asked (`labeldp.release.persons`) has nulls in their place;
                     a table's release also holds its other columns, and the manifest names its "label_column", and the
                     "person_column" of ids where the labels of a person are protected together;
                     a table of several files has them under labels/, and the manifest lists its "label_files" in order
    channel.parquet  the channel's shared rows, if it has any
    prior.parquet    the rows of a released prior (a noisy histogram per cluster), if one was used

No raw label and no key is ever written. Checksums find damage and carelessness; they are not a signature.

>>> import tempfile
>>> import labeldp
>>> with tempfile.TemporaryDirectory() as folder:
...     release = labeldp.privatize([0, 1, 1], labeldp.RandomizedResponse(epsilon=1.0, n_classes=2))
...     release.save(Path(folder) / "out")
...     read_manifest(Path(folder) / "out").content["n_examples"]
3

`labeldp.release.saving` is the only writer of this layout, `labeldp.release.loading` the only reader of what is in the files.
`read_manifest` checks the type of every value once (`FIELDS`), and that the directory holds files and folders alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldp.errors import Described, ReleaseError, invalid
from labeldp.release.unfinished import is_partial
from labeldp.untrusted import read_json

FORMAT = "labeldp release"
VERSION = 1
MANIFEST = "release.json"
LABELS = "labels.parquet"
#: A table of several files has a folder of that many instead.
LABELS_FOLDER = "labels"
CHANNEL = "channel.parquet"
PRIOR = "prior.parquet"
#: Rows of a row group of a table's release: some 40 MB at 20 columns of 8 bytes, whatever the batches are.
GROUP_ROWS = 2**18


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
    "person_column": (_is_text, "text"),
    "features": (_are_texts, "a list of texts"),
    "label_notes": (_are_texts, "a list of texts"),
    "stages": (_is_count, "a count"),
    "answered": (_is_count, "a count"),
}
#: What a manifest says only where it applies; versions before the ledger's hashes have none.
WHERE_IT_APPLIES = (
    "ledger_hash",
    "label_files",
    "label_column",
    "person_column",
    "features",
    "label_notes",
    "stages",
    "answered",
)


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
