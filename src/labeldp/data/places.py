"""Where tables and releases are: a path of this machine, or a URL that fsspec opens.

>>> place = place_of("memory://clinic/parts")
>>> place, place.name, place / "a.parquet"
(UrlPath('memory://clinic/parts'), 'parts', UrlPath('memory://clinic/parts/a.parquet'))
>>> place_of("people.parquet")
PosixPath('people.parquet')

A path stays a `Path`, and so does a file:// URL: the local disk keeps its atomic rename and its flush. Any other URL is
opened by fsspec, which comes with `labeldp[dask]`; credentials are its own business, from its configuration. A `UrlPath`
is its text: it travels to another process as such and opens its file system there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from labeldp.errors import missing_extra


@dataclass(frozen=True)
class UrlPath:
    """A file or folder behind a URL, with the few methods of `pathlib.Path` that tables and releases need."""

    url: str

    def __repr__(self) -> str:
        return f"UrlPath({self.url!r})"

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> UrlPath:
        return UrlPath(f"{self.url.rstrip('/')}/{name}")

    def __lt__(self, other: UrlPath) -> bool:
        return self.parts < other.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders and the file of the path."""
        return PurePosixPath(self.url.split("://", 1)[1]).parts

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1] if self.parts else ""

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> UrlPath:
        """The folder that holds it."""
        return UrlPath(self.url.rstrip("/").rsplit("/", 1)[0])

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self._system().exists(self._inner()))

    def is_symlink(self) -> bool:
        """Object stores have none."""
        return False

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return bool(self._system().isdir(self._inner()))

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self._system().isfile(self._inner()))

    def files(self) -> list[UrlPath]:
        """All files below a folder, in the order of their paths."""
        system, root = self._system(), self._inner().rstrip("/")
        below = [str(found)[len(root) :].lstrip("/") for found in system.find(root)]
        return sorted(self / name for name in below)

    def open(self, mode: str = "rb", encoding: str | None = None) -> Any:
        """Open the file; a new one ("xb") is as new as the caller has checked."""
        return self._system().open(
            self._inner(), mode.replace("x", "w"), **({"encoding": encoding} if encoding else {})
        )

    def read_bytes(self) -> bytes:
        """The whole file."""
        with self.open("rb") as handle:
            return bytes(handle.read())

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder, and those above it."""
        self._system().makedirs(self._inner(), exist_ok=exist_ok)

    def replace(self, target: UrlPath) -> None:
        """Move a file, over whatever has that name."""
        self._system().mv(self._inner(), target._inner())

    def remove(self) -> None:
        """Remove it with all below it; nothing there is no error."""
        if self.exists():
            self._system().rm(self._inner(), recursive=True)

    def _system(self) -> Any:
        """Return the file system of the URL."""
        return _import_fsspec().core.url_to_fs(self.url)[0]

    def _inner(self) -> str:
        """Return the path inside that file system."""
        return str(_import_fsspec().core.url_to_fs(self.url)[1])


Place = Path | UrlPath


def place_of(path: Any) -> Place:
    """Return a local path, or the place behind a URL."""
    if isinstance(path, (Path, UrlPath)):
        return path
    text = os.fspath(path)
    if "://" not in text:
        return Path(text)
    split = urlsplit(text)
    return Path(unquote(split.path)) if split.scheme in ("file", "local") else UrlPath(text)


def _import_fsspec() -> Any:
    """Return the package fsspec, or say which extra brings it."""
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra("fsspec", "dask", "A table or a release behind a URL") from error
    return fsspec
