"""The distinct values of counts: a million candidates have few hundred different counts, and only those matter.

>>> levels = find_levels(np.array([7, 2, 2, 9, 2]))
>>> levels.values.tolist(), levels.ends.tolist()
([9, 7, 2], [1, 2, 5])

Design notes. With sorted counts h_(1) >= h_(2) >= ..., the gap h_(j) - h_(j+1) is positive only at the end j of a
level. Counting (bincount) beats sorting where the largest count is not much larger than the number of candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

#: Counting needs an array as long as the largest count: at most this many times the candidates, and 1 MiB at least.
SPREAD = 2
SMALL = 1 << 17


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """Distinct counts in falling order, and at which rank (from 1) each of them ends."""

    values: Integers
    ends: Integers

    def value_at(self, rank: int) -> int:
        """Return the sorted count h_(rank); 0 beyond the last."""
        place = int(np.searchsorted(self.ends, rank))
        return int(self.values[place]) if place < self.values.size else 0

    def gap_at(self, rank: int) -> int:
        """Return h_(rank) - h_(rank + 1)."""
        return self.value_at(rank) - self.value_at(rank + 1)

    def gaps(self, most: int) -> tuple[Integers, Integers]:
        """Return the ranks <= `most` with a positive gap, and those gaps. After the last count comes 0."""
        cut = int(np.searchsorted(self.ends, most, side="right"))
        if cut == self.values.size and cut and self.values[-1] == 0:
            cut -= 1  # from 0 to 0 is no drop; all others are
        after = self.values[1 : cut + 1]
        drops = self.values[:cut].copy()
        drops[: after.size] -= after
        return self.ends[:cut], drops


def find_levels(counts: Integers) -> Levels:
    """Return the levels of nonnegative counts."""
    largest = int(counts.max()) if counts.size else 0
    if largest <= max(SPREAD * counts.size, SMALL):
        sizes = np.bincount(counts)
        values = np.flatnonzero(sizes)[::-1]
        return Levels(values=values, ends=np.cumsum(sizes[values]))
    # Half the bytes sort in half the time.
    ordered = np.sort(counts.astype(np.int32) if largest < 2**31 else counts)
    starts = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    return Levels(values=ordered[starts][::-1].astype(np.int64), ends=ordered.size - starts[::-1])
