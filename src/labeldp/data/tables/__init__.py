"""Tables of an owner, larger than memory: open, look over the label column, check row numbers, write.

>>> import pyarrow as pa, tempfile, pathlib
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> batch = pa.record_batch({"row": [1, 2, 3, 4], "ill": ["no", "yes", "no", "yes"]})
>>> write_table([batch], batch.schema, path)
4
>>> source = open_table(path)
>>> check_row_ids(source, "row")
>>> check_label(label_profile(source, "ill"))
('no', 'yes')
>>> folder.cleanup()

Design notes. Memory is bounded by a batch, never by the table. What these functions complain about they tell the
owner of the labels, on her side of the door; even so a message names at most one value of a column.
"""

from __future__ import annotations

from labeldp.data.tables._labels import LabelProfile, check_label, label_profile
from labeldp.data.tables._row_ids import check_row_ids
from labeldp.data.tables._source import TableSource, column, open_table
from labeldp.data.tables._write import write_table

__all__ = [
    "LabelProfile",
    "TableSource",
    "check_label",
    "check_row_ids",
    "column",
    "label_profile",
    "open_table",
    "write_table",
]
