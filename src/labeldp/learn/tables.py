"""Raw tables as features: an encoder that a saved model carries, tables too long for memory, and an owner's table with its labels.

>>> import pyarrow as pa
>>> train = pa.table({"age": [20, 40], "sex": ["f", "m"]})
>>> TableEncoder().fit(train).transform(pa.table({"sex": ["m", None], "age": [30, None]})).tolist()
[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]

`TableEncoder` never sees a label. Numbers, booleans and dates are centred and scaled; text becomes a column per category,
the most frequent ones apart and the rest as one; dates have their season, gaps are marked. Columns are found by name, so their order does not matter and columns
that were not there before are ignored. Everything it learns is plain lists and numbers: skops stores it.

`read_labelled` is an owner's table on its way to training: features as a table, labels in their box, checked before
anything is spent.

>>> import tempfile, pathlib
>>> from labeldp.data import open_table, write_table
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> table = pa.table({"age": [20, 40, 30, 50], "ill": ["no", "yes", "no", "yes"]})
>>> write_table([table], table.schema, path)
4
>>> read_labelled(open_table(path), label="ill").labels
<SensitiveLabels 'ill': 4 labels of 2 classes, contents hidden>
>>> folder.cleanup()

*Tables longer than a batch.* `TableRows` is the features of a table on disk, read in batches of `BATCH_ROWS` as often as
needed. `TableEncoder` learns from it in one pass (means and variances of batches are combined, counts added), and encodes
it batch by batch; `SoftmaxRegression` takes that as `labeldp.softmax.RowBatches`. So `LabelPrivateClassifier` trains on it as
on a table in memory: the same released labels, and the same model up to the order of sums (both end where no entry of the
gradient exceeds the solver's tolerance). One batch of features is in memory at a time; labels, their channels and
an array of n K numbers are in memory as always.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from labeldp.accounting import ProtectedRows, RowKey, protect_rows
from labeldp.arrays import Float32s
from labeldp.data import TableSource, check_label, check_row_ids, label_profile
from labeldp.data.label_column import check_missing
from labeldp.data.tables import BATCH_ROWS, copy_views, decode_dictionary, find_missing, value_type
from labeldp.errors import Described, LabelDPError, invalid, nearest
from labeldp.mechanisms.numbers import choose_bounds
from labeldp.release import Persons, SensitiveLabels
from labeldp.release.budget import open_account
from labeldp.release.labels import NumberRule
from labeldp.release.numbers import OUTSIDE
from labeldp.softmax import RowBatches
from labeldp.validate import check_choice, check_integer, refuse_repeats

#: Enough for every country of Adult; thousands of codes would make the features wide and empty.
MOST_CATEGORIES = 50


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Numbers centred and scaled, categories as columns of zeros and ones, dates as time and season; gaps are marked.

    Parameters
    ----------
    max_categories : int
        Columns that one text column may become; rarer values share the last of them.
    columns : sequence of names, optional
        The features; by default every column of the table that `fit` sees.

    Notes
    -----
    What it did is in `notes_`, in words. The answer has, in this order: a column per number, date and boolean; the categories;
    for each date its place in the week and the year, and for a time of day its place in the day, as sine and cosine; and a
    column of zeros and ones for each column of numbers with gaps, which says where they are.

    *Edge cases.*
    A value that `fit` never saw counts as a rare one, or as none if there are no rare ones. A constant column is zero.
    A number that is missing becomes the median, or the mean of a column that had no gaps when it was fitted. A column of
    nothing but missing values is left out, and so is text of more than `FEW_ROWS` rows in which no value occurs twice:
    it is a name of the row.
    """

    def __init__(self, *, max_categories: int = MOST_CATEGORIES, columns: Sequence[str] | None = None) -> None:
        self.max_categories = max_categories
        self.columns = columns

    def fit(self, X: Any, y: None = None) -> TableEncoder:
        """Learn means, scales and categories from the features; `y` is there for pipelines and is not looked at.

        `X` is a table, a data frame that speaks Arrow, or `TableRows`, which is read once.
        """
        most = check_integer("TableEncoder", "max_categories", self.max_categories, least=2)
        numbers: dict[str, Moments | None] = {}
        samples: dict[str, Thinned] = {}
        words: dict[str, Counter[str]] = {}
        names: list[str] = []
        dates: dict[str, list[str]] = {}
        rows = 0
        for table in _read_tables(X):
            names = names or list(table.column_names if self.columns is None else self.columns)
            require(table, names)
            for name in names:
                dates[name] = find_rhythms(table[name].type)
                column = to_plain(name, table[name])
                if pa.types.is_string(column.type):
                    add_words(words.setdefault(name, Counter()), column)
                else:
                    samples.setdefault(name, Thinned()).add(to_numbers(name, column), start=rows)
                    if column.null_count < len(column):
                        numbers[name] = join_moments(numbers.get(name), measure_moments(name, column))
            rows += table.num_rows
        self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_ = len(names)
        self.numbers_: dict[str, list[float]] = {name: to_location(numbers[name]) for name in names if name in numbers}
        self.categories_: dict[str, list[str]] = {}
        self.rest_: dict[str, bool] = {}
        for name in (name for name in names if name in words):
            if rows <= FEW_ROWS or max(words[name].values(), default=0) > 1:
                self.categories_[name], self.rest_[name] = choose_categories(words[name], most)
        self.dates_: dict[str, list[str]] = {name: dates[name] for name in self.numbers_ if dates[name]}
        gaps = {name: rows - (found.size if (found := numbers[name]) else 0) for name in self.numbers_}
        self.gaps_: list[str] = [name for name, count in gaps.items() if count]
        self.fills_: dict[str, float] = {name: samples[name].median(self.numbers_[name][0]) for name in self.gaps_}
        self.notes_: list[str] = self._describe({name: len(found) for name, found in words.items()}, gaps, rows)
        if not self.numbers_ and not self.categories_:
            raise invalid("TableEncoder", "X", "have features", got=Described("no column with values"))
        return self

    @property
    def n_outputs(self) -> int:
        """How many columns the answer has."""
        marks = sum(len(words) + self.rest_[name] for name, words in self.categories_.items())
        parts = 2 * sum(map(len, getattr(self, "dates_", {}).values()))
        return len(self.numbers_) + marks + parts + len(getattr(self, "gaps_", ()))

    def transform(self, X: Any) -> Any:
        """Return the features as float32, in the order that the class states.

        Of `TableRows` they come as `RowBatches`: each batch is encoded when it is read.
        """
        check_is_fitted(self, "numbers_")
        if isinstance(X, TableRows):
            return EncodedRows(self, X)
        table = as_table(X)
        require(table, [*self.numbers_, *self.categories_])
        # Models that were saved before gaps and rhythms were encoded have none of them.
        fills: dict[str, float] = getattr(self, "fills_", {})
        plain = {name: to_plain(name, table[name]) for name in self.numbers_}
        blocks = [
            scale_numbers(name, plain[name], *facts, fill=fills.get(name)) for name, facts in self.numbers_.items()
        ]
        for name, words in self.categories_.items():
            blocks.append(mark_categories(to_words(table[name]), words, rest=self.rest_[name]))
        for name, rhythms in getattr(self, "dates_", {}).items():
            blocks.append(mark_rhythms(name, table[name].type, to_numbers(name, plain[name]), rhythms))
        blocks += [
            np.isnan(to_numbers(name, plain[name])).astype(np.float32)[:, None] for name in getattr(self, "gaps_", ())
        ]
        return np.hstack(blocks)

    def _describe(self, words: Mapping[str, int], gaps: Mapping[str, int], rows: int) -> list[str]:
        """Say in words what was learned, for whoever trains."""
        plain = [name for name in self.numbers_ if name not in self.dates_]
        said = [f"numbers centred and scaled: {name_some(plain)}"] if plain else []
        for name in self.gaps_:
            filled = f"filled with the median {self.fills_[name]:.6g}, and marked in a column"
            said.append(f"{name}: {gaps[name]:,} of {rows:,} missing, {filled}")
        for name, rhythms in self.dates_.items():
            said.append(f"{name}: a time, and its place in the {' and the '.join(rhythms)}")
        for name, found in self.categories_.items():
            rest = f" of {words[name]:,}, the rest as one" if self.rest_[name] else ""
            said.append(f"{name}: {len(found):,} categories{rest}")
        for name in self.feature_names_in_:
            if name not in self.numbers_ and name not in self.categories_:
                why = "no value occurs twice" if words.get(name) else "no values"
                said.append(f"{name}: left out, {why}")
        return said


def name_some(names: Sequence[str], *, most: int = 8) -> str:
    """Return names in one line, the first few of many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


#: Numbers of a column that its median is taken from.
MOST_SAMPLED = 2**14
#: Words of a column that are counted: the first so many that occur. Later ones are among the rare.
MOST_WORDS = 100_000
#: In so few rows, text in which no value occurs twice may still be categories.
FEW_ROWS = 100


class Thinned:
    """Evenly spread numbers of a column, at most `MOST_SAMPLED`: each 2^k-th row, whatever batches the rows come in.

    >>> whole, parts = Thinned(), Thinned()
    >>> values = np.arange(100_000.0)
    >>> whole.add(values, start=0)
    >>> for start in range(0, 100_000, 777):
    ...     parts.add(values[start : start + 777], start=start)
    >>> len(whole.values), np.array_equal(whole.values, parts.values)
    (12500, True)
    """

    def __init__(self) -> None:
        self.stride = 1
        self.values: npt.NDArray[np.float64] = np.empty(0)

    def add(self, values: npt.NDArray[np.float64], *, start: int) -> None:
        """Add the values of consecutive rows, the first of which has this position."""
        self.values = np.concatenate([self.values, values[-start % self.stride :: self.stride]])
        while len(self.values) > MOST_SAMPLED:
            self.stride, self.values = 2 * self.stride, self.values[::2]

    def median(self, otherwise: float) -> float:
        """Return the median of what is there."""
        there = self.values[~np.isnan(self.values)]
        return float(np.median(there)) if len(there) else otherwise


def add_words(counts: Counter[str], column: Any) -> None:
    """Count the words of a column: of those that are new, the first ones up to `MOST_WORDS`."""
    for word, count in count_words(column).items():
        if word in counts or len(counts) < MOST_WORDS:
            counts[word] += count


#: Seconds of what comes again and again, and where the time 1970-01-01 00:00 is in it; weeks begin on Monday.
RHYTHMS = {"week": (7 * 86_400.0, 3 * 86_400.0), "year": (365.2425 * 86_400.0, 0.0), "day": (86_400.0, 0.0)}
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def find_rhythms(kind: Any) -> list[str]:
    """Return in what a time of this type comes again: a date in the week and the year, a time of day in the day."""
    kind = value_type(kind)
    if pa.types.is_date(kind):
        return ["week", "year"]
    if pa.types.is_timestamp(kind):
        return ["week", "year", "day"]
    return ["day"] if pa.types.is_time(kind) else []


def mark_rhythms(name: str, kind: Any, values: npt.NDArray[np.float64], rhythms: Sequence[str]) -> Float32s:
    """Return sine and cosine of where each time is in each rhythm; zeros where it is missing."""
    kind = value_type(kind)
    if not find_rhythms(kind) and not pa.types.is_null(kind):
        fix = "It held dates when the model was trained."
        raise invalid("TableEncoder", name, "be dates or times", got=Described(str(kind)), fix=fix)
    step = 86_400.0 if pa.types.is_date32(kind) else UNITS[getattr(kind, "unit", "ms")]
    seconds = values * step
    columns = []
    for rhythm in rhythms:
        length, shift = RHYTHMS[rhythm]
        angle = 2 * math.pi * np.mod(seconds + shift, length) / length
        columns += [np.sin(angle), np.cos(angle)]
    found: Float32s = np.nan_to_num(np.column_stack(columns), nan=0.0).astype(np.float32)
    return found


def to_words(column: Any) -> Any:
    """Return a column of categories as text; whole numbers as they are written."""
    return decode_dictionary(column).cast(pa.string())


class TableRows:
    """Some columns of a table on disk, row for row with its labels, read in batches as often as they are asked for.

    Parameters
    ----------
    source : TableSource
        The table.
    columns : sequence of names
        The features.
    keep : array of bool, optional
        Which rows of the table there are: those with a label. By default all.
    n_rows : int, optional
        The rows of the table, where the source does not know it (CSV) and `keep` does not say it.
    batch_rows : int
        The most rows in memory.
    """

    def __init__(
        self,
        source: TableSource,
        columns: Sequence[str],
        *,
        keep: npt.NDArray[np.bool_] | None = None,
        n_rows: int | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self.column_names = list(columns)
        self._source, self._keep, self._batch_rows = source, keep, batch_rows
        count = source.rows if n_rows is None else n_rows
        total = int(keep.sum()) if keep is not None else int(count or 0)
        self.shape = (total, len(self.column_names))

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rows: Any) -> TableRows:
        """Return some of the rows, rising: those that a release answered."""
        there = np.arange(len(self)) if self._keep is None else np.flatnonzero(self._keep)
        size = len(self) if self._keep is None else len(self._keep)
        keep = np.zeros(size, np.bool_)
        keep[there[rows]] = True
        return TableRows(self._source, self.column_names, keep=keep, batch_rows=self._batch_rows)

    @property
    def header(self) -> Any:
        """A table of these columns without rows: what scikit-learn reads the names of the features off."""
        return pa.schema([self._source.schema.field(name) for name in self.column_names]).empty_table()

    def batches(self) -> Iterator[tuple[slice, Any]]:
        """Yield the positions of some rows and their columns as a table, in order."""
        read = start = 0
        for batch in self._source.batches(columns=self.column_names, batch_rows=self._batch_rows):
            table = pa.Table.from_batches([batch])
            if self._keep is not None:
                table = table.filter(pa.array(self._keep[read : read + batch.num_rows]))
            read += batch.num_rows
            if table.num_rows:
                yield slice(start, start + table.num_rows), table
                start += table.num_rows


class EncodedRows(RowBatches):
    """The rows of a table as a fitted `TableEncoder` encodes them, batch by batch."""

    def __init__(self, encoder: TableEncoder, rows: TableRows) -> None:
        self.shape = (len(rows), encoder.n_outputs)
        self.dtype = np.dtype(np.float32)
        self._encoder, self._rows = encoder, rows

    def batches(self) -> Iterator[tuple[slice, Any]]:
        """Read, encode and yield one batch after the other."""
        for positions, table in self._rows.batches():
            yield positions, self._encoder.transform(table)


def _read_tables(X: Any) -> Iterator[Any]:
    """Yield the batches of `TableRows`, or a table as it is."""
    if isinstance(X, TableRows):
        for _, table in X.batches():
            yield table
    else:
        yield as_table(X)


def as_table(X: Any) -> Any:
    """Return a `pyarrow.Table`; data frames that speak Arrow (pandas, polars) are taken as they are."""
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if not hasattr(X, "__arrow_c_stream__"):
        fix = "Pass a pyarrow table or a data frame."
        raise invalid("TableEncoder", "X", "be a table with named columns", got=type(X).__name__, fix=fix)
    refuse_repeats("TableEncoder", X)
    table = _speak_arrow(X)
    if table is None:
        name = next((name for name in getattr(X, "columns", ()) if _speak_arrow(X[[name]]) is None), "X")
        kind = getattr(X[name], "dtype", "another") if name != "X" else "another"
        raise _wrong_kind(str(name), f"type {kind}, which Arrow does not take")
    schema = copy_views(table.schema)
    return table if schema.equals(table.schema) else pa.Table.from_batches(map(copy_views, table.to_batches()), schema)


def _speak_arrow(X: Any) -> Any:
    """Return a data frame as a table, or None where it has a column that Arrow does not take; its message would quote values."""
    try:
        # polars' own word for it has no views, which pyarrow 15 does not read.
        return X.to_arrow() if hasattr(X, "to_arrow") else pa.table(X)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _wrong_kind(name: str, kind: str) -> LabelDPError:
    """Return the error for a column of which no features are made."""
    fix = "Leave it out (--drop), or turn it into numbers or text first."
    return invalid("TableEncoder", name, "be numbers, text, booleans or dates", got=Described(kind), fix=fix)


def require(table: Any, names: Sequence[str]) -> None:
    """Refuse a table without one of the features, naming those that look like it."""
    absent = [name for name in names if name not in table.column_names]
    if len(absent) == 1:
        fix = nearest(absent[0], table.column_names)
        raise invalid("TableEncoder", "X", f"have the feature column {absent[0]!r}", got=Described("none"), fix=fix)
    if absent:
        got = Described(f"a table without {name_some(absent, most=4)}")
        raise invalid("TableEncoder", "X", f"have {len(names):,} feature columns", got=got)


def to_plain(name: str, column: Any) -> Any:
    """Return a column as text or float64; nested and binary columns are refused."""
    kind = value_type(column.type)
    if isinstance(kind, pa.BaseExtensionType):  # of which a dictionary cannot even be decoded
        raise _wrong_kind(name, str(kind))
    column = decode_dictionary(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return column.cast(width).cast(pa.float64(), safe=False)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    raise _wrong_kind(name, str(kind))


class Moments(NamedTuple):
    """How many numbers there are, their mean and their variance."""

    size: int
    mean: float
    variance: float


def measure_moments(name: str, column: Any) -> Moments | None:
    """Return count, mean and variance of the values that are there; None if all are NaN."""
    values = to_numbers(name, column)
    there = values[~np.isnan(values)]
    return Moments(len(there), float(there.mean()), float(there.var())) if len(there) else None


def join_moments(first: Moments | None, second: Moments | None) -> Moments | None:
    """Return the moments of two sets of numbers together (Chan, Golub, LeVeque 1979): no sum of squares cancels."""
    if first is None or second is None:
        return first if second is None else second
    size = first.size + second.size
    apart, share = second.mean - first.mean, second.size / size
    squares = first.variance * first.size + second.variance * second.size
    squares += apart * apart * first.size * share
    return Moments(size, first.mean + apart * share, squares / size)


def to_location(found: Moments | None) -> list[float]:
    """Return mean and standard deviation; a constant column has scale 1, one of NaN alone mean 0 too."""
    if found is None:
        return [0.0, 1.0]
    scale = math.sqrt(found.variance)
    return [found.mean, scale if scale > 0 else 1.0]


def to_numbers(name: str, column: Any) -> npt.NDArray[np.float64]:
    """Return float64 with NaN for what is missing; infinity is refused."""
    values: npt.NDArray[np.float64] = (
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    )
    values = np.asarray(values, np.float64)
    if np.isinf(values).any():
        fix = "Clip it, or mark it as missing."
        raise invalid("TableEncoder", name, "be finite", got=Described("an infinite value"), fix=fix)
    return values


def scale_numbers(name: str, column: Any, mean: float, scale: float, *, fill: float | None = None) -> Float32s:
    """Return one centred and scaled column; what is missing becomes `fill`, or the mean, which is 0."""
    if pa.types.is_string(column.type):
        fix = "It held numbers when the model was trained."
        raise invalid("TableEncoder", name, "be numbers", got=Described("text"), fix=fix)
    answer = (to_numbers(name, column) - mean) / scale
    missing = 0.0 if fill is None else (fill - mean) / scale
    return np.nan_to_num(answer, nan=missing).astype(np.float32)[:, None]


def count_words(column: Any) -> dict[str, int]:
    """Return how often each word of a text column occurs; missing ones are not counted."""
    return {pair["values"].as_py(): pair["counts"].as_py() for pair in pc.value_counts(column.drop_null())}


def choose_categories(counts: Mapping[str, int], most: int) -> tuple[list[str], bool]:
    """Return the categories that get a column, sorted, and whether the others share one."""
    order = sorted((-count, word) for word, count in counts.items())
    kept = order if len(order) <= most else order[: most - 1]
    return sorted(word for _, word in kept), len(kept) < len(order)


def mark_categories(column: Any, words: list[str], *, rest: bool) -> Float32s:
    """Return a column of zeros and ones per category, and one for all others if there were others."""
    codes = pc.index_in(column, value_set=pa.array(words, pa.string()))
    other = len(words) if rest else -1
    found = pc.fill_null(codes, other).to_numpy()
    found = np.where(pc.is_null(column).to_numpy(), -1, found)
    matrix = np.zeros((len(found), len(words) + rest), np.float32)
    rows = np.flatnonzero(found >= 0)
    matrix[rows, found[rows]] = 1.0
    return matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTable:
    """Features (a table, or `TableRows`) with their boxed labels; `dropped` rows had no label; `persons` own the rows."""

    features: Any = field(repr=False)
    labels: SensitiveLabels
    dropped: int
    persons: Persons | None = None


def feature_columns(source: TableSource, *, label: str | None, leave_out: Sequence[str] = ()) -> list[str]:
    """Return the columns of a table that are features: all but the label and those left out."""
    source.require(*leave_out, *([] if label is None else [label]))
    return [name for name in source.names if name != label and name not in leave_out]


def read_columns(source: TableSource, columns: Sequence[str]) -> Any:
    """Return some columns of a table in memory."""
    schema = pa.schema([source.schema.field(name) for name in columns])
    return pa.Table.from_batches(source.batches(columns=list(columns)), schema=schema)


def is_longer(source: TableSource, rows: int) -> bool:
    """Whether a table has more than so many rows; a CSV is read until it has."""
    if source.rows is not None:
        return source.rows > rows
    seen = 0
    for batch in source.batches(columns=source.names[:1]):
        seen += batch.num_rows
        if seen > rows:
            return True
    return False


def read_labelled(
    source: TableSource,
    *,
    label: str,
    leave_out: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
    missing: str = "error",
    row_ids: str | None = None,
    persons: str | None = None,
    label_set: str | None = None,
    ledger: Any = None,
    batch_rows: int | None = None,
    bounds: Any = None,
    counts: Any = None,
    outside: str = "clip",
) -> LabelledTable:
    """Read a table after the same checks as a release: missing labels, lone values, constants, repeated row ids.

    Labels that are numbers have public `bounds`, or `counts`, instead of classes, as for `privatize_table`. With `batch_rows` the features stay on disk, as `TableRows` with batches of that size; labels and row ids are read. With
    a `ledger` the labels get the name of the account that has their rows (`labeldp.release.budget.open_account`). `persons` is the
    column of ids that says whose row it is: no feature, and what the ledger knows the rows by.
    """
    if persons is not None and persons == label:
        fix = "It is what is to be hidden: name the column that says whose row it is."
        raise invalid("train", "persons", "not be the label column", got=persons, fix=fix)
    if persons is not None and row_ids is not None:
        fix = "The ledger recognises persons by their ids."
        raise invalid("train", "row_ids", "be left out where persons are given", got=row_ids, fix=fix)
    ids = [one for one in (row_ids, persons) if one is not None]
    away = [*leave_out, *ids]
    columns = feature_columns(source, label=label, leave_out=away)
    known = choose_bounds("train", bounds, counts)
    if known is None:
        check_label(label_profile(source, label), missing=missing, classes=classes)
    else:
        rule = partial(NumberRule(known, check_choice("train", "outside", outside, OUTSIDE)).check, label=label)
        check_missing(label_profile(source, label, check=rule), missing)
    if row_ids:
        check_row_ids(source, row_ids)
    table = read_columns(source, [*(columns if batch_rows is None else []), label, *ids])
    absent = find_missing(table[label])
    dropped, n_rows = int(pc.sum(absent).as_py() or 0), table.num_rows
    if dropped:
        table = table.filter(pc.invert(absent))
    keep = ~np.asarray(absent) if dropped else None
    owners = None if persons is None else Persons.of(table[persons], owner="train")
    others = TableRows(source, [one for one in source.names if one != label] or [label], keep=keep, n_rows=n_rows)

    def find_rows(key: RowKey) -> ProtectedRows:
        found = protect_rows(
            (part for _, part in others.batches()), key, label=label, row_ids=row_ids, features=columns
        )
        return found if owners is None else found.with_persons(owners.ids, key, column=persons or "")

    name = open_account(ledger, label if label_set is None else label_set, find_rows)
    boxed = SensitiveLabels(
        decode_dictionary(table[label]),
        classes=classes,
        name=name,
        row_ids=table[row_ids].to_pylist() if row_ids else None,
        bounds=known,
        outside=outside,
    )
    if batch_rows is None:
        return LabelledTable(features=table.select(columns), labels=boxed, dropped=dropped, persons=owners)
    features = TableRows(source, columns, keep=keep, n_rows=n_rows, batch_rows=batch_rows)
    return LabelledTable(features=features, labels=boxed, dropped=dropped, persons=owners)
