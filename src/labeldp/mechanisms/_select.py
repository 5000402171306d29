"""From priors to candidate sets: the drivers around the compiled loops."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labeldp._threads import over_spans
from labeldp._validate import ROW_SUM_TOLERANCE, FloatArray, bad_row, check_probability_rows


class CandidateSets(NamedTuple):
    """A candidate set per row: packed bits (label j is bit j, little order) and their sizes."""

    members: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.uint32]

    def unpacked(self, n_classes: int) -> npt.NDArray[np.bool_]:
        """Return the sets as a boolean matrix."""
        return np.unpackbits(self.members, axis=1, count=n_classes, bitorder="little").astype(bool)


#: Threads take this many prior entries at a time (8 MiB of float64).
_ENTRIES = 1 << 20


def likeliest_sets(owner: str, prior: FloatArray, *, odds: float, first_row: int = 0) -> CandidateSets:
    """Return the optimal candidate set of each row of `prior` for RRWithPrior.

    `first_row` is the number of the first row in the whole data set, for messages.
    """
    from labeldp.mechanisms import _kernels as kernels  # compiled code loads only where it is used

    n, n_classes = prior.shape
    if math.isinf(odds):  # nothing is hidden: every label is kept, also one the prior thinks impossible
        check_probability_rows(owner, "prior", prior, first_row=first_row)
        return everything(n, n_classes)
    sets = CandidateSets(np.empty((n, (n_classes + 7) // 8), np.uint8), np.empty(n, np.uint32))
    # Beyond 1e30 the set is every label with more than 1e-30 of the mass: no narrower float32 overflow than that.
    select = kernels.select_tiles if n_classes <= kernels.LANES else kernels.select_rows
    bad: list[int] = []

    def work(low: int, high: int) -> None:
        part = slice(low, high)
        row = select(prior[part], min(odds, 1e30), tolerance, sets.members[part], sets.sizes[part])
        if row < high - low:
            bad.append(low + row)

    tolerance = ROW_SUM_TOLERANCE[prior.dtype]
    over_spans(work, n, step=max(kernels.LANES, _ENTRIES // n_classes))
    if bad:
        raise bad_row(owner, "prior", first_row + min(bad), prior[min(bad)])
    return sets


def everything(n: int, n_classes: int) -> CandidateSets:
    """Return n sets of all labels."""
    row = np.packbits(np.ones((1, n_classes), np.uint8), axis=1, bitorder="little")
    return CandidateSets(np.repeat(row, n, axis=0), np.full(n, n_classes, np.uint32))


def top_k_sets(prior: FloatArray, *, k: int) -> CandidateSets:
    """Return the k likeliest labels of each row; ties go to the lower label, whatever y is."""
    n, n_classes = prior.shape
    members = np.empty((n, (n_classes + 7) // 8), np.uint8)
    step = max(1, _ENTRIES // n_classes)
    for low in range(0, n, step):
        rows = prior[low : low + step]
        least = np.partition(rows, n_classes - k, axis=1)[:, n_classes - k, None]
        above = rows > least
        tied = rows == least
        room = k - above.sum(axis=1, keepdims=True)
        inside = above | (tied & (np.cumsum(tied, axis=1) <= room))
        members[low : low + step] = np.packbits(inside, axis=1, bitorder="little")
    return CandidateSets(members, np.full(n, k, np.uint32))
