"""From a batch of columns to what a fitted model wants to see.

Design notes. A model that remembers column names gets an Arrow table of them, which scikit-learn accepts and whose
names it checks; one that does not gets the numeric columns as a matrix, in the order of the table. pandas is not
needed. Labels never enter: the label column and those named apart are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from labeldp.data.tables import TableSource
from labeldp.engines._rows import numbers, numeric_columns
from labeldp.errors import Described, invalid


@dataclass(frozen=True, kw_only=True)
class Features:
    """Which columns a model takes, and whether it knows them by name."""

    columns: tuple[str, ...]
    by_name: bool

    def of(self, batch: Any) -> Any:
        """Return a batch's features: an Arrow table by name, or a float matrix."""
        if not self.by_name:
            return numbers(batch, self.columns)
        return pa.table({name: _plain(batch.column(name)) for name in self.columns})


def features_for(model: Any, source: TableSource, *, apart: Sequence[str]) -> Features:
    """Return the columns that a model was fitted on, or all numeric ones if it has forgotten their names."""
    named = getattr(model, "feature_names_in_", None)
    if named is not None:
        names = tuple(str(name) for name in named)
        source.require(*names)
        _check_apart(names, apart)
        return Features(columns=names, by_name=True)
    names = tuple(numeric_columns(source, but=apart))
    wanted = getattr(model, "n_features_in_", len(names))
    if wanted != len(names):
        got = Described(f"a model of {wanted} features for {len(names)} numeric columns")
        fix = "Fit it on a table with named columns, so that it knows which it wants."
        raise invalid("privatize_table", "model", "take the table's numeric columns", got=got, fix=fix)
    return Features(columns=names, by_name=False)


def _check_apart(names: Sequence[str], apart: Sequence[str]) -> None:
    """A model that reads the label is no prior: it would see, for free, what is to be hidden."""
    seen = next((name for name in names if name in apart), None)
    if seen is not None:
        fix = "Fit it without the label and the row ids."
        raise invalid("privatize_table", "model", "not take the label as a feature", got=seen, fix=fix)


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
