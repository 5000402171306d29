"""Data in, and out: real data sets by name, and tables larger than memory.

>>> import labeldp.data
>>> dataset = labeldp.data.load("adult")
>>> dataset.n_classes, dataset.sensitive_label
(2, 'whether a person earns more than 50,000 dollars a year')
>>> X_train, X_test = dataset.matrix()
>>> X_train.shape[0] == len(dataset.y_train)
True

Where to read on. `dataset`: what a data set is. `loaders`: the data sets by name, `pictures` those of pictures. `tables`: text, Parquet and Arrow, read in
batches; `text` and `sniffing` say how text is read, `places` where tables are, and `writing` writes them, whole. `label_column`:
whether a column can be released, and whether row ids differ.

Design notes. This room stands before the door: it handles raw labels as plain columns, for their owner. What leaves
it towards others goes through `labeldp.privatize` or `labeldp.measure`. Nothing here uses the network.
"""

from __future__ import annotations

from labeldp.data.dataset import Dataset
from labeldp.data.label_column import check_label, check_row_ids, label_profile
from labeldp.data.loaders import load, names, us_covid
from labeldp.data.tables import TableSource, column, open_table
from labeldp.data.writing import write_table

__all__ = [
    "Dataset",
    "TableSource",
    "check_label",
    "check_row_ids",
    "column",
    "label_profile",
    "load",
    "names",
    "open_table",
    "us_covid",
    "write_table",
]
