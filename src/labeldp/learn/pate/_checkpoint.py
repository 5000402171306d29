"""Votes on disk between a crash and its resumption: as private as the labels, so in a folder that only the owner reads.

>>> import tempfile, pathlib, numpy as np
>>> home = tempfile.TemporaryDirectory()
>>> store = VoteStore.opened("demo", pathlib.Path(home.name) / "votes", identity="abc", split=7)
>>> store.save(0, np.array([1, 0]))
>>> VoteStore.opened("demo", store.folder, identity="abc", split=8).split, store.load(0).tolist(), store.load(1)
(7, [1, 0], None)
>>> store.discard()
>>> home.cleanup()

Design notes. What is kept: each teacher's votes without noise (less than the teacher itself would tell), the number
that divides the rows into parts, and a digest of data and settings, so that votes of other data are never counted. The
noise key is not kept: a resumed run draws fresh noise, and a ledger is charged when votes are aggregated, never for
training. The folder is made with permissions 0700, its files with 0600, a folder that others may read is refused, and
everything is deleted when `fit` has succeeded. Nothing here is encrypted: use a disk that may hold the labels. Files
are arrays without pickles, whole or absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from labeldp.errors import Described, PrivacyError, ReleaseError, invalid

MANIFEST = "manifest.json"
MARK = "PRIVATE.txt"
MARK_TEXT = "Votes without noise, as private as the labels they were learned from. Do not copy, share or back up.\n"
FORMAT = "labeldp pate votes 1"
#: Permission bits of anybody but the owner.
OTHERS = 0o077


@dataclass(frozen=True, kw_only=True)
class VoteStore:
    """A private folder of one run. `split`: the number that decides which row goes to which teacher."""

    folder: Path
    split: int

    @classmethod
    def opened(cls, owner: str, folder: str | os.PathLike[str], *, identity: str, split: int) -> VoteStore:
        """Make a new folder, or open that of an interrupted run on the same data, whose split then stands."""
        place = Path(folder)
        if not os.path.lexists(place):
            return cls._made(owner, place, identity, split)
        check_private(owner, place)
        manifest = read_manifest(owner, place)
        if manifest["identity"] != identity:
            fix = "Choose another folder, or delete this one."
            got = Described("one of other data, teachers or settings")
            raise invalid(owner, "checkpoint", "be a folder of this very run", got=got, fix=fix)
        return cls(folder=place, split=int(manifest["split"]))

    @classmethod
    def _made(cls, owner: str, place: Path, identity: str, split: int) -> VoteStore:
        if not place.parent.is_dir():
            raise invalid(owner, "checkpoint", "be in an existing folder", got=str(place), fix="Create it first.")
        place.mkdir(mode=0o700)
        write_private(place / MARK, MARK_TEXT.encode())
        text = json.dumps({"format": FORMAT, "identity": identity, "split": split})
        write_private(place / MANIFEST, text.encode())
        return cls(folder=place, split=split)

    def load(self, teacher: int) -> npt.NDArray[Any] | None:
        """Return a teacher's votes, or None if it has not voted yet."""
        path = self._path(teacher)
        if not path.exists():
            return None
        try:
            votes: npt.NDArray[Any] = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ReleaseError(f"PATE: {path.name} is not readable: {error}. Delete it and fit again.") from error
        return votes

    def save(self, teacher: int, votes: npt.NDArray[Any]) -> None:
        """Keep a teacher's votes."""
        import io

        buffer = io.BytesIO()
        np.save(buffer, votes, allow_pickle=False)
        write_private(self._path(teacher), buffer.getvalue())

    def discard(self) -> None:
        """Delete every file of the run and the folder, unless something else lies in it."""
        for path in [*self.folder.glob("votes-*.npy"), self.folder / MANIFEST, self.folder / MARK]:
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, teacher: int) -> Path:
        return self.folder / f"votes-{teacher:06d}.npy"


def check_private(owner: str, place: Path) -> None:
    """Refuse what is not a folder, is a link, or can be read by others."""
    if place.is_symlink() or not place.is_dir():
        raise invalid(owner, "checkpoint", "be a folder", got=str(place))
    mode = place.stat().st_mode & 0o777
    if os.name == "posix" and mode & OTHERS:
        fix = f"Others may read it: chmod 700 {place.name}, or choose a new folder."
        raise invalid(owner, "checkpoint", "be the owner's alone", got=oct(mode), fix=fix, kind=PrivacyError)


def read_manifest(owner: str, place: Path) -> dict[str, Any]:
    """Return the manifest of a folder that is ours."""
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        ours = (
            isinstance(manifest, dict) and manifest.get("format") == FORMAT and {"identity", "split"} <= set(manifest)
        )
    except (OSError, ValueError):
        ours, manifest = False, {}
    if not ours:
        fix = "Choose a folder that does not exist yet."
        raise invalid(owner, "checkpoint", "be new or a folder of votes", got=str(place), fix=fix)
    return dict(manifest)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only the owner reads, through a hidden one: it is whole or absent."""
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)


def identity_of(*values: Any) -> str:
    """Return a digest of arrays (dense or sparse) and of whatever else has a repr."""
    digest = hashlib.sha256()
    for value in values:
        if scipy.sparse.issparse(value):
            parts: list[Any] = [value.shape, value.data, value.indices, value.indptr]
        else:
            parts = [value]
        for part in parts:
            if isinstance(part, np.ndarray):
                digest.update(f"{part.dtype} {part.shape}:".encode())
                digest.update(np.ascontiguousarray(part).tobytes())
            else:
                digest.update(repr(part).encode() + b";")
    return digest.hexdigest()
