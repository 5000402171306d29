"""Where a release is made before anyone sees it: a hidden folder beside its target, which can be taken up again.

    .out.partial-<job>/
        job.json      what the job is, and its ledger entry
        key.json      the key, sealed with a passphrase, if one was given
        work/         files being written
        done/         a note for each finished piece: its checksum, its rows
        release/      finished files, in their places; it becomes `out`

Design notes. A piece is written under a name of its own in work/, flushed, and moved to its place: two workers with the same
piece write the same bytes and cannot meet. The release appears by one rename of release/; a worker that was given up for
dead has then no place to move its file to. Behind a URL there is no rename of folders: files are moved one by one and
release.json last, without which no reader takes a folder for a release.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeldp.data.tables._url import Place, UrlPath
from labeldp.engines._spans import Span
from labeldp.errors import invalid
from labeldp.release._writer import MANIFEST, file_facts, flush, flush_directory

OWNER = "privatize_table"
JOB, KEY = "job.json", "key.json"


@dataclass(frozen=True, kw_only=True)
class Written:
    """A finished piece: its number, its file in the release with checksum and size, its rows and expected true labels."""

    number: int
    name: str
    facts: dict[str, Any]
    rows: int
    accuracy: float


@dataclass(frozen=True)
class Staging:
    """The hidden folder of one job."""

    place: Place

    @classmethod
    def beside(cls, target: Place, *, job: str) -> Staging:
        """Return the staging area of a new job, not made yet."""
        return cls(target.parent / f".{target.name}.partial-{job}")

    @property
    def job(self) -> str:
        """The job's random name."""
        return self.place.name.rpartition("-")[2]

    @property
    def work(self) -> Place:
        """Where files are written."""
        return self.place / "work"

    @property
    def release(self) -> Place:
        """What will be the release."""
        return self.place / "release"

    def make(self, names: list[str]) -> None:
        """Make the folders, those of the files in the release too."""
        folders = {self.work, self.place / "done", self.release, *((self.release / name).parent for name in names)}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)

    def draft(self) -> str:
        """Return a new name in work/."""
        return f"{secrets.token_hex(8)}.parquet"

    def keep(self, span: Span, draft: str, *, facts: dict[str, Any], rows: int, accuracy: float) -> Written:
        """Move a finished file to its place, and note that it is there."""
        _move(self.work / draft, self.release / span.name)
        note: dict[str, Any] = {"name": span.name, "facts": facts, "rows": rows, "accuracy": accuracy}
        self.put(f"done/{span.number}.json", note)
        return Written(number=span.number, **note)

    def kept(self, span: Span, *, rows: int) -> Written | None:
        """Return what an earlier run finished of a span, if it is still whole."""
        note = self.get(f"done/{span.number}.json")
        if note is None or note["name"] != span.name or note["rows"] != rows:
            return None
        path = self.release / span.name
        if not path.is_file() or file_facts(path) != note["facts"]:
            return None
        return Written(number=span.number, **note)

    def put(self, name: str, value: dict[str, Any]) -> None:
        """Write a small JSON file, at once or not at all."""
        draft = self.work / f"{secrets.token_hex(8)}.json"
        with draft.open("w", encoding="utf-8") as handle:
            json.dump(value, handle)
            flush(handle)
        _move(draft, self.place / name)

    def get(self, name: str) -> Any:
        """Read a small JSON file; None if it is not there."""
        path = self.place / name
        return json.loads(path.read_bytes()) if path.is_file() else None

    def publish(self, target: Place) -> None:
        """Give the release its name: the one step that makes it visible."""
        if isinstance(self.release, Path) and isinstance(target, Path):
            for folder in {path.parent for path in self.release.rglob("*")}:
                flush_directory(folder)
            self.release.rename(target)
            flush_directory(target.parent)
            return
        assert isinstance(self.release, UrlPath)  # staging lies beside its target
        files = sorted(self.release.files(), key=lambda path: path.name == MANIFEST and path.parent == self.release)
        for path in files:
            place = target
            for name in path.parts[len(self.release.parts) :]:
                place = place / name
            _move(path, place)

    def remove(self) -> None:
        """Throw everything away that is not visible."""
        if isinstance(self.place, UrlPath):
            self.place.remove()
        else:
            shutil.rmtree(self.place, ignore_errors=True)


def staging_at(directory: Place) -> Staging:
    """Return the staging area of an unfinished job."""
    staging = Staging(directory)
    if ".partial-" not in directory.name or staging.get(JOB) is None:
        fix = "It is called .NAME.partial-..., beside the release's NAME; the error of the failed run names it."
        raise invalid(OWNER, "resume", "be the folder of an unfinished job", got=str(directory), fix=fix)
    return staging


def _move(path: Any, target: Any) -> None:
    if isinstance(target, UrlPath):
        target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
