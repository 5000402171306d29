"""What mechanisms accept as a prior: one row for all, a row per group, a row per example, whole or in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from labeldp._validate import FloatArray, as_float_matrix, check_integer
from labeldp.errors import Described, invalid


def check_n_classes(owner: str, n_classes: Any) -> int:
    """Return the number of classes, at least two."""
    if n_classes is None:
        raise invalid(owner, "n_classes", "be given", got=None, fix="Pass n_classes= or a prior.")
    fix = "With a single class the label says nothing: there is nothing to protect."
    return check_integer(owner, "n_classes", n_classes, least=2, most=(1 << 31) - 1, fix=fix)


def is_streamed(prior: Any) -> bool:
    """Whether a prior comes in batches: an iterator, or a list or tuple of matrices."""
    if isinstance(prior, Iterator):
        return True
    return isinstance(prior, (list, tuple)) and len(prior) > 0 and np.ndim(prior[0]) == 2


def batches_of(owner: str, prior: Any, n_classes: int | None) -> Iterator[FloatArray]:
    """Yield a per-example prior as float matrices of one width and one precision."""
    pieces: Iterable[Any] = prior if is_streamed(prior) else (prior,)
    first: FloatArray | None = None
    for piece in pieces:
        matrix = as_float_matrix(owner, "prior", piece)
        expected = n_classes if first is None else first.shape[1]
        check_width(owner, matrix.shape[1], expected)
        if first is not None and matrix.dtype != first.dtype:
            got = Described(f"{first.dtype} and then {matrix.dtype}")
            raise invalid(owner, "prior", "have one precision in all batches", got=got)
        first = matrix if first is None else first
        yield matrix
    if first is None:
        raise invalid(owner, "prior", "have at least one batch", got=Described("none"))


def check_width(owner: str, width: int, n_classes: int | None) -> int:
    """Return the number of columns of a prior, which must be the number of classes."""
    check_n_classes(owner, width)
    if n_classes is not None and width != n_classes:
        got = Described(f"{width} columns")
        raise invalid(owner, "prior", f"have {n_classes} columns, one per class", got=got)
    return width
