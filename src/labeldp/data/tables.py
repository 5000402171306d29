"""Tables of an owner, larger than memory: CSV and Parquet in, in batches and in order; Parquet out, whole or not at all.

>>> import pyarrow as pa, tempfile, pathlib
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> batch = pa.RecordBatch.from_pydict({"row": [1, 2, 3, 4], "ill": ["no", "yes", "no", "yes"]})
>>> write_table([batch], batch.schema, path)
4
>>> source = open_table(path)
>>> source.rows, source.names, column(source, "ill").to_pylist()
(4, ('row', 'ill'), ['no', 'yes', 'no', 'yes'])
>>> [part.num_rows for part in source.batches(batch_rows=3)]
[3, 1]
>>> folder.cleanup()

A path may be a URL:

>>> place = place_of("memory://clinic/parts")
>>> place, place.name, place / "a.parquet"
(UrlPath('memory://clinic/parts'), 'parts', UrlPath('memory://clinic/parts/a.parquet'))
>>> place_of("people.parquet")
PosixPath('people.parquet')

Design notes. *Reading.* Memory is bounded by a batch, never by the table. The order of rows is a promise: the noise of a
row is a function of its position. That is why batches come from the plain streaming readers, one file after the other,
and not from a scanner that may reorder. The types of a CSV are guessed from its first block; `types` overrules the guess.
Text that spells a missing value (empty, NA, NaN, null and their kin) is missing in every column, so that a missing label
is never mistaken for a class.

*Writing.* Rows go to a hidden file beside the target; it is flushed to the disk and then given its name by a hard link,
which fails if the name is taken: two writers cannot overwrite each other, which a rename would allow. A kill leaves at
most the hidden file. Where a file system has no hard links, a check and a rename take their place.

*URLs.* A path stays a `Path`, and so does a file:// URL: the local disk keeps its atomic rename and its flush. Any other
URL is opened by fsspec, which comes with `labeldp[dask]`; credentials are its own business, from its configuration. A
`UrlPath` is its text: it travels to another process as such and opens its file system there.

What these functions complain about they tell the owner of the labels, on her side of the door; even so a message names
at most one value of a column.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labeldp.errors import Described, LabelDPError, invalid, missing_extra, nearest
from labeldp.validate import check_integer

#: The ends of file names that are known.
PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz")
#: A block of CSV, which is also the text from which its types are guessed. Arrow reads some 32 blocks ahead: a peak of
#: 40 MB at this size, 150 MB at four times it, and no faster.
CSV_BLOCK_BYTES = 2**20
#: Rows of a batch of Parquet, and bytes held of each of its columns while it is read.
BATCH_ROWS = 2**16
PARQUET_BUFFER_BYTES = 2**20
#: The device is full, a quota is used up, or the file may not grow further: the user's fix is the same.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table on disk: its place, its Arrow schema, its number of rows and the files that it is made of.

    `rows` is None where counting would mean reading it all (CSV). `groups` (first, last) restricts each part to some of
    its row groups: a piece of a table is a table. Make one with `open_table`.
    """

    path: Place
    schema: Any = field(repr=False)
    rows: int | None
    parts: tuple[Place, ...] = field(repr=False)
    groups: tuple[int, int] | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""
        return tuple(self.schema.names)

    def require(self, *columns: str) -> None:
        """Refuse columns that the table does not have, with the nearest names that it has."""
        for name in columns:
            if name not in self.schema.names:
                fix = nearest(name, self.schema.names)
                raise invalid(self.path.name, "column", "be a column of the table", got=name, fix=fix)

    def batches(self, *, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield the rows as `pyarrow.RecordBatch`es, in their order, none longer than `batch_rows`.

        `columns` names those to read, in the order in which they are wanted; all if left out. Memory is bounded by a
        batch. Damage in the file is an error at the batch that meets it.
        """
        chosen = list(self.schema.names if columns is None else columns)
        self.require(*chosen)
        size = check_integer(self.path.name, "batch_rows", batch_rows, least=1)
        for part in self.parts:
            yield from _read(part, chosen, self.schema, size, self.groups)


def open_table(path: str | os.PathLike[str], *, types: Mapping[str, str] | None = None) -> TableSource:
    """Return the table in a CSV or Parquet file, or in a folder of Parquet files taken in the order of their paths.

    Parameters
    ----------
    path : path or URL
        A file, or a folder. Folders in the folder count too, as in ``year=2024/part-0.parquet``; names that begin with a
        dot or an underscore do not. All parts must have one schema. A URL is opened by fsspec.
    types : mapping of str to str, optional
        Column types for CSV, as Arrow spells them (``{"label": "string"}``); others are guessed from the first block.

    Only the start of a CSV and the footer of a Parquet are read here, so damage further in is reported by the batch that
    meets it. A file that does not exist is answered with the nearest name in its folder.

    >>> open_table("people.parqet")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: open_table: `path` must be an existing file, got 'people.parqet'. Looked in ...
    """
    place = place_of(path)
    parts = _find_parts(place)
    heads = [_read_head(part, dict(types or {})) for part in parts]
    schema = heads[0][0]
    for part, (other, _) in zip(parts, heads, strict=True):
        if not other.equals(schema):
            got = Described(f"another schema in {below(part, place)}")
            raise invalid("open_table", place.name, f"have one schema, that of {below(parts[0], place)}", got=got)
    counts = [count for _, count in heads if count is not None]
    rows = sum(counts) if len(counts) == len(parts) else None
    _check_schema(place, schema, rows)
    return TableSource(path=place, schema=schema, rows=rows, parts=parts)


def column(path: str | os.PathLike[str] | TableSource, name: str) -> Any:
    """Return one column of a table, or of the table at a path, as a `pyarrow.ChunkedArray`; the others are not read."""
    source = path if isinstance(path, TableSource) else open_table(path)
    source.require(name)
    chunks = [batch.column(0) for batch in source.batches(columns=[name])]
    return pa.chunked_array(chunks, type=source.schema.field(name).type)


def write_table(
    batches: Iterable[Any], schema: Any, path: str | os.PathLike[str], *, compression: str = "snappy"
) -> int:
    """Write record batches (or tables) of one schema to a new Parquet file, and return the number of rows.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch or pyarrow.Table
        The rows; each batch must have the schema that is given.
    schema : pyarrow.Schema
        Of the file. It is written even where there are no rows.
    path : path
        A new file in an existing folder.
    compression : str
        As Parquet has it.

    The target appears complete and on the disk, or not at all: an existing target is refused, and after any error,
    one of `batches` included, nothing is left behind.

    >>> write_table([], pa.schema([("a", pa.int64())]), "no/such/folder/out.parquet")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: write_table: `path` must be in an existing folder, got 'out.parquet'. There is no folder no/such/folder.
    """
    target = Path(path)
    _check_target(target)
    with _explain_no_room(target), _hidden_file(target) as (hidden, stream):
        rows = _write_rows(batches, schema, stream, compression)
        stream.flush()
        os.fsync(stream.fileno())
        _give_name(hidden, target)
    return rows


def row_groups(part: Place) -> tuple[int, ...] | None:
    """Return the rows of each row group of a Parquet file; None for a CSV, which has none."""
    if not _is_parquet(part):
        return None
    with _explain_damage(part), _open_part(part) as handle, pq.ParquetFile(handle) as file:
        found = file.metadata
        return tuple(found.row_group(number).num_rows for number in range(found.num_row_groups))


def below(part: Place, root: Place) -> str:
    """Return the path of a part inside its table's folder; the name of a table that is one file."""
    return "/".join(part.parts[len(root.parts) :]) or part.name


def _find_parts(place: Place) -> tuple[Place, ...]:
    """Return the files of a table: itself, or the Parquet files below a folder in the order of their paths."""
    if place.is_file():
        if not place.name.lower().endswith(PARQUET + CSV):
            fix = "Known are " + ", ".join(PARQUET + CSV) + "."
            raise invalid("open_table", "path", "end in the name of a known format", got=place.name, fix=fix)
        return (place,)
    if place.is_dir():
        parts = tuple(
            part for part in _list_files(place) if part.suffix in PARQUET and not _is_hidden(below(part, place))
        )
        if not parts:
            raise invalid(
                "open_table", "path", "be a folder with Parquet files", got=place.name, fix=f"Looked in {place}."
            )
        return parts
    fix = _suggest_file(place) if isinstance(place, Path) else f"Looked for {place}."
    raise invalid("open_table", "path", "be an existing file", got=place.name, fix=fix)


def _list_files(place: Place) -> list[Any]:
    """Return all files below a folder, sorted."""
    return place.files() if isinstance(place, UrlPath) else sorted(path for path in place.rglob("*") if path.is_file())


def _is_hidden(inside: str) -> bool:
    """Whether a path below the folder has a part that writers of tables use for their own files."""
    return any(name.startswith((".", "_")) for name in inside.split("/"))


def _suggest_file(place: Path) -> str:
    """Return where was looked, and the table there with the nearest name."""
    if not place.parent.is_dir():
        return f"Looked in {place.parent}, which does not exist either."
    around = [path.name for path in place.parent.iterdir() if path.is_file()]
    tables = [name for name in around if name.lower().endswith(PARQUET + CSV)]
    hint = nearest(place.name, tables) if tables else "There is no table in that folder."
    return f"Looked in {place.parent}. {hint}"


def _read_head(part: Place, types: dict[str, str]) -> tuple[Any, int | None]:
    """The schema of a file, and its number of rows where the file says it."""
    with _explain_damage(part):
        if _is_parquet(part):
            with _open_part(part) as handle, pq.ParquetFile(handle) as file:
                schema = file.schema_arrow
                _check_counts(file.metadata)
                _ = schema.names  # names that are not UTF-8 are damage too, and Arrow decodes them when it is asked
                return schema, file.metadata.num_rows
        with _open_csv(part, None, {name: _parse_type(name, spelt) for name, spelt in types.items()}) as reader:
            schema = reader.schema
            _ = schema.names  # as above
            has_rows = any(batch.num_rows for batch in reader)
    absent = [name for name in types if name not in schema.names]
    if absent:
        raise invalid("open_table", "types", "name columns", got=absent[0], fix=nearest(absent[0], schema.names))
    return schema, None if has_rows else 0


def _check_counts(footer: Any) -> None:
    """Refuse a Parquet footer whose counts of rows contradict each other: Arrow believes one of them, and may read for ever."""
    # Not the counts of columns: to ask Arrow for a column of a damaged footer can end the process.
    if sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups)) != footer.num_rows:
        raise ValueError("counts of rows that differ")


def _parse_type(name: str, spelt: str) -> Any:
    """Return the Arrow type of this spelling."""
    try:
        return pa.type_for_alias(spelt)
    except ValueError as error:
        fix = "Examples: string, int64, double, bool."
        raise invalid("open_table", "types", f"spell Arrow's name of a type for {name}", got=spelt, fix=fix) from error


def _check_schema(place: Place, schema: Any, rows: int | None) -> None:
    """Refuse a table with two columns of one name, and one without rows or columns."""
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        got = Described(f"{repeated[0]!r} more than once")
        raise invalid("open_table", place.name, "have columns of different names", got=got, fix="Rename one of them.")
    if rows == 0 or not schema.names:
        raise invalid("open_table", place.name, "have rows", got=Described("an empty table"))


def _read(part: Place, columns: list[str], schema: Any, size: int, groups: tuple[int, int] | None) -> Iterator[Any]:
    """Yield the batches of one file, of some of its row groups where `groups` says so."""
    with _explain_damage(part):
        if _is_parquet(part):
            # A row group may be the whole file. Without a buffer size each column of it is fetched whole: 936 MB for a
            # group of 10 M rows x 10 columns, against 138 MB and 0.1 s more with one.
            options = {"pre_buffer": False, "buffer_size": PARQUET_BUFFER_BYTES}
            with _open_part(part) as handle, pq.ParquetFile(handle, **options) as file:
                if groups is not None and groups[1] > file.num_row_groups:
                    raise LabelDPError(f"open_table: {part} changed while it was read: it has fewer row groups now.")
                chosen = list(range(*groups) if groups is not None else range(file.num_row_groups))
                declared = sum(file.metadata.row_group(number).num_rows for number in chosen)
                for batch in file.iter_batches(batch_size=size, columns=columns, row_groups=chosen):
                    declared -= batch.num_rows
                    yield batch.select(columns)
                if declared:  # the footer's count is a claim, and passes over the table are planned by it
                    raise ValueError("counts of rows that differ")
            return
        types = {name: schema.field(name).type for name in columns}
        with _open_csv(part, columns, types) as reader:
            for batch in reader:
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


@contextmanager
def _open_part(part: Place) -> Iterator[Any]:
    """Yield what Arrow opens: a local path as it is, anything else as a file that fsspec opened."""
    if isinstance(part, Path):
        yield part
        return
    with part.open("rb") as handle:
        yield handle


def _open_csv(part: Place, columns: list[str] | None, types: dict[str, Any]) -> Any:
    """Return a streaming reader of a CSV; without `columns` it reads them all."""
    return pa_csv.open_csv(
        part if isinstance(part, Path) else part.open("rb"),
        read_options=pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(include_columns=columns, column_types=types, strings_can_be_null=True),
    )


def _is_parquet(part: Place) -> bool:
    """Whether the name of a file says that it is Parquet."""
    return part.name.lower().endswith(PARQUET)


@contextmanager
def _explain_damage(part: Place) -> Iterator[None]:
    """Turn what Arrow raises on a file that is cut short, damaged or of another kind into our one shape.

    Arrow quotes the value, or the whole row, that it could not read: it may be a label. Only where it is, is said.
    """
    try:
        yield
    except LabelDPError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = "Parquet" if _is_parquet(part) else "CSV"
        fix = "Write it again; it is damaged, cut short or of another format."
        if "conversion error" in str(error):
            fix = "Its type was guessed from the first rows; name it: open_table(path, types={column: 'string'})."
        detail = Described(_locate_damage(error))
        raise invalid("open_table", part.name, f"be readable {kind}", got=detail, fix=fix) from None


def _locate_damage(error: Exception) -> str:
    """Return what kind of fault Arrow found, and in which column and row, without a value of the table.

    >>> _locate_damage(pa.ArrowInvalid("In CSV column #1: Row #7: CSV conversion error to int64: invalid value 'ill'"))
    'a value that is not of type int64, in column 2, row 7'
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    wanted = re.search(r"conversion error to ([\w\[\], ]+)", text)
    what = f"a value that is not of type {wanted[1]}" if wanted else "something else"
    what = "an empty file" if text.startswith("Empty CSV file") else what
    counted = re.search(r"Expected (\d+) columns, got (\d+)", text)
    what = f"{counted[2]} columns where {counted[1]} were expected" if counted else what
    column, row = re.search(r"column #(\d+)", text), re.search(r"[Rr]ow #(\d+)", text)
    places = [f"column {int(column[1]) + 1}"] if column else []
    places += [f"row {row[1]}"] if row else []
    return f"{what}, in {', '.join(places)}" if places else what


def _check_target(target: Path) -> None:
    """Refuse a target whose folder is missing or whose name is taken."""
    if not target.parent.is_dir():
        raise invalid(
            "write_table",
            "path",
            "be in an existing folder",
            got=target.name,
            fix=f"There is no folder {target.parent}.",
        )
    if os.path.lexists(target):
        raise _taken_error(target)


def _taken_error(target: Path) -> LabelDPError:
    """Return the error for a name that is taken."""
    fix = f"It exists in {target.parent} and nothing is overwritten: choose another name, or remove it first."
    return invalid("write_table", "path", "be a new file", got=target.name, fix=fix)


@contextlib.contextmanager
def _hidden_file(target: Path) -> Iterator[tuple[Path, Any]]:
    """A hidden file in the target's folder, for its owner alone, gone at the end whatever happens.

    Its name and its lock are those of all unfinished work of ours (`labeldp.release.unfinished`), which lies on this floor
    too and is not imported: what a kill leaves is found there.
    """
    hidden = target.with_name(f".{target.name}.partial-{secrets.token_hex(8)}")
    number = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with _close_after(os.fdopen(number, "wb")) as stream:
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield hidden, stream
    finally:
        hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def _close_after(stream: Any) -> Iterator[Any]:
    """Close at the end; after an error, bytes that still do not fit are dropped without a second complaint."""
    try:
        yield stream
    except BaseException:
        with contextlib.suppress(OSError):
            stream.close()
        raise
    stream.close()


def _write_rows(batches: Iterable[Any], schema: Any, stream: Any, compression: str) -> int:
    """Write the batches to an open file and return the number of rows."""
    rows = 0
    with pq.ParquetWriter(stream, schema, compression=compression) as writer:
        for batch in batches:
            if not batch.schema.equals(schema):
                got = Described(f"columns {', '.join(batch.schema.names)}")
                fix = "Cast each batch to the schema that was given."
                raise invalid("write_table", "batches", "have the schema that was given", got=got, fix=fix)
            writer.write(batch) if isinstance(batch, pa.Table) else writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _give_name(hidden: Path, target: Path) -> None:
    """Give the finished file its name, unless the name has been taken meanwhile, and put the folder on the disk."""
    # A hidden file is its owner's alone; a table gets the rights that any new file would get.
    mask = os.umask(0)
    os.umask(mask)
    hidden.chmod(0o666 & ~mask)
    try:
        os.link(hidden, target)
    except FileExistsError as error:
        raise _taken_error(target) from error
    except OSError:
        _check_target(target)
        hidden.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _explain_no_room(target: Path) -> Iterator[None]:
    """Turn the errors of a full disk into our one shape; others pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        fix = "Free some space or write elsewhere; nothing was left behind."
        got = Described(os.strerror(error.errno or 0))
        raise invalid("write_table", str(target), "have room on its disk", got=got, fix=fix) from error


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
