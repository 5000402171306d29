"""What a learner of ratings may know: who rated what, and released outputs, noisy sums or plain numbers.

*Pairs* are public. `PairTable` turns ids into positions, and the 0/1 matrix of who rated what into features of the ids: its
leading singular vectors, divided by the square roots of the counts and shrunk for ids with few ratings, beside the
logarithm of the count. They look at no rating and cost no privacy: that a person rated a film is public here, how is not.

>>> table = PairTable.of([("ann", 7), ("bob", 7), ("ann", 9)])
>>> table.users.tolist(), table.items.tolist(), table.find([("bob", 9), ("eve", 7)])
([0, 1, 0], [0, 0, 1], (array([1, 2]), array([1, 0])))

*The law of a rating given its mean* turns any channel's output into evidence about the mean. `RatingFamily` tabulates a
discretised normal, p[y] ~ exp(-(v[y] - c)^2 / (2 d)), tilted to the mean. Its dispersion d is public: by default a
quarter of the range, squared, which leaves two standard deviations to either side of the middle.

>>> family = RatingFamily.of((1, 2, 3, 4, 5))
>>> family.law(3.0).round(3).tolist()
[0.054, 0.244, 0.403, 0.244, 0.054]

*Outputs of a channel.* For an output o of a channel T at mean m, with the label's law p(m): the score is
s = (T[., o].dp) / (T[., o].p), the derivative of the log likelihood, and the Fisher information of the whole channel is
I = sum_o (T[., o].dp)^2 / (T[., o].p). One scoring step from m gives the pseudo-target m + s / I of weight I: E[s] = 0 and
Var[s] = I, so at the true mean it is unbiased with variance 1 / I, whatever the channel is.

>>> import labeldp
>>> channel = labeldp.RandomizedResponse(1.0, n_classes=3).channel()
>>> told = Responses.read(np.array([0, 2, 2]), channel, RatingFamily.of((1, 2, 3)))
>>> told.column.tolist(), told.score.shape[0], told.information.shape[0]
([0, 2, 2], 3, 1)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labeldp.arrays import Floats, Int64s, Ints
from labeldp.channel import FiniteChannel
from labeldp.errors import Described, invalid
from labeldp.mechanisms.optimal import slopes, tilted_laws


@dataclass(frozen=True, kw_only=True, eq=False)
class Responses:
    """Released outputs: `column` and `matrix` of each example, tables of scores per column and information per matrix."""

    column: npt.NDArray[np.int32]
    matrix: npt.NDArray[np.int32]
    score: Floats
    information: Floats

    @classmethod
    def read(cls, codes: Ints, channel: FiniteChannel, family: RatingFamily) -> Responses:
        """Tabulate a release; examples with the same matrix share a table."""
        matrix, firsts = distinct_matrices(channel, len(codes))
        dense = np.stack([channel.matrix(int(first)) for first in firsts])
        chance = np.einsum("qk,gkm->gmq", family.laws, dense)
        change = np.einsum("qk,gkm->gmq", family.slopes, dense)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(chance > 0, change / chance, 0.0)
        outputs = dense.shape[2]
        return cls(
            column=(matrix * outputs + codes).astype(np.int32),
            matrix=matrix.astype(np.int32),
            score=score.reshape(-1, len(family.grid)),
            information=(score * change).sum(axis=1),
        )

    def mean(self, family: RatingFamily) -> float:
        """Return the likeliest common mean of all labels: where the total score, summed up along the grid, is largest.

        The sum is the log likelihood. A zero of the score would not do: scores also vanish at the ends of the grid.
        """
        counts = np.bincount(self.column[self.column >= 0], minlength=len(self.score))
        return float(family.grid[np.argmax(np.cumsum(counts @ self.score))])

    def take(self, rows: Ints) -> Responses:
        """Return the evidence of some ratings."""
        return Responses(
            column=self.column[rows], matrix=self.matrix[rows], score=self.score, information=self.information
        )

    def place(self, rows: Ints, n: int) -> Responses:
        """Return the same evidence among n ratings, of which only `rows` have some."""
        column, matrix = np.full(n, -1, np.int32), np.zeros(n, np.int32)
        column[rows], matrix[rows] = self.column, self.matrix
        return Responses(column=column, matrix=matrix, score=self.score, information=self.information)


def distinct_matrices(channel: FiniteChannel, n: int) -> tuple[npt.NDArray[np.int64], Ints]:
    """Return which matrix each of n examples has, and an example of each; by what the channel stores per example."""
    arrays = channel.example_arrays()
    if not arrays:
        return np.zeros(n, np.int64), np.zeros(1, np.int64)
    keys = np.column_stack([np.asarray(array).reshape(n, -1) for array in arrays.values()])
    _, firsts, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return index.reshape(-1).astype(np.int64), firsts


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


#: Grid points of the mean: a hundredth of a star for five stars.
_POINTS = 381
#: The grid ends this share of the range from its ends, where a mean says that all labels are the same.
_MARGIN = 0.025


@dataclass(frozen=True, kw_only=True, eq=False)
class RatingFamily:
    """Laws on a grid of means: `laws` (Q, K), their derivatives `slopes` (Q, K), and `variances` (Q,)."""

    values: Floats
    grid: Floats
    laws: Floats
    slopes: Floats
    variances: Floats

    @classmethod
    def of(cls, values: Any, *, dispersion: float | None = None) -> RatingFamily:
        """Return the family of these rising values."""
        numbers = np.asarray(values, dtype=np.float64)
        span, middle = float(np.ptp(numbers)), float(numbers.min() + numbers.max()) / 2
        spread = (span / 4) ** 2 if dispersion is None else dispersion
        base = np.exp(-((numbers - middle) ** 2) / (2 * spread))
        grid = np.linspace(numbers[0] + _MARGIN * span, numbers[-1] - _MARGIN * span, _POINTS)
        laws = tilted_laws(base / base.sum(), numbers, grid)
        variances = (laws * (numbers - grid[:, None]) ** 2).sum(axis=1)
        return cls(values=numbers, grid=grid, laws=laws, slopes=slopes(laws, numbers), variances=variances)

    @property
    def span(self) -> float:
        """Largest value less the least."""
        return float(self.values[-1] - self.values[0])

    def law(self, mean: float) -> Floats:
        """Return the law at the grid point nearest a mean."""
        answer: Floats = self.laws[self.at(np.asarray([mean]))[0]]
        return answer

    def variance(self, mean: float) -> float:
        """Return the variance of a label with this mean."""
        return float(self.variances[self.at(np.asarray([mean]))[0]])

    def at(self, means: Floats) -> npt.NDArray[np.intp]:
        """Return the nearest grid points."""
        step = self.grid[1] - self.grid[0]
        nearest: npt.NDArray[np.intp] = (
            np.rint((means - self.grid[0]) / step).clip(0, len(self.grid) - 1).astype(np.intp)
        )
        return nearest


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
