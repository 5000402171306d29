"""Tables of an owner, larger than memory: text, Parquet and Arrow in, in batches and in order.

>>> import pyarrow as pa, tempfile, pathlib
>>> from labeldp.data.writing import write_table
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> batch = pa.RecordBatch.from_pydict({"row": [1, 2, 3, 4], "ill": ["no", "yes", "no", "Yes "]})
>>> write_table([batch], batch.schema, path)
4
>>> source = open_table(path)
>>> source.rows, source.names, column(source, "ill").to_pylist()
(4, ('row', 'ill'), ['no', 'yes', 'no', 'Yes '])
>>> [part.num_rows for part in source.batches(batch_rows=3)]
[3, 1]
>>> tidied = source.rewrite("ill", strip=True, merge={"yes": "Yes"})
>>> column(tidied, "ill").to_pylist(), tidied.rewritten.words
(['no', 'yes', 'no', 'yes'], ['spaces around values taken away', "'Yes' read as 'yes'"])
>>> folder.cleanup()

Design notes. *Reading.* Memory is bounded by a batch, never by the table. The order of rows is a promise: the noise of a
row is a function of its position. That is why batches come from the plain streaming readers, one file after the other,
and not from a scanner that may reorder. How text is read (`labeldp.data.text`) is concluded from pieces of it and is a fact of
the source, `TableSource.form`, which a user can overrule. Types that turn out wrong further on are a `ColumnTypeError`;
`TableSource.settle` concludes them from every row.

*Rewriting labels.* Spaces around labels, and spellings of one class, are undone in the batches themselves, so whoever reads
the table sees one column: the check of labels, the door, the learners. It is a public function of each label alone, which
the owner states; the manifest of a release records it.

What these functions complain about they tell the owner of the labels, on her side of the door; even so a message names
at most one value of a column.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labeldp.data import text
from labeldp.data.places import Place, UrlPath, place_of
from labeldp.data.sniffing import NULLS, Asked, TextFormat
from labeldp.errors import ColumnTypeError, Described, LabelDPError, invalid, nearest
from labeldp.validate import check_integer

#: The ends of file names that are known.
PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow")
KNOWN = (*PARQUET, *ARROW, *text.TEXT, *text.JSON_LINES)
#: Rows of a batch of Parquet, and bytes held of each of its columns while it is read.
BATCH_ROWS = 2**16
PARQUET_BUFFER_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table on disk: its place, its Arrow schema, its number of rows and the files that it is made of.

    `rows` is None where counting would mean reading it all (text). `groups` (first, last) restricts each part to some of
    its row groups: a piece of a table is a table. `form` says how text is read, `rewritten` which column's values are
    changed on the way. Make one with `open_table`.
    """

    path: Place
    schema: Any = field(repr=False)
    rows: int | None
    parts: tuple[Place, ...] = field(repr=False)
    groups: tuple[int, int] | None = field(default=None, repr=False)
    form: TextFormat | None = field(default=None, repr=False)
    rewritten: Rewrite | None = field(default=None, repr=False)

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
        change = self.rewritten if self.rewritten is not None and self.rewritten.column in chosen else None
        for part in self.parts:
            for batch in _read(part, chosen, self, size):
                yield batch if change is None else change.apply(batch)

    def settle(self) -> TableSource:
        """Return the table with types that hold for every row: at least one pass over text, nothing for other formats.

        A line that cannot be read at all is refused here.
        """
        if self.form is None or self.form.whole:
            return self
        try:
            for _ in self.batches():
                pass
        except ColumnTypeError:
            return self.retype()
        return replace(self, form=replace(self.form, whole=True))

    def retype(self, *, keep: Sequence[str] = ()) -> TableSource:
        """Return the table with types that are concluded from every row of its text; columns of `keep` stay as they are."""
        assert self.form is not None
        if self.form.whole:
            raise LabelDPError(
                f"open_table: {self.path.name} changed while it was read. Run it again on a table at rest."
            )
        (part,) = self.parts
        with _explain_damage(part, self.form):
            form = text.look_at_all(part, self.form)
        kept = {name: self.form.kinds[name] for name in keep}
        parsed = (form.parsed - kept.keys()) | (self.form.parsed & kept.keys())
        form = replace(form, kinds={**form.kinds, **kept}, parsed=parsed)
        return _with_rewrite(replace(self, form=form, schema=_text_schema(form)))

    def rewrite(self, column: str, *, strip: bool = False, merge: Mapping[Any, Any] | None = None) -> TableSource:
        """Return the table with the values of one column tidied; see `Rewrite`. Nothing asked for changes nothing."""
        self.require(column)
        pairs = tuple(
            (spelling, kept)
            for kept, spellings in (merge or {}).items()
            for spelling in ([spellings] if isinstance(spellings, (str, int, float)) else spellings)
        )
        if not strip and not pairs:
            return self
        found = Rewrite(column=column, strip=strip, pairs=pairs)
        found.check(self.schema.field(column).type)
        return _with_rewrite(replace(self, rewritten=found))


def value_type(dtype: Any) -> Any:
    """Return the type of a column's values, also where they are stored as a dictionary."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def decode_dictionary(column: Any) -> Any:
    """Return a column (an array, in chunks or not) as plain values, also where it is stored as places in a dictionary.

    A dictionary may have been read off the labels: what is done with plain values does not know it.
    """
    return column.cast(value_type(column.type)) if pa.types.is_dictionary(column.type) else column


def copy_views(batch: Any) -> Any:
    """Return a batch, or the schema of one, with its texts and bytes as they are stored everywhere else.

    polars hands out texts as views into buffers, of which pyarrow neither takes rows nor makes dictionaries.

    >>> views = pa.RecordBatch.from_pydict({"ill": ["no", "yes"]})
    >>> copy_views(views) is views
    True
    """
    schema = batch if isinstance(batch, pa.Schema) else batch.schema
    fields = [field.with_type(_copied_type(field.type)) for field in schema]
    copied = pa.schema(fields, metadata=schema.metadata)
    if copied.equals(schema):
        return batch
    if not hasattr(pa, "string_view"):  # it names them in a schema, and does not get at them
        name = next(field.name for field, other in zip(schema, copied, strict=True) if not field.equals(other))
        got, fix = Described(f"views, as pyarrow {pa.__version__} does not read them"), "Upgrade pyarrow: 16 or newer."
        raise invalid("pyarrow", name, "be text in a form that it reads", got=got, fix=fix)
    if isinstance(batch, pa.Schema):
        return copied
    columns = [_copy_column(column, field.type) for column, field in zip(batch.columns, copied, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=copied)


def _copied_type(kind: Any) -> Any:
    """Return the type of a column without views; by its name, since pyarrow 15 has no function for it."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _copied_type(kind.value_type), kind.ordered)
    return {"string_view": pa.large_string(), "binary_view": pa.large_binary()}.get(str(kind), kind)


def _copy_column(column: Any, kind: Any) -> Any:
    """Return a column of a batch in the type that `_copied_type` says."""
    if column.type.equals(kind):
        return column
    if pa.types.is_dictionary(kind):
        words = column.dictionary.cast(kind.value_type)
        return pa.DictionaryArray.from_arrays(column.indices, words, ordered=kind.ordered)
    return column.cast(kind)


def find_missing(column: Any) -> Any:
    """Return which values of a column (an array, in chunks or not) are missing: null, or NaN where they are floats.

    pyarrow 15 sees no NaN in a dictionary, and up to 18 none in half precision.
    """
    if pa.types.is_floating(value_type(column.type)):
        column = decode_dictionary(column)
    if pa.types.is_float16(column.type):
        return pa.array(np.isnan(np.asarray(column)))
    return pc.is_null(column, nan_is_null=True)


def _with_rewrite(source: TableSource) -> TableSource:
    """Return the table whose schema says what a rewritten column is: plain values."""
    if source.rewritten is None:
        return source
    place = source.schema.get_field_index(source.rewritten.column)
    old = source.schema.field(place)
    return replace(source, schema=source.schema.set(place, pa.field(old.name, value_type(old.type))))


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A change to each value of a column by itself: spaces around it taken away, then some spellings read as one.

    `pairs` are (spelling, what it is read as). After stripping, text that spells a missing value is missing.
    """

    column: str
    strip: bool
    pairs: tuple[tuple[Any, Any], ...] = ()

    @property
    def words(self) -> list[str]:
        """What is done, for people and for the manifest of a release."""
        said = ["spaces around values taken away"] if self.strip else []
        return [*said, *(f"{old!r} read as {new!r}" for old, new in self.pairs)]

    def check(self, kind: Any) -> None:
        """Refuse merges that contradict each other, or that are no values of the column's type."""
        olds = [str(old) for old, _ in self.pairs]
        chained = set(olds) & {str(new) for _, new in self.pairs}
        if len(set(olds)) < len(olds) or chained:
            fix = "Name each spelling once, and the class that stays on the left: --merge yes=YES --merge yes=Yes."
            raise invalid("rewrite", "merge", "lead each spelling to one class", got=Described("another"), fix=fix)
        self.values_of(value_type(kind))

    def apply(self, batch: Any) -> Any:
        """Return a batch with the column changed."""
        place = batch.schema.get_field_index(self.column)
        values = decode_dictionary(batch.column(place))
        if self.strip and (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            values = pc.utf8_trim_whitespace(values)
            absent = pc.is_in(values, value_set=pa.array(NULLS, values.type))
            values = pc.if_else(absent, pa.scalar(None, values.type), values)
        if self.pairs:
            olds, news = self.values_of(values.type)
            values = pc.coalesce(news.take(pc.index_in(values, value_set=olds)), values)
        # `set_column` of a batch came with pyarrow 16.
        columns = [*batch.columns[:place], values, *batch.columns[place + 1 :]]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(place, pa.field(self.column, values.type)))

    def values_of(self, kind: Any) -> tuple[Any, Any]:
        """Return spellings and classes in the type of the column."""
        try:
            olds, news = (pa.array([str(pair[side]) for pair in self.pairs], pa.string()).cast(kind) for side in (0, 1))
        except (pa.ArrowException, ValueError):
            got = Described("another")
            raise invalid("rewrite", "merge", f"name values of type {kind}", got=got) from None
        return olds, news


def open_table(
    path: str | os.PathLike[str],
    *,
    types: Mapping[str, str] | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    missing_values: Sequence[str] = (),
) -> TableSource:
    """Return the table in a file, or in a folder of Parquet files taken in the order of their paths.

    Parameters
    ----------
    path : path or URL
        A file: .parquet, .pq, .feather, .arrow, .csv, .tsv, .txt, .jsonl or .ndjson; text may be packed (.gz, .bz2, .zip). Or a
        folder. Folders in the folder count too, as in ``year=2024/part-0.parquet``; names that begin with a dot or an
        underscore do not. All parts must have one schema. A URL is opened by fsspec.
    types : mapping of str to str, optional
        Column types for text, as Arrow spells them (``{"zip": "string"}``), or how dates are written (``"%d/%m/%Y"``).
    sep, decimal, quote, encoding : str, optional
        How text is written; found out where left out (`labeldp.data.sniffing`).
    columns : sequence of str, optional
        The names of the columns of text that has none; with ``header=True``, instead of those that it has.
    header : bool, optional
        Whether the first line holds names, where it looks like data.
    missing_values : sequence of str
        Further words for a missing value, in every column.

    Notes
    -----
    Only the start of text, some pieces of it, and the footer of a Parquet are read here, so damage further in is reported
    by the batch that meets it. A file that does not exist is answered with the nearest name in its folder.

    Example
    -------
    >>> open_table("people.parqet")
    Traceback (most recent call last):
    ...
    labeldp.errors.LabelDPError: open_table: `path` must be an existing file, got 'people.parqet'. Looked in ...
    """
    asked = Asked(
        sep=sep,
        decimal=decimal,
        quote=quote,
        encoding=encoding,
        columns=None if columns is None else tuple(columns),
        header=header,
        types=dict(types or {}),
        missing=tuple(missing_values),
    )
    place = place_of(path)
    parts = _find_parts(place)
    if text.is_text(parts[0].name):
        with _explain_damage(parts[0], None):
            form = text.find_format(parts[0], asked)
        if form.lines_of_json:
            _refuse_idle(text.OF_LINES, asked, place)
        schema = _text_schema(form)
        _check_schema(place, schema, None)
        source = TableSource(path=place, schema=schema, rows=None, parts=parts, form=form)
        return source.settle() if form.small else source
    _refuse_idle(text.OF_TEXT, asked, place)
    heads = [_read_head(part) for part in parts]
    schema = heads[0][0]
    for part, (other, _) in zip(parts, heads, strict=True):
        if not other.equals(schema):
            got = Described(f"another schema in {below(part, place)}")
            raise invalid("open_table", place.name, f"have one schema, that of {below(parts[0], place)}", got=got)
    rows = sum(count for _, count in heads)
    _check_schema(place, schema, rows)
    return TableSource(path=place, schema=schema, rows=rows, parts=parts)


def _refuse_idle(options: Sequence[str], asked: Asked, place: Place) -> None:
    """Refuse what is said about how text is written where a format says that itself."""
    said = {"missing_values": asked.missing or None, "types": asked.types or None}
    given = next((name for name in options if said.get(name, getattr(asked, name, None)) is not None), None)
    if given is not None:
        fix = "It says how text is written; this format says itself what its columns and values are."
        raise invalid("open_table", given, f"be left out for {place.name}", got=Described("one"), fix=fix)


def column(path: str | os.PathLike[str] | TableSource, name: str) -> Any:
    """Return one column of a table, or of the table at a path, as a `pyarrow.ChunkedArray`; the others are not read."""
    source = path if isinstance(path, TableSource) else open_table(path)
    source.require(name)
    chunks = [batch.column(0) for batch in source.batches(columns=[name])]
    return pa.chunked_array(chunks, type=source.schema.field(name).type)


def row_groups(part: Place) -> tuple[int, ...] | None:
    """Return the rows of each row group of a Parquet file; None for other files, which have none."""
    if not _is_parquet(part):
        return None
    with _explain_damage(part, None), _open_part(part) as handle, pq.ParquetFile(handle) as file:
        found = file.metadata
        return tuple(found.row_group(number).num_rows for number in range(found.num_row_groups))


def below(part: Place, root: Place) -> str:
    """Return the path of a part inside its table's folder; the name of a table that is one file."""
    return "/".join(part.parts[len(root.parts) :]) or part.name


def is_table(name: str) -> bool:
    """Whether the name of a file says that it is a table."""
    return name.lower().endswith((*PARQUET, *ARROW)) or text.is_text(name)


def _find_parts(place: Place) -> tuple[Place, ...]:
    """Return the files of a table: itself, or the Parquet files below a folder in the order of their paths."""
    if place.is_file():
        if not is_table(place.name):
            fix = f"Known are {', '.join(KNOWN)}; text may be packed: {', '.join(text.PACKINGS)}."
            raise invalid("open_table", "path", "end in the name of a known format", got=place.name, fix=fix)
        return (place,)
    if place.is_dir():
        if (place / "release.json").is_file():  # what labeldp.release calls its manifest
            fix = f"Name a table; that of the release, with released labels, is in {place / 'labels.parquet'} or in labels/ there."
            raise invalid("open_table", "path", "be a table", got=Described(f"the release {place.name}"), fix=fix)
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
    tables = [path.name for path in place.parent.iterdir() if path.is_file() and is_table(path.name)]
    hint = nearest(place.name, tables) if tables else "There is no table in that folder."
    where = "the current folder" if str(place.parent) == "." else str(place.parent)
    return f"Looked in {where}. {hint}"


def _text_schema(form: TextFormat) -> Any:
    return pa.schema([pa.field(name, form.type_of(name)) for name in form.columns])


def _read_head(part: Place) -> tuple[Any, int]:
    """The schema of a Parquet or Arrow file, and its number of rows."""
    with _explain_damage(part, None), _open_part(part) as handle:
        if not _is_parquet(part):
            with pa.ipc.open_file(handle) as file:
                return copy_views(file.schema), sum(
                    file.get_batch(number).num_rows for number in range(file.num_record_batches)
                )
        with pq.ParquetFile(handle) as file:
            schema = copy_views(file.schema_arrow)
            _check_counts(file.metadata)
            _ = schema.names  # names that are not UTF-8 are damage too, and Arrow decodes them when it is asked
            return schema, file.metadata.num_rows


def _check_counts(footer: Any) -> None:
    """Refuse a Parquet footer whose counts of rows contradict each other: Arrow believes one of them, and may read for ever."""
    # Not the counts of columns: to ask Arrow for a column of a damaged footer can end the process.
    if sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups)) != footer.num_rows:
        raise ValueError("counts of rows that differ")


def _check_schema(place: Place, schema: Any, rows: int | None) -> None:
    """Refuse a table with two columns of one name, and one without rows or columns."""
    repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if repeated:
        got = Described(f"{repeated[0]!r} more than once")
        fix = "Rename one of them; for text, new names do: columns= with header=True (--columns a,b,... --header)."
        raise invalid("open_table", place.name, "have columns of different names", got=got, fix=fix)
    if rows == 0 or not schema.names:
        raise invalid("open_table", place.name, "have rows", got=Described("an empty table"))


def _read(part: Place, columns: list[str], source: TableSource, size: int) -> Iterator[Any]:
    """Yield the batches of one file, of some of its row groups where the source says so."""
    with _explain_damage(part, source.form):
        if source.form is not None:
            for batch in text.read_text(part, columns, source.form):
                yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))
        elif _is_parquet(part):
            # A row group may be the whole file. Without a buffer size each column of it is fetched whole: 936 MB for a
            # group of 10 M rows x 10 columns, against 138 MB and 0.1 s more with one.
            options = {"pre_buffer": False, "buffer_size": PARQUET_BUFFER_BYTES}
            with _open_part(part) as handle, pq.ParquetFile(handle, **options) as file:
                if source.groups is not None and source.groups[1] > file.num_row_groups:
                    raise LabelDPError(f"open_table: {part} changed while it was read: it has fewer row groups now.")
                chosen = list(range(*source.groups) if source.groups is not None else range(file.num_row_groups))
                declared = sum(file.metadata.row_group(number).num_rows for number in chosen)
                for batch in file.iter_batches(batch_size=size, columns=columns, row_groups=chosen):
                    declared -= batch.num_rows
                    yield copy_views(batch.select(columns))
                if declared:  # the footer's count is a claim, and passes over the table are planned by it
                    raise ValueError("counts of rows that differ")
        else:
            with _open_part(part) as handle, pa.ipc.open_file(handle) as file:
                for number in range(file.num_record_batches):
                    batch = file.get_batch(number)
                    batch.validate(full=True)  # offsets of a damaged file would be followed
                    batch = copy_views(batch.select(columns))
                    yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


@contextmanager
def _open_part(part: Place) -> Iterator[Any]:
    """Yield what Arrow opens: a local path as it is, anything else as a file that fsspec opened."""
    if isinstance(part, Path):
        yield part
        return
    with part.open("rb") as handle:
        yield handle


def _is_parquet(part: Place) -> bool:
    """Whether the name of a file says that it is Parquet."""
    return part.name.lower().endswith(PARQUET)


@contextmanager
def _explain_damage(part: Place, form: TextFormat | None) -> Iterator[None]:
    """Turn what a reader raises on a file that is cut short, damaged or of another kind into our one shape.

    Arrow quotes the value, or the whole row, that it could not read: it may be a label. Only where it is, is said.
    """
    try:
        yield
    except LabelDPError:
        raise
    except UnicodeDecodeError:
        raise _refuse_encoding(part) from None
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        RuntimeError,  # of archives packed in a way that is not known
    ) as error:
        said = str(error)
        if "invalid UTF8" in said:
            raise _refuse_encoding(part) from None
        wrong = re.search(r"column #(\d+)", said)
        if "conversion error" in said and form is not None and wrong:
            name = form.names[int(wrong[1])]
            raise text.wrong_type(str(name)) from None
        kind = "Parquet" if _is_parquet(part) else "Arrow" if part.name.lower().endswith(ARROW) else "CSV"
        kind = "JSON" if form is not None and form.lines_of_json else kind
        fix = "Write it again; it is damaged, cut short or of another format."
        detail = _locate_damage(error)
        if "Expected" in said and form is not None:
            line = text.find_uneven_line(part, form)
            detail += "" if line is None else f", in line {line:,}"
            fix = "Look there for a separator or a quote too many or too few; --sep and --quote say which they are."
        if "straddling" in said:
            detail = "a line that is far longer than the first ones"
            fix = "Is a quote open? Otherwise write it as Parquet."
        raise invalid("open_table", part.name, f"be readable {kind}", got=Described(detail), fix=fix) from None


def _refuse_encoding(part: Place) -> LabelDPError:
    fix = "Say which it is: encoding= (--encoding cp1252, latin-1, utf-16, ...)."
    got = Described("bytes that are none")
    return invalid("open_table", part.name, "be text of the encoding that its beginning has", got=got, fix=fix)


def _locate_damage(error: Exception) -> str:
    """Return what kind of fault Arrow found, and in which column and row, without a value of the table.

    >>> _locate_damage(pa.ArrowInvalid("In CSV column #1: Row #7: CSV conversion error to int64: invalid value 'ill'"))
    'a value that is not of type int64, in column 2, row 7'
    """
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    wanted = re.search(r"conversion error to ([\w\[\], ]+)", said)
    what = f"a value that is not of type {wanted[1]}" if wanted else "something else"
    what = "an empty file" if said.startswith("Empty CSV file") else what
    counted = re.search(r"Expected (\d+) columns, got (\d+)", said)
    what = f"{counted[2]} columns where {counted[1]} were expected" if counted else what
    place, row = re.search(r"column #(\d+)", said), re.search(r"[Rr]ow #(\d+)", said)
    places = [f"column {int(place[1]) + 1}"] if place else []
    places += [f"row {row[1]}"] if row else []
    return f"{what}, in {', '.join(places)}" if places else what
