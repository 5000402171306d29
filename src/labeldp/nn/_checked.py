"""What a `NetClassifier` is given, checked: examples, soft targets and likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch.utils.data import Dataset

from labeldp.errors import Described, invalid

Floats = npt.NDArray[np.floating[Any]]


def checked_examples(learner: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return a Dataset as it is, and anything else as an array: bytes stay bytes, other numbers become float32."""
    if isinstance(X, Dataset):
        if len(X) < 1:  # type: ignore[arg-type]  # a Dataset without a length is refused by len
            raise invalid("NetClassifier", "X", "have examples", got=Described("an empty Dataset"))
        if learner.module == "ncf":
            raise invalid("NetClassifier", "X", "be an array of pairs for 'ncf'", got=Described("a Dataset"))
        return X
    if getattr(X, "ndim", 2) <= 2:
        dtype = np.float64 if learner.module == "ncf" else np.float32
        rows = validate_data(learner, X, dtype=dtype, reset=reset)
        return rows if learner.module != "ncf" else whole_numbers(rows)
    array = np.asarray(X)
    if array.ndim not in (3, 4):
        got = Described(f"an array with {array.ndim} axes")
        must = "be rows (n, d), views (n, views, d) or images (n, channels, height, width)"
        raise invalid("NetClassifier", "X", must, got=got)
    if array.dtype != np.uint8:
        array = check_array(array, dtype=np.float32, allow_nd=True, input_name="X", estimator=learner)
    if reset:
        learner.n_features_in_ = array.shape[2] if array.ndim == 3 else int(np.prod(array.shape[1:]))
        learner.__dict__.pop("feature_names_in_", None)
    return array


def whole_numbers(rows: Floats) -> Floats:
    """Refuse numbers of users and items that are negative or not whole."""
    wrong = (rows < 0) | (rows != np.floor(rows))
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        got = Described(f"{rows[row].tolist()} in row {row}")
        raise invalid("NetClassifier", "X", "hold user and item numbers 0, 1, 2, ...", got=got)
    return rows


def matrix_for(name: str, values: Any, n: int, n_classes: int) -> Floats:
    """Return a finite matrix with a row per example and a column per class."""
    if n_classes < 2:
        raise invalid("NetClassifier", "classes", "be two or more", got=Described(f"{n_classes}"))
    matrix = np.asarray(values)
    if matrix.dtype.kind not in "fiu" or matrix.shape != (n, n_classes):
        got = Described(f"an array of shape {matrix.shape}")
        raise invalid("NetClassifier", name, f"have shape ({n}, {n_classes})", got=got)
    if not np.isfinite(matrix).all():
        raise invalid("NetClassifier", name, "be finite", got=Described("NaN or infinity"))
    return matrix


def checked_targets(targets: Floats) -> Floats:
    """Refuse rows that do not sum to one; rounding grows with the largest entry of a signed row."""
    sums = targets.sum(axis=1, dtype=np.float64)
    wrong = np.abs(sums - 1.0) > 1e-4 * np.maximum(1.0, np.abs(targets).max(axis=1))  # float32 targets are welcome
    if wrong.any():
        row = int(np.argmax(wrong))
        got = Described(f"a sum of {sums[row]:.9g} in row {row}")
        raise invalid("NetClassifier", "targets", "have rows that sum to 1", got=got)
    return targets


def checked_likelihood(likelihood: Floats) -> Floats:
    """Refuse a row that no label explains, and negative chances."""
    wrong = (likelihood < 0).any(axis=1) | (likelihood.max(axis=1) <= 0)
    if wrong.any():
        got = Described(f"row {int(np.argmax(wrong))}")
        fix = "What was observed has a chance under some label."
        raise invalid("NetClassifier", "likelihood", "be >= 0 and not all zero in a row", got=got, fix=fix)
    return likelihood
