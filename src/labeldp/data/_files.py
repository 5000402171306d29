"""Where the files of a data set are, and one clear error when they are not, or are not what they should be.

>>> find("mnist", ("train-images-idx3-ubyte.gz",), directory="no/such/folder")
Traceback (most recent call last):
...
labeldp.errors.LabelDPError: load: `directory` must hold mnist/train-images-idx3-ubyte.gz, got no such file. Looked in no/such/folder/mnist. ...

Design notes. Nothing is ever downloaded: a library about privacy does not call out on its own. No pickle is read.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.errors import Described, LabelDPError, invalid

VARIABLE = "LABELDP_DATA"

#: What a file that is cut short, of another kind or of another data set makes its reader raise.
DAMAGE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, KeyError, IndexError, UnicodeDecodeError)


def find(name: str, files: tuple[str, ...], *, directory: str | os.PathLike[str] | None) -> list[Path]:
    """Return the paths of `files` in ``directory/name``; each may also be there without its ``.gz``."""
    root = _root(name, files, directory)
    return [_existing(root, name, file) for file in files]


def _root(name: str, files: tuple[str, ...], directory: str | os.PathLike[str] | None) -> Path:
    named = directory if directory is not None else os.environ.get(VARIABLE)
    if named:
        return Path(named)
    fix = f"Set {VARIABLE} to the folder that has {name}/ with {', '.join(files)}; nothing is downloaded."
    raise invalid("load", "directory", f"name the folder of data sets to load {name!r}", got=None, fix=fix)


def _existing(root: Path, name: str, file: str) -> Path:
    for candidate in (file, file.removesuffix(".gz")):
        if (root / name / candidate).is_file():
            return root / name / candidate
    fix = f"Looked in {root / name}. Name the folder with directory= or {VARIABLE}; nothing is downloaded."
    raise invalid("load", "directory", f"hold {name}/{file}", got=Described("no such file"), fix=fix)


@contextmanager
def reading(path: Path, content: str) -> Iterator[None]:
    """Turn whatever a damaged or foreign file makes its reader raise into one error that says what was expected."""
    try:
        yield
    except LabelDPError:
        raise
    except DAMAGE as error:
        detail = Described(f"{type(error).__name__}: {error}")
        raise invalid(
            "load", path.name, f"be {content}", got=detail, fix="Get the file again; it is damaged."
        ) from error


def expect(path: Path, what: str, *, want: object, got: object) -> None:
    """Refuse a file that is readable but not the one it should be."""
    if want != got:
        fix = "This is another file than the one known by that name, or a part of it."
        raise invalid("load", path.name, f"have {what} {want}", got=got, fix=fix)


def read_bytes(path: Path) -> bytes:
    """The content, unpacked when the name ends in ``.gz``."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_idx(path: Path, *, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes: 0, 0, 8, the number of axes, each axis as a big-endian int32, then the bytes."""
    with reading(path, "an idx file of bytes"):
        content = read_bytes(path)
        expect(path, "the magic number", want=bytes([0, 0, 8, len(shape)]), got=content[:4])
        start = 4 + 4 * len(shape)
        found = tuple(int(n) for n in np.frombuffer(content[4:start], ">i4"))
        expect(path, "the shape", want=shape, got=found)
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_npz(path: Path, keys: tuple[str, ...]) -> list[npt.NDArray[Any]]:
    """Read the named arrays of an npz file; pickled content is refused by NumPy."""
    with reading(path, f"an npz file with {', '.join(keys)}"), np.load(path, allow_pickle=False) as arrays:
        return [arrays[key] for key in keys]
