"""Compiled loops of the patch features: responses are rectified, both signs, and pooled in one pass.

>>> import numpy as np
>>> edges = bin_edges(23, 4)
>>> edges.tolist()
[[0, 6], [5, 12], [11, 18], [17, 23]]
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt


def bin_edges(length: int, bins: int) -> npt.NDArray[np.int64]:
    """Return [first, last + 1) of each pooling bin: equal shares of the length, rounded outwards so that none is empty."""
    at = np.arange(bins, dtype=np.int64)
    return np.stack([at * length // bins, -(-(at + 1) * length // bins)], axis=1)


@numba.njit(cache=True, nogil=True, fastmath=True)
def pool_rectified(
    responses: npt.NDArray[np.float32],
    threshold: np.float32,
    rows: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    out: npt.NDArray[np.float32],
) -> None:
    """Add to out (n, bins, bins, 2, M) the means over each bin of max(z - t, 0) and max(-z - t, 0).

    `responses` is (n, height, width, M). Rows are summed over the column bins first, so that a response is read once.
    """
    n, height, width, filters = responses.shape
    bins = rows.shape[0]
    line = np.empty((bins, 2, filters), np.float32)
    for image in range(n):
        for r in range(height):
            line[:] = 0.0
            for c in range(width):
                for b in range(bins):
                    if columns[b, 0] <= c < columns[b, 1]:
                        for m in range(filters):
                            z = responses[image, r, c, m]
                            line[b, 0, m] += max(z - threshold, np.float32(0.0))
                            line[b, 1, m] += max(-z - threshold, np.float32(0.0))
            for a in range(bins):
                if rows[a, 0] <= r < rows[a, 1]:
                    for b in range(bins):
                        size = (rows[a, 1] - rows[a, 0]) * (columns[b, 1] - columns[b, 0])
                        share = np.float32(1.0) / np.float32(size)
                        for m in range(filters):
                            out[image, a, b, 0, m] += line[b, 0, m] * share
                            out[image, a, b, 1, m] += line[b, 1, m] * share
