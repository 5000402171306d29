"""Engines: tables larger than memory through the door, on one machine or on many.

>>> import pyarrow as pa, pyarrow.parquet as pq, tempfile, pathlib
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> pq.write_table(pa.table({"age": [31, 54, 47, 62], "ill": ["no", "yes", "no", "yes"]}), path)
>>> done = privatize_table(path, label="ill", to=path.parent / "out", epsilon=2.0)
>>> done.rows, done.guarantee.epsilon(), done.seeded
(4, 2.0, False)
>>> features, release = open_released_table(path.parent / "out")
>>> features.names, len(release), release.classes
(('age',), 4, ('no', 'yes'))
>>> folder.cleanup()

Any mechanism and any prior will do: `privatize_table(..., mechanism=RRTopK(1.0, k=3), prior=PublicPrior(names))`. The labels
are those of one `labeldp.privatize` call in memory under the same key.

Design notes. An engine only carries batches: what meets a label is in `labeldp.release`, and the noise of a row is a
function of the key and its position, so batch sizes and threads cannot change what is released.
"""

from __future__ import annotations

from labeldp.engines.job import discard_job
from labeldp.engines.table import TableRelease, privatize_table
from labeldp.engines.train import open_released_table, train_released

__all__ = ["TableRelease", "discard_job", "open_released_table", "privatize_table", "train_released"]
