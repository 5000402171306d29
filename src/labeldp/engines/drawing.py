"""How the rows of a table are answered, drawn and written: batch by batch, here or on a worker.

>>> make_column(np.array([0, 1, 0]), dtype=pa.string(), classes=["no", "yes"]).to_pylist()
['no', 'yes', 'no']

A `Response` says how a batch is answered, a `Randomizer` puts released labels in the place of raw ones, and a
`Writer` reads, randomizes and writes at once, each in a thread of its own. The noise of a row is that of its position under
the key, so a batch may be drawn twice, in any order, in any process, and comes out the same. The three travel to workers:
they hold what is public, and are given the key at each call. The number of batches in memory is fixed by `DEPTH`, whatever
the table's length. Row groups have the same rows whatever the batches, and one chunk each: the bytes of a file are a
function of its rows. The writer is the caller's thread: it reports progress, and an interrupt there stops the others.

**Schema.** That of a release is the input's, with nothing in it that speaks of raw labels. Types, order and names are kept,
free-form metadata is not (`labeldp.release.columns`). Statistics and dictionaries in the file are made anew, from the
released labels, when it is written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from labeldp.arrays import Float64s, Int64s
from labeldp.channel import FiniteChannel, NumericChannel
from labeldp.data.tables import value_type
from labeldp.engines.engine import Progress, prefetch
from labeldp.engines.rows import Rows, regroup, table_changed
from labeldp.guarantee import Guarantee
from labeldp.mechanisms import Mechanism
from labeldp.priors import Reader
from labeldp.random import NoiseKey
from labeldp.release.columns import RESERVED, as_column, clean_field, clean_metadata, example_columns, spread_nulls
from labeldp.release.door import draw_part
from labeldp.release.manifest import GROUP_ROWS
from labeldp.release.saving import LabelsStream

if TYPE_CHECKING:
    from labeldp.engines.job import Staging, Written

#: Batches that wait between two steps: with the one that each step holds, some eight are in memory.
DEPTH = 2


class Done(NamedTuple):
    """A released batch of a span, and how many of its labels are expected to be true."""

    span: int
    batch: Any
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Draws pieces and writes each to its staged file. It travels to workers; the key does not travel with it."""

    randomizer: Randomizer
    staging: Staging
    size: int

    def write(self, pieces: Sequence[Rows], *, key: NoiseKey, progress: Progress | None = None) -> Iterator[Written]:
        """Yield what was written, piece after piece; `progress` hears of every batch."""
        report = _Reporter(progress, total=sum(piece.count for piece in pieces))
        by_number = {piece.spans[0].number: piece for piece in pieces}
        drawn = prefetch(self._draw(pieces, key), depth=DEPTH)
        try:
            for number, batches in itertools.groupby(drawn, key=lambda done: done.span):
                yield self._write_file(by_number[number], batches, report)
        finally:
            drawn.close()  # type: ignore[attr-defined]  # a generator: its threads end with it

    def _draw(self, pieces: Sequence[Rows], key: NoiseKey) -> Iterator[Done]:
        for piece, start, batch in prefetch(_read(pieces, self.size), depth=DEPTH):
            number = piece.spans[0].number
            if batch is None:
                yield Done(number, self.randomizer.empty(), 0.0)
            else:
                yield Done(number, *self.randomizer(batch, rows=piece, start=start, key=key))

    def _write_file(self, piece: Rows, batches: Iterable[Done], report: _Reporter) -> Written:
        """Write one piece's batches, and check that there were as many rows as were counted."""
        stream = LabelsStream(self.staging.work, self.randomizer.schema, name=(draft := self.staging.draft()))
        rows, accuracy = 0, 0.0

        def taken() -> Iterator[Any]:
            nonlocal rows, accuracy
            for done in batches:
                rows, accuracy = rows + done.batch.num_rows, accuracy + done.accuracy
                yield done.batch
                report(done.batch.num_rows)

        try:
            for group in regroup(taken(), GROUP_ROWS):
                stream.write(group)
            facts = stream.close()
        except BaseException:
            stream.abandon()
            raise
        if rows != piece.count:
            raise table_changed(piece.source)
        return self.staging.keep(piece.spans[0], draft, facts=facts, rows=rows, accuracy=accuracy)


class _Reporter:
    """Adds up what was written, for whoever wants to know."""

    def __init__(self, progress: Progress | None, *, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None and rows:
            self._progress(self._done, self._total)


def _read(pieces: Sequence[Rows], size: int) -> Iterator[tuple[Rows, int, Any]]:
    """Yield each batch with its piece and its first position; a piece without rows has one batch that is None.

    Columns that are left out are not read: neither the release nor a prior has anything of them.
    """
    for piece in pieces:
        columns = [name for name in piece.source.names if name not in piece.left_out]
        start = piece.first
        if piece.count == 0:
            yield piece, start, None
        for batch in piece.batches(columns=columns, size=size):
            yield piece, start, batch
            start += batch.num_rows


class Answer(NamedTuple):
    """A batch's channel, how many of its labels are expected to be true, and the rows of a released prior that it has."""

    channel: FiniteChannel
    accuracy: float
    prior_index: Int64s | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Response:
    """How batches are answered: by one channel, by the channel of each row's group, or by a mechanism's own for each row.

    Parameters
    ----------
    channel : FiniteChannel
        One that serves any number of rows; or one with an example for each group; or, where a `mechanism` is asked, one
        of its channels, of which only the kind counts.
    promise : Guarantee
        What the channel of every batch is checked against before anything is drawn from it.
    reader : Reader, optional
        Reads the group of each row, or its beliefs where a `mechanism` is asked.
    mechanism : Mechanism, optional
        Asked for the channel of each batch's beliefs.
    expected : array or float, optional
        The chance of a true label: for all, or by group. None where it is computed with each batch.
    prior, prior_rows : arrays, optional
        Beliefs that are released, (C, K), and which of them each group has.
    stage : callable, optional
        The stage of a slice of rows, where labels are drawn in stages.
    mark : str
        Of how all rows are answered, by a job that may be taken up again: part of the noise's name (`Randomizer`). Empty otherwise.

    Notes
    -----
    It travels to workers: it holds no key and no exact count.
    """

    channel: FiniteChannel
    promise: Guarantee
    reader: Reader | None = None
    mechanism: Mechanism | None = None
    expected: Any = None
    prior: Float64s | None = None
    prior_rows: Int64s | None = None
    stage: Callable[[slice], Any] | None = None
    mark: str = ""

    @property
    def chunk(self) -> int:
        """Batches must hold a multiple of so many rows."""
        return 1 if self.reader is None else self.reader.chunk

    def answer(self, batch: Any, rows: slice, asked: Int64s | None = None) -> Answer:
        """Return the channel of a batch whose rows have these positions, and what else is said of them.

        With `asked`, rows of the batch, the channel is that of those alone, at their places.
        """
        found: Any = None if self.reader is None else self.reader.read(batch, rows)
        some: Any = slice(None) if asked is None else asked
        if self.mechanism is not None:
            channel = self.mechanism.channel(found, n_classes=self.channel.n_classes)
            right = channel.expected_accuracy(found)[some] if channel.outputs_are_labels else math.nan
            return Answer(_take_asked(channel, rows, asked), float(np.sum(right)), None)
        index = None if self.prior_rows is None else self.prior_rows[found][some]
        if self.channel.n_examples is None:
            count = batch.num_rows if asked is None else len(asked)
            return Answer(_take_asked(self.channel, rows, asked), float(self.expected) * count, index)
        channel = _take_asked(self.channel.take(found), rows, asked)
        return Answer(channel, float(self.expected[found][some].sum()), index)


def _take_asked(channel: FiniteChannel, rows: slice, asked: Int64s | None) -> FiniteChannel:
    """Return the channel of some rows of a batch, which knows their places; that of all is placed when it is drawn from."""
    return channel if asked is None else channel.place(rows.start, rows.stop - rows.start).take(asked)


@dataclass(frozen=True, kw_only=True, eq=False)
class Randomizer:
    """Puts released labels in the place of raw ones, batch by batch.

    Where the response has a mark, the noise is that of the key and the mark: a copy of the job that answers otherwise has other
    noise. Labels of a first stage are drawn before anything is marked, to learn from, and by a channel that nothing shapes: they
    have the noise of the key alone, and are drawn the same again.
    """

    response: Response
    schema: Any

    @classmethod
    def of(cls, response: Response, *, rows: Rows) -> Randomizer:
        """Return the randomizer of a table's rows, which knows the schema of the release."""
        stage = None if response.stage is None else response.stage(slice(0, 0))
        prior_index = None if response.prior_rows is None else np.empty(0, np.int64)
        extras = example_columns(response.channel.take(slice(0, 0)), stage=stage, prior_index=prior_index)
        types = {name: column.type for name, column in extras.items()}
        numbers = response.channel.outputs_are_numbers
        keep = response.channel.outputs_are_labels or numbers
        if not keep:
            types = {"output": as_column(response.channel.empty_codes(0)).type, **types}
        whole = rows.source.schema
        schema = make_schema(
            pa.schema([field for field in whole if field.name not in rows.left_out], metadata=whole.metadata),
            label=rows.label,
            extras=types,
            keep_label=keep,
            numbers=numbers,
            nulls=rows.asked is not None,
        )
        return cls(response=response, schema=schema)

    def __call__(self, batch: Any, *, rows: Rows, start: int, key: NoiseKey) -> tuple[Any, float]:
        """Return the released batch of the rows from position `start` on, and its expected number of true labels."""
        positions = slice(start, start + batch.num_rows)
        asked = rows.asked_within(positions.start, positions.stop)
        asked = None if asked is None else asked - start
        channel, accuracy, prior_index = self.response.answer(batch, positions, asked)
        stage = None if self.response.stage is None else self.response.stage(positions)

        def draw(noise: NoiseKey) -> Any:
            return draw_part(
                rows.labels(batch), channel, promise=self.response.promise, key=noise, start=start, rows=asked
            )

        codes = draw(key if not self.response.mark else key.child("answers", self.response.mark))
        if self.response.mark and stage is not None:
            first = np.flatnonzero((stage if asked is None else stage[asked]) == 0)
            codes[first] = draw(key)[first]
        extras = example_columns(channel, stage=stage, prior_index=prior_index)
        place, columns = batch.schema.get_field_index(rows.label), batch.columns
        if channel.outputs_are_labels:
            answers = make_column(codes, dtype=self.schema.field(place).type, classes=rows.classes)
        elif isinstance(channel, NumericChannel):
            answers = pa.array(channel.decode(codes))
        else:
            answers = as_column(codes)
        if asked is not None:  # the places of rows are those of the file; a row that was not asked has nulls
            extras.pop("place", None)
            spread = spread_nulls(asked, batch.num_rows)
            answers, extras = answers.take(spread), {name: column.take(spread) for name, column in extras.items()}
        if channel.outputs_are_labels or channel.outputs_are_numbers:
            columns[place] = answers
        else:  # an output stands for no class: it has a column of ours, and the label's is gone
            del columns[place]
            columns.append(answers)
        return pa.RecordBatch.from_arrays([*columns, *extras.values()], schema=self.schema), accuracy

    def empty(self) -> Any:
        """Return a released batch of no rows."""
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)


def make_schema(
    schema: Any,
    *,
    label: str,
    extras: Mapping[str, Any],
    keep_label: bool = True,
    numbers: bool = False,
    nulls: bool = False,
) -> Any:
    """Return the input's schema without free-form metadata, and the reserved columns behind it.

    Where outputs are not labels (`keep_label` is False) the label column is left out: one of `extras` holds the outputs.
    Released `numbers` are float64, whatever the raw ones were: answers lie between whole numbers, and beyond the bounds. With
    `nulls` some rows have no answer.

    >>> raw = pa.schema([pa.field("ill", pa.string(), metadata={"rate": "0.02"})], metadata={"positives": "17"})
    >>> print(make_schema(raw, label="ill", extras={"row": pa.int32()}).to_string(show_schema_metadata=True))
    ill: string
    _labeldp_row: int32 not null
    """
    kept = [field for field in schema if keep_label or field.name != label]
    fields = [
        pa.field(label, pa.float64()) if numbers and field.name == label else clean_field(field) for field in kept
    ]
    fields = [field.with_nullable(field.nullable or (nulls and field.name == label)) for field in fields]
    added = [pa.field(RESERVED + name, dtype, nullable=nulls) for name, dtype in extras.items()]
    metadata = clean_metadata(schema.metadata, columns=schema.names, label=label)
    if numbers and schema.field(label).type != pa.float64():
        metadata = None  # pandas' description would speak of another type
    return pa.schema([*fields, *added], metadata=metadata)


def make_column(codes: Any, *, dtype: Any, classes: Sequence[Any]) -> Any:
    """Return released codes as values of the input's type; a dictionary holds the public list of classes."""
    values = pa.array(list(classes), type=value_type(dtype))
    if pa.types.is_dictionary(dtype):
        indices = pa.array(codes).cast(dtype.index_type)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=dtype.ordered)
    return values.take(pa.array(codes))
