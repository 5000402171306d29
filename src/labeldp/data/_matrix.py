"""Mixed tables as numbers: the plain, label-free encoding that lets a linear model run at once.

>>> import pyarrow as pa
>>> train = pa.table({"age": [20, 40], "sex": ["f", "m"]})
>>> table_matrices(train, train, categorical=["sex"], numeric=["age"]).train
array([[-1.,  1.,  0.],
       [ 1.,  0.,  1.]], dtype=float32)

Design notes. Everything is fitted on the train features alone. Columns come numeric first, then categories in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labeldp._validate import FloatArray

#: Enough for every country of Adult; the thousands of diagnosis codes of a hospital table would make it wide and empty.
MOST_CATEGORIES = 50


class Matrices(NamedTuple):
    """The features as float32 matrices: ``X_train, X_test = dataset.matrix()``."""

    train: FloatArray
    test: FloatArray


def array_matrices(train: Any, test: Any) -> Matrices:
    """Return arrays as float32: as they are when train lies in [0, 1], otherwise centred and scaled by column."""
    if train.size == 0 or (train.min() >= 0 and train.max() <= 1):
        return Matrices(np.asarray(train, np.float32), np.asarray(test, np.float32))
    return _scaled(np.asarray(train), np.asarray(test))


def table_matrices(train: Any, test: Any, *, categorical: list[str], numeric: list[str]) -> Matrices:
    """Return `pyarrow` tables as float32: numeric columns scaled, then each category as a column of zeros and ones."""
    blocks = []
    if numeric:
        blocks.append(_scaled(_numbers(train, numeric), _numbers(test, numeric)))
    if categorical:
        codes = [_codes(train[name], test[name]) for name in categorical]
        blocks.append(_one_hot(np.column_stack([c[0] for c in codes]), np.column_stack([c[1] for c in codes])))
    if not blocks:
        return Matrices(np.empty((train.num_rows, 0), np.float32), np.empty((test.num_rows, 0), np.float32))
    return Matrices(np.hstack([b.train for b in blocks]), np.hstack([b.test for b in blocks]))


def _numbers(table: Any, names: list[str]) -> Any:
    return np.column_stack([np.asarray(table[name].to_numpy(), dtype=np.float64) for name in names])


def _codes(train: Any, test: Any) -> tuple[Any, Any]:
    """Each value's position among the sorted values of train, -1 for one that train lacks.

    The encoder sorts whole numbers many times faster than text, and the columns come out in the same order.
    """
    words = [pc.fill_null(column.cast(pa.string()), "missing") for column in (train, test)]
    values = pc.unique(words[0])
    values = values.take(pc.sort_indices(values))
    first, second = (pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy() for column in words)
    return first, second


def _scaled(train: Any, test: Any) -> Matrices:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train.astype(np.float64))
    return Matrices(scaler.transform(train).astype(np.float32), scaler.transform(test).astype(np.float32))


def _one_hot(train: Any, test: Any) -> Matrices:
    from sklearn.preprocessing import OneHotEncoder

    encoder = OneHotEncoder(
        sparse_output=False, dtype=np.float32, max_categories=MOST_CATEGORIES, handle_unknown="infrequent_if_exist"
    )
    return Matrices(encoder.fit_transform(train), encoder.transform(test))
