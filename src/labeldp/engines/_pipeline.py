"""From batches to a release on disk: reading, randomizing and writing at once, each in a thread of its own.

Design notes. The writer is the caller's thread: it reports progress, and an interrupt there stops the others. The
number of batches in memory is fixed by `DEPTH`, and so is the memory, whatever the table's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from labeldp._random import NoiseKey
from labeldp._validate import code_dtype
from labeldp.engines._beliefs import Belief, Response
from labeldp.engines._plan import Plan
from labeldp.engines._prefetch import prefetched
from labeldp.engines._rows import Rows, changed
from labeldp.engines._schema import released_column, released_schema
from labeldp.release import Release
from labeldp.release._stream import draw_part
from labeldp.release._writer import LABELS, LabelsStream, as_column, write_manifest, write_shared

#: Batches that wait between two steps: with the one that each step holds, some eight are in memory.
DEPTH = 2


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be released, how, and under which key."""

    rows: Rows
    belief: Belief
    plan: Plan
    key: NoiseKey
    size: int
    progress: Callable[[int, int], None] | None

    @property
    def batch_rows(self) -> int:
        """The size asked for, rounded up to whole chunks of the belief."""
        return -(-self.size // self.belief.chunk) * self.belief.chunk


class Done(NamedTuple):
    """A batch as it is written, and how many of its labels are expected to be true."""

    batch: Any
    accuracy: float


def write_release(job: Job, partial: Path, *, ledger_entry: int | None) -> float:
    """Draw and write everything into the hidden directory; return the expected share of true labels."""
    response = job.belief.respond(job.rows, job.plan.mechanism, spent=job.plan.spent, key=job.key)
    head = _head(job, response, ledger_entry)
    facts, accuracy = _write_labels(job, response, partial)
    files = {LABELS: facts, **write_shared(head, partial)}
    label = job.rows.label
    write_manifest(head, partial, files=files, n_examples=job.rows.count, label_column=label)
    return accuracy / job.rows.count


def _write_labels(job: Job, response: Response, partial: Path) -> tuple[dict[str, Any], float]:
    """Write all batches, and check that there were as many rows as were charged for."""
    schema = released_schema(job.rows.source.schema, label=job.rows.label, extras=_extras(response))
    stream = LabelsStream(partial, schema)
    done, accuracy = 0, 0.0
    try:
        for item in prefetched(_randomized(job, response, schema), depth=DEPTH):
            stream.write(item.batch)
            done, accuracy = done + item.batch.num_rows, accuracy + item.accuracy
            if job.progress is not None:
                job.progress(done, job.rows.count)
        facts = stream.close()
    except BaseException:
        stream.abandon()
        raise
    if done != job.rows.count:
        raise changed(job.rows.source)
    return facts, accuracy


def _randomized(job: Job, response: Response, schema: Any) -> Iterator[Done]:
    """Yield batches with their labels released; the noise of a row is that of its position."""
    start = 0
    promise = job.plan.mechanism.guarantee
    for batch in prefetched(job.rows.batches(size=job.batch_rows), depth=DEPTH):
        channel, accuracy = response.answer(batch)
        codes = draw_part(job.rows.labels(batch), channel, promise=promise, key=job.key, start=start)
        yield Done(_replaced(batch, codes, channel, job.rows, schema), accuracy)
        start += batch.num_rows


def _replaced(batch: Any, codes: Any, channel: Any, rows: Rows, schema: Any) -> Any:
    """Return the batch with released labels in the place of raw ones, and what differs from row to row of the channel."""
    place = batch.schema.get_field_index(rows.label)
    columns = batch.columns
    columns[place] = released_column(codes, dtype=schema.field(place).type, classes=rows.classes)
    extras = {name: _narrow(array) for name, array in channel.example_arrays().items()}
    columns += [as_column(array) for array in extras.values()]
    if len(columns) < len(schema):  # a belief learned of groups: the row of the channel is the row of the prior
        columns.append(as_column(extras["row"]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _extras(response: Response) -> dict[str, Any]:
    """Return the reserved columns, and their types."""
    arrays = response.shared.example_arrays()
    extras = {name: as_column(_narrow(array)).type for name, array in arrays.items()}
    return extras if response.prior is None else {**extras, "prior_row": extras["row"]}


def _narrow(array: Any) -> Any:
    """Group numbers in 32 bits: there are never more groups than that."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _head(job: Job, response: Response, ledger_entry: int | None) -> Release:
    """Return the release without its examples: what the manifest and the shared files are written from."""
    channel = response.shared.take(slice(0, 0))
    return Release(
        codes=np.empty(0, code_dtype(channel.n_outputs)),
        classes=job.rows.classes,
        channel=channel,
        guarantee=job.plan.promise,
        mechanism=job.plan.words,
        seeded=job.key.seeded,
        label_set=job.plan.label_set,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ledger_entry=ledger_entry,
        prior=response.prior,
    )
