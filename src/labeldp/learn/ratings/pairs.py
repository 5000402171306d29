"""Who rated what, which is public, and noisy sums of what they gave.

`PairTable` turns ids into positions, and the 0/1 matrix of who rated what into features of the ids: its
leading singular vectors, divided by the square roots of the counts and shrunk for ids with few ratings, beside the
logarithm of the count. They look at no rating and cost no privacy: that a person rated a film is public here, how is not.

>>> table = PairTable.of([("ann", 7), ("bob", 7), ("ann", 9)])
>>> table.users.tolist(), table.items.tolist(), table.find([("bob", 9), ("eve", 7)])
([0, 1, 0], [0, 0, 1], (array([1, 2]), array([1, 0])))

What the answer to a single rating says of its mean is `labeldp.channel.MeanEvidence`, as for any number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s
from labeldp.errors import Described, invalid


@dataclass(frozen=True, kw_only=True, eq=False)
class CellSums:
    """Noisy sums of ratings over cells (own id, group of the other id): `sums` (n_own, G), each with `noise_variance`.

    `groups` is the public group of every id of the other side.
    """

    sums: Floats
    groups: npt.NDArray[np.int64]
    noise_variance: float

    @property
    def n_groups(self) -> int:
        """Cells per own id."""
        return int(self.sums.shape[1])


#: Pseudo-counts that keep rare ids from dominating the singular vectors, and their vectors from being noise.
_RARE, _SHRINK = 5.0, 10.0
#: A feature needs this many ids to be told from noise; a singular value below the other share of the largest is rounding.
_IDS_PER_FEATURE, _NOTHING = 20, 1e-6
#: Standardised features end here: a few ids with extreme vectors must not steer a regression.
_FARTHEST = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTable:
    """Ids of both sides, sorted, and every pair as positions in them."""

    user_ids: npt.NDArray[Any]
    item_ids: npt.NDArray[Any]
    users: Int64s
    items: Int64s

    @classmethod
    def of(cls, pairs: Any) -> PairTable:
        """Encode pairs: an (n, 2) array, a list of tuples, or two columns."""
        left, right = split_pairs(pairs)
        user_ids, users = np.unique(left, return_inverse=True)
        item_ids, items = np.unique(right, return_inverse=True)
        return cls(user_ids=user_ids, item_ids=item_ids, users=users.astype(np.int64), items=items.astype(np.int64))

    @property
    def n_users(self) -> int:
        """Distinct ids on the left."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Distinct ids on the right."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> PairTable:
        """Return some of the pairs, with the ids of all."""
        return replace(self, users=self.users[rows], items=self.items[rows])

    def find(self, pairs: Any) -> tuple[Int64s, Int64s]:
        """Return the positions of new pairs; an id that is not known is one past the last."""
        left, right = split_pairs(pairs)
        return find_ids(left, self.user_ids), find_ids(right, self.item_ids)

    def features(self, dimensions: int) -> tuple[Floats, Floats]:
        """Return features of users and items, first column one; with 0 `dimensions` that column alone."""
        if dimensions == 0:
            return np.ones((self.n_users, 1)), np.ones((self.n_items, 1))
        return pair_features(self.users, self.items, self.n_users, self.n_items, dimensions=dimensions)


def split_pairs(pairs: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return two columns of ids: integers, or text for everything else."""
    if isinstance(pairs, np.ndarray) and pairs.ndim == 2 and pairs.shape[1] == 2:
        left, right = pairs[:, 0], pairs[:, 1]
    else:
        rows = list(pairs)
        if not rows or any(np.ndim(row) != 1 or len(row) != 2 for row in rows):
            raise invalid("ratings", "pairs", "be rows of (user, item)", got=Described("something else"))
        left, right = np.asarray([row[0] for row in rows]), np.asarray([row[1] for row in rows])
    return as_ids(left), as_ids(right)


def as_ids(column: Any) -> npt.NDArray[Any]:
    """Return a column of ids as int64 or text; a missing or fractional id is refused."""
    array = np.asarray(column)
    if array.ndim != 1 or len(array) == 0:
        raise invalid("ratings", "pairs", "hold at least one pair", got=Described(f"shape {array.shape}"))
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        if not np.all(np.isfinite(array) & (array == np.rint(array))):
            raise invalid("ratings", "pairs", "have whole or text ids", got=Described("a missing or fractional id"))
        return array.astype(np.int64)
    if any(value is None or value != value for value in array.tolist()):  # noqa: PLR0124 - NaN is not itself
        raise invalid("ratings", "pairs", "have whole or text ids", got=Described("a missing id"))
    return array.astype(str)


def find_ids(ids: npt.NDArray[Any], known: npt.NDArray[Any]) -> Int64s:
    """Return positions in a sorted list, its length for ids that are not in it."""
    if (ids.dtype.kind == "U") != (known.dtype.kind == "U"):
        ids = ids.astype(str) if known.dtype.kind == "U" else np.full(len(ids), known.max() + 1)
    position = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    answer: Int64s = np.where(known[position] == ids, position, len(known)).astype(np.int64)
    return answer


def pair_features(
    users: Int64s, items: Int64s, n_users: int, n_items: int, *, dimensions: int
) -> tuple[Floats, Floats]:
    """Return standardised features of both sides from the matrix of pairs alone."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import svds

    seen = csr_matrix((np.ones(len(users)), (users, items)), shape=(n_users, n_items))
    seen.data[:] = 1.0  # a pair that occurs twice is one pair
    by_user, by_item = np.asarray(seen.sum(axis=1)).ravel(), np.asarray(seen.sum(axis=0)).ravel()
    keep = min(dimensions, min(n_users, n_items) // _IDS_PER_FEATURE)
    if keep < 2:
        return standardise(np.empty((n_users, 0)), by_user), standardise(np.empty((n_items, 0)), by_item)
    scaled = seen.multiply(1 / np.sqrt(by_user + _RARE)[:, None]).multiply(1 / np.sqrt(by_item + _RARE)[None]).tocsr()
    # A fixed start: the features are a function of the pairs.
    left, size, right = svds(scaled, k=keep, v0=np.random.default_rng(0).standard_normal(min(n_users, n_items)))
    # svds lists from small to large. The first pair of vectors is the counts again; those of size zero are arbitrary.
    order = np.argsort(-size, kind="stable")[1:]
    order = order[size[order] > _NOTHING * size.max()]
    return standardise(left[:, order], by_user), standardise(right[order].T, by_item)


def standardise(vectors: Floats, counts: Floats) -> Floats:
    """Return the columns 1, shrunk vectors, log count and its square; each with mean 0 and deviation 1, and clipped."""
    shrunk = vectors / np.sqrt(counts + _RARE)[:, None] * (counts / (counts + _SHRINK))[:, None]
    size = np.log1p(counts)
    columns = np.column_stack([shrunk, size, size**2])
    deviation = columns.std(axis=0)
    # A constant column has a deviation of rounding alone, and becomes zero.
    deviation[deviation <= 1e-9 * np.abs(columns).max(axis=0)] = np.inf
    centred = (columns - columns.mean(axis=0)) / deviation
    return np.column_stack([np.ones(len(counts)), np.clip(centred, -_FARTHEST, _FARTHEST)])
