"""Damage and forgery, one function per format: what `fuzz.py` does to valid inputs.

Each function takes a valid input and a `random.Random`, and returns the changed input. Byte mutations know nothing of a format.
The others keep the format and change what it says, so that they reach the checks behind the parser. The functions named
`reseal_*` compute the digests of a format anew, as a forger would: the checks behind the digests are then reached too.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import random
import sqlite3
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: Marks where text that the JSON writer cannot make goes in.
DEEP = "@@deep-%d-%s@@"
LONG_NUMBER = "@@digits@@"
DEPTHS = (20, 300, 900, 990, 1200, 5000, 100_000)
ODD_TEXTS = (
    "",
    " ",
    "\0",
    "\ud800",
    "\x1b[2J",
    "é" * 5000,
    "x" * 100_000,
    "../../etc/passwd",
    "/dev/zero",
    "nan",
    "1e400",
)
ODD_NUMBERS = (0, -1, 1, 2, 2**31, 2**32 - 1, -(2**63), 2**63, 2**64, 10**400, 0.5, -0.0, 1e-320, 1e308, math.inf, math.nan)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- bytes


def mutate_bytes(data: bytes, rng: random.Random, *, other: bytes = b"") -> bytes:
    """Return bytes with flips, inserts, deletions, a cut, a repeat, an extreme number, or a part of another input."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        size = max(len(changed), 1)
        place, length = rng.randrange(size), rng.choice((1, 1, 2, 4, 8, 64, size // 4 + 1))
        action = rng.randrange(8)
        if action <= 2 and changed:
            changed[place] ^= 1 << rng.randrange(8)
        elif action == 3:
            changed[place:place] = rng.randbytes(length)
        elif action == 4:
            del changed[place : place + length]
        elif action == 5:
            changed[place : place + length] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * length
        elif action == 6:
            number = rng.choice((2**31 - 1, 2**31, 2**32 - 1, 0, 0x7F00_0000))
            changed[place : place + 4] = struct.pack("<I", number)
        else:
            changed[place:place] = changed[place : place + length]
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed) + 1) :]
    if other and rng.random() < 0.1:
        changed = changed[: rng.randrange(len(changed) + 1)] + other[rng.randrange(len(other)) :]
    return bytes(changed)


# -------------------------------------------------------------------------------------------------------------- JSON


def mutate_json(text: str, rng: random.Random, *, other: str = "") -> str:
    """Return JSON text in which some values have other types or sizes, keys are gone, new, or there twice."""
    value = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _mutate_value(value, rng, other)
    written = json.dumps(value, indent=rng.choice((None, None, 1)))
    if rng.random() < 0.15:
        written = _repeat_key(written, rng)
    return _write_deep(written)


def _odd_value(rng: random.Random, other: str) -> Any:
    choice = rng.randrange(11)
    if choice == 10:
        return LONG_NUMBER
    if choice <= 2:
        return rng.choice(ODD_NUMBERS)
    if choice == 3:
        return rng.choice(ODD_TEXTS)
    if choice == 4:
        return rng.choice((None, True, False, [], {}, [[]], [None], {"": None}))
    if choice == 5:
        return DEEP % (rng.choice(DEPTHS), rng.choice("ld"))
    if choice == 6:
        return [rng.choice(ODD_NUMBERS)] * rng.choice((1, 3, 1000))
    if choice == 7 and other:
        return rng.choice(list(_walk(json.loads(other))))[2]
    return rng.randrange(-5, 300)


def _walk(value: Any, holder: Any = None, key: Any = None) -> Any:
    """Yield (holder, key, value) of each value inside, the whole first."""
    yield holder, key, value
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from _walk(part, value, name)


def _mutate_value(value: Any, rng: random.Random, other: str) -> Any:
    places = list(_walk(value))
    holder, key, part = rng.choice(places)
    odd = _odd_value(rng, other)
    action = rng.randrange(6)
    if holder is None:
        return odd if rng.random() < 0.1 else value
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[rng.choice(ODD_TEXTS[:6])] = odd
    elif action == 1:
        holder.insert(key, odd)
    elif action == 2 and isinstance(part, str) and part:
        holder[key] = mutate_bytes(part.encode(), rng).decode("latin-1")
    elif action == 3 and isinstance(part, (int, float)):
        with contextlib.suppress(OverflowError):  # changed before, to a number beyond all floats
            holder[key] = part + rng.choice((1, -1, 0.5, 1e9, -2 * part))
    else:
        holder[key] = odd
    return value


def _repeat_key(text: str, rng: random.Random) -> str:
    """Put a second entry of some key before its own."""
    value = json.loads(text)
    keys = [json.dumps(key) for holder, key, _ in _walk(value) if isinstance(holder, dict)]
    if not keys:
        return text
    key = rng.choice(keys)
    return text.replace(f"{key}:", f"{key}: {json.dumps(rng.choice(ODD_NUMBERS[:12]))}, {key}:", 1)


def _write_deep(text: str) -> str:
    """Put in what Python's own writer of JSON refuses: deep nesting, and a number of 5,000 digits."""
    text = text.replace(f'"{LONG_NUMBER}"', "9" * 5000)
    for depth in DEPTHS:
        text = text.replace(f'"{DEEP % (depth, "l")}"', "[" * depth + "]" * depth)
        text = text.replace(f'"{DEEP % (depth, "d")}"', '{"a":' * depth + "0" + "}" * depth)
    return text


def digest_json(value: dict[str, Any], *, key: str = "sha256") -> str:
    """Return the SHA-256 of canonical JSON without its own digest."""
    rest = {name: part for name, part in value.items() if name != key}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def reseal_json(text: str) -> str:
    """Return the text with its digest computed anew, where it still is an object that can be read."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            return text
        found = digest_json(value)
    except (ValueError, RecursionError):
        return text
    old = value.get("sha256")
    if isinstance(old, str) and old and f'"{old}"' in text:
        return text.replace(f'"{old}"', f'"{found}"')  # keeps keys that are there twice
    value["sha256"] = found
    return json.dumps(value)


def reseal_release(folder: Path) -> None:
    """Write the checksums of the files of a release and of its manifest anew."""
    manifest = folder / "release.json"
    try:
        text = manifest.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return
    try:
        files = json.loads(text)["files"]
        for name, facts in files.items():
            path = folder / name
            if path.is_file() and isinstance(facts, dict):
                data = path.read_bytes()
                text = text.replace(str(facts["sha256"]), hashlib.sha256(data).hexdigest())
                text = text.replace(f'"bytes": {facts["bytes"]}', f'"bytes": {len(data)}')
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        pass  # the manifest names no files that could be sealed
    manifest.write_text(reseal_json(text), encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------- zip


def read_zip(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(entry.filename, archive.read(entry)) for entry in archive.infolist()]


def write_zip(members: list[tuple[str, bytes]], *, method: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", compression=method) as archive:
        warnings.simplefilter("ignore")  # a name that is there twice is what we want
        for name, data in members:
            archive.writestr(name, data)
    return made.getvalue()


def mutate_zip(data: bytes, rng: random.Random, *, other: bytes = b"", schema: str = "schema.json") -> bytes:
    """Return an archive whose members are renamed, gone, twice there, exchanged, huge, or changed inside."""
    members = read_zip(data)
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(members)) if members else 0
        if not members:
            break
        name, content = members[place]
        action = rng.randrange(12)
        if action == 0:
            members[place] = (rng.choice(("_", "../x", "/x", "a" * 5000, name.upper(), "x\ny")), content)
        elif action == 1:
            del members[place]
        elif action == 2:
            members.append((name, mutate_bytes(content, rng)))
        elif action == 3:
            swap = rng.randrange(len(members))
            members[place], members[swap] = (name, members[swap][1]), (members[swap][0], content)
        elif action == 4 and other:
            members[place] = (name, rng.choice(read_zip(other) or members)[1])
        elif action == 5 and rng.random() < 0.05:
            return write_zip([*members[:place], (name, b"\0" * 200_000_000)], method=zipfile.ZIP_DEFLATED)
        elif action == 6:
            return _forge_sizes(write_zip(members), rng)
        elif name.endswith(".npy"):
            members[place] = (name, mutate_npy(content, rng))
        elif name == schema and action < 11:
            theirs = dict(read_zip(other)).get(name, b"").decode() if other else ""
            with contextlib.suppress(ValueError, RecursionError):  # changed before
                content = mutate_json(content.decode(), rng, other=theirs).encode("utf-8", "surrogatepass")
            members[place] = (name, content)
        else:
            members[place] = (name, mutate_bytes(content, rng))
    return write_zip(members, method=rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def reseal_archive(data: bytes) -> bytes:
    """Return an archive with a comment that is the SHA-256 of all before it, where it still has an end that can be found."""
    end = data.rfind(b"PK\5\6")
    if end < 0 or len(data) < end + 22:
        return data
    seal = b"labeldp sha256 "
    body = data[: end + 20] + (len(seal) + 64).to_bytes(2, "little")
    return body + seal + hashlib.sha256(body).hexdigest().encode()


def _forge_sizes(data: bytes, rng: random.Random) -> bytes:
    """Put another number into the sizes, the offset, the method or the flags of an entry of the central directory."""
    changed, places, start = bytearray(data), [], data.find(b"PK\1\2")
    while start >= 0:
        places.append(start)
        start = data.find(b"PK\1\2", start + 4)
    if not places:
        return data
    offset, width = rng.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (42, 4)))
    number = rng.choice((0, 1, 8, 12, 14, 99, 2**16 - 1, 2**31, 2**32 - 1)) % 256**width
    place = rng.choice(places) + offset
    changed[place : place + width] = number.to_bytes(width, "little")
    return bytes(changed)


# --------------------------------------------------------------------------------------------------------------- npy


def mutate_npy(data: bytes, rng: random.Random) -> bytes:
    """Return an array file with a forged header, other numbers, another type, or a part of its data."""
    action = rng.randrange(8)
    if action <= 1:
        return _forge_npy_header(data, rng)
    if action == 2:
        return mutate_bytes(data, rng)
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:  # noqa: BLE001 - changed before: NumPy has no one error for it
        return mutate_bytes(data, rng)
    if not array.dtype.itemsize:  # changed before, to as many elements as it says: none has a byte
        return mutate_bytes(data, rng)
    if action <= 5 and array.size:
        return _write_npy(_change_elements(array, rng))
    if action == 6 and array.ndim:
        return _write_npy(np.resize(array, rng.choice(((0,), (1,), (array.size,), (array.size + 1,), (1, 1, 1)))))
    with contextlib.suppress(TypeError, ValueError, OverflowError), np.errstate(all="ignore"):
        return _write_npy(array.astype(rng.choice(("f4", "i8", "u1", "?", "c16", "U3", "M8[s]"))))
    return mutate_bytes(data, rng)


def _write_npy(array: Any) -> bytes:
    made = io.BytesIO()
    np.save(made, array, allow_pickle=False)
    return made.getvalue()


def _change_elements(array: Any, rng: random.Random) -> Any:
    whole = array.copy().reshape(-1)
    changed = (
        whole[rng.choice(whole.dtype.names)] if whole.dtype.names else whole
    )  # a view: nodes of a tree are records
    if changed.dtype.kind in "iuf?":
        for _ in range(rng.choice((1, 1, 5))):
            changed[rng.randrange(changed.size)] = _odd_of(changed.dtype, rng, largest=changed.size)
    return whole.reshape(array.shape)


def _odd_of(dtype: Any, rng: random.Random, *, largest: int) -> Any:
    if dtype.kind == "f":
        return np.array(rng.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 1e30, 0.5, 7.0))).astype(dtype)
    if dtype.kind == "?":
        return rng.random() < 0.5
    facts = np.iinfo(dtype)
    choices = (facts.min, facts.max, 0, 1, largest, largest - 1, largest + 1, -1, -2, rng.randrange(largest + 1))
    return np.array(max(facts.min, min(facts.max, rng.choice(choices)))).astype(dtype)


HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (30000, 30000), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (-1,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (2**70,), }",
    "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': [('a', '<f8'), ('a', '<f8')], 'fortran_order': False, 'shape': (1,), }",
    "{'descr': '<f8', 'fortran_order': 3, 'shape': 'x', }",
    "(" * 300 + ")" * 300,
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)",
    "\0",
    "",
)


def _forge_npy_header(data: bytes, rng: random.Random) -> bytes:
    header = rng.choice(HEADERS).encode()
    length = int.from_bytes(data[8:10], "little") if len(data) > 10 else 0
    major = rng.choice((1, 1, 1, 2, 3, 9))
    width = 2 if major == 1 else 4
    declared = len(header) if rng.random() < 0.9 else rng.choice((0, 2 ** (8 * width) - 1))
    return b"\x93NUMPY" + bytes([major, 0]) + declared.to_bytes(width, "little") + header + data[10 + length :]


# ----------------------------------------------------------------------------------------------------------- Parquet


def mutate_parquet(data: bytes, rng: random.Random, *, other: bytes = b"") -> bytes:
    """Return a Parquet file with a changed footer, another count of rows, or other columns."""
    action = rng.randrange(6)
    if action <= 1:
        return _mutate_footer(data, rng)
    if action == 2:
        return _forge_row_count(data, rng)
    if action == 3:
        return mutate_bytes(data, rng, other=other)
    try:
        return write_parquet(_mutate_table(pq.read_table(io.BytesIO(data)), rng))
    except (pa.ArrowException, ValueError, OSError, TypeError, OverflowError):
        return _mutate_footer(data, rng)


def write_parquet(table: Any) -> bytes:
    made = io.BytesIO()
    pq.write_table(table, made, compression="zstd")
    return made.getvalue()


def _split_footer(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], data[-8 - length : -8]


def _join_footer(body: bytes, footer: bytes) -> bytes:
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _mutate_footer(data: bytes, rng: random.Random) -> bytes:
    body, footer = _split_footer(data)
    return _join_footer(body, mutate_bytes(footer, rng))


def _varint(number: int) -> bytes:
    """Return a signed number as Thrift's compact protocol has it: zigzag, seven bits a byte."""
    left, made = number << 1, bytearray()
    while left >= 128:
        made.append(left & 127 | 128)
        left >>= 7
    return bytes([*made, left])


def _forge_row_count(data: bytes, rng: random.Random) -> bytes:
    """Let the footer claim another number of rows, in one of the places where it stands, or in all."""
    rows = pq.read_metadata(io.BytesIO(data)).num_rows
    body, footer = _split_footer(data)
    new = _varint(rng.choice((0, rows + 1, 2 * rows, 10**6, 2 * 10**8, 2**40, 2**62)))
    return _join_footer(body, footer.replace(_varint(rows), new, rng.choice((1, 2, -1))))


def _mutate_table(table: Any, rng: random.Random) -> Any:
    """Return a table with a column of another type, name or content, or with other rows."""
    if not table.num_columns:
        return table
    place = rng.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    rows = table.num_rows
    action = rng.randrange(9)
    if action == 0:
        return table.drop_columns([name])
    if action == 1:
        return table.rename_columns(
            [rng.choice(("", "x", "label", "\0")) if n == name else n for n in table.column_names]
        )
    if action == 2:
        return table.slice(0, rng.choice((0, 1, rows // 2)))
    if action == 3:
        return pa.concat_tables([table] * rng.choice((2, 3)))
    if action == 4:
        return table.append_column(name, column)
    kinds = (pa.int8(), pa.int64(), pa.uint64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.timestamp("s"))
    kind = rng.choice((*kinds, pa.null(), pa.list_(pa.int64()), pa.dictionary(pa.int8(), pa.string())))
    made = {
        5: lambda: pa.nulls(rows, column.type),
        6: lambda: pa.nulls(rows, kind),
        7: lambda: column.cast(kind),
        8: lambda: pa.chunked_array([_odd_column(column.type, rows, rng)]),
    }[action]()
    return table.set_column(place, name, made)


def _odd_column(kind: Any, rows: int, rng: random.Random) -> Any:
    if pa.types.is_floating(kind):
        return pa.array([rng.choice((math.nan, math.inf, -1.0, 2.0, 1e308, 0.0)) for _ in range(rows)], kind)
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - 1) - 1
        return pa.array([rng.choice((0, 1, 5, top, top - 1)) for _ in range(rows)], kind)
    if pa.types.is_string(kind):
        return pa.array([rng.choice(("", "x", "\0", "y" * 1000)) for _ in range(rows)], kind)
    return pa.nulls(rows, kind)


# ------------------------------------------------------------------------------------------------------------ SQLite

ODD_CELLS = ("NULL", "x'ff00'", "CAST(x'ff' AS TEXT)", "1e400", "-1", "''", "'x'", "9223372036854775807", "zeroblob(3000000)", "'[]'", "'{}'", "char(0)")  # fmt: skip


def mutate_pages(data: bytes, rng: random.Random, *, other: bytes = b"") -> bytes:
    """Return a database with pages exchanged, repeated, emptied, cut off, or a changed header."""
    size = int.from_bytes(data[16:18], "big") or 4096
    size = size if size > 1 else 65536
    pages = [data[start : start + size] for start in range(0, len(data), size)]
    place, action = rng.randrange(len(pages)), rng.randrange(6)
    if action == 0:
        swap = rng.randrange(len(pages))
        pages[place], pages[swap] = pages[swap], pages[place]
    elif action == 1:
        pages.insert(place, pages[place])
    elif action == 2:
        pages[place] = b"\0" * size
    elif action == 3 and len(pages) > 1:
        del pages[max(place, 1) :]
    elif action == 4 and other:
        pages[place] = other[place * size : (place + 1) * size] or pages[place]
    else:
        pages[0] = mutate_bytes(pages[0][:100], rng)[:100].ljust(100, b"\0") + pages[0][100:]
    return b"".join(pages)


def mutate_cells(path: Path, rng: random.Random) -> None:
    """Change cells of a database through SQL: values of other types and sizes, rows gone, the counter changed."""
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection,
        contextlib.suppress(sqlite3.Error),
    ):
        guards = list(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        connection.execute("PRAGMA ignore_check_constraints = 1")
        for name, _ in guards:
            connection.execute(f'DROP TRIGGER "{name}"')
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(rng.choice((1, 1, 3))):
            table = rng.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            ids = [row[0] for row in connection.execute(f'SELECT rowid FROM "{table}"')] or [1]
            row, column, action = rng.choice(ids), rng.choice(columns), rng.randrange(8)
            with contextlib.suppress(sqlite3.Error):
                if action == 0:
                    connection.execute(f'DELETE FROM "{table}" WHERE rowid = {row}')
                elif action == 1:
                    connection.execute(f'UPDATE "{table}" SET rowid = rowid + 100 WHERE rowid = {row}')
                elif action == 2:
                    connection.execute(f'UPDATE "{table}" SET "{column}" = "{column}" || \'x\' WHERE rowid = {row}')
                else:
                    connection.execute(f'UPDATE "{table}" SET "{column}" = {rng.choice(ODD_CELLS)} WHERE rowid = {row}')
        for _, sql in guards:
            connection.execute(sql)
