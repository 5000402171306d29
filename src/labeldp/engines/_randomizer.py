"""The one function from Arrow batch to Arrow batch: released labels in the place of raw ones. Engines only carry batches.

Design notes. The noise of a row is that of its position under the key, so a batch may be drawn twice, in any order, in any
process, and comes out the same. A `Randomizer` travels: it holds what is public, and is given the key at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from labeldp._random import NoiseKey
from labeldp.engines._beliefs import Response
from labeldp.engines._rows import Rows
from labeldp.engines._schema import released_column, released_schema
from labeldp.guarantee import Guarantee
from labeldp.release._stream import draw_part
from labeldp.release._writer import as_column


@dataclass(frozen=True, kw_only=True, eq=False)
class Randomizer:
    """Answers batches by a response, under a promise that every channel is checked against."""

    response: Response
    promise: Guarantee
    schema: Any

    @classmethod
    def of(cls, response: Response, *, promise: Guarantee, rows: Rows) -> Randomizer:
        """Return the randomizer of a table's rows."""
        schema = released_schema(rows.source.schema, label=rows.label, extras=_extras(response))
        return cls(response=response, promise=promise, schema=schema)

    def __call__(self, batch: Any, *, rows: Rows, start: int, key: NoiseKey) -> tuple[Any, float]:
        """Return the released batch of the rows from position `start` on, and its expected number of true labels."""
        channel, accuracy = self.response.answer(batch, start)
        codes = draw_part(rows.labels(batch), channel, promise=self.promise, key=key, start=start)
        return self._replaced(batch, codes, channel, rows, start), accuracy

    def empty(self) -> Any:
        """Return a released batch of no rows."""
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)

    def _replaced(self, batch: Any, codes: Any, channel: Any, rows: Rows, start: int) -> Any:
        """Return the batch with its labels replaced, and what differs from row to row of the channel behind it."""
        place = batch.schema.get_field_index(rows.label)
        columns = batch.columns
        columns[place] = released_column(codes, dtype=self.schema.field(place).type, classes=rows.classes)
        extras = {name: _narrow(array) for name, array in channel.example_arrays().items()}
        if self.response.stage is not None:
            extras["stage"] = self.response.stage(start, batch.num_rows)
        if self.response.prior is not None:  # learned of groups: the row of the channel is that of the prior
            extras["prior_row"] = extras["row"]
        columns += [as_column(array) for array in extras.values()]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _extras(response: Response) -> dict[str, Any]:
    """Return the reserved columns, and their types."""
    arrays = response.shared.example_arrays()
    extras = {name: as_column(_narrow(array)).type for name, array in arrays.items()}
    if response.stage is not None:
        extras["stage"] = pa.uint8()
    return extras if response.prior is None else {**extras, "prior_row": extras["row"]}


def _narrow(array: Any) -> Any:
    """Group numbers in 32 bits: there are never more groups than that."""
    return array.astype(np.int32) if array.dtype == np.int64 else array
