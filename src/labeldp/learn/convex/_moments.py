r"""`ClassMoments`: the sums of feature rows by class, on a fixed-point grid, as a query with exact integer noise.

Rows are cut to integers towards zero, |x_ij| 2^bits / R rounded down, so that no norm grows: the clip bound holds for
the integers. The statistic is the integer matrix M[k] = sum over i with y_i = k of x_i. A replaced label takes the row
x_i from one class and adds it to another: |change|_1 = 2 |x_i|_1 and |change|_2 = sqrt 2 |x_i|_2, the worst over the
public rows at hand. With two classes only M[1] is measured, at half the 1-norm and 1/sqrt 2 of the 2-norm; the sum of
all rows is public.

>>> import numpy as np
>>> query = ClassMoments(rows=np.array([[3, -4], [1, 0]]))
>>> query.sensitivity(n_classes=3).l1, round(query.sensitivity(n_classes=3).l2, 6), query.sensitivity(n_classes=2).l1
(14.0, 7.071068, 7.0)
>>> query.exact(np.array([2, 0]), n_classes=3).tolist()
[[1, 0], [0, 0], [3, -4]]

Design notes. The sums are integers, so that neighbours' statistics differ exactly by what is said here, and discrete
noise hides it without a thought about floating point. What the learner then solves with is the same cut rows: the
grid costs no bias. The class sums add up to the sum of all rows, which is public; `completed` uses that to take a K-th of
the noise away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from labeldp.errors import Described, invalid
from labeldp.release import Query, Sensitivity

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassMoments(Query):
    """Sums of public integer rows (n, D), dense or csr, by class: (K, D), or (1, D) for the second of two classes."""

    rows: Any

    def __post_init__(self) -> None:
        if self.rows.dtype != np.int64 or self.rows.ndim != 2:
            got = Described(f"{self.rows.dtype} of shape {self.rows.shape}")
            raise invalid("ClassMoments", "rows", "be an int64 matrix", got=got)
        top = int(abs(self.rows).max()) if self.rows.shape[0] and self.rows.shape[1] else 0
        # A sum of n entries, and a sum of D squares, must stay within int64.
        if top * self.rows.shape[0] >= 1 << 62 or top * top * self.rows.shape[1] >= 1 << 62:
            got = Described(f"{self.rows.shape[0]} rows with entries up to {top}")
            raise invalid("ClassMoments", "rows", "have sums that fit in 64 bits", got=got, fix="Use fewer grid_bits.")

    def sensitivity(self, *, n_classes: int) -> Sensitivity:
        """2 |x|_1 and sqrt 2 |x|_2 of the worst row, halved and by sqrt 2 for two classes; rounded up."""
        l1 = int(np.asarray(abs(self.rows).sum(axis=1)).max(initial=0))
        squares = self.rows.multiply(self.rows) if scipy.sparse.issparse(self.rows) else self.rows * self.rows
        square = int(np.asarray(squares.sum(axis=1)).max(initial=0))
        copies = 1 if n_classes == 2 else 2
        root = math.sqrt(copies * square)
        return Sensitivity(float(copies * l1), math.nextafter(root, math.inf) if square else 0.0)

    def exact(self, codes: npt.NDArray[Any], *, n_classes: int) -> Integers:
        """Sum in integers."""
        if len(codes) != self.rows.shape[0]:
            got = Described(f"{self.rows.shape[0]} for {len(codes)} labels")
            raise invalid("ClassMoments", "rows", "have one row per label", got=got)
        members = scipy.sparse.csr_matrix(
            (np.ones(len(codes), np.int64), (codes.astype(np.int64), np.arange(len(codes)))),
            shape=(n_classes, len(codes)),
        )
        sums = members @ self.rows
        dense: Integers = sums.toarray() if scipy.sparse.issparse(sums) else np.asarray(sums)
        return dense[1:] if n_classes == 2 else dense


def on_grid(rows: Any, *, bound: float, bits: int) -> Any:
    """Return floor(|x| 2^bits / bound) with the sign of x, as int64, dense or csr.

    Rows that were clipped with room to spare (`CLIP_ROOM`) have integer norms of at most 2^bits, the product's rounding
    included; in any case sensitivity is computed from the integers, not from the bound.
    """
    scale = 2.0**bits / bound
    if scipy.sparse.issparse(rows):
        cut = rows.copy()
        cut.data = np.trunc(cut.data * scale)
        cut = scipy.sparse.csr_matrix(cut, dtype=np.int64)
        cut.eliminate_zeros()
        return cut
    return np.trunc(rows * scale).astype(np.int64)


def completed(noisy: Floats, total: Floats) -> Floats:
    """Return class sums that add up to the public `total`: two classes from one, or K projected on that plane.

    Projection keeps a share (K - 1)/K of the noise variance and moves nothing else.
    """
    if len(noisy) == 1:
        return np.concatenate([total[None, :] - noisy, noisy])
    sums: Floats = noisy + (total - noisy.sum(axis=0)) / len(noisy)
    return sums
