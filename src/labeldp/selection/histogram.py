"""Counts by users: from an array, a mapping, or a table of users and items, with or without a public list of items.

>>> Histogram.of([5, 0, 2])
<Histogram: 3 public candidates, counts not shown>
>>> Histogram.of({"ham": 4, "egg": 1})
<Histogram: candidates not public, counts not shown>
>>> Histogram.from_pairs(["ann", "ann", "bob"], ["ham", "ham", "ham"]).counts
array([2])

A table of pairs (user, item) counts each pair once, in memory that a few bytes per row bound:

>>> names, counts = count_pairs("demo", [1, 1, 2, 2], ["a", "a", "a", "b"])
>>> names.tolist(), counts.tolist()
(['a', 'b'], [2, 1])

Both columns become integer codes, chunk by chunk. Users are then split into parts by code; the pairs of
one part are packed into one integer each (user * n_items + item), sorted, and repeated ones dropped. Only the codes (8
to 16 bytes a row) and one part live at a time.

Design notes. Which items occur is as private as how often. So a mapping or a table without `candidates` has an unknown
domain: its items count as drawn from an endless supply whose other members have count 0, and only methods that never
name an item of small count take it. An array's length is public; so is a list of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labeldp.arrays import Array, Int64s
from labeldp.errors import Described, invalid
from labeldp.guarantee import Guarantee
from labeldp.selection.base import Levels, find_levels

#: What a guarantee stands on where the caller hands in more than counts.
OPEN_LIST = "the list of candidates was made without looking at these counts"
OPEN_REGULARIZER = "the regularizer was chosen without looking at these counts"
#: Counts stay below this, so that every count and every gap is exact as a float.
LARGEST_COUNT = 2**53


@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """Counts of candidates; sensitive, so its repr shows none. Build it with `of` or `from_pairs`.

    `names` is None where candidates are known by their index. `public` says whether the list of candidates is public
    knowledge; where it is not, only items with a positive count are kept, in sorted order of names.
    """

    counts: Int64s
    names: Array | None = None
    public: bool = True

    @classmethod
    def of(cls, counts: Any, *, candidates: Sequence[Any] | None = None, owner: str = "Histogram.of") -> Histogram:
        """Return the counts of an array (one per candidate), a mapping from name to count, or a Histogram.

        An array's candidates are public. Those of a mapping are not, unless `candidates` lists all that could occur:
        then those that do not have count 0. `owner` is the public call that refuses bad counts.
        """
        if isinstance(counts, cls):
            return counts if candidates is None else counts.among(candidates, owner=owner)
        if not isinstance(counts, Mapping):
            values = check_counts(owner, counts)
            names = None if candidates is None else check_names(owner, candidates)
            if names is not None and names.size != values.size:
                got = Described(f"{names.size} names for {values.size} counts")
                raise invalid(owner, "candidates", "name every count", got=got)
            return cls(counts=values, names=names)
        keys = as_names(list(counts.keys()))
        # No user at all is a neighbour of one user: it is answered, not refused.
        values = check_counts(owner, list(counts.values())) if counts else np.empty(0, np.int64)
        order = order_by_name(keys, values)
        found = cls(counts=values[order], names=keys[order], public=False)
        return found if candidates is None else found.among(candidates, owner=owner)

    @classmethod
    def from_pairs(cls, users: Any, items: Any, *, candidates: Sequence[Any] | None = None) -> Histogram:
        """Count, for each item, the users who have it: a pair that occurs twice counts once.

        `users` and `items` are columns of equal length: NumPy arrays, lists or Arrow columns of integers or text.
        Works through parts of the users at a time; beyond the columns themselves it needs a few bytes per pair.
        """
        names, counts = count_pairs("Histogram.from_pairs", users, items)
        found = cls(counts=counts, names=names, public=False)
        return found if candidates is None else found.among(candidates, owner="Histogram.from_pairs")

    def among(self, candidates: Sequence[Any], *, owner: str = "Histogram.among") -> Histogram:
        """Return the counts of a public list of candidates, with 0 for those that do not occur."""
        names = check_names(owner, candidates)
        own = range(self.counts.size) if self.names is None else self.names.tolist()
        place = {name: j for j, name in enumerate(names.tolist())}
        values = np.zeros(names.size, np.int64)
        for name, count in zip(own, self.counts.tolist(), strict=True):
            if name not in place:
                # Which items occur is private: an error that a log keeps must not name one.
                got = Described("an item that is not listed")
                fix = "Leave such items out first, or list them; 1 and '1' are different items."
                raise invalid(owner, "candidates", "list every item that is counted", got=got, fix=fix)
            values[place[name]] = count
        return Histogram(counts=values, names=names)

    @cached_property
    def levels(self) -> Levels:
        """The distinct counts, falling, and how many candidates have each."""
        return find_levels(self.counts)

    def pick(self, places: Int64s) -> Array:
        """Return the names (or indices) at these places."""
        return places if self.names is None else self.names[places]

    def top(self, k: int) -> Int64s:
        """Return the places of the k largest counts in rising order; among equals the first are taken.

        Where candidates are not public there may be fewer than k.
        """
        if k >= self.counts.size:
            return np.arange(self.counts.size)
        least = self.levels.value_at(k)
        if self.levels.value_at(k + 1) < least:
            return np.flatnonzero(self.counts >= least)
        above = np.flatnonzero(self.counts > least)
        ties = np.flatnonzero(self.counts == least)[: k - above.size]
        return np.sort(np.concatenate([above, ties]))

    def state(self, promise: Guarantee, *, regularizer: bool = False) -> Guarantee:
        """Return the promise with what it takes for granted about a list of candidates, or a regularizer, handed in."""
        if self.public and self.names is not None:
            promise = promise.assuming(OPEN_LIST)
        return promise.assuming(OPEN_REGULARIZER) if regularizer else promise

    def __repr__(self) -> str:
        known = f"{self.counts.size} public candidates" if self.public else "candidates not public"
        return f"<Histogram: {known}, counts not shown>"


def check_counts(owner: str, counts: Any) -> Int64s:
    """Return counts as int64: one axis, whole, >= 0, below 2^53, at least one."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.size == 0:
        got = Described(f"an array of shape {array.shape}")
        raise invalid(owner, "counts", "be a list of at least one count", got=got)
    if array.dtype.kind not in "iuf":
        raise invalid(owner, "counts", "hold whole numbers", got=Described(f"dtype {array.dtype}"))
    if array.dtype.kind == "f" and not np.array_equal(array, np.rint(array)):
        kind = "NaN" if np.isnan(array).any() else "a fraction"
        fix = "One user adds 0 or 1 to each count; the noise is made for that."
        raise invalid(owner, "counts", "hold whole numbers", got=Described(kind), fix=fix)
    if array.dtype == np.int64 and array.flags.c_contiguous and array.view(np.uint64).max() < LARGEST_COUNT:
        return array  # one pass: a negative count is a huge one without its sign
    if array.min() < 0:
        raise invalid(owner, "counts", "be >= 0", got=Described("a negative count"))
    if array.max() >= LARGEST_COUNT:
        raise invalid(owner, "counts", "be below 2^53", got=Described("a larger count"))
    return array.astype(np.int64, copy=False)


def order_by_name(names: Array, counts: Int64s) -> Int64s:
    """Return the places of positive counts, sorted by name: neither zeros nor the order of insertion may show."""
    kept = np.flatnonzero(counts)
    try:
        return kept[np.argsort(names[kept], kind="stable")]
    except TypeError:  # names of several types have no order of their own
        return kept[np.argsort([repr(name) for name in names[kept]], kind="stable")]


def check_names(owner: str, candidates: Any) -> Array:
    """Return candidates as an array of distinct names."""
    names = as_names(candidates.tolist() if isinstance(candidates, np.ndarray) else list(candidates))
    if names.size == 0:
        raise invalid(owner, "candidates", "name at least one", got=Described("none"))
    if len(set(names.tolist())) != names.size:
        raise invalid(owner, "candidates", "be distinct", got=Described("a name twice"))
    return names


def as_names(values: list[Any]) -> Array:
    """Return names as an array: of integers or text where all are, else of objects, never joined or cast."""
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {str}:
        return np.array(values)
    names = np.empty(len(values), object)
    names[:] = values
    return names


#: Rows coded at a time, and pairs sorted at a time (8 MiB of keys).
CHUNK = 1 << 20


def count_pairs(owner: str, users: Any, items: Any) -> tuple[Array, Int64s]:
    """Return the distinct items, sorted, and how many distinct users have each.

    Works through parts of the users, so that beside the codes of both columns only one part is in memory.
    """
    user_column, item_column = read_column(owner, "users", users), read_column(owner, "items", items)
    if user_column.size != item_column.size:
        got = Described(f"{user_column.size} users and {item_column.size} items")
        raise invalid(owner, "users and items", "be columns of one length", got=got)
    if user_column.size == 0:
        return item_column, np.empty(0, np.int64)
    names, item_codes = encode_column(item_column)
    _, user_codes = encode_column(user_column)
    counts = np.zeros(names.size, np.int64)
    n_parts = -(-user_column.size // CHUNK)
    for part in range(n_parts):
        keys = np.concatenate(
            [
                user_codes[low : low + CHUNK][chosen].astype(np.int64) * names.size
                + item_codes[low : low + CHUNK][chosen]
                for low in range(0, user_codes.size, CHUNK)
                for chosen in [user_codes[low : low + CHUNK] % n_parts == part]
            ]
        )
        keys.sort()
        first = np.ones(keys.size, bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        counts += np.bincount(keys[first] % names.size, minlength=names.size)
    return names, counts


def encode_column(column: Array) -> tuple[Array, Array]:
    """Return the distinct values, sorted, and the place of each row's value among them, in the smallest integers."""
    chunks = range(0, column.size, CHUNK)
    names = np.unique(np.concatenate([np.unique(column[low : low + CHUNK]) for low in chunks]))
    kind = np.int32 if names.size < 2**31 else np.int64
    codes = np.empty(column.size, kind)
    for low in chunks:
        values, inverse = np.unique(column[low : low + CHUNK], return_inverse=True)
        codes[low : low + CHUNK] = np.searchsorted(names, values)[inverse]
    return names, codes


def read_column(owner: str, name: str, column: Any) -> Array:
    """Return a column of integers or text; Arrow columns are read through their own conversion."""
    if hasattr(column, "combine_chunks") or hasattr(column, "to_pylist"):
        column = column.to_numpy() if hasattr(column, "combine_chunks") else column.to_numpy(zero_copy_only=False)
    array = np.asarray(column)
    if array.dtype.kind in "OT" and all(isinstance(value, str) for value in array.flat):
        return array
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        fix = "Drop or fill missing ids first."
        raise invalid(owner, name, "be a column of integers or text", got=Described(f"dtype {array.dtype}"), fix=fix)
    return array
