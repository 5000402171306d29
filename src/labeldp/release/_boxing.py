"""Labels on their way into a learner: checked as scikit-learn checks them, and boxed. Every learner takes y this way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _assert_all_finite, column_or_1d

from labeldp.errors import Described, invalid
from labeldp.release._labels import SensitiveLabels


def boxed_labels(owner: str, y: Any, *, n_rows: int, classes: Sequence[Any] | None, label_set: str) -> SensitiveLabels:
    """Return one boxed label for each of the rows, of two classes or more."""
    if y is None:
        fix = "This learner requires y to be passed, but the target y is None."
        raise invalid(owner, "y", "be given", got=None, fix=fix)
    boxed = _agreed(owner, y, classes) if isinstance(y, SensitiveLabels) else _boxed(owner, y, classes, label_set)
    if n_rows != len(boxed):
        got = Described(f"{len(boxed)} for {n_rows} rows")
        raise invalid(owner, "y", "have one label per row of X (inconsistent numbers of samples)", got=got)
    if boxed.n_classes < 2:
        got, fix = Described("1 class"), "Pass classes=, the full public list; a class need not occur."
        raise invalid(owner, "y", "have two classes or more", got=got, fix=fix)
    return boxed


def _boxed(owner: str, y: Any, classes: Sequence[Any] | None, label_set: str) -> SensitiveLabels:
    plain = y
    if not hasattr(y, "dtype") or isinstance(y, np.ndarray):
        plain = column_or_1d(y, warn=True)
        _assert_all_finite(plain, input_name="y", estimator_name=owner)
        check_classification_targets(plain)
    return SensitiveLabels(plain, classes=classes, name=label_set)


def _agreed(owner: str, labels: SensitiveLabels, classes: Sequence[Any] | None) -> SensitiveLabels:
    """Refuse boxed labels whose classes are not the ones asked for."""
    if classes is not None and tuple(np.asarray(classes).tolist()) != labels.classes:
        got = Described(f"{len(classes)} for labels that have their own {labels.n_classes}")
        fix = "Leave classes out: SensitiveLabels know theirs."
        raise invalid(owner, "classes", "be those of the labels", got=got, fix=fix)
    return labels
