"""Bytes that others wrote, bounded before they are parsed: JSON, arrays of NumPy, archives of arrays, footers of Parquet.

>>> parse_json('{"epsilon": 1.5}')
{'epsilon': 1.5}
>>> parse_json('{"seeded": true, "seeded": false}')
Traceback (most recent call last):
    ...
ValueError: the key 'seeded' occurs twice

A release, a model, a checkpoint and a message of a peer are files and bytes that anyone may have written. The parsers of
Python and NumPy believe them: a list nested 990 deep ends in a RecursionError, a NumPy header of 128 bytes asks for
745 GiB, a kilobyte of deflate unpacks to a megabyte, and of two keys of the same name the last one wins. So each format has
one reader, here, and everything in labeldp that reads such a format calls it.

*JSON* (`parse_json`, `read_json`): UTF-8, at most `MOST_JSON` bytes, at most `MOST_DEPTH` brackets deep, each key once, every
number finite, every text encodable. Python objects take up to some 25 times the bytes of their JSON (`[]` is 3 bytes with
its comma, and 64 with its place in a list), so 32 MiB cost at most 800 MB.

*Arrays* (`check_npy`, `read_npy`): the size that the header declares is that of the bytes which follow it, exactly, before
anything is allocated. Arrays of objects, which would be pickles, are refused, and so are elements without bytes.

*Archives* (`check_archive`): each member once, none encrypted, and all declared sizes together at most the size of the file
(members that are stored) or `MOST_UNPACKED` (members that are compressed, which old files have); each array inside is
checked as above, and an archive inside once more, by their first bytes, whatever they are called.

*Parquet* (`read_footer`): what a file declares, before a page of it is read. Arrow's own way to it ends the process where a
footer contradicts itself.

*Seals* (`seal_archive`, `check_seal`): the SHA-256 of an archive in its own comment, the last bytes of the file. It covers
every byte before it. It finds damage. It is no signature: whoever edits a file on purpose can compute the digest anew.

Errors are ValueError with the reason alone: the caller knows which file it was and what its owner should do.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from labeldp.arrays import Array

#: Bytes of one JSON text. A manifest of a million classes with names of 20 letters has 24 MB.
MOST_JSON = 32 * 2**20
#: Brackets inside brackets. What labeldp writes has about ten; a guarantee composed of compositions, a few more each time.
MOST_DEPTH = 64
#: Bytes that the compressed members of one archive may unpack to, together. labeldp compresses none since version 3 of its
#: model files; before, sparse matrices were.
MOST_UNPACKED = 256 * 2**20

#: A text of JSON. The last quote may be missing, so that a match never fails late and is never tried again.
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str | bytes | bytearray, *, most_bytes: int = MOST_JSON, most_depth: int = MOST_DEPTH) -> Any:
    """Return the value of a JSON text; one that is too long, too deep or ambiguous is a ValueError.

    >>> parse_json("[" * 990 + "]" * 990)
    Traceback (most recent call last):
        ...
    ValueError: it is nested more than 64 deep
    >>> parse_json("[1e999]")
    Traceback (most recent call last):
        ...
    ValueError: 1e999 is no finite number
    """
    if len(text) > most_bytes:
        raise ValueError(f"it has {len(text):,} bytes, more than {most_bytes:,}")
    decoded = text if isinstance(text, str) else bytes(text).decode("utf-8")
    _check_depth(decoded, most_depth)
    value = json.loads(decoded, object_pairs_hook=_read_object, parse_constant=_refuse_number, parse_float=_read_float)
    if _SURROGATE.search(decoded):  # half a character: text that no file and no terminal takes
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def read_json(path: Any, *, most_bytes: int = MOST_JSON, most_depth: int = MOST_DEPTH) -> Any:
    """Return the value of a JSON file as `parse_json` does; never more than `most_bytes` of it are read.

    `path` is a `Path` or anything with its `open`: engines keep files behind URLs.
    """
    with path.open("rb") as handle:
        return parse_json(handle.read(most_bytes + 1), most_bytes=most_bytes, most_depth=most_depth)


def _check_depth(text: str, most: int) -> None:
    """Refuse brackets that are nested too deep, before a parser recurses into them."""
    if text.count("[") + text.count("{") <= most:  # so few cannot be nested deeper, and most texts end here
        return
    marks = np.frombuffer(_TEXT.sub("", text).encode("ascii", "replace"), np.uint8)
    steps = np.zeros(len(marks), np.int32)
    steps[(marks == ord("[")) | (marks == ord("{"))] = 1
    steps[(marks == ord("]")) | (marks == ord("}"))] = -1
    if np.cumsum(steps, out=steps).max(initial=0) > most:
        raise ValueError(f"it is nested more than {most} deep")


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; two readers may take different ones of two equal keys, so there must be one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:80]!r} occurs twice")
    return found


def _read_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text[:40]} is no finite number")


# ------------------------------------------------------------------------------------------------------------- arrays


def check_npy(handle: IO[bytes], size: int) -> None:
    """Refuse an `.npy` of `size` bytes whose header declares more or less than follows it, or objects."""
    version = np.lib.format.read_magic(handle)
    if version not in ((1, 0), (2, 0)):  # 3.0 is for names of fields beyond Latin 1: ours have none
        raise ValueError(f"an array has format {version[0]}.{version[1]}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(handle)
    except ValueError:
        raise
    except Exception as error:  # the header is Python source to NumPy: tokenize, ast and numpy.dtype all have their own
        raise ValueError(f"an array's header cannot be read: {type(error).__name__}") from error
    if dtype.hasobject:
        raise ValueError("an array holds objects")
    if not dtype.itemsize:  # 10^12 elements of no bytes are no bytes, and take for ever to walk over
        raise ValueError("an array has elements without bytes")
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or declared != size - handle.tell():
        raise ValueError(f"an array declares {declared:,} bytes and has {size - handle.tell():,}")


def read_npy(path: Path) -> Array:
    """Return the array of an `.npy` file whose header tells the truth about its size; a pipe or a device is none."""
    if path.exists() and not path.is_file():  # a pipe that nobody writes to is waited for, for ever
        raise ValueError("it is no file")
    with path.open("rb") as handle:
        check_npy(handle, os.fstat(handle.fileno()).st_size)
        handle.seek(0)
        array: Array = np.load(handle, allow_pickle=False)
        return array


# ----------------------------------------------------------------------------------------------------------- archives


#: The first bytes of an array, and of an archive with members and without.
_ARRAY = b"\x93NUMPY"
_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06")


def check_archive(data: bytes, *, nested: bool = False) -> None:
    """Refuse a zip archive whose members, or whose arrays, claim more than the archive can hold.

    Only the directory and the headers of arrays are read, so this costs no more memory than the file. `nested` is for the
    archives inside: there may be none inside those.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if len({entry.filename for entry in entries}) != len(entries):
            raise ValueError("an archive has two members of one name")
        if any(entry.flag_bits & 1 for entry in entries):
            raise ValueError("an archive is encrypted")
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise ValueError("an archive is compressed in an unknown way")
        stored = sum(entry.file_size for entry in entries if entry.compress_type == zipfile.ZIP_STORED)
        packed = sum(entry.file_size for entry in entries if entry.compress_type != zipfile.ZIP_STORED)
        if stored > len(data) or packed > MOST_UNPACKED:
            raise ValueError(f"an archive of {len(data):,} bytes claims to unpack to {stored + packed:,}")
        for entry in entries:
            # NumPy goes by the first bytes of a member, whatever it is called, and so must this.
            with archive.open(entry) as handle:
                first = handle.read(len(_ARRAY))
            if entry.filename.endswith(".npy") or first == _ARRAY:
                with archive.open(entry) as handle:
                    check_npy(handle, entry.file_size)
            elif entry.filename.endswith(".npz") or first.startswith(_ARCHIVES):
                if nested:
                    raise ValueError("an archive of arrays holds another")
                check_archive(archive.read(entry), nested=True)


_SEAL = b"labeldp sha256 "
_SEAL_LENGTH = len(_SEAL) + 64


def seal_archive(data: bytes) -> bytes:
    """Return a zip archive with the SHA-256 of everything before its comment as its comment.

    >>> box = io.BytesIO()
    >>> with zipfile.ZipFile(box, "w") as archive:
    ...     archive.writestr("a", "b")
    >>> sealed = seal_archive(box.getvalue())
    >>> check_seal(sealed), check_seal(box.getvalue())
    (True, False)
    """
    # The end of the directory is 22 bytes; its last two are the length of the comment, which is empty here.
    if data[-22:-18] != b"PK\x05\x06" or data[-2:] != b"\x00\x00":
        raise ValueError("it is no archive without a comment")
    body = data[:-2] + _SEAL_LENGTH.to_bytes(2, "little")
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode()


def check_seal(data: bytes) -> bool:
    """Whether an archive is sealed; a seal that does not fit is a ValueError.

    False says only that there is no seal: whoever knows that the file was written with one refuses it then.
    """
    body, comment = data[:-_SEAL_LENGTH], data[-_SEAL_LENGTH:]
    if not comment.startswith(_SEAL):
        return False
    if comment[len(_SEAL) :] != hashlib.sha256(body).hexdigest().encode():
        raise ValueError("it was changed after it was written: its checksum does not match")
    return True


def read_footer(path: Path, *, only: Callable[[str], bool] = lambda _: True) -> Any:
    """Return the metadata of a Parquet file, of which `row_group(i).column(j)` may then be asked for every column.

    Of a forged footer it may not: where one contradicts itself (a schema of required values, with counts of missing ones)
    `column(j)` throws a C++ exception that pyarrow does not catch, and the process ends. A reader of batches makes the same
    objects, and its errors are exceptions. So each row group is opened by one first, over a file that has the size of this
    one and no bytes: no page is read, since a page may unpack to 2 GiB before anyone has looked at what is declared of it.

    `only` is asked with the path of each column in the schema; the others are not tried and must not be asked for. A
    contradiction is a ValueError. Of 5 million labels in 5 row groups: 2 ms of the 85 that `load_release` computes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    columns = [name for name in paths if only(name)]
    try:
        with pq.ParquetFile(_HollowFile(path.stat().st_size), metadata=footer, buffer_size=1, pre_buffer=False) as file:
            for group in range(footer.num_row_groups if columns else 0):
                for _ in file.iter_batches(batch_size=1, row_groups=[group], columns=columns):
                    break
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"its footer contradicts itself ({error})") from error
    return footer


class _HollowFile(io.RawIOBase):
    """A file that has a size and no bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, _: Any) -> int:
        return 0
