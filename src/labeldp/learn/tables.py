"""Raw tables as features: a label-free transformer that a saved model carries, so that it predicts from a raw table.

>>> import pyarrow as pa
>>> train = pa.table({"age": [20, 40], "sex": ["f", "m"]})
>>> TableEncoder().fit(train).transform(pa.table({"sex": ["m", None], "age": [30, None]})).tolist()
[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]

Design notes. It never sees a label. Numbers, booleans and dates are centred and scaled; text becomes a column per
category, the most frequent ones apart and the rest as one. Columns are found by name, so their order does not matter
and columns that were not there before are ignored. Everything it learns is plain lists and numbers: skops stores it.

An owner's table on its way to training: features as a table, labels in their box, checked before anything is spent.

>>> import pyarrow as pa, tempfile, pathlib
>>> from labeldp.data import open_table, write_table
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name) / "clinic.parquet"
>>> table = pa.table({"age": [20, 40, 30, 50], "ill": ["no", "yes", "no", "yes"]})
>>> write_table([table], table.schema, path)
4
>>> read_labelled(open_table(path), label="ill").labels
<SensitiveLabels 'ill': 4 labels of 2 classes, contents hidden>
>>> folder.cleanup()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from labeldp.arrays import Float32s
from labeldp.data import TableSource, check_label, check_row_ids, label_profile
from labeldp.errors import Described, invalid, nearest
from labeldp.learn.classifier import LabelPrivateClassifier
from labeldp.learn.softmax import SoftmaxRegression
from labeldp.learn.stages import TEMPERATURE, interpolate_default
from labeldp.priors import Prior
from labeldp.release import SensitiveLabels
from labeldp.validate import check_integer

#: Enough for every country of Adult; thousands of codes would make the features wide and empty.
MOST_CATEGORIES = 50

#: The classifiers that the command line offers by name.
ESTIMATORS = ("softmax", "logistic", "forest", "boosting", "bayes")


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Numbers centred and scaled, categories as columns of zeros and ones; missing values are a mean, or no category.

    Parameters
    ----------
    max_categories : int
        Columns that one text column may become; rarer values share the last of them.
    columns : sequence of names, optional
        The features; by default every column of the table that `fit` sees.

    Edge cases
    ----------
    A value that `fit` never saw counts as a rare one, or as none if there are no rare ones. A constant column is zero.
    A number that is missing becomes the mean. A column of nothing but missing values is left out.
    """

    def __init__(self, *, max_categories: int = MOST_CATEGORIES, columns: Sequence[str] | None = None) -> None:
        self.max_categories = max_categories
        self.columns = columns

    def fit(self, X: Any, y: None = None) -> TableEncoder:
        """Learn means, scales and categories from the features; `y` is there for pipelines and is not looked at."""
        table = as_table(X)
        most = check_integer("TableEncoder", "max_categories", self.max_categories, least=2)
        names = list(table.column_names if self.columns is None else self.columns)
        require(table, names)
        self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_ = len(names)
        self.numbers_: dict[str, list[float]] = {}
        self.categories_: dict[str, list[str]] = {}
        self.rest_: dict[str, bool] = {}
        for name in names:
            column = plain(name, table[name])
            if pa.types.is_string(column.type):
                self.categories_[name], self.rest_[name] = frequent(column, most)
            elif column.null_count < len(column):
                self.numbers_[name] = location(name, column)
        if not self.numbers_ and not self.categories_:
            raise invalid("TableEncoder", "X", "have features", got=Described("no column with values"))
        return self

    def transform(self, X: Any) -> Float32s:
        """Return the features as float32, numbers first and then categories, in the order of `feature_names_in_`."""
        check_is_fitted(self, "numbers_")
        table = as_table(X)
        require(table, [*self.numbers_, *self.categories_])
        blocks = [scaled(name, plain(name, table[name]), *facts) for name, facts in self.numbers_.items()]
        for name, words in self.categories_.items():
            blocks.append(indicators(plain(name, table[name]).cast(pa.string()), words, rest=self.rest_[name]))
        return np.hstack(blocks)


def as_table(X: Any) -> Any:
    """Return a `pyarrow.Table`; data frames that speak Arrow (pandas, polars) are taken as they are."""
    if isinstance(X, pa.Table):
        return X
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if hasattr(X, "__arrow_c_stream__"):
        return pa.table(X)
    fix = "Pass a pyarrow table or a data frame."
    raise invalid("TableEncoder", "X", "be a table with named columns", got=type(X).__name__, fix=fix)


def require(table: Any, names: Sequence[str]) -> None:
    """Refuse a table without one of the features, naming those that look like it."""
    for name in names:
        if name not in table.column_names:
            fix = nearest(name, table.column_names)
            raise invalid("TableEncoder", "X", f"have the feature column {name!r}", got=Described("none"), fix=fix)


def plain(name: str, column: Any) -> Any:
    """Return a column as text or float64; nested and binary columns are refused."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(name, column.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return column.cast(width).cast(pa.float64(), safe=False)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    fix = "Leave it out (--drop), or turn it into numbers or text first."
    raise invalid("TableEncoder", name, "be numbers, text, booleans or dates", got=Described(str(kind)), fix=fix)


def location(name: str, column: Any) -> list[float]:
    """Return mean and standard deviation of the values that are there; a constant column has scale 1."""
    values = finite(name, column)
    there = values[~np.isnan(values)]
    if not len(there):
        return [0.0, 1.0]
    scale = float(there.std())
    return [float(there.mean()), scale if scale > 0 else 1.0]


def finite(name: str, column: Any) -> npt.NDArray[np.float64]:
    """Return float64 with NaN for what is missing; infinity is refused."""
    values: npt.NDArray[np.float64] = (
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    )
    values = np.asarray(values, np.float64)
    if np.isinf(values).any():
        fix = "Clip it, or mark it as missing."
        raise invalid("TableEncoder", name, "be finite", got=Described("an infinite value"), fix=fix)
    return values


def scaled(name: str, column: Any, mean: float, scale: float) -> Float32s:
    """Return one centred and scaled column; what is missing becomes the mean, which is 0."""
    if pa.types.is_string(column.type):
        fix = "It held numbers when the model was trained."
        raise invalid("TableEncoder", name, "be numbers", got=Described("text"), fix=fix)
    answer = (finite(name, column) - mean) / scale
    return np.nan_to_num(answer, nan=0.0).astype(np.float32)[:, None]


def frequent(column: Any, most: int) -> tuple[list[str], bool]:
    """Return the categories that get a column, sorted, and whether the others share one."""
    counts = [(-pair["counts"].as_py(), pair["values"].as_py()) for pair in pc.value_counts(column.drop_null())]
    counts.sort()
    kept = counts if len(counts) <= most else counts[: most - 1]
    return sorted(word for _, word in kept), len(kept) < len(counts)


def indicators(column: Any, words: list[str], *, rest: bool) -> Float32s:
    """Return a column of zeros and ones per category, and one for all others if there were others."""
    codes = pc.index_in(column, value_set=pa.array(words, pa.string()))
    other = len(words) if rest else -1
    found = pc.fill_null(codes, other).to_numpy()
    found = np.where(pc.is_null(column).to_numpy(), -1, found)
    matrix = np.zeros((len(found), len(words) + rest), np.float32)
    rows = np.flatnonzero(found >= 0)
    matrix[rows, found[rows]] = 1.0
    return matrix


def table_classifier(
    estimator: str = "softmax",
    *,
    epsilon: float,
    columns: Sequence[str],
    stages: int = 1,
    prior: Prior | None = None,
    correction: str = "auto",
    random_state: Any = None,
    ledger: Any = None,
    label_set: str = "labels",
) -> LabelPrivateClassifier:
    """Return a classifier that takes raw tables: owner and receiver build it here, so that they train the same model.

    The temperature is rounded: a receiver knows epsilon from a guarantee that rounds up in its last digit.
    """
    steps = [("table", TableEncoder(columns=list(columns))), ("classifier", named_estimator(estimator))]
    return LabelPrivateClassifier(
        Pipeline(steps),
        epsilon=epsilon,
        stages=stages,
        prior=prior,
        correction=correction,
        temperature=round(interpolate_default(TEMPERATURE, epsilon), 6),
        random_state=random_state,
        ledger=ledger,
        label_set=label_set,
    )


def named_estimator(name: str) -> BaseEstimator:
    """Return a fresh classifier of a few that are good at tables; its own seed is fixed, which sees no raw label."""
    if name == "softmax":
        return SoftmaxRegression()
    if name == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=500)
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        # Leaves of 20: noisy labels need averaging where a tree would otherwise remember each of them.
        return RandomForestClassifier(n_estimators=100, min_samples_leaf=20, n_jobs=-1, random_state=0)
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    if name == "bayes":
        from sklearn.naive_bayes import GaussianNB

        return GaussianNB()
    raise invalid("train", "estimator", "be one that has a name here", got=name, fix=nearest(name, ESTIMATORS))


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTable:
    """Features with their boxed labels; `dropped` rows had no label."""

    features: Any = field(repr=False)
    labels: SensitiveLabels
    dropped: int


def feature_columns(source: TableSource, *, label: str | None, leave_out: Sequence[str] = ()) -> list[str]:
    """Return the columns of a table that are features: all but the label and those left out."""
    source.require(*leave_out, *([] if label is None else [label]))
    return [name for name in source.names if name != label and name not in leave_out]


def read_columns(source: TableSource, columns: Sequence[str]) -> Any:
    """Return some columns of a table in memory."""
    schema = pa.schema([source.schema.field(name) for name in columns])
    return pa.Table.from_batches(source.batches(columns=list(columns)), schema=schema)


def read_labelled(
    source: TableSource,
    *,
    label: str,
    leave_out: Sequence[str] = (),
    classes: Sequence[Any] | None = None,
    missing: str = "error",
    row_ids: str | None = None,
    label_set: str | None = None,
) -> LabelledTable:
    """Read a table after the same checks as a release: missing labels, lone values, constants, repeated row ids."""
    away = [*leave_out, *([row_ids] if row_ids else [])]
    columns = feature_columns(source, label=label, leave_out=away)
    check_label(label_profile(source, label), missing=missing, classes=classes)
    if row_ids:
        check_row_ids(source, row_ids)
    table = read_columns(source, [*columns, label, *([row_ids] if row_ids else [])])
    absent = pc.is_null(table[label], nan_is_null=True)
    dropped = int(pc.sum(absent).as_py() or 0)
    if dropped:
        table = table.filter(pc.invert(absent))
    boxed = SensitiveLabels(
        decoded_column(table[label]),
        classes=classes,
        name=label if label_set is None else label_set,
        row_ids=table[row_ids].to_pylist() if row_ids else None,
    )
    return LabelledTable(features=table.select(columns), labels=boxed, dropped=dropped)


def decoded_column(column: Any) -> Any:
    """Return a dictionary column as plain values: its dictionary was read off the labels, and says so that way."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
