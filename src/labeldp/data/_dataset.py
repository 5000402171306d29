"""A data set as every study and demo takes it: features that are public, labels that are not, and where it is from.

>>> import numpy as np
>>> Dataset(
...     name="tiny",
...     X_train=np.zeros((3, 2)),
...     y_train=np.array([0, 1, 1]),
...     X_test=np.zeros((1, 2)),
...     y_test=np.array([0]),
...     classes=("no", "yes"),
...     feature_names=("a", "b"),
...     label_name="ill",
...     sensitive_label="an illness",
...     licence="none",
...     citation="made up",
... )
Dataset('tiny', 3 train + 1 test rows, 2 features, 2 classes of `ill`)

Design notes. Labels are codes (position in `classes`), or an indicator matrix with a column per class for multi-label
sets, so that one mechanism serves every set. Tables of mixed columns stay `pyarrow.Table`, because pandas is not a
dependency and text as a float matrix is a decision of the modeller; `matrix` makes the plain decision for those who
want a linear model at once. The repr counts rows and shows no label: data sets are printed in notebooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from labeldp._validate import check_choice
from labeldp.data._matrix import Matrices, array_matrices, table_matrices
from labeldp.errors import Described, invalid

CodeArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """Features and sensitive labels, split into train and test without a look at the labels.

    `X_train` and `X_test` are float32 arrays (images flat, in [0, 1], with `image_shape` to undo that) or
    `pyarrow.Table` for mixed tables, where `categorical` names the columns that are categories and `identifiers`
    those that name a person or a row and are no features. `y_*` are int64 codes into `classes`; a multi-label set
    has a uint8 indicator matrix with one column per class. `sensitive_label` says in words what the label tells.
    """

    name: str
    X_train: Any
    y_train: npt.NDArray[Any]
    X_test: Any
    y_test: npt.NDArray[Any]
    classes: tuple[str, ...]
    feature_names: tuple[str, ...]
    label_name: str
    sensitive_label: str
    licence: str
    citation: str
    categorical: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    image_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for part, X, y in (("train", self.X_train, self.y_train), ("test", self.X_test, self.y_test)):
            self._check_part(part, X, y)

    def _check_part(self, part: str, X: Any, y: npt.NDArray[Any]) -> None:
        if len(y) != X.shape[0]:
            got = Described(f"{len(y):,} labels for {X.shape[0]:,} rows")
            raise invalid(f"Dataset {self.name}", f"y_{part}", "have a label for every row", got=got)
        width = y.shape[1] if y.ndim == 2 else int(y.max(initial=0)) + 1
        if width > self.n_classes or (y.ndim == 2 and width != self.n_classes) or y.min(initial=0) < 0:
            must, got = "hold codes of `classes`", Described(f"{width} classes where {self.n_classes} are named")
            raise invalid(f"Dataset {self.name}", f"y_{part}", must, got=got)

    def __repr__(self) -> str:
        rows = f"{len(self.y_train):,} train + {len(self.y_test):,} test rows"
        kind = "labels" if self.multilabel else "classes"
        shape = f"{len(self.feature_names):,} features, {self.n_classes:,} {kind} of `{self.label_name}`"
        return f"Dataset({self.name!r}, {rows}, {shape})"

    @property
    def n_classes(self) -> int:
        """Number of classes; of labels for a multi-label set."""
        return len(self.classes)

    @property
    def multilabel(self) -> bool:
        """Whether a row may have several labels at once."""
        return self.y_train.ndim == 2

    @property
    def is_table(self) -> bool:
        """Whether the features are a `pyarrow.Table` of mixed columns."""
        return isinstance(self.X_train, pa.Table)

    def matrix(self) -> Matrices:
        """Return the features as two float32 matrices, ``(train, test)``, ready for a linear model.

        Categories become one column each (at most 50 a column; rarer ones share the last), numbers are centred and
        scaled by their train mean and deviation, identifiers are left out. Arrays whose train values already lie in
        [0, 1], such as images, stay as they are. Nothing here sees a label, so it costs no privacy. The answer is
        computed once.
        """
        return self._matrices

    @cached_property
    def _matrices(self) -> Matrices:
        if not self.is_table:
            return array_matrices(self.X_train, self.X_test)
        features = [name for name in self.feature_names if name not in self.identifiers]
        categorical = [name for name in features if name in self.categorical]
        numeric = [name for name in features if name not in self.categorical]
        return table_matrices(self.X_train, self.X_test, categorical=categorical, numeric=numeric)

    def table(self, *, part: str = "train") -> Any:
        """Return features and the label column, in words, as one `pyarrow.Table`: what an owner has on disk.

        `part` is "train" or "test". The label column is sensitive. A multi-label set has a column per label.
        """
        check_choice(f"Dataset {self.name}", "part", part, ("train", "test"))
        X, y = (self.X_train, self.y_train) if part == "train" else (self.X_test, self.y_test)
        if not self.is_table:
            X = pa.table({name: X[:, i] for i, name in enumerate(self.feature_names)})
        if self.multilabel:
            for i, name in enumerate(self.classes):
                X = X.append_column(name, pa.array(y[:, i]))
            return X
        codes = pa.array(y.astype(np.int32))
        return X.append_column(self.label_name, pa.DictionaryArray.from_arrays(codes, pa.array(self.classes)))
